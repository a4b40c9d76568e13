#include "runtime/device.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/runtime/cpu/kernel_harness.h"

namespace windtunnel {
namespace {

using test::Launch;
using test::Tensor;
using test::Values;

TEST(CpuDevice, LeavesCommunicationAndDataToTheExecutor) {
  for (const OpKind& kind : {OpKind(Collective{}), OpKind(Send{}), OpKind(Receive{}), OpKind(LoadBatch{})}) {
    const Status status = test::CpuDevice().Launch(kind, {}, {}, {});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
  }
}

TEST(CpuDevice, RefusesOtherTypesThanFp32Bf16AndFp16ByName) {
  const auto expect_refused = [](const OpKind& kind) {
    const Status status = test::CpuDevice().Launch(kind, {}, {}, {});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
    EXPECT_NE(status.error().message.find("fp8"), std::string::npos) << status.error().message;
  };
  expect_refused(Gemm{.m = 1, .n = 1, .k = 1, .dtype = DType::kFloat8});
  expect_refused(NormForward{.dtype = DType::kFloat8});
  expect_refused(AttentionForward{.dtype = DType::kFloat8});
  expect_refused(AttentionBackward{.dtype = DType::kFloat8});
  expect_refused(CrossEntropy{.dtype = DType::kFloat8});
  expect_refused(Copy{.elements = 1, .from = DType::kFloat8});
  expect_refused(PackShards{.ranks = 1, .shard_elements = {}, .to = DType::kFloat8});
  expect_refused(Fill{.elements = 1, .dtype = DType::kFloat8});
}

TEST(CpuDevice, ComputesInWhateverThreadCalls) {
  Tensor a = Values(64 * 64, 1.0), b = Values(64 * 64, 2.0), c(64 * 64);
  std::string error = "not run";
  std::thread([&] { error = Launch(Gemm{64, 64, 64}, {a.ref(), b.ref()}, {c.ref()}); }).join();
  EXPECT_EQ(error, "");
  EXPECT_EQ(c[0], 128.0f);
}

TEST(CpuDevice, HandsOutMemoryThatKernelsCanUse) {
  const std::unique_ptr<Device> device = MakeCpuDevice();
  const Result<uint64_t> address = device->memory().Reserve(MiB(2));
  ASSERT_TRUE(address);
  const TensorRef x{reinterpret_cast<void*>(*address), 1000};
  const TensorRef writes[] = {x};
  ASSERT_TRUE(device->Launch(Fill{.elements = 1000, .value = 3.0}, {}, writes, {}));
  EXPECT_EQ(x.f32()[999], 3.0f);
}

TEST(CpuDevice, NamesItsLibrariesAndTheirVersions) {
  const std::map<std::string, std::string> libraries = test::CpuDevice().Libraries();
  EXPECT_EQ(libraries.at("onednn").find_first_not_of("0123456789."), std::string::npos);
  EXPECT_EQ(libraries.at("openblas").rfind("OpenBLAS", 0), 0u);
}

}  // namespace
}  // namespace windtunnel
