#include "plan/relative_positions.h"

#include "plan/relative_buckets.h"

namespace windtunnel {

Slice RelativePositions::Forward(const LayerContext& c) const {
  ForwardScope scope(c.hooks, module);
  const Slice own = c.OperandOf(table, name);
  const Slice bias = c.Activation(name + ".bias", heads * seq * seq);
  c.b.Add(RelativeBias{heads, seq, causal, c.types.activations}, name, {own}, {bias});
  return bias;
}

void RelativePositions::Backward(const LayerContext& c, Slice dscores, bool is_last) const {
  BackwardScope scope(c.hooks, module);
  RelativeBiasBackward op{batch, heads, seq, causal, false, c.types.activations};
  if (c.types.autocasts()) {
    const Slice own = c.Activation(name + ".grad", heads * RelativeBuckets::kCount);
    c.b.Add(op, name, {dscores}, {own});
    c.AddConverted(own, name, table);
  } else {
    op.accumulate = c.hooks.HoldsValue(table);
    c.b.Add(op, name, {dscores}, {c.hooks.Gradient(table)});
  }
  if (is_last) c.hooks.Ready(table);
  else c.hooks.Wrote(table);
}

}  // namespace windtunnel
