#include "runtime/cpu/shards.h"

#include <gtest/gtest.h>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::BFloat16;
using test::Launch;
using test::RandomValues;
using test::Tensor;
using test::TensorOf;
using test::Values;
using test::ValuesOf;

struct ShardsCase {
  int ranks;
  std::vector<int64_t> tensors, shard_elements;
};

// The layout by plan/ops.h's formula: element r * sum(shard) + sum(shard[0..i)) + j is element r * shard[i] +
// j of tensor i.
Values Flat(const ShardsCase& c, const std::vector<Values>& tensors) {
  Values flat;
  for (int rank = 0; rank < c.ranks; ++rank) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      for (int64_t j = 0; j < c.shard_elements[i]; ++j) {
        const int64_t element = rank * c.shard_elements[i] + j;
        flat.push_back(element < c.tensors[i] ? tensors[i][element] : 0.0);
      }
    }
  }
  return flat;
}

class ShardsKernel : public testing::TestWithParam<ShardsCase> {
 protected:
  const ShardsCase c = GetParam();
  std::vector<Values> Tensors() const {
    std::vector<Values> tensors;
    for (size_t i = 0; i < c.tensors.size(); ++i) tensors.push_back(RandomValues(i, c.tensors[i]));
    return tensors;
  }
};

// Full shards, a last shard that is partly padding, ranks that have nothing of a tensor, an empty tensor, one
// rank.
INSTANTIATE_TEST_SUITE_P(Shapes, ShardsKernel,
                         testing::Values(ShardsCase{2, {8, 2}, {4, 1}}, ShardsCase{2, {5, 2}, {3, 1}},
                                         ShardsCase{4, {5, 1, 1000}, {2, 1, 250}},
                                         ShardsCase{3, {0, 7}, {0, 4}}, ShardsCase{4, {3}, {8}},
                                         ShardsCase{1, {6, 4}, {6, 4}}));

TEST_P(ShardsKernel, PackFollowsTheLayoutAndZeroesThePadding) {
  std::vector<Tensor> tensors;
  std::vector<TensorRef> reads;
  for (const Values& values : Tensors()) tensors.emplace_back(values);
  for (Tensor& tensor : tensors) reads.push_back(tensor.ref());
  const Values expected = Flat(c, Tensors());
  Tensor flat(static_cast<int64_t>(expected.size()));
  ASSERT_EQ(Launch(PackShards{.ranks = c.ranks, .shard_elements = c.shard_elements}, reads, {flat.ref()}),
            "");
  EXPECT_EQ(ValuesOf(flat), expected);
}

TEST_P(ShardsKernel, PackScalesAndConvertsWithOneRounding) {
  std::vector<Tensor> tensors;
  std::vector<TensorRef> reads;
  std::vector<Values> scaled = Tensors();
  for (Values& values : scaled) {
    tensors.emplace_back(values);
    for (double& value : values) value *= 0.25;
  }
  for (Tensor& tensor : tensors) reads.push_back(tensor.ref());
  const TensorOf<BFloat16> expected = Flat(c, scaled);
  TensorOf<BFloat16> flat(static_cast<int64_t>(expected.size()));
  const PackShards op{
      .ranks = c.ranks, .shard_elements = c.shard_elements, .to = DType::kBFloat16, .scale = 0.25};
  ASSERT_EQ(Launch(op, reads, {flat.ref()}), "");
  EXPECT_EQ(ValuesOf(flat), ValuesOf(expected));
}

template <typename T>
void ExpectUnpacked(const ShardsCase& c, const std::vector<Values>& expected, DType dtype) {
  Values with_padding = Flat(c, expected);
  std::vector<TensorOf<T>> tensors;
  std::vector<TensorRef> writes;
  for (int64_t elements : c.tensors)
    tensors.emplace_back(elements + 1);  // one more, which must stay as it is
  for (TensorOf<T>& tensor : tensors)
    writes.push_back({tensor.data(), static_cast<int64_t>(tensor.size()) - 1});
  TensorOf<T> flat = with_padding;
  ASSERT_EQ(Launch(UnpackShards{c.ranks, c.shard_elements, dtype}, {flat.ref()}, writes), "");
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(std::isnan(cpu::ToFloat(tensors[i].back())));
    tensors[i].pop_back();
    EXPECT_EQ(ValuesOf(tensors[i]), test::RoundedTo<T>(expected[i]));
  }
}

TEST_P(ShardsKernel, UnpackGivesTheTensorsBack) {
  ExpectUnpacked<float>(c, Tensors(), DType::kFloat32);
  ExpectUnpacked<BFloat16>(c, Tensors(), DType::kBFloat16);
}

TEST(ShardsKernel, RefusesOtherTypesByName) {
  Tensor x(1);
  const std::string error =
      Launch(UnpackShards{.ranks = 1, .shard_elements = {1}, .dtype = DType::kFloat8}, {x.ref()}, {x.ref()});
  EXPECT_NE(error.find("fp8"), std::string::npos) << error;
}

}  // namespace
}  // namespace windtunnel
