// What is computed in another type than parameters are stored in: which products take fp8 and what makes their factors, and what
// autocast converts.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario InFp8(Scenario s, Fp8Recipe recipe) {
  s.precision = {.param = Precision::kBf16,
                 .compute = Precision::kFp8,
                 .reduce = Precision::kFp32,
                 .fp8_recipe = recipe};
  return s;
}

// Operators of kind T in the steady step that `take` says.
template <typename T, typename Take>
int Count(const Plan& plan, Take take) {
  const std::vector<Op>& ops = plan.roles[0].steady.ops;
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [&](const Op& op) {
    const T* kind = std::get_if<T>(&op.kind);
    return kind != nullptr && take(op, *kind);
  }));
}
bool InLayer0(const Op& op, Phase phase) { return op.layer == 0 && op.phase == phase; }

TEST(Fp8, TakesTheProductsOfBlocksNotTheHeads) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kTensorwise));
  // Two layers of four matrices, of three products each.
  EXPECT_EQ(Count<Gemm>(plan, [](const Op&, const Gemm& g) { return g.dtype == DType::kFloat8; }), 2 * 4 * 3);
  EXPECT_EQ(Count<Gemm>(plan, [](const Op& op,
                                 const Gemm& g) { return op.layer < 0 && g.dtype == DType::kBFloat16; }),
            3);
}

TEST(Fp8, TensorwiseFindsAScaleForEachTensorOnce) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kTensorwise));
  const auto amaxes = [&](Phase phase) {
    return Count<Fp8Amax>(plan, [&](const Op& op, const Fp8Amax&) { return InLayer0(op, phase); });
  };
  const auto casts = [&](Phase phase) {
    return Count<Fp8Cast>(plan, [&](const Op& op, const Fp8Cast&) { return InLayer0(op, phase); });
  };
  EXPECT_EQ(amaxes(Phase::kForward), 4 * 2);  // x and W
  EXPECT_EQ(casts(Phase::kForward), 4 * 2);
  EXPECT_EQ(amaxes(Phase::kBackward), 4);     // dy
  EXPECT_EQ(casts(Phase::kBackward), 4 * 4);  // dy both ways, W, x
}

TEST(Fp8, RowwiseScalesColumnsWhereProductsSumOverRows) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kRowwise));
  EXPECT_EQ(Count<Fp8Amax>(plan, [](const Op& op, const Fp8Amax&) { return InLayer0(op, Phase::kForward); }),
            0);
  // dy, W and x.
  EXPECT_EQ(
      Count<Fp8Amax>(
          plan, [](const Op& op, const Fp8Amax& a) { return InLayer0(op, Phase::kBackward) && a.by_column; }),
      4 * 3);
  EXPECT_EQ(Count<Fp8Cast>(plan, [](const Op& op, const Fp8Cast&) { return InLayer0(op, Phase::kBackward); }),
            4 * 4);
}

TEST(Fp8, BlocksAreFoundOnTheWay) {
  const Plan plan = *CompilePlan(InFp8(TinyLlama(), Fp8Recipe::kBlock));
  EXPECT_EQ(Count<Fp8Amax>(plan, [](const Op&, const Fp8Amax&) { return true; }), 0);
  EXPECT_EQ(Count<Fp8Cast>(plan, [](const Op& op, const Fp8Cast&) { return InLayer0(op, Phase::kForward); }),
            4 * 2);
}

// Where tensor ranks agree on a scale, tokens travel in one byte.
TEST(Fp8, TensorwiseGathersTokensInFp8) {
  for (Fp8Recipe recipe : {Fp8Recipe::kTensorwise, Fp8Recipe::kRowwise}) {
    Scenario s = InFp8(TinyLlama(), recipe);
    s.parallel.tensor = {.size = 2, .sequence = true};
    s.cluster.devices_per_node = 2;
    const bool tensorwise = recipe == Fp8Recipe::kTensorwise;
    const Plan plan = *CompilePlan(s);
    const auto gathers = [&](DType type) {
      return Count<Collective>(plan, [&](const Op& op, const Collective& c) {
        return op.layer == 0 && c.kind == CollectiveKind::kAllGather && c.dtype == type;
      });
    };
    EXPECT_EQ(gathers(DType::kFloat8), tensorwise ? 6 : 0);
    EXPECT_EQ(gathers(DType::kBFloat16), tensorwise ? 0 : 6);
    EXPECT_EQ(Count<Collective>(plan,
                                [](const Op& op, const Collective& c) {
                                  return op.layer == 0 && c.reduction == Reduction::kMax && c.elements == 1;
                                }),
              tensorwise ? 12 : 0);
  }
}

TEST(Fp8, ActivationsStayInSixteenBits) {
  Scenario s = InFp8(TinyLlama(), Fp8Recipe::kTensorwise);
  s.precision.param = Precision::kFp32;
  const Plan plan = *CompilePlan(s);
  EXPECT_EQ(Count<AttentionForward>(
                plan, [](const Op&, const AttentionForward& a) { return a.dtype == DType::kBFloat16; }),
            2);
}

// Weights are converted for each product that takes them, and their gradients back.
TEST(Autocast, ConvertsWeightsAndTheirGradients) {
  Scenario s = TinyLlama();
  s.precision.compute = Precision::kBf16;
  const Plan plan = *CompilePlan(s);
  const auto copies = [&](Phase phase, DType from, DType to) {
    return Count<Copy>(plan, [&](const Op& op, const Copy& c) {
      return InLayer0(op, phase) && c.from == from && c.to == to;
    });
  };
  EXPECT_EQ(copies(Phase::kForward, DType::kFloat32, DType::kBFloat16), 4);
  EXPECT_EQ(copies(Phase::kBackward, DType::kFloat32, DType::kBFloat16), 4);
  EXPECT_EQ(copies(Phase::kBackward, DType::kBFloat16, DType::kFloat32), 4);
  for (const Buffer& buffer : plan.roles[0].buffers) {
    if (buffer.name.ends_with(".grad") && buffer.category == Category::kGradients) {
      EXPECT_EQ(buffer.dtype, DType::kFloat32) << buffer.name;
    }
  }
}

TEST(Precision, RefusesToStoreLessThanItComputesIn) {
  Scenario s = TinyLlama();
  s.precision = {.param = Precision::kBf16, .compute = Precision::kFp32};
  const auto plan = CompilePlan(s);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("precision.compute"), std::string::npos) << plan.error().message;
}

}  // namespace
}  // namespace windtunnel
