// The factors of fp8 and fp4 products, as torchao's float8 and MX linear layers make them (torchao/float8: float8_linear.py,
// float8_tensor_parallel.py; torchao/prototype/mx_formats/mx_linear.py): from the 16-bit tensors, anew for each of a layer's three products, which sum over different
// dimensions of them. Nothing is kept in fp8 between forward and backward, unless by Transformer Engine (`framework: megatron_core`,
// docs/decisions/0028-two-megatrons.md).
//
//   y = x W^T     x and W summed over their columns
//   dx = dy W     dy over its columns, W over its rows (transposed)
//   dW = dy^T x   both over their rows (transposed)
//
//   delayed     one scale a tensor, of what the tensor's largest magnitudes were in earlier steps (Transformer Engine's DelayedScaling):
//               no pass but the conversion, which finds this step's on the way. Their reduction over ranks, some bytes a tensor and
//               micro-batch, is left out
//   tensorwise  one scale a tensor: a pass for the largest magnitude, one for the conversion. Tensor ranks agree on the scale, and so
//               tokens are gathered in fp8. Backward knows the scales of x and W from forward (two numbers), and makes the second
//               form of dy from the first.
//   rowwise     a scale for each row (found on the way) or, where products sum over rows, each column (a pass before). Where a product
//               sums over tensor ranks, they agree on each scale, and rows take a pass before, too. Without fast accumulation cuBLAS
//               has no scales by row: a kernel scales the results of backward's products
//               (torchao/float8/float8_ops.py; pytorch/ao pull request 1325)
//   block       1 x 128 of what tokens make, 128 x 128 of weights (DeepSeek-V3, section 3.3), found on the way
//   mxfp8       a scale of a byte for 32 numbers, along what the product sums over, found on the way: two forms, neither of which is the
//               other transposed
//   nvfp4       numbers of four bits, with a scale of a byte for 16 of them (16 x 16 of weights) and one for the tensor, for which there is
//               a pass before (Transformer Engine's NVFP4BlockScaling; the form for sums over tokens has a kernel of its own, which rotates
//               blocks by a Hadamard matrix)
//
// Transformer Engine makes both forms of block's, mxfp8's and nvfp4's factors together, of block's and mxfp8's by one kernel, and gathers
// tokens in them, each form for itself. Of inputs it keeps that for sums over tokens; here the one that forward needs stands for it (of as
// many bytes), and backward makes the other, for what it takes in forward. Gradients whose tokens go around in parts have their second form
// made by a kernel of its own, and gathered behind the product that takes the first (module/layernorm_linear.py).
//
// Forward's products accumulate fast, backward's do not (torchao/float8/config.py, use_fast_accum; transformer_engine/pytorch/module/base.py,
// _2X_ACC_FPROP, _2X_ACC_DGRAD, _2X_ACC_WGRAD); of blocks' products none does.
#pragma once

#include <string>

#include "plan/layers.h"

namespace windtunnel {

// What a product sums over: the factor's columns, as it lies, or its rows, for which it is transposed.
enum class Fp8Sum : uint8_t { kOverColumns, kOverRows };
// Whether the rank's own tokens become all, where tokens are split: for the products that come next alone, or for others later, too.
enum class Gathering : uint8_t { kNone, kForProducts, kKept };

class Fp8Factors {
 public:
  // Adds operators named `name` to the context's program. With `knows_scale` a tensorwise scale need not be found.
  Fp8Factors(const LayerContext& c, std::string name, bool knows_scale = false)
      : c_(c), name_(std::move(name)), knows_scale_(knows_scale) {}
  // Of `experts`, each of which has some rows, as factors with scales of their own, on which tensor ranks do not agree (Transformer Engine's
  // grouped linear layers).
  Fp8Factors(const LayerContext& c, std::string name, bool knows_scale, int64_t experts)
      : c_(c), name_(std::move(name)), knows_scale_(knows_scale), groups_(experts), agrees_(false) {}

  // Of x[tokens,columns], which may be a factor over columns already. What is gathered has the rank's own tokens where tokens are
  // split, and the factor all. `sums_over_ranks`: the product's sum goes over tensor ranks, too, each of which has some of what it sums over.
  Slice OfTokens(Slice x, int64_t columns, Gathering gathering, Fp8Sum sum,
                 bool sums_over_ranks = false) const;
  // Both, of one x; `sums_over_ranks` is of the sum over columns (that over rows is of all tokens). That over rows is no slice where
  // the other will come in parts: OverRowsAfterParts makes it, behind the products that take them.
  struct Both {
    Slice over_columns, over_rows;
  };
  Both OfTokensBothWays(Slice x, int64_t columns, bool gathers, bool sums_over_ranks) const;
  // Of x, whose factor over columns came in parts.
  Slice OverRowsAfterParts(Slice x, Slice over_columns, int64_t columns) const;
  // Of a parameter [rows,columns]; forward's (over columns) finds its scale.
  Slice OfWeight(int parameter, int64_t rows, int64_t columns, Fp8Sum sum, bool sums_over_ranks) const;

  bool forward_accumulates_fast() const { return !c_.types.scales_blocks(); }
  // Whether backward's products are scaled after they are made.
  bool rescales() const { return c_.types.fp8 == Fp8Recipe::kRowwise; }
  // REQUIRES: rescales().
  void Rescale(Slice product) const;

 private:
  struct CastOptions {
    bool sums_over_ranks = false, knows_scale = false;
    bool agrees = true;  // with the other tensor ranks, on a scale for all of it
    int64_t shared_by = 1;
    bool with_other = false;  // as Fp8Cast
  };
  Slice Cast(Slice x, DType type, int64_t columns, Fp8Sum sum, const CastOptions& options,
             const std::string& name) const;
  Slice Amax(Slice x, const Fp8Amax& op, bool over_ranks, const std::string& name) const;
  // The other form of a factor over columns: transposed, or made along with it.
  Slice OtherForm(Slice factor, int64_t columns, const std::string& name) const;

  const LayerContext& c_;
  const std::string name_;
  const bool knows_scale_;
  const int64_t groups_ = 1;
  const bool agrees_ = true;  // tensor ranks do, unless of weights in Transformer Engine
};

}  // namespace windtunnel
