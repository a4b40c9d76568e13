// The parts of whole tensors that a rank holds between steps, by the tensors' logical names. They make a
// checkpoint independent of the job that wrote it. (PyTorch's distributed checkpoint keeps the same: fully
// qualified names, whole shapes, and each shard's offsets.)
//
//   model.<parameter>                      the values that the optimizer updates, fp32
//   optimizer.<state>.<parameter>          exp_avg, exp_avg_sq, or momentum, of the parameter's shape
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

struct TensorPiece {
  std::string tensor;
  std::vector<int64_t> shape;  // of the whole tensor
  // The piece's elements within the whole tensor, at position 0, in the order in which they lie in `local`.
  std::vector<StridedRuns> runs;
  // The place in this rank's memory; the slice describes this rank alone.
  Slice local;
  // Another pipeline rank has the same parameter, too, and saves it.
  bool is_copy = false;

  int64_t elements() const { return local.elements; }
  bool is_whole() const;
};

// The rank's pieces in registration order: of each parameter its values, then, if `with_optimizer`, its
// optimizer states.
std::vector<TensorPiece> PiecesOf(const Plan& plan, int rank, bool with_optimizer);
// Those of the pieces that `rank` saves. If several ranks hold the same piece, the first of them saves it.
std::vector<TensorPiece> PiecesToSave(const Plan& plan, int rank, bool with_optimizer);

// The number of elements of a shape.
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

// A piece's runs in the order of the tensor, to find those that overlap another piece's.
class RunsInOrder {
 public:
  explicit RunsInOrder(const std::vector<StridedRuns>& runs) {
    ForEachRun(runs, [&](int64_t local, int64_t first, int64_t elements) {
      runs_.push_back({first, elements, local});
    });
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  }

  // Calls f(element of the piece, element of the whole tensor, elements) for what it has of the tensor's
  // elements [first, first + elements).
  template <typename F>
  void ForEachOverlap(int64_t first, int64_t elements, F f) const {
    const int64_t end = first + elements;
    auto run = std::upper_bound(runs_.begin(), runs_.end(), first,
                                [](int64_t at, const Run& other) { return at < other.first; });
    if (run != runs_.begin()) --run;
    for (; run != runs_.end() && run->first < end; ++run) {
      const int64_t from = std::max(first, run->first), to = std::min(end, run->first + run->elements);
      if (from < to) f(run->local + from - run->first, from, to - from);
    }
  }

 private:
  struct Run {
    int64_t first, elements, local;
  };
  std::vector<Run> runs_;
};

}  // namespace windtunnel
