// The composed evaluator agrees with Predict on pipelines: stages, messages and schedules.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/composed/composed_step.h"
#include "tests/sim/composed_step_testing.h"
#include "tests/sim/datasheets.h"

namespace windtunnel {
namespace {

TEST(ComposedPipeline, IsPredictInPipelines) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.search.emplace();
    s.search->pipeline = {2, 4, 8};
    s.search->virtual_stages = {1, 2, 4};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->overlap = {true, false};
    ExpectSameInSpace(s);
  }
}

// Steps that differ in their reductions alone go the same way up to the first of these, which is done once; not
// so if parameters come with the first forwards.
TEST(ComposedPipeline, IsPredictWhereStepsShareTheirBeginning) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kMegatron}) {
    for (const int virtual_stages : {1, 2}) {
      Scenario s = Base(/*wide=*/true);
      s.framework = framework;
      s.batch.accumulate = 32;
      s.parallel.data = {.kind = DataParallelKind::kZero1, .size = 2};
      s.parallel.pipeline = {.size = 4, .schedule = virtual_stages == 1 ? "1f1b" : "interleaved"};
      s.parallel.pipeline.virtual_stages = virtual_stages;
      s.parallel.pipeline.balance.assign(4 * virtual_stages, 2 / virtual_stages);
      ComposedSteps steps;
      for (const auto& [overlap, gathers] :
           {std::pair(true, false), {false, false}, {true, true}, {true, false}}) {
        s.parallel.data.overlap = overlap;
        s.parallel.data.overlap_param_gather = gathers;
        ExpectSame(steps, s,
                   fmt::format("{} stages, overlap {}, gathers {}", virtual_stages, overlap, gathers));
      }
      s.recompute = Recompute::kFull;
      ExpectSame(steps, s, "recomputed");
    }
  }
}

// Some messages stay on a node, others leave it.
TEST(ComposedPipeline, IsPredictWithSeveralStagesOnANode) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.cluster.nodes = 2;
    s.cluster.devices_per_node = 4;
    s.search.emplace();
    s.search->tensor = {1, 2};
    s.search->pipeline = {2, 4, 8};
    s.search->virtual_stages = {1, 2};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    ExpectSameInSpace(s);
  }
}

// Megatron's --overlap-param-gather: first forwards wait for buckets. A bucket may have several layers, or a
// layer several buckets.
TEST(ComposedPipeline, IsPredictWhereValuesComeWithTheForward) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kMegatronCore}) {
    for (bool wide : {false, true}) {
      for (double bucket : {0.1, 25.0, 500.0}) {
        Scenario s = Base(wide);
        s.framework = framework;
        s.model.tie_embeddings = true;
        s.parallel.data.kind = DataParallelKind::kZero1;
        s.parallel.data.overlap_param_gather = true;
        s.parallel.data.bucket_cap_mb = bucket;
        s.search.emplace();
        s.search->tensor = {1, 2};
        s.search->pipeline = {1, 2, 4};
        s.search->virtual_stages = {1, 2};
        s.search->micro = {1, 4};
        ExpectSameInSpace(s);
      }
    }
  }
}

// What is cached for one balance serves others that have the same number of layers on a rank.
TEST(ComposedPipeline, IsPredictWhereStagesHaveMoreLayersThanOthers) {
  for (bool wide : {false, true}) {
    for (DataParallelKind kind : {DataParallelKind::kDdp, DataParallelKind::kZero1}) {
      ComposedSteps steps;
      for (const std::vector<int64_t>& balance : {std::vector<int64_t>{3, 5},
                                                  {2, 2, 2, 2},
                                                  {5, 1, 1, 1},
                                                  {1, 3, 3, 1},
                                                  {0, 4, 4, 0},
                                                  {0, 2, 5, 1},
                                                  {3, 1, 1, 3},
                                                  {2, 1, 1, 1, 1, 1, 1},
                                                  {1, 2, 1, 4}}) {
        Scenario s = Base(wide);
        s.model.layers = 8;
        s.model.tie_embeddings = kind == DataParallelKind::kDdp;
        s.optimizer.clip_norm = 1;
        const auto stages = static_cast<int64_t>(balance.size());
        s.batch.accumulate = 8;
        s.parallel.data.kind = kind;
        s.parallel.data.size = 2;
        s.parallel.pipeline = {.size = stages, .balance = balance};
        if (stages == 4) s.parallel.pipeline = {2, "interleaved", 2, balance};
        s.cluster.devices_per_node = 2 * s.parallel.pipeline.size;
        ExpectSame(steps, s, fmt::format("{}", fmt::join(balance, " ")));
      }
    }
  }
}

// The first stage is the embedding alone, whose reduce-scatter among tensor ranks nothing in its forward waits
// for: what that reads stays allocated until a later action waits for the tensor ranks.
TEST(ComposedPipeline, IsPredictWhereAForwardLeavesMemoryToTensorRanks) {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "interleaved", "looped_bfs"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      for (const DataParallelKind kind : {DataParallelKind::kDdp, DataParallelKind::kZero1}) {
        Scenario s = Base(false);
        s.model.seq_len = 512;
        s.model.layers = 6;
        s.recompute = recompute;
        s.batch.accumulate = 6;
        s.parallel.data.kind = kind;
        s.parallel.data.size = 2;
        s.parallel.tensor = {.size = 2, .sequence = true};
        const bool has_chunks =
            schedule == std::string("interleaved") || schedule == std::string("looped_bfs");
        s.parallel.pipeline = {.size = 3, .schedule = schedule, .balance = {0, 1, 5}};
        if (has_chunks) s.parallel.pipeline = {3, schedule, 2, {0, 1, 1, 2, 1, 1}};
        s.cluster.devices_per_node = 12;
        ComposedSteps steps;
        ExpectSame(steps, s, schedule);
      }
    }
  }
}

// With one data rank, shards are copied and not gathered. The first copy waits for the gradients that the
// rank has sent, and sending is the last thing that the last rank does.
TEST(ComposedPipeline, IsPredictWhereCopiesWaitForWhatWasSent) {
  Scenario s = Base(false);
  s.model.layers = 6;
  s.model.hidden = 1024;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 2048;
  s.model.seq_len = 16;
  s.precision.reduce = s.precision.param;
  s.optimizer.kind = OptimizerKind::kSgd;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.size = 1;
  s.parallel.pipeline = {.size = 3, .balance = {1, 1, 4}};
  s.cluster.devices_per_node = 3;
  ComposedSteps steps;
  ExpectSame(steps, s, "sent last");
}

// The first stage needs the most memory. It gathers the gradient that arrives in parts, and frees its part
// when the first gradient is allocated.
TEST(ComposedPipeline, IsPredictWhereAPartOfAMessageLivesBesideTheFirstGradient) {
  for (DataParallelKind kind : {DataParallelKind::kDdp, DataParallelKind::kZero1}) {
    Scenario s = Base(false);
    s.model.seq_len = 1024;
    s.model.attention = AttentionKind::kEager;
    s.model.bias = true;
    s.framework = Framework::kMegatron;
    s.parallel.data.kind = kind;
    s.parallel.data.size = 2;
    s.parallel.tensor.size = 2;
    s.parallel.pipeline = {.size = 2, .schedule = "gpipe", .balance = {6, 2}};
    ComposedSteps steps;
    ExpectSame(steps, s, "in parts");
  }
}

// Narrow: every pass begins with the host's work. Wide: the host gets ahead of the device within a pass.
TEST(ComposedPipeline, IsPredictWhereTheHostAwaitsMessages) {
  for (const Framework framework : {Framework::kMegatron, Framework::kMegatronCore, Framework::kDeepspeed}) {
    for (bool wide : {false, true}) {
      Scenario s = Base(wide);
      s.framework = framework;
      s.search.emplace();
      s.search->tensor = {1, 2};
      s.search->pipeline = {2, 4, 8};  // of four layers, two, and one
      s.search->virtual_stages = {1, 2};
      s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
      s.search->overlap = {true, false};
      s.search->recompute = {Recompute::kNone, Recompute::kFull};
      ExpectSameInSpace(s);
    }
  }
}

// Down to one micro-batch a step, which only these frameworks run through more stages than that; with the
// work that comes together after the last wait.
TEST(ComposedPipeline, IsPredictWhereTheHostAwaitsFewMessages) {
  for (const Framework framework : {Framework::kMegatron, Framework::kMegatronCore, Framework::kDeepspeed}) {
    for (bool wide : {false, true}) {
      Scenario s = Base(wide);
      s.framework = framework;
      s.batch = {.micro = 2, .accumulate = 1};
      s.parallel.data.kind = DataParallelKind::kZero1;
      s.parallel.data.size = 8;  // 16 sequences a step
      s.optimizer.clip_norm = 1;
      s.model.tie_embeddings = true;
      s.search.emplace();
      s.search->tensor = {1, 2};
      s.search->pipeline = {2, 4};
      s.search->schedule = {"1f1b", "gpipe", "none"};
      s.search->micro = {1, 2, 4, 8};
      s.search->recompute = {Recompute::kNone, Recompute::kSelective};
      ExpectSameInSpace(s);
    }
  }
}

std::string WriteSchedule(const std::string& name, const std::string& rows) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << rows;
  return path;
}

// Rank 0 exchanges nothing between 0B0 and 0B1: the message of 0B1 is there already. It is gathered after the
// end of 0B0, the embedding's gradient, which needs no other tensor rank.
TEST(ComposedPipeline, IsPredictWhereAGatheredMessageWasEarly) {
  for (bool wide : {false, true}) {
    Scenario s = Base(wide);
    s.framework = Framework::kMegatron;
    s.batch = {.micro = 2, .accumulate = 2};
    ParallelSpec& parallel = s.parallel;
    parallel.data.size = 1;
    parallel.tensor.size = 2;
    parallel.pipeline = {.size = 2,
                         .schedule = WriteSchedule("early.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n")};
    parallel.pipeline.balance = {4, 4};
    ComposedSteps steps;
    ExpectSame(steps, s, "early message");
  }
}

// The file has two stages a rank, without virtual_stages. The framework treats messages as those of a
// pipeline with two virtual stages.
TEST(ComposedPipeline, IsPredictOfAFileOfSeveralStagesARank) {
  const std::string rows =
      "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
      "1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n";
  Scenario s = Base(true);
  s.framework = Framework::kMegatronCore;
  s.batch = {.micro = 2, .accumulate = 2};
  s.parallel.data.size = 1;
  s.parallel.pipeline = {.size = 2, .schedule = WriteSchedule("four_stages.csv", rows)};
  s.parallel.pipeline.balance = {2, 2, 2, 2};
  ComposedSteps steps;
  ExpectSame(steps, s, "four stages");
  const Plan plan = CompilePlan(s).value();
  for (const Role& role : plan.roles)
    for (const Op& op : role.steady.ops) EXPECT_FALSE(std::holds_alternative<HostWait>(op.kind)) << role.name;
  const auto model = MakeProfileCostModel(A100(), plan);
  for (const std::vector<int64_t>& balance : {std::vector<int64_t>{4, 4}, {8}, {2, 2, 2}}) {
    s.parallel.pipeline.balance = balance;
    const auto composed = steps.Compose(s, *model, Bytes::Max());
    ASSERT_FALSE(composed);
    EXPECT_EQ(composed.error().kind, ErrorKind::kUnsupported);
  }
}

TEST(ComposedPipeline, IsPredictUnderOtherSchedules) {
  Scenario s = Base(true);
  s.search.emplace();
  s.search->pipeline = {2, 4};
  s.search->virtual_stages = {1, 2};
  s.search->schedule = {"none", "gpipe", "1f1b", "interleaved", "looped_bfs"};
  ExpectSameInSpace(s);
}

TEST(ComposedPipeline, IsPredictUnderSchedulesThatSplitBackwards) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch}) {
    Scenario s = Base(true);
    s.framework = framework;
    s.batch = {.micro = 1, .accumulate = 16};
    s.search.emplace();
    s.search->pipeline = {2, 4};
    s.search->virtual_stages = {1, 2};
    s.search->schedule = {"zb_h1", "zb_v", "dualpipe_v"};
    s.search->kind = {DataParallelKind::kDdp, DataParallelKind::kZero1};
    s.search->recompute = {Recompute::kNone, Recompute::kFull};
    ExpectSameInSpace(s);
  }
}

// The first stage's backward of inputs computes nothing then, and the messages that are known to have arrived
// when it begins stay until its backward of weights, beside the gradients of that.
TEST(ComposedPipeline, IsPredictWhereTheFirstStageHasNoLayers) {
  for (const int64_t accumulate : {1, 2, 6}) {
    for (const int64_t last : {0, 1}) {
      Scenario s = Base(false);
      s.model.layers = 2 + last;
      // So small that gradients of the embedding make the peak.
      s.model.seq_len = 16;
      s.model.hidden = s.model.ffn = 32;
      s.model.head_dim = 8;
      s.precision.param = s.precision.compute = Precision::kFp32;
      s.framework = Framework::kDeepspeed;
      s.model.tie_embeddings = false;
      s.batch = {.micro = 1, .accumulate = accumulate};
      s.parallel.pipeline = {.size = 2, .schedule = "zb_v", .virtual_stages = 2, .balance = {0, 1, 1, last}};
      ComposedSteps steps;
      ExpectSame(steps, s, fmt::format("{} micro-batches, {} layers at the end", accumulate, last));
    }
  }
}

}  // namespace
}  // namespace windtunnel
