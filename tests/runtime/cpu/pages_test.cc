#include "runtime/cpu/pages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "tests/base/sanitizers.h"

namespace windtunnel::cpu {
namespace {

// Resident memory of this process: the second number of /proc/self/statm, in pages.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(PageRegion, IsResidentFromTheStartToTheByte) {
  if (kHasThreadSanitizer) GTEST_SKIP() << "shadow memory is resident, too";
  const int64_t before = ResidentBytes();
  const Result<PageRegion> region = PageRegion::Map(MiB(64));
  ASSERT_TRUE(region);
  EXPECT_NEAR(ResidentBytes() - before, MiB(64).count(), MiB(1).count());
}

TEST(PageRegion, IsAlignedZeroedAndRoundedUp) {
  const Result<PageRegion> region = PageRegion::Map(Bytes(5));
  ASSERT_TRUE(region);
  EXPECT_EQ(region->bytes(), MiB(2));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->data()) % static_cast<uintptr_t>(MiB(2).count()), 0u);
  const char* bytes = static_cast<const char*>(region->data());
  for (int64_t i = 0; i < MiB(2).count(); ++i) ASSERT_EQ(bytes[i], 0);
}

TEST(PageRegion, ReturnsItsMemoryWhenDestroyed) {
  const int64_t before = ResidentBytes();
  { const Result<PageRegion> region = PageRegion::Map(MiB(64)); }
  EXPECT_LT(ResidentBytes() - before, MiB(1).count());
}

TEST(PageRegion, RefusalNamesTheBytesAndTheSystemsReason) {
  const Result<PageRegion> region = PageRegion::Map(Bytes(int64_t{1} << 60));
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().kind, ErrorKind::kFailed);
  EXPECT_NE(region.error().message.find("1152921504606846976 bytes"), std::string::npos)
      << region.error().message;
}

TEST(PageSegments, HandsOutSegmentsThatDoNotOverlap) {
  PageSegments segments;
  const Result<uint64_t> first = segments.Reserve(MiB(2)), second = segments.Reserve(MiB(4));
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(*first + MiB(2).count() <= *second || *second + MiB(4).count() <= *first);
}

TEST(PageSegments, ReleaseReturnsASegmentToTheSystem) {
  if (kHasThreadSanitizer) GTEST_SKIP() << "shadow memory is resident, too";
  PageSegments segments;
  const int64_t before = ResidentBytes();
  const Result<uint64_t> kept = segments.Reserve(MiB(2)), released = segments.Reserve(MiB(64));
  ASSERT_TRUE(kept && released);
  segments.Release(*released, MiB(64));
  EXPECT_LT(ResidentBytes() - before, MiB(4).count());
  *reinterpret_cast<int*>(*kept) = 1;
}

TEST(PageSegments, AddressesHaveMemoryOnlyWhileItIsMapped) {
  if (kHasThreadSanitizer) GTEST_SKIP() << "shadow memory is resident, too";
  PageSegments segments;
  const int64_t before = ResidentBytes();
  const Result<uint64_t> addresses = segments.ReserveAddresses(GiB(64));
  ASSERT_TRUE(addresses) << addresses.error().message;
  EXPECT_LT(ResidentBytes() - before, MiB(1).count());
  ASSERT_TRUE(segments.Map(*addresses + MiB(20).count(), MiB(40)));
  EXPECT_NEAR(ResidentBytes() - before, MiB(40).count(), MiB(1).count());
  char* data = reinterpret_cast<char*>(*addresses + MiB(20).count());
  data[MiB(40).count() - 1] = 1;
  segments.Unmap(*addresses + MiB(40).count(), MiB(20));
  EXPECT_NEAR(ResidentBytes() - before, MiB(20).count(), MiB(1).count());
  ASSERT_TRUE(segments.Map(*addresses + MiB(40).count(), MiB(20)));
  EXPECT_EQ(data[MiB(40).count() - 1], 0) << "fresh memory";
}

}  // namespace
}  // namespace windtunnel::cpu
