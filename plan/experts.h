// A mixture of experts in place of a block's MLP: a router chooses some experts for each token, tokens go to
// the ranks of their experts, and the results are summed with the router's weights (Shazeer et al. 2017;
// Mixtral; Megatron's all-to-all dispatcher).
//
//   router   logits = x W^T, of which each token takes the top_k largest; weights are their softmax (of all
//            logits if top_k is 1, so that the router learns). There is no auxiliary loss.
//   capacity each rank has room for ceil(capacity_factor x tokens x top_k / count) of its tokens at every
//            expert, and sends all of it, padded; tokens beyond it are dropped (their residual goes on
//            without that expert). capacity_factor 0: no limit and no padding; the plan is then that of the
//            rank with the busiest expert, whose load is `imbalance` times the mean
//   experts  gated or not, with biases or without, as the MLP would be; each matrix of all experts is one
//            tensor, and products are grouped GEMMs
//   ranks    of the expert axis have count / size experts each: tokens go there and back in two all-to-alls,
//            and likewise in backward
//   DeepEP   (parallel.expert.dispatcher) instead of the all-to-alls: a rank sends each token, as it is, once
//            to every rank that has experts for it, where tokens are put in order; results are summed on the
//            way back (github.com/deepseek-ai/DeepEP, Megatron's flex dispatcher). Without a capacity, and
//            predicted only
//   weights  multiply the experts' outputs when these are summed. In Megatron-Core they multiply the output
//            of the activation, for which they travel with the tokens, so that backward does not need the
//            experts' outputs (core/transformer/moe/experts.py)
//   tensor   ranks have a part of every expert's ffn; they route all tokens alike, and sum their outputs. If
//            they split tokens and there are several expert ranks, each routes and sends its own tokens, with
//            a capacity of its own; what has arrived is gathered over tensor ranks, and the experts' outputs
//            are reduce-scattered (Megatron's all-to-all dispatcher; with one expert rank its all-gather
//            dispatcher, the default, which gathers tokens once). Or each tensor rank has whole experts of
//            its own (parallel.expert.tensor: 1): tensor ranks are expert ranks, too, and nothing is gathered
//   latents  (ExpertsSpec::latent, LatentMoE) a projection makes of each token the latent that is sent to
//            experts; another one takes the sum of what they return. Every tensor rank has both whole, and
//            applies the second to its own tokens; the first as well, or to all that it routes (Megatron's
//            MoELayer: fc1_latent_proj, fc2_latent_proj)
#pragma once

#include <optional>
#include <string>

#include "plan/fp8.h"
#include "plan/layers.h"

namespace windtunnel {

// The linear layer of a rank's experts: weights [experts x out, in] and, if any, biases [experts x out]. x is
// [experts, rows, in].
struct ExpertLinear {
  std::string name;
  int64_t experts = 0, in = 0, out = 0;
  int weight = -1, bias = -1;
  bool adds_bias_apart = false;  // AddBias::apart
  bool is_fp8 = false;  // each expert's products take fp8, with scales of its own (Transformer Engine)
  bool is_frozen = false;  // weight and bias get no gradients

  // The form of x that backward keeps: in fp8, or x itself. Forward takes it, too.
  Slice InputToKeep(const LayerContext& c, Slice x) const;

  Slice Forward(const LayerContext& c, Slice x, int64_t rows) const;
  // Adds the gradients of weight and bias (which may be deferred); returns dx.
  Slice Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows) const;

 private:
  void AddBiasTo(const LayerContext& c, Slice y, int64_t rows) const;
  void AddBiasGradient(const LayerContext& c, Slice dy, int64_t rows) const;
  Fp8Factors Factors(const LayerContext& c, const std::string& of, bool knows_scale = false) const;
};

// How many tokens and rows a micro-batch brings to the experts of a rank.
struct ExpertLoad {
  int64_t tokens = 0;    // routed by the rank
  int64_t capacity = 0;  // of one expert for one rank's tokens; 0: no limit
  int64_t sent = 0;      // rows that the rank sends
  int64_t rows = 0;      // rows of each of the rank's experts
  static ExpertLoad Of(const ExpertsSpec& spec, int64_t tokens, int ranks);
};

// The share of tokens that have one of the `bin` experts of a bin (aligned at a multiple of `bin`), if all
// choices of experts are equally likely (with groups: of top_k_groups groups, and of experts within these):
// 1 - C(count - bin, top_k) / C(count, top_k). 256 experts, 8 per token: 1 - 0.880 = 0.120 for a bin of 4
// (one of 64 ranks), 0.662 for a bin of 32 (a node of 8 such ranks).
// Exact if `bin` divides a group or is a multiple of one, else close. REQUIRES: 1 <= bin <= count.
double ShareReaching(const ExpertsSpec& spec, int64_t bin);

struct ExpertMlp {
  std::string name = {};
  Linear router = {};
  ExpertLinear up = {}, down = {};
  std::optional<Linear> latent_down = std::nullopt, latent_up = std::nullopt;
  ModuleId module = -1;  // of the experts
  ActivationKind activation = ActivationKind::kGelu;
  ExpertsSpec spec = {};
  ExpertParallel parallel = {};
  ExpertLoad load = {};
  // Each tensor rank routes and sends its own tokens, instead of all tokens.
  bool sends_own_tokens = false;
  bool weighs_activations = false;  // as Megatron-Core does
  int kept_between = 0;             // KeptBetweenOperators, of eager PyTorch
  // The number of tensor ranks whose own tokens each part of an expert receives; 1 if an expert is on one
  // rank, or if all tensor ranks route all tokens.
  int senders = 1;

  // What forward leaves for backward; `up`, `activated` and `between` may be dropped and recomputed.
  struct Saved {
    Slice probabilities, weights, slots, received, up, activated, between, returned;
    Slice row_weights;  // of the received rows, if activations are weighted
    // With DeepEP, of the tokens that arrived.
    Slice arrived_weights, arrived_slots;
    // The inputs of the projections around experts, in the form that they take; of the first only if that is
    // not the block's own input.
    Slice latent_input, combined;
  };
  // x: the rank's own tokens if tensor ranks split tokens. Returns the sum over tensor ranks.
  Slice Forward(const LayerContext& c, Slice x, Saved& saved) const;
  // Makes `activated` again, and `up` if that was dropped, too, and then with `runs_down` the experts'
  // outputs.
  void ComputeAgain(const LayerContext& c, Saved& saved, bool runs_down) const;
  Slice Backward(const LayerContext& c, Slice dy, Slice x, const Saved& saved) const;

 private:
  void Activate(const LayerContext& c, Saved& saved) const;
  int64_t width() const { return latent_down ? latent_down->out : router.in; }  // of what experts take
  int64_t rows() const { return senders * load.rows; }  // of each of the rank's experts
  enum class Way : uint8_t { kForward, kBackward };
  // `weights`: the weights of x's rows, which travel with them; may be null.
  Slice ToExperts(const LayerContext& c, Slice x, const std::string& name, Way way,
                  Slice* weights = nullptr) const;
  Slice FromExperts(const LayerContext& c, Slice x, const std::string& name, Way way,
                    Slice* weights = nullptr) const;
  Slice Exchange(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const;
  Slice ExchangeWeights(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const;
  Slice GatherRows(const LayerContext& c, Slice x, const std::string& name) const;
  Slice SumRows(const LayerContext& c, Slice partial, const std::string& name) const;
  bool uses_deepep() const { return parallel.dispatcher == ExpertDispatcher::kDeepEp && parallel.splits(); }
  void AwaitCounts(const LayerContext& c) const;
  Slice ForwardByAllToAll(const LayerContext& c, Slice x, Saved& saved) const;
  Slice BackwardByAllToAll(const LayerContext& c, Slice dy, const Saved& saved, Slice dweights) const;
  Slice ForwardByDeepEp(const LayerContext& c, Slice x, Saved& saved) const;
  Slice BackwardByDeepEp(const LayerContext& c, Slice dy, const Saved& saved, Slice dweights) const;
  void AddCombineBackward(const LayerContext& c, const TokenRows& tokens, Slice dy, Slice slots,
                          Slice weights, const Saved& saved, Slice drows, Slice dweights) const;
  Slice RowWeightGradients(const LayerContext& c) const;
  void AddDispatchBackward(const LayerContext& c, const TokenRows& tokens, Slice drows, Slice slots,
                           Slice row_dweights, Slice dx, Slice dweights) const;
  TokenReach Reach() const;
  TokenRows Arrived(const LayerContext& c) const;
  void ExchangeTokens(const LayerContext& c, std::vector<Slice> from, const std::vector<Slice>& to,
                      const std::string& name) const;
  // The experts' outputs for the rows that they received.
  Slice Compute(const LayerContext& c, Saved& saved) const;
  // Recomputes the activation's output if it was dropped. `dweights`: of rows, if activations are weighted.
  Slice ComputeBackward(const LayerContext& c, Slice dout, Saved saved, Slice dweights) const;
  Slice Swap(const LayerContext& c, Slice x, int64_t outer, int64_t inner, const std::string& name) const;
  // The rank's own ones of the tokens that it routes.
  int64_t OwnTokens(const LayerContext& c) const {
    return !sends_own_tokens && c.tensor.splits_tokens() ? load.tokens / c.tensor.ranks() : load.tokens;
  }
};

}  // namespace windtunnel
