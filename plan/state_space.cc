#include "plan/state_space.h"

#include <utility>

#include "base/check.h"

namespace windtunnel {

std::vector<int64_t> StateSpace::PackedColumns() const {
  const int64_t ranks = context.ranks(), shared = ranks * shape.shared();
  return {InnerColumns(), InnerColumns(), shared, shared, ranks * shape.heads};
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
  if (!context.splits()) return whole;
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
      by_chunks ? ChunkedWorkspaceElements(shape, backward) : StateSpaceWorkspaceElements(shape, backward);
  return c.b.Temporary(name + ".workspace", elements, Category::kWorkspace);
}

Slice StateSpace::Forward(const LayerContext& c, Slice packed, Saved& saved) const {
  std::vector<Slice> reads = {packed};
  for (const Slice& operand : Operands(c)) reads.push_back(operand);
  const Slice y = c.Activation(name, shape.tokens() * shape.inner());
  saved.scanned = c.Activation(name + ".scanned", shape.tokens() * shape.inner());
  saved.statistics =
      c.b.Temporary(name + ".statistics", shape.tokens() * shape.groups, Category::kActivations);
  std::vector<Slice> writes = {y, saved.scanned, saved.statistics, Workspace(c, /*backward=*/false)};
  if (style == Style::kNormApart)
    writes.push_back(saved.gated = c.Activation(name + ".gated", shape.tokens() * shape.inner()));
  c.b.Add(StateSpaceForward{shape, epsilon}, name, std::move(reads), std::move(writes));
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
      const Slice whole = context.splits() ? WithZeros(c, p, own[i]) : own[i];
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
  if (saved.gated.buffer >= 0) reads.push_back(saved.gated);
  const bool are_final = !c.types.autocasts() && !context.splits();
  StateSpaceBackward op{shape, are_final && c.hooks.HoldsValue(parameters[0].index)};
  const Slice dpacked = c.Activation(name + ".dx", packed.elements);
  std::vector<Slice> gradients;
  for (const Parameter& p : parameters) {
    WT_CHECK(!are_final || op.accumulate == c.hooks.HoldsValue(p.index));
    gradients.push_back(are_final ? c.hooks.Gradient(p.index)
                                  : c.Activation(name + p.suffix + ".grad", p.elements() / context.ranks()));
  }
  std::vector<Slice> writes = {dpacked};
  writes.insert(writes.end(), gradients.begin(), gradients.end());
  writes.push_back(Workspace(c, /*backward=*/true));
  c.b.Add(op, name, std::move(reads), std::move(writes));
  AddGradients(c, gradients, are_final);
  return context.splits() ? Heads(c).ToTokens(dpacked, PackedColumns(), name + ".dpacked") : dpacked;
}

}  // namespace windtunnel
