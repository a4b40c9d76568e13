// The queues of a device that runs beside the host (a GPU's streams). Work of one queue runs in order; work of several runs beside each
// other, but for the events that a queue is told to wait for. Nothing here waits for the device unless its comment says so.
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

// What a timed event between two kernels takes of the device's time at most; 1.2 to 1.9 us on an H200. More is something else's.
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

  // Another queue. Whoever asks for an urgent one wants its work to begin before other queues' where both could (communication).
  virtual Result<Queue> Open(bool urgent) = 0;
  // What the platform calls the queue: a cudaStream_t.
  virtual void* Handle(Queue queue) = 0;
  // For a thread that calls this object beside the one that made it, once before all else: IsDone only.
  virtual void AttachThread() = 0;

  // Waits until all queues are idle, then begins to count time anew: what was recorded before is done and has no time any more.
  virtual Status Restart() = 0;
  virtual Result<Event> Record(Queue queue, Timing timing) = 0;
  // Work issued to `queue` from now on begins after `event`.
  virtual Status WaitFor(Queue queue, Event event) = 0;
  // The same of an event of `other`, the queues of another rank of this process, on devices of one kind. From this object's thread; the
  // other one's may go on meanwhile, as long as it keeps the queues.
  virtual Status WaitFor(Queue queue, DeviceQueues& other, Event event) = 0;
  // From any attached thread. Failed: the device has a fault (all later calls fail likewise).
  virtual Result<bool> IsDone(Event event) = 0;
  // Blocks the host.
  virtual Status Await(Event event) = 0;
  // When the event happened, on the host's clock. REQUIRES: timed, done, recorded since the last Restart.
  virtual Result<Clock::time_point> TimeOf(Event event) = 0;

  // Graphs: work that is issued again and again, put together once and launched as a whole. Between both calls, what is issued to
  // `queue` is not done but noted; nothing is recorded, waited for or issued to another queue.
  virtual Status BeginCapture(Queue queue) = 0;
  virtual Result<Graph> EndCapture() = 0;
  virtual Status LaunchGraph(Queue queue, Graph graph) = 0;
  // It is not launched any more. Waits for the queue that it was launched on last.
  virtual Status DiscardGraph(Graph graph) = 0;

  // Between and within the memories of the device and the host, in the queue's order. Host memory from host_memory() is copied beside
  // the host; with any other the call may block until the copy is done.
  virtual Status Copy(Queue queue, void* to, const void* from, Bytes bytes) = 0;
  virtual Status Fill(Queue queue, void* to, uint8_t value, Bytes bytes) = 0;
  // Keeps the queue busy for about so long, so that the host can get ahead of it.
  virtual Status Spin(Queue queue, Duration time) = 0;
  // Nothing, as a kernel: what issuing costs.
  virtual Status LaunchNothing(Queue queue) = 0;

  // Memory of the host that the device can reach by itself.
  virtual SegmentSource& host_memory() = 0;
  // What all processes have of the device's memory now.
  virtual Result<Bytes> MemoryInUse() = 0;
};

}  // namespace windtunnel
