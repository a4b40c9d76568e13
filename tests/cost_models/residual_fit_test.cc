// Fits residual factors to steps whose composition is known.
#include "cost_models/residual_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace windtunnel {
namespace {

// A step: seconds of matrix products, of attention, and of the host. The device and the host run side by
// side, or the device waits for the host's launches.
struct Step {
  double gemm = 0, attention = 0, host = 0;
  LayerShape shape = {};
  double At(const ResidualFactors& all) const {
    const ResidualFactors f = FactorsFor(shape, all);
    const double device = gemm * f.gemm + attention * f.attention + (f.launch - 1) * host * f.host;
    return std::max(device, host * f.host);
  }
};

PredictRows Predictor(const std::vector<Step>& steps) {
  return [steps](const ResidualFactors& factors) -> Result<std::vector<double>> {
    std::vector<double> times;
    for (const Step& step : steps) times.push_back(step.At(factors));
    return times;
  };
}

std::vector<double> TimesOf(const std::vector<Step>& steps, const ResidualFactors& factors) {
  return Predictor(steps)(factors).value();
}

const std::vector<Step> kSteps = {{8, 1, 1}, {6, 4, 1}, {3, 7, 1}, {9, 2, 1}, {1, 1, 6}, {2, 1, 8}};

TEST(ResidualFit, FindsWhatTheRowsTell) {
  const ResidualFit fit =
      FitResiduals(TimesOf(kSteps, {.host = 1.3, .gemm = 1.2, .attention = 0.8}), {}, Predictor(kSteps))
          .value();
  EXPECT_NEAR(fit.factors.gemm, 1.2, 0.03);
  EXPECT_NEAR(fit.factors.attention, 0.8, 0.03);
  EXPECT_NEAR(fit.factors.host, 1.3, 0.03);
  EXPECT_GT(fit.before, 0.1);
  EXPECT_LT(fit.after, 0.02);
}

// Steps of a job with CUDA_LAUNCH_BLOCKING=1: the host's time adds to the device's, whatever the device's
// work.
TEST(ResidualFit, FindsThatTheDeviceWaitsForLaunches) {
  const std::vector<Step> steps = {{8, 1, 1}, {6, 4, 2}, {3, 7, 4}, {9, 2, 1}, {4, 1, 3}, {2, 4, 0.5}};
  const ResidualFit waits = FitResiduals(TimesOf(steps, {.launch = 2}), {}, Predictor(steps)).value();
  EXPECT_NEAR(waits.factors.launch, 2, 0.1);
  EXPECT_LT(waits.after, 0.01);
  // The host's time can be hidden completely, but not more: `launch` is at least 1.
  const ResidualFit ahead =
      FitResiduals(TimesOf(steps, {.gemm = 0.9, .attention = 0.9}), {}, Predictor(steps)).value();
  EXPECT_EQ(ahead.factors.launch, 1);
  EXPECT_NEAR(ahead.factors.gemm, 0.9, 0.01);
  EXPECT_NEAR(ahead.factors.attention, 0.9, 0.01);
}

TEST(ResidualFit, WhatTheRowsDoNotTellStaysOne) {
  const std::vector<Step> steps = {{8, 1, 1}, {6, 4, 1}, {3, 7, 1}};
  const ResidualFit fit = FitResiduals(TimesOf(steps, {.gemm = 1.2}), {}, Predictor(steps)).value();
  EXPECT_EQ(fit.factors.host, 1);
  EXPECT_EQ(fit.factors.link, 1);
  EXPECT_FALSE(fit.estimates.at("link").is_identified);
  EXPECT_TRUE(fit.estimates.at("gemm").is_identified);
  EXPECT_LE(fit.estimates.at("gemm").low, 1.2);
  EXPECT_GE(fit.estimates.at("gemm").high, 1.15);
}

// If gemm and attention are nearly proportional in all rows, the rows determine their sum, not which of them
// is off. The pull towards 1 shares it between them, and the intervals say so.
TEST(ResidualFit, IntervalsHoldWhatThePullTowardsOneTakesOff) {
  const std::vector<Step> steps = {{8, 4, 0.1}, {6, 3.1, 0.1}, {10, 4.9, 0.1}, {4, 2, 0.1}};
  const ResidualFactors truth{.gemm = 1.3, .attention = 0.8};
  const ResidualFit fit = FitResiduals(TimesOf(steps, truth), {}, Predictor(steps)).value();
  EXPECT_LT(fit.after, 0.01);
  EXPECT_LT(fit.factors.gemm, 1.25);
  for (const auto& [name, value] : {std::pair("gemm", 1.3), std::pair("attention", 0.8)}) {
    EXPECT_LE(fit.estimates.at(name).low, value) << name;
    EXPECT_GE(fit.estimates.at(name).high, value) << name;
  }
}

// One of ten rows takes twice as long as it should. The fit stays with the other nine.
TEST(ResidualFit, ABadRowCountsLittle) {
  std::vector<Step> steps;
  for (int i = 1; i <= 10; ++i) steps.push_back({static_cast<double>(i), 2, 0.1});
  std::vector<double> measured = TimesOf(steps, {.gemm = 1.1});
  measured[4] *= 2;
  EXPECT_NEAR(FitResiduals(measured, {}, Predictor(steps))->factors.gemm, 1.1, 0.05);
}

// Micro-batches of four take 15 % longer than the others, whatever the share of products in their steps. No
// named factor expresses that.
TEST(ResidualFit, LayersTakeWhatNamedFactorsLeave) {
  std::vector<Step> steps;
  std::vector<LayerShape> shapes;
  for (int64_t micro : {1, 2, 4, 8}) {
    for (double gemm : {3, 8, 16}) {
      shapes.push_back({.micro = micro, .seq_len = 1024, .hidden = 1024, .tensor = 1});
      steps.push_back({gemm, 20 - gemm, 0.1, shapes.back()});
    }
  }
  std::vector<double> measured = TimesOf(steps, {.gemm = 1.2});
  for (size_t i = 0; i < steps.size(); ++i) measured[i] *= shapes[i].micro == 4 ? 1.15 : 1;
  const ResidualFit named = FitResiduals(measured, {}, Predictor(steps)).value();
  const ResidualFit fit = FitResiduals(measured, shapes, Predictor(steps)).value();
  EXPECT_EQ(fit.factors.gemm, named.factors.gemm);
  EXPECT_EQ(fit.estimates.at("gemm").high, named.estimates.at("gemm").high);
  EXPECT_GT(named.after, 0.03);
  EXPECT_LT(fit.after, named.after / 2);
  EXPECT_NEAR(fit.factors.layers.At(shapes[6]) / fit.factors.layers.At(shapes[0]), 1.12, 0.03);
  EXPECT_NEAR(fit.factors.layers.At({.micro = 4, .seq_len = 1024, .hidden = 65536, .tensor = 8}), 1, 1e-3);
}

// Where the host and the device take equally long, a factor on only one of them does not shorten the step;
// one on both does.
TEST(ResidualFit, LayersMoveTheHostAndTheDeviceTogether) {
  std::vector<Step> steps;
  std::vector<LayerShape> shapes;
  for (int i = 0; i < 12; ++i) {
    shapes.push_back({.micro = i % 2 == 0 ? 1 : 16, .seq_len = 1024, .hidden = 1024, .tensor = 1});
    steps.push_back({8, 2, 10, shapes.back()});
  }
  std::vector<double> measured = TimesOf(steps, {});
  for (size_t i = 0; i < steps.size(); i += 2) measured[i] *= 1.2;
  const ResidualFit fit = FitResiduals(measured, shapes, Predictor(steps)).value();
  EXPECT_LT(fit.after, 0.03);
}

// Layers' factors do not explain times in another unit: a factor stays within 1.5.
TEST(ResidualFit, LayersExplainNoOtherUnit) {
  std::vector<Step> steps;
  std::vector<LayerShape> shapes;
  for (int i = 0; i < 64; ++i) {
    shapes.push_back({.micro = 1, .seq_len = 1024, .hidden = 1024, .tensor = 1});
    steps.push_back({10.0 + i, 2, 0.1, shapes.back()});
  }
  std::vector<double> measured = TimesOf(steps, {});
  for (double& time : measured) time *= 1000;
  const ResidualFit fit = FitResiduals(measured, shapes, Predictor(steps)).value();
  EXPECT_LE(fit.factors.layers.At(shapes[0]), std::exp(kMostOfLayers) + 1e-6);
  EXPECT_GT(fit.after, 0.5);
}

// A shape with only one row, which took twice as long, is not even half believed.
TEST(ResidualFit, OneRowOfAShapeIsNotBelieved) {
  std::vector<Step> steps;
  std::vector<LayerShape> shapes;
  for (int i = 0; i < 10; ++i) {
    shapes.push_back({.micro = i == 9 ? 64 : 1, .seq_len = 1024, .hidden = 1024, .tensor = 1});
    steps.push_back({10.0 + i, 2, 0.1, shapes.back()});
  }
  std::vector<double> measured = TimesOf(steps, {});
  measured[9] *= 2;
  const ResidualFit fit = FitResiduals(measured, shapes, Predictor(steps)).value();
  EXPECT_GT(fit.factors.layers.At(shapes[9]), 1.05);
  EXPECT_LT(fit.factors.layers.At(shapes[9]), 1.3);
  EXPECT_NEAR(fit.factors.layers.At(shapes[0]), 1, 0.02);
}

TEST(ResidualFit, TwoRowsAreTooFew) {
  const auto fit = FitResiduals({1, 2}, {}, Predictor({{1, 0, 0}, {2, 0, 0}}));
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().message, "2 rows, expected at least 3 to fit residuals to");
}

}  // namespace
}  // namespace windtunnel
