#include "runtime/cpu/gemm_operator.h"

#include <algorithm>
#include <type_traits>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/element.h"

namespace windtunnel::cpu {
namespace {

// Blocks of A, B and C take 2 MiB together: within a second-level cache, and long enough that converting
// them, once per block of the third matrix, is a small part of multiplying.
constexpr int64_t kBlockRows = 256, kBlockColumns = 512, kBlockDepth = 512;

struct Range {
  int64_t first = 0, length = 0;

  static Range Block(int64_t first, int64_t size, int64_t end) {
    return {first, std::min(size, end - first)};
  }
};

template <typename T>
class BlockedProduct {
 public:
  BlockedProduct(GemmEngine& engine, Scratch& scratch, const GemmProblem& problem)
      : engine_(engine), p_(problem) {
    const int64_t rows = std::min(kBlockRows, p_.m), columns = std::min(kBlockColumns, p_.n),
                  depth = std::min(kBlockDepth, p_.k);
    a_block_ = scratch.Floats(rows * depth + depth * columns + rows * columns);
    b_block_ = a_block_ + rows * depth;
    c_block_ = b_block_ + depth * columns;
  }

  Status Run(const T* a, const T* b, const T* bias, T* c) {
    for (int64_t row = 0; row < p_.m; row += kBlockRows) {
      for (int64_t column = 0; column < p_.n; column += kBlockColumns) {
        const Range rows = Range::Block(row, kBlockRows, p_.m),
                    columns = Range::Block(column, kBlockColumns, p_.n);
        T* corner = c + row * p_.ldc + column;
        Start(rows, columns, bias, corner);
        WT_RETURN_IF_ERROR(AddProducts(rows, columns, a, b));
        ConvertRows(rows.length, columns.length, c_block_, columns.length, corner, p_.ldc);
      }
    }
    return Ok();
  }

 private:
  // Initialises the block of C: its present contents or zero, and the bias.
  void Start(Range rows, Range columns, const T* bias, const T* corner) {
    for (int64_t row = 0; row < rows.length; ++row) {
      float* sums = c_block_ + row * columns.length;
      if (p_.accumulate) {
        Convert(columns.length, p_.beta, corner + row * p_.ldc, sums);
      } else {
        std::fill_n(sums, columns.length, 0.0f);
      }
      if (p_.bias) ConvertAndAdd(columns.length, 1.0f, bias + columns.first, sums);
    }
  }

  Status AddProducts(Range rows, Range columns, const T* a, const T* b) {
    for (int64_t k = 0; k < p_.k; k += kBlockDepth) {
      const Range depth = Range::Block(k, kBlockDepth, p_.k);
      Fetch(p_.transpose_a, rows, depth, a, p_.lda, a_block_);
      Fetch(p_.transpose_b, depth, columns, b, p_.ldb, b_block_);
      GemmProblem product =
          GemmProblem::Dense(rows.length, columns.length, depth.length, p_.transpose_a, p_.transpose_b);
      product.accumulate = true;
      product.alpha = p_.alpha;
      WT_RETURN_IF_ERROR(engine_.Run(product, a_block_, b_block_, nullptr, c_block_));
    }
    return Ok();
  }

  // Copies a block of op(X), in the layout of X.
  static void Fetch(bool transposed, Range rows, Range columns, const T* x, int64_t stride, float* block) {
    if (transposed) std::swap(rows, columns);
    ConvertRows(rows.length, columns.length, x + rows.first * stride + columns.first, stride, block,
                columns.length);
  }

  GemmEngine& engine_;
  const GemmProblem& p_;
  float *a_block_, *b_block_, *c_block_;
};

template <typename T>
Status Multiply(GemmEngine& engine, Scratch& scratch, const GemmProblem& problem, const T* a, const T* b,
                const T* bias, T* c) {
  if constexpr (std::is_same_v<T, float>) {
    return engine.Run(problem, a, b, bias, c);
  } else {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (engine.MultipliesBFloat16()) return engine.Run(problem, a, b, bias, c);
    }
    return MultiplyInBlocks(engine, scratch, problem, a, b, bias, c);
  }
}

}  // namespace

template <typename T>
Status MultiplyInBlocks(GemmEngine& engine, Scratch& scratch, const GemmProblem& problem, const T* a,
                        const T* b, const T* bias, T* c) {
  return BlockedProduct<T>(engine, scratch, problem).Run(a, b, bias, c);
}
template Status MultiplyInBlocks<BFloat16>(GemmEngine&, Scratch&, const GemmProblem&, const BFloat16*,
                                           const BFloat16*, const BFloat16*, BFloat16*);
template Status MultiplyInBlocks<Float16>(GemmEngine&, Scratch&, const GemmProblem&, const Float16*,
                                          const Float16*, const Float16*, Float16*);

Status Run(GemmEngine& engine, Scratch& scratch, const Gemm& op, const Operands& operands) {
  GemmProblem problem = GemmProblem::Dense(op.m, op.n, op.k, op.transpose_a, op.transpose_b);
  problem.bias = op.bias;
  problem.accumulate = op.accumulate;
  problem.dtype = op.dtype;
  problem.alpha = op.alpha;
  problem.beta = op.beta;
  return WithElement(op.dtype, [&](auto element) {
    using T = decltype(element);
    const T* a = operands.In<T>(0, op.m * op.k);
    const T* b = operands.In<T>(1, op.k * op.n);
    const T* bias = op.bias ? operands.In<T>(2, op.n) : nullptr;
    return Multiply(engine, scratch, problem, a, b, bias, operands.Out<T>(0, op.m * op.n));
  });
}

Status Run(GemmEngine& engine, Scratch& scratch, const GroupedGemm& op, const Operands& operands) {
  GemmProblem problem = GemmProblem::Dense(op.m, op.n, op.k, op.transpose_a, op.transpose_b);
  problem.accumulate = op.accumulate;
  problem.dtype = op.dtype;
  return WithElement(op.dtype, [&](auto element) -> Status {
    using T = decltype(element);
    const T* a = operands.In<T>(0, op.groups * op.m * op.k);
    const T* b = operands.In<T>(1, op.groups * op.k * op.n);
    T* c = operands.Out<T>(0, op.groups * op.m * op.n);
    for (int64_t g = 0; g < op.groups; ++g) {
      WT_RETURN_IF_ERROR(Multiply<T>(engine, scratch, problem, a + g * op.m * op.k, b + g * op.k * op.n,
                                     nullptr, c + g * op.m * op.n));
    }
    return Ok();
  });
}

}  // namespace windtunnel::cpu
