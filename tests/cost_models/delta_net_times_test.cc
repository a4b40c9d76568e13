// What chunks of gated delta networks take on GPUs, against published measurements (FlashQLA's results of
// flash-linear-attention 0.5.1 by CUDA graphs on H200s and GB200s; an own kernel's of a third party on an
// A800, and Paddle's on an H800, which also normalises heads).
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <string>

#include "cost_models/device_spec.h"
#include "cost_models/kernel_roofline.h"

namespace windtunnel {
namespace {

struct Measured {
  const char* device;
  int64_t heads, sequences, tokens;  // tokens: of a sequence
  double forward_ms, backward_ms;    // 0: not measured
};
constexpr Measured kMeasured[] = {
    {"h200-sxm-141g", 8, 1, 8192, 0.234, 0.722},      {"h200-sxm-141g", 16, 1, 8192, 0.334, 0.957},
    {"h200-sxm-141g", 32, 1, 8192, 0.500, 1.444},     {"h200-sxm-141g", 32, 8, 1024, 0.530, 1.500},
    {"h200-sxm-141g", 48, 1, 8192, 0.665, 0},         {"h200-sxm-141g", 64, 1, 8192, 0.814, 0},
    {"h200-sxm-141g", 32, 1, 32768, 1.939, 5.697},    {"h200-sxm-141g", 8, 4, 8192, 0.467, 0},
    {"gb200-nvl72-186g", 8, 1, 8192, 0.264, 0.798},   {"gb200-nvl72-186g", 16, 1, 8192, 0.342, 1.013},
    {"gb200-nvl72-186g", 32, 1, 8192, 0.478, 1.446},  {"gb200-nvl72-186g", 64, 1, 8192, 0.755, 0},
    {"gb200-nvl72-186g", 32, 1, 32768, 1.812, 5.714}, {"b200-sxm-180g", 64, 1, 4096, 0.434, 1.312},
    {"a100-sxm-80g", 32, 1, 8192, 1.199, 0},          {"h100-sxm-80g", 96, 1, 8192, 2.033, 0},
};

double Milliseconds(const OpKind& kind, const char* device) {
  const DeviceSpec spec = ParseDeviceSpec(*EmbeddedProfile(device), device).value();
  return ToSeconds(KernelWork(kind, spec, {}).value()) * 1e3;
}

// Forward takes longest, relative to what was measured, with 64 heads.
TEST(DeltaNetTimes, AreTheMeasuredOnes) {
  double of_forward = 0, of_backward = 0;
  int backwards = 0;
  for (const Measured& m : kMeasured) {
    const DeltaNetShape shape{m.sequences, m.tokens, m.heads, m.heads, 128, 128, 4, DType::kBFloat16};
    const std::string name = std::string(m.device) + " " + CostKey(DeltaNetForward{shape});
    const double forward = Milliseconds(DeltaNetForward{shape}, m.device) / m.forward_ms - 1;
    EXPECT_LT(std::fabs(forward), m.heads == 64 ? 0.20 : 0.12) << name;
    of_forward += std::fabs(forward);
    if (m.backward_ms == 0) continue;
    const double backward = Milliseconds(DeltaNetBackward{shape}, m.device) / m.backward_ms - 1;
    EXPECT_LT(std::fabs(backward), 0.12) << name;
    of_backward += std::fabs(backward);
    ++backwards;
  }
  EXPECT_LT(of_forward / static_cast<double>(std::size(kMeasured)), 0.08);
  EXPECT_LT(of_backward / backwards, 0.06);
}

// A sequence is walked chunk by chunk: with few heads, more sequences of as many tokens take less.
TEST(DeltaNetTimes, FewHeadsWaitForOneChunkAfterTheOther) {
  const auto time = [](int64_t heads, int64_t sequences) {
    const DeltaNetShape shape{sequences, 8192 / sequences, heads, heads, 128, 128, 4, DType::kBFloat16};
    return Milliseconds(DeltaNetForward{shape}, "h200-sxm-141g");
  };
  EXPECT_GT(time(8, 1), 1.5 * time(8, 4));
  EXPECT_GT(time(8, 1), 0.4 * time(32, 1));
  EXPECT_NEAR(time(64, 4) / time(64, 1), 1, 0.01);
}

}  // namespace
}  // namespace windtunnel
