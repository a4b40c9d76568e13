#include "plan/state_space.h"

#include <utility>

#include "base/check.h"

namespace windtunnel {

std::vector<Slice> StateSpace::Operands(const LayerContext& c) const {
  std::vector<Slice> operands;
  for (const Parameter& p : parameters) operands.push_back(c.OperandOf(p.index, name + p.suffix));
  return operands;
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
  return y;
}

Slice StateSpace::OutputAgain(const LayerContext& c, const Saved& saved) const {
  const Slice y = c.Activation(name + ".again", saved.scanned.elements);
  c.b.Add(Copy{.elements = y.elements, .from = c.types.activations, .to = c.types.activations}, name,
          {saved.scanned}, {y});
  return y;
}

Slice StateSpace::Backward(const LayerContext& c, Slice dy, Slice packed, const Saved& saved) const {
  std::vector<Slice> reads = {dy, packed};
  for (const Slice& operand : Operands(c)) reads.push_back(operand);
  reads.push_back(saved.scanned);
  reads.push_back(saved.statistics);
  if (saved.gated.buffer >= 0) reads.push_back(saved.gated);
  const bool converts = c.types.autocasts();
  StateSpaceBackward op{shape, !converts && c.hooks.HoldsValue(parameters[0].index)};
  const Slice dpacked = c.Activation(name + ".dx", packed.elements);
  std::vector<Slice> gradients;
  for (const Parameter& p : parameters) {
    WT_CHECK(converts || op.accumulate == c.hooks.HoldsValue(p.index));
    gradients.push_back(converts ? c.Activation(name + p.suffix + ".grad", p.elements)
                                 : c.hooks.Gradient(p.index));
  }
  std::vector<Slice> writes = {dpacked};
  writes.insert(writes.end(), gradients.begin(), gradients.end());
  writes.push_back(Workspace(c, /*backward=*/true));
  c.b.Add(op, name, std::move(reads), std::move(writes));
  for (size_t i = parameters.size(); i-- > 0;) {
    if (converts) c.AddConverted(gradients[i], name + parameters[i].suffix, parameters[i].index);
    c.hooks.Ready(parameters[i].index);
  }
  return dpacked;
}

}  // namespace windtunnel
