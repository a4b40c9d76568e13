#include "plan/experts.h"

#include <algorithm>
#include <cmath>

namespace windtunnel {

using Neighbor = LayerContext::Neighbor;

Slice ExpertLinear::Forward(const LayerContext& c, Slice x, int64_t rows) const {
  const Slice y = c.Activation(name, experts * rows * out);
  GroupedGemm gemm{experts, rows, out, in};
  gemm.transpose_b = true;
  gemm.dtype = c.types.activations;
  c.b.Add(gemm, name, {x, c.OperandOf(weight, name)}, {y});
  return y;
}

Slice ExpertLinear::Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows) const {
  const Slice dx = c.Activation(name + ".dx", experts * rows * in);
  GroupedGemm input{experts, rows, in, out};
  input.dtype = c.types.activations;
  c.b.Add(input, name + ".input", {dy, c.OperandOf(weight, name)}, {dx});
  c.AddOrDefer([*this, dy, x, rows](const LayerContext& c) {
    GroupedGemm gemm{experts, out, in, rows};
    gemm.transpose_a = true;
    gemm.dtype = c.types.activations;
    c.AddWeightGradient(gemm, name + ".weight", experts * out * in, dy, x, weight);
    c.hooks.Ready(weight);
  });
  return dx;
}

ExpertLoad ExpertLoad::Of(const ExpertsSpec& spec, int64_t tokens, int ranks) {
  const double chosen = static_cast<double>(tokens * spec.top_k), mean = chosen / spec.count;
  const int64_t experts = spec.count / ranks;
  ExpertLoad load;
  load.tokens = tokens;
  if (spec.capacity_factor > 0) {
    load.capacity = std::min(tokens, static_cast<int64_t>(std::ceil(spec.capacity_factor * mean)));
    load.sent = spec.count * load.capacity;
    load.rows = ranks * load.capacity;
    return load;
  }
  const double busiest = std::min(spec.imbalance * mean, static_cast<double>(tokens));
  // What the busiest has, the others have not.
  const double others = spec.count > 1 ? (chosen - busiest) / (spec.count - 1) : 0;
  const double all = ranks * (busiest + static_cast<double>(experts - 1) * others);
  load.sent = tokens * spec.top_k;
  load.rows = static_cast<int64_t>(std::ceil(all / static_cast<double>(experts)));
  return load;
}

// Of what every rank sends `sent` rows, the rank's experts get theirs; and back.
Slice ExpertMlp::Exchange(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const {
  if (!parallel.splits()) return x;
  const Slice y = c.Activation(name + ".exchanged", arriving * hidden());
  c.b.WaitBeforeUse(y, parallel.stream->AllToAll(c.b, x, y, name, c.b.BeforeNextCompute()));
  return y;
}

// [outer, inner, …] -> [inner, outer, …] of ranks and experts; what is not padded is put in order all the same.
Slice ExpertMlp::Swap(const LayerContext& c, Slice x, int64_t outer, int64_t inner,
                      const std::string& name) const {
  if (!parallel.splits() || outer == 1 || inner == 1) return x;
  const Slice y = c.Activation(name + ".swapped", x.elements);
  c.b.Add(SwapBlocks{outer, inner, x.elements / (outer * inner), c.types.activations}, name, {x}, {y});
  return y;
}

// Of the tokens of all senders.
Slice ExpertMlp::GatherRows(const LayerContext& c, Slice x, const std::string& name) const {
  if (!sends_own_tokens()) return x;
  const Slice y = c.Activation(name + ".gathered", senders * x.elements);
  c.b.WaitBeforeUse(y, c.tensor.stream->AllGather(c.b, x, y, name, c.b.BeforeNextCompute()));
  return y;
}

// Over tensor ranks, of which each keeps what it sent.
Slice ExpertMlp::SumRows(const LayerContext& c, Slice partial, const std::string& name) const {
  if (!sends_own_tokens()) return partial;
  const Slice y = c.Activation(name + ".scattered", partial.elements / senders);
  c.b.WaitBeforeUse(y, c.tensor.stream->ReduceScatter(c.b, partial, y, name, c.b.BeforeNextCompute()));
  return y;
}

// [senders, ranks, experts, rows] as they arrive, [experts, senders, ranks, rows] as products want them.
Slice ExpertMlp::ToExperts(const LayerContext& c, Slice x, const std::string& name) const {
  x = GatherRows(c, Exchange(c, x, up.experts * load.rows, name), name);
  return Swap(c, x, senders * parallel.ranks(), up.experts, name);
}

Slice ExpertMlp::FromExperts(const LayerContext& c, Slice x, const std::string& name) const {
  x = SumRows(c, Swap(c, x, up.experts, senders * parallel.ranks(), name), name);
  return Exchange(c, x, load.sent, name);
}

void ExpertMlp::Activate(const LayerContext& c, Saved& saved) const {
  const int64_t all = up.experts * rows();
  saved.activated = c.Activation(name + ".activation", all * down.in);
  c.b.Add(ActivationForward{activation, all, down.in, c.types.activations}, name + ".activation", {saved.up},
          {saved.activated});
}

Slice ExpertMlp::Forward(const LayerContext& c, Slice x, Saved& saved) const {
  if (!sends_own_tokens()) x = c.GatherTokens(x, name, Neighbor::kProduct);
  const Slice logits = router.Forward(c, x, load.tokens);
  saved.probabilities =
      c.b.Temporary(name + ".probabilities", load.tokens * spec.count, Category::kActivations);
  saved.weights = c.b.Temporary(name + ".weights", load.tokens * spec.top_k, Category::kActivations);
  saved.slots =
      c.b.Temporary(name + ".slots", load.tokens * spec.top_k, Category::kActivations, DType::kInt32);
  c.b.Add(RouteTokens{load.tokens, spec.count, spec.top_k, load.capacity, c.types.activations},
          name + ".route", {logits}, {saved.probabilities, saved.weights, saved.slots});
  const Slice dispatched = c.Activation(name + ".dispatched", load.sent * hidden());
  const TokenRows tokens{load.tokens, hidden(), spec.top_k, load.sent, c.types.activations};
  c.b.Add(DispatchTokens{tokens}, name + ".dispatch", {x, saved.slots}, {dispatched});
  {
    ForwardScope scope(c.hooks, module);
    saved.received = ToExperts(c, dispatched, name + ".dispatch");
    saved.up = up.Forward(c, saved.received, rows());
    Activate(c, saved);
    saved.returned = FromExperts(c, down.Forward(c, saved.activated, rows()), name + ".combine");
  }
  const Slice y = c.Activation(name + ".combined", load.tokens * hidden());
  c.b.Add(CombineTokens{tokens, /*weighted=*/true}, name + ".combine",
          {saved.returned, saved.slots, saved.weights}, {y});
  return sends_own_tokens() ? y : c.SumOverRanks(y, name, Neighbor::kElementwise);
}

Slice ExpertMlp::Backward(const LayerContext& c, Slice dy, Slice x, const Saved& saved) const {
  const TokenRows tokens{load.tokens, hidden(), spec.top_k, load.sent, c.types.activations};
  if (!sends_own_tokens()) dy = c.GatherTokens(dy, name + ".dy", Neighbor::kElementwise);
  const Slice dreturned = c.Activation(name + ".dreturned", load.sent * hidden());
  const Slice dweights = c.b.Temporary(name + ".dweights", load.tokens * spec.top_k, Category::kActivations);
  c.b.Add(CombineBackward{tokens}, name + ".combine", {dy, saved.returned, saved.slots, saved.weights},
          {dreturned, dweights});
  Slice dspread;
  {
    BackwardScope scope(c.hooks, module);
    const Slice dout = ToExperts(c, dreturned, name + ".dcombine");
    const Slice dactivated = down.Backward(c, dout, saved.activated, rows());
    const bool gated = activation == ActivationKind::kSwiglu;
    const int64_t all = up.experts * rows();
    const Slice dup = gated ? c.Activation(name + ".activation.dx", 2 * all * down.in) : dactivated;
    c.b.Add(ActivationBackward{activation, all, down.in, c.types.activations}, name + ".activation",
            {dactivated, saved.up}, {dup});
    dspread = FromExperts(c, up.Backward(c, dup, saved.received, rows()), name + ".ddispatch");
  }
  const Slice dx = c.Activation(name + ".dx", load.tokens * hidden());
  c.b.Add(CombineTokens{tokens, /*weighted=*/false}, name + ".ddispatch", {dspread, saved.slots}, {dx});
  const Slice dlogits = c.Activation(name + ".dlogits", load.tokens * spec.count);
  c.b.Add(RouteTokensBackward{load.tokens, spec.count, spec.top_k, load.capacity, c.types.activations},
          name + ".route", {dweights, saved.probabilities, saved.slots}, {dlogits});
  if (!sends_own_tokens()) x = c.GatherTokens(x, name + ".x", Neighbor::kProduct);
  const Slice dx_router = router.Backward(c, dlogits, x, load.tokens);
  c.AddTo(dx, dx_router, name + ".dx");
  return sends_own_tokens() ? dx : c.SumOverRanks(dx, name + ".dx", Neighbor::kElementwise);
}

}  // namespace windtunnel
