// What happened when in one run of the executor, and the timelines that follow from it.
#pragma once

#include <vector>

#include "base/units.h"
#include "plan/timeline.h"
#include "sim/role_memory.h"
#include "sim/step_schedule.h"

namespace windtunnel {

class StepRecording {
 public:
  explicit StepRecording(const StepSchedule& schedule);

  // Records that the rank's current segment goes on at another speed from `time` on, when `done` of its work
  // is complete. The speed is constant until the next call or the segment's end.
  void BeginPiece(int32_t rank, Duration time, Duration done);
  // Ends the segment: finds when each of its items began and ended.
  void EndSegment(int32_t rank, int32_t first_item, int32_t end_item, const std::vector<Duration>& work,
                  Duration now);

  void ArriveAt(int32_t queue, int32_t position, Duration now) { starts_[Index(queue, position)] = now; }
  void EndAt(int32_t queue, int32_t position, Duration now) { ends_[Index(queue, position)] = now; }

  // One timeline for each rank that is laid out. `memory` (by role) provides the memory samples; if it is
  // empty, timelines have none.
  std::vector<Timeline> Timelines(const std::vector<RoleMemory>& memory) const;
  // How much longer computation took than its work, because communication used cores, multiprocessors, power
  // or memory beside it: the mean over the ranks, those that others stand for included.
  // `items` and `transfers` are the run's work (StepWork).
  Duration Slowed(const std::vector<Duration>& items, const std::vector<Duration>& transfers) const;

 private:
  struct Piece {
    Duration time, done;
  };

  int32_t Index(int32_t queue, int32_t position) const {
    return schedule_.queues[queue].first_transfer + position;
  }
  Duration SlowedOn(int32_t rank, const std::vector<Duration>& items,
                    const std::vector<Duration>& transfers) const;
  Timeline TimelineOf(int32_t rank, const RoleMemory* memory) const;
  void AddHostSpans(int32_t rank, const RoleMemory* memory, Timeline& timeline) const;
  void AddTransferSpans(int32_t rank, Timeline& timeline) const;

  const StepSchedule& schedule_;
  std::vector<std::vector<Piece>> pieces_;         // by rank, of the segment in progress
  std::vector<Duration> item_starts_, item_ends_;  // of all ranks
  std::vector<Duration> starts_, ends_;            // of operators in queues, by queue and position
};

}  // namespace windtunnel
