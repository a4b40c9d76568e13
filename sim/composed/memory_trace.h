// What a rank's actions and messages do to its memory, in order, with stretches that repeat written once: in the
// middle of a pipeline's schedule a rank does the same for each micro-batch.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/composed/backward_kind.h"

namespace windtunnel::composed {

struct MemoryEvent {
  enum class Kind : uint8_t {
    kMessage,
    kForward,
    kBackward
  };                     // a message that the rank receives; its actions
  int32_t released = 0;  // action: sent messages of the rank that become known to have arrived when it begins
  int16_t chunk = 0;     // action: which of the rank's stages
  Kind kind : 2 = Kind::kMessage;
  BackwardKind backward : 2 = BackwardKind::kWhole;
  bool is_first : 1 = false;  // backward: the first of its kind in the stage

  bool operator==(const MemoryEvent&) const = default;
};
static_assert(sizeof(MemoryEvent) == 8);  // walks have millions before they are condensed

struct MemoryTrace {
  // `length` events from index `begin` on, `count` times in a row.
  struct Run {
    int32_t begin = 0, length = 0, count = 1;

    bool operator==(const Run&) const = default;
  };
  std::vector<MemoryEvent> events;
  std::vector<Run> runs;
  int32_t unreleased = 0;  // sent messages that no action releases
};

// The trace of `events`, in which what repeats after `period` events is written once.
MemoryTrace Condense(const std::vector<MemoryEvent>& events, int32_t period);

}  // namespace windtunnel::composed
