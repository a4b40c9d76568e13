// Weights of fp8 products that are stored and gathered in fp8: who converts them, what is gathered, and what
// they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Four matrices in each of two layers: qkv, projection, gate and up, down.
Scenario Llama(DataParallelKind kind, Framework framework, Fp8Recipe recipe, bool stores_in_fp8) {
  Scenario s = TinyLlama(4);
  s.model.hidden = 128;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 256;
  s.batch.accumulate = 2;
  s.framework = framework;
  s.precision = {.param = Precision::kBf16,
                 .compute = Precision::kFp8,
                 .fp8_recipe = recipe,
                 .fp8_param_gather = stores_in_fp8};
  s.parallel.data.kind = kind;
  return s;
}
Scenario OfMegatron(Fp8Recipe recipe, bool stores_in_fp8) {
  return Llama(DataParallelKind::kZero1, Framework::kMegatronCore, recipe, stores_in_fp8);
}
Scenario OfFsdp(bool stores_in_fp8) {
  return Llama(DataParallelKind::kFsdp, Framework::kPytorchCompile, Fp8Recipe::kTensorwise, stores_in_fp8);
}

template <typename T, typename Take>
int64_t Sum(const Plan& plan, Take take) {
  int64_t sum = 0;
  for (const Op& op : plan.roles[0].steady.ops)
    if (const T* kind = std::get_if<T>(&op.kind)) sum += take(op, *kind);
  return sum;
}

// Elements of all weights of fp8 products, and of all other parameters.
struct Elements {
  int64_t of_factors = 0, others = 0;
};
Elements ElementsOf(const Plan& plan) {
  Elements elements;
  for (const Parameter& parameter : plan.roles[0].parameters)
    (parameter.is_factor ? elements.of_factors : elements.others) += parameter.elements;
  return elements;
}

int64_t GatheredBytes(const Plan& plan) {
  return Sum<Collective>(plan, [](const Op&, const Collective& c) {
    return c.kind == CollectiveKind::kAllGather ? SizeOf(c.dtype).count() * c.elements : 0;
  });
}

// Bytes of parameters that live as long as the role.
int64_t LastingBytes(const Plan& plan) {
  const Role& role = plan.roles[0];
  std::vector<bool> is_temporary(role.buffers.size());
  std::vector<const Program*> programs = {&role.initialize, &role.steady, &role.restore, &role.evaluate};
  for (const Program& program : role.startup) programs.push_back(&program);
  for (const Program* program : programs)
    for (const MemoryOp& op : program->memory)
      if (!op.allocates()) is_temporary[op.buffer] = true;
  int64_t bytes = 0;
  for (size_t i = 0; i < role.buffers.size(); ++i)
    if (!is_temporary[i] && role.buffers[i].category == Category::kParameters)
      bytes += role.buffers[i].bytes.count();
  return bytes;
}

int64_t MagnitudeReductions(const Plan& plan) {
  return Sum<Collective>(plan, [](const Op& op, const Collective& c) {
    return c.reduction == Reduction::kMax && op.name == "weights.amax";
  });
}

TEST(WeightsInFp8, AreTheMatricesOfBlocks) {
  const Plan plan = *CompilePlan(OfMegatron(Fp8Recipe::kTensorwise, true));
  for (const Parameter& parameter : plan.roles[0].parameters)
    EXPECT_EQ(parameter.is_factor, parameter.layer >= 0 && parameter.shape.size() == 2) << parameter.name;
  EXPECT_EQ(ElementsOf(*CompilePlan(OfMegatron(Fp8Recipe::kTensorwise, false))).of_factors, 0);
}

// Of each weight two bytes fewer stay: those in 16 bits. One of the two forms in fp8 is what is gathered.
TEST(WeightsInFp8, TakeTwoBytesLessAndAreGatheredInOne) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed, Fp8Recipe::kBlock}) {
    const Plan with = *CompilePlan(OfMegatron(recipe, true)),
               without = *CompilePlan(OfMegatron(recipe, false));
    const Elements elements = ElementsOf(with);
    EXPECT_EQ(LastingBytes(without) - LastingBytes(with), 2 * elements.of_factors);
    EXPECT_EQ(GatheredBytes(without), 2 * (elements.of_factors + elements.others));
    EXPECT_EQ(GatheredBytes(with), elements.of_factors + 2 * elements.others);
  }
}

// Each rank converts its shard; what is left of conversions in passes is the transposed form, once a step.
TEST(WeightsInFp8, AreConvertedByTheUpdate) {
  const Plan plan = *CompilePlan(OfMegatron(Fp8Recipe::kTensorwise, true));
  const auto of_weights = [](const Op& op) { return op.name.ends_with(".weight"); };
  EXPECT_EQ(Sum<Fp8Cast>(plan,
                         [&](const Op& op, const Fp8Cast& c) {
                           return of_weights(op) &&
                                  (!c.transposed || c.dtype != DType::kFloat8 || c.shared_by != 2);
                         }),
            0);
  EXPECT_EQ(Sum<Fp8Amax>(plan, [&](const Op& op, const Fp8Amax&) { return of_weights(op); }), 0);
  EXPECT_EQ(Sum<Fp8Cast>(plan,
                         [](const Op& op, const Fp8Cast& c) {
                           return op.phase == Phase::kOptimizer ? c.rows * c.columns : 0;
                         }),
            ElementsOf(plan).of_factors / 4);
  EXPECT_EQ(MagnitudeReductions(plan), 1);
}

TEST(WeightsInFp8, HaveTheirMagnitudesFromEarlierStepsWithDelayedScaling) {
  const Plan plan = *CompilePlan(OfMegatron(Fp8Recipe::kDelayed, true));
  EXPECT_EQ(MagnitudeReductions(plan), 0);
  EXPECT_EQ(Sum<Fp8Amax>(plan, [](const Op& op, const Fp8Amax&) { return op.phase == Phase::kOptimizer; }),
            0);
}

// Both forms are made of 16 bits, which are gathered into the gradients' buffers.
TEST(WeightsInFp8, OfMxfp8AreGatheredIn16Bits) {
  const Plan with = *CompilePlan(OfMegatron(Fp8Recipe::kMxfp8, true)),
             without = *CompilePlan(OfMegatron(Fp8Recipe::kMxfp8, false));
  const Elements elements = ElementsOf(with);
  EXPECT_EQ(LastingBytes(without) - LastingBytes(with), 2 * elements.of_factors);
  EXPECT_EQ(GatheredBytes(with), GatheredBytes(without));
  const auto conversions = [&](bool with_other) {
    return Sum<Fp8Cast>(with, [&](const Op& op, const Fp8Cast& c) {
      return op.phase == Phase::kOptimizer && c.with_other == with_other ? c.rows * c.columns : 0;
    });
  };
  EXPECT_EQ(conversions(false), elements.of_factors);
  EXPECT_EQ(conversions(true), elements.of_factors);
}

// Experts have magnitudes in common with the ranks that have the same ones.
TEST(WeightsInFp8, OfExpertsAgreeAmongThoseThatHaveThem) {
  Scenario s = OfMegatron(Fp8Recipe::kTensorwise, true);
  s.model.experts = ExpertsSpec{.count = 4, .top_k = 2, .capacity_factor = 1.5};
  s.parallel.expert.size = 2;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(MagnitudeReductions(plan), 2);
  for (const Parameter& parameter : plan.roles[0].parameters)
    if (parameter.is_of_experts()) {
      EXPECT_TRUE(parameter.is_factor) << parameter.name;
    }
}

// A unit's weights of fp8 products take a byte on the wire, its norms two. Magnitudes are found once a step.
TEST(WeightsInFp8, OfFsdpAreGatheredAsBytes) {
  const Plan with = *CompilePlan(OfFsdp(true)), without = *CompilePlan(OfFsdp(false));
  const auto gathered = [](const Plan& plan, const std::string& unit) {
    return Sum<Collective>(plan, [&](const Op& op, const Collective& c) {
      const bool is_it = op.name == unit && c.kind == CollectiveKind::kAllGather && op.micro_batch == 0 &&
                         op.phase == Phase::kForward;
      return is_it ? SizeOf(c.dtype).count() * c.elements : 0;
    });
  };
  int64_t factors = 0, norms = 0;
  for (const Parameter& parameter : with.roles[0].parameters)
    if (parameter.layer == 1) (parameter.is_factor ? factors : norms) += parameter.elements;
  EXPECT_EQ(gathered(without, "blocks.1"), 2 * (factors + norms));
  EXPECT_EQ(gathered(with, "blocks.1"), factors + 2 * norms);
  EXPECT_EQ(gathered(with, "root"), gathered(without, "root"));
  EXPECT_EQ(MagnitudeReductions(with), 1);
  const auto passes = [](const Plan& plan) {
    return Sum<Fp8Amax>(plan, [](const Op& op, const Fp8Amax&) { return op.name.ends_with(".weight"); });
  };
  EXPECT_GT(passes(without), 0);
  EXPECT_EQ(passes(with), 0);
}

// Nothing is gathered, so weights stay in 16 bits and are converted where they are used.
TEST(WeightsInFp8, AreAsOthersWhereOneRankHasAll) {
  Scenario s = OfFsdp(true), plain = OfFsdp(false);
  s.parallel.data.size = plain.parallel.data.size = 1;
  s.cluster.devices_per_node = plain.cluster.devices_per_node = 1;
  EXPECT_EQ(CompilePlan(s)->roles[0].steady.ops.size(), CompilePlan(plain)->roles[0].steady.ops.size());
}

}  // namespace
}  // namespace windtunnel
