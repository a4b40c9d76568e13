// Gates of a transformer's blocks: of attention's output, and of the shared expert's.
#include "plan/transformer.h"

namespace windtunnel {

Slice Transformer::TakeGateApart(const LayerContext& c, const TransformerBlock& block, Slice outputs,
                                 BlockActivations& saved) {
  const int64_t rows = block.stream.tokens, all = outputs.elements / rows, columns = heads_ * spec_.head_dim;
  if (block.qkv.layers.size() > 1) {  // each layer's output is in one piece
    const int64_t of_heads = rows * (all - columns);
    saved.gate = {outputs.buffer, outputs.offset + of_heads, rows * columns};
    return {outputs.buffer, outputs.offset, of_heads};
  }
  const std::string name = AttentionName(block);
  const auto take = [&](const char* what, int64_t first, int64_t taken) {
    const Slice part = c.Activation(name + what, rows * taken);
    c.b.Add(CopyColumns{.rows = rows,
                        .columns = taken,
                        .from_first = first,
                        .from_stride = all,
                        .to_stride = taken,
                        .dtype = types_.activations},
            name + what, {outputs}, {part});
    return part;
  };
  saved.gate = take(".gate", all - columns, columns);
  return take(".heads", 0, all - columns);
}

void Transformer::GateAttention(const LayerContext& c, const TransformerBlock& block,
                                BlockActivations& saved) {
  if (!spec_.attention_gate) return;
  const std::string name = AttentionName(block) + ".gated";
  saved.ungated = saved.attention;
  saved.attention = c.Activation(name, saved.ungated.elements);
  c.b.Add(
      GateForward{
          .rows = block.stream.tokens, .columns = heads_ * spec_.head_dim, .dtype = types_.activations},
      name, {saved.ungated, saved.gate}, {saved.attention});
}

Slice Transformer::GateAttentionBackward(const LayerContext& c, const TransformerBlock& block, Slice dout,
                                         BlockActivations& saved) {
  if (!spec_.attention_gate) return dout;
  const std::string name = AttentionName(block) + ".gated";
  saved.dgate = c.Activation(name + ".dgate", saved.gate.elements);
  const Slice dx = c.Activation(name + ".dx", dout.elements);
  c.b.Add(
      GateBackward{
          .rows = block.stream.tokens, .columns = heads_ * spec_.head_dim, .dtype = types_.activations},
      name, {dout, saved.ungated, saved.gate}, {dx, saved.dgate});
  return dx;
}

std::vector<Slice> Transformer::WithGate(const LayerContext& c, const TransformerBlock& block, Slice dqkv,
                                         const BlockActivations& saved) const {
  const int64_t rows = block.stream.tokens;
  if (!spec_.attention_gate) return block.qkv.PartsOf(dqkv, rows);
  const std::vector<Linear>& layers = block.qkv.layers;
  if (layers.size() > 1) {
    std::vector<Slice> parts;
    int64_t first = dqkv.offset;
    for (size_t i = 0; i + 1 < layers.size(); ++i) {
      parts.push_back({dqkv.buffer, first, rows * layers[i].out});
      first += parts.back().elements;
    }
    parts.push_back(saved.dgate);
    return parts;
  }
  const std::string name = AttentionName(block) + ".dqkv";
  const Slice joined = c.Activation(name, dqkv.elements + saved.dgate.elements);
  int64_t first = 0;
  for (const Slice& part : {dqkv, saved.dgate}) {
    const int64_t columns = part.elements / rows;
    c.b.Add(CopyColumns{.rows = rows,
                        .columns = columns,
                        .from_stride = columns,
                        .to_first = first,
                        .to_stride = joined.elements / rows,
                        .dtype = types_.activations},
            name, {part}, {joined});
    first += columns;
  }
  return {joined};
}

// The last GEMM of the dense MLP or the shared expert, with its gate.
Slice Transformer::ProjectDense(const LayerContext& c, const TransformerBlock& block,
                                BlockActivations& saved) {
  Slice partial = kNoSlice;
  const Slice out = block.down.Forward(c, saved.activated, block.stream.tokens, &partial);
  if (KeepsDown(block)) saved.unneeded = {out, partial};
  if (!block.shared_gate) return out;
  saved.shared = out;
  saved.shared_gate = block.shared_gate->Forward(c, saved.norm2.y, block.stream.rows);
  const Slice gated = c.Activation(block.down.name + ".gated", out.elements);
  c.b.Add(
      GateForward{
          .rows = block.stream.rows, .columns = spec_.hidden, .by_row = true, .dtype = types_.activations},
      block.down.name + ".gated", {out, saved.shared_gate}, {gated});
  return gated;
}

// The gradient of what the shared expert and its gate take.
Slice Transformer::SharedBackward(const LayerContext& c, const TransformerBlock& block,
                                  BlockActivations& saved, Slice dx) {
  if (!block.shared_gate) return DenseBackward(c, block, saved, dx);
  const std::string name = block.down.name + ".gated";
  const Slice dshared = c.Activation(name + ".dx", dx.elements);
  const Slice dgate = c.Activation(name + ".dgate", saved.shared_gate.elements);
  c.b.Add(
      GateBackward{
          .rows = block.stream.rows, .columns = spec_.hidden, .by_row = true, .dtype = types_.activations},
      name, {dx, saved.shared, saved.shared_gate}, {dshared, dgate});
  const Slice dinput = DenseBackward(c, block, saved, dshared);
  c.AddTo(dinput, block.shared_gate->Backward(c, dgate, saved.norm2.y, block.stream.rows), name + ".dx.sum");
  return dinput;
}

}  // namespace windtunnel
