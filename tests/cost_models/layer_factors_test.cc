#include "cost_models/layer_factors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace windtunnel {
namespace {

constexpr LayerShape kShape{.micro = 4, .seq_len = 1024, .hidden = 2048, .tensor = 2};

LayerShape WithMicro(int64_t micro) {
  LayerShape shape = kShape;
  shape.micro = micro;
  return shape;
}

TEST(LayerFactors, WithoutAnyTheyAreOne) { EXPECT_EQ(LayerFactors().At(kShape), 1); }

// With one known shape, 0.35 of its excess is left with each doubling, in either direction.
TEST(LayerFactors, FadeWithDoublings) {
  const LayerFactors factors({{kShape, 0.9}});
  EXPECT_NEAR(factors.At(kShape), 0.9, 1e-8);
  const double doubling = 0.5 * std::sqrt(0.5);
  EXPECT_NEAR(factors.At(WithMicro(8)), 1 - 0.1 * doubling, 1e-8);
  EXPECT_NEAR(factors.At(WithMicro(2)), 1 - 0.1 * doubling, 1e-8);
  LayerShape wide = kShape;
  wide.hidden *= 2;
  wide.tensor *= 2;
  EXPECT_NEAR(factors.At(wide), 1 - 0.1 * doubling * doubling, 1e-8);
  wide.hidden *= 1 << 10;
  EXPECT_NEAR(factors.At(wide), 1, 1e-4);
}

// Between two known shapes that agree, the factor is nearly theirs. Each known shape keeps its own.
TEST(LayerFactors, GoBetweenTheirNeighbours) {
  const LayerFactors agreeing({{WithMicro(2), 1.2}, {WithMicro(8), 1.2}});
  EXPECT_NEAR(agreeing.At(WithMicro(2)), 1.2, 1e-8);
  EXPECT_NEAR(agreeing.At(WithMicro(4)), 1 + 0.2 * 2 * 0.5 * std::sqrt(0.5) / (1 + 0.125), 1e-8);
  const LayerFactors differing({{WithMicro(4), 0.8}, {WithMicro(8), 1.25}});
  EXPECT_NEAR(differing.At(WithMicro(4)), 0.8, 1e-8);
  EXPECT_NEAR(differing.At(WithMicro(8)), 1.25, 1e-8);
}

// Shapes that are nearly identical but have contradictory factors get the mean. No factor is less than a
// hundredth.
TEST(LayerFactors, BearWhatContradictsItself) {
  LayerShape a = kShape, b = kShape;
  a.hidden = int64_t{1} << 40;
  b.hidden = a.hidden - 1;
  const LayerFactors factors({{a, 0.5}, {b, 1.5}});
  EXPECT_NEAR(factors.At(a), 1, 0.01);
  EXPECT_GE(LayerFactors({{WithMicro(1), 100}, {WithMicro(2), 0.01}}).At(WithMicro(4)), 0.01);
}

TEST(LayerFactors, AShapeIsWhatARankHas) {
  Scenario scenario;
  scenario.model.seq_len = 8192;
  scenario.model.hidden = 4096;
  scenario.batch.micro = 2;
  scenario.parallel.context.size = 4;
  scenario.parallel.tensor.size = 8;
  EXPECT_EQ(LayerShapeOf(scenario), (LayerShape{.micro = 2, .seq_len = 2048, .hidden = 4096, .tensor = 8}));
  Scenario mlp;
  mlp.model.kind = ModelKind::kMlp;
  mlp.model.widths = {16, 512, 10};
  mlp.batch.micro = 32;
  EXPECT_EQ(LayerShapeOf(mlp), (LayerShape{.micro = 32, .seq_len = 1, .hidden = 512, .tensor = 1}));
}

}  // namespace
}  // namespace windtunnel
