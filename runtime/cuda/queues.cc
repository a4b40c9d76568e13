#include "runtime/cuda/queues.h"

#include <utility>

#include "runtime/cuda/busy.h"
#include "runtime/cuda/status.h"

namespace windtunnel::cuda {

Result<std::unique_ptr<Queues>> Queues::Make(int ordinal) {
  std::unique_ptr<Queues> queues(new Queues(ordinal));
  WT_ASSIGN_OR_RETURN([[maybe_unused]] const Queue compute, queues->Open(false));
  WT_RETURN_IF_ERROR(Check(cudaEventCreate(&queues->base_), "cudaEventCreate"));
  WT_RETURN_IF_ERROR(queues->Restart());
  return queues;
}

Queues::~Queues() {
  for (const Captured& graph : graphs_)
    if (graph.launchable != nullptr) cudaGraphExecDestroy(graph.launchable);
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  for (const Recorded& recorded : recorded_) cudaEventDestroy(recorded.event);
  for (const auto& events : free_)
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  if (base_ != nullptr) cudaEventDestroy(base_);
}

Result<DeviceQueues::Queue> Queues::Open(bool urgent) {
  int least = 0, greatest = 0;
  WT_RETURN_IF_ERROR(
      Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
  cudaStream_t stream = nullptr;
  WT_RETURN_IF_ERROR(
      Check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
            "cudaStreamCreateWithPriority"));
  streams_.push_back(stream);
  return static_cast<Queue>(streams_.size()) - 1;
}

Status Queues::Restart() {
  for (cudaStream_t stream : streams_) WT_RETURN_IF_ERROR(Check(cudaStreamSynchronize(stream), "the device"));
  {
    std::lock_guard lock(mutex_);
    for (const Recorded& recorded : recorded_)
      free_[static_cast<int>(recorded.timing)].push_back(recorded.event);
    first_ += static_cast<Event>(recorded_.size());
    recorded_.clear();
  }
  WT_RETURN_IF_ERROR(Check(cudaEventRecord(base_, streams_[kCompute]), "cudaEventRecord"));
  WT_RETURN_IF_ERROR(Check(cudaEventSynchronize(base_), "cudaEventSynchronize"));
  base_time_ = Clock::now();
  return Ok();
}

Result<cudaEvent_t> Queues::TakeEvent(Timing timing) {
  auto& free = free_[static_cast<int>(timing)];
  cudaEvent_t event = nullptr;
  if (free.empty()) {
    const unsigned flags = timing == Timing::kTimed ? cudaEventDefault : cudaEventDisableTiming;
    WT_RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreate"));
  } else {
    event = free.back();
    free.pop_back();
  }
  return event;
}

Result<DeviceQueues::Event> Queues::Record(Queue queue, Timing timing) {
  std::lock_guard lock(mutex_);
  WT_ASSIGN_OR_RETURN(const cudaEvent_t event, TakeEvent(timing));
  recorded_.push_back({event, timing});
  WT_RETURN_IF_ERROR(Check(cudaEventRecord(event, streams_[queue]), "cudaEventRecord"));
  return first_ + static_cast<Event>(recorded_.size()) - 1;
}

const Queues::Recorded* Queues::Find(Event event) const {
  return event < first_ ? nullptr : &recorded_[static_cast<size_t>(event - first_)];
}

// Streams can wait for events of any device of the process.
Status Queues::WaitFor(Queue queue, DeviceQueues& other, Event event) {
  auto& owner = static_cast<Queues&>(other);
  std::lock_guard lock(owner.mutex_);
  const Recorded* recorded = owner.Find(event);
  if (recorded == nullptr) return Ok();
  return Check(cudaStreamWaitEvent(streams_[queue], recorded->event, 0), "cudaStreamWaitEvent");
}

Result<bool> Queues::IsDone(Event event) {
  std::lock_guard lock(mutex_);
  const Recorded* recorded = Find(event);
  if (recorded == nullptr) return true;
  const cudaError_t error = cudaEventQuery(recorded->event);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  WT_RETURN_IF_ERROR(Check(error, "the device"));
  return true;
}

// Waits without the lock, so that the watching thread can go on checking. The event stays valid, since only
// this thread restarts.
Status Queues::Await(Event event) {
  cudaEvent_t awaited = nullptr;
  {
    std::lock_guard lock(mutex_);
    const Recorded* recorded = Find(event);
    if (recorded == nullptr) return Ok();
    awaited = recorded->event;
  }
  return Check(cudaEventSynchronize(awaited), "the device");
}

Result<DeviceQueues::Clock::time_point> Queues::TimeOf(Event event) {
  std::lock_guard lock(mutex_);
  const Recorded* recorded = Find(event);
  if (recorded == nullptr) return Failed("an event of an earlier run has no time");
  float milliseconds = 0;
  WT_RETURN_IF_ERROR(
      Check(cudaEventElapsedTime(&milliseconds, base_, recorded->event), "cudaEventElapsedTime"));
  return base_time_ + std::chrono::nanoseconds(static_cast<int64_t>(double{milliseconds} * 1e6));
}

// Captures this thread's calls only, since other threads go on querying events.
Status Queues::BeginCapture(Queue queue) {
  WT_RETURN_IF_ERROR(Check(cudaStreamBeginCapture(streams_[queue], cudaStreamCaptureModeThreadLocal),
                           "cudaStreamBeginCapture"));
  captures_ = queue;
  return Ok();
}

Result<DeviceQueues::Graph> Queues::EndCapture() {
  const Queue queue = std::exchange(captures_, -1);
  cudaGraph_t graph = nullptr;
  WT_RETURN_IF_ERROR(Check(cudaStreamEndCapture(streams_[queue], &graph), "cudaStreamEndCapture"));
  cudaGraphExec_t launchable = nullptr;
  const Status status = Check(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
  cudaGraphDestroy(graph);
  WT_RETURN_IF_ERROR(status);
  graphs_.push_back({launchable, queue});
  return static_cast<Graph>(graphs_.size()) - 1;
}

Status Queues::LaunchGraph(Queue queue, Graph graph) {
  graphs_[graph].queue = queue;
  return Check(cudaGraphLaunch(graphs_[graph].launchable, streams_[queue]), "cudaGraphLaunch");
}

Status Queues::DiscardGraph(Graph graph) {
  Captured& captured = graphs_[graph];
  WT_RETURN_IF_ERROR(Check(cudaStreamSynchronize(streams_[captured.queue]), "the device"));
  return Check(cudaGraphExecDestroy(std::exchange(captured.launchable, nullptr)), "cudaGraphExecDestroy");
}

Status Queues::Copy(Queue queue, void* to, const void* from, Bytes bytes) {
  return Check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes.count()), cudaMemcpyDefault, streams_[queue]),
      "cudaMemcpyAsync");
}

Status Queues::Fill(Queue queue, void* to, uint8_t value, Bytes bytes) {
  return Check(cudaMemsetAsync(to, value, static_cast<size_t>(bytes.count()), streams_[queue]),
               "cudaMemsetAsync");
}

Status Queues::Spin(Queue queue, Duration time) {
  return Check(LaunchSpin(streams_[queue], time.picoseconds() / 1000), "a spinning kernel");
}

Status Queues::LaunchNothing(Queue queue) {
  return Check(cuda::LaunchNothing(streams_[queue]), "an empty kernel");
}

Result<Bytes> Queues::MemoryInUse() {
  size_t free = 0, total = 0;
  WT_RETURN_IF_ERROR(Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return Bytes(static_cast<int64_t>(total - free));
}

}  // namespace windtunnel::cuda
