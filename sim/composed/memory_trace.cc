#include "sim/composed/memory_trace.h"

#include <algorithm>

namespace windtunnel::composed {

MemoryTrace Condense(const std::vector<MemoryEvent>& events, int32_t period) {
  MemoryTrace trace;
  const auto size = static_cast<int32_t>(events.size());
  // Copies events [begin, end), which make `count` times as many.
  const auto add = [&](int32_t begin, int32_t end, int32_t count) {
    if (begin == end) return;
    trace.runs.push_back({static_cast<int32_t>(trace.events.size()), end - begin, count});
    trace.events.insert(trace.events.end(), events.begin() + begin, events.begin() + end);
  };
  int32_t copied = 0;
  for (int32_t begin = 0; period > 0 && begin + period < size;) {
    int32_t end = begin + period;  // of what equals what is a period before
    while (end < size && events[end] == events[end - period]) ++end;
    const int32_t count = (end - begin) / period;
    if (count > 1) {
      add(copied, begin, 1);
      add(begin, begin + period, count);
      copied = begin = begin + count * period;
    } else {
      begin = end - period + 1;  // events[end] differs from the one a period before
    }
  }
  add(copied, size, 1);
  return trace;
}

}  // namespace windtunnel::composed
