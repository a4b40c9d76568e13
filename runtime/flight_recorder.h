// Where every rank is, readable from outside even after kill -9: a file that all ranks map, with one cache
// line of a rank's own.
//
//   WT_ASSIGN_OR_RETURN(FlightRecorder all, FlightRecorder::Create(path, world_size));         // the
//   launcher WT_ASSIGN_OR_RETURN(FlightRecorder mine, FlightRecorder::Open(path, rank));                // a
//   rank mine.Note(step, op);  …  mine.NoteStepDone(step); FlightRecorder::Position last = all.Last(rank);
//
// A note is one relaxed store of 8 bytes to a line that nobody else writes: about a nanosecond, and never
// torn.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace windtunnel {

class FlightRecorder {
 public:
  enum class State : uint8_t { kStarting, kRunning, kWaiting, kDone };
  // Step -1 is initialisation; `op` indexes the program that the role runs in that step. kDone: the step has
  // ended.
  struct Position {
    State state = State::kStarting;
    int64_t step = -1;
    int32_t op = -1;
  };

  // Makes the file, or overwrites it. Errors: Failed (names the file).
  static Result<FlightRecorder> Create(const std::string& path, int ranks);
  // Maps the file that Create made, to note as `rank`.
  static Result<FlightRecorder> Open(const std::string& path, int rank);
  // Notes into memory of its own: for a process that nobody watches.
  static FlightRecorder Private();

  // The rank has begun operator `op`. Steps beyond 2^31 wrap.
  void Note(int64_t step, int32_t op) { Store(State::kRunning, step, op); }
  // It waits for operator `op`, a communication.
  void NoteWaiting(int64_t step, int32_t op) { Store(State::kWaiting, step, op); }
  void NoteStepDone(int64_t step) { Store(State::kDone, step, 0); }

  int ranks() const { return ranks_; }
  // The last note of a rank. REQUIRES: rank < ranks().
  Position Last(int rank) const;

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> note;  // state (2 bits), step + 1 (32), op (30)
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  FlightRecorder(std::shared_ptr<Slot[]> slots, int ranks, int rank)
      : slots_(std::move(slots)), ranks_(ranks), mine_(&slots_[rank]) {}
  static Result<FlightRecorder> Map(const std::string& path, int fd, int ranks, int rank);

  void Store(State state, int64_t step, int32_t op) {
    uint64_t note = static_cast<uint64_t>(state) << 62 |
                    static_cast<uint64_t>(static_cast<uint32_t>(step + 1)) << 30 |
                    (static_cast<uint64_t>(op) & ((1u << 30) - 1));
    mine_->note.store(note, std::memory_order_relaxed);
  }

  std::shared_ptr<Slot[]> slots_;
  int ranks_;
  Slot* mine_;
};

}  // namespace windtunnel
