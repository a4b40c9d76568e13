// ZeRO-3's step program: when modules are fetched, what is fetched ahead, how long parameters stay, and how
// gradients are reduced.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "plan/plan.h"
#include "tests/plan/race_check.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

constexpr int64_t kNoLimit = 1'000'000'000;

// Every parameter is sharded, nothing is fetched ahead, and nothing stays.
Scenario Zero3(int64_t ranks = 2) {
  Scenario s = TinyLlama(ranks);
  s.parallel.data.kind = DataParallelKind::kZero3;
  s.parallel.data.sync = GradientSync::kEveryMicroBatch;
  s.parallel.data.zero3 = {.prefetch_bucket_size = 0,
                           .param_persistence_threshold = 0,
                           .max_live_parameters = kNoLimit,
                           .max_reuse_distance = 0};
  return s;
}

const Collective* CollectiveIn(const Op& op, CollectiveKind kind) {
  const auto* collective = std::get_if<Collective>(&op.kind);
  return collective != nullptr && collective->kind == kind ? collective : nullptr;
}

// The names of the parameters that are gathered, in the order of gathering: those of one all-gather together.
std::vector<std::string> Gathered(const Role& role, const Program& program, int micro_batch) {
  std::vector<std::string> names;
  for (const Op& op : program.ops) {
    if (CollectiveIn(op, CollectiveKind::kAllGather) == nullptr || op.micro_batch != micro_batch) continue;
    std::vector<std::string> together;
    for (const int32_t index : op.parameters) together.push_back(role.parameters[index].name);
    names.push_back(fmt::format("{}", fmt::join(together, "+")));
  }
  return names;
}

int64_t ElementsOf(const Role& role) {
  return std::accumulate(role.parameters.begin(), role.parameters.end(), int64_t{0},
                         [](int64_t sum, const Parameter& parameter) { return sum + parameter.elements; });
}

// Each module's parameters, when a pass comes to it: in forward, and again in backward, the embedding's too.
TEST(Zero3, FetchesModulesInTheirOrder) {
  const Plan plan = *CompilePlan(Zero3());
  const Role& role = plan.roles[0];
  std::vector<std::string> expected;
  for (const Parameter& parameter : role.parameters) expected.push_back(parameter.name);
  EXPECT_EQ(expected.size(), 15u);
  const std::vector<std::string> forward = expected;
  expected.insert(expected.end(), forward.rbegin(), forward.rend());
  EXPECT_EQ(Gathered(role, role.startup[0], 0), expected);
  EXPECT_EQ(Gathered(role, role.steady, 0), expected);
}

// A layer's weight and bias are one module, and one all-gather.
TEST(Zero3, GathersAModuleAsOne) {
  Scenario s = Zero3();
  s.model.bias = s.model.qkv_bias = true;
  const Plan plan = *CompilePlan(s);
  EXPECT_THAT(Gathered(plan.roles[0], plan.roles[0].steady, 0),
              testing::Contains("blocks.0.attn.qkv.weight+blocks.0.attn.qkv.bias").Times(2));
}

// The operators of the compute stream that begin between an all-gather and the first that needs what it brings.
std::map<std::string, int> HiddenBehind(const Role& role, const Program& program) {
  std::map<std::string, int> hidden;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (CollectiveIn(program.ops[i], CollectiveKind::kAllGather) == nullptr || program.ops[i].micro_batch < 0)
      continue;
    std::set<OpIndex> arrived = {static_cast<OpIndex>(i)};  // and what puts it in order
    int between = 0;
    for (size_t later = i + 1; later < program.ops.size(); ++later) {
      const Op& op = program.ops[later];
      const bool waits = std::any_of(op.dependencies.begin(), op.dependencies.end(),
                                     [&](OpIndex index) { return arrived.contains(index); });
      if (op.stream == kComputeStream && waits && !std::holds_alternative<UnpackShards>(op.kind)) break;
      if (waits) arrived.insert(static_cast<OpIndex>(later));
      if (op.stream == kComputeStream) ++between;
    }
    for (const int32_t index : program.ops[i].parameters)
      hidden.try_emplace(role.parameters[index].name, between);
  }
  return hidden;
}

// The first micro-batch has no order to follow.
TEST(Zero3, FetchesAheadOnceItKnowsTheOrder) {
  Scenario s = Zero3();
  s.cluster.device = "h100-sxm-80g";
  s.run.backend = Backend::kNccl;
  s.batch.accumulate = 2;
  s.parallel.data.zero3.prefetch_bucket_size = 1;  // one parameter ahead
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  for (const auto& [name, operators] : HiddenBehind(role, role.startup[0])) EXPECT_EQ(operators, 0) << name;
  for (const auto& [name, operators] : HiddenBehind(role, role.steady)) {
    if (name == role.parameters[0].name) EXPECT_EQ(operators, 0) << name;
    else EXPECT_GT(operators, 0) << name;
  }
  EXPECT_THAT(Gathered(role, role.startup[0], 1), testing::Eq(Gathered(role, role.steady, 1)));
}

// Parameters are taken off the list until the bucket is full, and gathered together.
TEST(Zero3, FillsAPrefetchBucket) {
  Scenario s = Zero3();
  s.parallel.data.zero3.prefetch_bucket_size = kNoLimit;
  s.parallel.data.zero3.max_reuse_distance = kNoLimit;
  const Plan plan = *CompilePlan(s);
  const std::vector<std::string> gathered = Gathered(plan.roles[0], plan.roles[0].steady, 0);
  // The embedding, and then everything else at once.
  EXPECT_EQ(gathered.size(), 2u);
  EXPECT_EQ(std::count(gathered[1].begin(), gathered[1].end(), '+'), 13);

  s.parallel.data.zero3.max_live_parameters = 0;
  const Plan limited = *CompilePlan(s);
  EXPECT_EQ(Gathered(limited.roles[0], limited.roles[0].steady, 0).size(), 15u);
}

// What is used again soon stays: the last modules of forward, which are the first of backward.
TEST(Zero3, KeepsWhatIsNeededSoon) {
  Scenario s = Zero3();
  const Plan all_again = *CompilePlan(s);
  const Role& role = all_again.roles[0];
  const auto times = [](const Scenario& scenario) {
    const Plan plan = *CompilePlan(scenario);
    std::map<std::string, int> count;
    for (const std::string& name : Gathered(plan.roles[0], plan.roles[0].steady, 0)) ++count[name];
    return count;
  };
  s.parallel.data.zero3.max_reuse_distance = 1;
  std::map<std::string, int> count = times(s);
  const std::string head = role.parameters.back().name;
  EXPECT_EQ(head, "head.weight");
  for (const auto& [name, gathers] : count) EXPECT_EQ(gathers, name == head ? 1 : 2) << name;

  // The final norm is used again behind the head, twice.
  s.parallel.data.zero3.max_reuse_distance = 2 * role.parameters.back().elements + 1;
  count = times(s);
  EXPECT_EQ(count.at("norm_f.weight"), 1);
  EXPECT_EQ(count.at("blocks.1.mlp.down.weight"), 2);

  s.parallel.data.zero3.max_reuse_distance = kNoLimit;
  for (const auto& [name, gathers] : times(s)) EXPECT_EQ(gathers, 1) << name;
}

// A use that prefetching has passed over, since the parameter was there, counts on it to stay. (Except if it
// is the next: that is for max_reuse_distance to say.)
TEST(Zero3, KeepsWhatPrefetchingCountsOn) {
  Scenario s = Zero3();
  s.parallel.data.zero3.prefetch_bucket_size = kNoLimit;
  s.parallel.data.zero3.max_reuse_distance = 1;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(Gathered(plan.roles[0], plan.roles[0].steady, 0).size(), 2u);
}

// Small parameters are whole between steps, and gathered behind the update.
TEST(Zero3, KeepsSmallParametersWhole) {
  Scenario s = Zero3();
  s.parallel.data.zero3.param_persistence_threshold = s.model.hidden;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  for (const std::string& name : Gathered(role, role.steady, 0))
    EXPECT_EQ(name.find("norm"), std::string::npos);
  EXPECT_THAT(Gathered(role, role.steady, -1),
              testing::ElementsAre("blocks.0.norm1.weight+blocks.0.norm2.weight+blocks.1.norm1.weight+"
                                   "blocks.1.norm2.weight+norm_f.weight"));
  s.framework = Framework::kDeepspeed;
  const Plan plan_of_deepspeed = *CompilePlan(s);
  const Role& of_deepspeed = plan_of_deepspeed.roles[0];
  EXPECT_THAT(Gathered(of_deepspeed, of_deepspeed.steady, -1),
              testing::ElementsAre("blocks.0.norm1.weight", "blocks.0.norm2.weight", "blocks.1.norm1.weight",
                                   "blocks.1.norm2.weight", "norm_f.weight"));
}

// Twice all parameters are gathered, and once all gradients reduced, in every micro-batch.
TEST(Zero3, MovesThreeTimesTheParameters) {
  Scenario s = Zero3(4);
  s.batch.accumulate = 3;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  int64_t gathered = 0, reduced = 0;
  for (const Op& op : role.steady.ops) {
    if (CollectiveIn(op, CollectiveKind::kAllGather) != nullptr) gathered += op.writes[0].elements;
    if (CollectiveIn(op, CollectiveKind::kReduceScatter) != nullptr) reduced += op.reads[0].elements;
  }
  EXPECT_EQ(gathered, 3 * 2 * ElementsOf(role));
  EXPECT_EQ(reduced, 3 * ElementsOf(role));
}

// A bucket is reduced before a gradient that would overflow it. One that is larger is alone, and is not copied
// into it, nor put in order.
TEST(Zero3, ReducesFullBuckets) {
  Scenario s = Zero3();
  const int64_t cap = 8192;  // elements
  s.parallel.data.bucket_cap_mb = 4.0 * static_cast<double>(cap) / (1 << 20);
  s.model.vocab = 512;  // embedding and head: 16,384 elements
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  size_t buckets = 0;
  for (const Op& op : role.steady.ops) {
    if (CollectiveIn(op, CollectiveKind::kReduceScatter) == nullptr) continue;
    ++buckets;
    int64_t elements = 0;
    for (const int32_t index : op.parameters) elements += role.parameters[index].elements;
    const Buffer& buffer = role.buffers[op.reads[0].buffer];
    if (op.parameters.size() == 1 && elements > cap) {
      EXPECT_EQ(buffer.name, role.parameters[op.parameters[0]].name + ".grad");
    } else {
      EXPECT_LE(elements, cap);
      EXPECT_TRUE(std::is_sorted(op.parameters.begin(), op.parameters.end()));
    }
  }
  EXPECT_GT(buckets, 4u);
}

TEST(Zero3, SumsOverReplicasInTheLastMicroBatch) {
  Scenario s = Zero3(4);
  s.batch.accumulate = 2;
  s.parallel.data.shard_size = 2;
  const Plan plan = *CompilePlan(s);
  int64_t sums = 0;
  for (const Op& op : plan.roles[0].steady.ops) {
    if (CollectiveIn(op, CollectiveKind::kAllReduce) == nullptr || op.parameters.empty()) continue;
    EXPECT_EQ(op.phase == Phase::kBackward ? op.micro_batch : 1, 1);
    ++sums;
  }
  EXPECT_GT(sums, 0);
}

// DeepSpeed's host is at most three fetches ahead, and waits for all reductions at the end of a backward.
TEST(Zero3, LetsTheHostWait) {
  Scenario s = Zero3();
  s.cluster.device = "h100-sxm-80g";
  s.run.backend = Backend::kNccl;
  const Plan plan = *CompilePlan(s);
  const auto& ops = plan.roles[0].steady.ops;
  const auto waits = std::count_if(ops.begin(), ops.end(),
                                   [](const Op& op) { return std::holds_alternative<HostWait>(op.kind); });
  EXPECT_EQ(waits, 30 - 3 + 1);
}

// Between steps: 16-bit parameters and gradients, fp32 masters and two moments, all of them sharded, and the
// bucket.
TEST(Zero3, HoldsEighteenthsOfAParameter) {
  Scenario s = Zero3(4);
  s.precision.param = s.precision.compute = s.precision.reduce = Precision::kBf16;
  s.optimizer.kind = OptimizerKind::kAdamW;
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  int64_t held = 0;
  for (const Buffer& buffer : role.buffers) {
    const bool is_state = buffer.name == "parts" || buffer.name == "masters" || buffer.name == "gradients" ||
                          buffer.name.starts_with("parts.exp_avg");
    if (is_state) held += buffer.bytes.count();
  }
  EXPECT_EQ(held, (2 + 2 + 12) * ElementsOf(role) / 4);
}

// No data of a step is used while another stream still works on it.
TEST(Zero3, HasNoRaces) {
  for (const char* device : {"cpu", "cuda", "h100-sxm-80g"}) {
    for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kParam}) {
      for (const bool overlap : {true, false}) {
        for (const int64_t prefetch : {int64_t{0}, int64_t{2000}, kNoLimit}) {
          Scenario s = Zero3(4);
          s.cluster.device = device;
          if (s.cluster.device != "cpu") s.run.backend = Backend::kNccl;
          s.batch.accumulate = 2;
          s.optimizer.clip_norm = 1;
          s.precision.param = s.precision.compute = Precision::kBf16;
          s.precision.reduce = overlap ? Precision::kBf16 : Precision::kFp32;
          s.parallel.data.offload = offload;
          s.parallel.data.overlap = overlap;
          s.parallel.data.shard_size = offload == Offload::kNone ? 2 : 0;
          s.parallel.data.bucket_cap_mb = 0.02;
          s.parallel.data.zero3.prefetch_bucket_size = prefetch;
          s.parallel.data.zero3.max_reuse_distance = prefetch;
          s.parallel.data.zero3.param_persistence_threshold = prefetch > 0 ? 32 : 0;
          const auto plan = CompilePlan(s, {.evaluates = true});
          ASSERT_TRUE(plan) << plan.error().message;
          const Role& role = plan->roles[0];
          for (const Program* program :
               {&role.initialize, &role.startup[0], &role.steady, &role.restore, &role.evaluate})
            EXPECT_EQ(FindRace(*plan, role, *program), "")
                << device << ", offload " << static_cast<int>(offload) << ", " << program->name << ", "
                << prefetch;
        }
      }
    }
  }
}

}  // namespace
}  // namespace windtunnel
