// Checks that the product for which cuBLASLt is asked is the operator's, by computing it as cuBLASLt would.
#include "runtime/cuda/gemm_layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/cuda/device.h"

namespace windtunnel::cuda {
namespace {

using Values = std::vector<float>;

Values Numbers(int64_t count, int seed) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((i * 7 + seed * 13) % 11 - 5));
  return values;
}

// Element (row, column) of an operand of the product: column-major, and transposed if the layout says so.
float At(const Values& memory, const MatrixLayout& matrix, int64_t batch, int64_t row, int64_t column) {
  if (matrix.transpose) std::swap(row, column);
  EXPECT_LT(row, matrix.rows);
  EXPECT_LT(column, matrix.columns);
  return memory[static_cast<size_t>(batch * matrix.stride + column * matrix.leading + row)];
}

void AsCublasWould(const GemmProblem& problem, const Values& a, const Values& b, const Values& bias,
                   Values& c) {
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    for (int64_t i = 0; i < problem.m; ++i) {
      for (int64_t j = 0; j < problem.n; ++j) {
        float sum = problem.epilogue == Epilogue::kBias ? bias[static_cast<size_t>(i)] : 0;
        for (int64_t l = 0; l < problem.k; ++l)
          sum += At(a, problem.a, batch, i, l) * At(b, problem.b, batch, l, j);
        float& out = c[static_cast<size_t>(batch * problem.c.stride + j * problem.c.leading + i)];
        out = problem.accumulate ? out + sum : sum;
      }
    }
  }
}

struct Flags {
  bool transpose_a, transpose_b, bias, accumulate;
};
class GemmLayout : public testing::TestWithParam<int> {
 protected:
  Flags flags() const {
    const int bits = GetParam();
    return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
  }
};
INSTANTIATE_TEST_SUITE_P(AllFlags, GemmLayout, testing::Range(0, 16));

TEST_P(GemmLayout, IsTheRowMajorProduct) {
  const Flags f = flags();
  const int64_t m = 4, n = 3, k = 5;
  const Gemm op{m, n, k, f.transpose_a, f.transpose_b, f.bias, f.accumulate, DType::kFloat32};
  const Values a = Numbers(m * k, 1), b = Numbers(k * n, 2), bias = Numbers(n, 3), before = Numbers(m * n, 4);
  Values c = before;
  AsCublasWould(ProblemOf(op), b, a, bias, c);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = (f.bias ? bias[j] : 0) + (f.accumulate ? before[i * n + j] : 0);
      for (int64_t l = 0; l < k; ++l)
        sum += (f.transpose_a ? a[l * m + i] : a[i * k + l]) * (f.transpose_b ? b[j * k + l] : b[l * n + j]);
      EXPECT_EQ(c[i * n + j], sum) << i << ", " << j;
    }
  }
}

TEST(GemmLayoutOfGroups, FollowEachOtherWithoutGaps) {
  const GroupedGemm op{.groups = 3, .m = 2, .n = 4, .k = 3, .transpose_b = true};
  const Values a = Numbers(3 * 6, 1), b = Numbers(3 * 12, 2);
  Values c(3 * 8);
  AsCublasWould(ProblemOf(op), b, a, {}, c);
  for (int64_t g = 0; g < 3; ++g)
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 4; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < 3; ++l) sum += a[g * 6 + i * 3 + l] * b[g * 12 + j * 3 + l];
        EXPECT_EQ(c[g * 8 + i * 4 + j], sum);
      }
}

TEST(Alignment, IsAtMost256Bytes) {
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1000)), 256u);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1100)), 256u);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1010)), 16u);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1002)), 2u);
}

TEST(CudaProfileName, IsTheDatasheetsWhereThereIsOne) {
  const auto name = [](const char* device, int64_t gigabytes) {
    return CudaProfileName({.name = device, .memory = Bytes(gigabytes * 1'000'000'000)});
  };
  EXPECT_EQ(name("NVIDIA GB300", 298), "gb300-nvl72-279g");
  EXPECT_EQ(name("NVIDIA B300 SXM6 AC", 288), "b300-sxm-270g");
  EXPECT_EQ(name("NVIDIA GB200", 198), "gb200-nvl72-186g");
  EXPECT_EQ(name("NVIDIA B200", 191), "b200-sxm-180g");
  EXPECT_EQ(name("NVIDIA H200", 150), "h200-sxm-141g");
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3", 85), "h100-sxm-80g");
  EXPECT_EQ(name("NVIDIA A100-SXM4-80GB", 85), "a100-sxm-80g");
  EXPECT_EQ(name("NVIDIA A100-SXM4-40GB", 42), "a100-sxm-40g");
  EXPECT_EQ(name("NVIDIA H800", 85), "h800-sxm-80g");
  EXPECT_EQ(name("NVIDIA A800-SXM4-80GB", 85), "a800-sxm-80g");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090", 25), "rtx-4090-24g");
  EXPECT_EQ(name("NVIDIA RTX PRO 6000 Blackwell Server Edition", 101), "rtx-pro-6000-96g");
  EXPECT_EQ(name("NVIDIA RTX 6000 Ada Generation", 50), "rtx-6000-ada-48g");
  EXPECT_EQ(name("Tesla V100-SXM2-16GB", 16), "v100-sxm2-16g");
  EXPECT_EQ(name("Tesla V100-SXM2-32GB", 34), "v100-sxm2-32g");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe", 84), "a100-pcie-80g");
  EXPECT_EQ(name("NVIDIA H100 PCIe", 84), "h100-pcie-80g");
  EXPECT_EQ(name("NVIDIA H100 NVL", 99), "h100-nvl-94g");
  EXPECT_EQ(name("NVIDIA H20", 102), "h20-sxm-96g");
  EXPECT_EQ(name("NVIDIA L4", 23), "l4-24g");
  EXPECT_EQ(name("NVIDIA L40S", 47), "l40s-48g");
  EXPECT_EQ(name("NVIDIA A10G", 23), "a10g-24g");
  // Devices whose names contain that of a datasheet's device, but which are others.
  EXPECT_EQ(name("NVIDIA GH200 480GB", 102), "nvidia-gh200-480gb-102g");
  EXPECT_EQ(name("NVIDIA GH200 144G HBM3e", 151), "nvidia-gh200-144g-hbm3e-151g");
  EXPECT_EQ(name("NVIDIA H800 PCIe", 85), "nvidia-h800-pcie-85g");
  EXPECT_EQ(name("NVIDIA L40", 47), "nvidia-l40-47g");
  EXPECT_EQ(name("NVIDIA A100-PCIE-40GB", 42), "nvidia-a100-pcie-40gb-42g");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090 D", 25), "nvidia-geforce-rtx-4090-d-25g");
  EXPECT_EQ(name("NVIDIA GeForce RTX 3090 Ti", 25), "nvidia-geforce-rtx-3090-ti-25g");
  EXPECT_EQ(name("NVIDIA H200 NVL", 150), "nvidia-h200-nvl-150g");
  EXPECT_EQ(name("NVIDIA H200 MIG 1g.18gb", 17), "nvidia-h200-mig-1g-18gb-17g");
  EXPECT_EQ(name("NVIDIA A100-SXM-64GB", 68), "nvidia-a100-sxm-64gb-68g");
  EXPECT_EQ(name("NVIDIA H100 64GB HBM3", 68), "nvidia-h100-64gb-hbm3-68g");
}

}  // namespace
}  // namespace windtunnel::cuda
