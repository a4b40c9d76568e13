// One run of a program on a device that has queues (runtime/device_queues.h): the host issues operators, the device runs them.
//
// Streams are queues: compute, a copy stream of its own, and the communicators'. An operator that depends on one of another stream
// makes its queue wait for an event behind that one; the host itself waits only where the program says so (HostWait) and at the end.
//
// Memory is handed out in program order while the device is behind the host. Within the compute stream that is safe as it stands.
// Before an operator of another queue uses a buffer that was allocated since it last waited for the compute queue, it waits for all that
// had been issued there: the block may have been somebody else's a moment before (docs/decisions/0013-a-device-behind-the-host.md).
//
// What has operands in the host's memory (offload: Op::on_host) the host does itself, by the cpu device, after waiting for all that it needs.
// Nothing is issued meanwhile.
//
// A span begins when the operator was issued, the one before it in its queue was done and whatever it waits for was done, and ends when
// it is done.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "runtime/operator_graphs.h"

namespace windtunnel {

// A micro-batch in memory that the device reads by itself.
struct StagedBatch {
  uint64_t address = 0;
  Bytes bytes;
  int64_t step = -1, micro_batch = -1;  // what is in it; -1: nothing
  bool held_out = false;
  DeviceQueues::Event read = DeviceQueues::kNever;  // behind the copy to the device; kNever: not taken yet
};

struct QueuedState {
  explicit QueuedState(Device& device) : graphs(device) {}

  OperatorGraphs graphs;
  std::vector<DeviceQueues::Queue> queues;  // by stream; -1: not opened
  std::vector<int64_t>
      allocated_at;  // by buffer: operators issued to the compute queue before it was allocated
  std::vector<StagedBatch> batches;
  const Program* awaited_in = nullptr;     // the program that `is_awaited` is of
  std::vector<bool> is_awaited;            // by operator: one of another stream depends on it
  int64_t issued = 0;                      // operators to the compute queue, in all runs
  std::unique_ptr<Device> host = nullptr;  // what works on the host's memory; made when it is first needed
  uint64_t borrowed = 0;                   // memory of the host for its operands that are in the device's
  Bytes borrowed_bytes = {};
};

class QueuedRun {
 public:
  // `noted_step`: as the flight recorder tells programs apart.
  QueuedRun(Executor& executor, const Program& program, int64_t step, int64_t noted_step,
            const ExecutionMode& mode);
  Result<Timeline> Run();

 private:
  using Queue = DeviceQueues::Queue;
  using Event = DeviceQueues::Event;
  using Clock = DeviceQueues::Clock;

  // What was issued to a queue, as spans need it.
  struct Issued {
    OpIndex op = -1;
    Clock::time_point time{};             // when
    Event before = DeviceQueues::kNever;  // the queue's state when it was issued
    Event done = DeviceQueues::kNever;
    std::vector<OpIndex> waits = {};   // for operators of other streams
    std::optional<Span> by_host = {};  // what the host did itself
  };

  Status Execute(OpIndex index);
  Status ExecuteMemory(int32_t index);
  Status Communicate(OpIndex index);
  Status Imitate(OpIndex index);
  Status AwaitOnHost(OpIndex index);
  Status AwaitDependencies(OpIndex index);
  Status Compute(OpIndex index);
  Status ComputeInGraph(OpIndex index);
  bool LaunchesInGraph(const Op& op) const {
    return op.graph != 0 && mode_.graphs && !mode_.spans && !mode_.keep_busy;
  }
  Status ComputeOnHost(OpIndex index);
  Status Drain(Queue queue);
  Status Borrow(const Op& op, std::vector<TensorRef>& reads, std::vector<TensorRef>& writes, Queue queue);
  Bytes BytesOf(const Slice& slice, const TensorRef& located) const;
  KernelContext ContextOn(Queue queue) const;
  void MakeRoomFor(Queue queue) {
    if (static_cast<size_t>(queue) >= last_.size()) last_.resize(queue + 1, DeviceQueues::kNever);
  }
  Status Load(const LoadBatch& op, Queue queue);
  Result<StagedBatch*> Stage(const LoadBatch& op, int64_t step, std::span<const TensorRef> writes);
  Status StageNextStep();
  Status LetWait(Queue queue, StreamId stream, OpIndex index);
  Status LetWaitForMemory(Queue queue, StreamId stream, const Op& op);
  Status KeepBusy(Queue queue);
  Result<Queue> QueueOf(StreamId stream);
  Status Finish();
  Status WaitForAll();
  Status CollectSpans();
  Result<Duration> EndOf(OpIndex index);
  Result<Duration> TimeOf(Event event);
  void NoteAwaited();
  Error Name(OpIndex index, const Error& error) const;

  Executor& executor_;
  const Program& program_;
  const int64_t step_, noted_step_;
  const ExecutionMode& mode_;
  DeviceQueues& queues_;
  QueuedState& state_;

  Clock::time_point start_{}, last_issue_{};
  Event led_ = DeviceQueues::kNever;  // behind ExecutionMode::lead
  std::vector<uint64_t> tickets_;  // by operator; 0: not submitted
  std::vector<Event> events_;      // by operator, behind it; kNever: none
  std::vector<int64_t> ordinals_;  // by operator: its number among all that the compute queue was ever issued
  int32_t left_of_graph_ = 0;      // operators that are still to come
  int32_t graph_size_ = 0;         // of the graph that left_of_graph_ is of
  Clock::time_point graph_begun_{};
  std::vector<OpIndex> submitted_;
  std::vector<Issued> issued_;    // with spans
  std::vector<Event> last_;       // by queue: behind what it was issued last, with spans
  std::vector<int64_t> covered_;  // by stream: operators of the compute queue that it has waited for
  Timeline timeline_;
};

}  // namespace windtunnel
