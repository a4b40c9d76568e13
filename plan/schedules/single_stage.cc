// Schedules of one stage per rank: stage and rank are the same number.
#include <algorithm>

#include "plan/schedules/generators.h"

namespace windtunnel::schedules {

Schedule EmptySchedule(const char* name, int ranks, int64_t micro_batches, std::vector<int> placement) {
  Schedule schedule{name, micro_batches, std::move(placement), {}};
  schedule.ranks.resize(ranks);
  return schedule;
}

Schedule None(int ranks, int64_t micro_batches) {
  Schedule schedule = EmptySchedule("none", ranks, micro_batches, LoopPlacement(ranks, 1));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int64_t i = 0; i < micro_batches; ++i) {
      schedule.ranks[rank].push_back({ActionKind::kForward, rank, i});
      schedule.ranks[rank].push_back({ActionKind::kBackward, rank, i});
    }
  }
  return schedule;
}

Schedule GPipe(int ranks, int64_t micro_batches) {
  Schedule schedule = EmptySchedule("gpipe", ranks, micro_batches, LoopPlacement(ranks, 1));
  for (int rank = 0; rank < ranks; ++rank) {
    for (ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int64_t i = 0; i < micro_batches; ++i) schedule.ranks[rank].push_back({kind, rank, i});
    }
  }
  return schedule;
}

Schedule OneForwardOneBackward(int ranks, int64_t micro_batches) {
  Schedule schedule = EmptySchedule("1f1b", ranks, micro_batches, LoopPlacement(ranks, 1));
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t ahead = std::min<int64_t>(micro_batches, ranks - rank - 1);
    std::vector<Action>& actions = schedule.ranks[rank];
    for (int64_t i = 0; i < micro_batches + ahead; ++i) {
      if (i < micro_batches) actions.push_back({ActionKind::kForward, rank, i});
      if (i >= ahead) actions.push_back({ActionKind::kBackward, rank, i - ahead});
    }
  }
  return schedule;
}

Schedule ZeroBubbleH1(int ranks, int64_t micro_batches) {
  Schedule schedule = EmptySchedule("zb_h1", ranks, micro_batches, LoopPlacement(ranks, 1));
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t ahead = std::min<int64_t>(micro_batches, ranks - rank - 1);
    const int64_t lag = std::min<int64_t>(micro_batches, rank);
    std::vector<Action>& actions = schedule.ranks[rank];
    for (int64_t i = 0; i < micro_batches + ahead; ++i) {
      if (i < micro_batches) actions.push_back({ActionKind::kForward, rank, i});
      if (i >= ahead) actions.push_back({ActionKind::kInputGradient, rank, i - ahead});
      if (i >= ahead + lag) actions.push_back({ActionKind::kWeightGradient, rank, i - ahead - lag});
    }
    for (int64_t i = micro_batches - lag; i < micro_batches; ++i)
      actions.push_back({ActionKind::kWeightGradient, rank, i});
  }
  return schedule;
}

}  // namespace windtunnel::schedules
