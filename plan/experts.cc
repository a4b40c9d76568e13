#include "plan/experts.h"

#include <algorithm>
#include <cmath>

namespace windtunnel {

using Neighbor = LayerContext::Neighbor;

Slice ExpertLinear::InputToKeep(const LayerContext& c, Slice x) const {
  if (!is_fp8 || is_frozen || !c.types.keeps_inputs_in_fp8) return x;
  return Factors(c, name).OfTokens(x, in, Gathering::kNone, Fp8Sum::kOverColumns);
}

Fp8Factors ExpertLinear::Factors(const LayerContext& c, const std::string& of, bool knows_scale) const {
  return Fp8Factors(c, of, knows_scale, experts);
}

Slice ExpertLinear::Forward(const LayerContext& c, Slice x, int64_t rows) const {
  const Slice y = c.Activation(name, experts * rows * out);
  GroupedGemm gemm{experts, rows, out, in};
  gemm.transpose_b = true;
  if (is_fp8) c.types.TakesFactors(gemm);
  else gemm.dtype = c.types.activations;
  if (!is_fp8) {
    c.b.Add(gemm, name, {x, c.OperandOf(weight, name)}, {y});
    AddBiasTo(c, y, rows);
    return y;
  }
  const Fp8Factors fp8 = Factors(c, name);
  gemm.is_forward = true;
  gemm.fast_accumulation = fp8.forward_accumulates_fast();
  const Slice factor = fp8.OfTokens(x, in, Gathering::kNone, Fp8Sum::kOverColumns);
  c.b.Add(gemm, name, {factor, fp8.OfWeight(weight, experts * out, in, Fp8Sum::kOverColumns, false)}, {y});
  AddBiasTo(c, y, rows);
  return y;
}

// If biases are added apart, addends and sums exist in fp32, expert by expert and concatenated.
void ExpertLinear::AddBiasTo(const LayerContext& c, Slice y, int64_t rows) const {
  if (bias < 0) return;
  std::vector<Slice> writes = {y};
  if (adds_bias_apart)
    writes.push_back(c.b.Temporary(name + ".bias.fp32", 2 * y.elements, Category::kWorkspace));
  c.b.Add(AddBias{rows, out, c.types.activations, experts, adds_bias_apart}, name + ".bias",
          {y, c.OperandOf(bias, name + ".bias")}, std::move(writes));
}

void ExpertLinear::AddBiasGradient(const LayerContext& c, Slice dy, int64_t rows) const {
  if (bias < 0) return;
  c.AddBiasGradient(ColumnSum{rows, out, false, c.types.activations, experts, adds_bias_apart},
                    name + ".bias", dy, bias);
}

Slice ExpertLinear::Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows) const {
  const Slice dx = c.Activation(name + ".dx", experts * rows * in);
  GroupedGemm input{experts, rows, in, out};
  if (is_fp8) c.types.TakesFactors(input);
  else input.dtype = c.types.activations;
  const Slice whole_dy = dy;
  Slice dy_by_rows = dy;  // for the weight gradient's product
  Slice weights;
  if (is_fp8 && is_frozen) {
    dy = Factors(c, name + ".dy").OfTokens(dy, out, Gathering::kNone, Fp8Sum::kOverColumns);
    weights = Factors(c, name).OfWeight(weight, experts * out, in, Fp8Sum::kOverRows, false);
    input.transpose_b = true;
  } else if (is_fp8) {
    const Fp8Factors::Both factors =
        Factors(c, name + ".dy").OfTokensBothWays(dy, out, /*gathers=*/false, /*sums_over_ranks=*/false);
    dy = factors.over_columns;
    dy_by_rows = factors.over_rows;
    x = Factors(c, name + ".x", /*knows_scale=*/true).OfTokens(x, in, Gathering::kNone, Fp8Sum::kOverRows);
    weights = Factors(c, name).OfWeight(weight, experts * out, in, Fp8Sum::kOverRows, false);
    input.transpose_b = true;
  } else {
    weights = c.OperandOf(weight, name);
  }
  c.b.Add(input, name + ".input", {dy, weights}, {dx});
  if (is_frozen) return dx;
  c.AddOrDefer([*this, whole_dy, dy_by_rows, x, rows](const LayerContext& c) {
    GroupedGemm gemm{experts, out, in, rows};
    gemm.transpose_a = !is_fp8;
    gemm.transpose_b = is_fp8;
    if (is_fp8) c.types.TakesFactors(gemm);
    else gemm.dtype = c.types.activations;
    c.AddWeightGradient(gemm, name + ".weight", experts * out * in, dy_by_rows, x, weight);
    c.Ready(weight);
    AddBiasGradient(c, whole_dy, rows);
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
  // The other experts share what the busiest one does not get.
  const double others = spec.count > 1 ? (chosen - busiest) / (spec.count - 1) : 0;
  const double all = ranks * (busiest + static_cast<double>(experts - 1) * others);
  load.sent = tokens * spec.top_k;
  load.rows = static_cast<int64_t>(std::ceil(all / static_cast<double>(experts)));
  return load;
}

namespace {

// The probability that `chosen` equally likely ones of `all` include none of `some`.
double ShareMissing(int64_t all, int64_t some, int64_t chosen) {
  double share = 1;
  for (int64_t i = 0; i < chosen; ++i)
    share *= std::max(static_cast<double>(all - some - i), 0.0) / static_cast<double>(all - i);
  return share;
}

double Choose(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0;
  double ways = 1;
  for (int64_t i = 0; i < k; ++i) ways *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  return ways;
}

}  // namespace

double ShareReaching(const ExpertsSpec& spec, int64_t bin) {
  const int64_t groups = spec.groups, chosen = spec.top_k_groups;
  if (groups == 0 || chosen == 0 || chosen >= groups) return 1 - ShareMissing(spec.count, bin, spec.top_k);
  // The bin is `whole` groups and a part of another one, any of which may be among the chosen groups.
  const int64_t each = spec.count / groups, whole = bin / each, rest = bin % each;
  double missing = 0;
  for (int64_t of_whole = 0; of_whole <= std::min(whole, chosen); ++of_whole) {
    const double likely =
        Choose(whole, of_whole) * Choose(groups - whole, chosen - of_whole) / Choose(groups, chosen);
    if (likely == 0) continue;
    const double with_part =
        rest > 0 ? static_cast<double>(chosen - of_whole) / static_cast<double>(groups - whole) : 0;
    missing += likely * (1 - with_part) * ShareMissing(chosen * each, of_whole * each, spec.top_k);
    if (with_part > 0)
      missing += likely * with_part * ShareMissing(chosen * each, of_whole * each + rest, spec.top_k);
  }
  return 1 - missing;
}

// Every rank sends `sent` rows, of which this rank receives those of its experts; or the same back.
Slice ExpertMlp::Exchange(const LayerContext& c, Slice x, int64_t arriving, const std::string& name) const {
  if (!parallel.splits()) return x;
  const Slice y = c.Activation(name + ".exchanged", arriving * width());
  c.b.WaitBeforeUse(y, parallel.stream->AllToAll(c.b, x, y, name, c.b.BeforeNextCompute()));
  return y;
}

Slice ExpertMlp::ExchangeWeights(const LayerContext& c, Slice x, int64_t arriving,
                                 const std::string& name) const {
  if (!parallel.splits()) return x;
  const Slice y = c.b.Temporary(name + ".weights.exchanged", arriving, Category::kActivations);
  c.b.WaitBeforeUse(y, parallel.stream->AllToAll(c.b, x, y, name + ".weights", c.b.BeforeNextCompute()));
  return y;
}

// [outer, inner, …] -> [inner, outer, …] of ranks and experts; unpadded rows are reordered likewise.
Slice ExpertMlp::Swap(const LayerContext& c, Slice x, int64_t outer, int64_t inner,
                      const std::string& name) const {
  if (!parallel.splits() || outer == 1 || inner == 1) return x;
  const Slice y = c.Activation(name + ".swapped", x.elements);
  c.b.Add(SwapBlocks{outer, inner, x.elements / (outer * inner), c.types.activations}, name, {x}, {y});
  return y;
}

// Gathers the rows of all senders.
Slice ExpertMlp::GatherRows(const LayerContext& c, Slice x, const std::string& name) const {
  if (senders == 1) return x;
  const Slice y =
      c.b.Temporary(name + ".gathered", senders * x.elements, Category::kActivations, c.TypeOf(x));
  c.b.WaitBeforeUse(y, c.tensor.stream->AllGather(c.b, x, y, name, c.b.BeforeNextCompute()));
  return y;
}

// Sums over tensor ranks, each of which keeps the rows that it sent.
Slice ExpertMlp::SumRows(const LayerContext& c, Slice partial, const std::string& name) const {
  if (senders == 1) return partial;
  const Slice y = c.b.Temporary(name + ".scattered", partial.elements / senders, Category::kActivations,
                                c.TypeOf(partial));
  c.b.WaitBeforeUse(y, c.tensor.stream->ReduceScatter(c.b, partial, y, name, c.b.BeforeNextCompute()));
  return y;
}

// [senders, ranks, experts, rows] as they arrive, [experts, senders, ranks, rows] as products want them.
// (The kernels that reorder tokens reorder their weights, too.)
Slice ExpertMlp::ToExperts(const LayerContext& c, Slice x, const std::string& name, Way way,
                           Slice* weights) const {
  AtSlot(c.b, way == Way::kForward ? LayerSlot::kDispatch : LayerSlot::kCombineBackward);
  x = Exchange(c, x, up.experts * load.rows, name);
  if (weights != nullptr) {
    *weights = ExchangeWeights(c, *weights, up.experts * load.rows, name);
    *weights = GatherRows(c, *weights, name + ".weights");
  }
  AtSlot(c.b, way == Way::kForward ? LayerSlot::kExperts : LayerSlot::kExpertsBackward);
  return Swap(c, GatherRows(c, x, name), senders * parallel.ranks(), up.experts, name);
}

Slice ExpertMlp::FromExperts(const LayerContext& c, Slice x, const std::string& name, Way way,
                             Slice* weights) const {
  x = SumRows(c, Swap(c, x, up.experts, senders * parallel.ranks(), name), name);
  if (weights != nullptr) *weights = SumRows(c, *weights, name + ".weights");
  AtSlot(c.b, way == Way::kForward ? LayerSlot::kCombine : LayerSlot::kDispatchBackward);
  x = Exchange(c, x, load.sent, name);
  if (weights != nullptr) *weights = ExchangeWeights(c, *weights, load.sent, name);
  return x;
}

void ExpertMlp::Activate(const LayerContext& c, Saved& saved) const {
  const int64_t all = up.experts * rows();
  const Slice activated = c.Activation(name + ".activation", all * down.in);
  std::vector<Slice> reads = {saved.up}, writes = {activated};
  if (weighs_activations) reads.push_back(saved.row_weights);
  if (kept_between > 0)
    writes.push_back(saved.between = c.Activation(name + ".between", kept_between * all * down.in));
  c.b.Add(ActivationForward{activation, all, down.in, c.types.activations, weighs_activations},
          name + ".activation", std::move(reads), std::move(writes));
  saved.activated = down.InputToKeep(c, activated);
}

Slice ExpertMlp::Compute(const LayerContext& c, Saved& saved) const {
  saved.up = up.Forward(c, saved.received, rows());
  Activate(c, saved);
  return down.Forward(c, saved.activated, rows());
}

void ExpertMlp::ComputeAgain(const LayerContext& c, Saved& saved, bool runs_down) const {
  if (saved.up.buffer >= 0) return Activate(c, saved);
  ForwardScope scope(c.hooks, module);
  saved.up = up.Forward(c, saved.received, rows());
  Activate(c, saved);
  if (runs_down) down.Forward(c, saved.activated, rows());
}

Slice ExpertMlp::ComputeBackward(const LayerContext& c, Slice dout, Saved saved, Slice dweights) const {
  if (saved.activated.buffer < 0) {
    c.b.SetPhase(Phase::kRecompute);
    Activate(c, saved);
    c.b.SetPhase(Phase::kBackward);
  }
  const Slice dactivated = down.Backward(c, dout, saved.activated, rows());
  const bool gated = IsGated(activation);
  const int64_t all = up.experts * rows();
  const Slice dup = gated ? c.Activation(name + ".activation.dx", 2 * all * down.in) : dactivated;
  std::vector<Slice> reads = {dactivated, saved.up}, writes = {dup};
  if (weighs_activations) {
    reads.push_back(saved.row_weights);
    writes.push_back(dweights);
  }
  if (kept_between > 0) reads.push_back(saved.between);
  c.b.Add(ActivationBackward{activation, all, down.in, c.types.activations, weighs_activations},
          name + ".activation", std::move(reads), std::move(writes));
  return up.Backward(c, dup, saved.received, rows());
}

// The host needs the counts before it can exchange tokens, but not before it puts them in order: there are
// as many as before (Megatron's dispatcher waits at its cuda_sync_point before_ep_alltoall). It waits for
// what it has issued so far; Megatron, without graphs, only for the counts.
void ExpertMlp::AwaitCounts(const LayerContext& c) const {
  if (parallel.host < 0) return;
  AtSlot(c.b, LayerSlot::kDispatch);
  c.b.Add(HostWait{}, name + ".counts", {}, {}, {c.b.LastCompute()}, parallel.host);
}

Slice ExpertMlp::ForwardByAllToAll(const LayerContext& c, Slice x, Saved& saved) const {
  const TokenRows tokens{load.tokens, width(), spec.top_k, load.sent, c.types.activations};
  const Slice dispatched = c.Activation(name + ".dispatched", load.sent * width());
  std::vector<Slice> reads = {x, saved.slots}, writes = {dispatched};
  Slice sent_weights = kNoSlice;
  if (weighs_activations) {
    sent_weights = c.b.Temporary(name + ".dispatched.weights", load.sent, Category::kActivations);
    reads.push_back(saved.weights);
    writes.push_back(sent_weights);
  }
  c.b.Add(DispatchTokens{tokens, /*counted=*/load.capacity == 0}, name + ".dispatch", std::move(reads),
          std::move(writes));
  c.b.SetPart(LayerPart::kExperts);
  AwaitCounts(c);
  {
    ForwardScope scope(c.hooks, module);
    saved.received = up.InputToKeep(c, ToExperts(c, dispatched, name + ".dispatch", Way::kForward,
                                                 weighs_activations ? &sent_weights : nullptr));
    saved.row_weights = sent_weights;
    saved.returned = FromExperts(c, Compute(c, saved), name + ".combine", Way::kForward);
  }
  AtSlot(c.b, LayerSlot::kCombined);
  const Slice y = c.Activation(name + ".combined", load.tokens * width());
  reads = {saved.returned, saved.slots};
  if (!weighs_activations) reads.push_back(saved.weights);
  c.b.Add(CombineTokens{tokens, !weighs_activations}, name + ".combine", std::move(reads), {y});
  if (weighs_activations) saved.returned = kNoSlice;
  return y;
}

// Brings the gradient of combined tokens to their rows; if weighted, also makes the gradient of weights.
void ExpertMlp::AddCombineBackward(const LayerContext& c, const TokenRows& tokens, Slice dy, Slice slots,
                                   Slice weights, const Saved& saved, Slice drows, Slice dweights) const {
  const CombineBackward op{tokens, !weighs_activations};
  if (weighs_activations) c.b.Add(op, name + ".combine", {dy, slots}, {drows});
  else c.b.Add(op, name + ".combine", {dy, saved.returned, slots, weights}, {drows, dweights});
}

Slice ExpertMlp::RowWeightGradients(const LayerContext& c) const {
  if (!weighs_activations) return kNoSlice;
  return c.b.Temporary(name + ".row.dweights", up.experts * rows(), Category::kActivations);
}

// The gradients of tokens, from those of their rows; and of their weights, if these travelled along.
void ExpertMlp::AddDispatchBackward(const LayerContext& c, const TokenRows& tokens, Slice drows, Slice slots,
                                    Slice row_dweights, Slice dx, Slice dweights) const {
  std::vector<Slice> reads = {drows, slots}, writes = {dx};
  if (weighs_activations) {
    reads.push_back(row_dweights);
    writes.push_back(dweights);
  }
  c.b.Add(CombineTokens{tokens, /*weighted=*/false}, name + ".ddispatch", std::move(reads),
          std::move(writes));
}

Slice ExpertMlp::BackwardByAllToAll(const LayerContext& c, Slice dy, const Saved& saved,
                                    Slice dweights) const {
  const TokenRows tokens{load.tokens, width(), spec.top_k, load.sent, c.types.activations};
  const Slice dreturned = c.Activation(name + ".dreturned", load.sent * width());
  AddCombineBackward(c, tokens, dy, saved.slots, saved.weights, saved, dreturned, dweights);
  Slice dspread, row_dweights;
  {
    BackwardScope scope(c.hooks, module);
    const Slice dout = ToExperts(c, dreturned, name + ".dcombine", Way::kBackward);
    row_dweights = RowWeightGradients(c);
    dspread = FromExperts(c, ComputeBackward(c, dout, saved, row_dweights), name + ".ddispatch",
                          Way::kBackward, weighs_activations ? &row_dweights : nullptr);
    c.AddDelayed(LayerSlot::kExpertWeights);
  }
  AtSlot(c.b, LayerSlot::kAttentionBackward);
  c.b.SetPart(LayerPart::kPreprocess);
  const Slice dx = c.Activation(name + ".dx", load.tokens * width());
  AddDispatchBackward(c, tokens, dspread, saved.slots, row_dweights, dx, dweights);
  return dx;
}

// The reach of the busiest rank: it receives more tokens than the mean by the same factor as rows.
TokenReach ExpertMlp::Reach() const {
  const double busier =
      static_cast<double>(up.experts * load.rows) / static_cast<double>(load.tokens * spec.top_k);
  return {std::min(ShareReaching(spec, up.experts) * busier, 1.0),
          ShareReaching(spec, up.experts * parallel.ranks_per_node)};
}

TokenRows ExpertMlp::Arrived(const LayerContext& c) const {
  const double all = static_cast<double>(parallel.ranks() * load.tokens);
  return {static_cast<int64_t>(std::ceil(all * Reach().rank)), width(), spec.top_k, up.experts * rows(),
          c.types.activations};
}

// Sends tokens to the ranks of their experts (`from`: the rank's own, `to`: what arrives), or back.
void ExpertMlp::ExchangeTokens(const LayerContext& c, std::vector<Slice> from, const std::vector<Slice>& to,
                               const std::string& name) const {
  const OpIndex exchange = parallel.stream->TokenExchange(c.b, load.tokens * width(), Reach(),
                                                          std::move(from), to, name, c.b.BeforeNextCompute());
  for (const Slice& slice : to) c.b.WaitBeforeUse(slice, exchange);
}

Slice ExpertMlp::ForwardByDeepEp(const LayerContext& c, Slice x, Saved& saved) const {
  const TokenRows tokens = Arrived(c);
  ForwardScope scope(c.hooks, module);
  const Slice arrived = c.Activation(name + ".arrived", tokens.tokens * width());
  saved.arrived_weights =
      c.b.Temporary(name + ".arrived.weights", tokens.tokens * spec.top_k, Category::kActivations);
  saved.arrived_slots = c.b.Temporary(name + ".arrived.slots", tokens.tokens * spec.top_k,
                                      Category::kActivations, DType::kInt32);
  AtSlot(c.b, LayerSlot::kDispatch);
  ExchangeTokens(c, {x, saved.weights, saved.slots}, {arrived, saved.arrived_weights, saved.arrived_slots},
                 name + ".dispatch");
  AtSlot(c.b, LayerSlot::kExperts);
  const Slice received = c.Activation(name + ".received", tokens.rows * width());
  std::vector<Slice> reads = {arrived, saved.arrived_slots}, writes = {received};
  if (weighs_activations) {
    saved.row_weights = c.b.Temporary(name + ".row.weights", tokens.rows, Category::kActivations);
    reads.push_back(saved.arrived_weights);
    writes.push_back(saved.row_weights);
  }
  c.b.Add(DispatchTokens{tokens}, name + ".dispatch", std::move(reads), std::move(writes));
  saved.received = up.InputToKeep(c, received);
  saved.returned = Compute(c, saved);
  const Slice sums = c.Activation(name + ".sums", tokens.tokens * width());
  reads = {saved.returned, saved.arrived_slots};
  if (!weighs_activations) reads.push_back(saved.arrived_weights);
  c.b.Add(CombineTokens{tokens, !weighs_activations}, name + ".combine", std::move(reads), {sums});
  if (weighs_activations) saved.returned = saved.arrived_weights = kNoSlice;
  const Slice y = c.Activation(name + ".combined", load.tokens * width());
  AtSlot(c.b, LayerSlot::kCombine);
  ExchangeTokens(c, {sums}, {y}, name + ".combine");
  AtSlot(c.b, LayerSlot::kCombined);
  return y;
}

Slice ExpertMlp::BackwardByDeepEp(const LayerContext& c, Slice dy, const Saved& saved, Slice dweights) const {
  const TokenRows tokens = Arrived(c);
  BackwardScope scope(c.hooks, module);
  const Slice darrived = c.Activation(name + ".darrived", tokens.tokens * width());
  ExchangeTokens(c, {dy}, {darrived}, name + ".dcombine");
  AtSlot(c.b, LayerSlot::kExpertsBackward);
  const Slice dout = c.Activation(name + ".dreturned", tokens.rows * width());
  const Slice darrived_weights =
      c.b.Temporary(name + ".darrived.weights", tokens.tokens * spec.top_k, Category::kActivations);
  AddCombineBackward(c, tokens, darrived, saved.arrived_slots, saved.arrived_weights, saved, dout,
                     darrived_weights);
  const Slice row_dweights = RowWeightGradients(c);
  const Slice dreceived = ComputeBackward(c, dout, saved, row_dweights);
  const Slice sums = c.Activation(name + ".dsums", tokens.tokens * width());
  AddDispatchBackward(c, tokens, dreceived, saved.arrived_slots, row_dweights, sums, darrived_weights);
  const Slice dx = c.Activation(name + ".dx", load.tokens * width());
  AtSlot(c.b, LayerSlot::kDispatchBackward);
  ExchangeTokens(c, {sums, darrived_weights}, {dx, dweights}, name + ".ddispatch");
  c.AddDelayed(LayerSlot::kExpertWeights);
  AtSlot(c.b, LayerSlot::kAttentionBackward);
  return dx;
}

Slice ExpertMlp::Forward(const LayerContext& c, Slice x, Saved& saved) const {
  const InPart part(c.b, LayerPart::kRouter);
  if (!sends_own_tokens) x = c.GatherTokens(x, name, Neighbor::kProduct);
  const Slice logits = router.Forward(c, x, load.tokens);
  saved.probabilities =
      c.b.Temporary(name + ".probabilities", load.tokens * spec.count, Category::kActivations);
  saved.weights = c.b.Temporary(name + ".weights", load.tokens * spec.top_k, Category::kActivations);
  saved.slots =
      c.b.Temporary(name + ".slots", load.tokens * spec.top_k, Category::kActivations, DType::kInt32);
  c.b.Add(RouteTokens{load.tokens, spec.count, spec.top_k, load.capacity, c.types.activations, spec.groups,
                      spec.top_k_groups},
          name + ".route", {logits}, {saved.probabilities, saved.weights, saved.slots});
  c.b.SetPart(LayerPart::kPreprocess);
  if (latent_down) {
    const Slice input = latent_down->InputToKeep(c, x);
    if (input.buffer != x.buffer) saved.latent_input = input;
    x = latent_down->Forward(c, input, load.tokens);
  }
  if (uses_deepep()) {
    c.b.SetPart(LayerPart::kExperts);
    AwaitCounts(c);
  }
  Slice y = uses_deepep() ? ForwardByDeepEp(c, x, saved) : ForwardByAllToAll(c, x, saved);
  if (!sends_own_tokens) y = c.SumOverRanks(y, name, Neighbor::kElementwise);
  if (!latent_up) return y;
  saved.combined = latent_up->InputToKeep(c, y);
  return latent_up->Forward(c, saved.combined, OwnTokens(c));
}

Slice ExpertMlp::Backward(const LayerContext& c, Slice dy, Slice x, const Saved& saved) const {
  const InPart part(c.b, LayerPart::kExperts);
  if (latent_up) dy = latent_up->Backward(c, dy, saved.combined, OwnTokens(c));
  if (!sends_own_tokens) dy = c.GatherTokens(dy, name + ".dy", Neighbor::kElementwise);
  const Slice dweights = c.b.Temporary(name + ".dweights", load.tokens * spec.top_k, Category::kActivations);
  Slice dx =
      uses_deepep() ? BackwardByDeepEp(c, dy, saved, dweights) : BackwardByAllToAll(c, dy, saved, dweights);
  c.b.SetPart(LayerPart::kRouter);
  const Slice dlogits = c.Activation(name + ".dlogits", load.tokens * spec.count);
  c.b.Add(RouteTokensBackward{load.tokens, spec.count, spec.top_k, load.capacity, c.types.activations},
          name + ".route", {dweights, saved.probabilities, saved.slots}, {dlogits});
  if (!sends_own_tokens && !router.is_frozen) x = c.GatherTokens(x, name + ".x", Neighbor::kProduct);
  if (latent_down) {
    const InPart preprocess(c.b, LayerPart::kPreprocess);
    const Slice input = saved.latent_input.buffer >= 0 ? saved.latent_input : x;
    dx = latent_down->Backward(c, dx, input, load.tokens);
  }
  const Slice dx_router = router.Backward(c, dlogits, x, load.tokens);
  c.AddTo(dx, dx_router, name + ".dx");
  return sends_own_tokens ? dx : c.SumOverRanks(dx, name + ".dx", Neighbor::kElementwise);
}

}  // namespace windtunnel
