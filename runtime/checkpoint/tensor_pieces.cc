#include "runtime/checkpoint/tensor_pieces.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

namespace windtunnel {
namespace {

// Collects runs in order and merges those that are contiguous or evenly spaced.
class RunList {
 public:
  void Add(int64_t first, int64_t length) {
    if (!runs_.empty()) {
      StridedRuns& last = runs_.back();
      if (last.count == 1 && last.first + last.length == first) {
        last.length += length;
        return;
      }
      if (last.length == length && last.count == 1) last.stride = first - last.first;
      if (last.length == length && first == last.first + last.count * last.stride) {
        ++last.count;
        return;
      }
    }
    runs_.push_back({first, length});
  }
  std::vector<StridedRuns> Take() {
    for (StridedRuns& run : runs_) {
      if (run.count == 1) run.stride = 0;
    }
    return std::move(runs_);
  }

 private:
  std::vector<StridedRuns> runs_;
};

class Pieces {
 public:
  Pieces(const Plan& plan, int rank) : plan_(plan), role_(plan.RoleOf(rank)), rank_(rank) {}

  std::vector<TensorPiece> Of(bool with_optimizer) {
    for (const Parameter& parameter : role_.parameters) {
      if (parameter.values.buffer < 0) continue;  // does not exist between steps
      const LocalPart part = PartOn(parameter.values, parameter.elements, PositionOn(parameter.values.axis));
      if (part.elements == 0) continue;
      const Slice local{parameter.values.buffer, part.offset, part.elements};
      Add("model." + parameter.name, parameter, part.first, local);
      if (!with_optimizer) continue;
      for (const OptimizerState& state : role_.optimizer_states)
        AddState(state, parameter, part.first, local);
    }
    return std::move(pieces_);
  }

 private:
  int PositionOn(AxisId axis) const { return plan_.axes[axis].position_of_rank[rank_]; }

  // `values` holds the parameter's elements from `first` on.
  void AddState(const OptimizerState& state, const Parameter& parameter, int64_t first, const Slice& values) {
    if (state.values.buffer != values.buffer) return;
    const Located covered = Locate(state.values, PositionOn(state.values.axis));
    const int64_t begin = std::max(values.offset, covered.first);
    const int64_t end = std::min(values.offset + values.elements, covered.first + covered.elements);
    if (begin >= end) return;
    const Located place = Locate(state.state, PositionOn(state.state.axis));
    Add("optimizer." + state.name + "." + parameter.name, parameter, first + begin - values.offset,
        Slice{state.state.buffer, place.first + begin - covered.first, end - begin});
  }

  // Adds elements [first, first + local.elements) of the rank's part of the parameter.
  void Add(std::string name, const Parameter& parameter, int64_t first, const Slice& local) {
    RunList runs;
    if (parameter.part.empty()) {
      runs.Add(first, local.elements);
    } else {
      const int64_t skipped = plan_.ExpertRankOf(rank_) * parameter.expert_stride;
      ForEachRun(parameter.part, plan_.mesh.PlaceOf(rank_).tensor, first, first + local.elements,
                 [&](int64_t, int64_t whole, int64_t elements) { runs.Add(skipped + whole, elements); });
    }
    pieces_.push_back({std::move(name), parameter.whole_shape, runs.Take(), local, parameter.is_copy});
  }

  const Plan& plan_;
  const Role& role_;
  int rank_;
  std::vector<TensorPiece> pieces_;
};

// Equal for equal pieces.
using PieceKey = std::pair<std::string, std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>>;
PieceKey KeyOf(const TensorPiece& piece) {
  PieceKey key{piece.tensor, {}};
  for (const StridedRuns& run : piece.runs)
    key.second.emplace_back(run.first, run.length, run.count, run.stride);
  return key;
}

}  // namespace

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

bool TensorPiece::is_whole() const {
  return runs.size() == 1 && runs[0].first == 0 && runs[0].count == 1 && runs[0].length == ElementsOf(shape);
}

std::vector<TensorPiece> PiecesOf(const Plan& plan, int rank, bool with_optimizer) {
  return Pieces(plan, rank).Of(with_optimizer);
}

std::vector<TensorPiece> PiecesToSave(const Plan& plan, int rank, bool with_optimizer) {
  std::map<PieceKey, int> saved_by;
  for (int other = 0; other <= rank; ++other) {
    for (const TensorPiece& piece : PiecesOf(plan, other, with_optimizer)) {
      if (!piece.is_copy) saved_by.try_emplace(KeyOf(piece), other);
    }
  }
  std::vector<TensorPiece> own = PiecesOf(plan, rank, with_optimizer);
  std::erase_if(own,
                [&](const TensorPiece& piece) { return piece.is_copy || saved_by.at(KeyOf(piece)) != rank; });
  return own;
}

}  // namespace windtunnel
