// What is trained: the `model` block of a scenario (scenarios/scenario.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/layer_pattern.h"
#include "scenarios/operator_kinds.h"

namespace windtunnel {

enum class ModelKind { kTransformer, kMlp };
// Whose kernels `attention: flash` means under a framework other than windtunnel: those of the framework's
// profile, or the ones named here.
enum class FlashChoice { kFramework, kFlashAttention2, kCudnn };

inline constexpr int64_t kMostExpertGroups = 64;  // one bit each in a 64-bit word

// Mixture of experts: `count` experts per layer, `top_k` of them per token, and optionally a shared expert of
// another width that all tokens go to. Some layers may have a plain MLP instead (ModelSpec::HasExperts).
struct ExpertsSpec {
  int count = 0;
  int top_k = 1;
  double capacity_factor = 1.0;
  double imbalance = 1.0;  // the busiest expert's load over the mean
  bool bias = false;       // of the experts' linear layers
  int64_t shared_ffn = 0;  // width of the shared expert; 0: there is none
  // What the shared expert gives is multiplied by the sigmoid of a number that a projection makes of each
  // token.
  bool shared_gate = false;
  // LatentMoE (Nemotron 3): the experts' inputs and outputs have this width, between two projections that all
  // experts share. The router and the shared expert take the hidden state. 0: experts take it, too.
  int64_t latent = 0;
  int64_t first_dense = 0, every = 1;
  int64_t dense_ffn = 0;  // width of the MLP of layers without experts; 0: ModelSpec::ffn
  // The experts form `groups` groups of equal size, and a token's experts are in at most `top_k_groups` of
  // them. 0: no groups (DeepSeek's n_group and topk_group).
  int groups = 0, top_k_groups = 0;
  bool operator==(const ExpertsSpec&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1). Queries are computed from one
// latent, keys and values from another; these have the ranks below, and each is normalised. The last
// `rope_dim` of the `head_dim` columns of a head's queries and keys are rotated; all heads share these
// columns of the keys.
struct LatentAttentionSpec {
  int64_t q_rank = 0;  // 0: queries are computed from the hidden state itself
  int64_t kv_rank = 0;
  int64_t rope_dim = 64;
  int64_t value_dim = 0;  // width of a head's values; 0: head_dim - rope_dim
  bool operator==(const LatentAttentionSpec&) const = default;
};

// Attention to the latest `tokens` only, the token itself included (Beltagy et al., arXiv:2004.05150, section
// 3.1). If `full_every` is not 0, every `full_every`-th layer sees all preceding tokens: 6 in Gemma 3, 2 in
// GPT-OSS, none in Mistral 7B v0.1.
struct SlidingWindowSpec {
  int64_t tokens = 0;
  int64_t full_every = 0;
  bool operator==(const SlidingWindowSpec&) const = default;
};

// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2), as in Megatron-Core: `layers` modules
// after the last layer. The k-th module predicts the token k positions after the one that the model predicts,
// from the previous module's output and the token before the predicted one. The mean of the modules' losses,
// times `loss_weight`, is added to the loss.
struct TokenPredictionSpec {
  int64_t layers = 1;
  double loss_weight = 0.1;  // Megatron's mtp_loss_scaling_factor
  // With a pattern of layers, the letters of the layer in each module; empty: those of the model's last
  // layer.
  std::string pattern = {};
  bool repeated = false;  // all depths use the same module: there is one set of parameters
  bool fp8 = true;        // the modules' products take fp8 where the model's do
  int64_t Modules() const { return repeated ? 1 : layers; }
  bool operator==(const TokenPredictionSpec&) const = default;
};

// An encoder in front of the model's layers, which are then those of a decoder (Vaswani et al.,
// arXiv:1706.03762): `layers` blocks whose tokens see all of another sequence, the source, which has
// `seq_len` tokens. Every block of the decoder also attends to what the encoder returns (cross-attention).
struct EncoderSpec {
  int64_t layers = 0;
  int64_t seq_len = 0;
  bool operator==(const EncoderSpec&) const = default;
};

// Mamba-2 (Dao and Gu, arXiv:2405.21060): layers in which a state space model mixes tokens, instead of
// attention (plan/state_space_ops.h). `pattern` says which layers (scenarios/layer_pattern.h).
struct MambaSpec {
  std::string pattern = "M";
  int64_t state = 128;  // columns of a head's state
  int64_t head_dim = 64;
  int64_t heads = 0;    // 0, until defaults are completed: 2 * hidden / head_dim
  int64_t groups = 1;   // of heads that share the input and output matrices of the state (B and C)
  int64_t conv = 4;     // tokens that the convolution in front sees
  int64_t chunk = 256;  // tokens that kernels handle with matrix products; predicted only
  int64_t inner() const { return heads * head_dim; }
  bool operator==(const MambaSpec&) const = default;
};

// Gated delta networks (Yang, Kautz and Hatamizadeh, arXiv:2412.06464): layers in which each head has a
// matrix as its state, which tokens decay and correct, instead of attention (plan/delta_net_ops.h). `pattern`
// says which layers (scenarios/layer_pattern.h). The defaults are Megatron-Core's and transformers'.
struct DeltaNetSpec {
  std::string pattern = "G";
  int64_t key_heads =
      16;  // heads of queries and keys; each is that of value_heads / key_heads heads of values
  int64_t value_heads = 32;
  int64_t key_dim = 128;  // width of a head of queries, and of keys
  int64_t value_dim = 128;
  int64_t conv = 4;  // tokens that the convolution in front sees
  int64_t keys() const { return key_heads * key_dim; }
  int64_t inner() const { return value_heads * value_dim; }
  int64_t convolved() const { return 2 * keys() + inner(); }
  // Columns of the first projection: queries, keys, values, the gate, and two numbers for each head of
  // values.
  int64_t packed() const { return convolved() + inner() + 2 * value_heads; }
  bool operator==(const DeltaNetSpec&) const = default;
};

// Linear layers that may have adapters, by their names in blocks. Frameworks stack queries, keys and values
// in one layer (kQkv), and gate and up (kGateUp), or have a layer for each (PyTorch's gated models).
enum class LoraTarget { kQueries, kKeys, kValues, kQkv, kProjection, kGate, kUp, kGateUp, kDown };

// How frozen weights of the blocks' linear layers are stored (QLoRA, Dettmers et al., arXiv:2305.14314): in
// 4 bits, NF4, with an fp32 scale for every 64 weights; with kNf4Double the scales are of 8 bits.
enum class Quantization { kNone, kNf4, kNf4Double };

// Low-rank adaptation (Hu et al., arXiv:2106.09685): all weights are frozen, and layers y = W x get trained
// adapters, y = W x + alpha / rank B A x. A is [rank, in], at first uniform in +-1/sqrt(in); B is [out,
// rank], at first zero (peft's LoraLayer.reset_lora_parameters).
struct LoraSpec {
  int64_t rank = 8;
  double alpha = 0;                      // 0: rank
  double dropout = 0;                    // of x, before A
  std::vector<LoraTarget> targets = {};  // empty: all linear layers of blocks; with experts, of attention
  Quantization quantize = Quantization::kNone;
  bool is_quantized() const { return quantize != Quantization::kNone; }
  double Scale() const { return alpha > 0 ? alpha / static_cast<double>(rank) : 1; }
  bool operator==(const LoraSpec&) const = default;
};

// The number of (token, seen token) pairs in a sequence of `seq` tokens. A token sees itself and all before
// it, or only the `window` latest tokens (0: all). If attention is not causal, it sees all tokens.
inline double SeenPairs(int64_t seq, int64_t window, bool causal = true) {
  const double n = static_cast<double>(seq), w = static_cast<double>(window);
  if (!causal) return n * n;
  return window == 0 || window >= seq ? n * (n + 1) / 2 : w * (w + 1) / 2 + (n - w) * w;
}

// What mixes tokens in a layer.
enum class Mixer : uint8_t { kNone, kAttention, kMamba, kDeltaNet };

// Its letter in patterns (scenarios/layer_pattern.h); none has none.
constexpr char LetterOf(Mixer mixer) {
  switch (mixer) {
    case Mixer::kNone:
      return '\0';
    case Mixer::kAttention:
      return '*';
    case Mixer::kMamba:
      return 'M';
    case Mixer::kDeltaNet:
      return 'G';
  }
  return '\0';
}

// Everything in which layers of one model may differ.
struct LayerKind {
  bool has_experts = false;
  int64_t window = 0;  // tokens that each token sees, itself included; 0: all before it
  bool is_of_decoder = false;  // it also attends to an encoder's output
  Mixer mixer = Mixer::kAttention;
  bool has_mlp = true;  // an MLP, or experts
  bool has_mixer() const { return mixer != Mixer::kNone; }
  // Whether heads have states that go on from token to token.
  bool is_recurrent() const { return mixer == Mixer::kMamba || mixer == Mixer::kDeltaNet; }
  auto operator<=>(const LayerKind&) const = default;
};

struct ModelSpec {
  std::string preset = {};  // the preset that the dimensions came from; empty when spelled out
  ModelKind kind = ModelKind::kTransformer;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // fewer than heads: grouped-query attention
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t seq_len = 0;
  ActivationKind activation = ActivationKind::kGelu;
  NormKind norm = NormKind::kLayerNorm;
  double norm_epsilon = 1e-5;
  PositionKind position = PositionKind::kLearned;
  double rope_theta = 10'000;
  int64_t rope_dim = 0;  // columns of a head that are rotated; 0: all
  bool bias = true;
  bool qkv_bias = true;  // of the query, key and value projections
  bool qk_norm = false;  // RMS norms of queries and keys
  QkNormSpan qk_norm_over = QkNormSpan::kHead;
  // What attention gives is multiplied by the sigmoid of a further output of its first projection, as wide.
  bool attention_gate = false;
  bool pre_norm = true;    // norms of what attention and the MLP take
  bool post_norm = false;  // norms of what they give, before the residual sum
  // The residual stream goes on from what norms return, not from what they take (BERT, Vaswani et al.).
  bool residual_from_norm = false;
  bool tie_embeddings = true;
  ParallelResidual parallel_residual = ParallelResidual::kNone;
  AttentionKind attention = AttentionKind::kFlash;
  FlashChoice flash_kernels = FlashChoice::kFramework;
  std::optional<LatentAttentionSpec> latent_attention = std::nullopt;
  std::optional<SlidingWindowSpec> sliding_window = std::nullopt;
  // Whether tokens see only those before them, and the next token is predicted. If not, the model is trained
  // to predict the tokens that are masked in its input: of each sequence, the share `masked_share`.
  bool causal = true;
  double masked_share = 0.15;
  // Each sequence consists of documents of so many tokens, and tokens see those of their own document. 0:
  // one.
  int64_t document_tokens = 0;
  std::optional<EncoderSpec> encoder = std::nullopt;
  std::optional<MambaSpec> mamba = std::nullopt;
  std::optional<DeltaNetSpec> delta_net = std::nullopt;
  std::optional<ExpertsSpec> experts = std::nullopt;
  std::optional<TokenPredictionSpec> mtp = std::nullopt;
  std::optional<LoraSpec> lora = std::nullopt;
  double dropout = 0.0;
  std::vector<int64_t> widths;  // kind: mlp only; input, hidden…, output

  int64_t EncoderLayers() const { return encoder ? encoder->layers : 0; }
  // Layers of encoder and decoder are numbered together, the encoder's first.
  int64_t AllLayers() const { return EncoderLayers() + layers; }
  // The tokens of a sample: of a sequence, and of its source if there is an encoder.
  int64_t SampleTokens() const { return seq_len + (encoder ? encoder->seq_len : 0); }
  // Whether layer `layer` (from 0) has experts: none of the first `first_dense` layers has, and of the
  // model's layers each `every`-th has; or as the pattern says.
  bool HasExperts(int64_t layer) const {
    if (has_pattern()) return experts && LayerOfPattern(pattern(), layer).behind == 'E';
    return experts && layer >= experts->first_dense && (layer + 1) % experts->every == 0;
  }
  int64_t LayersWithExperts() const {
    if (has_pattern()) return CountLayers([this](const LayerKind& kind) { return kind.has_experts; });
    return experts ? layers / experts->every - std::min(experts->first_dense, layers) / experts->every : 0;
  }
  // Whether some layers have experts and others, or the multi-token prediction modules, a plain MLP.
  bool MixesExperts() const {
    const int64_t with = LayersWithExperts();
    if (has_pattern()) return with > 0 && AnyLayer(HasPlainMlp);
    return with > 0 && with < layers;
  }
  // Whether letters say what the layers are (mamba or delta_net, whose pattern they are), and the key of that
  // block.
  bool has_pattern() const { return mamba || delta_net; }
  const std::string& pattern() const { return mamba ? mamba->pattern : delta_net->pattern; }
  const char* pattern_block() const { return delta_net ? "model.delta_net" : "model.mamba"; }
  // With a pattern: the number of layers of which `f`, given the kind, is true.
  template <typename F>
  int64_t CountLayers(F f) const {
    const int64_t period = LayersInPattern(pattern());
    int64_t count = 0;
    for (int64_t layer = 0; layer < std::min(period, layers); ++layer) {
      const int64_t repetitions = (layers - layer + period - 1) / period;
      count += f(KindOf(layer)) ? repetitions : 0;
    }
    return count;
  }
  // With a pattern: whether `f` is true of any layer, the modules' included.
  template <typename F>
  bool AnyLayer(F f) const {
    return CountLayers(f) > 0 || (mtp && f(KindOfModules()));
  }
  static bool HasAttention(const LayerKind& kind) { return kind.mixer == Mixer::kAttention; }
  static bool HasPlainMlp(const LayerKind& kind) { return kind.has_mlp && !kind.has_experts; }
  // The number of layers with Mamba-2 or with a gated delta network.
  int64_t RecurrentLayers() const {
    return has_pattern() ? CountLayers([](const LayerKind& kind) { return kind.is_recurrent(); }) : 0;
  }
  // Of each sequence, the tokens that are masked, and their share, over which the loss is the mean.
  int64_t MaskedTokens() const {
    return causal ? 0 : std::max<int64_t>(1, std::llround(masked_share * static_cast<double>(seq_len)));
  }
  double LossShare() const {
    return causal ? 1 : static_cast<double>(MaskedTokens()) / static_cast<double>(seq_len);
  }
  // The tokens of a document: the last one sees all of them, unless there is a window.
  int64_t DocumentTokens() const { return document_tokens > 0 ? document_tokens : seq_len; }
  // Tokens that a token sees in layer `layer`, itself included; 0: all of its document before it. 0 also if
  // the window is no shorter than a document.
  int64_t WindowOf(int64_t layer) const {
    if (!HasWindows()) return 0;
    const int64_t full = sliding_window->full_every;
    return full > 0 && (layer + 1) % full == 0 ? 0 : sliding_window->tokens;
  }
  // HasWindows: some layers have a window, and it is shorter than a document. MixesWindows: others see all
  // tokens.
  bool HasWindows() const { return sliding_window && sliding_window->tokens < DocumentTokens(); }
  bool MixesWindows() const {
    return HasWindows() && sliding_window->full_every > 1 && sliding_window->full_every <= layers;
  }
  // The tokens of a document, summed over all layers and the multi-token prediction modules, for cost
  // formulas that assume that attention sees all of them. A layer with a window counts fewer, by the share of
  // pairs that it sees. With an encoder, the mean over all tokens of a sample.
  double AttentionTokens() const {
    if (encoder) return CrossAttentionTokens();
    const int64_t tokens = DocumentTokens();
    if (has_pattern()) {
      const int64_t in_modules = mtp && HasAttention(KindOfModules()) ? mtp->layers : 0;
      return static_cast<double>((CountLayers(HasAttention) + in_modules) * tokens);
    }
    const double share = HasWindows() ? SeenPairs(tokens, sliding_window->tokens) / SeenPairs(tokens, 0) : 1;
    const auto of = [&](int64_t of_layers, bool has_window) {
      return static_cast<double>(of_layers * tokens) * (has_window ? share : 1);
    };
    const bool has_full = HasWindows() && sliding_window->full_every > 0;
    const int64_t full = has_full ? layers / sliding_window->full_every : 0;
    return of(full, false) + of(layers - full, HasWindows()) + of(MtpLayers(), WindowOf(layers - 1) > 0);
  }
  // The part of AttentionTokens that causal attention masks half of.
  double CausalTokens() const {
    if (!encoder) return causal ? AttentionTokens() : 0;
    return static_cast<double>(layers * seq_len) * static_cast<double>(seq_len) /
           static_cast<double>(SampleTokens());
  }
  // Whether a block's linear layer has an adapter: one of its own, or as a part of a stacked layer that is
  // named (qkv, gate_up).
  bool HasAdapter(LoraTarget layer) const {
    if (!lora) return false;
    const auto targets = [&](LoraTarget target) {
      return std::find(lora->targets.begin(), lora->targets.end(), target) != lora->targets.end();
    };
    switch (layer) {
      case LoraTarget::kQueries:
      case LoraTarget::kKeys:
      case LoraTarget::kValues:
        return lora->targets.empty() || targets(layer) || targets(LoraTarget::kQkv);
      case LoraTarget::kQkv:
      case LoraTarget::kProjection:
        return lora->targets.empty() || targets(layer);
      case LoraTarget::kGate:
      case LoraTarget::kUp:
        return (lora->targets.empty() && !experts) || targets(layer) || targets(LoraTarget::kGateUp);
      case LoraTarget::kGateUp:
      case LoraTarget::kDown:
        return (lora->targets.empty() && !experts) || targets(layer);
    }
    return false;
  }
  // Of a layer of the model, or of its decoder.
  LayerKind KindOf(int64_t layer) const {
    const LayerKind kind{HasExperts(layer), WindowOf(layer), encoder.has_value()};
    return has_pattern() ? KindOf(LayerOfPattern(pattern(), layer)) : kind;
  }
  // The number of multi-token prediction modules, and the kind of the layer in each.
  int64_t MtpLayers() const { return mtp ? mtp->layers : 0; }
  LayerKind KindOfModules() const {
    const bool has_letters = has_pattern() && mtp && !mtp->pattern.empty();
    return has_letters ? KindOf(LayerOfPattern(mtp->pattern, 0)) : KindOf(layers - 1);
  }
  // Whether the embedding table is used more than once: by the head, for multi-token prediction, or by
  // encoder and decoder. The first and the last stage of a pipeline then both have it.
  bool SharesEmbedding() const {
    return kind == ModelKind::kTransformer && (tie_embeddings || mtp || encoder);
  }
  // Whether all layers are of one kind.
  bool HasAlikeLayers() const {
    if (has_pattern())
      return CountLayers([first = KindOf(0)](const LayerKind& kind) { return kind == first; }) == layers;
    return !MixesExperts() && !MixesWindows();
  }
  // The period, in layers, with which the kinds of layers repeat behind the first layers without experts (and
  // also among those).
  int64_t LayerPeriod() const {
    if (has_pattern()) return LayersInPattern(pattern());
    return std::lcm(MixesExperts() ? experts->every : 1, MixesWindows() ? sliding_window->full_every : 1);
  }
  // Width of what experts take and return.
  int64_t ExpertWidth() const { return experts && experts->latent > 0 ? experts->latent : hidden; }
  // Width of a head's values.
  int64_t ValueDim() const {
    if (!latent_attention) return head_dim;
    return latent_attention->value_dim > 0 ? latent_attention->value_dim
                                           : head_dim - latent_attention->rope_dim;
  }
  // Width of the MLP in layers without experts.
  int64_t DenseFfn() const { return experts && experts->dense_ffn > 0 ? experts->dense_ffn : ffn; }

  bool operator==(const ModelSpec&) const = default;

 private:
  LayerKind KindOf(const PatternLayer& layer) const {
    return {.has_experts = experts && layer.behind == 'E',
            .mixer = MixerOf(layer.mixer),
            .has_mlp = layer.behind != '\0'};
  }
  static Mixer MixerOf(char letter) {
    for (const Mixer mixer : {Mixer::kAttention, Mixer::kMamba, Mixer::kDeltaNet})
      if (LetterOf(mixer) == letter) return mixer;
    return Mixer::kNone;
  }
  double CrossAttentionTokens() const {
    const double own = static_cast<double>(seq_len), source = static_cast<double>(encoder->seq_len);
    const double of_encoder = static_cast<double>(encoder->layers) * source * source;
    const double of_decoder = static_cast<double>(layers) * own * (own + source);
    return (of_encoder + of_decoder) / (own + source);
  }
};

}  // namespace windtunnel
