#include "cost_models/framework_profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <sstream>

#include "base/check.h"
#include "base/digest.h"
#include "base/read_file.h"
#include "cost_models/json_fields.h"
#include "cost_models/operator_shape.h"

namespace windtunnel {
namespace {

constexpr double kMostMicroseconds = 1e6, kMostTimes = 1e4;

using Work = FrameworkKernel::Work;
constexpr std::array<std::pair<std::string_view, Work>, 4> kWorks = {
    {{"bytes", Work::kBytes}, {"own", Work::kOwn}, {"scores", Work::kScores}, {"context", Work::kContext}}};

Work ReadWork(Fields& fields) {
  const std::string word = fields.StringOr("work", "bytes");
  for (const auto& [name, work] : kWorks) {
    if (name == word) return work;
  }
  fields.FailAt("work", fmt::format("is \"{}\", expected bytes, own, scores or context", word));
  return Work::kBytes;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "\"residul\", expected one of bias, layernorm, residual, rmsnorm"
std::string NoneOf(std::string_view word, const std::set<std::string, std::less<>>& known) {
  if (known.empty()) return fmt::format("\"{}\", expected none for this operator", word);
  return fmt::format("\"{}\", expected one of {}", word, fmt::join(known, ", "));
}

// A word that no operator knows would never hold, and the kernel would silently cost nothing.
void CheckWords(const FrameworkKernel& kernel, const OperatorVocabulary& known, Fields& fields) {
  for (const std::string& word : kernel.when) {
    const std::string_view condition = std::string_view(word).substr(word.starts_with('!') ? 1 : 0);
    if (!known.conditions.contains(condition))
      fields.FailAt("when", "has " + NoneOf(condition, known.conditions));
  }
  if (!kernel.of.empty() && !known.tensors.contains(kernel.of))
    fields.FailAt("of", "is " + NoneOf(kernel.of, known.tensors));
}

FrameworkKernel ReadKernel(Fields& fields) {
  return {.name = fields.String("kernel"),
          .work = ReadWork(fields),
          .of = fields.StringOr("of", ""),
          .values = fields.NumberOr("values", 0, 0, kMostTimes),
          .fp32 = fields.NumberOr("fp32", 0, 0, kMostTimes),
          .bytes = fields.NumberOr("bytes", 0, 0, kMostTimes),
          .launches = fields.NumberOr("launches", 1, 0, kMostTimes),
          .launches_per_tensor = fields.NumberOr("launches_per_tensor", 0, 0, kMostTimes),
          .host_us = fields.NumberOr("host_us", 0, 0, kMostMicroseconds),
          .host_us_per_tensor = fields.NumberOr("host_us_per_tensor", 0, 0, kMostMicroseconds),
          .when = Words(fields.StringOr("when", ""))};
}

// Leaves `flash` as it is if the profile does not name it.
void ReadFlash(Fields& fields, FlashKernels& flash) {
  if (!fields.Has("flash")) return;
  const std::string word = fields.StringOr("flash", "");
  if (word == "flash") flash = FlashKernels::kFlashAttention2;
  else if (word == "flash_1") flash = FlashKernels::kFlashAttention1;
  else if (word == "flash_cudnn") flash = FlashKernels::kCudnn;
  else if (word == "flash_windtunnel") flash = FlashKernels::kWindtunnel;
  else
    fields.Fail("$.flash",
                fmt::format("is \"{}\", expected flash, flash_1, flash_cudnn or flash_windtunnel", word));
}

constexpr int64_t kMostSize = int64_t{1} << 40;  // of a layer's shape

LayerFactors ReadLayers(Fields& fields) {
  std::vector<LayerFactors::Known> known;
  fields.List("layers", [&](Fields& f) {
    known.push_back({{.micro = f.Integer("micro", 1),
                      .seq_len = f.Integer("seq_len", 1),
                      .hidden = f.Integer("hidden", 1),
                      .tensor = f.Integer("tensor", 1)},
                     f.Number("factor", LayerFactors::kLeast, LayerFactors::kMost)});
    const LayerShape& shape = known.back().shape;
    const int64_t largest = std::max({shape.micro, shape.seq_len, shape.hidden, shape.tensor});
    if (largest > kMostSize)
      f.Fail(fmt::format("$.residuals.layers[{}]", known.size() - 1),
             fmt::format("has {}, expected at most {}", largest, kMostSize));
    const auto same = [&](const LayerFactors::Known& other) { return other.shape == known.back().shape; };
    if (std::count_if(known.begin(), known.end(), same) == 1) return;
    known.pop_back();
    f.Fail(fmt::format("$.residuals.layers[{}]", known.size()),
           "has the shape of another, expected each once");
  });
  return LayerFactors(std::move(known));
}

void ReadResiduals(Fields& fields, ResidualFactors& residuals) {
  for (const char* name : kResidualNames)
    Residual(residuals, name) =
        fields.NumberOr(name, Residual(residuals, name), LeastResidual(name).value_or(0.01), 100);
  if (fields.Has("layers")) residuals.layers = ReadLayers(fields);
}

void ReadUnaligned(Fields& fields, FrameworkProfile& profile) {
  if (fields.Has("unaligned")) {
    const std::string word = fields.StringOr("unaligned", "");
    profile.pads_products = word == "padded";
    if (word != "padded" && word != "slow")
      fields.Fail("$.unaligned", fmt::format("is \"{}\", expected slow or padded", word));
  }
  if (fields.Has("unaligned_batches")) {
    const std::string word = fields.StringOr("unaligned_batches", "");
    profile.aligned_batches_only = word == "without_tensor_cores";
    if (word != "without_tensor_cores" && word != "slow")
      fields.Fail("$.unaligned_batches",
                  fmt::format("is \"{}\", expected slow or without_tensor_cores", word));
  }
}

void ReadOperators(Fields& operators, FrameworkProfile& profile) {
  for (const std::string& key : operators.AllKeys()) {
    const auto known = KnownOperators().find(key);
    if (known == KnownOperators().end())
      return operators.FailAt(key, fmt::format("is not an operator, expected one of {}",
                                               fmt::join(std::views::keys(KnownOperators()), ", ")));
    std::vector<FrameworkKernel> kernels;
    operators.List(key, [&](Fields& f) {
      kernels.push_back(ReadKernel(f));
      CheckWords(kernels.back(), known->second, f);
    });
    profile.operators[key] = std::move(kernels);
  }
}

FrameworkProfile BaseOf(Fields& fields) {
  const std::string base = fields.StringOr("base", "");
  if (base.empty()) return FrameworkProfile{};
  if (const FrameworkProfile* known = EmbeddedFramework(base)) return *known;
  fields.Fail("$.base", fmt::format("is {}, expected a framework's name (windtunnel, pytorch, …)", base));
  return FrameworkProfile{};
}

}  // namespace

double& Residual(ResidualFactors& factors, std::string_view name) {
  if (name == "host") return factors.host;
  if (name == "gemm") return factors.gemm;
  if (name == "attention") return factors.attention;
  if (name == "loss") return factors.loss;
  if (name == "optimizer") return factors.optimizer;
  if (name == "memory") return factors.memory;
  if (name == "link") return factors.link;
  WT_CHECK(name == "launch");
  return factors.launch;
}

ResidualFactors FactorsFor(const LayerShape& shape, ResidualFactors factors) {
  const double factor = factors.layers.At(shape);
  for (const char* name : kLayerResidualNames) Residual(factors, name) *= factor;
  factors.layers = {};
  return factors;
}

std::optional<double> LeastResidual(std::string_view name) {
  if (name == "launch") return 1;
  return std::nullopt;
}

Result<FrameworkProfile> ParseFrameworkProfile(const std::string& json, const std::string& name) {
  WT_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json, name, "a framework profile"));
  std::string error;
  Fields fields(document, "$", error);
  const std::string schema = fields.String("schema");
  if (error.empty() && schema != kFrameworkSchema)
    return InvalidField(name, json,
                        fmt::format("$.schema is \"{}\", expected \"{}\"", schema, kFrameworkSchema));
  FrameworkProfile profile = BaseOf(fields);
  profile.digest = "sha256:" + Sha256Hex(json);
  profile.name = fields.String("name");
  profile.base = fields.StringOr("base", profile.name);
  profile.description = fields.StringOr("description", profile.description);
  profile.forward_us = fields.NumberOr("forward_us", profile.forward_us, 0, kMostMicroseconds);
  profile.backward_us = fields.NumberOr("backward_us", profile.backward_us, 0, kMostMicroseconds);
  profile.plain_us = fields.NumberOr("plain_us", profile.plain_us, 0, kMostMicroseconds);
  profile.collective_us = fields.NumberOr("collective_us", profile.collective_us, 0, kMostMicroseconds);
  profile.graph_us = fields.NumberOr("graph_us", profile.graph_us, 0, kMostMicroseconds);
  profile.graph_kernel_us = fields.NumberOr("graph_kernel_us", profile.graph_kernel_us, 0, kMostMicroseconds);
  profile.graph_saves_us = fields.NumberOr("graph_saves_us", profile.graph_saves_us, 0, kMostMicroseconds);
  profile.no_grad_us = fields.NumberOr("no_grad_us", profile.no_grad_us, 0, kMostMicroseconds);
  profile.checkpoint_us = fields.NumberOr("checkpoint_us", profile.checkpoint_us, 0, kMostMicroseconds);
  ReadFlash(fields, profile.flash);
  ReadUnaligned(fields, profile);
  if (fields.Has("operators")) fields.Object("operators", [&](Fields& f) { ReadOperators(f, profile); });
  if (fields.Has("residuals"))
    fields.Object("residuals", [&](Fields& f) { ReadResiduals(f, profile.residuals); });
  for (const auto& [key, source] : fields.Strings("sources")) profile.sources[key] = source;
  fields.RejectOthers();
  if (!error.empty()) return InvalidField(name, json, error);
  return profile;
}

Result<FrameworkProfile> LoadFrameworkProfile(const std::string& path) {
  WT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "a framework profile"));
  return ParseFrameworkProfile(text, path);
}

const FrameworkProfile* EmbeddedFramework(std::string_view name) {
  static std::recursive_mutex mutex;
  static std::map<std::string, std::unique_ptr<const FrameworkProfile>, std::less<>> known;
  std::lock_guard lock(mutex);
  if (auto found = known.find(name); found != known.end()) return found->second.get();
  const std::optional<std::string> json = EmbeddedFrameworkJson(name);
  if (!json) return nullptr;
  auto profile = ParseFrameworkProfile(*json, std::string(name));
  if (!profile) internal::CheckFailed(__FILE__, __LINE__, profile.error().message);
  auto kept = std::make_unique<const FrameworkProfile>(std::move(*profile));
  return known.emplace(name, std::move(kept)).first->second.get();
}

const FrameworkProfile& FrameworkOf(const Scenario& scenario) {
  const auto name = [&]() -> std::string_view {
    switch (scenario.framework) {
      case Framework::kWindtunnel:
        return "windtunnel";
      case Framework::kPytorch:
        return scenario.parallel.data.kind == DataParallelKind::kFsdp && scenario.parallel.data.version == 1
                   ? "pytorch_fsdp1"
                   : "pytorch";
      case Framework::kPytorchCompile:
        return "pytorch_compile";
      case Framework::kMegatron:
        return "megatron";
      case Framework::kMegatronCore:
        return "megatron_core";
      case Framework::kDeepspeed:
        return "deepspeed";
    }
    return "windtunnel";
  }();
  const FrameworkProfile* profile = EmbeddedFramework(name);
  WT_CHECK(profile != nullptr);
  return *profile;
}

namespace {

std::string WithResiduals(nlohmann::ordered_json json, ResidualFactors factors,
                          const std::map<std::string, std::string>& sources) {
  for (const char* residual : kResidualNames) json["residuals"][residual] = Residual(factors, residual);
  json["residuals"].erase("layers");
  for (const auto& [shape, factor] : factors.layers.known())
    json["residuals"]["layers"].push_back({{"micro", shape.micro},
                                           {"seq_len", shape.seq_len},
                                           {"hidden", shape.hidden},
                                           {"tensor", shape.tensor},
                                           {"factor", factor}});
  for (const auto& [key, source] : sources) json["sources"][key] = source;
  return json.dump(2) + "\n";
}

}  // namespace

Result<std::string> CalibratedFrameworkJson(const std::string& text, const std::string& file,
                                            const std::string& name, const ResidualFactors& factors,
                                            const std::map<std::string, std::string>& sources) {
  WT_RETURN_IF_ERROR(ParseFrameworkProfile(text, file));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  json["name"] = name;
  return WithResiduals(std::move(json), factors, sources);
}

std::string CalibratedFrameworkJson(const std::string& name, const std::string& base,
                                    const ResidualFactors& factors,
                                    const std::map<std::string, std::string>& sources) {
  nlohmann::ordered_json json;
  json["schema"] = kFrameworkSchema;
  json["name"] = name;
  json["base"] = base;
  json["residuals"] = json["sources"] = nlohmann::ordered_json::object();
  return WithResiduals(std::move(json), factors, sources);
}

}  // namespace windtunnel
