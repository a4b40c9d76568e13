// One run of a program on a device that has queues (runtime/device_queues.h): the host issues operators, the
// device runs them.
//
// Each stream is a queue: compute, a copy stream of its own, and the communicators'. An operator that depends
// on one of another stream makes its queue wait for an event behind that one. The host itself waits only
// where the program says so (HostWait) and at the end.
//
// Memory is handed out in program order while the device is behind the host. Within the compute stream that
// is safe as it stands. An operator of another queue that uses a buffer allocated since this queue last
// waited for the compute queue first waits for everything issued there, since an operator in flight may still
// use the block (docs/decisions/0013-a-device-behind-the-host.md).
//
// Operators with operands in the host's memory (offload: Op::on_host) are run by the host, on the cpu device,
// after it has waited for everything that they need. Nothing is issued meanwhile.
//
// A span begins when the operator has been issued, the one before it in its queue is done and everything it
// waits for is done. It ends when the operator is done.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "runtime/operator_graphs.h"
#include "runtime/run_context.h"

namespace windtunnel {

// A micro-batch in host memory that the device reads by itself.
struct StagedBatch {
  uint64_t address = 0;
  Bytes bytes;
  int64_t step = -1, micro_batch = -1;  // what is in it; -1: nothing
  bool held_out = false;
  DeviceQueues::Event read = DeviceQueues::kNever;  // behind the copy to the device; kNever: not copied yet
};

struct QueuedState {
  explicit QueuedState(Device& device) : graphs(device) {}

  OperatorGraphs graphs;
  std::vector<DeviceQueues::Queue> queues;  // by stream; -1: not opened
  // By buffer: the number of operators issued to the compute queue before it was allocated.
  std::vector<int64_t> allocated_at;
  std::vector<StagedBatch> batches;
  const Program* awaited_in = nullptr;  // the program that `is_awaited` is of
  std::vector<bool> is_awaited;         // by operator: one of another stream depends on it
  int64_t issued = 0;                   // operators issued to the compute queue, in all runs
  // The cpu device that runs the host's operators; made when it is first needed.
  std::unique_ptr<Device> host = nullptr;
  Operands operands = {};  // of the operator that is being issued
  uint64_t borrowed = 0;  // host memory for copies of their operands that are in the device's
  Bytes borrowed_bytes = {};
};

class QueuedRun {
 public:
  // `state` is that of all runs in `context`. Writes `times`. `noted_step`: the number under which the flight
  // recorder knows the program.
  QueuedRun(RunContext& context, QueuedState& state, Executor::RunTimes& times, const Program& program,
            int64_t step, int64_t noted_step, const ExecutionMode& mode);
  Result<Timeline> Run();

 private:
  using Queue = DeviceQueues::Queue;
  using Event = DeviceQueues::Event;
  using Clock = DeviceQueues::Clock;

  // An operator that was issued to a queue, with what its span needs.
  struct Issued {
    OpIndex op = -1;
    Clock::time_point time{};             // when
    Event before = DeviceQueues::kNever;  // behind the operator before it in the queue
    Event done = DeviceQueues::kNever;
    std::vector<OpIndex> waits = {};   // for operators of other streams
    std::optional<Span> by_host = {};  // of an operator that the host ran itself
  };

  Status Execute(OpIndex index);
  Status ExecuteMemory(int32_t index);
  Status Communicate(OpIndex index);
  Status Imitate(OpIndex index);
  Status CopyAsImitation(const Op& op);
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
  DeviceQueues::Timing timing() const {
    return mode_.spans ? DeviceQueues::Timing::kTimed : DeviceQueues::Timing::kNone;
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

  RunContext& context_;
  QueuedState& state_;
  Executor::RunTimes& times_;
  const Program& program_;
  const int64_t step_, noted_step_;
  const ExecutionMode& mode_;
  DeviceQueues& queues_;

  Clock::time_point start_{}, last_issue_{};
  Event led_ = DeviceQueues::kNever;  // behind ExecutionMode::lead
  std::vector<uint64_t> tickets_;     // by operator; 0: not submitted
  std::vector<Event> events_;         // by operator, behind it; kNever: none
  std::vector<int64_t> ordinals_;  // by operator: its number among all that the compute queue was ever issued
  int32_t left_of_graph_ = 0;      // operators of the current graph that are still to come
  int32_t graph_size_ = 0;         // operators of that graph
  Clock::time_point graph_begun_{};
  std::vector<OpIndex> submitted_;
  std::vector<Issued> issued_;    // with spans
  std::vector<Event> last_;       // by queue: behind its last operator, with spans
  std::vector<int64_t> covered_;  // by stream: operators of the compute queue that it has waited for
  Timeline timeline_;
};

}  // namespace windtunnel
