// The queues of a device that runs asynchronously to the host (a GPU's streams). Work of one queue runs in
// order. Work of several queues runs concurrently, except that a queue can be told to wait for an event.
// Nothing here waits for the device unless its comment says so.
//
//   DeviceQueues& queues = *device.queues();
//   WT_RETURN_IF_ERROR(queues.Restart());
//   …Launch on the compute queue…
//   WT_ASSIGN_OR_RETURN(const auto computed, queues.Record(DeviceQueues::kCompute, DeviceQueues::Timing::kNone));
//   WT_RETURN_IF_ERROR(queues.WaitFor(copies, computed));
//   WT_RETURN_IF_ERROR(queues.Copy(copies, to_host, from_device, bytes));
#pragma once

#include <chrono>
#include <cstdint>

#include "base/result.h"
#include "base/units.h"
#include "plan/segment_source.h"

namespace windtunnel {

// The most device time that a timed event between two kernels takes; on an H200 it takes 1.2 to 1.9 us. A
// larger difference has another cause.
inline constexpr Duration kLongestEvent = Microseconds(3);

class DeviceQueues {
 public:
  using Clock = std::chrono::steady_clock;
  using Queue = int32_t;
  using Event = int64_t;  // a point in a queue: numbered in the order of recording, since the device was made
  using Graph = int32_t;
  enum class Timing : uint8_t { kNone, kTimed };

  static constexpr Queue kCompute = 0;  // where Device::Launch puts operators
  static constexpr Event kNever = -1;

  virtual ~DeviceQueues() = default;

  // Opens another queue. Where both could begin, an urgent queue's work begins before
  // other queues' (communication).
  virtual Result<Queue> Open(bool urgent) = 0;
  // What the platform calls the queue: a cudaStream_t.
  virtual void* Handle(Queue queue) = 0;
  // Any thread other than the one that made this object calls this once before all else.
  // It may call IsDone and TimeOf only.
  virtual void AttachThread() = 0;

  // Waits until all queues are idle, then restarts the clock: events recorded before are
  // done and no longer have a time.
  virtual Status Restart() = 0;
  virtual Result<Event> Record(Queue queue, Timing timing) = 0;
  // Work issued to `queue` from now on begins after `event`.
  virtual Status WaitFor(Queue queue, Event event) = 0;
  // The same for an event of `other`, the queues of another rank of this process, on devices of one kind.
  // Called from this object's thread; the other rank may continue meanwhile, as long as it keeps its queues.
  virtual Status WaitFor(Queue queue, DeviceQueues& other, Event event) = 0;
  // From any attached thread. Failed: the device has a fault (all later calls fail likewise).
  virtual Result<bool> IsDone(Event event) = 0;
  // Blocks the host.
  virtual Status Await(Event event) = 0;
  // From any attached thread. When the event happened, on the host's clock. REQUIRES: timed, done, recorded
  // since the last Restart.
  virtual Result<Clock::time_point> TimeOf(Event event) = 0;

  // Graphs: work that is issued again and again is captured once and launched as a whole. Between
  // BeginCapture and EndCapture, work issued to `queue` is captured, not run; nothing is recorded, waited for
  // or issued to another queue.
  virtual Status BeginCapture(Queue queue) = 0;
  virtual Result<Graph> EndCapture() = 0;
  virtual Status LaunchGraph(Queue queue, Graph graph) = 0;
  // Discards a graph that is not launched any more. Waits for the queue that it was launched on last.
  virtual Status DiscardGraph(Graph graph) = 0;

  // Copies or fills memory of the device or the host, in the queue's order. Host memory from host_memory() is
  // copied asynchronously to the host; with any other the call may block until the copy is done.
  virtual Status Copy(Queue queue, void* to, const void* from, Bytes bytes) = 0;
  virtual Status Fill(Queue queue, void* to, uint8_t value, Bytes bytes) = 0;
  // Keeps the queue busy for about `time`, so that the host can get ahead of it.
  virtual Status Spin(Queue queue, Duration time) = 0;
  // Launches an empty kernel, to measure what issuing costs.
  virtual Status LaunchNothing(Queue queue) = 0;

  // Host memory that the device can access by itself.
  virtual SegmentSource& host_memory() = 0;
  // The device memory that all processes together use now.
  virtual Result<Bytes> MemoryInUse() = 0;
};

}  // namespace windtunnel
