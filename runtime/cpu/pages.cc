#include "runtime/cpu/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace windtunnel::cpu {
namespace {

constexpr size_t kAlignment = static_cast<size_t>(kHugePage.count());

// Gives back what mmap returned before and after the aligned part.
char* TrimToAlignment(char* start, size_t mapped, size_t wanted) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(start) % kAlignment;
  const size_t head = misaligned == 0 ? 0 : kAlignment - misaligned;
  const size_t tail = mapped - head - wanted;
  if (head > 0) munmap(start, head);
  if (tail > 0) munmap(start + head + wanted, tail);
  return start + head;
}

// Writes to every page of 4 KiB (the smallest of any supported machine), so that each has memory behind it.
void MakeResident(char* data, size_t bytes) {
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
  const size_t mapped = wanted + kAlignment;
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return Failed("out of memory: the system refused {} ({} bytes): {}", FormatBytes(rounded),
                  rounded.count(), std::strerror(errno));
  }
  char* data = TrimToAlignment(static_cast<char*>(start), mapped, wanted);
  madvise(data, wanted, MADV_HUGEPAGE);  // advice: a system without huge pages is slower, not wrong
  MakeResident(data, wanted);
  return PageRegion(data, rounded);
}

Result<uint64_t> PageSegments::Reserve(Bytes bytes) {
  WT_ASSIGN_OR_RETURN(PageRegion region, PageRegion::Map(bytes));
  regions_.push_back(std::move(region));
  return reinterpret_cast<uint64_t>(regions_.back().data());
}

}  // namespace windtunnel::cpu
