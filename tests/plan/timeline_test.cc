#include "plan/timeline.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

// compute: a [1,4) then, after waiting for `reduce` [4,9), b [10,12); the barrier ends at 15.
struct Example {
  Role role;
  Timeline timeline;
  Example() {
    role.streams = {{StreamKind::kCompute, "compute", -1}, {StreamKind::kCommunication, "data", 0}};
    auto op = [](OpKind kind, StreamId stream, std::vector<OpIndex> dependencies) {
      return Op(std::move(kind), stream, {}, {}, std::move(dependencies));
    };
    role.steady.ops = {op(Gemm{}, 0, {}), op(Collective{CollectiveKind::kAllReduce}, 1, {0}),
                       op(Scale{}, 0, {1}), op(Collective{CollectiveKind::kBarrier}, 1, {2})};
    auto us = [](double n) { return Microseconds(n); };
    timeline.end = us(15);
    timeline.spans = {
        {0, 0, us(1), us(4)}, {2, 0, us(10), us(12)}, {1, 1, us(4), us(9)}, {3, 1, us(12), us(15)}};
  }
};

TEST(BreakDown, EveryInstantIsOneOfComputeExposedCommunicationBubbleAndHost) {
  const Example e;
  const StepBreakdown b = BreakDown(e.timeline, e.role, e.role.steady);
  EXPECT_EQ(b.compute, Microseconds(5));
  EXPECT_EQ(b.exposed_communication, Microseconds(5 + 3));
  EXPECT_EQ(b.bubble, Duration());
  EXPECT_EQ(b.host, Microseconds(1 + 1));
  EXPECT_EQ(b.compute + b.exposed_communication + b.bubble + b.host, b.step);
  EXPECT_EQ(b.communication, Microseconds(5)) << "without the barrier, which moves nothing";
}

// A host that waits for a message before it issues what does not need the message: the device waits with it.
TEST(BreakDown, WhatTheHostWaitsForIsWaitedFor) {
  Example e;
  e.timeline.host_computes = false;
  e.role.streams[1].between_stages = true;
  e.role.streams.push_back({StreamKind::kHost, "host", -1});
  std::vector<Op>& ops = e.role.steady.ops;
  ops.insert(ops.begin() + 2, Op(HostWait{}, 2, {}, {}, {1}));
  ops[3].dependencies.clear();
  ops[4].dependencies = {3};
  for (Span& span : e.timeline.spans)
    if (span.op >= 2) ++span.op;
  const StepBreakdown b = BreakDown(e.timeline, e.role, e.role.steady);
  EXPECT_EQ(b.bubble, Microseconds(5 + 3));
  EXPECT_EQ(b.host, Microseconds(1 + 1)) << "before the first operator, and to issue the one behind the wait";
}

// Copies beside a device's computation count as communication; a host's own copies are its work.
TEST(BreakDown, CopiesBesideADeviceAreCommunication) {
  Example e;
  e.role.streams[1].kind = StreamKind::kCopy;
  e.timeline.host_computes = false;
  const StepBreakdown b = BreakDown(e.timeline, e.role, e.role.steady);
  EXPECT_GT(b.exposed_communication, Duration());
  EXPECT_EQ(b.communication, Microseconds(5));
  e.timeline.host_computes = true;
  EXPECT_EQ(BreakDown(e.timeline, e.role, e.role.steady).communication, Duration());
}

TEST(AttributeTime, NamesWhatRanAndWhatWasWaitedFor) {
  const Example e;
  const auto times = AttributeTime(e.timeline, e.role, e.role.steady);
  const std::map<std::string, Duration> expected = {{"gemm", Microseconds(3)},
                                                    {"scale", Microseconds(2)},
                                                    {"wait all_reduce", Microseconds(5)},
                                                    {"wait barrier", Microseconds(3)},
                                                    {"dispatch", Microseconds(2)}};
  EXPECT_EQ(times, expected);
}

}  // namespace
}  // namespace windtunnel
