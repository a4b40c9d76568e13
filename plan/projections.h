// The linear layers that a part of a block begins with: from its norm's output to queries, keys and values, or into the MLP; and the
// head's.
//
//   stacked    one layer, whose weights are stacked: Windtunnel's and Megatron's. Tensor parallelism is Linear's own.
//   modules    a layer with weights of its own for each output, as PyTorch's Llamas have (Meta's, Hugging Face's, torchtitan's); or one.
//              With tensor parallelism as DTensor's PrepareModuleInput and ColwiseParallel (torch/distributed/tensor/parallel/style.py):
//              the input is gathered before the module, once, and kept as gathered. The gradients of the layers' inputs are added up one
//              after the other, as autograd's input buffers are, and scattered when all are there; nothing runs beside.
#pragma once

#include <string>
#include <vector>

#include "plan/layers.h"

namespace windtunnel {

struct Projections {
  enum class Style : uint8_t { kStacked, kModules } style = Style::kStacked;
  std::vector<Linear> layers;  // kStacked: one
  // torch.compile: a product adds to the gradient that is there already (addmm); else a kernel of its own does.
  bool adds_in_products = false;

  // x as the layers take it, and as backward wants it: gathered, where that is done before the layers.
  Slice Enter(const LayerContext& c, Slice x) const;
  // The outputs, one after the other in one buffer.
  Slice Forward(const LayerContext& c, Slice input, int64_t rows) const;
  // The outputs, each in a buffer of its own.
  std::vector<Slice> ForwardApart(const LayerContext& c, Slice input, int64_t rows) const;
  // One layer's output.
  Slice ForwardLayer(const LayerContext& c, int layer, Slice input, int64_t rows) const;
  // As Linear::Backward; dys: the gradient of each output.
  Slice Backward(const LayerContext& c, const std::vector<Slice>& dys, Slice input, int64_t rows,
                 bool weight_ready = true) const;
  // The parts of the gradient of what Forward returned.
  std::vector<Slice> PartsOf(Slice outputs, int64_t rows) const;

 private:
  bool is_fp8() const { return layers[0].is_fp8; }
  Slice InputOf(const LayerContext& c, Slice input) const;
  void AddProducts(const LayerContext& c, Slice x, int64_t rows, const std::vector<Slice>& outputs) const;
  void AddInputGradient(const LayerContext& c, const Linear& layer, Slice dy, int64_t rows, Slice& dx) const;
};

}  // namespace windtunnel
