#include "runtime/cpu/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace windtunnel::cpu {
namespace {

constexpr size_t kAlignment = static_cast<size_t>(kHugePage.count());

// Unmaps what mmap returned before and after the aligned part.
char* TrimToAlignment(char* start, size_t mapped, size_t wanted) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(start) % kAlignment;
  const size_t head = misaligned == 0 ? 0 : kAlignment - misaligned;
  const size_t tail = mapped - head - wanted;
  if (head > 0) munmap(start, head);
  if (tail > 0) munmap(start + head + wanted, tail);
  return start + head;
}

// Maps addresses that start and end on 2 MiB. `protection` and `flags` are mmap's. Null, with errno set, if
// the system refuses.
char* MapAligned(size_t bytes, int protection, int flags) {
  const size_t mapped = bytes + kAlignment;
  void* start = mmap(nullptr, mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return start == MAP_FAILED ? nullptr : TrimToAlignment(static_cast<char*>(start), mapped, bytes);
}

// Writes to every 4 KiB (the smallest page size of any supported machine), so that each page has memory
// behind it.
void MakeResident(char* data, size_t bytes) {
  madvise(data, bytes, MADV_HUGEPAGE);  // advice: a system without huge pages is slower, not wrong
  constexpr size_t kSmallestPage = 4096;
  volatile char* page = data;
  for (size_t offset = 0; offset < bytes; offset += kSmallestPage) page[offset] = 0;
}

}  // namespace

PageRegion::PageRegion(PageRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, Bytes())) {}

PageRegion& PageRegion::operator=(PageRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PageRegion::~PageRegion() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_.count()));
}

Result<PageRegion> PageRegion::Map(Bytes bytes) {
  const Bytes rounded = bytes.RoundedUpTo(kHugePage);
  const size_t wanted = static_cast<size_t>(rounded.count());
  char* data = MapAligned(wanted, PROT_READ | PROT_WRITE, 0);
  if (data == nullptr) {
    return Failed("out of memory: the system refused {} ({} bytes): {}", FormatBytes(rounded),
                  rounded.count(), std::strerror(errno));
  }
  MakeResident(data, wanted);
  return PageRegion(data, rounded);
}

Result<uint64_t> PageSegments::Reserve(Bytes bytes) {
  WT_ASSIGN_OR_RETURN(PageRegion region, PageRegion::Map(bytes));
  regions_.push_back(std::move(region));
  return reinterpret_cast<uint64_t>(regions_.back().data());
}

PageSegments::~PageSegments() {
  for (const AddressRange& range : ranges_) munmap(range.start, range.bytes);
}

void PageSegments::Release(uint64_t address, Bytes) {
  std::erase_if(regions_, [&](const PageRegion& region) {
    return reinterpret_cast<uint64_t>(region.data()) == address;
  });
}

Result<uint64_t> PageSegments::ReserveAddresses(Bytes bytes) {
  const size_t wanted = static_cast<size_t>(bytes.RoundedUpTo(kHugePage).count());
  char* start = MapAligned(wanted, PROT_NONE, MAP_NORESERVE);
  if (start == nullptr)
    return Failed("the system refused addresses for {}: {}", FormatBytes(bytes), std::strerror(errno));
  ranges_.push_back({start, wanted});
  return reinterpret_cast<uint64_t>(start);
}

Status PageSegments::Map(uint64_t address, Bytes bytes) {
  char* data = reinterpret_cast<char*>(address);
  const size_t size = static_cast<size_t>(bytes.count());
  if (mprotect(data, size, PROT_READ | PROT_WRITE) != 0) {
    return Failed("out of memory: the system refused {} ({} bytes): {}", FormatBytes(bytes), bytes.count(),
                  std::strerror(errno));
  }
  MakeResident(data, size);
  return Ok();
}

void PageSegments::Unmap(uint64_t address, Bytes bytes) {
  void* data = reinterpret_cast<void*>(address);
  madvise(data, static_cast<size_t>(bytes.count()), MADV_DONTNEED);
  mprotect(data, static_cast<size_t>(bytes.count()), PROT_NONE);
}

}  // namespace windtunnel::cpu
