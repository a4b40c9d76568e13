// ZeRO as each framework implements it: how long gradients stay, what sums them, and when new values are
// gathered.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "plan/gradient_buckets.h"
#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario Zero(DataParallelKind kind, Framework framework) {
  Scenario s = TinyGpt(2);
  s.parallel.data.kind = kind;
  s.parallel.data.bucket_cap_mb = 0.02;  // several buckets
  s.framework = framework;
  return s;
}

TEST(Zero, MegatronKeepsItsGradientBuffers) {
  const auto allocates_gradients = [](Framework framework) {
    const Plan plan = *CompilePlan(Zero(DataParallelKind::kZero1, framework));
    const Role& role = plan.roles[0];
    return std::any_of(role.steady.memory.begin(), role.steady.memory.end(), [&](const MemoryOp& op) {
      const Buffer& buffer = role.buffers[op.buffer];
      return op.allocates() && buffer.category == Category::kGradients && buffer.name.starts_with("bucket");
    });
  };
  EXPECT_FALSE(allocates_gradients(Framework::kMegatronCore));
  EXPECT_FALSE(allocates_gradients(Framework::kMegatron));
  EXPECT_TRUE(allocates_gradients(Framework::kWindtunnel));
}

// Only Windtunnel's own ZeRO gathers a bucket beside the update of the next.
TEST(Zero, OtherFrameworksGatherBehindTheWholeUpdate) {
  for (Framework framework : {Framework::kWindtunnel, Framework::kPytorch, Framework::kMegatron,
                              Framework::kMegatronCore, Framework::kDeepspeed}) {
    const Plan plan = *CompilePlan(Zero(DataParallelKind::kZero1, framework));
    const std::vector<Op>& ops = plan.roles[0].steady.ops;
    size_t first_gather = ops.size(), last_update = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto* collective = std::get_if<Collective>(&ops[i].kind);
      if (collective != nullptr && collective->kind == CollectiveKind::kAllGather)
        first_gather = std::min(first_gather, i);
      if (std::holds_alternative<OptimizerUpdate>(ops[i].kind)) last_update = i;
    }
    EXPECT_EQ(first_gather > last_update, framework != Framework::kWindtunnel) << static_cast<int>(framework);
  }
}

// The bytes of Transformer Engine's placeholders, by shape.
std::map<std::string, int64_t> PlaceholdersOf(const Scenario& s) {
  const Plan plan = *CompilePlan(s);
  const Role& role = plan.roles[0];
  std::map<std::string, int64_t> bytes;
  for (const MemoryOp& op : role.initialize.memory) {
    const Buffer& buffer = role.buffers[op.buffer];
    if (op.allocates() && buffer.name.starts_with("gradient placeholder"))
      bytes[buffer.name.substr(buffer.name.rfind('[') + 1)] += buffer.bytes.count();
  }
  return bytes;
}

// One for each shape of weight, whatever the layers' number; none of embeddings, the head, routers and
// experts.
TEST(Zero, MegatronCoreKeepsAPlaceholderForEachShapeOfWeight) {
  Scenario s = Zero(DataParallelKind::kZero1, Framework::kMegatronCore);
  s.precision.param = s.precision.compute = Precision::kBf16;
  const int64_t h = s.model.hidden, f = s.model.ffn;
  const std::map<std::string, int64_t> expected = {{fmt::format("{} x {}]", 3 * h, h), 2 * 3 * h * h},
                                                   {fmt::format("{} x {}]", h, h), 2 * h * h},
                                                   {fmt::format("{} x {}]", f, h), 2 * f * h},
                                                   {fmt::format("{} x {}]", h, f), 2 * h * f}};
  EXPECT_EQ(PlaceholdersOf(s), expected);
  s.model.layers = 5;
  EXPECT_EQ(PlaceholdersOf(s), expected);
  Scenario experts = s;
  experts.model.experts = ExpertsSpec{.count = 4, .top_k = 1};
  const std::map<std::string, int64_t> of_attention = {{fmt::format("{} x {}]", 3 * h, h), 2 * 3 * h * h},
                                                       {fmt::format("{} x {}]", h, h), 2 * h * h}};
  EXPECT_EQ(PlaceholdersOf(experts), of_attention);
  Scenario predicts = s;
  predicts.model.mtp = TokenPredictionSpec{.layers = 1};
  std::map<std::string, int64_t> with_projection = expected;
  with_projection[fmt::format("{} x {}]", h, 2 * h)] = 2 * 2 * h * h;
  EXPECT_EQ(PlaceholdersOf(predicts), with_projection);
  Scenario tensor = s;
  tensor.parallel.tensor.size = 2;
  tensor.cluster.devices_per_node = 4;
  EXPECT_EQ(PlaceholdersOf(tensor).at(fmt::format("{} x {}]", f / 2, h)), 2 * f / 2 * h);
  s.framework = Framework::kMegatron;
  EXPECT_TRUE(PlaceholdersOf(s).empty());
}

// A pipeline rank's last backwards: "B2.3" is that of stage 2 and micro-batch 3, "-" a bucket's reduction.
std::string LastBackwards(const Role& role, int64_t micro_batches) {
  std::string script, last;
  for (const Op& op : role.steady.ops) {
    const auto* collective = std::get_if<Collective>(&op.kind);
    const bool reduces = collective != nullptr && collective->kind == CollectiveKind::kReduceScatter;
    const bool computes = op.phase == Phase::kBackward && op.stream == kComputeStream && op.stage >= 0;
    if (!reduces && (!computes || op.micro_batch < micro_batches - 2)) continue;
    const std::string word = reduces ? " -" : fmt::format(" B{}.{}", op.stage, op.micro_batch);
    if (word != last) script += word;  // several reductions in a row are one word
    last = word;
  }
  return script;
}

// --align-grad-reduce: with one stage a rank, only the first rank reduces in its backward, and only it has
// several buckets. With more stages a rank, a stage is reduced after as many further backwards as the rank's
// number.
TEST(Zero, MegatronCoresPipelinesReduceTogether) {
  Scenario s = Zero(DataParallelKind::kZero1, Framework::kMegatronCore);
  s.model.layers = 4;
  s.batch.accumulate = 4;
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b"};
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(LastBackwards(plan.roles[0], 4), " B0.2 B0.3 - B0.3 - B0.3 - B0.3 -");
  EXPECT_EQ(LastBackwards(plan.roles[1], 4), " B1.2 B1.3 -");

  s.parallel.pipeline = {.size = 2, .schedule = "interleaved", .virtual_stages = 2};
  const Plan interleaved = *CompilePlan(s);
  EXPECT_EQ(LastBackwards(interleaved.roles[1], 4), " B3.2 B3.3 B1.2 - B1.3 -");
  EXPECT_EQ(LastBackwards(interleaved.roles[0], 4), " B2.2 B2.3 - B0.2 B0.3 -");

  s.parallel.data.overlap = false;
  EXPECT_EQ(LastBackwards(CompilePlan(s)->roles[1], 4), " B3.2 B3.3 B1.2 B1.3 -");
}

// DeepSpeed's engine, also where the kernels are PyTorch's: no reduce-scatters, and buckets that end before a
// gradient that would not fit.
TEST(Zero, DeepspeedSumsWholeBuckets) {
  for (DataParallelKind kind : {DataParallelKind::kZero1, DataParallelKind::kZero2}) {
    for (Framework framework : {Framework::kDeepspeed, Framework::kPytorch, Framework::kPytorchCompile}) {
      const Plan plan = *CompilePlan(Zero(kind, framework));
      const Role& role = plan.roles[0];
      const Bytes cap = BucketCap(plan.scenario, Bytes(4));
      int sums = 0;
      for (const Op& op : role.steady.ops) {
        const auto* collective = std::get_if<Collective>(&op.kind);
        if (collective == nullptr || (op.phase != Phase::kBackward && op.phase != Phase::kGradientSync))
          continue;
        EXPECT_EQ(collective->kind, CollectiveKind::kAllReduce);
        const bool fits = Bytes(4) * collective->elements <= cap;
        EXPECT_TRUE(fits || op.parameters.size() == 1) << collective->elements;
        ++sums;
      }
      EXPECT_GT(sums, 2);
    }
  }
}

// reduce_bucket_size elements, twice where reductions overlap with backward. Gradients are copied there.
TEST(Zero, DeepspeedsFirstStageHasReduceBuckets) {
  const auto buckets_of = [](Framework framework, bool overlap) {
    Scenario s = Zero(DataParallelKind::kZero1, framework);
    s.parallel.data.overlap = overlap;
    const Plan plan = *CompilePlan(s);
    int64_t elements = 0, count = 0;
    for (const Buffer& buffer : plan.roles[0].buffers) {
      if (!buffer.name.starts_with("reduce bucket")) continue;
      ++count;
      elements = buffer.bytes / Bytes(4);
    }
    return std::pair(count, elements);
  };
  const int64_t cap = static_cast<int64_t>(0.02 * 1024 * 1024) / 4;
  EXPECT_EQ(buckets_of(Framework::kDeepspeed, true), (std::pair<int64_t, int64_t>(2, cap + 2)));
  EXPECT_EQ(buckets_of(Framework::kPytorch, false), (std::pair<int64_t, int64_t>(1, cap + 2)));
  EXPECT_EQ(buckets_of(Framework::kWindtunnel, true).first, 0);
}

// Whether a reduction is issued before the last operator of a backward.
bool ReducesInBackward(const Scenario& s) {
  const std::vector<Op> ops = CompilePlan(s)->roles[0].steady.ops;
  size_t first_sum = ops.size(), last_backward = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool is_sum = std::holds_alternative<Collective>(ops[i].kind);
    if (is_sum && ops[i].phase != Phase::kOptimizer) first_sum = std::min(first_sum, i);
    if (!is_sum && ops[i].phase == Phase::kBackward && !std::holds_alternative<Copy>(ops[i].kind))
      last_backward = i;
  }
  return first_sum < last_backward;
}

// overlap_comm: false is the second stage's reduction in backward, which waits for it, and the first one's
// behind.
// Pipelines and stage 0 always reduce behind.
TEST(Zero, DeepspeedReducesInBackwardWhereItsEngineDoes) {
  for (bool overlap : {true, false}) {
    for (DataParallelKind kind :
         {DataParallelKind::kDdp, DataParallelKind::kZero1, DataParallelKind::kZero2}) {
      Scenario s = Zero(kind, Framework::kDeepspeed);
      s.parallel.data.overlap = overlap;
      const bool expected = kind == DataParallelKind::kZero2 || (kind == DataParallelKind::kZero1 && overlap);
      EXPECT_EQ(ReducesInBackward(s), expected) << static_cast<int>(kind) << " " << overlap;
    }
  }
}

// Gradients of 4 bytes: Megatron reduces all at once where nothing overlaps, DeepSpeed 500 million at a time.
TEST(GradientBuckets, AreTheFrameworks) {
  Scenario s = TinyGpt(2);
  s.framework = Framework::kMegatron;
  s.parallel.data.overlap = false;
  EXPECT_EQ(BucketCap(s, Bytes(4)), Bytes::Max());
  s.framework = Framework::kDeepspeed;
  EXPECT_EQ(BucketCap(s, Bytes(4)), Bytes(2'000'000'000));
  EXPECT_EQ(BucketLimits(s, Bytes(4)).size(), 1u);
  s.parallel.data.bucket_cap_mb = 3;
  EXPECT_EQ(BucketCap(s, Bytes(4)), MiB(3));
}

}  // namespace
}  // namespace windtunnel
