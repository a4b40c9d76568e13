#include "runtime/checkpoint/hugging_face_weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/safetensors.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<int64_t>;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kConfigFile = "config.json";
constexpr int64_t kMaxIndex = int64_t{1} << 28;
constexpr int64_t kMaxConfig = int64_t{1} << 20;
// What no scenario can change (plan/op.h, runtime/cpu/rope.h).
constexpr double kNormEpsilon = 1e-5, kRotaryBase = 10000.0;

// A tensor of the other program: rows [first_row, first_row + rows) of ours, or their transpose.
struct Part {
  std::string name;
  int64_t first_row = 0, rows = 0;
  bool transposed = false;
};
// One of our tensors; a vector is of one column.
struct Mapping {
  std::string tensor;
  Shape shape;
  std::vector<Part> parts;

  int64_t columns() const { return shape.size() < 2 ? 1 : shape[1]; }
  // As the other program has the part.
  Shape ShapeOf(const Part& part) const {
    if (shape.size() < 2) return {part.rows};
    return part.transposed ? Shape{shape[1], part.rows} : Shape{part.rows, shape[1]};
  }
};

class Mappings {
 public:
  explicit Mappings(const ModelSpec& model) : model_(model) {}

  Result<std::vector<Mapping>> Make() {
    if (model_.kind != ModelKind::kTransformer)
      return Unsupported("Hugging Face's names are known of GPT-2, Llama and Mixtral, not of an MLP");
    if (model_.experts) WT_RETURN_IF_ERROR(CheckIsMixtral());
    if (IsLlama(model_)) AddLlama();
    else if (IsGpt2(model_)) AddGpt2();
    else
      return Unsupported(
          "Hugging Face's names are known of GPT-2 (model.norm layernorm, position learned, activation gelu "
          "or relu, kv_heads as heads) and of Llama (rmsnorm, rope, swiglu); this model is neither");
    return std::move(mappings_);
  }

  static bool IsGpt2(const ModelSpec& model) {
    return model.norm == NormKind::kLayerNorm && model.position == PositionKind::kLearned &&
           model.activation != ActivationKind::kSwiglu && model.kv_heads == model.heads;
  }
  static bool IsLlama(const ModelSpec& model) {
    return model.norm == NormKind::kRmsNorm && model.position == PositionKind::kRope &&
           model.activation == ActivationKind::kSwiglu;
  }

 private:
  // A Llama with experts in the place of every MLP. Mixtral's router takes the softmax of all experts and divides the chosen ones' by
  // their sum, which is the softmax of the chosen ones; of one it is 1, where ours is the softmax of all.
  Status CheckIsMixtral() const {
    const auto differs = [](const char* what) {
      return Unsupported(
          "of mixtures of experts Hugging Face's names are known of Mixtral, and this model is none: {}",
          what);
    };
    if (!IsLlama(model_)) return differs("expected model.norm rmsnorm, position rope and activation swiglu");
    if (model_.bias) return differs("model.bias is true, expected false");
    if (model_.experts->top_k == 1) return differs("model.experts.top_k is 1, expected at least 2");
    return Ok();
  }

  void Add(const std::string& tensor, Shape shape, const std::string& name, bool transposed = false) {
    const int64_t rows = shape[0];
    mappings_.push_back({"model." + tensor, std::move(shape), {{name, 0, rows, transposed}}});
  }
  void AddNorm(const std::string& tensor, const std::string& name) {
    Add(tensor + ".weight", {model_.hidden}, name + ".weight");
    if (model_.bias && model_.norm == NormKind::kLayerNorm)
      Add(tensor + ".bias", {model_.hidden}, name + ".bias");
  }
  // A linear layer whose outputs are the other program's layers `names` of `rows` each, one after the other.
  void AddLinear(const std::string& tensor, int64_t in, const std::vector<std::string>& names,
                 const std::vector<int64_t>& rows, bool transposed) {
    int64_t out = 0;
    Mapping weight{"model." + tensor + ".weight", {}, {}}, bias{"model." + tensor + ".bias", {}, {}};
    for (size_t i = 0; i < names.size(); ++i) {
      weight.parts.push_back({names[i] + ".weight", out, rows[i], transposed});
      bias.parts.push_back({names[i] + ".bias", out, rows[i]});
      out += rows[i];
    }
    weight.shape = {out, in};
    bias.shape = {out};
    mappings_.push_back(std::move(weight));
    if (model_.bias) mappings_.push_back(std::move(bias));
  }

  void AddGpt2() {
    const int64_t hidden = model_.hidden;
    const std::string root = "transformer.";
    Add("wte.weight", {model_.vocab, hidden}, root + "wte.weight");
    Add("wpe.weight", {model_.seq_len, hidden}, root + "wpe.weight");
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const std::string block = fmt::format("blocks.{}.", layer), h = fmt::format("{}h.{}.", root, layer);
      AddNorm(block + "norm1", h + "ln_1");
      AddLinear(block + "attn.qkv", hidden, {h + "attn.c_attn"}, {3 * hidden}, true);
      AddLinear(block + "attn.proj", hidden, {h + "attn.c_proj"}, {hidden}, true);
      AddNorm(block + "norm2", h + "ln_2");
      AddLinear(block + "mlp.up", hidden, {h + "mlp.c_fc"}, {model_.ffn}, true);
      AddLinear(block + "mlp.down", model_.ffn, {h + "mlp.c_proj"}, {hidden}, true);
    }
    AddNorm("norm_f", root + "ln_f");
    if (!model_.tie_embeddings) Add("head.weight", {model_.vocab, hidden}, "lm_head.weight");
  }

  void AddLlama() {
    const int64_t hidden = model_.hidden, keys = model_.kv_heads * model_.head_dim();
    const std::string root = "model.";
    Add("wte.weight", {model_.vocab, hidden}, root + "embed_tokens.weight");
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const std::string block = fmt::format("blocks.{}.", layer),
                        l = fmt::format("{}layers.{}.", root, layer);
      const std::string attention = l + "self_attn.", mlp = l + "mlp.";
      AddNorm(block + "norm1", l + "input_layernorm");
      AddLinear(block + "attn.qkv", hidden,
                {attention + "q_proj", attention + "k_proj", attention + "v_proj"}, {hidden, keys, keys},
                false);
      AddLinear(block + "attn.proj", hidden, {attention + "o_proj"}, {hidden}, false);
      AddNorm(block + "norm2", l + "post_attention_layernorm");
      if (model_.experts) {
        AddExperts(block + "mlp.", l + "block_sparse_moe.");
        continue;
      }
      AddLinear(block + "mlp.gate_up", hidden, {mlp + "gate_proj", mlp + "up_proj"}, {model_.ffn, model_.ffn},
                false);
      AddLinear(block + "mlp.down", model_.ffn, {mlp + "down_proj"}, {hidden}, false);
    }
    AddNorm("norm_f", root + "norm");
    if (!model_.tie_embeddings) Add("head.weight", {model_.vocab, hidden}, "lm_head.weight");
  }

  // Experts follow each other in the rows of one tensor: of each, gate (w1) before up (w3); and down (w2).
  void AddExperts(const std::string& mlp, const std::string& moe) {
    std::vector<std::string> up, down;
    for (int expert = 0; expert < model_.experts->count; ++expert) {
      const std::string name = fmt::format("{}experts.{}.", moe, expert);
      up.insert(up.end(), {name + "w1", name + "w3"});
      down.push_back(name + "w2");
    }
    AddLinear(mlp + "router", model_.hidden, {moe + "gate"}, {model_.experts->count}, false);
    AddLinear(mlp + "experts.up", model_.hidden, up, std::vector<int64_t>(up.size(), model_.ffn), false);
    AddLinear(mlp + "experts.down", model_.ffn, down, std::vector<int64_t>(down.size(), model_.hidden),
              false);
  }

  const ModelSpec& model_;
  std::vector<Mapping> mappings_;
};

// to[column][row] = from[row][column].
std::vector<float> Transposed(const std::vector<float>& from, int64_t rows, int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column)
      to[static_cast<size_t>(column * rows + row)] = from[static_cast<size_t>(row * columns + column)];
  }
  return to;
}

std::string ShapeText(const Shape& shape) {
  std::string text;
  for (int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return "[" + text + "]";
}

// The tensors of one file, or of the files that an index names.
class Weights {
 public:
  static Result<Weights> Open(const std::string& path) {
    Weights weights;
    weights.path_ = path;
    std::error_code ignored;
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
  // The file that has the tensor, and under which name: saved from the model without its head, GPT-2's names lack the prefix.
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
      const auto json = nlohmann::json::parse(text);
      for (const auto& [tensor, file] : json.at("weight_map").items()) names.insert(file.get<std::string>());
    } catch (const nlohmann::json::exception& error) {
      return InvalidInput("{}: is no index of safetensors files: {}", index, error.what());
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
                        stored, ShapeText(shape), ShapeText(mapping.ShapeOf(part)));
  }

  // A bias or a layer that the scenario's model lacks would make another model of the rest.
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

// What the configuration beside the weights says, `fallback` where it says nothing.
double NumberOf(const nlohmann::json& config, const char* key, double fallback) {
  const auto found = config.find(key);
  return found == config.end() || !found->is_number() ? fallback : found->get<double>();
}

// The weights of a model that computes otherwise give other outputs: what its configuration says that no scenario does.
Status CheckConstants(const nlohmann::json& config, const ModelSpec& model, const std::string& path) {
  const auto expect = [&](const char* key, double found, double expected) {
    if (found == expected) return Ok();
    return Status(Unsupported("{}: {} is {:g}, expected {:g}", path, key, found, expected));
  };
  if (model.norm == NormKind::kLayerNorm)
    return expect("layer_norm_epsilon", NumberOf(config, "layer_norm_epsilon", kNormEpsilon), kNormEpsilon);
  WT_RETURN_IF_ERROR(expect("rms_norm_eps", NumberOf(config, "rms_norm_eps", kNormEpsilon), kNormEpsilon));
  // Newer versions of transformers have rotary positions in an object of their own.
  const nlohmann::json rotary = config.value("rope_parameters", nlohmann::json::object());
  const double theta = NumberOf(config, "rope_theta", NumberOf(rotary, "rope_theta", kRotaryBase));
  WT_RETURN_IF_ERROR(expect("rope_theta", theta, kRotaryBase));
  const auto scaling = config.find("rope_scaling");
  if ((scaling != config.end() && !scaling->is_null()) || rotary.value("rope_type", "default") != "default")
    return Unsupported("{}: rope_scaling is {}, expected none", path,
                       scaling != config.end() ? scaling->dump() : rotary.dump());
  return Ok();
}

// Of weights in a directory that has a configuration.
Status CheckConfiguration(const std::string& directory, const ModelSpec& model) {
  const std::string path = directory + "/" + kConfigFile;
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored) || !fs::exists(path, ignored)) return Ok();
  WT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxConfig));
  try {
    const auto config = nlohmann::json::parse(text);
    if (!config.is_object()) return InvalidInput("{}: is no JSON object", path);
    return CheckConstants(config, model, path);
  } catch (const nlohmann::json::exception& error) {
    return InvalidInput("{}: is no configuration of a model: {}", path, error.what());
  }
}

std::string ConfigOf(const ModelSpec& model) {
  nlohmann::ordered_json json;
  if (Mappings::IsGpt2(model)) {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"n_layer", model.layers},
            {"n_embd", model.hidden},
            {"n_head", model.heads},
            {"n_inner", model.ffn},
            {"n_positions", model.seq_len},
            {"vocab_size", model.vocab},
            {"activation_function", model.activation == ActivationKind::kRelu ? "relu" : "gelu"},
            {"layer_norm_epsilon", kNormEpsilon}};
  } else {
    json = {{"architectures", {model.experts ? "MixtralForCausalLM" : "LlamaForCausalLM"}},
            {"model_type", model.experts ? "mixtral" : "llama"},
            {"num_hidden_layers", model.layers},
            {"hidden_size", model.hidden},
            {"num_attention_heads", model.heads},
            {"num_key_value_heads", model.kv_heads},
            {"intermediate_size", model.ffn},
            {"max_position_embeddings", model.seq_len},
            {"vocab_size", model.vocab},
            {"hidden_act", "silu"},
            {"rms_norm_eps", kNormEpsilon},
            {"rope_theta", kRotaryBase}};
    if (model.experts) {
      json["num_local_experts"] = model.experts->count;
      json["num_experts_per_tok"] = model.experts->top_k;
      json["sliding_window"] = nullptr;
    } else {
      json["attention_bias"] = json["mlp_bias"] = model.bias;
    }
  }
  json["tie_word_embeddings"] = model.tie_embeddings;
  json["torch_dtype"] = "float32";
  return json.dump(2) + "\n";
}

// The part of our tensor, as the other program has it.
Result<std::vector<float>> Extract(const TensorSource& source, const Mapping& mapping, const Part& part) {
  WT_ASSIGN_OR_RETURN(const std::vector<float> whole, source.Read(mapping.tensor));
  if (mapping.parts.size() == 1 && !part.transposed) return whole;
  const auto begin = whole.begin() + part.first_row * mapping.columns();
  const std::vector<float> rows(begin, begin + part.rows * mapping.columns());
  return part.transposed ? Transposed(rows, part.rows, mapping.columns()) : rows;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenHuggingFaceWeights(const std::string& path,
                                                             const ModelSpec& model) {
  WT_ASSIGN_OR_RETURN(std::vector<Mapping> mappings, Mappings(model).Make());
  WT_ASSIGN_OR_RETURN(Weights weights, Weights::Open(path));
  auto source = std::make_unique<HuggingFaceSource>(std::move(weights), std::move(mappings));
  WT_RETURN_IF_ERROR(CheckConfiguration(path, model));
  WT_RETURN_IF_ERROR(source->Check(model));
  return std::unique_ptr<TensorSource>(std::move(source));
}

Status CheckHuggingFaceNames(const ModelSpec& model) {
  const auto mappings = Mappings(model).Make();
  return mappings ? Ok() : Status(tl::unexpected(mappings.error()));
}

Status ExportHuggingFace(const Checkpoint& checkpoint, const std::string& directory) {
  WT_ASSIGN_OR_RETURN(const Scenario scenario,
                      ParseScenario(checkpoint.info().scenario, checkpoint.path(), "/", {}));
  WT_ASSIGN_OR_RETURN(const std::vector<Mapping> mappings, Mappings(scenario.model).Make());
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return Failed("{}: cannot be made: {}", directory, error.message());
  std::vector<TensorToWrite> tensors;
  for (const Mapping& mapping : mappings) {
    if (checkpoint.ShapeOf(mapping.tensor) != mapping.shape) {
      return InvalidInput("{}: tensor '{}' is not {}", checkpoint.path(), mapping.tensor,
                          ShapeText(mapping.shape));
    }
    for (const Part& part : mapping.parts) {
      tensors.push_back({part.name, mapping.ShapeOf(part),
                         [&checkpoint, &mapping, &part] { return Extract(checkpoint, mapping, part); }});
    }
  }
  const std::string file = directory + "/" + kWeightsFile;
  WT_RETURN_IF_ERROR(WriteSafetensors(file + ".tmp", tensors, {{"format", "pt"}}));
  fs::rename(file + ".tmp", file, error);
  if (error) return Failed("{}: cannot be made: {}", file, error.message());
  return WriteFileAtomically(directory + "/" + kConfigFile, ConfigOf(scenario.model));
}

}  // namespace windtunnel
