// Which parts of which whole tensors a rank holds between steps, by the tensors' logical names: what makes a checkpoint independent of
// who wrote it. (PyTorch's distributed checkpoint keeps the same: fully qualified names, whole shapes, and each shard's offsets.)
//
//   model.<parameter>                      the values that the optimizer updates, fp32
//   optimizer.<state>.<parameter>          exp_avg, exp_avg_sq, or momentum, of the parameter's shape
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

struct TensorPiece {
  std::string tensor;
  std::vector<int64_t> shape;  // of the whole tensor
  std::vector<StridedRuns>
      runs;              // which of its elements, in the order in which they lie in `local`; at position 0
  Slice local;           // where the rank has them; the slice is of this rank alone
  bool is_copy = false;  // another pipeline rank has the same parameter, too, and saves it

  int64_t elements() const { return local.elements; }
  bool is_whole() const;
};

// In registration order; of each parameter its values, then, `with_optimizer`, its states.
std::vector<TensorPiece> PiecesOf(const Plan& plan, int rank, bool with_optimizer);
// Those of them that `rank` saves: of the ranks that hold the same piece, the first one does.
std::vector<TensorPiece> PiecesToSave(const Plan& plan, int rank, bool with_optimizer);

// Elements of a shape.
int64_t ElementsOf(const std::vector<int64_t>& shape);

// Calls f(first element of the piece, first element of the whole tensor, elements) for every run.
template <typename F>
void ForEachRun(const std::vector<StridedRuns>& runs, F f) {
  int64_t local = 0;
  for (const StridedRuns& run : runs) {
    for (int64_t i = 0; i < run.count; ++i, local += run.length)
      f(local, run.first + i * run.stride, run.length);
  }
}

}  // namespace windtunnel
