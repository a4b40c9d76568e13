// The first linear layers of attention (queries, keys and values) and of the MLP (gate and up), and the head.
//
//   stacked  one layer with stacked weights: Windtunnel's and Megatron's. Tensor parallelism is Linear's own.
//   modules  a layer with its own weights for each output, as in PyTorch's Llamas (Meta's, Hugging Face's,
//            torchtitan's); or a single layer. Tensor parallelism is that of DTensor's PrepareModuleInput and
//            ColwiseParallel (torch/distributed/tensor/parallel/style.py): the input is gathered once, before
//            the module, and kept gathered. The gradients of the layers' inputs are added up one after the
//            other, as in autograd's input buffers, and reduce-scattered when all are there; nothing overlaps
//            with that.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/layers.h"

namespace windtunnel {

struct Projections {
  enum class Style : uint8_t { kStacked, kModules } style = Style::kStacked;
  std::vector<Linear> layers;  // kStacked: one
  // torch.compile: a GEMM adds to the existing input gradient (addmm); otherwise a separate kernel does.
  bool adds_in_products = false;

  // Returns x as the layers take it and backward needs it: gathered, if that is done before the layers.
  Slice Enter(const LayerContext& c, Slice x) const;
  // The form of x that backward keeps, as Linear::InputToKeep. The functions below take it, too.
  Slice InputToKeep(const LayerContext& c, Slice x) const { return layers[0].InputToKeep(c, Enter(c, x)); }
  // Returns the outputs, one after the other in one buffer.
  Slice Forward(const LayerContext& c, Slice input, int64_t rows) const;
  // Returns the outputs, each in its own buffer.
  std::vector<Slice> ForwardApart(const LayerContext& c, Slice input, int64_t rows) const;
  // One layer's output.
  Slice ForwardLayer(const LayerContext& c, int layer, Slice input, int64_t rows) const;
  // As Linear::Backward; dys: the gradient of each output.
  Slice Backward(const LayerContext& c, const std::vector<Slice>& dys, Slice input, int64_t rows,
                 bool weight_ready = true, bool needs_dx = true) const;
  // Whether a layer has weights, or an adapter, that are trained.
  bool is_trained() const {
    return std::any_of(layers.begin(), layers.end(), [](const Linear& layer) { return layer.is_trained(); });
  }
  // Splits what Forward returned, or its gradient, into one part per layer.
  std::vector<Slice> PartsOf(Slice outputs, int64_t rows) const;

 private:
  bool is_fp8() const { return layers[0].is_fp8; }
  Slice InputOf(const LayerContext& c, Slice input) const;
  void AddProducts(const LayerContext& c, Slice x, int64_t rows, const std::vector<Slice>& outputs) const;
  void AddInputGradient(const LayerContext& c, const Linear& layer, Slice dy, int64_t rows, Slice& dx) const;
};

}  // namespace windtunnel
