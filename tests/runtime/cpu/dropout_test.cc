// Dropout keeps each element with its probability, independently, and by its place in the whole batch and
// model: however ranks divide these, together they drop what one device drops.
#include "runtime/cpu/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::Tensor;

constexpr double kShare = 0.1;

struct Dropped {
  Tensor y;
  std::vector<uint8_t> mask;
};

Dropped Drop(Dropout op, const KernelContext& context, const Tensor& x) {
  Dropped dropped{Tensor(static_cast<int64_t>(x.size())), std::vector<uint8_t>(x.size(), 2)};
  Tensor in = x;
  op.elements = static_cast<int64_t>(x.size());
  EXPECT_EQ(Launch(op, {in.ref()}, {dropped.y.ref(), {dropped.mask.data(), op.elements}}, context), "");
  return dropped;
}

std::vector<uint8_t> MaskOf(const Dropout& op, const KernelContext& context, int64_t elements) {
  return Drop(op, context, Tensor(elements)).mask;
}

TEST(Dropout, ScalesWhatItKeepsAndClearsTheRest) {
  const Dropout op{.site = DropoutSiteOf(kShare, "x", 0), .columns = 7};  // rows begin within pairs
  Tensor x(7 * 1001);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 1;
  const Dropped dropped = Drop(op, {.seed = 1}, x);
  const DropoutMask mask(op.site, KernelContext{.seed = 1});
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(dropped.mask[i], mask.Keeps(static_cast<int64_t>(i)) ? 1 : 0) << i;
    ASSERT_FLOAT_EQ(dropped.y[i], dropped.mask[i] == 1 ? x[i] / 0.9f : 0.0f) << i;
  }
}

TEST(Dropout, BackwardDropsTheSameElementsInPlace) {
  Dropout op{.site = DropoutSiteOf(kShare, "x", 0), .columns = 33};
  Tensor dy(33 * 100);
  for (float& value : dy) value = 2.0f;
  Dropped dropped = Drop(op, {}, dy);
  op.elements = static_cast<int64_t>(dy.size());
  op.backward = true;
  EXPECT_EQ(Launch(op, {dy.ref(), {dropped.mask.data(), op.elements}}, {dy.ref()}), "");
  EXPECT_EQ(dy, dropped.y);
}

// What is not a number is dropped like any other element.
TEST(Dropout, DropsWhatIsNotANumber) {
  Tensor x(1000);
  for (float& value : x) value = std::nanf("");
  const Dropped dropped = Drop({.site = DropoutSiteOf(0.5, "x", 0), .columns = 1000}, {}, x);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::isnan(dropped.y[i]), dropped.mask[i] == 1);
}

TEST(Dropout, DropsItsShare) {
  constexpr int64_t kElements = 1'000'000;
  for (const double share : {0.001, 0.1, 0.5, 0.9}) {
    const auto mask = MaskOf({.site = DropoutSiteOf(share, "x", 0), .columns = 1000}, {}, kElements);
    const double kept = static_cast<double>(std::count(mask.begin(), mask.end(), 1));
    const double deviation = std::sqrt(kElements * share * (1 - share));
    EXPECT_NEAR(kept, kElements * (1 - share), 4 * deviation) << share;
  }
}

// The masks of other seeds, steps, micro-batches, samples and places, and of neighbours, have nothing in
// common: two of them agree where independent ones would.
TEST(Dropout, IsIndependentOfEverythingElse) {
  constexpr int64_t kElements = 400'000;
  const Dropout op{.site = DropoutSiteOf(0.5, "layers.0.mlp", 0), .columns = 100};
  const KernelContext context{.seed = 1, .replica = {.rank = 0, .ranks = 2}};
  const auto mask = MaskOf(op, context, kElements);
  const auto expect_independent = [&](const std::vector<uint8_t>& other, const char* what) {
    int64_t equal = 0;
    for (size_t i = 0; i < mask.size(); ++i) equal += mask[i] == other[i] ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(equal), kElements / 2.0, 4 * std::sqrt(kElements / 4.0)) << what;
  };
  Dropout other = op;
  other.site = DropoutSiteOf(0.5, "layers.1.mlp", 0);
  expect_independent(MaskOf(other, context, kElements), "place");
  other.site = DropoutSiteOf(0.5, "layers.0.mlp", 1);
  expect_independent(MaskOf(other, context, kElements), "micro-batch");
  KernelContext changed = context;
  changed.seed = 2;
  expect_independent(MaskOf(op, changed, kElements), "seed");
  changed = context;
  changed.batch_step = 1;
  expect_independent(MaskOf(op, changed, kElements), "step");
  changed = context;
  changed.replica.rank = 1;
  expect_independent(MaskOf(op, changed, kElements), "replica");
  std::vector<uint8_t> neighbours(mask.begin() + 1, mask.end());
  neighbours.push_back(0);
  expect_independent(neighbours, "neighbours");
  // An update that was skipped does not change what the step drops.
  changed = context;
  changed.step = 17;
  EXPECT_EQ(MaskOf(op, changed, kElements), mask);
}

constexpr int64_t kBatch = 4, kSeq = 12, kColumns = 10;

// The masks of tokens [batch, seq, columns] on one device.
std::vector<uint8_t> Whole() {
  return MaskOf({.site = DropoutSiteOf(0.5, "x", 3), .columns = kColumns, .seq = kSeq}, {.seed = 9},
                kBatch * kSeq * kColumns);
}

TEST(Dropout, TensorRanksDropTheirPartsOfTheTokens) {
  const auto whole = Whole();
  std::vector<uint8_t> together;
  for (int rank = 0; rank < 3; ++rank) {
    const auto part =
        MaskOf({.site = DropoutSiteOf(0.5, "x", 3), .columns = kColumns, .seq = kSeq, .splits_rows = true},
               {.seed = 9, .tensor = {rank, 3}}, kBatch * kSeq * kColumns / 3);
    together.insert(together.end(), part.begin(), part.end());
  }
  EXPECT_EQ(together, whole);
}

TEST(Dropout, TensorRanksDropTheirPartsOfTheColumns) {
  const auto whole = Whole();
  for (int rank = 0; rank < 2; ++rank) {
    const auto part = MaskOf(
        {.site = DropoutSiteOf(0.5, "x", 3), .columns = kColumns / 2, .seq = kSeq, .splits_columns = true},
        {.seed = 9, .tensor = {rank, 2}}, kBatch * kSeq * kColumns / 2);
    for (int64_t i = 0; i < static_cast<int64_t>(part.size()); ++i) {
      const int64_t row = i / (kColumns / 2), column = rank * kColumns / 2 + i % (kColumns / 2);
      ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(row * kColumns + column)]);
    }
  }
}

TEST(Dropout, TensorRanksDropAlikeWhatTheyAllHave) {
  const Dropout op{.site = DropoutSiteOf(0.5, "x", 3), .columns = kColumns, .seq = kSeq};
  EXPECT_EQ(MaskOf(op, {.seed = 9, .tensor = {1, 2}}, kBatch * kSeq * kColumns), Whole());
}

TEST(Dropout, ContextRanksDropTheirTokensInZigzag) {
  const auto whole = Whole();
  const TokenSplit split{.ranks = 3, .zigzag = true};
  constexpr int64_t kOwn = kSeq / 3;
  for (int rank = 0; rank < 3; ++rank) {
    const auto part =
        MaskOf({.site = DropoutSiteOf(0.5, "x", 3), .columns = kColumns, .seq = kOwn, .context = split},
               {.seed = 9, .context = {rank, 3}}, kBatch * kOwn * kColumns);
    for (int64_t i = 0; i < static_cast<int64_t>(part.size()); ++i) {
      const int64_t token = i / kColumns;
      const int64_t row = token / kOwn * kSeq + WholePosition(split, rank, kOwn, token % kOwn);
      ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(row * kColumns + i % kColumns)]);
    }
  }
}

// Two replicas, each with half of the samples, in turn (DistributedSampler) or in parts (DataParallel).
TEST(Dropout, ReplicasDropTheirSamples) {
  const auto whole = Whole();
  constexpr int64_t kSample = kSeq * kColumns;
  for (const bool in_parts : {false, true}) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto part = MaskOf({.site = DropoutSiteOf(0.5, "x", 3), .columns = kColumns, .seq = kSeq},
                               {.seed = 9, .replica = {rank, 2, in_parts}}, kBatch / 2 * kSample);
      for (int64_t i = 0; i < static_cast<int64_t>(part.size()); ++i) {
        const int64_t own = i / kSample, sample = in_parts ? rank * kBatch / 2 + own : own * 2 + rank;
        ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(sample * kSample + i % kSample)]);
      }
    }
  }
}

}  // namespace
}  // namespace windtunnel
