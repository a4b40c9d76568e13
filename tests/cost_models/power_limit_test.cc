// The speed of products under a power limit, checked against the power balance that it solves.
#include "cost_models/power_limit.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace windtunnel {
namespace {

constexpr PowerSpec kH100{
    .limit_watts = 700, .attention_watts = 660, .memory_watts = 550, .most_product_speed = 1.27};

// The mean power in watts over a step of products, attention and memory-bound kernels, where products run at
// `speed` times the speed that they have alone.
double MeanPower(const PowerSpec& power, Duration products, Duration attention, Duration others,
                 double speed) {
  const double of_products = products / Milliseconds(1) / speed, of_attention = attention / Milliseconds(1),
               of_others = others / Milliseconds(1);
  return (power.limit_watts * speed * speed * of_products + power.attention_watts * of_attention +
          power.memory_watts * of_others) /
         (of_products + of_attention + of_others);
}

TEST(PowerLimit, ProductsAloneHaveTheSpeedThatTheySustain) {
  EXPECT_EQ(ProductSpeed(kH100, Milliseconds(6), Duration(), Duration()), 1);
  EXPECT_EQ(ProductSpeed(kH100, Duration(), Milliseconds(1), Milliseconds(4)), 1) << "there are none";
}

TEST(PowerLimit, IsNotAssumedWhereItIsNotKnown) {
  EXPECT_EQ(ProductSpeed({}, Milliseconds(6), Milliseconds(1), Milliseconds(4)), 1);
}

// The header's example: c = 640 / 4200 = 0.1524; 1.0791^2 = 1.1645 = 1 + 0.1524 x 1.0791.
TEST(PowerLimit, ProductsTakeThePowerThatOthersLeave) {
  EXPECT_NEAR(ProductSpeed(kH100, Milliseconds(6), Milliseconds(1), Milliseconds(4)), 1.0791, 1e-4);
}

TEST(PowerLimit, NoFasterThanTheFastestThatWasMeasured) {
  EXPECT_EQ(ProductSpeed(kH100, Milliseconds(1), Duration(), Milliseconds(100)), 1.27);
}

RC_GTEST_PROP(PowerLimitProperties, TheMeanPowerIsTheLimit, ()) {
  const auto any = [](int64_t least) {
    return Microseconds(static_cast<double>(*rc::gen::inRange<int64_t>(least, 100'000)));
  };
  PowerSpec power = kH100;
  power.most_product_speed = 1e3;
  const Duration products = any(1), attention = any(0), others = any(0);
  const double speed = ProductSpeed(power, products, attention, others);
  RC_ASSERT(speed >= 1);
  RC_ASSERT(std::abs(MeanPower(power, products, attention, others, speed) / power.limit_watts - 1) < 1e-9);
  RC_ASSERT(ProductSpeed(power, products, attention, others + Milliseconds(1)) > speed);
}

}  // namespace
}  // namespace windtunnel
