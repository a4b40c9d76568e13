// The communicator over NCCL, with a fake NCCL in its place (fake_nccl.cc): what it asks NCCL for, in which
// order, and what it reports when NCCL fails. Nothing here needs a GPU.
#include "runtime/nccl/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <thread>

#include "runtime/group_operator.h"
#include "tests/runtime/group_of_threads.h"
#include "tests/runtime/queued_device.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> FakeNccl() { return {std::string(getenv("FAKE_NCCL"))}; }

NcclOptions OptionsOf(int rank, int size, milliseconds timeout = milliseconds(20'000)) {
  return {.name = "group", .rank = rank, .size = size, .timeout = timeout, .libraries = FakeNccl()};
}

using RankWork = std::function<void(DeviceCommunicator&, QueuedDevice&)>;

void WithNccl(int size, const RankWork& work, milliseconds timeout = milliseconds(20'000)) {
  WithStores(size, [&](int rank, Store& store) {
    QueuedDevice device(std::chrono::microseconds(300));
    auto group = MakeNcclCommunicator(store, device, OptionsOf(rank, size, timeout));
    ASSERT_TRUE(group) << group.error().message;
    work(*(*group)->on_device(), device);
  });
}

float Value(int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 1021 + 1)); }
std::vector<float> Values(int rank, int64_t first, int64_t count) {
  std::vector<float> values;
  for (int64_t i = first; i < first + count; ++i) values.push_back(Value(rank, i));
  return values;
}
std::vector<float> Sum(int size, int64_t first, int64_t count) {
  std::vector<float> values;
  for (int64_t i = first; i < first + count; ++i)
    values.push_back(Value(0, i) * static_cast<float>(size * (size + 1) / 2));
  return values;
}

Status RunOne(Communicator& group, const OpKind& kind, std::vector<TensorRef> reads,
              std::vector<TensorRef> writes) {
  return group.Wait(group.Submit(kind, reads, writes, "test"));
}

struct Shape {
  int size;
  int64_t elements;
};
class Nccl : public testing::TestWithParam<Shape> {
 protected:
  int size() const { return GetParam().size; }
  int64_t elements() const { return GetParam().elements; }
};
// Includes sizes that do not divide evenly among ranks, and zero elements.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Nccl, testing::Values(Shape{2, 1000}, Shape{2, 1}, Shape{2, 0}, Shape{3, 301}, Shape{4, 4096}),
    [](const auto& info) { return fmt::format("{}Ranks{}Elements", info.param.size, info.param.elements); });

TEST_P(Nccl, AllReduceSumsInPlace) {
  WithNccl(size(), [&](DeviceCommunicator& group, QueuedDevice&) {
    std::vector<float> x = Values(group.rank(), 0, elements()), scratch(x.size());
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kAllReduce, DType::kFloat32, elements()}, {Ref(x)},
                     {Ref(x), Ref(scratch)}));
    EXPECT_EQ(x, Sum(group.size(), 0, elements()));
  });
}

TEST_P(Nccl, ReduceScatterLeavesEachRankItsPart) {
  WithNccl(size(), [&](DeviceCommunicator& group, QueuedDevice&) {
    const Part part = PartOf(elements(), group.size(), group.rank());
    std::vector<float> x = Values(group.rank(), 0, elements()), own(static_cast<size_t>(part.elements)),
                       scratch(x.size());
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kReduceScatter, DType::kFloat32, elements()}, {Ref(x)},
                     {Ref(own), Ref(scratch)}));
    EXPECT_EQ(own, Sum(group.size(), part.begin, part.elements));
  });
}

TEST_P(Nccl, AllGatherPutsPartsInOrder) {
  WithNccl(size(), [&](DeviceCommunicator& group, QueuedDevice&) {
    const Part part = PartOf(elements(), group.size(), group.rank());
    std::vector<float> own = Values(0, part.begin, part.elements), whole(static_cast<size_t>(elements()));
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kAllGather, DType::kFloat32, elements()}, {Ref(own)},
                     {Ref(whole)}));
    EXPECT_EQ(whole, Values(0, 0, elements()));
  });
}

TEST_P(Nccl, BroadcastAndReduceHaveARoot) {
  WithNccl(size(), [&](DeviceCommunicator& group, QueuedDevice&) {
    const int root = group.size() - 1;
    std::vector<float> x = Values(group.rank(), 0, elements()), sum(x.size());
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kReduce, DType::kFloat32, elements(), root}, {Ref(x)},
                     {Ref(sum)}));
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kBroadcast, DType::kFloat32, elements(), root},
                     {Ref(x)}, {Ref(x)}));
    if (group.rank() == root) {
      EXPECT_EQ(sum, Sum(group.size(), 0, elements()));
    }
    EXPECT_EQ(x, Values(root, 0, elements()));
  });
}

TEST_P(Nccl, GatherAndScatterAreEachOthersInverse) {
  WithNccl(size(), [&](DeviceCommunicator& group, QueuedDevice&) {
    const Part part = PartOf(elements(), group.size(), group.rank());
    std::vector<float> own = Values(0, part.begin, part.elements), back(own.size()),
                       whole(static_cast<size_t>(elements()));
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kGather, DType::kFloat32, elements(), 1}, {Ref(own)},
                     {Ref(whole)}));
    if (group.rank() == 1) {
      EXPECT_EQ(whole, Values(0, 0, elements()));
    }
    EXPECT_OK(RunOne(group, Collective{CollectiveKind::kScatter, DType::kFloat32, elements(), 1},
                     {Ref(whole)}, {Ref(back)}));
    EXPECT_EQ(back, own);
  });
}

TEST_P(Nccl, AllToAllAndShiftExchange) {
  const int64_t even = elements() / size() * size();
  WithNccl(size(), [&](DeviceCommunicator& group, QueuedDevice&) {
    std::vector<float> x = Values(group.rank(), 0, even), y(x.size());
    EXPECT_OK(
        RunOne(group, Collective{CollectiveKind::kAllToAll, DType::kFloat32, even}, {Ref(x)}, {Ref(y)}));
    const int64_t each = even / group.size();
    std::vector<float> expected;
    for (int peer = 0; peer < group.size(); ++peer) {
      const std::vector<float> part = Values(peer, group.rank() * each, each);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(y, expected);
    for (int distance = 1; distance < std::max(group.size(), 2); ++distance) {
      const Collective shift{
          .kind = CollectiveKind::kShift, .dtype = DType::kFloat32, .elements = even, .distance = distance};
      EXPECT_OK(RunOne(group, shift, {Ref(x)}, {Ref(y)}));
      EXPECT_EQ(y, Values((group.rank() + group.size() - distance) % group.size(), 0, even));
    }
  });
}

TEST(NcclCommunicator, MessagesGoFromRankToRank) {
  WithNccl(2, [](DeviceCommunicator& group, QueuedDevice&) {
    std::vector<float> x = Values(group.rank(), 0, 100), y(100);
    if (group.rank() == 0) {
      EXPECT_OK(RunOne(group, Send{DType::kFloat32, 100, 1}, {Ref(x)}, {}));
    } else {
      EXPECT_OK(RunOne(group, Receive{DType::kFloat32, 100, 0}, {}, {Ref(y)}));
      EXPECT_EQ(y, Values(0, 0, 100));
    }
  });
}

// The host runs ahead: only queues wait.
TEST(NcclCommunicator, QueuesWaitForOperatorsAndOperatorsForQueues) {
  WithNccl(2, [](DeviceCommunicator& group, QueuedDevice& device) {
    DeviceQueues& queues = *device.queues();
    std::vector<float> x = Values(group.rank(), 0, 1000), scratch(1000);
    const TensorRef ref = Ref(x), writes[] = {ref, Ref(scratch)};
    for (int i = 0; i < 20; ++i) {
      const KernelContext context;
      EXPECT_OK(device.Launch(Scale{1000, 0.5, DType::kFloat32}, {&ref, 1}, {&ref, 1}, context));
      const auto computed = queues.Record(DeviceQueues::kCompute, DeviceQueues::Timing::kNone);
      ASSERT_TRUE(computed);
      EXPECT_OK(queues.WaitFor(group.queue(), *computed));
      const uint64_t ticket = group.Submit(Collective{CollectiveKind::kAllReduce, DType::kFloat32, 1000},
                                           {&ref, 1}, writes, "sum");
      EXPECT_OK(group.LetWait(DeviceQueues::kCompute, ticket));
    }
    EXPECT_OK(queues.Restart());
    // The sum of both ranks' halves is their mean, which later rounds do not change.
    std::vector<float> mean = Sum(2, 0, 1000);
    for (float& value : mean) value /= 2;
    EXPECT_EQ(x, mean);
    EXPECT_EQ(device.failure(), "");
  });
}

TEST(NcclCommunicator, TimesLieBetweenSubmittingAndWaiting) {
  WithNccl(2, [](DeviceCommunicator& group, QueuedDevice&) {
    std::vector<float> x(10), scratch(10);
    const TensorRef ref = Ref(x), writes[] = {ref, Ref(scratch)};
    const auto before = Communicator::Clock::now();
    const uint64_t ticket =
        group.Submit(Collective{CollectiveKind::kAllReduce, DType::kFloat32, 10}, {&ref, 1}, writes, "sum");
    EXPECT_OK(group.Wait(ticket));
    const auto times = group.TimesOf(ticket);
    EXPECT_LE(before, times.start);
    EXPECT_LE(times.start, times.end);
    EXPECT_LE(times.end, Communicator::Clock::now());
  });
}

TEST(NcclCommunicator, SplitsGroupsOffTheWorld) {
  WithStores(4, [](int rank, Store& store) {
    QueuedDevice device(std::chrono::microseconds(0));
    auto world = MakeNcclCommunicator(store, device, OptionsOf(rank, 4));
    ASSERT_TRUE(world) << world.error().message;
    NcclOptions options = OptionsOf(rank / 2, 2);
    options.name = fmt::format("pair {}", rank % 2);
    options.parent = world->get();
    options.color = rank % 2;
    auto pair = MakeNcclCommunicator(store, device, options);
    ASSERT_TRUE(pair) << pair.error().message;
    std::vector<float> x(1, static_cast<float>(rank)), scratch(1);
    EXPECT_OK(RunOne(**pair, Collective{CollectiveKind::kAllReduce, DType::kFloat32, 1}, {Ref(x)},
                     {Ref(x), Ref(scratch)}));
    EXPECT_EQ(x[0], rank % 2 == 0 ? 2 : 4);
    EXPECT_OK(RunOne(**world, Collective{CollectiveKind::kBarrier, DType::kFloat32, 0}, {}, {}));
  });
}

// ---- what goes wrong --------------------------------------------------------------------------------------

TEST(NcclCommunicator, ATimeOutNamesTheOperatorItsNumberAndWhoDidNotCome) {
  WithNccl(
      3,
      [](DeviceCommunicator& group, QueuedDevice&) {
        const Collective barrier{CollectiveKind::kBarrier, DType::kFloat32, 0};
        EXPECT_OK(RunOne(group, barrier, {}, {}));
        if (group.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(2500));
          return;
        }
        std::vector<float> x(8), scratch(8);
        const TensorRef ref = Ref(x), writes[] = {ref, Ref(scratch)};
        const uint64_t ticket = group.Submit(Collective{CollectiveKind::kAllReduce, DType::kFloat32, 8},
                                             {&ref, 1}, writes, "bucket 0");
        const Status status = group.Wait(ticket);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::kFailed);
        EXPECT_THAT(status.error().message,
                    testing::HasSubstr("all_reduce 'bucket 0' (number 2, all_reduce of 8 x fp32)"));
        EXPECT_THAT(status.error().message, testing::HasSubstr("timed out after 800 ms"));
        EXPECT_THAT(status.error().message, testing::HasSubstr("rank 1 did not come"));
        EXPECT_EQ(status.error().message.find(fmt::format("rank {} did not come", 2 - group.rank())),
                  std::string::npos)
            << status.error().message;
        // Later operators fail at once.
        const auto begin = Communicator::Clock::now();
        EXPECT_FALSE(RunOne(group, barrier, {}, {}));
        EXPECT_LT(Communicator::Clock::now() - begin, milliseconds(500));
      },
      milliseconds(800));
}

TEST(NcclCommunicator, RanksAtDifferentOperatorsAreToldApart) {
  WithNccl(
      2,
      [](DeviceCommunicator& group, QueuedDevice&) {
        std::vector<float> x(8), y(8);
        // Messages that nobody takes: each waits for the other to receive.
        const Status status = RunOne(group, Send{DType::kFloat32, 8, 1 - group.rank()}, {Ref(x)}, {});
        ASSERT_FALSE(status);
        EXPECT_THAT(status.error().message,
                    testing::HasSubstr("send 'test' (number 1, message of 8 x fp32)"));
      },
      milliseconds(500));
}

TEST(NcclCommunicator, WhatNcclReportsBySideOfACallEndsTheGroup) {
  setenv("FAKE_NCCL_ASYNC_ERROR", "1", 1);
  WithNccl(2, [](DeviceCommunicator& group, QueuedDevice&) {
    const Collective barrier{CollectiveKind::kBarrier, DType::kFloat32, 0};
    Status status = RunOne(group, barrier, {}, {});
    for (int i = 0; i < 3 && status; ++i) status = RunOne(group, barrier, {}, {});
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message,
                testing::HasSubstr("remote process exited or there was a network error (the last warning)"));
  });
  unsetenv("FAKE_NCCL_ASYNC_ERROR");
}

TEST(NcclCommunicator, ConnectingNamesWhoIsNotThere) {
  WithStores(1, [](int, Store& store) {
    QueuedDevice device(std::chrono::microseconds(0));
    auto group = MakeNcclCommunicator(store, device, OptionsOf(0, 3, milliseconds(300)));
    ASSERT_FALSE(group);
    EXPECT_THAT(group.error().message, testing::HasSubstr("not there: rank 1, 2"));
  });
}

TEST(NcclCommunicator, AnUnknownOperandIsRefused) {
  WithNccl(2, [](DeviceCommunicator& group, QueuedDevice&) {
    const Status status = RunOne(group, Collective{CollectiveKind::kAllReduce, DType::kFloat32, 8}, {}, {});
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, testing::HasSubstr("operand x is missing"));
  });
}

// A late device would clear the barriers' memory after the group is gone. Which of its queues are late
// depends on their number.
TEST(NcclCommunicator, KeepsItsMemoryAsLongAsItsQueueIsBusy) {
  for (int others = 0; others < 8; ++others) {
    WithStores(1, [&](int, Store& store) {
      QueuedDevice device(milliseconds(20));
      for (int i = 0; i < others; ++i) ASSERT_TRUE(device.thread_queues().Open(false));
      ASSERT_TRUE(MakeNcclCommunicator(store, device, OptionsOf(0, 1)));
    });
  }
}

TEST(NcclCommunicator, NeedsADeviceWithQueues) {
  WithStores(1, [](int, Store& store) {
    const auto cpu = MakeCpuDevice();
    auto group = MakeNcclCommunicator(store, *cpu, OptionsOf(0, 1));
    ASSERT_FALSE(group);
    EXPECT_THAT(group.error().message, testing::HasSubstr("run.backend: nccl needs a device with queues"));
  });
}

}  // namespace
}  // namespace windtunnel
