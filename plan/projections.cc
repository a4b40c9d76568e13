#include "plan/projections.h"

#include "base/check.h"
#include "plan/fp8.h"

namespace windtunnel {

using Neighbor = LayerContext::Neighbor;

Slice Projections::Enter(const LayerContext& c, Slice x) const {
  if (style == Style::kStacked || !c.tensor.splits_tokens()) return x;
  const Linear& first = layers[0];
  const bool in_fp8 = first.is_fp8 && c.types.gathers_factors();
  return in_fp8 ? Fp8Factors(c, first.name).OfTokens(x, first.in, Gathering::kKept, Fp8Sum::kOverColumns)
         : first.is_fp8 ? c.GatherTokens(x, first.name, Neighbor::kElementwise)
                        : c.GatherForProducts(x, first.name, /*is_kept=*/true);
}

// torch.compile merges the layers' identical conversions of the input into one.
Slice Projections::InputOf(const LayerContext& c, Slice input) const {
  const Linear& first = layers[0];
  return is_fp8()
             ? Fp8Factors(c, first.name).OfTokens(input, first.in, Gathering::kNone, Fp8Sum::kOverColumns)
             : input;
}

Slice Projections::Forward(const LayerContext& c, Slice input, int64_t rows) const {
  if (style == Style::kStacked) return layers[0].Forward(c, input, rows);
  const Slice x = InputOf(c, input);
  if (layers.size() == 1) return layers[0].ForwardProduct(c, x, rows);
  int64_t columns = 0;
  for (const Linear& layer : layers) columns += layer.out;
  const Slice outputs = c.Activation(layers[0].name, rows * columns);
  AddProducts(c, x, rows, PartsOf(outputs, rows));
  return outputs;
}

std::vector<Slice> Projections::ForwardApart(const LayerContext& c, Slice input, int64_t rows) const {
  if (style == Style::kStacked) return {layers[0].Forward(c, input, rows)};
  const Slice x = InputOf(c, input);
  std::vector<Slice> outputs;
  for (const Linear& layer : layers) outputs.push_back(c.Activation(layer.name, rows * layer.out));
  AddProducts(c, x, rows, outputs);
  return outputs;
}

void Projections::AddProducts(const LayerContext& c, Slice x, int64_t rows,
                              const std::vector<Slice>& outputs) const {
  if (!c.b.WillComeInParts(x)) {
    for (size_t i = 0; i < layers.size(); ++i) {
      c.AddProducts({layers[i].ProductOf(c, x, rows, layers[i].bias >= 0, outputs[i])});
      layers[i].AddAdapterTo(c, outputs[i], x, rows);
    }
    return;
  }
  std::vector<LayerContext::Product> products;  // all layers process a part as soon as it has arrived
  for (size_t i = 0; i < layers.size(); ++i)
    products.push_back(layers[i].ProductOf(c, x, rows, layers[i].bias >= 0, outputs[i]));
  c.AddProducts(products);
}

Slice Projections::ForwardLayer(const LayerContext& c, int layer, Slice input, int64_t rows) const {
  WT_CHECK(style == Style::kModules);
  return layers[layer].ForwardProduct(c, InputOf(c, input), rows);
}

std::vector<Slice> Projections::PartsOf(Slice outputs, int64_t rows) const {
  if (layers.size() == 1) return {outputs};
  std::vector<Slice> parts;
  int64_t offset = outputs.offset;
  for (const Linear& layer : layers) {
    parts.push_back(Slice{outputs.buffer, offset, rows * layer.out});
    offset += rows * layer.out;
  }
  return parts;
}

void Projections::AddInputGradient(const LayerContext& c, const Linear& layer, Slice dy, int64_t rows,
                                   Slice& dx) const {
  const bool is_first = dx.buffer < 0;
  if (is_first || !adds_in_products || layer.is_fp8) {
    const Slice own = layer.InputGradient(c, dy, rows);
    if (is_first) {
      dx = own;
      return;
    }
    c.AddTo(dx, own, layer.name + ".dx");
    return;
  }
  layer.AddInputGradient(c, dy, rows, dx, /*accumulate=*/true);
}

Slice Projections::Backward(const LayerContext& c, const std::vector<Slice>& dys, Slice input, int64_t rows,
                            bool weight_ready, bool needs_dx) const {
  if (style == Style::kStacked) return layers[0].Backward(c, dys[0], input, rows, needs_dx, weight_ready);
  const Linear& first = layers[0];
  const Slice x = is_fp8() ? Fp8Factors(c, first.name + ".x", /*knows_scale=*/true)
                                 .OfTokens(input, first.in, Gathering::kNone, Fp8Sum::kOverRows)
                           : input;
  Slice dx = kNoSlice;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Linear& layer = layers[i];
    const Slice own_dy = dys[i];
    Slice dy = own_dy, dy_by_rows = own_dy;
    if (layer.is_fp8) {
      const Fp8Factors::Both factors =
          Fp8Factors(c, layer.name + ".dy").OfTokensBothWays(own_dy, layer.out, false, c.tensor.splits());
      dy = factors.over_columns;
      dy_by_rows = factors.over_rows;
    }
    if (layer.bias >= 0 && !layer.is_frozen)
      c.AddOrDefer([layer, own_dy](const LayerContext& c) { layer.AddBiasGradient(c, own_dy); });
    if (needs_dx) AddInputGradient(c, layer, dy, rows, dx);
    layer.AddAdapterGradients(
        c, dy, [x](const LayerContext&) { return x; }, rows, dx);
    if (layer.is_frozen) continue;
    c.AddOrDefer([layer, dy_by_rows, x, rows, weight_ready](const LayerContext& c) {
      layer.AddWeightGradient(c, dy_by_rows, x, rows);
      if (weight_ready) c.Ready(layer.weight);
      else c.hooks.Wrote(layer.weight);
    });
  }
  if (!needs_dx || !c.tensor.splits()) return dx;
  const bool added_up = layers.size() > 1 && (!adds_in_products || is_fp8());
  return c.SumOverRanks(dx, first.name + ".dx",
                        added_up ? Neighbor::kElementwise : first.MakerOfInputGradient(c));
}

}  // namespace windtunnel
