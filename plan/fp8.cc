#include "plan/fp8.h"

#include <algorithm>

#include "base/check.h"

namespace windtunnel {

using Neighbor = LayerContext::Neighbor;

Slice Fp8Factors::OfTokens(Slice x, int64_t columns, Gathering gathering, Fp8Sum sum,
                           bool sums_over_ranks) const {
  const bool splits = gathering != Gathering::kNone && c_.tensor.splits_tokens();
  const bool is_factor = IsFactor(c_.TypeOf(x));
  const CastOptions options{.sums_over_ranks = sums_over_ranks,
                            .knows_scale = knows_scale_,
                            .agrees = agrees_,
                            .together = together()};
  if (!is_factor && sum == Fp8Sum::kOverRows && c_.types.makes_both_forms()) {
    const Slice own = Cast(x, c_.types.activations, columns, sum, options, name_);
    return splits ? c_.GatherTokens(own, name_, Neighbor::kProduct) : own;
  }
  if (!is_factor && (!splits || !c_.types.gathers_factors())) {
    if (splits) x = c_.GatherTokens(x, name_, Neighbor::kElementwise);
    return Cast(x, c_.types.activations, columns, sum, options, name_);
  }
  const Slice own =
      is_factor ? x : Cast(x, c_.types.activations, columns, Fp8Sum::kOverColumns, options, name_);
  if (sum == Fp8Sum::kOverRows) {
    if (!splits) return OtherForm(own, columns, name_);
    if (c_.types.makes_both_forms())
      return c_.GatherTokens(OtherForm(own, columns, name_), name_, Neighbor::kProduct);
    return OtherForm(c_.GatherTokens(own, name_, Neighbor::kElementwise), columns, name_);
  }
  return splits ? c_.GatherForProducts(own, name_, gathering == Gathering::kKept) : own;
}

Fp8Factors::Both Fp8Factors::OfTokensBothWays(Slice x, int64_t columns, bool gathers,
                                              bool sums_over_ranks) const {
  if (c_.types.scales_whole_tensors()) {
    const Slice factor =
        OfTokens(x, columns, gathers ? Gathering::kKept : Gathering::kNone, Fp8Sum::kOverColumns);
    // A factor that comes in parts is transposed later, behind the products of its parts.
    return {factor, c_.b.WillComeInParts(factor) ? kNoSlice : OtherForm(factor, columns, name_)};
  }
  if (c_.types.makes_both_forms()) {
    const Slice own = OfTokens(x, columns, Gathering::kNone, Fp8Sum::kOverColumns, sums_over_ranks);
    if (!gathers || !c_.tensor.splits_tokens()) return {own, OtherForm(own, columns, name_)};
    const Slice factor = c_.GatherForProducts(own, name_, /*is_kept=*/false);
    if (c_.b.WillComeInParts(factor)) return {factor, kNoSlice};
    return {factor, c_.GatherTokens(OtherForm(own, columns, name_), name_, Neighbor::kProduct)};
  }
  if (gathers) x = c_.GatherTokens(x, name_, Neighbor::kElementwise);
  return {OfTokens(x, columns, Gathering::kNone, Fp8Sum::kOverColumns, sums_over_ranks),
          OfTokens(x, columns, Gathering::kNone, Fp8Sum::kOverRows)};
}

Slice Fp8Factors::OverRowsAfterParts(Slice x, Slice over_columns, int64_t columns) const {
  if (!c_.types.makes_both_forms())
    return OfTokens(over_columns, columns, Gathering::kNone, Fp8Sum::kOverRows);
  return Fp8Factors(c_, name_, /*knows_scale=*/true)
      .OfTokens(x, columns, Gathering::kKept, Fp8Sum::kOverRows);
}

Slice Fp8Factors::OfWeight(int parameter, int64_t rows, int64_t columns, Fp8Sum sum,
                           bool sums_over_ranks) const {
  const Slice values = c_.hooks.Values(parameter);
  const ModelTypes& types = c_.types;
  if (IsFactor(c_.TypeOf(values))) return OfStoredWeight(values, rows, columns, sum);
  WT_CHECK_EQ(values.elements, rows * columns);
  // Recomputation finds weights converted.
  if (types.keeps_weights_in_fp8 && c_.b.phase() == Phase::kRecompute) return values;
  const CastOptions options{.sums_over_ranks = sums_over_ranks,
                            .knows_scale = sum == Fp8Sum::kOverRows,
                            .agrees = agrees_ && types.fp8_weights_shared_by == 0,
                            .shared_by = std::max<int64_t>(types.fp8_weights_shared_by, 1),
                            .with_other = types.keeps_weights_in_fp8 && sum == Fp8Sum::kOverRows};
  return Cast(values, types.storage, columns, sum, options, name_ + ".weight");
}

// Both forms of mxfp8 are made when the weight is stored, others' second form when it is first needed.
Slice Fp8Factors::OfStoredWeight(Slice factor, int64_t rows, int64_t columns, Fp8Sum sum) const {
  const ModelTypes& types = c_.types;
  WT_CHECK_EQ(factor.elements, FactorBytes(types.fp8, rows * columns));
  if (sum == Fp8Sum::kOverColumns || types.fp8 == Fp8Recipe::kMxfp8) return factor;
  const Slice y =
      c_.b.Temporary(name_ + ".weight.fp8", factor.elements, Category::kActivations, types.factor());
  const int64_t shared_by = std::max<int64_t>(types.fp8_weights_shared_by, 1);
  c_.b.Add(Fp8Cast{rows, columns, types.fp8, /*transposed=*/true, types.factor(), shared_by, groups_},
           name_ + ".weight", {factor}, {y});
  return y;
}

Slice Fp8Factors::Cast(Slice x, DType type, int64_t columns, Fp8Sum sum, const CastOptions& options,
                       const std::string& name) const {
  const int64_t rows = x.elements / columns;
  const bool over_rows = sum == Fp8Sum::kOverRows, is_rowwise = c_.types.fp8 == Fp8Recipe::kRowwise;
  const bool sums_over_ranks = options.sums_over_ranks && options.agrees;
  std::vector<Slice> reads = {x};
  const bool has_one_scale = c_.types.fp8 == Fp8Recipe::kTensorwise || c_.types.fp8 == Fp8Recipe::kNvfp4;
  if (has_one_scale && !options.knows_scale) {
    reads.push_back(
        Amax(x, {rows, columns, Fp8Amax::Of::kAll, type, options.shared_by, groups_, options.together},
             c_.tensor.splits() && options.agrees, name));
  } else if (is_rowwise && over_rows) {
    reads.push_back(Amax(x, {rows, columns, Fp8Amax::Of::kEachColumn, type, options.shared_by, groups_},
                         sums_over_ranks, name));
  } else if (is_rowwise && sums_over_ranks) {
    reads.push_back(Amax(x, {rows, columns, Fp8Amax::Of::kEachRow, type, options.shared_by, groups_},
                         sums_over_ranks, name));
  }
  const Slice y = c_.b.Temporary(name + ".fp8", FactorBytes(c_.types.fp8, x.elements), Category::kActivations,
                                 c_.types.factor());
  c_.b.Add(Fp8Cast{rows, columns, c_.types.fp8, over_rows, type, options.shared_by, groups_,
                   options.with_other, options.together},
           name, std::move(reads), {y});
  return y;
}

Slice Fp8Factors::Amax(Slice x, const Fp8Amax& op, bool over_ranks, const std::string& name) const {
  const Slice amax = c_.b.Temporary(name + ".amax", op.numbers(), Category::kWorkspace);
  c_.b.Add(op, name, {x}, {amax});
  if (over_ranks) {
    c_.b.WaitBeforeUse(amax, c_.tensor.stream->AllReduce(c_.b, amax, name + ".amax", c_.b.BeforeNextCompute(),
                                                         Reduction::kMax));
  }
  return amax;
}

void Fp8Factors::Rescale(Slice product) const {
  WT_CHECK(rescales());
  c_.b.Add(Scale{.elements = product.elements, .dtype = c_.types.activations}, name_ + ".rescale", {product},
           {product});
}

Slice Fp8Factors::OtherForm(Slice factor, int64_t columns, const std::string& name) const {
  const DType type = c_.types.factor();
  const Slice y = c_.b.Temporary(name + ".fp8.other", factor.elements, Category::kActivations, type);
  Fp8Cast cast{
      FactorNumbers(c_.types.fp8, factor.elements) / columns, columns, c_.types.fp8, true, type, 1, groups_};
  cast.together = together();
  if (c_.types.fp8 == Fp8Recipe::kNvfp4) cast.dtype = c_.types.activations;  // what it is made from
  else cast.with_other = c_.types.makes_both_forms();
  c_.b.Add(cast, name, {factor}, {y});
  return y;
}

}  // namespace windtunnel
