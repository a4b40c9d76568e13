#include "runtime/checkpoint/hugging_face_weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"
#include "base/parsing_notes.h"
#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/hugging_face_names.h"
#include "runtime/checkpoint/merged_adapters.h"
#include "runtime/checkpoint/safetensors.h"
#include "scenarios/hugging_face.h"
#include "scenarios/load.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<int64_t>;
using Part = HuggingFaceMapping::Part;
using Mapping = HuggingFaceMapping;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kConfigFile = "config.json";
constexpr int64_t kMaxIndex = int64_t{1} << 28;
constexpr int64_t kMaxConfig = int64_t{1} << 20;

// to[column][row] = from[row][column].
std::vector<float> Transposed(const std::vector<float>& from, int64_t rows, int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column)
      to[static_cast<size_t>(column * rows + row)] = from[static_cast<size_t>(row * columns + column)];
  }
  return to;
}

// The tensors of one file, or of the files that an index names.
class Weights {
 public:
  static Result<Weights> Open(const std::string& path) {
    Weights weights;
    weights.path_ = path;
    std::error_code ignored;
    if (fs::path(path).filename() == kIndexFile) {  // stands for its directory
      const fs::path directory = fs::path(path).parent_path();
      return Open(directory.empty() ? "." : directory.string());
    }
    if (!fs::is_directory(path, ignored)) {
      WT_RETURN_IF_ERROR(weights.AddFile(path));
      return weights;
    }
    if (fs::exists(fs::path(path) / kIndexFile, ignored)) WT_RETURN_IF_ERROR(weights.AddIndexed());
    else WT_RETURN_IF_ERROR(weights.AddFile(path + "/" + kWeightsFile));
    return weights;
  }

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  // The file that has the tensor, and the tensor's name there: GPT-2's names lack the prefix if the model was
  // saved without its head.
  std::pair<const SafetensorsFile*, std::string> Find(const std::string& name) const {
    std::string bare = name;
    for (const char* prefix : {"", "transformer.", "model."}) {
      if (!name.starts_with(prefix)) continue;
      bare = name.substr(std::string_view(prefix).size());
      for (const SafetensorsFile& file : files_) {
        if (file.Find(bare) != nullptr) return {&file, bare};
      }
    }
    return {nullptr, name};
  }

 private:
  Status AddFile(const std::string& path) {
    WT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    files_.push_back(std::move(file));
    return Ok();
  }
  Status AddIndexed() {
    const std::string index = path_ + "/" + kIndexFile;
    WT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(index, kMaxIndex));
    std::set<std::string> names;
    try {
      const nlohmann::json json = ParseOrDiscard(text);
      for (const auto& [tensor, file] : json.at("weight_map").items()) names.insert(file.get<std::string>());
    } catch (const nlohmann::json::exception& error) {
      return InvalidInput("{}: is not an index of safetensors files: {}", index, error.what());
    }
    for (const std::string& name : names) {
      if (fs::path(name).filename() != name)
        return InvalidInput("{}: names a file '{}' of another directory", index, name);
      WT_RETURN_IF_ERROR(AddFile(path_ + "/" + name));
    }
    return Ok();
  }

  std::string path_;
  std::vector<SafetensorsFile> files_;
};

class HuggingFaceSource : public TensorSource {
 public:
  HuggingFaceSource(Weights weights, std::vector<Mapping> mappings) : weights_(std::move(weights)) {
    for (Mapping& mapping : mappings) mappings_.emplace(mapping.tensor, std::move(mapping));
  }

  Status Check(const ModelSpec& model) const {
    for (const auto& [tensor, mapping] : mappings_) {
      for (const Part& part : mapping.parts) WT_RETURN_IF_ERROR(CheckPart(mapping, part));
    }
    WT_RETURN_IF_ERROR(CheckNothingIsLeft());
    return model.tie_embeddings ? CheckTiedHead() : Ok();
  }

  std::string path() const override { return weights_.path(); }
  std::optional<Shape> ShapeOf(const std::string& tensor) const override {
    const auto found = mappings_.find(tensor);
    if (found == mappings_.end()) return std::nullopt;
    return found->second.shape;
  }
  bool MayLack(const std::string& tensor) const override { return IsOfAdapter(tensor); }
  Result<std::vector<float>> Read(const std::string& tensor) const override {
    const auto found = mappings_.find(tensor);
    if (found == mappings_.end()) return InvalidInput("{}: has no tensor '{}'", path(), tensor);
    const Mapping& mapping = found->second;
    std::vector<float> whole;
    whole.reserve(static_cast<size_t>(ElementsOf(mapping.shape)));
    for (const Part& part : mapping.parts) {
      WT_ASSIGN_OR_RETURN(std::vector<float> values, ReadPart(part.name));
      if (part.transposed) values = Transposed(values, mapping.columns(), part.rows);
      whole.insert(whole.end(), values.begin(), values.end());
    }
    return whole;
  }

 private:
  Result<std::vector<float>> ReadPart(const std::string& name) const {
    const auto [file, stored] = weights_.Find(name);
    if (file == nullptr) return InvalidInput("{}: has no tensor '{}'", path(), name);
    return file->Read(stored);
  }

  Status CheckPart(const Mapping& mapping, const Part& part) const {
    const auto [file, stored] = weights_.Find(part.name);
    if (file == nullptr) return InvalidInput("{}: has no tensor '{}'", path(), part.name);
    const Shape& shape = file->Find(stored)->shape;
    if (shape == mapping.ShapeOf(part)) return Ok();
    return InvalidInput("{}: tensor '{}' is {}, expected {}, as in the scenario's model", file->path(),
                        stored, FormatShape(shape), FormatShape(mapping.ShapeOf(part)));
  }

  // If the scenario's model lacked a bias or a layer, the remaining weights would be another model.
  Status CheckNothingIsLeft() const {
    std::set<std::pair<const SafetensorsFile*, std::string>> known = {weights_.Find("lm_head.weight")};
    for (const auto& [tensor, mapping] : mappings_)
      for (const Part& part : mapping.parts) known.insert(weights_.Find(part.name));
    for (const SafetensorsFile& file : weights_.files()) {
      for (const auto& [name, tensor] : file.tensors()) {
        if (known.contains({&file, name}) || IsConstant(name)) continue;
        return InvalidInput("{}: tensor '{}' is none of the scenario's model", file.path(), name);
      }
    }
    return Ok();
  }
  // Masks and rotary frequencies, which older versions of transformers saved.
  static bool IsConstant(const std::string& name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with("rotary_emb.inv_freq");
  }

  Status CheckTiedHead() const {
    if (weights_.Find("lm_head.weight").first == nullptr) return Ok();
    WT_ASSIGN_OR_RETURN(const std::vector<float> table, Read("model.wte.weight"));
    WT_ASSIGN_OR_RETURN(const std::vector<float> head, ReadPart("lm_head.weight"));
    if (head == table) return Ok();
    return InvalidInput(
        "{}: lm_head.weight is not the embedding's, so model.tie_embeddings must be false, is true", path());
  }

  Weights weights_;
  std::map<std::string, Mapping> mappings_;
};

// The number in the configuration beside the weights; `fallback` if it has none.
double NumberOf(const nlohmann::json& config, const char* key, double fallback) {
  const auto found = config.find(key);
  return found == config.end() || !found->is_number() ? fallback : found->get<double>();
}

// Compares the constants in the weights' configuration other than dimensions: with other constants the same
// weights give other outputs. Constants that the configuration lacks are not checked.
Status CheckConstants(const nlohmann::json& config, const ModelSpec& model, const std::string& path) {
  const auto expect = [&](const char* key, double found, const char* own_key, double own) {
    if (found == own) return Ok();
    return Status(InvalidInput("{}: {} is {:g}, expected {:g}, as model.{}", path, key, found, own, own_key));
  };
  const double epsilon = model.norm_epsilon;
  if (model.norm == NormKind::kLayerNorm)
    return expect("layer_norm_epsilon", NumberOf(config, "layer_norm_epsilon", epsilon), "norm_epsilon",
                  epsilon);
  WT_RETURN_IF_ERROR(
      expect("rms_norm_eps", NumberOf(config, "rms_norm_eps", epsilon), "norm_epsilon", epsilon));
  // Newer versions of transformers have rotary positions in an object of their own.
  const nlohmann::json rotary = config.value("rope_parameters", nlohmann::json::object());
  const double theta = NumberOf(config, "rope_theta", NumberOf(rotary, "rope_theta", model.rope_theta));
  WT_RETURN_IF_ERROR(expect("rope_theta", theta, "rope_theta", model.rope_theta));
  const auto scaling = config.find("rope_scaling");
  if ((scaling != config.end() && !scaling->is_null()) || rotary.value("rope_type", "default") != "default")
    return Unsupported("{}: rope_scaling is {}, expected none", path,
                       scaling != config.end() ? scaling->dump() : rotary.dump());
  return Ok();
}

// Compares what the shapes of weights do not show, in a configuration that says which model it is of.
Status CheckStructure(const std::string& path, const ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(const ModelSpec found, ReadHuggingFaceConfig(path, model.seq_len));
  const auto expect = [&](const char* key, const auto& theirs, const auto& own) {
    if (theirs == own) return Ok();
    return Status(InvalidInput("{}: the model has model.{} {}, expected {}, as the scenario's", path, key,
                               theirs, own));
  };
  const auto key_heads = [](const ModelSpec& m) { return m.kv_heads > 0 ? m.kv_heads : m.heads; };
  WT_RETURN_IF_ERROR(expect("heads", found.heads, model.heads));
  if (!model.latent_attention) WT_RETURN_IF_ERROR(expect("kv_heads", key_heads(found), key_heads(model)));
  WT_RETURN_IF_ERROR(expect("rope_dim", found.rope_dim, model.rope_dim));
  WT_RETURN_IF_ERROR(expect("activation", WordOf(found.activation), WordOf(model.activation)));
  const SlidingWindowSpec none;
  const SlidingWindowSpec theirs = found.sliding_window.value_or(none),
                          own = model.sliding_window.value_or(none);
  WT_RETURN_IF_ERROR(expect("sliding_window.tokens", theirs.tokens, own.tokens));
  WT_RETURN_IF_ERROR(expect("sliding_window.full_every", theirs.full_every, own.full_every));
  if (!found.experts || !model.experts) return Ok();  // their tensors differ
  return expect("experts.top_k", found.experts->top_k, model.experts->top_k);
}

// Checks the configuration in the weights' directory, if there is one. `weights`: that directory or a file in
// it.
Status CheckConfiguration(const std::string& weights, const ModelSpec& model) {
  std::error_code ignored;
  fs::path directory = weights;
  if (!fs::is_directory(directory, ignored)) directory = directory.parent_path();
  const std::string path = (directory / kConfigFile).string();
  if (!fs::exists(path, ignored)) return Ok();
  WT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxConfig));
  try {
    const nlohmann::json config = ParseOrDiscard(text);
    if (!config.is_object()) return InvalidInput("{}: is not a JSON object", path);
    const auto type = config.find("model_type");
    const bool has_type = type != config.end() && type->is_string();
    if (const std::string_view differs =
            has_type ? WhatDiffersInHuggingFace(type->get_ref<const std::string&>()) : std::string_view();
        !differs.empty())
      return Unsupported("{}: model_type is '{}', whose weights would compute something else here: {}", path,
                         type->get_ref<const std::string&>(), differs);
    WT_RETURN_IF_ERROR(CheckConstants(config, model, path));
    return config.contains("model_type") ? CheckStructure(path, model) : Ok();
  } catch (const nlohmann::json::exception& error) {
    return InvalidInput("{}: is not a configuration of a model: {}", path, error.what());
  }
}

// Our tensors in parts, as the other program has them. The parts of a tensor are asked for one after the
// other (those of all experts may be hundreds), so the tensor that was read last is kept.
class Parts {
 public:
  explicit Parts(const TensorSource& source) : source_(source) {}

  Result<std::vector<float>> Extract(const Mapping& mapping, const Part& part) {
    if (mapping.parts.size() == 1 && !part.transposed) return source_.Read(mapping.tensor);
    WT_RETURN_IF_ERROR(Keep(mapping.tensor));
    const auto begin = whole_.begin() + part.first_row * mapping.columns();
    std::vector<float> rows(begin, begin + part.rows * mapping.columns());
    if (part.transposed) rows = Transposed(rows, part.rows, mapping.columns());
    return rows;
  }

 private:
  Status Keep(const std::string& tensor) {
    if (tensor == kept_) return Ok();
    kept_.clear();
    whole_ = std::vector<float>();  // frees it first: one tensor is held at a time
    WT_ASSIGN_OR_RETURN(whole_, source_.Read(tensor));
    kept_ = tensor;
    return Ok();
  }

  const TensorSource& source_;
  std::string kept_;  // the tensor that `whole_` is; empty: none
  std::vector<float> whole_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenHuggingFaceWeights(const std::string& path,
                                                             const ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(std::vector<Mapping> mappings, HuggingFaceMappings(model));
  WT_ASSIGN_OR_RETURN(Weights weights, Weights::Open(path));
  auto source = std::make_unique<HuggingFaceSource>(std::move(weights), std::move(mappings));
  WT_RETURN_IF_ERROR(CheckConfiguration(path, model));
  WT_RETURN_IF_ERROR(source->Check(model));
  return std::unique_ptr<TensorSource>(std::move(source));
}

Status CheckHuggingFaceExport(const ModelSpec& model) {
  WT_RETURN_IF_ERROR(HuggingFaceConfig(model));
  return Ok();
}

Status ExportHuggingFace(const Checkpoint& checkpoint, const std::string& directory) {
  WT_ASSIGN_OR_RETURN(const Scenario scenario,
                      ParseScenario(checkpoint.info().scenario, checkpoint.path(), "/", {}));
  WT_ASSIGN_OR_RETURN(const std::vector<Mapping> mappings, HuggingFaceMappings(scenario.model));
  WT_ASSIGN_OR_RETURN(const std::string config, HuggingFaceConfig(scenario.model));
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return Failed("{}: cannot be made: {}", directory, error.message());
  const MergedAdapters merged(checkpoint, scenario.model);
  Parts parts(merged);
  std::vector<TensorToWrite> tensors;
  for (const Mapping& mapping : mappings) {
    if (checkpoint.ShapeOf(mapping.tensor) != mapping.shape) {
      return InvalidInput("{}: tensor '{}' is not {}", checkpoint.path(), mapping.tensor,
                          FormatShape(mapping.shape));
    }
    for (const Part& part : mapping.parts) {
      tensors.push_back({part.name, mapping.ShapeOf(part),
                         [&parts, &mapping, &part] { return parts.Extract(mapping, part); }});
    }
  }
  const std::string file = directory + "/" + kWeightsFile;
  const auto write = [&]() -> Status {
    WT_RETURN_IF_ERROR(WriteSafetensors(file + ".tmp", tensors, {{"format", "pt"}}));
    fs::rename(file + ".tmp", file, error);
    return error ? Status(Failed("{}: cannot be made: {}", file, error.message())) : Ok();
  };
  if (const Status written = write(); !written) {
    std::error_code ignored;
    fs::remove(file + ".tmp", ignored);  // as large as the model, perhaps
    return written;
  }
  return WriteFileAtomically(directory + "/" + kConfigFile, config);
}

}  // namespace windtunnel
