// The adapters of linear layers (Adapter, plan/layers.h).
#include "plan/layers.h"

namespace windtunnel {

Slice Linear::AdapterHidden(const LayerContext& c, Slice x, int64_t rows) const {
  const std::string of_a = name + ".lora_a";
  WeightCopies::OfAdapter& saved = c.copies->of_adapters[adapter->a] = {};
  if (adapter->dropout.site.drops() && !c.b.evaluates()) {
    saved.dropped = c.Activation(of_a + ".dropped", x.elements);
    saved.mask = c.b.Temporary(of_a + ".mask", x.elements, Category::kActivations, DType::kUInt8);
    c.b.Add(DropoutOf(c, x), of_a + ".dropout", {x}, {saved.dropped, saved.mask});
    x = saved.dropped;
  }
  const Slice hidden = saved.hidden = c.Activation(of_a, rows * adapter->rank);
  const Gemm gemm{.m = rows, .n = adapter->rank, .k = in, .transpose_b = true, .dtype = c.types.gemm};
  c.b.Add(gemm, of_a, {x, c.OperandOf(adapter->a, of_a)}, {hidden});
  if (adapter->scales == Adapter::Scales::kHidden) c.ScaleBy(adapter->scale, hidden, of_a);
  return hidden;
}

Dropout Linear::DropoutOf(const LayerContext& c, Slice x) const {
  Dropout op = adapter->dropout;
  op.site = DropoutSiteOf(op.site.share, name + ".lora_a", c.b.micro_batch(), c.visit);
  op.elements = x.elements;
  op.dtype = c.types.activations;
  return op;
}

void Linear::AddAdapterTo(const LayerContext& c, Slice y, Slice x, int64_t rows) const {
  if (!adapter) return;
  const Slice hidden = AdapterHidden(c, x, rows);
  const std::string of_b = name + ".lora_b";
  Gemm gemm{.m = rows, .n = out, .k = adapter->rank, .transpose_b = true, .dtype = c.types.gemm};
  const std::vector<Slice> reads = {hidden, c.OperandOf(adapter->b, of_b)};
  if (adapter->scales == Adapter::Scales::kHidden) {
    gemm.accumulate = true;
    c.b.Add(gemm, of_b, reads, {y});
    return;
  }
  Slice own = c.Activation(of_b, rows * out);
  c.b.Add(gemm, of_b, reads, {own});
  const DType type = c.types.activations;
  Copy add{.elements = own.elements, .from = type, .to = type, .accumulate = true};
  if (adapter->scales == Adapter::Scales::kOneKernel) {
    add.scale = adapter->scale;
  } else {
    const Slice scaled = c.Activation(of_b + ".scaled", own.elements);
    c.b.Add(Copy{.elements = own.elements, .from = type, .to = type, .scale = adapter->scale}, of_b, {own},
            {scaled});
    own = scaled;
  }
  c.b.Add(add, name + ".lora", {own}, {y});
}

void Linear::AddAdapterGradients(const LayerContext& c, Slice dy, const Input& input, int64_t rows,
                                 Slice dx) const {
  if (!adapter) return;
  const std::string of_a = name + ".lora_a", of_b = name + ".lora_b";
  const WeightCopies::OfAdapter& saved = c.copies->of_adapters.at(adapter->a);
  const Slice hidden = saved.hidden, dropped = saved.dropped, mask = saved.mask;
  const DType type = c.types.activations;
  Slice scaled = dy;
  if (adapter->scales != Adapter::Scales::kHidden) {
    scaled = c.Activation(of_b + ".dy", rows * out);
    c.b.Add(Copy{.elements = dy.elements, .from = type, .to = type, .scale = adapter->scale}, of_b, {dy},
            {scaled});
  }
  // Each weight's gradient comes behind the last operator that reads the weight (ModelHooks::Ready).
  const Slice dhidden = c.Activation(of_a + ".dy", rows * adapter->rank);
  c.b.Add(Gemm{.m = rows, .n = adapter->rank, .k = out, .dtype = c.types.gemm}, of_b + ".input",
          {scaled, c.OperandOf(adapter->b, of_b)}, {dhidden});
  c.AddOrDefer([*this, scaled, hidden, rows, of_b](const LayerContext& c) {
    const Gemm gemm{.m = out, .n = adapter->rank, .k = rows, .transpose_a = true, .dtype = c.types.gemm};
    c.AddWeightGradient(gemm, of_b + ".weight", out * adapter->rank, scaled, hidden, adapter->b);
    c.Ready(adapter->b);
  });
  if (adapter->scales == Adapter::Scales::kHidden) c.ScaleBy(adapter->scale, dhidden, of_a);
  if (dx.buffer >= 0) AddToInputGradient(c, dhidden, mask, rows, dx);
  c.AddOrDefer([*this, dhidden, dropped, input, rows, of_a](const LayerContext& c) {
    const Gemm gemm{.m = adapter->rank, .n = in, .k = rows, .transpose_a = true, .dtype = c.types.gemm};
    const Slice x = dropped.buffer >= 0 ? dropped : input(c);
    c.AddWeightGradient(gemm, of_a + ".weight", in * adapter->rank, dhidden, x, adapter->a);
    c.Ready(adapter->a);
  });
}

// Adds the gradient that goes through the adapter to dx, that of the layer's input.
void Linear::AddToInputGradient(const LayerContext& c, Slice dhidden, Slice mask, int64_t rows,
                                Slice dx) const {
  const std::string of_a = name + ".lora_a";
  Gemm gemm{.m = rows, .n = in, .k = adapter->rank, .dtype = c.types.gemm};
  const std::vector<Slice> reads = {dhidden, c.OperandOf(adapter->a, of_a)};
  gemm.accumulate = adapter->scales != Adapter::Scales::kOutput && mask.buffer < 0;
  const Slice own = gemm.accumulate ? dx : c.Activation(of_a + ".dx", rows * in);
  c.b.Add(gemm, of_a + ".input", reads, {own});
  if (mask.buffer >= 0) {
    Dropout op = DropoutOf(c, own);
    op.backward = true;
    c.b.Add(op, of_a + ".dropout", {own, mask}, {own});
  }
  if (!gemm.accumulate) c.AddTo(dx, own, of_a + ".dx");
}

}  // namespace windtunnel
