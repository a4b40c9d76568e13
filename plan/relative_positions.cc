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

void RelativePositions::AddScores(const LayerContext& c, Slice dscores, Slice& dbias) const {
  Slice own = dscores;
  if (batch > 1) {
    own = c.Activation(name + ".dbias", heads * seq * seq);
    c.b.Add(SumParts{batch, own.elements, c.types.activations}, name + ".dbias", {dscores}, {own});
  }
  if (dbias.buffer < 0) dbias = own;
  else c.AddTo(dbias, own, name + ".dbias.sum");
}

void RelativePositions::Backward(const LayerContext& c, Slice dbias) const {
  BackwardScope scope(c.hooks, module);
  RelativeBiasBackward op{1, heads, seq, causal, false, c.types.activations};
  if (c.types.autocasts()) {
    const Slice own = c.Activation(name + ".grad", heads * RelativeBuckets::kCount);
    c.b.Add(op, name, {dbias}, {own});
    c.AddConverted(own, name, table);
  } else {
    op.accumulate = c.hooks.HoldsValue(table);
    c.b.Add(op, name, {dbias}, {c.hooks.Gradient(table)});
  }
  c.Ready(table);
}

}  // namespace windtunnel
