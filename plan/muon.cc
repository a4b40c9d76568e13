#include "plan/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace windtunnel {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;

// The iterations on x, which lies in one of two buffers in turn.
class NewtonSchulz {
 public:
  NewtonSchulz(ProgramBuilder& b, const MuonMatrix& matrix, Slice x)
      : b_(b),
        name_(matrix.name + ".newton_schulz"),
        rows_(matrix.rows),
        columns_(matrix.columns),
        side_(std::min(rows_, columns_)),
        x_(x),
        next_(Temporary(rows_ * columns_)),
        gram_(Temporary(side_ * side_)),
        polynomial_(Temporary(side_ * side_)) {}

  void Iterate() {
    const bool is_tall = rows_ > columns_;
    Gemm gram = Product(side_, side_, is_tall ? rows_ : columns_);
    (is_tall ? gram.transpose_a : gram.transpose_b) = true;
    Multiply(gram, x_, x_, gram_);
    Gemm square = Product(side_, side_, side_);
    square.alpha = kC;
    AddTo(square, kB, gram_, gram_, gram_, polynomial_);
    const Gemm step = Product(rows_, columns_, side_);
    if (is_tall) AddTo(step, kA, x_, x_, polynomial_, next_);
    else AddTo(step, kA, x_, polynomial_, x_, next_);
    std::swap(x_, next_);
  }
  Slice x() const { return x_; }

 private:
  Slice Temporary(int64_t elements) {
    return b_.Temporary(name_, elements, Category::kWorkspace, DType::kBFloat16);
  }
  static Gemm Product(int64_t m, int64_t n, int64_t k) {
    Gemm product{m, n, k};
    product.dtype = DType::kBFloat16;
    product.of_optimizer = true;
    return product;
  }
  void Multiply(const Gemm& product, Slice left, Slice right, Slice to) {
    b_.Add(product, name_, {left, right}, {to});
  }
  // to = factor * addend + the product.
  void AddTo(Gemm product, float factor, Slice addend, Slice left, Slice right, Slice to) {
    b_.Add(Copy{.elements = to.elements, .from = DType::kBFloat16, .to = DType::kBFloat16}, name_, {addend},
           {to});
    product.accumulate = true;
    product.beta = factor;
    Multiply(product, left, right, to);
  }

  ProgramBuilder& b_;
  const std::string name_;
  const int64_t rows_, columns_, side_;
  Slice x_, next_, gram_, polynomial_;
};

}  // namespace

double AdjustmentOf(RateAdjustment adjustment, int64_t rows, int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  return adjustment == RateAdjustment::kOriginal ? std::sqrt(std::max(1.0, r / c))
                                                 : 0.2 * std::sqrt(std::max(r, c));
}

OpIndex AddMuonUpdate(ProgramBuilder& b, const OptimizerSpec& spec, const MuonMatrix& matrix,
                      const Slice* found_inf, bool keeps_fp32) {
  const int64_t elements = matrix.rows * matrix.columns;
  const Slice x = b.Temporary(matrix.name + ".direction", elements, Category::kWorkspace, DType::kBFloat16);
  std::vector<Slice> reads = {matrix.gradient}, writes = {matrix.momentum, x}, updated_from;
  if (found_inf != nullptr) reads.push_back(*found_inf);
  if (keeps_fp32) writes.push_back(b.Temporary(matrix.name + ".update", elements, Category::kWorkspace));
  const bool is_guarded = found_inf != nullptr;
  b.Add(MuonDirection{spec, elements, is_guarded, keeps_fp32}, matrix.name + ".direction", std::move(reads),
        writes);
  NewtonSchulz iterations(b, matrix, x);
  for (int64_t i = 0; i < spec.ns_steps; ++i) iterations.Iterate();
  updated_from = {iterations.x()};
  if (is_guarded) updated_from.push_back(*found_inf);
  if (keeps_fp32) updated_from.push_back(writes.back());
  const double adjustment = AdjustmentOf(spec.adjust_lr, matrix.rows, matrix.columns);
  return b.Add(MuonUpdate{spec, elements, adjustment, is_guarded, keeps_fp32}, matrix.name + ".update",
               std::move(updated_from), {matrix.values});
}

}  // namespace windtunnel
