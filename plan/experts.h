// A mixture of experts in place of a block's MLP: a router chooses some experts for each token, tokens go where their experts are, and
// what comes back is added up by the router's weights (Shazeer et al. 2017; Mixtral; Megatron's all-to-all dispatcher).
//
//   router   logits = x W^T, the top_k largest of each token; weights are their softmax (of all logits where top_k is 1, so that the router
//            learns). There is no auxiliary loss.
//   capacity each rank keeps room for ceil(capacity_factor x tokens x top_k / count) of its tokens at every expert, and sends it all,
//            padded; what exceeds it is dropped (the token's residual goes on without that expert). capacity_factor 0: no limit and
//            no padding; then the plan is that of the rank with the busiest expert, whose load is `imbalance` times the mean
//   experts  gated or not as the MLP would be, with biases or without, side by side in one tensor a matrix: grouped products
//   ranks    of the expert axis have count / size experts each: tokens go there and back in two all-to-alls, backward likewise
//   DeepEP   (parallel.expert.dispatcher) instead of the all-to-alls: a rank's tokens leave it as they are and arrive once at each rank that
//            has experts of theirs, where they are put in order; what comes back is added up on the way (github.com/deepseek-ai/DeepEP,
//            Megatron's flex dispatcher). Without a capacity, and predicted only
//   weights  are multiplied with what experts give when that is added up; in Megatron-Core with what their activation gives, for which they
//            go along with the tokens, so that backward needs nothing of what experts give (core/transformer/moe/experts.py)
//   tensor   ranks have a part of every expert's ffn; they route all tokens alike, and add up what comes out. Where they split tokens and
//            there are several expert ranks, each routes and sends its own tokens, for which there is room (capacity) by themselves, and
//            what has arrived is gathered over tensor ranks and, when experts have made their parts, summed and scattered again (Megatron's
//            all-to-all dispatcher; with one expert rank its all-gather dispatcher, the default, which gathers tokens once). Or they have
//            experts of their own, whole (parallel.expert.tensor: 1): tensor ranks are expert ranks, too, and nothing is gathered
#pragma once

#include <string>

#include "plan/fp8.h"
#include "plan/layers.h"

namespace windtunnel {

// Weights [experts x out, in] of the rank's experts, and biases [experts x out], where there are some. x is [experts, rows, in].
struct ExpertLinear {
  std::string name;
  int64_t experts = 0, in = 0, out = 0;
  int weight = -1, bias = -1;
  bool adds_bias_apart = false;  // AddBias::apart
  bool is_fp8 = false;  // each expert's products take fp8, at scales of its own (Transformer Engine)

  // What backward keeps of x, where that is in fp8; else x. Forward takes it, too.
  Slice InputToKeep(const LayerContext& c, Slice x) const;

  Slice Forward(const LayerContext& c, Slice x, int64_t rows) const;
  // Adds the gradients of weight and bias (which may be deferred); returns dx.
  Slice Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows) const;

 private:
  void AddBiasTo(const LayerContext& c, Slice y, int64_t rows) const;
  void AddBiasGradient(const LayerContext& c, Slice dy, int64_t rows) const;
  Fp8Factors Factors(const LayerContext& c, const std::string& of, bool knows_scale = false) const;
};

// What a micro-batch brings to the experts of a rank.
struct ExpertLoad {
  int64_t tokens = 0;    // routed by the rank
  int64_t capacity = 0;  // of one expert, for one rank's tokens; 0: no limit
  int64_t sent = 0;      // rows that the rank sends
  int64_t rows = 0;      // that each of its experts works on
  static ExpertLoad Of(const ExpertsSpec& spec, int64_t tokens, int ranks);
};

// The share of tokens that have an expert among `bin` that follow each other from a multiple of `bin` on, when each token's are equally
// likely any (with groups any `top_k_groups` of them, and within these any): 1 - C(count - bin, top_k) / C(count, top_k).
// 256 experts, 8 a token, none of 4 (a rank of 64): 1 - 0.880 = 0.120; of 32 (a node of 8 such): 0.662.
// Exact where `bin` divides a group or is a multiple of one, else close. REQUIRES: 1 <= bin <= count.
double ShareReaching(const ExpertsSpec& spec, int64_t bin);

struct ExpertMlp {
  std::string name = {};
  Linear router = {};
  ExpertLinear up = {}, down = {};
  ModuleId module = -1;  // of the experts
  ActivationKind activation = ActivationKind::kGelu;
  ExpertsSpec spec = {};
  ExpertParallel parallel = {};
  ExpertLoad load = {};
  // Each tensor rank routes and sends its own tokens, instead of all.
  bool sends_own_tokens = false;
  bool weighs_activations = false;  // Megatron-Core's
  int kept_between = 0;             // KeptBetweenOperators, of eager PyTorch
  // Those of tensor ranks whose own tokens each part of an expert gets; 1: an expert is on one rank, or all route all tokens.
  int senders = 1;

  // What forward leaves for backward; `activated` may be dropped and made again.
  struct Saved {
    Slice probabilities, weights, slots, received, up, activated, between, returned;
    Slice row_weights;  // of rows that were received, where activations are weighed
    // With DeepEP, of the tokens that arrived.
    Slice arrived_weights, arrived_slots;
  };
  // x: of the rank's own tokens where tensor ranks split tokens. Returns the sum over tensor ranks.
  Slice Forward(const LayerContext& c, Slice x, Saved& saved) const;
  void Activate(const LayerContext& c, Saved& saved) const;
  Slice Backward(const LayerContext& c, Slice dy, Slice x, const Saved& saved) const;

 private:
  int64_t hidden() const { return router.in; }
  int64_t rows() const { return senders * load.rows; }  // of each of the rank's experts
  enum class Way : uint8_t { kForward, kBackward };
  // `weights`: unless null, of the rows of x, which go along.
  Slice ToExperts(const LayerContext& c, Slice x, const std::string& name, Way way,
                  Slice* weights = nullptr) const;
  Slice FromExperts(const LayerContext& c, Slice x, const std::string& name, Way way,
                    Slice* weights = nullptr) const;
  Slice Exchange(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const;
  Slice ExchangeWeights(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const;
  Slice GatherRows(const LayerContext& c, Slice x, const std::string& name) const;
  Slice SumRows(const LayerContext& c, Slice partial, const std::string& name) const;
  bool uses_deepep() const { return parallel.dispatcher == ExpertDispatcher::kDeepEp && parallel.splits(); }
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
  // From what experts received to what they return.
  Slice Compute(const LayerContext& c, Saved& saved) const;
  // Makes what the activation gave again, where it was dropped. `dweights`: of rows, where activations are weighed.
  Slice ComputeBackward(const LayerContext& c, Slice dout, Saved saved, Slice dweights) const;
  Slice Swap(const LayerContext& c, Slice x, int64_t outer, int64_t inner, const std::string& name) const;
};

}  // namespace windtunnel
