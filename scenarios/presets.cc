#include "scenarios/presets.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/check.h"

namespace windtunnel {
namespace {

// GPT-2's block: GELU, LayerNorm, learned positions, biases, tied head. Llama's: SwiGLU, RMSNorm, rotary
// positions, no biases, a head of its own.
enum class Family { kGpt, kLlama };

struct Row {
  std::string_view name;
  Family family;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq_len;  // kv_heads 0: heads; ffn 0: 4 x hidden
};

// Sources of the rows, from top to bottom:
//   GPT-2    openai/gpt-2 (hparams.json of the released checkpoints 124M, 355M, 774M, 1558M)
//   GPT-3    Brown et al., arXiv:2005.14165, table 2.1; vocabulary of GPT-2, context 2048 (section 2.1)
//   Llama 2  Touvron et al., arXiv:2307.09288, table 1; meta-llama/Llama-2-{7b,13b,70b}-hf config.json.
//            Llama 1 7B (arXiv:2302.13971, table 2) has the same blocks, and a context of 2048.
//   Llama 3  Grattafiori et al., arXiv:2407.21783, table 3; its context in pre-training (section 3.4.1)
constexpr Row kRows[] = {
    // name, family, layers, hidden, heads, kv_heads, ffn, vocab, seq_len
    {"gpt2-124m", Family::kGpt, 12, 768, 12, 0, 0, 50257, 1024},
    {"gpt2-355m", Family::kGpt, 24, 1024, 16, 0, 0, 50257, 1024},
    {"gpt2-774m", Family::kGpt, 36, 1280, 20, 0, 0, 50257, 1024},
    {"gpt2-1.5b", Family::kGpt, 48, 1600, 25, 0, 0, 50257, 1024},
    {"gpt3-175b", Family::kGpt, 96, 12288, 96, 0, 0, 50257, 2048},
    {"llama-7b", Family::kLlama, 32, 4096, 32, 0, 11008, 32000, 4096},
    {"llama2-7b", Family::kLlama, 32, 4096, 32, 0, 11008, 32000, 4096},
    {"llama2-13b", Family::kLlama, 40, 5120, 40, 0, 13824, 32000, 4096},
    {"llama2-70b", Family::kLlama, 80, 8192, 64, 8, 28672, 32000, 4096},
    {"llama3-8b", Family::kLlama, 32, 4096, 32, 8, 14336, 128256, 8192},
    {"llama3-70b", Family::kLlama, 80, 8192, 64, 8, 28672, 128256, 8192},
    {"llama3-405b", Family::kLlama, 126, 16384, 128, 8, 53248, 128256, 8192},
};

// The tutorials' perceptron: 10 inputs, 100 hidden units, 10 outputs, ReLU between.
constexpr std::string_view kMlpName = "mlp-10-100-10";

ModelSpec MlpPreset() {
  ModelSpec model;
  model.preset = kMlpName;
  model.kind = ModelKind::kMlp;
  model.activation = ActivationKind::kRelu;
  model.widths = {10, 100, 10};
  return model;
}

ModelSpec Expand(const Row& row) {
  bool llama = row.family == Family::kLlama;
  ModelSpec model;
  model.preset = row.name;
  model.layers = row.layers;
  model.hidden = row.hidden;
  model.heads = row.heads;
  model.kv_heads = row.kv_heads;
  model.ffn = row.ffn;
  model.vocab = row.vocab;
  model.seq_len = row.seq_len;
  model.activation = llama ? ActivationKind::kSwiglu : ActivationKind::kGelu;
  model.norm = llama ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  model.position = llama ? PositionKind::kRope : PositionKind::kLearned;
  model.bias = !llama;
  model.tie_embeddings = !llama;
  return model;
}

}  // namespace

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  names.emplace_back(kMlpName);
  return names;
}

ModelSpec ModelPreset(const std::string& name) {
  if (name == kMlpName) return MlpPreset();
  auto row = std::find_if(std::begin(kRows), std::end(kRows),
                          [&](const Row& candidate) { return candidate.name == name; });
  WT_CHECK(row != std::end(kRows));
  return Expand(*row);
}

}  // namespace windtunnel
