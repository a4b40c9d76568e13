#include "plan/state_space.h"

#include <utility>

#include "base/check.h"

namespace windtunnel {

namespace {

std::vector<int64_t> Packed(const StateSpaceShape& s) {
  return {s.inner(), s.inner(), s.shared(), s.shared(), s.heads};
}
std::vector<int64_t> Packed(const DeltaNetShape& s) {
  return {s.keys(), s.keys(), s.inner(), s.inner(), s.value_heads, s.value_heads};
}

// Heads that are normalised apart.
int64_t NormsOf(const StateSpaceShape& s) { return s.groups; }
int64_t NormsOf(const DeltaNetShape& s) { return s.value_heads; }

int64_t WorkspaceOf(const StateSpaceShape& s, bool by_chunks, bool backward) {
  return by_chunks ? ChunkedWorkspaceElements(s, backward) : StateSpaceWorkspaceElements(s, backward);
}
int64_t WorkspaceOf(const DeltaNetShape& s, bool by_chunks, bool backward) {
  return by_chunks ? ChunkedWorkspaceElements(s, backward) : DeltaNetWorkspaceElements(s, backward);
}

OpKind BackwardOf(const StateSpaceShape& s, bool accumulate) { return StateSpaceBackward{s, accumulate}; }
OpKind BackwardOf(const DeltaNetShape& s, bool accumulate) { return DeltaNetBackward{s, accumulate}; }

OpKind ForwardOf(const StateSpaceShape& s, double epsilon) { return StateSpaceForward{s, epsilon}; }
OpKind ForwardOf(const DeltaNetShape& s, double epsilon) { return DeltaNetForward{s, epsilon}; }

}  // namespace

std::vector<int64_t> StateSpace::PackedColumns() const {
  std::vector<int64_t> columns = std::visit([](const auto& s) { return Packed(s); }, shape);
  for (int64_t& block : columns) block *= context.ranks();
  return columns;
}

// Of each block, the context rank's part.
std::vector<Slice> StateSpace::PartsOf(const Parameter& parameter, Slice whole) const {
  std::vector<Slice> parts;
  int64_t first = whole.offset;
  for (const int64_t elements : parameter.blocks) {
    parts.push_back(context.stream->OwnPart({whole.buffer, first, elements}));
    first += elements;
  }
  return parts;
}

// The rank's part of a parameter's values, in one piece.
Slice StateSpace::OwnPart(const LayerContext& c, const Parameter& parameter, Slice whole) const {
  if (!is_divided(parameter)) return whole;
  const std::vector<Slice> parts = PartsOf(parameter, whole);
  if (parts.size() == 1) return parts.front();
  const std::string of = name + parameter.suffix;
  const Slice own = c.Activation(of + ".own", whole.elements / context.ranks());
  int64_t first = own.offset;
  for (const Slice& part : parts) {
    c.b.Add(Copy{.elements = part.elements, .from = c.TypeOf(part), .to = c.TypeOf(own)}, of, {part},
            {{own.buffer, first, part.elements}});
    first += part.elements;
  }
  return own;
}

// The gradient of a whole parameter, from that of the rank's part: zero elsewhere.
Slice StateSpace::WithZeros(const LayerContext& c, const Parameter& parameter, Slice own) const {
  const std::string of = name + parameter.suffix;
  const Slice whole = c.Activation(of + ".grad.whole", parameter.elements());
  c.b.Add(Fill{.elements = whole.elements, .dtype = c.TypeOf(whole)}, of, {}, {whole});
  int64_t first = own.offset;
  for (const Slice& part : PartsOf(parameter, whole)) {
    c.b.Add(Copy{.elements = part.elements, .from = c.TypeOf(own), .to = c.TypeOf(whole)}, of,
            {{own.buffer, first, part.elements}}, {part});
    first += part.elements;
  }
  return whole;
}

std::vector<Slice> StateSpace::Operands(const LayerContext& c) const {
  std::vector<Slice> operands;
  for (const Parameter& p : parameters)
    operands.push_back(OwnPart(c, p, c.OperandOf(p.index, name + p.suffix)));
  return operands;
}

Slice StateSpace::Enter(const LayerContext& c, Slice packed) const {
  return context.splits() ? Heads(c).ToHeads(packed, PackedColumns(), name + ".packed") : packed;
}

Slice StateSpace::Workspace(const LayerContext& c, bool backward) const {
  const int64_t elements =
      std::visit([&](const auto& s) { return WorkspaceOf(s, by_chunks, backward); }, shape);
  return c.b.Temporary(name + ".workspace", elements, Category::kWorkspace);
}

Slice StateSpace::Forward(const LayerContext& c, Slice packed, Saved& saved) const {
  std::vector<Slice> reads = {packed};
  for (const Slice& operand : Operands(c)) reads.push_back(operand);
  const int64_t elements = tokens() * inner();
  const int64_t norms = std::visit([](const auto& s) { return NormsOf(s); }, shape);
  const Slice y = c.Activation(name, elements);
  saved.scanned = c.Activation(name + ".scanned", elements);
  saved.statistics = c.b.Temporary(name + ".statistics", tokens() * norms, Category::kActivations);
  std::vector<Slice> writes = {y, saved.scanned, saved.statistics, Workspace(c, /*backward=*/false)};
  const auto* net = std::get_if<DeltaNetShape>(&shape);
  if (net != nullptr && by_chunks)
    writes.push_back(saved.by_chunks = c.Activation(name + ".by_chunks", KeptByChunks(*net, kept)));
  else if (style == Style::kNormApart)
    writes.push_back(saved.gated = c.Activation(name + ".gated", elements));
  c.b.Add(std::visit([&](const auto& s) { return ForwardOf(s, epsilon); }, shape), name, std::move(reads),
          std::move(writes));
  return context.splits() ? Heads(c).ToTokens(y, {InnerColumns()}, name + ".out") : y;
}

Slice StateSpace::OutputAgain(const LayerContext& c, const Saved& saved) const {
  const Slice y = c.Activation(name + ".again", saved.scanned.elements);
  c.b.Add(Copy{.elements = y.elements, .from = c.types.activations, .to = c.types.activations}, name,
          {saved.scanned}, {y});
  return y;
}

// If `are_final`, the operator has added to the gradients; else `own` are those of the rank's part, in the
// activations' type, or of this micro-batch.
void StateSpace::AddGradients(const LayerContext& c, const std::vector<Slice>& own, bool are_final) const {
  for (size_t i = parameters.size(); i-- > 0;) {
    const Parameter& p = parameters[i];
    if (!are_final) {
      const Slice whole = is_divided(p) ? WithZeros(c, p, own[i]) : own[i];
      c.AddConverted(whole, name + p.suffix, p.index);
    }
    c.Ready(p.index);
  }
}

Slice StateSpace::Backward(const LayerContext& c, Slice dy, Slice packed, const Saved& saved) const {
  if (context.splits()) dy = Heads(c).ToHeads(dy, {InnerColumns()}, name + ".dout");
  std::vector<Slice> reads = {dy, packed};
  for (const Slice& operand : Operands(c)) reads.push_back(operand);
  reads.push_back(saved.scanned);
  reads.push_back(saved.statistics);
  for (const Slice& kept : {saved.gated, saved.by_chunks})
    if (kept.buffer >= 0) reads.push_back(kept);
  const bool are_final = !c.types.autocasts() && !context.splits();
  const bool accumulate = are_final && c.hooks.HoldsValue(parameters[0].index);
  const Slice dpacked = c.Activation(name + ".dx", packed.elements);
  std::vector<Slice> gradients;
  for (const Parameter& p : parameters) {
    WT_CHECK(!are_final || accumulate == c.hooks.HoldsValue(p.index));
    const int64_t sharing = is_divided(p) ? context.ranks() : 1;
    gradients.push_back(are_final ? c.hooks.Gradient(p.index)
                                  : c.Activation(name + p.suffix + ".grad", p.elements() / sharing));
  }
  std::vector<Slice> writes = {dpacked};
  writes.insert(writes.end(), gradients.begin(), gradients.end());
  writes.push_back(Workspace(c, /*backward=*/true));
  c.b.Add(std::visit([&](const auto& s) { return BackwardOf(s, accumulate); }, shape), name, std::move(reads),
          std::move(writes));
  AddGradients(c, gradients, are_final);
  return context.splits() ? Heads(c).ToTokens(dpacked, PackedColumns(), name + ".dpacked") : dpacked;
}

}  // namespace windtunnel
