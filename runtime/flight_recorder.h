// Where every rank is, and what it did last, readable from outside even after kill -9: a file that all ranks
// map, in which each rank has a part of its own.
//
//   WT_ASSIGN_OR_RETURN(FlightRecorder all, FlightRecorder::Create(path, world_size));  // the launcher
//   WT_ASSIGN_OR_RETURN(FlightRecorder mine, FlightRecorder::Open(path, rank));         // a rank
//   mine.Note(step, op);  …  mine.NoteStepDone(step);
//   FlightRecorder::Position last = all.Last(rank);
//
// A note is a few relaxed stores to memory that nobody else writes, and one reading of the clock: some 30 ns.
// The position is never torn. runtime/flight_record.h makes a readable file of the notes.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace windtunnel {

class FlightRecorder {
 public:
  enum class State : uint8_t { kStarting, kRunning, kWaiting, kDone };
  // Programs other than those of steps 0, 1, …: these values stand in place of a step's number.
  static constexpr int64_t kInitialization = -1, kRestore = -2, kEvaluation = -3;
  // `op` indexes the program that the role runs in that step. kDone: the step has ended.
  struct Position {
    State state = State::kStarting;
    int64_t step = kInitialization;
    int32_t op = -1;
  };
  // A note with its time. `number`: for a communication, its number on its communicator
  // on this rank, from 1; else 0.
  struct Event {
    Position position;
    uint32_t number = 0;
    int64_t time_ns = 0;  // since 1970
  };
  // The number of notes kept for each rank: a communication leaves three, any other operator one.
  static constexpr uint64_t kEvents = 4096;

  // Makes the file, or overwrites it. Errors: Failed (names the file).
  static Result<FlightRecorder> Create(const std::string& path, int ranks);
  // Maps the file that Create made, to note as `rank`.
  static Result<FlightRecorder> Open(const std::string& path, int rank);
  // Notes into memory of its own, for a process that nobody watches.
  static FlightRecorder Private();

  // The rank has begun operator `op`. Steps beyond 2^31 wrap.
  void Note(int64_t step, int32_t op) { Store(State::kRunning, step, op, 0); }
  // It has submitted operator `op`, a communication, as number `number` of its communicator.
  void NoteSubmitted(int64_t step, int32_t op, uint64_t number) {
    Store(State::kRunning, step, op, static_cast<uint32_t>(number));
  }
  // It waits for operator `op`, a communication.
  void NoteWaiting(int64_t step, int32_t op) { Store(State::kWaiting, step, op, 0); }
  void NoteStepDone(int64_t step) { Store(State::kDone, step, 0, 0); }

  int ranks() const { return ranks_; }
  // The last note of a rank. REQUIRES: rank < ranks().
  Position Last(int rank) const;
  // The last notes of a rank, oldest first. While the rank is still noting, the oldest may be
  // torn. REQUIRES: rank < ranks().
  std::vector<Event> Events(int rank) const;

 private:
  struct Entry {
    std::atomic<uint64_t> note;
    std::atomic<int64_t> time_ns;
    std::atomic<uint32_t> number;
  };
  struct alignas(64) Slot {
    std::atomic<uint64_t> note;  // state (2 bits), step + 3 (32), op (30)
    std::atomic<uint64_t> events;
    Entry entries[kEvents];
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  FlightRecorder(std::shared_ptr<Slot[]> slots, int ranks, int rank)
      : slots_(std::move(slots)), ranks_(ranks), mine_(&slots_[rank]) {}
  static Result<FlightRecorder> Map(const std::string& path, int fd, int ranks, int rank);
  static Position PositionOf(uint64_t note);

  void Store(State state, int64_t step, int32_t op, uint32_t number) {
    const uint64_t note = static_cast<uint64_t>(state) << 62 |
                          static_cast<uint64_t>(static_cast<uint32_t>(step - kEvaluation)) << 30 |
                          (static_cast<uint64_t>(op) & ((1u << 30) - 1));
    const int64_t now_ns = NanosecondsOn(CLOCK_REALTIME);
    const uint64_t index = mine_->events.load(std::memory_order_relaxed);
    Entry& entry = mine_->entries[index % kEvents];
    entry.note.store(note, std::memory_order_relaxed);
    entry.time_ns.store(now_ns, std::memory_order_relaxed);
    entry.number.store(number, std::memory_order_relaxed);
    mine_->events.store(index + 1, std::memory_order_release);
    mine_->note.store(note, std::memory_order_relaxed);
  }

  std::shared_ptr<Slot[]> slots_;
  int ranks_;
  Slot* mine_;
};

// The name of the program with this number, for people: "step 1" is the first, as in the lines of `run` and
// the names of checkpoints; "initialisation", "evaluation", ….
std::string DescribeStep(int64_t step);

}  // namespace windtunnel
