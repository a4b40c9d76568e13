// Ranks that are threads of one process, each with a device that has queues: their operands are in the
// devices' memories, which all of them can address. The hosts' threads only meet to tell each other operands
// and events; queues wait for queues.
//
// Every event that a queue is told to wait for has been recorded by then, so whatever is issued completes by
// itself. When an operator has ended in a rank's queue, its peers are done with the rank's memory.
#include <algorithm>
#include <array>

#include "runtime/issuing_communicator.h"
#include "runtime/thread_communicator.h"
#include "runtime/thread_group.h"
#include "runtime/thread_work.h"

namespace windtunnel {
namespace {

using Event = DeviceQueues::Event;

constexpr Bytes kBlock = MiB(8);  // summed at a time
constexpr int kMostPhases = 2;

// An operator as the peers see it: all ranks of a group are of this kind, or none is.
struct DeviceOperator : GroupOperator {
  Device* device = nullptr;
  // Events in the rank's queue: behind what makes the operands, then behind each phase.
  // kNever: nothing to wait for.
  std::array<Event, kMostPhases + 1> reached = {DeviceQueues::kNever, DeviceQueues::kNever,
                                                DeviceQueues::kNever};
};

const DeviceOperator& Of(const GroupOperator* op) { return static_cast<const DeviceOperator&>(*op); }

class DeviceThreadCommunicator : public IssuingCommunicator, private ElementMover {
 public:
  DeviceThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, Device& device)
      : IssuingCommunicator(*device.queues(), group->options().name, rank, group->options().size),
        group_(std::move(group)),
        device_(device) {}

  ~DeviceThreadCommunicator() override {
    EndTickets();
    (void)Drain();  // a device that fails has failed elsewhere, too
    group_->Leave(rank());
    if (scratch_ != 0) device_.memory().Release(scratch_, kBlock * 2);
  }

  // Meets the peers for the first time.
  Status Connect() {
    WT_RETURN_IF_ERROR(OpenQueue());
    WT_ASSIGN_OR_RETURN(scratch_, device_.memory().Reserve(kBlock * 2));
    DeviceOperator own;
    own.name = "connect";
    own.device = &device_;
    WT_ASSIGN_OR_RETURN(const std::shared_ptr<Meeting> meeting, group_->Meet(rank(), own, true));
    const Status linked = OrFail(own, Link(*meeting));
    group_->Pass(*meeting, 0, true);
    return linked;
  }

 private:
  Status Drain() {
    if (queue() < 0) return Ok();
    WT_ASSIGN_OR_RETURN(const Event end, queues_.Record(queue(), DeviceQueues::Timing::kNone));
    return queues_.Await(end);
  }

  Status Link(const Meeting& meeting) {
    for (const GroupOperator* peer : meeting.operators)
      if (Of(peer).device != &device_) WT_RETURN_IF_ERROR(device_.Link(*Of(peer).device));
    return Ok();
  }

  Status Check(const GroupOperator& op) override {
    const bool reduces = op.operation == GroupOperation::kAllReduce ||
                         op.operation == GroupOperation::kReduceScatter ||
                         op.operation == GroupOperation::kReduce;
    if (!reduces || (op.reduction == Reduction::kSum && op.dtype != DType::kInt32)) return Ok();
    return Unsupported(
        "threads of one process reduce on their devices by sums of fp32, bf16 and fp16 only, not {} of {}",
        op.reduction == Reduction::kSum ? "sums" : "maxima", Name(op.dtype));
  }

  // Nobody leaves between the meeting and the last Pass, so the peers' queues are there to be
  // waited for. They are waited for after a failure, too: the peers must be done with this rank's
  // memory before it is released.
  Status Issue(const GroupOperator& op, Event start) override {
    DeviceOperator own{op, &device_};
    own.reached[0] = start;
    WT_ASSIGN_OR_RETURN(const std::shared_ptr<Meeting> meeting, group_->Meet(rank(), own, true));
    const int phases = PhasesOf(op.operation);
    Status issued;
    for (int phase = 0; phase <= phases; ++phase) {
      const Status awaited = AwaitPeers(*meeting, phase);
      if (issued) issued = group_->Check(rank(), own);
      if (issued) issued = OrFail(own, awaited);
      if (issued && phase < phases) issued = OrFail(own, IssueWork(own, *meeting, phase));
      group_->Pass(*meeting, phase, true);
    }
    return issued;
  }

  Status OrFail(const DeviceOperator& own, const Status& status) {
    return status ? Ok() : group_->Fail(rank(), own, status.error().message);
  }

  Status AwaitPeers(const Meeting& meeting, int phase) {
    for (const GroupOperator* peer : meeting.operators) {
      if (Of(peer).device == &device_) continue;
      WT_RETURN_IF_ERROR(queues_.WaitFor(queue(), *Of(peer).device->queues(), Of(peer).reached[phase]));
    }
    return Ok();
  }

  // Part of work that fails may be in flight, so peers wait for it, too.
  Status IssueWork(DeviceOperator& own, const Meeting& meeting, int phase) {
    const Status done = DoPhase(own, meeting, rank(), phase, *this);
    WT_ASSIGN_OR_RETURN(own.reached[phase + 1], queues_.Record(queue(), DeviceQueues::Timing::kNone));
    return done;
  }

  Status Copy(const GroupOperator& op, void* to, const void* from, int64_t elements) override {
    return queues_.Copy(queue(), to, from, SizeOf(op.dtype) * elements);
  }

  // Works block by block in memory of this rank. The peers' elements are copied there to be added, because
  // kernels can access them in place on some machines only.
  Status Reduce(const GroupOperator& op, const std::vector<const void*>& inputs, int64_t first,
                int64_t elements, void* out) override {
    auto* const sum = reinterpret_cast<char*>(scratch_);
    char* const peers = sum + kBlock.count();
    const int64_t most = kBlock.count() / op.element_bytes();
    for (int64_t done = 0; done < elements; done += most) {
      const int64_t count = std::min(most, elements - done);
      WT_RETURN_IF_ERROR(Copy(op, sum, At(inputs[0], first + done, op), count));
      for (int i = 1; i < size(); ++i) {
        const void* addend = At(inputs[i], first + done, op);
        if (i != rank()) {
          WT_RETURN_IF_ERROR(Copy(op, peers, addend, count));
          addend = peers;
        }
        WT_RETURN_IF_ERROR(Add(op.dtype, sum, addend, count));
      }
      WT_RETURN_IF_ERROR(Copy(op, At(out, done, op), sum, count));
    }
    return Ok();
  }

  Status Add(DType dtype, void* sum, const void* addend, int64_t elements) {
    const TensorRef from{const_cast<void*>(addend), elements}, to{sum, elements};
    const windtunnel::Copy add{.elements = elements, .from = dtype, .to = dtype, .accumulate = true};
    return device_.Launch(add, {&from, 1}, {&to, 1}, KernelContext{.queue = queue()});
  }

  std::shared_ptr<ThreadGroup> group_;
  Device& device_;
  uint64_t scratch_ = 0;  // two blocks: the sum so far, and a peer's addend
};

}  // namespace

Result<std::unique_ptr<Communicator>> MakeDeviceThreadCommunicator(std::shared_ptr<ThreadGroup> group,
                                                                   int rank, Device& device) {
  auto communicator = std::make_unique<DeviceThreadCommunicator>(std::move(group), rank, device);
  WT_RETURN_IF_ERROR(communicator->Connect());
  return communicator;
}

}  // namespace windtunnel
