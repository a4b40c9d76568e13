#include "runtime/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>

#include "base/random.h"
#include "runtime/cpu/element.h"
#include "runtime/group_operator.h"
#include "tests/runtime/group_of_threads.h"

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = Communicator::Clock;

// Whole numbers below 2^24, whose sums are exact in fp32.
float Value(int rank, int64_t i) { return static_cast<float>((rank + 1) * (i % 1021 + 1)); }

std::vector<float> Values(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[i] = Value(rank, i);
  return values;
}

// The claims about each collective. They hold for any number of elements, in a group that has run other
// operators before.

// The other ranks' outputs are empty: nothing is written to them.
void ReduceSumsOnTheRootAloneAndLeavesTheInput(Communicator& group, int64_t elements) {
  for (int root : {0, group.size() - 1}) {
    const bool is_root = group.rank() == root;
    std::vector<float> x = Values(group.rank(), elements), sum(is_root ? x.size() : 0);
    EXPECT_OK(
        RunCollective(group, {CollectiveKind::kReduce, DType::kFloat32, elements, root}, Ref(x), Ref(sum)));
    EXPECT_EQ(x, Values(group.rank(), elements));
    const float ranks = static_cast<float>(group.size() * (group.size() + 1) / 2);
    for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], Value(0, static_cast<int64_t>(i)) * ranks);
  }
}

void ReduceWorksInPlace(Communicator& group, int64_t elements) {
  const int root = group.size() - 1;
  std::vector<float> x = Values(group.rank(), elements);
  EXPECT_OK(RunCollective(group, {CollectiveKind::kReduce, DType::kFloat32, elements, root}, Ref(x), Ref(x)));
  const float ranks = static_cast<float>(group.size() * (group.size() + 1) / 2);
  for (int64_t i = 0; i < elements; ++i)
    ASSERT_EQ(x[i], group.rank() == root ? Value(0, i) * ranks : Value(group.rank(), i));
}

void GatherCollectsThePartsOnTheRootInOrderOfRanks(Communicator& group, int64_t elements) {
  for (int root : {0, group.size() - 1}) {
    const bool is_root = group.rank() == root;
    const Part part = PartOf(elements, group.size(), group.rank());
    std::vector<float> shard(static_cast<size_t>(part.elements)),
        whole(is_root ? static_cast<size_t>(elements) : 0);
    for (int64_t i = 0; i < part.elements; ++i) shard[i] = Value(0, part.begin + i);
    EXPECT_OK(RunCollective(group, {CollectiveKind::kGather, DType::kFloat32, elements, root}, Ref(shard),
                            Ref(whole)));
    if (is_root) {
      EXPECT_EQ(whole, Values(0, elements));
    }
  }
}

void ScatterGivesEachRankItsPartOfTheRoots(Communicator& group, int64_t elements) {
  for (int root : {0, group.size() - 1}) {
    const Part part = PartOf(elements, group.size(), group.rank());
    std::vector<float> whole = group.rank() == root ? Values(root, elements) : std::vector<float>();
    std::vector<float> shard(static_cast<size_t>(part.elements));
    const bool in_place = group.rank() == root && root == 0;  // the output is the root's part of the whole
    const TensorRef out = in_place ? TensorRef{whole.data() + part.begin, part.elements} : Ref(shard);
    EXPECT_OK(
        RunCollective(group, {CollectiveKind::kScatter, DType::kFloat32, elements, root}, Ref(whole), out));
    for (int64_t i = 0; i < part.elements; ++i) ASSERT_EQ(out.f32()[i], Value(root, part.begin + i)) << i;
  }
}

void AllReduceSumsOverRanks(Communicator& group, int64_t elements) {
  std::vector<float> x = Values(group.rank(), elements);
  EXPECT_OK(RunCollective(group, {CollectiveKind::kAllReduce, DType::kFloat32, elements, 0}, Ref(x), Ref(x)));
  const float ranks = static_cast<float>(group.size() * (group.size() + 1) / 2);
  for (int64_t i = 0; i < elements; ++i) ASSERT_EQ(x[i], Value(0, i) * ranks) << i;
}

void AllReduceOfMaximaFindsTheLargestOfEachElement(Communicator& group, int64_t elements) {
  // Every rank has the largest of some elements.
  std::vector<float> x(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) x[i] = -static_cast<float>((i + group.rank()) % group.size());
  Collective op = AllReduceOf(elements);
  op.reduction = Reduction::kMax;
  EXPECT_OK(RunCollective(group, op, Ref(x), Ref(x)));
  EXPECT_EQ(x, std::vector<float>(static_cast<size_t>(elements), 0.0f));
}

void ReduceScatterLeavesEachRankItsPartOfTheSumAndTheInputAlone(Communicator& group, int64_t elements) {
  const Part part = PartOf(elements, group.size(), group.rank());
  std::vector<float> whole = Values(group.rank(), elements), shard(static_cast<size_t>(part.elements));
  EXPECT_OK(RunCollective(group, {CollectiveKind::kReduceScatter, DType::kFloat32, elements, 0}, Ref(whole),
                          Ref(shard)));
  const float ranks = static_cast<float>(group.size() * (group.size() + 1) / 2);
  for (int64_t i = 0; i < part.elements; ++i) ASSERT_EQ(shard[i], Value(0, part.begin + i) * ranks) << i;
  EXPECT_EQ(whole, Values(group.rank(), elements));
}

void AllGatherCollectsThePartsInOrderOfRanks(Communicator& group, int64_t elements) {
  const Part part = PartOf(elements, group.size(), group.rank());
  std::vector<float> shard(static_cast<size_t>(part.elements)), whole(static_cast<size_t>(elements));
  for (int64_t i = 0; i < part.elements; ++i) shard[i] = Value(0, part.begin + i);
  EXPECT_OK(RunCollective(group, {CollectiveKind::kAllGather, DType::kFloat32, elements, 0}, Ref(shard),
                          Ref(whole)));
  EXPECT_EQ(whole, Values(0, elements));
}

void AllGatherWorksInPlace(Communicator& group, int64_t elements) {
  const Part part = PartOf(elements, group.size(), group.rank());
  std::vector<float> whole(static_cast<size_t>(elements));
  for (int64_t i = part.begin; i < part.begin + part.elements; ++i) whole[i] = Value(0, i);
  const TensorRef shard = {whole.data() + part.begin, part.elements};
  EXPECT_OK(
      RunCollective(group, {CollectiveKind::kAllGather, DType::kFloat32, elements, 0}, shard, Ref(whole)));
  EXPECT_EQ(whole, Values(0, elements));
}

void ReduceScatterWorksInPlaceAndLeavesThePeersParts(Communicator& group, int64_t elements) {
  const Part part = PartOf(elements, group.size(), group.rank());
  std::vector<float> whole = Values(group.rank(), elements);
  const TensorRef shard = {whole.data() + part.begin, part.elements};
  EXPECT_OK(RunCollective(group, {CollectiveKind::kReduceScatter, DType::kFloat32, elements, 0}, Ref(whole),
                          shard));
  const float ranks = static_cast<float>(group.size() * (group.size() + 1) / 2);
  for (int64_t i = 0; i < elements; ++i) {
    const bool mine = i >= part.begin && i < part.begin + part.elements;
    ASSERT_EQ(whole[i], mine ? Value(0, i) * ranks : Value(group.rank(), i)) << i;
  }
}

void BroadcastReachesAllFromAnyRoot(Communicator& group, int64_t elements) {
  for (int root : {0, group.size() - 1}) {
    std::vector<float> x = Values(group.rank(), elements);
    EXPECT_OK(
        RunCollective(group, {CollectiveKind::kBroadcast, DType::kFloat32, elements, root}, Ref(x), Ref(x)));
    EXPECT_EQ(x, Values(root, elements));
  }
}

void AllToAllTransposesParts(Communicator& group, int64_t all) {
  const int64_t part = all / group.size(), elements = part * group.size();
  // Element i of part p of rank r's input is r's value p part + i; rank p finds it in its part r.
  std::vector<float> in = Values(group.rank(), elements), out(static_cast<size_t>(elements));
  EXPECT_OK(
      RunCollective(group, {CollectiveKind::kAllToAll, DType::kFloat32, elements, 0}, Ref(in), Ref(out)));
  for (int64_t i = 0; i < elements; ++i)
    ASSERT_EQ(out[i], Value(static_cast<int>(i / part), group.rank() * part + i % part)) << i;
}

void ShiftsGoAsFarAheadAsTheySay(Communicator& group, int64_t elements) {
  for (int distance = 1; distance < std::max(group.size(), 2); ++distance) {
    std::vector<float> in = Values(group.rank(), elements), out(static_cast<size_t>(elements));
    const Collective shift{
        .kind = CollectiveKind::kShift, .dtype = DType::kFloat32, .elements = elements, .distance = distance};
    EXPECT_OK(RunCollective(group, shift, Ref(in), Ref(out)));
    EXPECT_EQ(out, Values((group.rank() + group.size() - distance) % group.size(), elements)) << distance;
  }
}

void MessagesGoAroundTheRing(Communicator& group, int64_t elements) {
  if (group.size() == 1) return;  // a rank cannot send to itself
  const int right = (group.rank() + 1) % group.size(),
            left = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> mine = Values(group.rank(), elements), theirs(static_cast<size_t>(elements));
  const TensorRef reads[] = {Ref(mine)}, writes[] = {Ref(theirs)};
  auto send = [&] {
    EXPECT_OK(group.Wait(group.Submit(Send{DType::kFloat32, elements, right}, reads, {}, "send")));
  };
  auto receive = [&] {
    EXPECT_OK(group.Wait(group.Submit(Receive{DType::kFloat32, elements, left}, {}, writes, "receive")));
  };
  // One rank receives first: large messages wait for their receiver, and must not do so in a circle.
  if (group.rank() == 0) receive(), send();
  else send(), receive();
  EXPECT_EQ(theirs, Values(left, elements));
}

struct Claim {
  const char* name;
  void (*check)(Communicator& group, int64_t elements);
  enum class Needs { kNothing, kRoot, kMaxima } needs = Needs::kNothing;

  // Of the collectives with a root, Gloo has only broadcast. Device threads reduce only by sums.
  bool HoldsOf(Transport transport) const {
    return needs == Needs::kNothing ||
           (needs == Needs::kRoot ? transport != Transport::kGloo : transport != Transport::kDevices);
  }
};
#define CLAIM(function, needs) \
  { #function, function, Claim::Needs::needs }
constexpr Claim kClaims[] = {
    CLAIM(AllReduceSumsOverRanks, kNothing),
    CLAIM(AllReduceOfMaximaFindsTheLargestOfEachElement, kMaxima),
    CLAIM(ReduceScatterLeavesEachRankItsPartOfTheSumAndTheInputAlone, kNothing),
    CLAIM(AllGatherCollectsThePartsInOrderOfRanks, kNothing),
    CLAIM(AllGatherWorksInPlace, kNothing),
    CLAIM(ReduceScatterWorksInPlaceAndLeavesThePeersParts, kNothing),
    CLAIM(BroadcastReachesAllFromAnyRoot, kNothing),
    CLAIM(AllToAllTransposesParts, kNothing),
    CLAIM(ShiftsGoAsFarAheadAsTheySay, kNothing),
    CLAIM(MessagesGoAroundTheRing, kNothing),
    CLAIM(ReduceSumsOnTheRootAloneAndLeavesTheInput, kRoot),
    CLAIM(ReduceWorksInPlace, kRoot),
    CLAIM(GatherCollectsThePartsOnTheRootInOrderOfRanks, kRoot),
    CLAIM(ScatterGivesEachRankItsPartOfTheRoots, kRoot),
};
#undef CLAIM

// A group of `size` ranks, and the numbers of elements with which it runs every collective.
struct Shape {
  int size;
  std::vector<int64_t> elements;
};

class Collectives : public testing::TestWithParam<std::tuple<Transport, Shape>> {};

std::string NameOf(const testing::TestParamInfo<std::tuple<Transport, Shape>>& info) {
  const auto& [transport, shape] = info.param;
  return fmt::format("{}{}Ranks", NameOf(transport), shape.size);
}

// Every algorithm: one rank alone, direct in one piece and in two, rings of one and of several segments,
// parts of unequal and of zero size, more ranks than go direct.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Collectives,
    testing::Combine(testing::Values(Transport::kGloo, Transport::kThreads),
                     testing::Values(Shape{1, {1000}}, Shape{2, {0, 1, 4099, 40'001, 100'001, 1'300'003}},
                                     Shape{3, {5, 20'003, 2'000'003}}, Shape{4, {16'385, 100'002}},
                                     Shape{5, {3}}, Shape{9, {0, 7, 5000}})),
    NameOf);
// In place, parts of unequal and of zero size, sums of one block and of several.
INSTANTIATE_TEST_SUITE_P(ShapesOfDevices, Collectives,
                         testing::Combine(testing::Values(Transport::kDevices),
                                          testing::Values(Shape{1, {1000}}, Shape{2, {0, 1, 4099, 5'000'003}},
                                                          Shape{3, {5, 20'003}}, Shape{5, {3, 16'385}})),
                         NameOf);
// Messages that leave at once (MPI's eager limit), other direct ones, rings of one and of several segments,
// MPI's own collectives, more ranks than go direct.
INSTANTIATE_TEST_SUITE_P(
    ShapesOfProcesses, Collectives,
    testing::Combine(testing::Values(Transport::kMpi),
                     testing::Values(Shape{1, {1000}}, Shape{2, {0, 1, 4099, 100'001, 1'300'003}},
                                     Shape{3, {5, 2'000'003}}, Shape{4, {30'002}}, Shape{9, {0, 7}})),
    NameOf);

// One group checks all claims, because starting nine processes takes longer than checking them.
TEST_P(Collectives, DoWhatIsClaimedOfThem) {
  const auto& [transport, shape] = GetParam();
  WithGroup(transport, shape.size, [transport = transport, &shape = shape](Communicator& group) {
    for (const Claim& claim : kClaims) {
      if (!claim.HoldsOf(transport)) continue;
      for (int64_t elements : shape.elements) {
        SCOPED_TRACE(fmt::format("{} of {} elements", claim.name, elements));
        claim.check(group, elements);
      }
    }
  });
}

class EveryCommunicator : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Transports, EveryCommunicator, testing::ValuesIn(kTransports),
                         [](const auto& info) { return NameOf(info.param); });

TEST_P(EveryCommunicator, AllReduceGivesTheSameBitsOnAllRanks) {
  for (int64_t elements : {1000, 200'000}) {
    const Shared<float> results(static_cast<size_t>(3 * elements));
    WithGroup(GetParam(), 3, [&](Communicator& group) {
      RandomStream random(1, static_cast<uint64_t>(group.rank()));
      std::vector<float> x(static_cast<size_t>(elements));
      for (float& value : x) value = static_cast<float>(random.Normal());
      EXPECT_OK(
          RunCollective(group, {CollectiveKind::kAllReduce, DType::kFloat32, elements, 0}, Ref(x), Ref(x)));
      std::copy(x.begin(), x.end(), results.data() + group.rank() * elements);
    });
    for (int64_t i = 0; i < elements; ++i) {
      ASSERT_EQ(results[i], results[elements + i]) << i;
      ASSERT_EQ(results[i], results[2 * elements + i]) << i;
    }
  }
}

// Whole numbers up to 256 have at most eight bits: exact in bf16, in any order of summation.
template <typename T>
std::vector<T> SixteenBitValues(int rank, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(cpu::FromFloat<T>(static_cast<float>((rank + 1) * (i % 25 + 1))));
  return values;
}

template <typename T>
void ExpectSumsIn(Communicator& group, DType dtype, int64_t elements) {
  const float ranks = static_cast<float>(group.size() * (group.size() + 1) / 2);
  const auto expected = [&](int64_t i) { return static_cast<float>(i % 25 + 1) * ranks; };
  std::vector<T> x = SixteenBitValues<T>(group.rank(), elements);
  EXPECT_OK(RunCollective(group, {CollectiveKind::kAllReduce, dtype, elements, 0}, Ref(x), Ref(x)));
  for (int64_t i = 0; i < elements; ++i) ASSERT_EQ(cpu::ToFloat(x[i]), expected(i)) << i;

  const Part part = PartOf(elements, group.size(), group.rank());
  std::vector<T> whole = SixteenBitValues<T>(group.rank(), elements),
                 shard(static_cast<size_t>(part.elements));
  EXPECT_OK(
      RunCollective(group, {CollectiveKind::kReduceScatter, dtype, elements, 0}, Ref(whole), Ref(shard)));
  for (int64_t i = 0; i < part.elements; ++i)
    ASSERT_EQ(cpu::ToFloat(shard[i]), expected(part.begin + i)) << i;
}

TEST_P(EveryCommunicator, SumsSixteenBitTypes) {
  for (int size : {2, 3, 4}) {
    WithGroup(GetParam(), size, [](Communicator& group) {
      for (int64_t elements : {1001, 200'003, 1'500'001}) {  // direct, ring of one segment, ring of several
        ExpectSumsIn<cpu::BFloat16>(group, DType::kBFloat16, elements);
        ExpectSumsIn<cpu::Float16>(group, DType::kFloat16, elements);
      }
    });
  }
}

TEST_P(EveryCommunicator, RoundsSixteenBitSumsToNearestEvenAfterEachAddition) {
  WithGroup(GetParam(), 3, [](Communicator& group) {
    // bf16 has eight significant bits: 256 + 1 is a tie and goes to 256, twice; 258 + 1 goes to 260, 260 + 3
    // to 264.
    const float values[3][2] = {{256, 258}, {1, 1}, {1, 3}};
    std::vector<cpu::BFloat16> x;
    for (float value : values[group.rank()]) x.push_back(cpu::FromFloat<cpu::BFloat16>(value));
    EXPECT_OK(RunCollective(group, {CollectiveKind::kAllReduce, DType::kBFloat16, 2, 0}, Ref(x), Ref(x)));
    EXPECT_EQ(cpu::ToFloat(x[0]), 256.0f);
    EXPECT_EQ(cpu::ToFloat(x[1]), 264.0f);
  });
}

TEST_P(EveryCommunicator, SumsWholeNumbersExactly) {
  if (GetParam() == Transport::kDevices) GTEST_SKIP() << "devices have no kernel that adds whole numbers";
  WithGroup(GetParam(), 2, [](Communicator& group) {
    std::vector<int32_t> x = {1 << 30, 16'777'217, -5};  // 2^24 + 1 is no fp32
    EXPECT_OK(RunCollective(group, {CollectiveKind::kAllReduce, DType::kInt32, 3, 0}, Ref(x), Ref(x)));
    EXPECT_EQ(x[1], 33'554'434);
    EXPECT_EQ(x[2], -10);
  });
}

TEST_P(EveryCommunicator, BarrierHoldsEveryRankUntilTheLastHasCome) {
  for (int size : {2, 4, 10}) {
    const Shared<std::atomic<int>> arrived;
    WithGroup(GetParam(), size, [&](Communicator& group) {
      for (int round = 1; round <= 20; ++round) {
        if (group.rank() == round % group.size()) std::this_thread::sleep_for(milliseconds(1));
        ++*arrived;
        EXPECT_OK(RunCollective(group, {CollectiveKind::kBarrier, DType::kFloat32, 0, 0}, {}, {}));
        EXPECT_GE(*arrived, round * group.size());
      }
    });
  }
}

// Each operator has its own times, however many operators a program has.
TEST_P(EveryCommunicator, TimesAreKeptOfAsManyAsAreAskedFor) {
  if (GetParam() == Transport::kDevices)
    GTEST_SKIP() << "each operator waits for a device that is late on purpose";
  constexpr int kOperators = 5'000;
  WithGroup(GetParam(), 2, [](Communicator& group) {
    group.KeepTimes(kOperators);
    std::vector<float> x(1), scratch(64);
    const TensorRef operands[] = {Ref(x), Ref(scratch)};
    std::vector<uint64_t> tickets;
    for (int i = 0; i < kOperators; ++i)
      tickets.push_back(group.Submit(AllReduceOf(1), operands, operands, "x"));
    EXPECT_OK(group.Wait(tickets.back()));
    for (int i = 1; i < kOperators; ++i)
      ASSERT_GE(group.TimesOf(tickets[i]).end, group.TimesOf(tickets[i - 1]).end) << i;
  });
}

// Large and small operators are mixed, and many are submitted before the first is waited for. They are waited
// for out of order.
TEST_P(EveryCommunicator, OperatorsRunInOrderOfSubmission) {
  for (int size : {2, 3}) {
    WithGroup(GetParam(), size, [](Communicator& group) {
      constexpr int kOperators = 600;  // more than the queue holds
      std::vector<std::vector<float>> x(kOperators);
      std::vector<float> scratch(
          static_cast<size_t>(CollectiveScratchElements({.elements = 100'000}, group.size())));
      std::vector<uint64_t> tickets;
      for (int i = 0; i < kOperators; ++i) {
        const int64_t elements = i % 7 == 3 ? 100'000 : i % 11 == 5 ? 20'000 : 1 + i % 100;
        x[i] = std::vector<float>(static_cast<size_t>(elements), static_cast<float>(group.rank() + i));
        const TensorRef writes[] = {Ref(x[i]), Ref(scratch)};
        tickets.push_back(group.Submit(Collective{CollectiveKind::kAllReduce, DType::kFloat32, elements, 0},
                                       writes, writes, "x"));
        EXPECT_EQ(tickets.back(), static_cast<uint64_t>(i + 1));
      }
      for (int i : {kOperators / 2, 3, kOperators - 1}) EXPECT_OK(group.Wait(tickets[i]));
      for (int i = 0; i < kOperators; ++i) {
        const int n = group.size();
        ASSERT_EQ(x[i].back(), static_cast<float>(n * (n - 1) / 2 + n * i)) << i;
        const Communicator::Times times = group.TimesOf(tickets[i]);
        EXPECT_LE(times.start, times.end);
        if (i > 0) {
          EXPECT_LE(group.TimesOf(tickets[i - 1]).end, times.end);
        }
      }
    });
  }
}

TEST_P(EveryCommunicator, LargeOperatorsProgressWhileTheCallerComputes) {
  WithGroup(GetParam(), 2, [](Communicator& group) {
    std::vector<float> x(2'000'000, 1.0f);
    const Collective op = {CollectiveKind::kAllReduce, DType::kFloat32, 2'000'000, 0};
    std::vector<float> scratch(static_cast<size_t>(CollectiveScratchElements(op, 2)));
    const TensorRef writes[] = {Ref(x), Ref(scratch)};
    const uint64_t ticket = group.Submit(op, writes, writes, "x");
    // The caller only lets time pass.
    const auto tickets = group.tickets();
    const auto deadline = Clock::now() + milliseconds(20'000);
    while (!tickets->IsDone(ticket) && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(tickets->IsDone(ticket));
    EXPECT_OK(group.Wait(ticket));
  });
}

TEST_P(EveryCommunicator, RefusesWhatItCannotDoWithoutHarmToItsPeers) {
  WithGroup(GetParam(), 2, [](Communicator& group) {
    std::vector<float> x(8);
    Status bytes = RunCollective(group, {CollectiveKind::kAllReduce, DType::kFloat8, 8, 0}, Ref(x), Ref(x));
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().kind, ErrorKind::kUnsupported);
    EXPECT_NE(bytes.error().message.find("fp8"), std::string::npos) << bytes.error().message;
  });
  WithGroup(GetParam(), 2, [](Communicator& group) {
    std::vector<float> x(8);
    Status shorter =
        RunCollective(group, {CollectiveKind::kAllReduce, DType::kFloat32, 9, 0}, Ref(x), Ref(x));
    ASSERT_FALSE(shorter);
    EXPECT_NE(shorter.error().message.find("has 8 elements, 9 are needed"), std::string::npos)
        << shorter.error().message;
  });
}

TEST(Communicator, GlooSaysThatItHasNoCollectivesWithARootButBroadcast) {
  WithGroup(Transport::kGloo, 2, [](Communicator& group) {
    std::vector<float> x(8);
    for (CollectiveKind kind : {CollectiveKind::kReduce, CollectiveKind::kGather, CollectiveKind::kScatter}) {
      Status status = RunCollective(group, {kind, DType::kFloat32, 8, 0}, Ref(x), Ref(x));
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
    }
  });
}

TEST(Communicator, EveryDeviceOfThreadsIsLinkedWithEveryOther) {
  struct LinkedDevice : QueuedDevice {
    LinkedDevice() : QueuedDevice(std::chrono::microseconds(0)) {}
    Status Link(Device& other) override {
      linked.insert(&other);
      return Ok();
    }
    std::set<Device*> linked;
  };
  std::array<LinkedDevice, 3> devices;
  WithThreads(3, milliseconds(20'000), [&](const std::shared_ptr<ThreadGroup>& group, int rank) {
    EXPECT_TRUE(MakeDeviceThreadCommunicator(group, rank, devices[rank]));
  });
  for (size_t i = 0; i < devices.size(); ++i)
    EXPECT_EQ(devices[i].linked, (std::set<Device*>{&devices[(i + 1) % 3], &devices[(i + 2) % 3]}));
}

TEST(Communicator, DevicesOfThreadsSayThatTheyOnlySumWhatTheyHaveKernelsFor) {
  WithGroup(Transport::kDevices, 2, [](Communicator& group) {
    std::vector<float> x(8);
    Collective maximum = AllReduceOf(8);
    maximum.reduction = Reduction::kMax;
    const Status status = RunCollective(group, maximum, Ref(x), Ref(x));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
    EXPECT_NE(status.error().message.find("not maxima of fp32"), std::string::npos) << status.error().message;
  });
}

TEST(Communicator, RanksThatDisagreeOnTheRootAreTold) {
  WithGroup(Transport::kThreads, 2, [](Communicator& group) {
    std::vector<float> x(8);
    Status status =
        RunCollective(group, {CollectiveKind::kReduce, DType::kFloat32, 8, group.rank()}, Ref(x), Ref(x));
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("to root 0"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("to root 1"), std::string::npos) << status.error().message;
  });
}

TEST(CollectiveScratch, IsZeroForOneRankForSmallMessagesAndForKindsThatSumNothing) {
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(100'000'000), 1), 0);
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(65'536), 2), 0);  // 256 KiB to one peer
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(9'362), 8), 0);   // 36.6 KiB to each of seven
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast, CollectiveKind::kReduce,
                              CollectiveKind::kGather, CollectiveKind::kScatter, CollectiveKind::kAllToAll,
                              CollectiveKind::kBarrier})
    EXPECT_EQ(CollectiveScratchElements({kind, DType::kFloat32, 100'000'000, 0}, 4), 0);
}

TEST(CollectiveScratch, HoldsOnePartOrTwoSegmentsOfOneMebibyte) {
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(65'537), 2), 32'769);  // a part: ceil(65537 / 2)
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(9'363), 8), 1'171);
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(524'288), 2), 262'144);
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(524'289), 2), 524'288);
  EXPECT_EQ(CollectiveScratchElements(AllReduceOf(100'000'000), 2), 524'288);
  // In a reduce-scatter over three ranks, partial sums are sent on from the scratch while the next ones
  // arrive.
  EXPECT_EQ(CollectiveScratchElements({CollectiveKind::kReduceScatter, DType::kFloat32, 60'000, 0}, 3),
            40'000);
}

}  // namespace
}  // namespace windtunnel
