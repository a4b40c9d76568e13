// The factors (operands) of fp8 and fp4 products, as torchao's float8 and MX linear layers make them
// (torchao/float8: float8_linear.py, float8_tensor_parallel.py; torchao/prototype/mx_formats/mx_linear.py):
// from the 16-bit tensors, anew for each of a layer's three products, which sum over different dimensions.
// Only Transformer Engine keeps anything in fp8 between forward and backward (`framework: megatron_core`,
// docs/decisions/0028-two-megatrons.md).
//
//   y = x W^T     x and W summed over their columns
//   dx = dy W     dy over its columns, W over its rows (transposed)
//   dW = dy^T x   both over their rows (transposed)
//
//   delayed     one scale per tensor, from its largest magnitudes in earlier steps (Transformer Engine's
//               DelayedScaling): the conversion is the only pass, and finds this step's largest magnitude on
//               the way. Reducing these over ranks, some bytes per tensor and micro-batch, is left out
//   tensorwise  one scale per tensor: a pass for the largest magnitude, one for the conversion. Tensor ranks
//               agree on the scale, so tokens are gathered in fp8. Backward knows the scales of x and W from
//               forward (two numbers), and makes the second form of dy from the first
//   rowwise     a scale per row (found during the conversion) or, where products sum over rows, per column (a
//               pass before it). Where a product sums over tensor ranks, they agree on each scale, and rows
//               take a pass, too. Without fast accumulation cuBLAS has no scales per row: a kernel scales the
//               results of backward's products (torchao/float8/float8_ops.py; pytorch/ao pull request 1325)
//   block       a scale per 1 x 128 numbers of activations and gradients, per 128 x 128 of weights
//               (DeepSeek-V3, section 3.3), found during the conversion
//   mxfp8       a scale of one byte per 32 numbers, along the dimension that the product sums over, found
//               during the conversion: two forms, neither of which is the other transposed
//   nvfp4       4-bit numbers with a scale of one byte per 16 (per 16 x 16 in weights) and one scale per
//               tensor, for which there is a pass before (Transformer Engine's NVFP4BlockScaling; the form
//               for sums over tokens has a kernel of its own, which rotates blocks by a Hadamard matrix)
//
// Transformer Engine makes both forms of block, mxfp8 and nvfp4 factors together (block's and mxfp8's in one
// kernel), and gathers tokens in these types, each form by itself. Of inputs it keeps the form for sums over
// tokens. Here the form that forward needs is kept instead (it has as many bytes), and backward makes the
// other one, at the cost that it has in forward. Where the tokens of a gradient go around the ring in parts,
// its second form is made by a kernel of its own and gathered behind the product that takes the first
// (module/layernorm_linear.py).
//
// Weights that are stored in fp8 (precision.fp8_param_gather) are converted by whoever updates or gathers
// them (plan/zero_parameters.cc, plan/fsdp_parameters.cc), with one scale for all ranks of the data axis, and
// tensor ranks do not agree on scales. Forward takes them as they lie. Backward takes their transpose, which
// Transformer Engine makes once a step and torchao in each backward.
//
// Forward's products use fast accumulation, backward's do not (torchao/float8/config.py, use_fast_accum;
// transformer_engine/pytorch/module/base.py, _2X_ACC_FPROP, _2X_ACC_DGRAD, _2X_ACC_WGRAD); with block none
// do.
#pragma once

#include <string>

#include "plan/layers.h"

namespace windtunnel {

// The dimension of a factor that a product sums over: columns, as it lies in memory, or rows (transposed).
enum class Fp8Sum : uint8_t { kOverColumns, kOverRows };
// Whether tokens that are split over ranks are gathered: for the next products alone, or also for later ones.
enum class Gathering : uint8_t { kNone, kForProducts, kKept };

class Fp8Factors {
 public:
  // Adds operators named `name` to c's program. `knows_scale`: a tensorwise scale need not be found.
  Fp8Factors(const LayerContext& c, std::string name, bool knows_scale = false)
      : c_(c), name_(std::move(name)), knows_scale_(knows_scale) {}
  // For the grouped products of `experts` experts with some rows each, whose factors have scales of their
  // own, on which tensor ranks do not agree (Transformer Engine's grouped linear layers).
  Fp8Factors(const LayerContext& c, std::string name, bool knows_scale, int64_t experts)
      : c_(c), name_(std::move(name)), knows_scale_(knows_scale), groups_(experts), agrees_(false) {}

  // The factor of x[tokens,columns], which may be a factor over columns already. If it is gathered and tokens
  // are split, x has the rank's own tokens, and the factor all. `sums_over_ranks`: the product's sum also
  // goes over tensor ranks.
  Slice OfTokens(Slice x, int64_t columns, Gathering gathering, Fp8Sum sum,
                 bool sums_over_ranks = false) const;
  // Both factors of one x. `sums_over_ranks` is about the sum over columns (the sum over rows is over all
  // tokens). `over_rows` is no slice if `over_columns` will come in parts: OverRowsAfterParts makes it behind
  // the products that take these.
  struct Both {
    Slice over_columns, over_rows;
  };
  Both OfTokensBothWays(Slice x, int64_t columns, bool gathers, bool sums_over_ranks) const;
  // The factor over rows of x, whose factor over columns came in parts.
  Slice OverRowsAfterParts(Slice x, Slice over_columns, int64_t columns) const;
  // The factor of a parameter [rows,columns]. Forward's factor (over columns) finds its scale.
  Slice OfWeight(int parameter, int64_t rows, int64_t columns, Fp8Sum sum, bool sums_over_ranks) const;

  bool forward_accumulates_fast() const { return !c_.types.scales_blocks(); }
  // Whether backward's products are scaled by a kernel behind them.
  bool rescales() const { return c_.types.fp8 == Fp8Recipe::kRowwise; }
  // REQUIRES: rescales().
  void Rescale(Slice product) const;

 private:
  struct CastOptions {
    bool sums_over_ranks = false, knows_scale = false;
    bool agrees = true;  // with the other tensor ranks, on one scale for all of it
    int64_t shared_by = 1;
    bool with_other = false;  // as Fp8Cast
    bool together = false;
  };
  // Transformer Engine converts the tokens of all experts into fp4 together (split_quantize_nvfp4_impl).
  bool together() const { return groups_ > 1 && c_.types.fp8 == Fp8Recipe::kNvfp4; }
  Slice OfStoredWeight(Slice factor, int64_t rows, int64_t columns, Fp8Sum sum) const;
  Slice Cast(Slice x, DType type, int64_t columns, Fp8Sum sum, const CastOptions& options,
             const std::string& name) const;
  Slice Amax(Slice x, const Fp8Amax& op, bool over_ranks, const std::string& name) const;
  // The other form of a factor over columns: transposed, or made together with it.
  Slice OtherForm(Slice factor, int64_t columns, const std::string& name) const;

  const LayerContext& c_;
  const std::string name_;
  const bool knows_scale_;
  const int64_t groups_ = 1;
  const bool agrees_ = true;  // whether tensor ranks agree on scales; on those of weights never in TE
};

}  // namespace windtunnel
