// Properties that hold for every program, tested on random ones.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "sim/executor.h"
#include "sim/step_costs.h"
#include "tests/sim/fixtures.h"

namespace windtunnel {
namespace {

using testing::FakeCosts;
using testing::kData;
using testing::kOther;
using testing::PlanBuilder;

// A program of up to 12 operators that all ranks run; communication may be awaited by any later operator.
Plan RandomPlan(int ranks) {
  PlanBuilder b(ranks);
  std::vector<OpIndex> issued;
  const int ops = *rc::gen::inRange(1, 13);
  for (int i = 0; i < ops; ++i) {
    std::vector<OpIndex> dependencies;
    for (OpIndex op : issued) {
      if (*rc::gen::inRange(0, 4) == 0) dependencies.push_back(op);
    }
    const int64_t time = *rc::gen::inRange(0, 9);
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        issued.push_back(b.Collective(fmt::format("c{}", i), time, dependencies, kData));
        break;
      case 1:
        issued.push_back(b.Collective(fmt::format("c{}", i), time, dependencies, kOther));
        break;
      default:
        b.Kernel(fmt::format("k{}", i), time, dependencies);
    }
  }
  return b.Build();
}

// With a host that computes, or with one that only issues, where no cores are shared.
StepSchedule RandomSchedule(const Plan& plan) {
  const HostRole host = *rc::gen::element(HostRole::kComputes, HostRole::kIssues);
  return MakeStepSchedule(plan, {.host = host}).value();
}

FakeCosts RandomSharing(int cores) {
  FakeCosts costs;
  costs.cores = cores;
  costs.sharing.core_share = *rc::gen::inRange(0, 9) / 8.0;
  costs.sharing.weight = *rc::gen::inRange(1, 9) / 4.0;
  costs.sharing.compute_efficiency = *rc::gen::inRange(4, 9) / 8.0;
  return costs;
}

// Every rank's own time for every kernel, in whole microseconds.
StepWork RandomWork(const StepSchedule& schedule) {
  StepWork work;
  for (int32_t i = 0; i < schedule.items; ++i) work.items.push_back(Microseconds(*rc::gen::inRange(0, 9)));
  for (size_t i = 0; i < schedule.transfers.size(); ++i)
    work.transfers.push_back(Microseconds(*rc::gen::inRange(0, 9)));
  return work;
}

Duration StepTime(const StepSchedule& schedule, const StepWork& work, const FakeCosts& costs) {
  const std::vector<TransferTraits> traits(
      schedule.transfers.size(),
      {costs.sharing.core_share, costs.sharing.weight, costs.sharing.compute_efficiency});
  const int cores = schedule.host == HostRole::kComputes ? costs.cores : 0;
  StepExecutor executor(schedule, {cores, schedule.plan->world_size}, traits);
  return executor.Run(work, nullptr).value();
}

// The most work in one queue: of a rank's host, or of a stream's operators. A queue runs one piece after the
// other, at most at speed 1.
Duration LongestQueue(const StepSchedule& schedule, const StepWork& work) {
  Duration longest;
  for (const RankLayout& rank : schedule.ranks) {
    Duration host;
    for (size_t i = 0; i < schedule.roles[rank.role].items.size(); ++i)
      host += work.items[rank.first_item + i];
    longest = std::max(longest, host);
  }
  for (const RankQueue& queue : schedule.queues) {
    Duration stream;
    for (int32_t i = 0; i < queue.size; ++i) {
      stream += work.transfers[schedule.transfer_of_position[queue.first_transfer + i]];
    }
    longest = std::max(longest, stream);
  }
  return longest;
}

RC_GTEST_PROP(ExecutorProperties, IsNeverFasterThanItsLongestQueue, ()) {
  const Plan plan = RandomPlan(*rc::gen::inRange(1, 5));
  const StepSchedule schedule = RandomSchedule(plan);
  const StepWork work = RandomWork(schedule);
  RC_ASSERT(StepTime(schedule, work, RandomSharing(*rc::gen::inRange(0, 4))) >= LongestQueue(schedule, work));
}

// Without sharing, a step is a longest path, and no path gets shorter. (With sharing this need not hold: a
// slower kernel may leave a core to a collective that everything waits for.)
RC_GTEST_PROP(ExecutorProperties, IsMonotoneInCostsWithoutSharing, ()) {
  const Plan plan = RandomPlan(*rc::gen::inRange(1, 5));
  const StepSchedule schedule = RandomSchedule(plan);
  const StepWork work = RandomWork(schedule);
  StepWork more = work;
  for (Duration& time : more.items) time += Microseconds(*rc::gen::inRange(0, 3));
  for (Duration& time : more.transfers) time += Microseconds(*rc::gen::inRange(0, 3));
  RC_ASSERT(StepTime(schedule, more, {}) >= StepTime(schedule, work, {}));
}

RC_GTEST_PROP(ExecutorProperties, SharingNeverSpeedsAStepUp, ()) {
  const Plan plan = RandomPlan(*rc::gen::inRange(1, 5));
  const StepSchedule schedule = RandomSchedule(plan);
  const StepWork work = RandomWork(schedule);
  RC_ASSERT(StepTime(schedule, work, RandomSharing(1)) >= StepTime(schedule, work, {}));
}

// Of two cores, ranks r and r + 2 share one. Swapping the work of two ranks that share a core, or of two
// cores, changes only names.
RC_GTEST_PROP(ExecutorProperties, IsInvariantUnderRenamingOfRanks, ()) {
  const Plan plan = RandomPlan(4);
  const StepSchedule schedule = MakeStepSchedule(plan).value();
  const StepWork work = RandomWork(schedule);
  const auto new_name =
      *rc::gen::element(std::vector{2, 1, 0, 3}, std::vector{1, 0, 3, 2}, std::vector{3, 2, 1, 0});
  StepWork renamed = work;
  const int32_t items = schedule.items / 4;
  for (int rank = 0; rank < 4; ++rank) {
    std::copy_n(work.items.begin() + rank * items, items, renamed.items.begin() + new_name[rank] * items);
  }
  FakeCosts costs = RandomSharing(2);
  RC_ASSERT(StepTime(schedule, renamed, costs) == StepTime(schedule, work, costs));
}

RC_GTEST_PROP(ExecutorProperties, TimelinesFillTheirStreamsInOrder, ()) {
  const Plan plan = RandomPlan(*rc::gen::inRange(1, 5));
  const StepSchedule schedule = RandomSchedule(plan);
  const StepWork work = RandomWork(schedule);
  const FakeCosts costs = RandomSharing(*rc::gen::inRange(0, 3));
  const std::vector<TransferTraits> traits(
      schedule.transfers.size(),
      {costs.sharing.core_share, costs.sharing.weight, costs.sharing.compute_efficiency});
  StepRecording recording(schedule);
  const int cores = schedule.host == HostRole::kComputes ? costs.cores : 0;
  const Duration step =
      StepExecutor(schedule, {cores, plan.world_size}, traits).Run(work, &recording).value();
  Duration latest;
  for (const Timeline& timeline : recording.Timelines({})) {
    std::vector<Duration> free_at(plan.roles[0].streams.size());
    RC_ASSERT(timeline.spans.size() == plan.roles[0].steady.ops.size());
    for (const Span& span : timeline.spans) {
      RC_ASSERT(span.start >= free_at[span.stream]);
      RC_ASSERT(span.end >= span.start);
      free_at[span.stream] = span.end;
    }
    latest = std::max(latest, timeline.end);
  }
  RC_ASSERT(latest == step);
}

}  // namespace
}  // namespace windtunnel
