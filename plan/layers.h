// Layers that models are made of: each adds the operators of its forward or its backward.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/layer_turns.h"
#include "plan/model.h"
#include "plan/model_hooks.h"
#include "plan/program_builder.h"

namespace windtunnel {

inline constexpr Slice kNoSlice{};

// Parameters in the type of products, under autocast: each is converted where a micro-batch's forward first needs it, as torch.autocast's
// cache does, and lives until the end of that forward at least; longer where backward needs it, which does not convert it again.
struct WeightCopies {
  std::map<int, Slice> current;  // by parameter
  std::vector<Slice> of_forward;

  // What is run again in backward converts again (the region's cache is gone by then).
  void Forget() { current.clear(); }
  void EndForward(ProgramBuilder& b) {
    for (const Slice& copy : of_forward) b.KeepUntilHere(copy);
    of_forward.clear();
  }
};

// What layers add operators with.
struct LayerContext {
  ProgramBuilder& b;
  ModelHooks& hooks;
  ModelTypes types;
  // Where a backward puts what makes gradients of weights alone, to be added later; null: added at once, in its place. What it
  // reads must then stay as it is: backward does not write over gradients that it has passed through a layer.
  DeferredOps* deferred = nullptr;
  TensorParallel tensor = {};
  WeightCopies* copies =
      nullptr;  // of the micro-batch; null where nothing takes weights (deferred operators)
  bool delays_weights = false;  // `deferred` is added where the layers say (AddDelayed), not later

  // Adds the operators that `add` (a function of a LayerContext) makes, or defers them.
  template <typename Add>
  void AddOrDefer(Add add) const {
    if (deferred == nullptr) return add(*this);
    deferred->push_back({b.layer(), [add, c = LayerContext{b, hooks, types, nullptr, tensor}] { add(c); }});
  }

  // Adds what was deferred so far, at `slot`, where that is not for later.
  void AddDelayed(LayerSlot slot) const;

  Slice Activation(std::string name, int64_t elements) const {
    return b.Temporary(std::move(name), elements, Category::kActivations, types.activations);
  }
  // Of the residual stream's type.
  Slice StreamActivation(std::string name, int64_t elements) const {
    return b.Temporary(std::move(name), elements, Category::kActivations, types.stream);
  }
  DType TypeOf(Slice x) const { return b.role().buffers[x.buffer].dtype; }
  // x in type `to`: itself, or converted.
  Slice InType(DType to, Slice x, const std::string& name) const;
  // sum += x, of one type.
  void AddTo(Slice sum, Slice x, const std::string& name) const {
    b.Add(Copy{.elements = x.elements, .from = TypeOf(x), .to = TypeOf(sum), .accumulate = true}, name, {x},
          {sum});
  }
  // A parameter's values as products take them: converted, where parameters are stored in another type.
  Slice OperandOf(int parameter, const std::string& name) const;
  // Adds a product (a Gemm or a GroupedGemm) of `elements` elements into a parameter's gradient.
  template <typename Product>
  void AddWeightGradient(Product product, const std::string& name, int64_t elements, Slice dy, Slice x,
                         int parameter) const {
    if (!types.autocasts()) {
      // What still comes is no part of the strategy's work on the gradient.
      for (const Slice& factor : {dy, x}) b.StartParts(factor);
      product.accumulate = hooks.HoldsValue(parameter);
      b.Add(product, name, {dy, x}, {hooks.Gradient(parameter)});
      return;
    }
    const Slice result = Activation(name + ".grad", elements);
    b.Add(product, name, {dy, x}, {result});
    AddConverted(result, name, parameter);
  }
  // Adds (to) a parameter's gradient what was made in the activations' type.
  void AddConverted(Slice gradient, const std::string& name, int parameter) const {
    const Copy copy{.elements = gradient.elements,
                    .from = types.activations,
                    .to = types.storage,
                    .accumulate = hooks.HoldsValue(parameter)};
    b.Add(copy, name, {gradient}, {hooks.Gradient(parameter)});
  }
  // Adds (to) the gradient of a bias, or of several (of experts), what `sum` makes of dy; no other operator does in this micro-batch.
  void AddBiasGradient(ColumnSum sum, const std::string& name, Slice dy, int bias) const {
    if (types.autocasts()) {
      const Slice own = Activation(name + ".grad", sum.biases() * sum.columns);
      b.Add(sum, name, {dy}, {own});
      AddConverted(own, name, bias);
    } else {
      sum.accumulate = hooks.HoldsValue(bias);
      b.Add(sum, name, {dy}, {hooks.Gradient(bias)});
    }
    hooks.Ready(bias);
  }
  // Drops elements of x, in place; returns the mask, which backward wants. Nothing (no slice) where nothing is dropped.
  Slice Drop(Slice x, double share, const std::string& name) const {
    if (share == 0) return {};
    const Slice mask = b.Temporary(name + ".mask", x.elements, Category::kActivations, DType::kUInt8);
    b.Add(Dropout{x.elements, false, TypeOf(x)}, name, {x}, {x, mask});
    return mask;
  }
  // What is beside a collective of tokens: of what is gathered, what takes it; of what is summed, what made it.
  enum class Neighbor : uint8_t { kProduct, kElementwise };
  // x with its tokens in another order, where tensor ranks want them so (TensorParallel::Reorder).
  Slice Reordered(Slice x, const std::string& name, Neighbor neighbor) const;
  // The gradient of what was dropped from: dy itself where nothing was.
  Slice DropGradient(Slice dy, Slice mask, const std::string& name) const {
    if (mask.buffer < 0) return dy;
    const Slice dx = b.Temporary(name + ".dx", dy.elements, Category::kActivations, TypeOf(dy));
    b.Add(Dropout{dy.elements, true, TypeOf(dy)}, name, {dy, mask}, {dx});
    return dx;
  }
  // All tokens, of which tensor ranks have `own` each; `own` itself where tokens are not split.
  Slice GatherTokens(Slice own, const std::string& name, Neighbor taker) const;
  // The sum over tensor ranks of `partial`, in its place; of the rank's own tokens only where tokens are split. Nothing waits for it
  // but what uses it.
  Slice SumOverRanks(Slice partial, const std::string& name, Neighbor maker) const;
  // As GatherTokens, for products that come next: where tensor ranks overlap, tokens go around the ring, from when AddProducts takes them
  // part by part. `is_kept`: something else takes them all later.
  Slice GatherForProducts(Slice own, const std::string& name, bool is_kept) const;
  // Products y[gemm.m,gemm.n] of one x, which is the first that each reads; part by part where x arrives so.
  struct Product {
    Gemm gemm;
    std::string name;
    std::vector<Slice> reads;
    Slice y;
  };
  void AddProducts(const std::vector<Product>& products) const;
  // The sum over tensor ranks of a product of each, of which every rank gets its own tokens: `product` (whose y is not used) is made part
  // by part, each of which goes to its rank while the next is made. REQUIRES: tensor.overlaps().
  Slice SumProductInParts(Product product) const;
};

// How tensor ranks share a linear layer. Column-parallel: each has a part of the outputs, from whole inputs. Row-parallel: each has a
// part of the inputs, and the outputs are sums over ranks, to which the bias is added.
enum class LinearSplit : uint8_t { kNone, kColumnParallel, kRowParallel };

// y[T,out] = x[T,in] weight[out,in]^T (+ bias[out]). Where it is split, `in` and `out` are the rank's; x of a column-parallel layer and
// y of a row-parallel one have the rank's own tokens where tokens are split, of `rows` in all.
struct Linear {
  std::string name;
  int64_t in = 0, out = 0;
  int weight = -1, bias = -1;  // parameter indices; -1: no bias
  LinearSplit split = LinearSplit::kNone;
  bool is_fp8 = false;             // its products take fp8 (plan/fp8.h)
  bool input_is_gathered = false;  // a column-parallel layer's x has all tokens, gathered for several layers

  // `partial`: unless null, where a row-parallel layer's own part of the sums goes, made at once.
  Slice Forward(const LayerContext& c, Slice x, int64_t rows, Slice* partial = nullptr) const;
  // What backward keeps of x, where that is in fp8; else x. Forward takes it, too. x: the rank's own tokens.
  Slice InputToKeep(const LayerContext& c, Slice x) const;
  // Adds weight and bias gradients (which may be deferred), and dx unless `needs_dx` is false (the model's input). Returns dx
  // (buffer -1 if not). The sum of a column-parallel layer's dx goes over ranks while the weight's gradient is computed; so does
  // the gathering of its input, which is not kept, while dx is.
  Slice Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows, bool needs_dx = true,
                 bool weight_ready = true) const;

  // Its single steps, without communication but the gathering of a column-parallel layer's x. With fp8, x may be in it already, and dy
  // and x of gradients are.
  Slice ForwardProduct(const LayerContext& c, Slice x, int64_t rows, bool adds_bias) const;
  Slice ForwardProduct(const LayerContext& c, Slice x, int64_t rows) const {
    return ForwardProduct(c, x, rows, bias >= 0);
  }
  // What makes y, or (of a row-parallel layer) the rank's part of the sum that y is.
  LayerContext::Product ProductOf(const LayerContext& c, Slice x, int64_t rows, bool adds_bias,
                                  Slice y) const;
  void AddBiasGradient(const LayerContext& c, Slice dy) const;
  Slice InputGradient(const LayerContext& c, Slice dy, int64_t rows) const;
  void AddInputGradient(const LayerContext& c, Slice dy, int64_t rows, Slice dx, bool accumulate) const;
  void AddWeightGradient(const LayerContext& c, Slice dy, Slice x, int64_t rows) const;
  // What InputGradient ends with.
  LayerContext::Neighbor MakerOfInputGradient(const LayerContext& c) const;

 private:
  bool gathers() const { return split == LinearSplit::kColumnParallel && !input_is_gathered; }
};

// Layer norm or RMS norm over `columns`. It works in the residual stream's type; under autocast what it gives is converted for the
// product behind it, and so are the branch that it adds and the gradient that comes back.
struct Norm {
  std::string name;
  NormKind kind = NormKind::kLayerNorm;
  int64_t columns = 0;
  double epsilon = 1e-5;
  int gamma = -1, beta = -1;

  struct Saved {
    Slice x, y, statistics;  // x: what was normalised
    Slice fp32 = kNoSlice;   // the same in fp32, where it is kept (ModelTypes::norms_keep_fp32)
  };
  // With a branch (buffer not -1): x + branch is normalised, and kept as Saved::x.
  Saved Forward(const LayerContext& c, Slice x, Slice branch, int64_t rows) const;
  // Of a branch, behind what it is of; y stays in the residual stream's type.
  Slice ForwardBranch(const LayerContext& c, Slice branch, int64_t rows, Saved& saved) const;
  // dx = d(norm), plus `dresidual` where its buffer is not -1; then in place of dresidual, unless gradients of weights are deferred.
  // Its own weights' gradients come with dx, from the same operator. Returns dx.
  Slice Backward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual, int64_t rows) const;
  // dy stays.
  Slice BackwardBranch(const LayerContext& c, Slice dy, const Saved& saved, int64_t rows) const;

 private:
  // y, in the stream's type; saves x and statistics.
  Slice Normalise(const LayerContext& c, Slice x, Slice branch, int64_t rows, Saved& saved) const;
  void AddBackward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual, Slice dx,
                   int64_t rows) const;
};

// RMS norm of each head of queries and of keys (Qwen 3; Megatron's qk_layernorm), in the type of activations. Tensor ranks have some heads
// each, and a copy of the weights.
struct HeadNorm {
  std::string name;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of the rank
  double epsilon = 1e-5;
  int query_gamma = -1, key_gamma = -1;

  struct Saved {
    Slice x, statistics;
    Slice fp32 = kNoSlice;  // as Norm::Saved's
  };
  // Of packed projections x[rows, (heads + 2 kv_heads) head_dim]; the result takes another buffer, and x is kept.
  Slice Forward(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const;
  // dx in place of dy; the weights' gradients come with it, as Norm's do.
  void Backward(const LayerContext& c, Slice dy, const Saved& saved, int64_t rows) const;
};

}  // namespace windtunnel
