// Pipelines as programs: which rank sends what, and what is refused.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Pipelined(const char* schedule, int64_t ranks = 2, int64_t virtual_stages = 1,
                   int64_t micro_batches = 4) {
  Scenario s = TinyGpt();
  s.model.layers = std::max<int64_t>(2, ranks * virtual_stages);
  s.batch.accumulate = micro_batches;
  s.parallel.pipeline.size = ranks;
  s.parallel.pipeline.schedule = schedule;
  s.parallel.pipeline.virtual_stages = virtual_stages;
  s.cluster.devices_per_node = ranks;
  return s;
}

std::string ErrorOf(const Scenario& s) {
  const auto plan = CompilePlan(s);
  return plan ? "" : plan.error().message;
}

template <typename Kind>
int64_t Count(const Role& role) {
  int64_t count = 0;
  for (const Op& op : role.steady.ops) count += std::holds_alternative<Kind>(op.kind) ? 1 : 0;
  return count;
}

TEST(Pipeline, HasARoleForEveryRankOfItWithItsReplicas) {
  Scenario s = Pipelined("1f1b", 4);
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.parallel.data.size = 2;
  const Plan plan = *CompilePlan(s);
  ASSERT_EQ(plan.roles.size(), 4u);
  EXPECT_EQ(plan.roles[1].name, "stage 1");
  EXPECT_EQ(plan.roles[1].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(CompilePlan(Pipelined("interleaved", 2, 2))->roles[1].name, "stages 1, 3");
  EXPECT_EQ(CompilePlan(Pipelined("zb_v", 2, 2))->roles[0].name, "stages 0, 3");
}

// One replica has nothing to reduce, after whichever micro-batch. Programs are checked as they are made.
TEST(Pipeline, OfOneReplicaMayReduceEveryMicroBatch) {
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch, Framework::kMegatron,
                                    Framework::kMegatronCore, Framework::kDeepspeed}) {
    for (const char* schedule :
         {"gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "zb_v", "dualpipe_v"}) {
      const bool is_split = std::string(schedule).find("zb_h1") == std::string::npos &&
                            std::string(schedule) != "gpipe" && std::string(schedule) != "1f1b";
      for (const bool tied : {false, true}) {
        Scenario s = Pipelined(schedule, 2, is_split ? 2 : 1, 8);
        s.framework = framework;
        s.model.tie_embeddings = tied;
        s.parallel.data.sync = GradientSync::kEveryMicroBatch;
        s.cluster.device = "h100-sxm-80g";
        EXPECT_EQ(ErrorOf(s), "") << schedule;
      }
    }
  }
}

TEST(Pipeline, SendsEveryMicroBatchOnceOverEachBoundaryInEachDirection) {
  const Plan plan = *CompilePlan(Pipelined("1f1b", 3, 1, 6));
  EXPECT_EQ(Count<Send>(plan.roles[0]), 6);
  EXPECT_EQ(Count<Send>(plan.roles[1]), 12);
  EXPECT_EQ(Count<Receive>(plan.roles[1]), 12);
  EXPECT_EQ(Count<Send>(plan.roles[2]), 6);
  // v times 1F1B's: p v - 1 boundaries instead of p - 1.
  const Plan interleaved = *CompilePlan(Pipelined("interleaved", 2, 2));
  EXPECT_EQ(Count<Send>(interleaved.roles[0]) + Count<Send>(interleaved.roles[1]), 2 * 3 * 4);
  // A V turns around on its last rank, where nothing is sent.
  const Plan v = *CompilePlan(Pipelined("zb_v", 2, 2));
  EXPECT_EQ(Count<Send>(v.roles[0]) + Count<Send>(v.roles[1]), 2 * 2 * 4);
}

TEST(Pipeline, TheWholeModelsParametersAreCountedOnce) {
  Scenario s = Pipelined("1f1b");
  s.model.tie_embeddings = true;
  Scenario alone = s;
  alone.parallel.pipeline = {};
  EXPECT_EQ(CompilePlan(s)->model.parameters, CompilePlan(alone)->model.parameters);
  EXPECT_EQ(CompilePlan(s)->model.flops_per_token.count(), CompilePlan(alone)->model.flops_per_token.count());
}

// The stage before waits for it, so it must not wait for the reduction of the last micro-batch's gradients.
TEST(Pipeline, TheLastGradientIsSentBeforeAnyoneWaitsForDdp) {
  Scenario s = Pipelined("1f1b");
  s.parallel.data.kind = DataParallelKind::kDdp;
  s.parallel.data.size = 2;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[1];
  size_t last_send = 0, first_wait = role.steady.ops.size();
  for (size_t i = 0; i < role.steady.ops.size(); ++i) {
    const Op& op = role.steady.ops[i];
    if (std::holds_alternative<Send>(op.kind)) last_send = i;
    if (op.stream != kComputeStream) continue;
    for (OpIndex dependency : op.dependencies) {
      if (std::holds_alternative<Collective>(role.steady.ops[dependency].kind))
        first_wait = std::min(first_wait, i);
    }
  }
  EXPECT_LT(last_send, first_wait);
  for (OpIndex dependency : role.steady.ops[last_send].dependencies) {
    EXPECT_FALSE(std::holds_alternative<Copy>(role.steady.ops[dependency].kind));
  }
}

// Megatron's torch.cuda.synchronize(): when a pass begins, the host knows that every message before it has
// arrived.
TEST(Pipeline, MegatronsHostWaitsForMessages) {
  Scenario s = Pipelined("1f1b", 3, 1, 6);
  s.cluster.device = "a100-sxm-80g";
  for (const Framework framework : {Framework::kMegatron, Framework::kMegatronCore}) {
    s.framework = framework;
    const Plan plan = *CompilePlan(s);
    for (const Role& role : plan.roles) {
      std::map<StreamId, OpIndex> under_way;
      for (OpIndex i = 0; i < static_cast<OpIndex>(role.steady.ops.size()); ++i) {
        const Op& op = role.steady.ops[i];
        if (std::holds_alternative<Send>(op.kind) || std::holds_alternative<Receive>(op.kind)) {
          under_way[op.stream] = i;
        } else if (std::holds_alternative<HostWait>(op.kind)) {
          for (OpIndex dependency : op.dependencies)
            if (const auto found = under_way.find(role.steady.ops[dependency].stream);
                found != under_way.end() && found->second <= dependency)
              under_way.erase(found);
        } else if (op.stream == kComputeStream) {
          EXPECT_TRUE(under_way.empty()) << role.name << ": " << op.name;
        }
      }
      EXPECT_TRUE(under_way.empty()) << role.name;
      // Between passes that hand over to each other on the last stage nothing is exchanged.
      EXPECT_GE(Count<HostWait>(role), 6) << role.name;
    }
  }
}

TEST(Pipeline, OtherHostsDoNotWaitForMessages) {
  const auto waits = [](Framework framework, const char* device, int64_t virtual_stages) {
    Scenario s = Pipelined(virtual_stages == 1 ? "1f1b" : "interleaved", 2, virtual_stages);
    s.framework = framework;
    s.cluster.device = device;
    return Count<HostWait>(CompilePlan(s)->roles[0]);
  };
  EXPECT_GT(waits(Framework::kMegatronCore, "a100-sxm-80g", 1), 0);
  EXPECT_EQ(waits(Framework::kMegatronCore, "a100-sxm-80g", 2), 0);
  EXPECT_EQ(waits(Framework::kMegatronCore, "cpu", 1), 0);  // the host computes itself
  for (const Framework framework : {Framework::kWindtunnel, Framework::kPytorch, Framework::kDeepspeed})
    EXPECT_EQ(waits(framework, "a100-sxm-80g", 1), 0);
}

// Scattered messages carry their shapes, for which the host waits.
TEST(Pipeline, DeepspeedsHostWaitsForMessagesThatAreScattered) {
  Scenario s = Pipelined("1f1b");
  s.framework = Framework::kDeepspeed;
  s.cluster.device = "a100-sxm-80g";
  s.cluster.devices_per_node = 4;
  s.parallel.tensor = {.size = 2, .sequence = false};
  EXPECT_GT(Count<HostWait>(CompilePlan(s)->roles[0]), 0);
  s.parallel.tensor.sequence = true;
  EXPECT_EQ(Count<HostWait>(CompilePlan(s)->roles[0]), 0);
}

// Tensor ranks that hold the same activations each send a part, and the receivers gather the parts. With
// sequence parallelism they hold parts already.
TEST(Pipeline, MegatronAndDeepspeedScatterMessagesOverTensorRanks) {
  const auto messages = [](Framework framework, bool sequence) {
    Scenario s = Pipelined("1f1b");
    s.framework = framework;
    s.parallel.tensor = {.size = 2, .sequence = sequence};
    s.cluster.devices_per_node = 4;
    const Plan plan = *CompilePlan(s);
    int64_t sent = 0, gathered = 0;
    for (const Op& op : plan.roles[1].steady.ops) {
      if (const auto* send = std::get_if<Send>(&op.kind)) sent = send->elements;
      if (std::holds_alternative<Collective>(op.kind) && op.name == "message") ++gathered;
    }
    return std::pair(sent, gathered);
  };
  const auto [whole, none] = messages(Framework::kMegatronCore, false);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(messages(Framework::kMegatron, false),
            std::pair(whole / 2, int64_t{4}));  // an input for each micro-batch
  EXPECT_EQ(messages(Framework::kMegatron, true), messages(Framework::kMegatronCore, true));
  EXPECT_EQ(messages(Framework::kDeepspeed, false), messages(Framework::kMegatron, false));
}

TEST(Pipeline, ASplitBackwardHasAsManyOperatorsAsAWholeOne) {
  const Plan whole = *CompilePlan(Pipelined("1f1b")), split = *CompilePlan(Pipelined("zb_h1"));
  for (int rank : {0, 1}) {
    EXPECT_EQ(Count<Gemm>(split.roles[rank]), Count<Gemm>(whole.roles[rank]));
    EXPECT_EQ(Count<ColumnSum>(split.roles[rank]), Count<ColumnSum>(whole.roles[rank]));
    EXPECT_EQ(Count<NormBackward>(split.roles[rank]), Count<NormBackward>(whole.roles[rank]));
  }
}

TEST(Pipeline, LayersAreBalancedByWhatTheyCostUnlessTheScenarioSays) {
  Scenario s = Pipelined("1f1b");
  s.model.layers = 8;
  s.model.vocab = 32 * 64;  // the head costs as much as some blocks
  const Plan automatic = *CompilePlan(s);
  EXPECT_GT(automatic.pipeline->stages[0].end, 4);
  s.parallel.pipeline.balance = {3, 5};
  EXPECT_EQ(CompilePlan(s)->pipeline->stages[0].end, 3);
}

TEST(Pipeline, SaysWhatAScheduleNeeds) {
  EXPECT_EQ(ErrorOf(Pipelined("1f1b", 4, 1, 2)),
            "parallel.pipeline.schedule: pipeline schedule 1f1b needs at least as many micro-batches as "
            "pipeline ranks, 4, but "
            "there are 2 "
            "(batch.accumulate)");
  EXPECT_EQ(ErrorOf(Pipelined("interleaved", 2, 1, 4)),
            "parallel.pipeline.schedule: pipeline schedule interleaved has two or more stages per rank, but "
            "virtual_stages is 1");
  Scenario megatron = Pipelined("1f1b", 4, 1, 2);
  megatron.framework = Framework::kMegatron;
  EXPECT_EQ(ErrorOf(megatron), "");
  EXPECT_NE(ErrorOf(Pipelined("dualpipe_v", 2, 2, 3)).find("two micro-batches per pipeline rank"),
            std::string::npos);
}

// Weight gradients need no parameters. A unit is reduced once, after its last weight gradient, while those of
// others are still computed.
TEST(Pipeline, ReducesFsdpUnitsAsTheirWeightsGradientsAreDone) {
  Scenario s = Pipelined("zb_h1", 2, 1, 4);
  s.model.layers = 4;
  s.parallel.data.kind = DataParallelKind::kFsdp;
  s.parallel.data.size = 2;
  const Plan plan = *CompilePlan(s);
  for (const Role& role : plan.roles) {
    const std::vector<Op>& ops = role.steady.ops;
    std::map<std::string, size_t> reduced, last_gradient;
    size_t last_weight = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto* collective = std::get_if<Collective>(&ops[i].kind);
      const bool gathers = collective != nullptr && collective->kind == CollectiveKind::kAllGather;
      if (ops[i].phase == Phase::kBackwardWeights) {
        EXPECT_FALSE(gathers) << ops[i].name;
      }
      if (collective != nullptr && collective->kind == CollectiveKind::kReduceScatter) {
        EXPECT_TRUE(reduced.emplace(ops[i].name, i).second) << ops[i].name << " twice";
      }
      if (!std::holds_alternative<Gemm>(ops[i].kind) || ops[i].phase != Phase::kBackwardWeights) continue;
      last_weight = i;
      if (ops[i].layer >= 0) last_gradient[fmt::format("blocks.{}", ops[i].layer)] = i;
    }
    EXPECT_EQ(reduced.size(), 3u);  // two blocks and the root
    size_t overlapped = 0;
    for (const auto& [unit, last] : last_gradient) {
      EXPECT_GT(reduced.at(unit), last) << unit;
      overlapped += reduced.at(unit) < last_weight;
    }
    EXPECT_GE(overlapped, 1u) << role.name;
  }
}

TEST(Pipeline, RefusesWhatDataParallelismCannotDoInIt) {
  Scenario version1 = Pipelined("1f1b");
  version1.model.tie_embeddings = true;
  version1.parallel.data.kind = DataParallelKind::kFsdp;
  version1.parallel.data.version = 1;
  version1.parallel.data.size = 2;
  EXPECT_NE(ErrorOf(version1).find("parallel.data.version: 1"), std::string::npos) << ErrorOf(version1);
  Scenario wrap = Pipelined("1f1b");
  wrap.parallel.data.kind = DataParallelKind::kFsdp;
  wrap.parallel.data.size = 2;
  wrap.parallel.data.wrap = {WrapPolicy::Kind::kModules, 0, {"head"}};
  EXPECT_EQ(ErrorOf(wrap), "");  // which the first stage does not have
  wrap.parallel.data.wrap.modules = {"block.0"};
  EXPECT_NE(ErrorOf(wrap).find("no module is named 'block.0'"), std::string::npos) << ErrorOf(wrap);
}

class ScheduleFile : public testing::Test {
 protected:
  std::string ErrorOfFile(const std::string& rows) {
    const std::string path = testing::TempDir() + "/schedule.csv";
    std::ofstream(path) << rows;
    return ErrorOf(Pipelined(path.c_str(), 2, 1, 2));
  }
};

TEST_F(ScheduleFile, IsFollowed) { EXPECT_EQ(ErrorOfFile("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n"), ""); }

TEST_F(ScheduleFile, ThatSkipsAMicroBatchIsRefused) {
  const std::string error = ErrorOfFile("0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n");
  EXPECT_NE(error.find("stage 0"), std::string::npos) << error;
  EXPECT_NE(error.find("micro-batch 1"), std::string::npos) << error;
}

TEST_F(ScheduleFile, ThatDeadlocksIsRefused) {
  const std::string error = ErrorOfFile("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  EXPECT_NE(error.find("schedule.csv"), std::string::npos) << error;
  EXPECT_NE(error.find("stage"), std::string::npos) << error;
  EXPECT_NE(error.find("deadlock: rank 0 cannot run 0B0"), std::string::npos) << error;
}

TEST(DeviceMesh, PutsTensorRanksClosestAndStagesFarthest) {
  ParallelSpec parallel;
  parallel.tensor.size = 2;
  parallel.data.size = 3;
  parallel.pipeline.size = 4;
  const DeviceMesh mesh(parallel);
  EXPECT_EQ(mesh.world_size(), 24);
  const MeshPlace place = mesh.PlaceOf(7);
  EXPECT_EQ((std::array{place.tensor, place.data, place.pipeline}), (std::array{1, 0, 1}));
  EXPECT_EQ(mesh.TensorAxis().GroupOf(7).ranks, (std::vector<int>{6, 7}));
  EXPECT_EQ(mesh.DataAxis().GroupOf(7).ranks, (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(mesh.PipelineAxis().GroupOf(7).ranks, (std::vector<int>{1, 7, 13, 19}));
  const Axis pairs = mesh.PairAxis("pairs", 2, 1);
  EXPECT_EQ(pairs.GroupOf(7).ranks, (std::vector<int>{13, 7}));
  EXPECT_EQ(pairs.position_of_rank[7], 1);
  EXPECT_FALSE(pairs.Contains(0));
}

}  // namespace
}  // namespace windtunnel
