#include "plan/buffer_pool.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

const std::vector<Buffer> kBuffers = {{"weights", MiB(1), Category::kParameters},
                                      {"gradients", MiB(1), Category::kGradients},
                                      {"activations", KiB(512), Category::kActivations}};

TEST(BufferPool, SaysWhatThePeakConsistedOf) {
  VirtualSegmentSource source;
  BufferPool pool(kBuffers, &source);
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(2));
  pool.Free(2);
  ASSERT_TRUE(pool.Alloc(1));  // the peak: 2 MiB, without the activations
  pool.Free(1);
  EXPECT_EQ(pool.peak().allocated, MiB(2));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kParameters)], MiB(1));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kGradients)], MiB(1));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kActivations)], Bytes(0));
}

TEST(BufferPool, ResetPeakStartsFromWhatIsAllocated) {
  VirtualSegmentSource source;
  BufferPool pool(kBuffers, &source);
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(1));
  pool.Free(1);
  pool.ResetPeak();
  EXPECT_EQ(pool.peak().allocated, MiB(1));
}

TEST(BufferPool, OutOfMemoryNamesTheBufferAndTheLargestHolders) {
  VirtualSegmentSource source(MiB(2));
  BufferPool pool(kBuffers, &source);
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(1));
  auto status = pool.Alloc(2);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kFailed);
  EXPECT_NE(status.error().message.find("out of device memory for buffer 'activations' (512 KiB)"), std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("weights (1.00 MiB), gradients (1.00 MiB)"), std::string::npos);
}

const std::vector<Buffer> kOffloaded = {{"shard", MiB(4), Category::kParameters},
                                        {"moments", MiB(8), Category::kOptimizer, DType::kFloat32, MemorySpace::kHost}};

TEST(BufferPool, CountsHostMemoryApart) {
  VirtualSegmentSource device, host;
  BufferPool pool(kOffloaded, MemorySetup{.device = &device, .host = &host});
  ASSERT_TRUE(pool.Alloc(0));
  ASSERT_TRUE(pool.Alloc(1));
  EXPECT_EQ(pool.allocated(), MiB(4));
  EXPECT_EQ(pool.reserved(), MiB(20));
  EXPECT_EQ(device.used(), MiB(20));
  EXPECT_EQ(pool.host_allocated(), MiB(8));
  EXPECT_EQ(host.used(), MiB(20));
  EXPECT_EQ(pool.peak().allocated, MiB(4));
  EXPECT_EQ(pool.peak().by_category[static_cast<int>(Category::kOptimizer)], Bytes(0));
  EXPECT_EQ(pool.peak().host_allocated, MiB(8));
  EXPECT_EQ(pool.peak().host_by_category[static_cast<int>(Category::kOptimizer)], MiB(8));
  EXPECT_EQ(pool.Largest(10, MemorySpace::kHost), std::vector<BufferId>{1});
}

TEST(BufferPool, OutOfMemorySaysWhichMemory) {
  VirtualSegmentSource device, host(MiB(4));
  BufferPool pool(kOffloaded, MemorySetup{.device = &device, .host = &host});
  ASSERT_TRUE(pool.Alloc(0));
  auto status = pool.Alloc(1);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("out of host memory for buffer 'moments' (8.00 MiB)"), std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("the largest buffers alive are none"), std::string::npos)
      << "the device's are no help: " << status.error().message;
}

}  // namespace
}  // namespace windtunnel
