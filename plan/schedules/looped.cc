// Schedules with several stages per rank, `ranks` apart: a micro-batch goes around the ranks v times.
#include <algorithm>

#include "plan/schedules/generators.h"

namespace windtunnel::schedules {
namespace {

struct Step {
  int chunk;  // which of the rank's stages
  int64_t micro_batch;
};

// A rank's forwards in order: each group of micro-batches through every chunk before the next group.
std::vector<Step> DepthFirst(int virtual_stages, int64_t micro_batches, int64_t group) {
  std::vector<Step> steps;
  for (int64_t begin = 0; begin < micro_batches; begin += group) {
    const int64_t end = std::min(begin + group, micro_batches);
    for (int chunk = 0; chunk < virtual_stages; ++chunk) {
      for (int64_t i = begin; i < end; ++i) steps.push_back({chunk, i});
    }
  }
  return steps;
}

}  // namespace

Schedule Interleaved(int ranks, int virtual_stages, int64_t micro_batches, int64_t group, bool pairs) {
  Schedule schedule =
      EmptySchedule("interleaved", ranks, micro_batches, LoopPlacement(ranks, virtual_stages));
  const std::vector<Step> steps = DepthFirst(virtual_stages, micro_batches, group);
  const int64_t total = static_cast<int64_t>(steps.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t ahead =
        std::min(total, (virtual_stages - 1) * group + 2 * (ranks - 1 - rank) + (pairs ? 1 : 0));
    std::vector<Action>& actions = schedule.ranks[rank];
    for (int64_t i = 0; i < total + ahead; ++i) {
      if (i < total)
        actions.push_back({ActionKind::kForward, steps[i].chunk * ranks + rank, steps[i].micro_batch});
      if (i < ahead) continue;
      if (pairs && i < total) schedule.paired.insert(actions.back());
      const auto [chunk, micro_batch] = steps[i - ahead];
      actions.push_back({ActionKind::kBackward, (virtual_stages - 1 - chunk) * ranks + rank, micro_batch});
    }
  }
  return schedule;
}

Schedule LoopedBreadthFirst(int ranks, int virtual_stages, int64_t micro_batches) {
  Schedule schedule = EmptySchedule("looped_bfs", ranks, micro_batches, LoopPlacement(ranks, virtual_stages));
  const std::vector<Step> steps = DepthFirst(virtual_stages, micro_batches, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& actions = schedule.ranks[rank];
    for (const Step& step : steps) {
      actions.push_back({ActionKind::kForward, step.chunk * ranks + rank, step.micro_batch});
    }
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      actions.push_back({ActionKind::kBackward, step->chunk * ranks + rank, step->micro_batch});
    }
  }
  return schedule;
}

}  // namespace windtunnel::schedules
