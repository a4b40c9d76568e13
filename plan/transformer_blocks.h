// The blocks of a transformer, and what a micro-batch's forward saves of each for its backward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/context_attention.h"
#include "plan/experts.h"
#include "plan/latent_attention.h"
#include "plan/layers.h"
#include "plan/model.h"
#include "plan/norms.h"
#include "plan/projections.h"
#include "plan/state_space.h"
#include "scenarios/derived.h"

namespace windtunnel {

// The tokens of a micro-batch that a residual stream consists of, as far as this rank has them.
struct TokenStream {
  int64_t seq = 0;     // of each sequence
  int64_t tokens = 0;  // of all sequences
  int64_t rows = 0;    // of the stream itself: all, or the rank's share if tensor ranks split tokens
};

// The attention of a decoder's block to what the encoder returns (ModelSpec::encoder): queries are computed
// from the block's own stream, keys and values from the encoder's output, the source.
struct CrossAttention {
  std::string name;
  ModuleId module;
  Norm norm;
  Projections queries, keys;  // keys: and values
  Linear projection;
};

// What its forward saves for its backward, and what that leaves for the encoder's.
struct CrossActivations {
  Slice source;  // the encoder's output
  Norm::Saved norm;
  Slice queries_input, keys_input;  // in the form that the projections take
  Slice queries, keys;              // the inputs of the attention core
  ContextAttention::Core core;
  Slice attention, mask;  // the input of the output projection; of the dropout behind it
  Slice dsource;
};

struct TransformerBlock {
  ModuleId module, attention_module, mlp_module;
  TokenStream stream;
  std::optional<Norm> norm1, norm2;                        // of what attention and the MLP take
  std::optional<Norm> attention_post_norm, mlp_post_norm;  // of a branch, before it joins the stream
  Projections qkv, up;                                     // up: gate and up if the activation is gated
  std::optional<LatentProjections> latent;                 // instead of qkv
  std::optional<HeadNorm> head_norm;
  Linear projection, down;
  std::optional<CrossAttention> cross;
  // Instead of the attention core: qkv and projection are then the layers around it.
  std::optional<StateSpace> state_space;
  bool causal = true;  // whether a token sees only those before it
  // Instead of up and down, which then belong to the shared expert, if there is one.
  std::optional<ExpertMlp> experts;
  bool has_dense = true;  // whether up and down exist
  std::optional<Linear>
      shared_gate;        // makes the number by whose sigmoid the shared expert's output is multiplied
  bool has_mlp = true;    // if not, the block ends with its projection, and has no norm2
  bool has_mixer = true;  // if not, the block begins with norm2: it has no attention, nor anything instead
  // Whether attention and MLP take the same stream; with kOneNorm, there is no norm2.
  ParallelResidual parallel = ParallelResidual::kNone;
  int64_t window = 0;  // the number of tokens that a token attends to; 0: all preceding ones
  Recompute recompute = Recompute::kNone;
  // Whether anything before the block is trained. If not, backward ends at the first adapter in it.
  bool input_has_gradient = true;

  // Whether what these layers return depends on anything that is trained, and so has a gradient.
  bool qkv_has_gradient() const { return input_has_gradient || latent || qkv.is_trained(); }
  bool attention_has_gradient() const {
    return has_mixer ? qkv_has_gradient() || projection.is_trained() : input_has_gradient;
  }
  bool mlp_input_has_gradient() const {
    return is_parallel() ? input_has_gradient : attention_has_gradient();
  }
  bool up_has_gradient() const { return mlp_input_has_gradient() || experts || up.is_trained(); }
  bool mlp_has_gradient() const { return up_has_gradient() || down.is_trained(); }
  bool is_parallel() const { return parallel != ParallelResidual::kNone; }
};

// What a block's forward saves for its backward; slices of dropped activations have no buffer.
struct BlockActivations {
  Norm::Saved norm1, norm2, attention_post_norm, mlp_post_norm;
  Slice qkv_input, up_input;  // the norms' outputs, in the form that the projections take
  HeadNorm::Saved head_norm;
  LatentProjections::Saved latents;
  Slice bias, dscores;          // of relative positions, all blocks'; what backward leaves for its gradient
  Slice qkv;                    // the input of the attention core, or of the state space model
  ContextAttention::Core core;  // the results of the attention core
  Slice gate, ungated;          // ModelSpec::attention_gate: attention's gate, and what that multiplies
  Slice dgate;                  // the gate's gradient, until it joins those of queries, keys and values
  Slice attention;              // the input of the output projection
  Slice projected;              // the output of that projection, if it is kept
  Slice attention_mask, mlp_mask;  // of the dropout after attention and after the MLP
  std::vector<Slice> up;           // one, or gate and up
  Slice activated;
  Slice shared, shared_gate;    // the shared expert's output before its gate, and the gate
  Slice between;                // KeptBetweenOperators
  std::vector<Slice> unneeded;  // not needed, but kept by a policy almost to the end of backward
  ExpertMlp::Saved experts;
  CrossActivations cross;
  StateSpace::Saved state_space;
};

// A multi-token prediction module (ModelSpec::mtp). Its inputs are the previous module's output, after its
// final norm, and the embeddings of the tokens that this predicts. Both are normalised once more and
// concatenated; a projection turns them into the input of a block. Head and embedding are the model's. As
// Megatron-Core's MultiTokenPredictionLayer, except that every tensor rank has the whole projection and
// applies it to its own tokens; in Megatron each has some of its columns and gathers.
struct TokenPredictor {
  std::string name;
  ModuleId module;
  Norm embedding_norm, hidden_norm;
  Linear projection;  // from twice `hidden`
  TransformerBlock block;
  Norm final_norm;
};

// What its forward saves for its backward.
struct TokenPredictorPass {
  Slice ids, targets;  // one token further on than those of the previous module
  Slice embedding, embedding_mask, hidden;
  Norm::Saved embedding_norm, hidden_norm;
  Slice joined;  // the input of the projection
  BlockActivations block;
  Norm::Saved final_norm;
  Slice head_input, dlogits;
};

// The norm that takes the block's input.
inline Norm::Saved& InputNormOf(const TransformerBlock& block, BlockActivations& saved) {
  return block.has_mixer ? saved.norm1 : saved.norm2;
}
inline std::string AttentionName(const TransformerBlock& block) {
  return block.projection.name.substr(0, block.projection.name.rfind('.'));
}
inline std::string MlpName(const TransformerBlock& block) {
  return block.experts ? block.experts->name : block.down.name.substr(0, block.down.name.size() - 5);
}
// The name of the activation between up and down, of the MLP or the shared expert.
inline std::string ActivationName(const TransformerBlock& block) {
  return block.down.name.substr(0, block.down.name.size() - 5) + ".activation";
}

// The number of intermediate tensors, each of the size of the activation's output, that eager PyTorch keeps
// for backward: the output of silu or GELU, or of ReLU before it is squared; and for gpt-oss (transformers,
// modeling_gpt_oss.py) the clamped gate, its sigmoid, their product, and the value plus one.
constexpr int KeptBetweenOperators(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGelu:
    case ActivationKind::kRelu:
      return 0;
    case ActivationKind::kSquaredRelu:
    case ActivationKind::kSwiglu:
    case ActivationKind::kGeglu:
      return 1;
    case ActivationKind::kClampedSwiglu:
      return 4;
  }
  return 0;
}

// The encoder's state of a micro-batch between its forward and its backward.
struct EncoderPass {
  Slice ids, embedding_mask;
  std::vector<BlockActivations> saved;
  Norm::Saved final_norm;
  Slice doutput;  // the sum of the gradients that the decoder's blocks have returned so far
  Slice dbias;    // of relative positions: the sum over the blocks so far
};

// The state of a micro-batch between its forward and its backward.
struct TransformerPass {
  Slice ids, targets;
  EncoderPass encoder;
  Slice dbias;
  Slice embedding_mask;
  std::vector<BlockActivations> saved;
  std::vector<TokenPredictorPass> predictors;
  Norm::Saved final_norm;
  Slice head_input;
  // With a loss in chunks, which backward computes: where it goes, and its gradient's factor.
  struct {
    Slice place;
    double gradient_scale = 1;
  } loss = {};
  WeightCopies copies;
};

}  // namespace windtunnel
