#include "runtime/imitation.h"

#include <gtest/gtest.h>

#include <vector>

namespace windtunnel {
namespace {

TensorRef Ref(std::vector<float>& values) { return {values.data(), static_cast<int64_t>(values.size())}; }

void ImitateOne(CollectiveKind kind, int64_t elements, int rank, int size, TensorRef read,
                TensorRef written) {
  const TensorRef reads[] = {read}, writes[] = {written};
  const Collective collective{kind, DType::kFloat32, elements, 0};
  Imitate(collective, rank, size, /*vocabulary=*/16, reads, writes);
}

// Of 7 elements, ranks 0 to 2 have 3, 2 and 2.
TEST(Imitation, OfAnAllGatherFillsPartsOfUnequalSize) {
  std::vector<float> longer = {1, 2, 3}, shorter = {8, 9}, whole(7);
  ImitateOne(CollectiveKind::kAllGather, 7, 0, 3, Ref(longer), Ref(whole));
  EXPECT_EQ(whole, (std::vector<float>{1, 2, 3, 1, 2, 1, 2}));
  ImitateOne(CollectiveKind::kAllGather, 7, 1, 3, Ref(shorter), Ref(whole));
  EXPECT_EQ(whole, (std::vector<float>{8, 9, 8, 8, 9, 8, 9}));
}

TEST(Imitation, OfAnAllGatherInPlaceLeavesTheShardAlone) {
  std::vector<float> whole = {0, 0, 0, 0, 0, 8, 9};
  ImitateOne(CollectiveKind::kAllGather, 7, 2, 3, {whole.data() + 5, 2}, Ref(whole));
  EXPECT_EQ(whole, (std::vector<float>{8, 9, 8, 8, 9, 8, 9}));
}

TEST(Imitation, OfAnAllGatherWithoutAShardIsMadeUp) {
  std::vector<float> none, whole(2);
  ImitateOne(CollectiveKind::kAllGather, 2, 2, 3, Ref(none), Ref(whole));
  for (const float value : whole) EXPECT_NE(value, 0.0f);
}

TEST(Imitation, OfAReduceScatterPassesTheRanksOwnPartOn) {
  std::vector<float> whole = {0, 1, 2, 3, 4, 5, 6}, longer(3), shorter(2);
  ImitateOne(CollectiveKind::kReduceScatter, 7, 0, 3, Ref(whole), Ref(longer));
  EXPECT_EQ(longer, (std::vector<float>{0, 1, 2}));
  ImitateOne(CollectiveKind::kReduceScatter, 7, 2, 3, Ref(whole), Ref(shorter));
  EXPECT_EQ(shorter, (std::vector<float>{5, 6}));
}

TEST(Imitation, OfWhatComesFromAnotherRankIsMadeUp) {
  const Imitation received = PlanImitation(Receive{DType::kInt32, 4, 1}, 0, 2);
  EXPECT_EQ(received.made_up, DType::kInt32);
  EXPECT_TRUE(received.copies.empty());
  const Collective broadcast{CollectiveKind::kBroadcast, DType::kFloat32, 4, 1};
  EXPECT_EQ(PlanImitation(broadcast, 0, 2).made_up, DType::kFloat32);
  EXPECT_EQ(PlanImitation(broadcast, 1, 2).made_up, std::nullopt);
}

}  // namespace
}  // namespace windtunnel
