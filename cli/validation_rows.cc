#include "cli/validation_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "base/parsing_notes.h"
#include "base/read_file.h"
#include "scenarios/suggest.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

Result<std::optional<double>> Positive(const Json& measured, const char* key, const std::string& place) {
  auto found = measured.find(key);
  if (found == measured.end()) return std::nullopt;
  if (!found->is_number() || !(found->get<double>() > 0) || !std::isfinite(found->get<double>()))
    return InvalidInput("{}: measured.{} is {}, expected a positive number", place, key, found->dump());
  // Outside what any step measures; errors of such numbers could not be written.
  constexpr double kLeast = 1e-9, kMost = 1e15;
  if (const double value = found->get<double>(); value < kLeast || value > kMost)
    return InvalidInput("{}: measured.{} is {}, expected 1e-9 to 1e15", place, key, found->dump());
  return found->get<double>();
}

Result<std::optional<int64_t>> RankIn(const Json& measured, const char* key, const std::string& place) {
  const auto found = measured.find(key);
  if (found == measured.end()) return std::nullopt;
  constexpr uint64_t kMost = INT32_MAX;
  if (!found->is_number_unsigned() || found->get<uint64_t>() > kMost)
    return InvalidInput("{}: measured.{} is {}, expected a rank, from 0 on", place, key, found->dump());
  return found->get<int64_t>();
}

Result<FlopsConvention> ConventionOf(const Json& measured, const std::string& place) {
  auto found = measured.find("flops_convention");
  if (found == measured.end() || *found == "palm") return FlopsConvention::kPalm;
  if (*found == "megatron") return FlopsConvention::kMegatron;
  if (*found == "megatron-causal") return FlopsConvention::kMegatronCausal;
  if (*found == "megatron-hardware") return FlopsConvention::kMegatronHardware;
  return InvalidInput(
      "{}: measured.flops_convention is {}, expected palm, megatron, megatron-causal or "
      "megatron-hardware",
      place, found->dump());
}

// Of a device. What is given in GiB or MiB is far below any peak in bytes.
Result<std::optional<double>> BytesIn(const Json& measured, const char* key, const std::string& place) {
  constexpr double kLeast = 1 << 20;
  WT_ASSIGN_OR_RETURN(const std::optional<double> bytes, Positive(measured, key, place));
  if (bytes && *bytes < kLeast)
    return InvalidInput("{}: measured.{} is {}, expected bytes, at least {:.0f}: are these GiB or MiB?",
                        place, key, *bytes, kLeast);
  return bytes;
}

// Otherwise a misspelt quantity would count as not measured. Unknown keys that resemble none are for people.
Status CheckSpelling(const Json& measured, const std::string& place) {
  constexpr size_t kSlip = 3;  // characters, in long words
  static const std::vector<std::string> known = {"step_time_s",
                                                 "tokens_per_s_per_device",
                                                 "tflops_per_device",
                                                 "mfu",
                                                 "peak_memory_bytes",
                                                 "reserved_memory_bytes",
                                                 "device_memory_used_bytes",
                                                 "flops_convention",
                                                 "runs",
                                                 "spread",
                                                 "memory_rank"};
  for (const auto& [key, value] : measured.items()) {
    const std::string meant = Nearest(key, known);
    if (key == meant || measured.contains(meant)) continue;
    if (static_cast<size_t>(EditDistance(key, meant)) <= std::min(kSlip, key.size() / 3))
      return InvalidInput("{}: unknown key 'measured.{}', did you mean 'measured.{}'?", place, key, meant);
  }
  return Ok();
}

Result<PublishedMeasurement> ReadMeasured(const Json& measured, const std::string& place) {
  WT_RETURN_IF_ERROR(CheckSpelling(measured, place));
  PublishedMeasurement result;
  WT_ASSIGN_OR_RETURN(result.step_time_s, Positive(measured, "step_time_s", place));
  WT_ASSIGN_OR_RETURN(result.tokens_per_s_per_device, Positive(measured, "tokens_per_s_per_device", place));
  WT_ASSIGN_OR_RETURN(result.tflops_per_device, Positive(measured, "tflops_per_device", place));
  WT_ASSIGN_OR_RETURN(result.mfu, Positive(measured, "mfu", place));
  if (result.mfu && *result.mfu > 1)
    return InvalidInput("{}: measured.mfu is {}, expected a fraction, at most 1", place, *result.mfu);
  WT_ASSIGN_OR_RETURN(result.peak_memory_bytes, BytesIn(measured, "peak_memory_bytes", place));
  WT_ASSIGN_OR_RETURN(result.reserved_memory_bytes, BytesIn(measured, "reserved_memory_bytes", place));
  WT_ASSIGN_OR_RETURN(result.device_memory_used_bytes, BytesIn(measured, "device_memory_used_bytes", place));
  WT_ASSIGN_OR_RETURN(result.memory_rank, RankIn(measured, "memory_rank", place));
  WT_ASSIGN_OR_RETURN(result.flops_convention, ConventionOf(measured, place));
  return result;
}

// Why the line is no JSON object, with the column.
Error NoObject(const std::string& line, const std::string& file, int number) {
  const auto at = [&](size_t column, std::string_view what) {
    return InvalidInput("{}:{}:{}: {}, expected a validation row", file, number, column, what).value();
  };
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string::npos || line[first] != '{') return at(1, "is not a JSON object");
  try {
    std::ignore = Json::parse(line);
  } catch (const Json::parse_error& e) {
    return at(std::max<size_t>(e.byte, 1), "is not JSON in UTF-8");
  } catch (const Json::exception&) {
    return at(1, "has a number out of range");
  }
  return at(1, "is not a JSON object");
}

// Other keys of a row (source, notes, labels of its origin) are for people and ignored.
Result<ValidationRow> ReadRow(const std::string& line, const std::string& file, int number) {
  const std::string place = fmt::format("{}:{}:1", file, number);
  ParsingNotes notes;
  const Json row = Json::parse(line, std::ref(notes), /*allow_exceptions=*/false);
  if (notes.nests_too_deep())
    return InvalidInput("{}: nests deeper than {}, expected a validation row", place, kMostJsonDepth);
  if (!notes.duplicate().empty())
    return InvalidInput("{}: duplicate key '{}', expected it once", place, notes.duplicate());
  if (!row.is_object()) return tl::unexpected(NoObject(line, file, number));
  for (const char* key : {"scenario", "measured"}) {
    if (!row.contains(key) || !row[key].is_object())
      return InvalidInput("{}: has no object '{}', expected id, source, scenario and measured", place, key);
  }
  if (!row.contains("id") || !row["id"].is_string() || row["id"].get<std::string>().empty())
    return InvalidInput("{}: 'id' is {}, expected a text", place,
                        row.contains("id") ? row["id"].dump() : "missing");
  ValidationRow result;
  result.id = row["id"].get<std::string>();
  result.scenario = row["scenario"].dump();
  result.file = file;
  result.place = place;
  WT_ASSIGN_OR_RETURN(result.measured, ReadMeasured(row["measured"], place));
  return result;
}

// Weights of one layer's attention GEMMs.
double AttentionWeights(const ModelSpec& model) {
  const double h = static_cast<double>(model.hidden), heads = static_cast<double>(model.heads);
  const double queries = heads * static_cast<double>(model.head_dim);
  if (!model.latent_attention)
    return h * ((model.attention_gate ? 3 : 2) * queries +
                2.0 * static_cast<double>(model.kv_heads * model.head_dim));
  const LatentAttentionSpec& latent = *model.latent_attention;
  const double q_rank = static_cast<double>(latent.q_rank), kv_rank = static_cast<double>(latent.kv_rank);
  const double rotated = static_cast<double>(latent.rope_dim),
               values = heads * static_cast<double>(model.ValueDim());
  return (latent.q_rank > 0 ? q_rank * (h + queries) : h * queries) + h * (kv_rank + rotated) +
         kv_rank * (queries - heads * rotated + values) + values * h;
}

// Of one layer with a state space model; the scan's FLOPs (plan/transformer.cc), two of which count as one
// weight's.
double MambaWeights(const ModelSpec& model) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const MambaSpec& mamba = *model.mamba;
  const int64_t inner = mamba.inner(), packed = 2 * (inner + mamba.groups * mamba.state) + mamba.heads;
  return number(model.hidden * (packed + inner)) + 3.5 * number(inner * mamba.state);
}

// The same of one with a gated delta network.
double DeltaNetWeights(const ModelSpec& model) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const DeltaNetSpec& net = *model.delta_net;
  return number(model.hidden * (net.packed() + net.inner()) + net.convolved() * net.conv) +
         4 * number(net.inner() * net.key_dim);
}

// Of one layer's experts, those that a token uses; with the projections to latents and from them.
double ExpertWeights(const ModelSpec& model) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const ExpertsSpec& experts = *model.experts;
  const double matrices = IsGated(model.activation) ? 3 : 2;
  const double routed = number(model.ExpertWidth() * model.ffn * experts.top_k);
  return matrices * (routed + number(model.hidden * experts.shared_ffn)) +
         2 * number(model.hidden * experts.latent);
}

// Weights of the GEMMs of all layers and multi-token prediction modules; of experts, only those that a token
// uses.
double LayersWeights(const ModelSpec& model) {
  const double h = static_cast<double>(model.hidden), matrices = IsGated(model.activation) ? 3 : 2;
  const double attention = AttentionWeights(model);
  const double recurrent = model.mamba ? MambaWeights(model) : model.delta_net ? DeltaNetWeights(model) : 0;
  const double experts = model.experts ? ExpertWeights(model) : 0;
  const double dense = matrices * h * static_cast<double>(model.DenseFfn());
  const auto of = [&](const LayerKind& kind) {
    return (kind.is_recurrent() ? recurrent
            : kind.has_mixer()  ? attention
                                : 0) +
           (kind.has_mlp ? kind.has_experts ? experts : dense : 0);
  };
  double weights = 0;
  for (int64_t layer = 0; layer < model.layers; ++layer) weights += of(model.KindOf(layer));
  if (!model.mtp) return weights;
  const double projection = 2 * h * h;  // eh_proj: 2 hidden -> hidden
  return weights + static_cast<double>(model.mtp->layers) * (of(model.KindOfModules()) + projection);
}

// The same with an encoder, of the mean token of a sample. Tokens of the source go through the encoder and
// through cross-attention's keys and values, others through what else the decoder has.
double LayersWeightsWithEncoder(const ModelSpec& model) {
  const double h = static_cast<double>(model.hidden), matrices = IsGated(model.activation) ? 3 : 2;
  const double attention = AttentionWeights(model), mlp = matrices * h * static_cast<double>(model.ffn);
  const double keys = 2 * h * static_cast<double>(model.kv_heads * model.head_dim);
  const double layers = static_cast<double>(model.layers);
  const double of_source = static_cast<double>(model.encoder->layers) * (attention + mlp) + layers * keys;
  const double of_sequence = layers * (2 * attention - keys + mlp);
  const double share = static_cast<double>(model.seq_len) / static_cast<double>(model.SampleTokens());
  return of_source * (1 - share) + of_sequence * share;
}

// The number of passes over the layers' GEMMs and over attention, in units of 2 FLOPs per weight: one
// forward, and two for backward. `masked`: passes over causal attention that are not counted.
struct Passes {
  double layers = 3, attention = 3, masked = 0;
};
// Of recomputed modules only the attention core counts, as in Megatron's formula (Korthikanti et al.,
// arXiv:2205.05198).
Passes PassesOf(const Scenario& scenario, FlopsConvention convention) {
  if (convention == FlopsConvention::kMegatron) return {};
  // Half of what causal attention multiplies is masked, and not counted.
  if (convention == FlopsConvention::kMegatronCausal) return {.masked = 1.5};
  const double again = scenario.RecomputedShare();
  if (again > 0) return {3 + again, 3 + again};
  if (scenario.Recomputes(RecomputeModule::kCoreAttention)) return {3, 4};
  return {};
}

}  // namespace

Result<std::vector<ValidationRow>> ParseValidationRows(const std::string& text, const std::string& path) {
  std::vector<ValidationRow> rows;
  std::map<std::string, int> line_of_id;
  std::istringstream stream(text);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    WT_ASSIGN_OR_RETURN(ValidationRow row, ReadRow(line, path, number));
    const auto [first, is_new] = line_of_id.emplace(row.id, number);
    if (!is_new)
      return InvalidInput("{}: id '{}' is that of line {}, too, expected one row of it", row.place, row.id,
                          first->second);
    rows.push_back(std::move(row));
  }
  if (rows.empty())
    return InvalidInput("{}:1:1: has no rows, expected validation rows, one JSON object a line", path);
  return rows;
}

Result<std::vector<ValidationRow>> LoadValidationRows(const std::string& path) {
  WT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "validation rows"));
  return ParseValidationRows(text, path);
}

Flops FlopsPerToken(const Plan& plan, FlopsConvention convention) {
  const ModelSpec& model = plan.scenario.model;
  if (convention == FlopsConvention::kPalm || model.kind != ModelKind::kTransformer)
    return plan.model.flops_per_token;
  const Passes passes = PassesOf(plan.scenario, convention);
  const double weights =
      2 * passes.layers * (model.encoder ? LayersWeightsWithEncoder(model) : LayersWeights(model));
  const double pairs = passes.attention * model.AttentionTokens() - passes.masked * model.CausalTokens();
  const double attention = 2 * pairs * static_cast<double>(model.heads * (model.head_dim + model.ValueDim()));
  const double share = static_cast<double>(model.seq_len) / static_cast<double>(model.SampleTokens());
  const double head = 6 * share * static_cast<double>((1 + model.MtpLayers()) * model.hidden * model.vocab);
  return Flops(weights + attention + head);
}

std::optional<Duration> StepTimeOf(const PublishedMeasurement& measured, const Plan& plan, FlopRate peak) {
  if (measured.step_time_s) return Seconds(*measured.step_time_s);
  const double tokens_per_device = static_cast<double>(plan.model.tokens_per_step) / plan.world_size;
  if (measured.tokens_per_s_per_device) return Seconds(tokens_per_device / *measured.tokens_per_s_per_device);
  const Flops flops = FlopsPerToken(plan, measured.flops_convention) * tokens_per_device;
  if (measured.tflops_per_device) return flops / Tflops(*measured.tflops_per_device);
  if (measured.mfu && peak > FlopRate()) return flops / (peak * *measured.mfu);
  return std::nullopt;
}

}  // namespace windtunnel
