#include <gtest/gtest.h>

#include "plan/buffer_pool.h"
#include "plan/plan.h"
#include "runtime/assemble.h"
#include "tests/base/sanitizers.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"

namespace windtunnel {
namespace {

// Runs the program's memory operations over virtual memory, by the same policy, and returns the pool's peak.
MemoryPeak VirtualPeak(const Role& role, BufferPool& pool, const Program& program) {
  for (const MemoryOp& op : program.memory) EXPECT_TRUE(pool.Execute(program, op));
  pool.FinishProgram();
  EXPECT_FALSE(role.buffers.empty());
  return pool.peak();
}

TEST(RankSession, PeaksAreThoseOfTheProgramsOverVirtualMemory) {
  for (const Scenario& s : {TinyGpt(2), TinyLlama(1), TinyMlp(2)}) {
    const Plan plan = *CompilePlan(s);
    const Role& role = plan.roles[0];
    VirtualSegmentSource source;
    BufferPool pool(role.buffers, &source);
    VirtualPeak(role, pool, role.initialize);
    for (const Program& program : role.startup) VirtualPeak(role, pool, program);
    const MemoryPeak initial = pool.peak();
    pool.ResetPeak();
    const MemoryPeak steady = VirtualPeak(role, pool, role.steady);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      for (int step = 0; step < 5; ++step) WT_RETURN_IF_ERROR(session.Step());
      EXPECT_EQ(session.initial_peak().allocated, initial.allocated) << s.name;
      EXPECT_EQ(session.steady_peak().allocated, steady.allocated) << s.name;
      EXPECT_EQ(session.steady_peak().reserved, steady.reserved) << s.name;
      return Ok();
    });
  }
}

// The policy's choices must not depend on where the memory lies.
TEST(RankSession, ReservesWhatTheSimulatedAllocatorDoesUnderEveryPolicy) {
  for (AllocatorKind allocator :
       {AllocatorKind::kWindtunnel, AllocatorKind::kPytorch, AllocatorKind::kPytorchExpandable}) {
    // Expandable segments reserve a terabyte of addresses, for which ThreadSanitizer leaves no room.
    if (kHasThreadSanitizer && allocator == AllocatorKind::kPytorchExpandable) continue;
    Plan plan = *CompilePlan(TinyGpt(2));
    plan.scenario.allocator = allocator;
    const Role& role = plan.roles[0];
    VirtualSegmentSource source;
    BufferPool pool(role.buffers, MemorySetup{.device = &source, .host = &source, .allocator = allocator});
    VirtualPeak(role, pool, role.initialize);
    for (const Program& program : role.startup) VirtualPeak(role, pool, program);
    pool.ResetPeak();
    const MemoryPeak simulated = VirtualPeak(role, pool, role.steady);
    WithRanks(plan, [&](RankSession& session, Store&) -> Status {
      for (int step = 0; step < 4; ++step) WT_RETURN_IF_ERROR(session.Step());
      EXPECT_EQ(session.steady_peak().allocated, simulated.allocated);
      EXPECT_EQ(session.steady_peak().reserved, simulated.reserved);
      EXPECT_EQ(session.steady_peak().allocated_at_reserved, simulated.allocated_at_reserved);
      EXPECT_EQ(session.steady_peak().largest_unserved, simulated.largest_unserved);
      return Ok();
    });
  }
}

TEST(RankSession, TimelinesCoverEveryOperatorOnce) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  WithRanks(plan, [&](RankSession& session, Store&) -> Status {
    for (int step = 0; step < 2; ++step) WT_RETURN_IF_ERROR(session.Step());
    WT_ASSIGN_OR_RETURN(Timeline timeline, session.Step());
    const Program& program = plan.roles[0].steady;
    std::vector<int> spans(program.ops.size(), 0);
    for (const Span& span : timeline.spans) {
      ++spans[span.op];
      EXPECT_LE(span.start, span.end);
      EXPECT_LE(span.end, timeline.end);
    }
    for (size_t i = 0; i < program.ops.size(); ++i) EXPECT_EQ(spans[i], 1) << program.ops[i].name;
    const StepBreakdown b = BreakDown(timeline, plan.roles[0], program);
    EXPECT_EQ(b.compute + b.exposed_communication + b.bubble + b.host, b.step);
    return Ok();
  });
}

TEST(CheckRunsHere, SaysWhichDeviceIsMissing) {
  if (IsAtHand("cuda")) GTEST_SKIP() << "skipped: there is a CUDA device";
  Scenario s = TinyGpt();
  s.cluster.device = "cuda";
  EXPECT_EQ(CheckRunsHere(*CompilePlan(s)).error().message, "cluster.device: no CUDA device was found");
}

TEST(CheckRunsHere, SaysWhereDropoutRuns) {
  Scenario s = TinyGpt();
  s.model.dropout = 0.1;
  EXPECT_TRUE(CheckRunsHere(*CompilePlan(s)));
  s.framework = Framework::kPytorch;
  EXPECT_EQ(
      CheckRunsHere(*CompilePlan(s)).error().message,
      "model.dropout with framework: pytorch is predicted only; live runs of it have framework: windtunnel");
}

TEST(CheckRunsHere, SaysThatOptimizersUpdateInFp32) {
  Scenario s = TinyGpt();
  s.precision.param = s.precision.compute = Precision::kBf16;
  EXPECT_TRUE(CheckRunsHere(*CompilePlan(s)));
  s.precision.optimizer = Precision::kBf16;
  EXPECT_EQ(CheckRunsHere(*CompilePlan(s)).error().message,
            "precision.optimizer: bf16 is predicted only; live runs update fp32 parameters or masters");
}

RankRun RunOf(int rank, const std::vector<double>& ends_ms, double loss, int64_t most = 100) {
  RankRun run;
  run.losses = {loss};
  for (double end : ends_ms)
    run.measured.Add(Timeline{.rank = rank, .end = Milliseconds(end), .spans = {}, .memory = {}}, most);
  return run;
}

TEST(Assemble, AStepTakesAsLongAsItsSlowestRank) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  auto result = Assemble(plan, {RunOf(0, {3, 1, 2}, 1.0), RunOf(1, {1, 2, 5}, 2.0)});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->step_times, (std::vector<Duration>{Milliseconds(3), Milliseconds(2), Milliseconds(5)}));
  EXPECT_EQ(result->losses, std::vector<double>{1.5});
  // The median step is the first one, 3 ms.
  EXPECT_EQ(result->timelines[0].end, Milliseconds(3));
  EXPECT_EQ(result->timelines[1].end, Milliseconds(1));
  // Of three steps all are in the middle half. They take 3, 2 and 5 ms, 3.33 in the mean, and are scaled to
  // 3. Each rank leaves the barrier before the other in some: 0, 1 and 3 ms before it, and 2, 0 and 0.
  const auto ms = [](Duration time) { return time / Milliseconds(1); };
  const auto sum = [&](const StepBreakdown& b) {
    return ms(b.compute + b.exposed_communication + b.bubble + b.host);
  };
  EXPECT_NEAR(sum(result->breakdown), 3, 1e-6);
  EXPECT_NEAR(ms(result->breakdown.exposed_communication), 0.9, 1e-6);
  ASSERT_EQ(result->by_rank.size(), 2u);
  EXPECT_NEAR(ms(result->by_rank[0].parts.exposed_communication), 0.9 * 4 / 3, 1e-6);
  EXPECT_NEAR(ms(result->by_rank[1].parts.exposed_communication), 0.9 * 2 / 3, 1e-6);
  for (const RankBreakdown& r : result->by_rank) EXPECT_NEAR(sum(r.parts), 3, 1e-6);
}

// The median of an even number of steps lies between two of them, and so do its parts.
TEST(Assemble, PartsAddUpToTheMedianOfAnEvenNumberOfSteps) {
  const Plan plan = *CompilePlan(TinyGpt());
  const auto result = Assemble(plan, {RunOf(0, {1, 2, 4, 9}, 1.0)});
  ASSERT_TRUE(result);
  const StepBreakdown& b = result->breakdown;
  EXPECT_EQ(b.step, Milliseconds(3));
  EXPECT_NEAR(ToSeconds(b.compute + b.exposed_communication + b.bubble + b.host), 0.003, 1e-11);
}

// A step of 10 ms takes 10.004 ms when its four kernels are timed, and the loss's 3 us take 4: timing costs
// each kernel a microsecond, which is taken off.
TEST(Assemble, TakesOffWhatTimingKernelsTook) {
  const Plan plan = *CompilePlan(TinyGpt());
  const Program& program = plan.roles[0].steady;
  std::vector<OpIndex> kernels;
  for (OpIndex i = 0; i < static_cast<OpIndex>(program.ops.size()) && kernels.size() < 3; ++i)
    if (std::holds_alternative<Gemm>(program.ops[i].kind)) kernels.push_back(i);
  for (OpIndex i = 0; i < static_cast<OpIndex>(program.ops.size()); ++i)
    if (std::holds_alternative<CrossEntropy>(program.ops[i].kind)) kernels.push_back(i);
  ASSERT_EQ(kernels.size(), 4u);
  RankRun run = RunOf(0, {10, 10, 10}, 1.0);
  Timeline traced;
  traced.end = Microseconds(10004);
  traced.host_computes = false;
  Duration now;
  for (const OpIndex kernel : kernels) {
    const Duration end = kernel == kernels.back() ? traced.end : now + Microseconds(3333);
    traced.spans.push_back(
        {kernel, kComputeStream, kernel == kernels.back() ? traced.end - Microseconds(4) : now, end});
    now = end;
  }
  for (int step = 0; step < 3; ++step) run.traced.Add(traced, 5);
  const auto result = Assemble(plan, {run});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->by_operator.at("gemm"), Microseconds(3 * 3332));
  EXPECT_EQ(result->by_operator.at("loss"), Microseconds(3));
  EXPECT_EQ(result->breakdown.compute, Microseconds(3 * 3332 + 3));
  EXPECT_EQ(result->breakdown.step, Milliseconds(10));
}

// At most four timelines of the eight steps are kept, those of every second step: 8, 6, 4 and 2 ms. All step
// times count.
TEST(Assemble, ReportsAMedianStepOfThoseThatWereKept) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  const std::vector<double> ends = {8, 7, 6, 5, 4, 3, 2, 1};
  auto result = Assemble(plan, {RunOf(0, ends, 1.0, 4), RunOf(1, ends, 1.0, 4)});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->step_times.size(), 8u);
  EXPECT_EQ(result->step_times[7], Milliseconds(1));
  EXPECT_EQ(result->timelines[0].end, Milliseconds(4));
}

TEST(TimedSteps, KeepTimelinesOfStepsEquallyFarApart) {
  TimedSteps steps;
  for (int i = 0; i < 1000; ++i)
    steps.Add(Timeline{.rank = i, .end = Milliseconds(i), .spans = {}, .memory = {}}, 6);
  ASSERT_EQ(steps.times.size(), 1000u);
  EXPECT_EQ(steps.times[999], Milliseconds(999));
  EXPECT_GE(steps.timelines.size(), 3u);
  EXPECT_LE(steps.timelines.size(), 6u);
  for (size_t i = 0; i < steps.timelines.size(); ++i)
    EXPECT_EQ(steps.timelines[i].end, steps.times[i * static_cast<size_t>(steps.stride)]) << i;
}

TEST(TimedSteps, AreTheFewerTheMoreOperatorsAStepHas) {
  Scenario s = TinyGpt();
  const int64_t few = KeptTimelines(*CompilePlan(s));
  s.model.layers *= 4;
  const int64_t fewer = KeptTimelines(*CompilePlan(s));
  EXPECT_GT(few, 200);
  EXPECT_LT(fewer, few);
  s.batch.accumulate = 1 << 12;
  EXPECT_EQ(KeptTimelines(*CompilePlan(s)), 32);
}

TEST(Assemble, RefusesRanksThatDisagree) {
  const Plan plan = *CompilePlan(TinyGpt(2));
  EXPECT_FALSE(Assemble(plan, {RunOf(0, {1}, 1.0), RunOf(1, {1, 2}, 1.0)}));
}

TEST(Job, ResultsSurviveTheStore) {
  RankRun run = RunOf(3, {1, 2}, 0.5);
  run.measured.timelines[0].spans = {{7, 1, Microseconds(1), Microseconds(2)}};
  run.measured.timelines[1].memory = {{2, Microseconds(3), Bytes(512), MiB(2)}};
  run.steady.allocated = MiB(5);
  run.steady.by_category[1] = MiB(4);
  run.steady.host_allocated = MiB(6);
  run.steady.allocated_at_reserved = MiB(3);
  run.steady.largest_unserved = MiB(2);
  run.steady.host_by_category[2] = MiB(6);
  run.resident_growth = MiB(9);
  run.losses = {3, 2};
  run.mtp_losses = {5, 6, 4, 5};
  const RankRun copy = *ParseRankRun(Serialize(run));
  EXPECT_EQ(copy.losses, run.losses);
  EXPECT_EQ(copy.mtp_losses, run.mtp_losses);
  EXPECT_EQ(copy.measured.timelines[0].spans[0].op, 7);
  EXPECT_EQ(copy.measured.timelines[0].spans[0].end, Microseconds(2));
  EXPECT_EQ(copy.measured.timelines[1].memory[0].reserved, MiB(2));
  EXPECT_EQ(copy.steady.by_category[1], MiB(4));
  EXPECT_EQ(copy.steady.host_allocated, MiB(6));
  EXPECT_EQ(copy.steady.allocated_at_reserved, MiB(3));
  EXPECT_EQ(copy.steady.largest_unserved, MiB(2));
  EXPECT_EQ(copy.steady.host_by_category[2], MiB(6));
  EXPECT_EQ(copy.resident_growth, MiB(9));
  EXPECT_FALSE(ParseRankRun("garbage"));
}

}  // namespace
}  // namespace windtunnel
