// The layers that models are made of. Each adds the operators of its forward or its backward.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/layer_turns.h"
#include "plan/model.h"
#include "plan/model_hooks.h"
#include "plan/program_builder.h"

namespace windtunnel {

inline constexpr Slice kNoSlice{};

// What the layers of a micro-batch share. Parameters in the type that products take, under autocast: each is
// converted where the micro-batch's forward first needs it, as in torch.autocast's cache, and lives at least
// until the end of that forward; longer if backward needs it, which does not convert it again.
struct WeightCopies {
  std::map<int, Slice> current;  // by parameter
  std::vector<Slice> of_forward;
  // What adapters' forward leaves for their backward, by their first matrix.
  struct OfAdapter {
    Slice hidden;         // what the first matrix made of the input
    Slice dropped, mask;  // the input after dropout, and which of it was kept; buffer -1: nothing was dropped
  };
  std::map<int, OfAdapter> of_adapters;

  // Forgets what was converted since `known` was current: for recomputation in backward, which converts again
  // (the autocast region's cache is gone by then).
  void ForgetAllBut(std::map<int, Slice> known) { current = std::move(known); }
  void EndForward(ProgramBuilder& b) {
    for (const Slice& copy : of_forward) b.KeepUntilHere(copy);
    of_forward.clear();
  }
};

// What layers need in order to add operators.
struct LayerContext {
  ProgramBuilder& b;
  ModelHooks& hooks;
  ModelTypes types;
  // Where a backward puts the operators that compute weight gradients only, to be added later; null: it adds
  // them at once. What deferred operators read must stay as it is: backward then does not overwrite gradients
  // that it has passed through a layer.
  DeferredOps* deferred = nullptr;
  TensorParallel tensor = {};
  // The micro-batch's; null where no operator reads weights (deferred operators).
  WeightCopies* copies = nullptr;
  bool delays_weights = false;  // `deferred` is added where the layers say (AddDelayed)
  int visit = 0;                // how often the micro-batch has been through these layers before
  bool is_last_use = true;      // no later backward of the micro-batch adds to these gradients

  // For layers that the micro-batch goes through several times, forwards from visit 0 on, backwards to it.
  LayerContext InVisit(int number) const {
    LayerContext c = *this;
    c.visit = number;
    c.is_last_use = number == 0;
    return c;
  }
  // Reports that the layers' part of a parameter's gradient has been written.
  void Ready(int parameter) const {
    if (is_last_use) hooks.Ready(parameter);
    else hooks.Wrote(parameter);
  }
  // Adds the operators that `add` (a function of a LayerContext) adds, or defers them.
  template <typename Add>
  void AddOrDefer(Add add) const {
    if (deferred == nullptr) return add(*this);
    LayerContext later{b, hooks, types, nullptr, tensor};
    later.is_last_use = is_last_use;
    deferred->push_back({b.layer(), [add, later] { add(later); }});
  }

  // With delays_weights: adds the operators deferred so far, at `slot`.
  void AddDelayed(LayerSlot slot) const;

  Slice Activation(std::string name, int64_t elements) const {
    return b.Temporary(std::move(name), elements, Category::kActivations, types.activations);
  }
  // In the residual stream's type.
  Slice StreamActivation(std::string name, int64_t elements) const {
    return b.Temporary(std::move(name), elements, Category::kActivations, types.stream);
  }
  DType TypeOf(Slice x) const { return b.role().buffers[x.buffer].dtype; }
  // x in type `to`: x itself, or converted.
  Slice InType(DType to, Slice x, const std::string& name) const;
  // sum += x, of one type.
  void AddTo(Slice sum, Slice x, const std::string& name) const {
    b.Add(Copy{.elements = x.elements, .from = TypeOf(x), .to = TypeOf(sum), .accumulate = true}, name, {x},
          {sum});
  }
  // x *= scale, of the activations' type.
  void ScaleBy(double scale, Slice x, const std::string& name) const {
    if (scale != 1) b.Add(Scale{x.elements, scale, types.activations}, name, {x}, {x});
  }
  // A parameter's values as products take them: converted, if parameters are stored in another type. Packed ones
  // are unpacked each time (bitsandbytes' MatMul4Bit).
  Slice OperandOf(int parameter, const std::string& name) const;
  // Adds a product (a Gemm or a GroupedGemm) of `elements` elements into a parameter's gradient.
  template <typename Product>
  void AddWeightGradient(Product product, const std::string& name, int64_t elements, Slice dy, Slice x,
                         int parameter) const {
    if (!types.autocasts()) {
      // Operands still to come are started first: that is no part of the strategy's work on the gradient.
      for (const Slice& factor : {dy, x}) b.StartParts(factor);
      product.accumulate = hooks.HoldsValue(parameter);
      b.Add(product, name, {dy, x}, {hooks.Gradient(parameter)});
      return;
    }
    const Slice result = Activation(name + ".grad", elements);
    b.Add(product, name, {dy, x}, {result});
    AddConverted(result, name, parameter);
  }
  // Writes to a parameter's gradient, or adds, `gradient`, which has the activations' type.
  void AddConverted(Slice gradient, const std::string& name, int parameter) const {
    const Copy copy{.elements = gradient.elements,
                    .from = types.activations,
                    .to = types.storage,
                    .accumulate = hooks.HoldsValue(parameter)};
    b.Add(copy, name, {gradient}, {hooks.Gradient(parameter)});
  }
  // Writes to the gradient of a bias (or of several experts' biases), or adds, the column sums of dy; no
  // other operator of this micro-batch does.
  void AddBiasGradient(ColumnSum sum, const std::string& name, Slice dy, int bias) const {
    if (types.autocasts()) {
      const Slice own = Activation(name + ".grad", sum.biases() * sum.columns);
      b.Add(sum, name, {dy}, {own});
      AddConverted(own, name, bias);
    } else {
      sum.accumulate = hooks.HoldsValue(bias);
      b.Add(sum, name, {dy}, {hooks.Gradient(bias)});
    }
    Ready(bias);
  }
  // Drops elements of x, in place; returns the mask for backward. Does nothing and returns no slice if the
  // site drops nothing or the program evaluates. `op` has the site and the columns.
  Slice Drop(Slice x, Dropout op, const std::string& name) const {
    if (!op.site.drops() || b.evaluates()) return {};
    op.elements = x.elements;
    op.dtype = TypeOf(x);
    const Slice mask = b.Temporary(name + ".mask", x.elements, Category::kActivations, DType::kUInt8);
    b.Add(op, name, {x}, {x, mask});
    return mask;
  }
  // The operator beside a collective of tokens: it reads what is gathered, or made what is summed.
  enum class Neighbor : uint8_t { kProduct, kElementwise };
  // x with its tokens in another order, if tensor ranks need that (TensorParallel::Reorder).
  Slice Reordered(Slice x, const std::string& name, Neighbor neighbor) const;
  // The gradient of dropout's input; dy itself if nothing was dropped.
  Slice DropGradient(Slice dy, Slice mask, Dropout op, const std::string& name) const {
    if (mask.buffer < 0) return dy;
    op.elements = dy.elements;
    op.dtype = TypeOf(dy);
    op.backward = true;
    const Slice dx = b.Temporary(name + ".dx", dy.elements, Category::kActivations, TypeOf(dy));
    b.Add(op, name, {dy, mask}, {dx});
    return dx;
  }
  // All tokens, of which each tensor rank has `own`; `own` itself if tokens are not split.
  Slice GatherTokens(Slice own, const std::string& name, Neighbor taker) const;
  // The sum over tensor ranks of `partial`: in its place, or, if tokens are split, of the rank's own tokens
  // only. Only operators that use it wait for it.
  Slice SumOverRanks(Slice partial, const std::string& name, Neighbor maker) const;
  // As GatherTokens, for the next products. If tensor ranks overlap, tokens go around the ring, from when
  // AddProducts takes them part by part. `is_kept`: something else needs all of them later.
  Slice GatherForProducts(Slice own, const std::string& name, bool is_kept) const;
  // Products y[gemm.m,gemm.n] of one x, which each reads first; part by part if x arrives in parts.
  struct Product {
    Gemm gemm;
    std::string name;
    std::vector<Slice> reads;
    Slice y;
  };
  void AddProducts(const std::vector<Product>& products) const;
  // The sum over tensor ranks of one product of each, of which every rank gets its own tokens. `product`
  // (whose y is not used) is computed part by part; each part goes to its rank while the next is computed.
  // REQUIRES: tensor.overlaps().
  Slice SumProductInParts(Product product) const;
};

// A linear layer's adapter (LoraSpec): y += scale B A x, with weights a[rank,in] and b[out,rank].
//
// Tensor ranks share it so that nothing has to be exchanged for it. With a column-parallel layer, each has A
// whole and its rows of B; with a row-parallel one, its columns of A, and B whole, and what it adds to the
// layer's partial sum is a partial sum as well. Gradients of the whole matrix are parts of sums
// (ParameterSplit::sees_partial_sums). Megatron's adapters have both matrices split and gather between them.
struct Adapter {
  int a = -1, b = -1;  // parameter indices
  int64_t rank = 0;
  double scale = 1;
  Dropout dropout = {};  // of x, without the site's stream and micro-batch, which follow from the layer
  // kHidden    A x is scaled; the second GEMM adds to y (Windtunnel)
  // kOutput    B A x is scaled, and added to y by another kernel; so is its gradient (peft, torchtune,
  //            Megatron-Bridge)
  // kOneKernel a single kernel scales and adds (torch.compile); input gradients are added by GEMMs
  enum class Scales : uint8_t { kHidden, kOutput, kOneKernel } scales = Scales::kHidden;
};

// How tensor ranks share a linear layer. Column-parallel: each computes a part of the outputs, from whole
// inputs. Row-parallel: each has a part of the inputs; outputs are summed over ranks, then the bias is added.
enum class LinearSplit : uint8_t { kNone, kColumnParallel, kRowParallel };

// y[T,out] = x[T,in] weight[out,in]^T (+ bias[out]). If it is split, `in` and `out` are the rank's part. If
// tokens are split, x of a column-parallel layer and y of a row-parallel one have the rank's own, of `rows`
// in all.
struct Linear {
  std::string name;
  int64_t in = 0, out = 0;
  int weight = -1, bias = -1;  // parameter indices; -1: no bias
  LinearSplit split = LinearSplit::kNone;
  bool is_fp8 = false;             // its products take fp8 (plan/fp8.h)
  bool input_is_gathered = false;  // column-parallel, and x has all tokens, gathered for several layers
  bool is_frozen = false;          // weight and bias get no gradients
  std::optional<Adapter> adapter = std::nullopt;

  bool is_trained() const { return !is_frozen || adapter.has_value(); }

  // `partial`, unless null, gets a row-parallel layer's own part of the sum, if that is made at once.
  Slice Forward(const LayerContext& c, Slice x, int64_t rows, Slice* partial = nullptr) const;
  // The form of x (the rank's own tokens) that backward keeps: in fp8, or x itself. Forward takes it, too.
  Slice InputToKeep(const LayerContext& c, Slice x) const;
  // Adds weight and bias gradients (which may be deferred), and dx unless `needs_dx` is false (the model's
  // input). Returns dx (buffer -1 if none). A column-parallel layer's dx is summed over ranks while the
  // weight gradient is computed, and its input, which is not kept gathered, is gathered while dx is computed.
  Slice Backward(const LayerContext& c, Slice dy, Slice x, int64_t rows, bool needs_dx = true,
                 bool weight_ready = true) const;

  // Its single steps, without communication except for gathering a column-parallel layer's x. With fp8,
  // ForwardProduct's x may be in fp8 already, and the gradients' dy and x are.
  Slice ForwardProduct(const LayerContext& c, Slice x, int64_t rows, bool adds_bias) const;
  Slice ForwardProduct(const LayerContext& c, Slice x, int64_t rows) const {
    return ForwardProduct(c, x, rows, bias >= 0);
  }
  // The product that makes y or, in a row-parallel layer, the rank's part of the sum y.
  LayerContext::Product ProductOf(const LayerContext& c, Slice x, int64_t rows, bool adds_bias,
                                  Slice y) const;
  void AddBiasGradient(const LayerContext& c, Slice dy) const;
  Slice InputGradient(const LayerContext& c, Slice dy, int64_t rows) const;
  void AddInputGradient(const LayerContext& c, Slice dy, int64_t rows, Slice dx, bool accumulate) const;
  void AddWeightGradient(const LayerContext& c, Slice dy, Slice x, int64_t rows) const;
  // The adapter's part of forward, which is added to y. `x`: all tokens. Does nothing without an adapter.
  void AddAdapterTo(const LayerContext& c, Slice y, Slice x, int64_t rows) const;
  // Its first product, which backward reads: for recomputation that stops there.
  Slice AdapterHidden(const LayerContext& c, Slice x, int64_t rows) const;
  // The gradients of its weights, which may be deferred, and of x, which are added to dx unless its buffer is
  // -1. `input` returns all tokens of x. Does nothing without an adapter.
  using Input = std::function<Slice(const LayerContext&)>;
  void AddAdapterGradients(const LayerContext& c, Slice dy, const Input& input, int64_t rows, Slice dx) const;
  // The kind of operator that InputGradient ends with.
  LayerContext::Neighbor MakerOfInputGradient(const LayerContext& c) const;

 private:
  void AddToInputGradient(const LayerContext& c, Slice dhidden, Slice mask, int64_t rows, Slice dx) const;
  // The dropout of the adapter's input.
  Dropout DropoutOf(const LayerContext& c, Slice x) const;
  bool gathers() const { return split == LinearSplit::kColumnParallel && !input_is_gathered; }
};

}  // namespace windtunnel
