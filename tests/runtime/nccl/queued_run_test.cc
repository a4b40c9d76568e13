// Expects that a device that runs behind the host computes the same as one that does not. The device here is
// late on purpose (queued_device.h), and its ranks communicate over the fake NCCL: a missing wait for an
// event shows as another loss.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "cost_models/cost_model.h"
#include "cost_models/fit.h"
#include "plan/plan.h"
#include "runtime/calibration.h"
#include "tests/plan/scenarios_for_tests.h"
#include "tests/runtime/in_process_ranks.h"
#include "tests/runtime/late_devices.h"
#include "tests/runtime/parallel_scenarios.h"
#include "tests/runtime/parity.h"

namespace windtunnel {
namespace {

Equipment Late(int microseconds = 200) {
  Equipment equipment = LateDevices(std::chrono::microseconds(microseconds));
  equipment.nccl = {std::string(getenv("FAKE_NCCL"))};
  return equipment;
}

// The scenario as compiled for a device with its own queues.
Scenario OnQueues(Scenario s) {
  s.cluster.device = "cuda";
  s.run.backend = Backend::kNccl;
  return s;
}

Scenario Sharded(Scenario s, DataParallelKind kind) {
  s.parallel.data.kind = kind;
  s.parallel.data.bucket_cap_mb = 0.02;
  return s;
}

class QueuedRunParity : public testing::TestWithParam<ParityCase> {};

TEST_P(QueuedRunParity, LossesAndWeightsAreThoseOfTheCpuDevice) {
  constexpr int kSteps = 4;
  Scenario s = GetParam().scenario;
  s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.02, .clip_norm = s.optimizer.clip_norm};
  const auto behind = CompilePlan(OnQueues(s)), beside = CompilePlan(s);
  ASSERT_TRUE(behind) << behind.error().message;
  ASSERT_TRUE(beside) << beside.error().message;
  const Equipment equipment = Late();
  const Trained late = Train(*behind, kSteps, &equipment), cpu = Train(*beside, kSteps);
  ASSERT_FALSE(HasFailure());
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(late.losses[step], cpu.losses[step], kParityTolerance * cpu.losses[step]) << "step " << step;
  ASSERT_EQ(late.weights.size(), cpu.weights.size());
  for (size_t i = 0; i < late.weights.size(); ++i)
    EXPECT_LT(NormWiseDifference(late.weights[i], cpu.weights[i]), kParityTolerance) << "parameter " << i;
}

constexpr auto kDdp = DataParallelKind::kDdp, kZero2 = DataParallelKind::kZero2,
               kFsdp = DataParallelKind::kFsdp;

// In several buckets.
Scenario Compressed(Scenario s) {
  s = Sharded(std::move(s), kDdp);
  s.parallel.data.bucket_cap_mb = 0.02;
  s.parallel.data.powersgd = PowerSgdSpec{.rank = 2};
  return s;
}

// Some parameters stay whole, some are fetched ahead, and some stay from forward to backward.
Scenario Zero3(Scenario s) {
  s = Sharded(std::move(s), DataParallelKind::kZero3);
  s.batch.accumulate = 2;
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  s.parallel.data.zero3 = {.prefetch_bucket_size = 3000,
                           .param_persistence_threshold = 40,
                           .max_live_parameters = 20'000,
                           .max_reuse_distance = 8000};
  return s;
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, QueuedRunParity,
    testing::Values(
        ParityCase{"OneRank", TinyGpt()}, ParityCase{"OneRankOfLlama", TinyLlama()},
        ParityCase{"Mlp", TinyMlp(2)}, ParityCase{"Ddp", Sharded(TinyGpt(2), kDdp)},
        ParityCase{"DdpAccumulatesAndClips", With(Sharded(TinyGpt(2), kDdp),
                                                  [](Scenario& s) {
                                                    s.batch.accumulate = 2;
                                                    s.optimizer.clip_norm = 0.5;
                                                  })},
        ParityCase{"PowerSgd", Compressed(TinyGpt(2))},
        ParityCase{"PowerSgdAsPytorchs",
                   With(Compressed(TinyGpt(3)), [](Scenario& s) { s.framework = Framework::kPytorch; })},
        ParityCase{"Zero2", Sharded(TinyGpt(2), kZero2)}, ParityCase{"Zero3", Zero3(TinyGpt(2))},
        ParityCase{"Zero3OfLlama", Zero3(TinyLlama(3))}, ParityCase{"Fsdp2", Sharded(TinyGpt(2), kFsdp)},
        ParityCase{"Fsdp2Prefetches", With(Sharded(TinyLlama(3), kFsdp),
                                           [](Scenario& s) { s.parallel.data.forward_prefetch = 1; })},
        ParityCase{"Fsdp1UnderPytorchsAllocator", With(Sharded(TinyGpt(2), kFsdp),
                                                       [](Scenario& s) {
                                                         s.parallel.data.version = 1;
                                                         s.allocator = AllocatorKind::kPytorch;
                                                       })},
        ParityCase{"HybridSharded", With(Sharded(TinyGpt(4), kFsdp),
                                         [](Scenario& s) {
                                           s.parallel.data.sharding = Sharding::kHybridShard;
                                           s.parallel.data.shard_size = 2;
                                         })},
        ParityCase{"Tensor", With(TinyGpt(),
                                  [](Scenario& s) {
                                    s.parallel.tensor.size = 2;
                                    s.parallel.tensor.sequence = true;
                                    s.cluster.devices_per_node = 2;
                                  })},
        ParityCase{"Pipeline", With(TinyGpt(),
                                    [](Scenario& s) {
                                      s.parallel.pipeline.size = 2;
                                      s.parallel.pipeline.schedule = "1f1b";
                                      s.batch = {.micro = 1, .accumulate = 4};
                                      s.cluster.devices_per_node = 2;
                                    })},
        ParityCase{"Context", With(TinyGpt(),
                                   [](Scenario& s) {
                                     s.model.attention = AttentionKind::kFlash;
                                     s.parallel.context.size = 2;
                                     s.cluster.devices_per_node = 2;
                                   })}),
    NameOf);

Scenario Offloading(Scenario s, DataParallelKind kind, Offload offload) {
  s = Sharded(std::move(s), kind);
  s.parallel.data.offload = offload;
  s.optimizer.clip_norm = 0.5;
  return s;
}

Scenario OffloadingActivations(Scenario s) {
  s.model.layers = 8;
  s.activation_offload = true;
  return s;
}

// The host works on what is offloaded to it while the device waits, and the other way round.
INSTANTIATE_TEST_SUITE_P(
    Offload, QueuedRunParity,
    testing::Values(
        ParityCase{"Fsdp2Parameters", Offloading(TinyGpt(2), kFsdp, Offload::kParam)},
        ParityCase{"Fsdp2ParametersOfLlama", Offloading(TinyLlama(3), kFsdp, Offload::kParam)},
        ParityCase{"Fsdp1ParametersAccumulating", With(Offloading(TinyGpt(2), kFsdp, Offload::kParam),
                                                       [](Scenario& s) {
                                                         s.parallel.data.version = 1;
                                                         s.batch.accumulate = 2;
                                                       })},
        ParityCase{"Activations", OffloadingActivations(TinyGpt(2))},
        ParityCase{"ActivationsOfStages", With(OffloadingActivations(TinyLlama(1)),
                                               [](Scenario& s) {
                                                 s.parallel.pipeline.size = 2;
                                                 s.parallel.pipeline.schedule = "zb_h1";
                                                 s.batch = {.micro = 2, .accumulate = 4};
                                                 s.cluster.devices_per_node = 2;
                                               })},
        ParityCase{"ActivationsRecomputed", With(OffloadingActivations(Sharded(TinyLlama(2), kFsdp)),
                                                 [](Scenario& s) {
                                                   s.recompute = Recompute::kFull;
                                                   s.batch.accumulate = 2;
                                                 })},
        ParityCase{"ActivationsBesideParameters",
                   With(OffloadingActivations(Sharded(TinyGpt(2), kFsdp)),
                        [](Scenario& s) { s.parallel.data.offload = Offload::kParam; })},
        ParityCase{"ActivationsUnderPytorchsAllocator",
                   With(OffloadingActivations(TinyLlama(2)),
                        [](Scenario& s) { s.allocator = AllocatorKind::kPytorch; })},
        ParityCase{"Zero3Parameters",
                   With(Zero3(TinyLlama(2)), [](Scenario& s) { s.parallel.data.offload = Offload::kParam; })},
        ParityCase{
            "Zero3Optimizer",
            With(Zero3(TinyGpt(3)), [](Scenario& s) { s.parallel.data.offload = Offload::kOptimizer; })},
        ParityCase{"Fsdp2Optimizer", Offloading(TinyGpt(2), kFsdp, Offload::kOptimizer)},
        ParityCase{"Zero1Optimizer", Offloading(TinyGpt(2), DataParallelKind::kZero1, Offload::kOptimizer)},
        ParityCase{"Zero2OptimizerUnderPytorchsAllocator",
                   With(Offloading(TinyGpt(2), kZero2, Offload::kOptimizer),
                        [](Scenario& s) { s.allocator = AllocatorKind::kPytorch; })},
        ParityCase{"TensorWithParameters", With(Offloading(TinyGpt(2), kFsdp, Offload::kParam),
                                                [](Scenario& s) {
                                                  s.parallel.tensor.size = 2;
                                                  s.parallel.tensor.sequence = true;
                                                  s.cluster.devices_per_node = 4;
                                                })}),
    NameOf);

Scenario InGraphs(Scenario s) {
  s.run.cuda_graphs = true;
  return s;
}

// Graphs are captured with the operands of one step and launched in later ones.
INSTANTIATE_TEST_SUITE_P(
    Graphs, QueuedRunParity,
    testing::Values(
        ParityCase{"OneRank", InGraphs(TinyGpt())},
        ParityCase{"OfMlpsAlone", With(InGraphs(Sharded(TinyLlama(2), kDdp)),
                                       [](Scenario& s) { s.run.cuda_graph_scope = {CudaGraphScope::kMlp}; })},
        ParityCase{"DdpAccumulatesAndClips", With(InGraphs(Sharded(TinyGpt(2), kDdp)),
                                                  [](Scenario& s) {
                                                    s.batch.accumulate = 2;
                                                    s.optimizer.clip_norm = 0.5;
                                                  })},
        ParityCase{"Zero2", InGraphs(Sharded(TinyGpt(2), kZero2))},
        ParityCase{"Fsdp2OfLlamaRecomputes", With(InGraphs(Sharded(TinyLlama(2), kFsdp)),
                                                  [](Scenario& s) { s.recompute = Recompute::kFull; })},
        ParityCase{"Fsdp1UnderPytorchsAllocator", With(InGraphs(Sharded(TinyGpt(2), kFsdp)),
                                                       [](Scenario& s) {
                                                         s.parallel.data.version = 1;
                                                         s.allocator = AllocatorKind::kPytorch;
                                                       })},
        ParityCase{"Fsdp2Parameters", InGraphs(Offloading(TinyGpt(2), kFsdp, Offload::kParam))},
        ParityCase{"Pipeline", With(InGraphs(TinyGpt()),
                                    [](Scenario& s) {
                                      s.parallel.pipeline.size = 2;
                                      s.parallel.pipeline.schedule = "1f1b";
                                      s.batch = {.micro = 1, .accumulate = 4};
                                      s.cluster.devices_per_node = 2;
                                    })}),
    NameOf);

TEST(QueuedRun, GraphsChangeNoBitOfALoss) {
  for (const Scenario& s :
       {TinyGpt(), Sharded(TinyLlama(2), kFsdp), Dropping(TinyGpt()),
        With(TinyLlama(),
             [](Scenario& s) {
               s.model.attention = AttentionKind::kFlash;
               s.model.lora = LoraSpec{.rank = 2, .dropout = 0.3};
             }),
        With(Dropping(TinyGpt()), [](Scenario& s) { s.model.attention = AttentionKind::kFlash; })}) {
    const Equipment equipment = Late(50);
    const Trained alone = Train(*CompilePlan(OnQueues(s)), 6, &equipment),
                  together = Train(*CompilePlan(OnQueues(InGraphs(s))), 6, &equipment);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(alone.losses, together.losses);
    EXPECT_TRUE(alone.weights == together.weights);
  }
}

// Losses of steps in which collectives are imitated, as when operators are measured.
std::vector<double> ImitatedLosses(const Plan& plan, const ExecutionMode& mode, const Equipment* equipment) {
  constexpr int kSteps = 4;
  std::vector<double> losses(kSteps);
  WithRanks(
      plan,
      [&](RankSession& session, Store&) -> Status {
        for (int i = 0; i < 2; ++i) WT_RETURN_IF_ERROR(session.Step());
        for (int i = 0; i < kSteps; ++i) {
          WT_RETURN_IF_ERROR(session.executor().Run(session.executor().role().steady, 2 + i, mode));
          WT_ASSIGN_OR_RETURN(const std::vector<double> mean, session.executor().Losses());
          if (session.rank() == 0) losses[i] = mean.at(0);
        }
        return Ok();
      },
      equipment);
  return losses;
}

// An imitated all-gather begins when the copy stream has made its shard, and who reads the result comes
// behind it.
TEST(QueuedRun, ImitatesCollectivesInTheOrderOfTheStep) {
  for (const DataParallelKind kind : {kFsdp, DataParallelKind::kZero3}) {
    Scenario s = kind == kFsdp ? Sharded(TinyLlama(2), kFsdp) : Zero3(TinyLlama(2));
    s.precision = {.param = Precision::kBf16, .compute = Precision::kBf16, .reduce = Precision::kFp32};
    s.optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.02};
    const Equipment equipment = Late();
    const ExecutionMode none{.communication = ExecutionMode::Communication::kNone};
    ExecutionMode busy = none;
    busy.keep_busy = true;
    const std::vector<double> cpu = ImitatedLosses(*CompilePlan(s), none, nullptr),
                              late = ImitatedLosses(*CompilePlan(OnQueues(s)), none, &equipment),
                              behind_spins = ImitatedLosses(*CompilePlan(OnQueues(s)), busy, &equipment);
    for (size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_NEAR(late[i], cpu[i], 1e-3 * cpu[i]) << "step " << i;
      EXPECT_NEAR(behind_spins[i], cpu[i], 1e-3 * cpu[i]) << "step " << i;
    }
  }
}

// From the third step of a program on, all graphs are launched, because memory lies as in the step before.
TEST(QueuedRun, LaunchesGraphsInSteadySteps) {
  const Plan plan = *CompilePlan(OnQueues(InGraphs(Sharded(TinyGpt(2), kFsdp))));
  const Equipment equipment = Late();
  WithRanks(
      plan,
      [&](RankSession& session, Store&) -> Status {
        const Role& role = session.executor().role();
        std::vector<int32_t> sizes;
        for (const Op& op : role.steady.ops)
          if (op.graph > 0) sizes.push_back(op.graph);
        EXPECT_GT(sizes.size(), 4u);
        for (size_t step = 0; step < role.startup.size() + 6; ++step) WT_RETURN_IF_ERROR(session.Step(false));
        std::vector<int32_t> launched;
        for (const Executor::GraphTime& graph : session.executor().graph_times()) {
          launched.push_back(graph.operators);
          EXPECT_GT(graph.host, Duration());
        }
        EXPECT_EQ(launched, sizes);
        // A step with spans launches operators one by one.
        WT_RETURN_IF_ERROR(session.Step(true));
        EXPECT_TRUE(session.executor().graph_times().empty());
        return Ok();
      },
      &equipment);
}

// Moments are on the host, 16-bit parameters on the device, and the loss scale overflows at first. The
// overflow flag and the scale are on the device.
TEST(QueuedRun, OffloadedAdamSkipsTheStepsThatTheCpuDeviceSkips) {
  constexpr int kSteps = 8;
  for (const auto& [kind, offload] :
       {std::pair{kFsdp, Offload::kParam}, std::pair{kFsdp, Offload::kOptimizer},
        std::pair{kZero2, Offload::kOptimizer}}) {
    Scenario s = Offloading(TinyGpt(2), kind, offload);
    s.optimizer.kind = OptimizerKind::kAdamW;
    s.optimizer.lr = 1e-3;
    s.precision.param = s.precision.compute = Precision::kFp16;
    s.precision.loss_scale = LossScale::kDynamic;
    s.precision.init_scale = 524'288;
    struct Told {
      std::vector<double> losses;
      LossScaleState scale;
    };
    const auto train = [&](const Scenario& scenario, const Equipment* equipment) {
      const Plan plan = *CompilePlan(scenario);
      Told told;
      WithRanks(
          plan,
          [&](RankSession& session, Store&) -> Status {
            for (int step = 0; step < kSteps; ++step) {
              WT_RETURN_IF_ERROR(session.Step());
              if (session.rank() == 0) told.losses.push_back(session.executor().Losses().value().front());
            }
            if (session.rank() == 0) told.scale = *session.executor().LossScale().value();
            return Ok();
          },
          equipment);
      return told;
    };
    const Equipment equipment = Late();
    const Told late = train(OnQueues(s), &equipment), cpu = train(s, nullptr);
    ASSERT_FALSE(HasFailure());
    EXPECT_GT(cpu.scale.skipped_steps, 0);
    EXPECT_LT(cpu.scale.skipped_steps, kSteps - 2);
    EXPECT_EQ(late.scale.skipped_steps, cpu.scale.skipped_steps);
    EXPECT_EQ(late.scale.scale, cpu.scale.scale);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(late.losses[step], cpu.losses[step], 1e-3 * cpu.losses[step]) << "step " << step;
    EXPECT_NE(cpu.losses.back(), cpu.losses.front());
  }
}

// Spans have the device's times, and the host's for operators that the host runs itself.
class Spans : public testing::TestWithParam<Scenario> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Spans,
                         testing::Values(Sharded(TinyGpt(2), kDdp),
                                         Offloading(TinyGpt(2), kFsdp, Offload::kOptimizer)));

TEST_P(Spans, EveryOperatorHasOneWithinTheStep) {
  const Plan plan = *CompilePlan(OnQueues(GetParam()));
  const Equipment equipment = Late();
  WithRanks(
      plan,
      [&](RankSession& session, Store&) -> Status {
        WT_RETURN_IF_ERROR(session.Step());
        WT_RETURN_IF_ERROR(session.Step());
        WT_ASSIGN_OR_RETURN(const Timeline timeline, session.Step());
        const Program& program = session.executor().role().steady;
        std::vector<int> spans(program.ops.size(), 0);
        OpIndex before = -1;
        for (const Span& span : timeline.spans) {
          ++spans[span.op];
          if (span.stream == kComputeStream) {
            EXPECT_GT(span.op, std::exchange(before, span.op));
          }
          EXPECT_LE(span.start, span.end);
          EXPECT_LE(span.end, timeline.end);
        }
        for (size_t i = 0; i < program.ops.size(); ++i) EXPECT_EQ(spans[i], 1) << program.ops[i].name;
        EXPECT_FALSE(timeline.host_computes);
        const StepBreakdown b = BreakDown(timeline, session.executor().role(), program);
        EXPECT_EQ(b.compute + b.exposed_communication + b.bubble + b.host, b.step);
        EXPECT_FALSE(session.executor().host_times().empty());
        return Ok();
      },
      &equipment);
}

TEST(QueuedRun, WithoutSpansOnlyTheEndIsKnown) {
  const Plan plan = *CompilePlan(OnQueues(TinyGpt()));
  const Equipment equipment = Late();
  WithRanks(
      plan,
      [&](RankSession& session, Store&) -> Status {
        WT_ASSIGN_OR_RETURN(const Timeline timeline, session.Step(false));
        EXPECT_TRUE(timeline.spans.empty());
        EXPECT_GT(timeline.end, Duration());
        return Ok();
      },
      &equipment);
}

// The memory report does not depend on what runs the program.
TEST(QueuedRun, PeaksAreThoseOfTheProgram) {
  const Plan plan = *CompilePlan(OnQueues(Sharded(TinyGpt(2), kFsdp)));
  const Equipment equipment = Late(0);
  std::vector<MemoryPeak> peaks(2);
  WithRanks(
      plan,
      [&](RankSession& session, Store&) -> Status {
        for (int i = 0; i < 3; ++i) WT_RETURN_IF_ERROR(session.Step());
        peaks[session.rank()] = session.steady_peak();
        return Ok();
      },
      &equipment);
  EXPECT_GT(peaks[0].allocated, Bytes(0));
  EXPECT_EQ(peaks[0].allocated, peaks[1].allocated);
}

// The measuring loops, on a device to which the host only issues work.
struct Calibrated {
  const char* name;
  Offload offload = Offload::kNone;
  bool graphs = false;
};
class Calibration : public testing::TestWithParam<Calibrated> {};
INSTANTIATE_TEST_SUITE_P(Devices, Calibration,
                         testing::Values(Calibrated{"Plain"},
                                         Calibrated{"OffloadsParameters", Offload::kParam},
                                         Calibrated{"OffloadsTheOptimizer", Offload::kOptimizer},
                                         Calibrated{"Graphs", Offload::kNone, true},
                                         Calibrated{"GraphsBesideAHostThatWorks", Offload::kOptimizer, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Calibration, MeasuresTheDeviceAndTheHost) {
  Scenario s = OnQueues(Sharded(TinyGpt(2), kFsdp));
  s.parallel.data.offload = GetParam().offload;
  s.run.cuda_graphs = GetParam().graphs;
  s.optimizer.clip_norm = 1;
  const Plan plan = *CompilePlan(s);
  const Equipment equipment = Late(20);
  std::vector<CalibrationSamples> samples(2);
  WithRanks(
      plan,
      [&](RankSession& session, Store& store) -> Status {
        for (int i = 0; i < 3; ++i) WT_RETURN_IF_ERROR(session.Step());
        WT_ASSIGN_OR_RETURN(samples[session.rank()],
                            MeasureCosts(session, store, {.rounds = 2, .seconds = 0.2}));
        return Ok();
      },
      &equipment);
  ASSERT_FALSE(HasFailure());
  ASSERT_FALSE(samples[0].collectives.empty());
  Profile profile;
  profile.name = "late";
  profile.device = "cuda";
  FitSamples(samples, "nccl", 2, profile);
  EXPECT_TRUE(FindMissingCosts(profile, plan).empty());
  for (const Op& op : plan.roles[0].steady.ops) {
    if (op.on_host) {
      EXPECT_TRUE(samples[0].kernels.contains(CostKey(op.kind) + " on_host")) << op.name;
    }
  }
  EXPECT_EQ(std::any_of(profile.kernels.begin(), profile.kernels.end(),
                        [](const KernelEntry& entry) { return entry.key.starts_with("graph_launch "); }),
            GetParam().graphs);
  for (const CollectiveEntry& entry : profile.collectives) {
    EXPECT_GT(entry.time.p50(), Duration()) << entry.op;
    EXPECT_LT(entry.time.p50(), Milliseconds(100)) << entry.op;
  }
  // Measurements of one process suffice to predict ranks that each have their own device.
  const auto model = MakeProfileCostModel(profile, plan);
  EXPECT_FALSE(model->host_computes());
  EXPECT_EQ(model->cores_per_node(), 0);
}

}  // namespace
}  // namespace windtunnel
