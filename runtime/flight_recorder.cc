#include "runtime/flight_recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "runtime/socket.h"

namespace windtunnel {

Result<FlightRecorder> FlightRecorder::Map(const std::string& path, int fd, int ranks, int rank) {
  const size_t bytes = sizeof(Slot) * static_cast<size_t>(ranks);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Failed("cannot map the flight recorder '{}': {}", path, strerror(errno));
  std::shared_ptr<Slot[]> slots(static_cast<Slot*>(memory), [bytes](Slot* mapped) { munmap(mapped, bytes); });
  return FlightRecorder(std::move(slots), ranks, rank);
}

Result<FlightRecorder> FlightRecorder::Create(const std::string& path, int ranks) {
  WT_CHECK_GT(ranks, 0);
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // Allocated here, because in a file with holes a write to a page that finds no room
  // kills the rank (SIGBUS).
  const int error =
      file.valid()
          ? posix_fallocate(file.get(), 0, static_cast<off_t>(sizeof(Slot) * static_cast<size_t>(ranks)))
          : errno;
  if (error != 0) return Failed("cannot make the flight recorder '{}': {}", path, strerror(error));
  return Map(path, file.get(), ranks, 0);
}

Result<FlightRecorder> FlightRecorder::Open(const std::string& path, int rank) {
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status = {};
  if (!file.valid() || fstat(file.get(), &status) != 0)
    return Failed("cannot open the flight recorder '{}': {}", path, strerror(errno));
  const int ranks = static_cast<int>(status.st_size / static_cast<off_t>(sizeof(Slot)));
  if (rank < 0 || rank >= ranks)
    return Failed("the flight recorder '{}' has {} ranks, not a rank {}", path, ranks, rank);
  return Map(path, file.get(), ranks, rank);
}

FlightRecorder FlightRecorder::Private() {
  return FlightRecorder(std::shared_ptr<Slot[]>(new Slot[1]()), 1, 0);
}

FlightRecorder::Position FlightRecorder::PositionOf(uint64_t note) {
  Position position;
  position.state = static_cast<State>(note >> 62);
  if (position.state == State::kStarting) return position;
  position.step = static_cast<int64_t>(static_cast<uint32_t>(note >> 30)) + kEvaluation;
  position.op = static_cast<int32_t>(note & ((1u << 30) - 1));
  return position;
}

FlightRecorder::Position FlightRecorder::Last(int rank) const {
  WT_CHECK_LT(rank, ranks_);
  return PositionOf(slots_[rank].note.load(std::memory_order_relaxed));
}

std::vector<FlightRecorder::Event> FlightRecorder::Events(int rank) const {
  WT_CHECK_LT(rank, ranks_);
  const Slot& slot = slots_[rank];
  const uint64_t end = slot.events.load(std::memory_order_acquire);
  std::vector<Event> events;
  for (uint64_t i = end > kEvents ? end - kEvents : 0; i < end; ++i) {
    const Entry& entry = slot.entries[i % kEvents];
    events.push_back({PositionOf(entry.note.load(std::memory_order_relaxed)),
                      entry.number.load(std::memory_order_relaxed),
                      entry.time_ns.load(std::memory_order_relaxed)});
  }
  return events;
}

std::string DescribeStep(int64_t step) {
  if (step == FlightRecorder::kInitialization) return "initialisation";
  if (step == FlightRecorder::kRestore) return "restoring a checkpoint";
  if (step == FlightRecorder::kEvaluation) return "evaluation";
  return fmt::format("step {}", step + 1);  // as run's lines and checkpoints count
}

}  // namespace windtunnel
