// A device's streams and events, behind the interface DeviceQueues.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/device_queues.h"

namespace windtunnel::cuda {

class Queues : public DeviceQueues {
 public:
  // For the calling thread's current device. Errors: Failed.
  static Result<std::unique_ptr<Queues>> Make(int ordinal);
  ~Queues() override;

  Result<Queue> Open(bool urgent) override;
  void* Handle(Queue queue) override { return streams_[queue]; }
  void AttachThread() override { cudaSetDevice(ordinal_); }
  Status Restart() override;
  Result<Event> Record(Queue queue, Timing timing) override;
  Status WaitFor(Queue queue, Event event) override { return WaitFor(queue, *this, event); }
  Status WaitFor(Queue queue, DeviceQueues& other, Event event) override;
  Result<bool> IsDone(Event event) override;
  Status Await(Event event) override;
  Result<Clock::time_point> TimeOf(Event event) override;
  Status BeginCapture(Queue queue) override;
  Result<Graph> EndCapture() override;
  Status LaunchGraph(Queue queue, Graph graph) override;
  Status DiscardGraph(Graph graph) override;
  Status Copy(Queue queue, void* to, const void* from, Bytes bytes) override;
  Status Fill(Queue queue, void* to, uint8_t value, Bytes bytes) override;
  Status Spin(Queue queue, Duration time) override;
  Status LaunchNothing(Queue queue) override;
  SegmentSource& host_memory() override { return host_memory_; }
  Result<Bytes> MemoryInUse() override;

 private:
  struct Recorded {
    cudaEvent_t event;
    Timing timing;
  };
  explicit Queues(int ordinal) : ordinal_(ordinal) {}
  Result<cudaEvent_t> TakeEvent(Timing timing);
  // Null: the event was recorded before the last Restart, so it is done.
  const Recorded* Find(Event event) const;

  const int ordinal_;
  PinnedMemory host_memory_;
  std::vector<cudaStream_t> streams_;
  struct Captured {
    cudaGraphExec_t launchable = nullptr;  // null: discarded
    Queue queue = kCompute;                // captured from, or last launched on
  };
  std::vector<Captured> graphs_;
  Queue captures_ = -1;         // the queue that is being captured
  cudaEvent_t base_ = nullptr;  // recorded at the last Restart
  Clock::time_point base_time_{};

  mutable std::mutex mutex_;  // guards the members below
  Event first_ = 0;           // number of recorded_.front()
  std::deque<Recorded> recorded_;
  std::vector<cudaEvent_t> free_[2];  // by timing
};

}  // namespace windtunnel::cuda
