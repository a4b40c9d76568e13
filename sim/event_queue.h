// The event engine's queue: events ordered by (time, sequence), so that those at one instant fire in the
// order in which they were scheduled, on any machine.
//
//   EventQueue<Payload> queue;
//   EventId finish = queue.Schedule(Microseconds(5), {…});
//   queue.Cancel(finish);
//   for (EventQueue<Payload>::Event event; queue.Pop(event);) handle(event);   // queue.now() == event.time
//
// Invariants:
//   1. heap_ is a 4-ary heap by (time, order): a parent is before its four children, which share a cache line.
//   2. A slot is in heap_ exactly once, or on the free list; its payload is cold while events move through
//      the heap.
//   3. Cancel only marks the slot; the event leaves the heap when it comes to the top. An id is good for one
//      use of its slot.
//   4. Time never goes back: an event is scheduled at now() or later.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace windtunnel {

// Names one scheduled event. The default names none; cancelling it, or an event that has fired, does nothing.
struct EventId {
  uint32_t slot = UINT32_MAX;
  uint32_t generation = 0;
};

template <typename Payload>
class EventQueue {
  static_assert(std::is_trivially_copyable_v<Payload>, "events are plain data: nothing is allocated for one");

 public:
  struct Event {
    Duration time;
    Payload payload;
  };

  // REQUIRES: time >= now(); at most 2^24 events are pending. A cancelled event counts until its time comes.
  EventId Schedule(Duration time, Payload payload) {
    WT_CHECK(time >= now_);
    const uint32_t slot = TakeSlot();
    slots_[slot].payload = payload;
    slots_[slot].cancelled = false;
    heap_.emplace_back();
    MoveUp(heap_.size() - 1, {time.picoseconds(), (next_sequence_++ << kSlotBits) | slot});
    return {slot, slots_[slot].generation};
  }

  void Cancel(EventId id) {
    if (id.slot < slots_.size() && slots_[id.slot].generation == id.generation)
      slots_[id.slot].cancelled = true;
  }

  // Takes the next event and moves the clock to it. False when there is none.
  bool Pop(Event& event) {
    DropCancelled();
    if (heap_.empty()) return false;
    event = {Picoseconds(heap_.front().time), slots_[TopSlot()].payload};
    FreeTop();
    now_ = event.time;
    ++fired_;
    return true;
  }

  // Whether the next event is at now().
  bool HasMoreAtThisInstant() {
    DropCancelled();
    return !heap_.empty() && heap_.front().time == now_.picoseconds();
  }

  Duration now() const { return now_; }
  // Events popped since the last Reset.
  int64_t fired() const { return fired_; }

  // Returns to the initial state, but keeps the memory.
  void Reset() {
    heap_.clear();
    free_slots_.clear();
    slots_.clear();
    now_ = Duration();
    next_sequence_ = 0;
    fired_ = 0;
  }

 private:
  static constexpr int kSlotBits = 24;
  static constexpr uint64_t kMaxSlots = uint64_t{1} << kSlotBits;
  static constexpr size_t kArity = 4;

  struct Node {
    int64_t time;    // picoseconds
    uint64_t order;  // sequence number above, slot in the low kSlotBits: unique
    bool operator<(const Node& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };
  struct Slot {
    Payload payload;
    uint32_t generation;
    bool cancelled;
  };

  uint32_t TakeSlot() {
    if (free_slots_.empty()) {
      WT_CHECK(slots_.size() < kMaxSlots);
      slots_.push_back({Payload{}, 0, false});
      return static_cast<uint32_t>(slots_.size() - 1);
    }
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  uint32_t TopSlot() const { return static_cast<uint32_t>(heap_.front().order & (kMaxSlots - 1)); }

  void FreeTop() {
    const uint32_t slot = TopSlot();
    RemoveTop();
    ++slots_[slot].generation;
    free_slots_.push_back(slot);
  }

  void DropCancelled() {
    while (!heap_.empty() && slots_[TopSlot()].cancelled) FreeTop();
  }

  // Puts `node` into the hole at `hole`, or into an ancestor's place.
  void MoveUp(size_t hole, Node node) {
    while (hole > 0) {
      const size_t parent = (hole - 1) / kArity;
      if (!(node < heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = node;
  }

  void RemoveTop() {
    const Node last = heap_.back();
    heap_.pop_back();
    const size_t size = heap_.size();
    if (size == 0) return;
    size_t hole = 0;
    for (size_t child = 1; child < size; child = hole * kArity + 1) {
      const size_t end = child + kArity < size ? child + kArity : size;
      size_t least = child;
      for (size_t other = child + 1; other < end; ++other) {
        if (heap_[other] < heap_[least]) least = other;
      }
      if (!(heap_[least] < last)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = last;
  }

  std::vector<Node> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  Duration now_;
  uint64_t next_sequence_ = 0;
  int64_t fired_ = 0;
};

}  // namespace windtunnel
