#include "plan/norms.h"

#include <utility>
#include <vector>

#include "base/check.h"

namespace windtunnel {

Slice Norm::Normalise(const LayerContext& c, Slice x, Slice branch, int64_t rows, Saved& saved) const {
  const bool residual = branch.buffer >= 0;
  std::vector<Slice> reads = {x}, writes;
  if (residual) reads.push_back(c.InType(c.types.stream, branch, name + ".branch"));
  reads.push_back(c.hooks.Values(gamma));
  if (beta >= 0) reads.push_back(c.hooks.Values(beta));
  saved.x = x;
  if (residual) {
    saved.x = c.StreamActivation(name + ".sum", rows * columns);
    writes.push_back(saved.x);
  }
  const Slice y = c.StreamActivation(name, rows * columns);
  saved.statistics =
      c.b.Temporary(name + ".statistics", StatisticsElements(kind, rows), Category::kActivations);
  writes.push_back(y);
  writes.push_back(saved.statistics);
  if (c.types.norms_keep_fp32 && kind == NormKind::kRmsNorm) {
    saved.fp32 = c.b.Temporary(name + ".fp32", rows * columns, Category::kActivations);
    writes.push_back(saved.fp32);
  }
  c.b.Add(NormForward{kind, rows, columns, beta >= 0, residual, c.types.stream, epsilon}, name, reads,
          writes);
  return y;
}

Norm::Saved Norm::Forward(const LayerContext& c, Slice x, Slice branch, int64_t rows) const {
  Saved saved;
  saved.normalised = Normalise(c, x, branch, rows, saved);
  saved.y = c.InType(c.types.activations, saved.normalised, name);
  return saved;
}

Slice Norm::ForwardBranch(const LayerContext& c, Slice branch, int64_t rows, Saved& saved) const {
  return Normalise(c, c.InType(c.types.stream, branch, name + ".branch"), kNoSlice, rows, saved);
}

void Norm::AddBackward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual, Slice dx,
                       int64_t rows) const {
  const bool residual = dresidual.buffer >= 0;
  const bool accumulate = !is_frozen && c.hooks.HoldsValue(gamma);
  std::vector<Slice> reads = {dy, saved.x, c.hooks.Values(gamma), saved.statistics};
  if (residual) reads.push_back(dresidual);
  if (saved.fp32.buffer >= 0) reads.push_back(saved.fp32);
  std::vector<Slice> writes = {dx};
  if (!is_frozen) writes.push_back(c.hooks.Gradient(gamma));
  if (beta >= 0 && !is_frozen) writes.push_back(c.hooks.Gradient(beta));
  c.b.Add(NormBackward{kind, rows, columns, beta >= 0, residual, accumulate, c.types.stream, is_frozen}, name,
          reads, writes);
  if (is_frozen) return;
  if (beta >= 0) c.Ready(beta);
  c.Ready(gamma);
}

Slice Norm::Backward(const LayerContext& c, Slice dy, const Saved& saved, Slice dresidual,
                     int64_t rows) const {
  const bool residual = dresidual.buffer >= 0;
  dy = c.InType(c.types.stream, dy, name + ".dy");
  Slice dx = residual ? dresidual : dy;
  if (residual && c.deferred != nullptr) dx = c.StreamActivation(name + ".dx", rows * columns);
  AddBackward(c, dy, saved, dresidual, dx, rows);
  return dx;
}

Slice Norm::BackwardOfStream(const LayerContext& c, Slice dy, const Saved& saved, Slice dstream,
                             int64_t rows) const {
  dy = c.InType(c.types.stream, dy, name + ".dy");
  c.AddTo(dy, dstream, name + ".dy.sum");
  return Backward(c, dy, saved, kNoSlice, rows);
}

Slice Norm::BackwardBranch(const LayerContext& c, Slice dy, const Saved& saved, int64_t rows) const {
  const Slice dx = c.StreamActivation(name + ".dx", rows * columns);
  AddBackward(c, dy, saved, kNoSlice, dx, rows);
  return dx;
}

Slice HeadNorm::Forward(const LayerContext& c, Slice x, int64_t rows, Saved& saved) const {
  saved.x = x;
  saved.statistics =
      c.b.Temporary(name + ".statistics", rows * (whole ? 2 : heads + kv_heads), Category::kActivations);
  const Slice y = c.Activation(name, x.elements);
  const Slice queries = c.OperandOf(query_gamma, name + ".q"), keys = c.OperandOf(key_gamma, name + ".k");
  std::vector<Slice> writes = {y, saved.statistics};
  if (c.types.norms_keep_fp32) {
    saved.fp32 = c.b.Temporary(name + ".fp32", rows * (heads + kv_heads) * head_dim, Category::kActivations);
    writes.push_back(saved.fp32);
  }
  c.b.Add(HeadNormForward{rows, heads, kv_heads, head_dim, c.types.activations, epsilon, whole}, name,
          {x, queries, keys}, std::move(writes));
  return y;
}

void HeadNorm::Backward(const LayerContext& c, Slice dy, const Saved& saved, int64_t rows) const {
  const Slice queries = c.OperandOf(query_gamma, name + ".q"), keys = c.OperandOf(key_gamma, name + ".k");
  std::vector<Slice> reads = {dy, saved.x, queries, keys, saved.statistics};
  if (saved.fp32.buffer >= 0) reads.push_back(saved.fp32);
  HeadNormBackward op{rows, heads, kv_heads, head_dim, false, c.types.activations, is_frozen, whole};
  if (is_frozen) {
    c.b.Add(op, name, std::move(reads), {dy});
    return;
  }
  const bool converts = c.types.autocasts();
  op.accumulate = !converts && c.hooks.HoldsValue(query_gamma);
  WT_CHECK(converts || op.accumulate == c.hooks.HoldsValue(key_gamma));
  const auto gradient = [&](int parameter, int64_t elements, const char* which) {
    return converts ? c.Activation(name + which, elements) : c.hooks.Gradient(parameter);
  };
  const Slice dqueries = gradient(query_gamma, query_weights(), ".q.grad"),
              dkeys = gradient(key_gamma, key_weights(), ".k.grad");
  c.b.Add(op, name, std::move(reads), {dy, dqueries, dkeys});
  if (converts) c.AddConverted(dkeys, name + ".k", key_gamma);
  c.Ready(key_gamma);
  if (converts) c.AddConverted(dqueries, name + ".q", query_gamma);
  c.Ready(query_gamma);
}

}  // namespace windtunnel
