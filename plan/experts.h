// A mixture of experts in place of a block's MLP: a router chooses some experts for each token, tokens go where their experts are, and
// what comes back is added up by the router's weights (Shazeer et al. 2017; Mixtral; Megatron's all-to-all dispatcher).
//
//   router   logits = x W^T, the top_k largest of each token; weights are their softmax (of all logits where top_k is 1, so that the router
//            learns). There is no auxiliary loss.
//   capacity each rank keeps room for ceil(capacity_factor x tokens x top_k / count) of its tokens at every expert, and sends it all,
//            padded; what exceeds it is dropped (the token's residual goes on without that expert). capacity_factor 0: no limit and
//            no padding; then the plan is that of the rank with the busiest expert, whose load is `imbalance` times the mean
//   experts  gated or not as the MLP would be, without biases, side by side in one tensor a matrix: grouped products
//   ranks    of the expert axis have count / size experts each: tokens go there and back in two all-to-alls, backward likewise
//   tensor   ranks have a part of every expert's ffn; they route all tokens alike, and add up what comes out. Where they split tokens and
//            there are several expert ranks, each routes and sends its own tokens, for which there is room (capacity) by themselves, and
//            what has arrived is gathered over tensor ranks and, when experts have made their parts, summed and scattered again (Megatron's
//            all-to-all dispatcher; with one expert rank its all-gather dispatcher, the default, which gathers tokens once)
#pragma once

#include <string>

#include "plan/layers.h"

namespace windtunnel {

// Weights [experts x out, in] of the rank's experts. x is [experts, rows, in].
struct ExpertLinear {
  std::string name;
  int64_t experts = 0, in = 0, out = 0;
  int weight = -1;

  Slice Forward(const LayerContext& c, Slice x, int64_t rows) const;
  // Adds the weight's gradient (which may be deferred); returns dx.
  Slice Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows) const;
};

// What a micro-batch brings to the experts of a rank.
struct ExpertLoad {
  int64_t tokens = 0;    // routed by the rank
  int64_t capacity = 0;  // of one expert, for one rank's tokens; 0: no limit
  int64_t sent = 0;      // rows that the rank sends
  int64_t rows = 0;      // that each of its experts works on
  static ExpertLoad Of(const ExpertsSpec& spec, int64_t tokens, int ranks);
};

struct ExpertMlp {
  std::string name = {};
  Linear router = {};
  ExpertLinear up = {}, down = {};
  ModuleId module = -1;  // of the experts
  ActivationKind activation = ActivationKind::kGelu;
  ExpertsSpec spec = {};
  ExpertParallel parallel = {};
  ExpertLoad load = {};
  // Tensor ranks whose own tokens each expert gets; 1: they all route all tokens, or there is one.
  int senders = 1;

  // What forward leaves for backward; `activated` may be dropped and made again.
  struct Saved {
    Slice probabilities, weights, slots, received, up, activated, returned;
  };
  // x: of the rank's own tokens where tensor ranks split tokens. Returns the sum over tensor ranks.
  Slice Forward(const LayerContext& c, Slice x, Saved& saved) const;
  void Activate(const LayerContext& c, Saved& saved) const;
  Slice Backward(const LayerContext& c, Slice dy, Slice x, const Saved& saved) const;

 private:
  int64_t hidden() const { return router.in; }
  bool sends_own_tokens() const { return senders > 1; }
  int64_t rows() const { return senders * load.rows; }  // of each of the rank's experts
  Slice ToExperts(const LayerContext& c, Slice x, const std::string& name) const;
  Slice FromExperts(const LayerContext& c, Slice x, const std::string& name) const;
  Slice Exchange(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const;
  Slice GatherRows(const LayerContext& c, Slice x, const std::string& name) const;
  Slice SumRows(const LayerContext& c, Slice partial, const std::string& name) const;
  Slice Swap(const LayerContext& c, Slice x, int64_t outer, int64_t inner, const std::string& name) const;
};

}  // namespace windtunnel
