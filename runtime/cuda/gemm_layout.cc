#include "runtime/cuda/gemm_layout.h"

namespace windtunnel::cuda {
namespace {

// The layout of a row-major factor stored as [rows,columns], or as [columns,rows] if it is stored transposed.
MatrixLayout Factor(int64_t rows, int64_t columns, bool stored_transposed) {
  if (stored_transposed) return {rows, columns, rows, true, rows * columns};
  return {columns, rows, columns, false, rows * columns};
}

}  // namespace

GemmProblem ProblemOf(const Gemm& op) {
  return GemmProblem{.m = op.n,
                     .n = op.m,
                     .k = op.k,
                     .a = Factor(op.k, op.n, op.transpose_b),
                     .b = Factor(op.m, op.k, op.transpose_a),
                     .c = {op.n, op.m, op.n, false, op.m * op.n},
                     .epilogue = op.bias ? Epilogue::kBias : Epilogue::kNone,
                     .accumulate = op.accumulate,
                     .dtype = op.dtype,
                     .alpha = op.alpha,
                     .beta = op.beta};
}

GemmProblem ProblemOf(const GroupedGemm& op) {
  GemmProblem problem = ProblemOf(Gemm{.m = op.m,
                                       .n = op.n,
                                       .k = op.k,
                                       .transpose_a = op.transpose_a,
                                       .transpose_b = op.transpose_b,
                                       .accumulate = op.accumulate,
                                       .dtype = op.dtype});
  problem.batch = op.groups;
  return problem;
}

uint32_t AlignmentOf(const void* address) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

}  // namespace windtunnel::cuda
