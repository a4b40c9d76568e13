#include "sim/composed/shared_device.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "sim/time_for.h"

namespace windtunnel::composed {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

SharedDevice::SharedDevice(const RankStrategy& strategy, int32_t begin, int32_t end, int64_t host,
                           int64_t sends_arrived, const Lanes& lanes,
                           std::array<int64_t, kLocalStreams>& queue_ends, std::vector<int64_t>& op_ends)
    : strategy_(strategy),
      begin_(begin),
      lanes_(lanes),
      queue_ends_(queue_ends),
      op_ends_(op_ends),
      is_done_(static_cast<size_t>(end - begin)) {
  for (int32_t op = begin; op < end; ++op) {
    host += strategy.ops[op].host;
    const bool waits = op >= strategy.sends_from && op <= strategy.sends_awaited;
    issued_.push_back(waits ? std::max(host, sends_arrived) : host);
    queues_[strategy.ops[op].stream].ops.push_back(op);
  }
}

void SharedDevice::Run() {
  now_ = kNever;
  for (int stream = 0; stream < kLocalStreams; ++stream) now_ = std::min(now_, ArrivalOf(stream));
  do {
    BeginWhatCan();
    UpdateSpeeds();
  } while (Advance());
  for (const Queue& queue : queues_) WT_CHECK_EQ(queue.next, queue.ops.size());
}

// When the queue's next operator can begin; kNever while that is not known.
int64_t SharedDevice::ArrivalOf(int stream) const {
  const Queue& queue = queues_[stream];
  if (queue.next == queue.ops.size()) return kNever;
  const int32_t index = queue.ops[queue.next];
  const StrategyOp& op = strategy_.ops[index];
  int64_t arrival = std::max(issued_[index - begin_], queue_ends_[stream]);
  for (int32_t i = 0; i < op.dependencies; ++i) {
    const int32_t dependency = strategy_.dependencies[op.first_dependency + i];
    if (dependency >= begin_ && !is_done_[dependency - begin_]) return kNever;
    arrival = std::max(arrival, op_ends_[dependency]);
  }
  return arrival;
}

void SharedDevice::BeginWhatCan() {
  for (int stream = 0; stream < kLocalStreams; ++stream) {
    Queue& queue = queues_[stream];
    if (queue.in_flight || ArrivalOf(stream) > now_) continue;
    queue.in_flight = true;
    queue.remaining = static_cast<double>(strategy_.ops[queue.ops[queue.next]].work);
    queue.since = now_;
    queue.speed = 0;
  }
}

void SharedDevice::UpdateSpeeds() {
  int kernels = 0;
  double efficiency = 1;
  for (int stream = 0; stream < kLocalStreams; ++stream) {
    const Queue& queue = queues_[stream];
    if (queue.in_flight && IsKernels(stream)) ++kernels;
    if (queue.in_flight && !IsKernels(stream)) efficiency *= strategy_.ops[queue.ops[queue.next]].efficiency;
    for (const Lane::Flight& flight : lanes_[stream].flights)
      if (flight.start <= now_ && now_ < flight.end) efficiency *= flight.efficiency;
  }
  for (int stream = 0; stream < kLocalStreams; ++stream) {
    Queue& queue = queues_[stream];
    const double speed = IsKernels(stream) ? efficiency / kernels : 1;
    if (!queue.in_flight || queue.speed == speed) continue;
    queue.remaining = std::max(queue.remaining - static_cast<double>(now_ - queue.since) * queue.speed, 0.0);
    queue.since = now_;
    queue.speed = speed;
    queue.finish = now_ + TimeFor(queue.remaining, speed).picoseconds();
  }
}

bool SharedDevice::Advance() {
  int64_t next = kNever;
  for (int stream = 0; stream < kLocalStreams; ++stream) {
    if (const Queue& queue = queues_[stream]; queue.in_flight) next = std::min(next, queue.finish);
    else next = std::min(next, ArrivalOf(stream));
    for (const Lane::Flight& flight : lanes_[stream].flights)
      for (int64_t at : {flight.start, flight.end})
        if (at > now_) next = std::min(next, at);
  }
  if (next == kNever) return false;
  now_ = next;
  for (int stream = 0; stream < kLocalStreams; ++stream) {
    Queue& queue = queues_[stream];
    if (!queue.in_flight || queue.finish != now_) continue;
    const int32_t op = queue.ops[queue.next++];
    queue.in_flight = false;
    is_done_[op - begin_] = true;
    op_ends_[op] = queue_ends_[stream] = now_;
  }
  return true;
}

}  // namespace windtunnel::composed
