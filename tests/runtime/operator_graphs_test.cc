// Operators that are launched as one graph. The device is late on purpose (queued_device.h).
#include "runtime/operator_graphs.h"

#include <gtest/gtest.h>

#include <array>

#include "plan/step_program.h"
#include "tests/runtime/queued_device.h"

namespace windtunnel {
namespace {

// The program is x *= 2, x += y, on four elements each: from x = 1 and y = 10, x becomes 12, 34, 78, …
class OperatorGraphsTest : public testing::Test {
 protected:
  OperatorGraphsTest() : device_(std::chrono::microseconds(100)), graphs_(device_) {
    program_.ops.resize(2);
    program_.ops[0].kind = Scale{.elements = 4, .scale = 2};
    program_.ops[1].kind = Copy{.elements = 4, .accumulate = true};
    other_.fill(1);
  }

  bool Run(float* x, float* y) {
    graphs_.Begin(program_, 0, {});
    const TensorRef tensor{x, 4}, addend{y, 4};
    graphs_.Add(program_.ops[0], {&tensor, 1}, {&tensor, 1});
    graphs_.Add(program_.ops[1], {&addend, 1}, {&tensor, 1});
    const auto issued = graphs_.Issue();
    EXPECT_TRUE(issued) << issued.error().message;
    EXPECT_EQ(device_.failure(), "");
    return issued.value_or(false);
  }
  bool Run() { return Run(x_.data(), y_.data()); }

  QueuedDevice device_;
  OperatorGraphs graphs_;
  Program program_;
  std::array<float, 4> x_ = {1, 1, 1, 1}, y_ = {10, 10, 10, 10}, other_;
};

TEST_F(OperatorGraphsTest, AreCapturedWhenTheyComeAgainAndLaunchedFromThenOn) {
  EXPECT_FALSE(Run());
  EXPECT_EQ(x_[3], 12);
  EXPECT_EQ(device_.thread_queues().graph_launches(), 0);
  EXPECT_FALSE(Run());  // false: the graph is captured only in this call
  EXPECT_EQ(x_[3], 34);
  EXPECT_TRUE(Run());
  EXPECT_EQ(x_[3], 78);
  EXPECT_TRUE(Run());
  EXPECT_EQ(x_[3], 166);
  EXPECT_EQ(device_.thread_queues().graph_launches(), 3);
  EXPECT_EQ(device_.thread_queues().graphs(), 1);
}

TEST_F(OperatorGraphsTest, OtherOperandsAreNotThoseOfTheGraph) {
  for (int i = 0; i < 3; ++i) Run();
  EXPECT_FALSE(Run(other_.data(), y_.data()));
  EXPECT_EQ(other_[0], 12);
  EXPECT_EQ(x_[0], 78);
  EXPECT_EQ(device_.thread_queues().graphs(), 0) << "the old one is of no use any more";
  EXPECT_FALSE(Run(other_.data(), y_.data()));
  EXPECT_TRUE(Run(other_.data(), y_.data()));
  EXPECT_EQ(other_[0], 78);
}

TEST_F(OperatorGraphsTest, OperandsThatAlwaysChangeAreNotCapturedForEver) {
  for (int i = 0; i < 40; ++i) {
    Run();
    Run();
    Run(other_.data(), y_.data());
  }
  const int launches = device_.thread_queues().graph_launches();
  EXPECT_GT(launches, 0);
  EXPECT_LE(launches, 8);
}

TEST_F(OperatorGraphsTest, AreCapturedAnewWhenTheDeviceSaysSo) {
  for (int i = 0; i < 3; ++i) Run();
  device_.BeginGeneration();
  EXPECT_FALSE(Run());
  EXPECT_TRUE(Run());
  EXPECT_EQ(x_[0], 342);
  EXPECT_EQ(device_.thread_queues().graphs(), 1);
}

// Operators that are not issued yet when memory is released may use that memory.
TEST_F(OperatorGraphsTest, AreIssuedBeforeMemoryGoes) {
  for (int i = 0; i < 3; ++i) Run();
  float scaled = 0;
  WatchedMemory memory(device_.memory(), [&] {
    graphs_.Flush();
    ASSERT_EQ(device_.failure(), "");  // all that was issued is done
    scaled = x_[0];
  });
  const uint64_t address = *memory.Reserve(MiB(2));
  graphs_.Begin(program_, 0, {});
  const TensorRef tensor{x_.data(), 4}, addend{y_.data(), 4};
  graphs_.Add(program_.ops[0], {&tensor, 1}, {&tensor, 1});
  memory.Release(address, MiB(2));
  EXPECT_EQ(scaled, 156);
  graphs_.Add(program_.ops[1], {&addend, 1}, {&tensor, 1});
  const auto issued = graphs_.Issue();
  ASSERT_TRUE(issued);
  EXPECT_FALSE(*issued);
  EXPECT_EQ(device_.failure(), "");
  EXPECT_EQ(x_[0], 166);
  EXPECT_TRUE(Run());
  EXPECT_EQ(x_[0], 342);
}

TEST_F(OperatorGraphsTest, TellWhatTheDeviceRefuses) {
  device_.RefuseFrom(1);
  graphs_.Begin(program_, 0, {});
  const TensorRef tensor{x_.data(), 4};
  graphs_.Add(program_.ops[0], {&tensor, 1}, {&tensor, 1});
  EXPECT_FALSE(graphs_.Issue());
  graphs_.Begin(program_, 0, {});
  graphs_.Add(program_.ops[0], {&tensor, 1}, {&tensor, 1});
  graphs_.Flush();
  EXPECT_FALSE(graphs_.Issue());
}

}  // namespace
}  // namespace windtunnel
