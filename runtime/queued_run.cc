#include "runtime/queued_run.h"

#include <algorithm>

#include "base/clock.h"
#include "runtime/imitation.h"

namespace windtunnel {
namespace {

constexpr Duration kLead = Microseconds(400);  // how far the host gets ahead of a device that it keeps busy

constexpr Bytes kAlignment(64);  // of tensors that share a block of host memory: a cache line

Duration Between(DeviceQueues::Clock::time_point from, DeviceQueues::Clock::time_point to) {
  return DurationOf(to - from);
}

// The bytes of a batch's ids, features or targets.
Bytes BytesOfBatch(const TensorRef& tensor) { return Bytes(tensor.elements * 4); }

// What a tensor takes in a block of host memory.
Bytes Aligned(Bytes bytes) { return bytes.RoundedUpTo(kAlignment); }

// A copy between the host's and the device's memory that changes no value, so it needs no kernel.
bool IsPlainCrossing(const OpKind& kind) {
  const auto* copy = std::get_if<Copy>(&kind);
  return copy != nullptr && copy->moves_only();
}

}  // namespace

QueuedRun::QueuedRun(RunContext& context, QueuedState& state, Executor::RunTimes& times,
                     const Program& program, int64_t step, int64_t noted_step, const ExecutionMode& mode)
    : context_(context),
      state_(state),
      times_(times),
      program_(program),
      step_(step),
      noted_step_(noted_step),
      mode_(mode),
      queues_(*context.device().queues()),
      tickets_(program.ops.size(), 0),
      events_(program.ops.size(), DeviceQueues::kNever),
      ordinals_(program.ops.size(), 0),
      covered_(context.role().streams.size(), 0) {
  state_.allocated_at.resize(context.role().buffers.size(), 0);
  state_.queues.resize(context.role().streams.size(), -1);
  timeline_.rank = context.rank();
  timeline_.host_computes = false;
}

Result<Timeline> QueuedRun::Run() {
  NoteAwaited();
  times_.operators.clear();
  times_.graphs.clear();
  // After a restore steps have other samples, so staged batches are dropped.
  if (noted_step_ == FlightRecorder::kRestore)
    for (StagedBatch& batch : state_.batches)
      batch = {.address = batch.address, .bytes = batch.bytes, .read = 0};
  WT_RETURN_IF_ERROR(queues_.Restart());
  start_ = last_issue_ = times_.started = Clock::now();
  std::fill(covered_.begin(), covered_.end(), state_.issued);  // all queues are idle
  if (mode_.lead > Duration()) {
    WT_RETURN_IF_ERROR(queues_.Spin(DeviceQueues::kCompute, mode_.lead));
    WT_ASSIGN_OR_RETURN(led_, queues_.Record(DeviceQueues::kCompute, DeviceQueues::Timing::kTimed));
    last_issue_ = Clock::now();
  }
  const auto on_memory = [&](int32_t index) { return ExecuteMemory(index); };
  const auto on_op = [&](OpIndex index) -> Status {
    const Status status = Execute(index);
    if (!status) return tl::unexpected(context_.Named(program_.ops[index], noted_step_, status.error()));
    return Ok();
  };
  WT_RETURN_IF_ERROR(WalkProgram(program_, on_memory, on_op));
  WT_RETURN_IF_ERROR(Finish());
  return std::move(timeline_);
}

// Kept from one run to the next, since steady steps are the same program again and again.
void QueuedRun::NoteAwaited() {
  if (state_.awaited_in == &program_ && state_.is_awaited.size() == program_.ops.size()) return;
  state_.awaited_in = &program_;
  state_.is_awaited.assign(program_.ops.size(), false);
  for (const Op& op : program_.ops)
    for (OpIndex dependency : op.dependencies) state_.is_awaited[dependency] = true;
}

Status QueuedRun::Execute(OpIndex index) {
  const Op& op = program_.ops[index];
  context_.recorder().Note(noted_step_, index);
  if (index == mode_.submit_before) WT_RETURN_IF_ERROR(Communicate(mode_.only));
  if (std::holds_alternative<HostWait>(op.kind)) return AwaitOnHost(index);
  Status status = Ok();
  if (op.on_host) {
    status = ComputeOnHost(index);
    last_issue_ = Clock::now();  // the operator's time is not issuing time
    return status;
  }
  if (LaunchesInGraph(op)) return ComputeInGraph(index);
  if (!IsCommunication(op.kind)) {
    status = Compute(index);
  } else if (mode_.communication == ExecutionMode::Communication::kAll) {
    status = Communicate(index);
  } else {
    return Imitate(index);
  }
  const Clock::time_point now = Clock::now();
  times_.operators.push_back({index, Between(last_issue_, now)});
  last_issue_ = now;
  if (!status || mode_.pause_every == 0) return status;
  if (static_cast<int64_t>(times_.operators.size()) % mode_.pause_every != 0) return status;
  WT_RETURN_IF_ERROR(Drain(DeviceQueues::kCompute));
  last_issue_ = Clock::now();
  return Ok();
}

Status QueuedRun::ExecuteMemory(int32_t index) {
  const MemoryOp& op = program_.memory[index];
  if (const Status status = context_.pool().Execute(program_, op); !status)
    return tl::unexpected(context_.Named(op, noted_step_, status.error()));
  if (op.allocates()) state_.allocated_at[op.buffer] = state_.issued;
  // Of a step that is measured only the end is wanted, and the host must not be held up.
  if (!mode_.spans) return Ok();
  timeline_.memory.push_back(MemorySample{index, Between(start_, Clock::now()), context_.pool().allocated(),
                                          context_.pool().reserved()});
  return Ok();
}

Result<DeviceQueues::Queue> QueuedRun::QueueOf(StreamId stream) {
  Queue& queue = state_.queues[stream];
  if (queue >= 0) return queue;
  const Stream& of = context_.role().streams[stream];
  if (of.kind == StreamKind::kCommunication) {
    DeviceCommunicator* communicator = context_.CommunicatorOf(stream).on_device();
    if (communicator == nullptr)
      return Unsupported("the communicator of stream '{}' does not work on the device's memory", of.name);
    queue = communicator->queue();
  } else if (of.kind == StreamKind::kCopy) {
    WT_ASSIGN_OR_RETURN(queue, queues_.Open(false));
  } else {
    queue = DeviceQueues::kCompute;
  }
  return queue;
}

// Makes `queue` wait for what the operator depends on: events of other queues, operators of communicators.
Status QueuedRun::LetWait(Queue queue, StreamId stream, OpIndex index) {
  if (mode_.communication == ExecutionMode::Communication::kOne && index == mode_.only) return Ok();
  for (OpIndex dependency : program_.ops[index].dependencies) {
    const StreamId other = program_.ops[dependency].stream;
    if (tickets_[dependency] != 0) {
      if (mode_.communication == ExecutionMode::Communication::kOne) continue;  // waited for at the end
      WT_RETURN_IF_ERROR(context_.CommunicatorOf(other).on_device()->LetWait(queue, tickets_[dependency]));
    } else if (events_[dependency] != DeviceQueues::kNever) {
      WT_RETURN_IF_ERROR(queues_.WaitFor(queue, events_[dependency]));
      if (other == kComputeStream) covered_[stream] = std::max(covered_[stream], ordinals_[dependency]);
    }
  }
  return Ok();
}

Status QueuedRun::LetWaitForMemory(Queue queue, StreamId stream, const Op& op) {
  if (queue == DeviceQueues::kCompute) return Ok();
  int64_t since = 0;
  for (const auto* slices : {&op.reads, &op.writes})
    for (const Slice& slice : *slices) since = std::max(since, state_.allocated_at[slice.buffer]);
  if (since <= covered_[stream]) return Ok();
  WT_ASSIGN_OR_RETURN(const Event now, queues_.Record(DeviceQueues::kCompute, DeviceQueues::Timing::kNone));
  covered_[stream] = state_.issued;
  return queues_.WaitFor(queue, now);
}

Status QueuedRun::Communicate(OpIndex index) {
  const Op& op = program_.ops[index];
  WT_ASSIGN_OR_RETURN(const Queue queue, QueueOf(op.stream));
  WT_RETURN_IF_ERROR(LetWait(queue, op.stream, index));
  if (index == mode_.only) {
    state_.operands.reads.assign(mode_.reads.begin(), mode_.reads.end());
    state_.operands.writes.assign(mode_.writes.begin(), mode_.writes.end());
    // As in the step, where it comes after what makes its operands.
    WT_ASSIGN_OR_RETURN(const Event now, queues_.Record(DeviceQueues::kCompute, DeviceQueues::Timing::kNone));
    WT_RETURN_IF_ERROR(queues_.WaitFor(queue, now));
  } else {
    WT_RETURN_IF_ERROR(LetWaitForMemory(queue, op.stream, op));
    context_.Resolve(op, state_.operands);
  }
  tickets_[index] = context_.CommunicatorOf(op.stream).Submit(op.kind, state_.operands.reads,
                                                              state_.operands.writes, op.name);
  context_.recorder().NoteSubmitted(noted_step_, index, tickets_[index]);
  submitted_.push_back(index);
  return Ok();
}

// As runtime/imitation.h says, by copies and fills of the device on the compute queue: 0x3C3C… is about 2^-6
// in fp32 and bf16, 0x2424 in fp16. Copy streams make its operands and take its results, as those of the
// collective.
Status QueuedRun::Imitate(OpIndex index) {
  const Op& op = program_.ops[index];
  WT_RETURN_IF_ERROR(LetWait(DeviceQueues::kCompute, kComputeStream, index));
  WT_RETURN_IF_ERROR(CopyAsImitation(op));
  if (!mode_.spans && !state_.is_awaited[index]) return Ok();
  WT_ASSIGN_OR_RETURN(events_[index], queues_.Record(DeviceQueues::kCompute, timing()));
  if (!mode_.spans) return Ok();
  // The next operator's span begins behind the imitation.
  if (last_.empty()) last_.resize(1, DeviceQueues::kNever);
  last_[DeviceQueues::kCompute] = events_[index];
  return Ok();
}

Status QueuedRun::CopyAsImitation(const Op& op) {
  if (op.writes.empty()) return Ok();
  context_.Resolve(op, state_.operands);
  const TensorRef& out = state_.operands.writes[0];
  const Axis& axis = context_.AxisOf(op.stream);
  const Imitation imitation = PlanImitation(op.kind, context_.PositionOn(axis), axis.size());
  for (const Imitation::Copy& copy : imitation.copies) {
    char* to = static_cast<char*>(out.data) + copy.to;
    const char* from = static_cast<const char*>(state_.operands.reads[0].data) + copy.from;
    if (to != from && copy.bytes > 0)
      WT_RETURN_IF_ERROR(queues_.Copy(DeviceQueues::kCompute, to, from, Bytes(copy.bytes)));
  }
  if (const std::optional<DType> dtype = imitation.made_up) {
    const uint8_t byte = *dtype == DType::kInt32 ? 0 : *dtype == DType::kFloat16 ? 0x24 : 0x3C;
    WT_RETURN_IF_ERROR(queues_.Fill(DeviceQueues::kCompute, out.data, byte, SizeOf(*dtype) * out.elements));
  }
  return Ok();
}

Status QueuedRun::AwaitDependencies(OpIndex index) {
  for (OpIndex dependency : program_.ops[index].dependencies) {
    if (tickets_[dependency] != 0) {
      context_.recorder().NoteWaiting(noted_step_, dependency);
      WT_RETURN_IF_ERROR(context_.Await(program_.ops[dependency].stream, tickets_[dependency]));
    } else if (events_[dependency] != DeviceQueues::kNever) {
      WT_RETURN_IF_ERROR(queues_.Await(events_[dependency]));
    }
  }
  return Ok();
}

Status QueuedRun::AwaitOnHost(OpIndex index) {
  WT_RETURN_IF_ERROR(AwaitDependencies(index));
  last_issue_ = Clock::now();
  context_.pool().NoteHostWait(program_, index);
  return Ok();
}

// Gives the host a lead where the device has caught up with it.
Status QueuedRun::KeepBusy(Queue queue) {
  Event& last = last_[queue];
  if (last != DeviceQueues::kNever) {
    WT_ASSIGN_OR_RETURN(const bool is_idle, queues_.IsDone(last));
    if (!is_idle) return Ok();
  }
  WT_RETURN_IF_ERROR(queues_.Spin(queue, kLead));
  WT_ASSIGN_OR_RETURN(last, queues_.Record(queue, DeviceQueues::Timing::kTimed));
  last_issue_ = Clock::now();
  return Ok();
}

Status QueuedRun::Compute(OpIndex index) {
  const Op& op = program_.ops[index];
  WT_ASSIGN_OR_RETURN(const Queue queue, QueueOf(op.stream));
  MakeRoomFor(queue);
  WT_RETURN_IF_ERROR(LetWait(queue, op.stream, index));
  WT_RETURN_IF_ERROR(LetWaitForMemory(queue, op.stream, op));
  context_.Resolve(op, state_.operands);
  if (mode_.keep_busy) WT_RETURN_IF_ERROR(KeepBusy(queue));
  Issued issued{index, Clock::now(), last_[queue]};
  if (const auto* load = std::get_if<LoadBatch>(&op.kind)) {
    WT_RETURN_IF_ERROR(Load(*load, queue));
  } else if (IsPlainCrossing(op.kind)) {
    const TensorRef& from = state_.operands.reads[0];
    WT_RETURN_IF_ERROR(queues_.Copy(queue, state_.operands.writes[0].data, from.data,
                                    SizeOf(std::get<Copy>(op.kind).from) * from.elements));
  } else {
    WT_RETURN_IF_ERROR(
        context_.device().Launch(op.kind, state_.operands.reads, state_.operands.writes, ContextOn(queue)));
  }
  if (queue == DeviceQueues::kCompute) ordinals_[index] = ++state_.issued;
  if (!mode_.spans && !state_.is_awaited[index]) return Ok();
  WT_ASSIGN_OR_RETURN(events_[index], queues_.Record(queue, timing()));
  if (!mode_.spans) return Ok();
  issued.done = last_[queue] = events_[index];
  issued.waits = op.dependencies;
  issued_.push_back(std::move(issued));
  return Ok();
}

// Operators of a graph are gathered, and issued with the last of them. Nothing else is issued meanwhile
// (plan/graphs.h), so this is as if each had been issued where it stands.
Status QueuedRun::ComputeInGraph(OpIndex index) {
  const Op& op = program_.ops[index];
  if (op.graph > 0) {
    graph_begun_ = Clock::now();
    WT_RETURN_IF_ERROR(LetWait(DeviceQueues::kCompute, op.stream, index));
    state_.graphs.Begin(program_, index, ContextOn(DeviceQueues::kCompute));
    left_of_graph_ = graph_size_ = op.graph;
  }
  context_.Resolve(op, state_.operands);
  state_.graphs.Add(op, state_.operands.reads, state_.operands.writes);
  ordinals_[index] = ++state_.issued;
  if (--left_of_graph_ > 0) return Ok();
  WT_ASSIGN_OR_RETURN(const bool is_graph, state_.graphs.Issue());
  last_issue_ = Clock::now();
  if (is_graph) times_.graphs.push_back({graph_size_, Between(graph_begun_, last_issue_)});
  if (!state_.is_awaited[index]) return Ok();
  WT_ASSIGN_OR_RETURN(events_[index], queues_.Record(DeviceQueues::kCompute, DeviceQueues::Timing::kNone));
  return Ok();
}

KernelContext QueuedRun::ContextOn(Queue queue) const {
  KernelContext context = context_.ContextOf(step_);
  context.queue = queue;
  return context;
}

// ---- what the host does: operators on its own memory ------------------------------------------------------

Status QueuedRun::Drain(Queue queue) {
  WT_ASSIGN_OR_RETURN(const Event now, queues_.Record(queue, DeviceQueues::Timing::kNone));
  return queues_.Await(now);
}

// Runs the operator once everything issued to its queue is done, and everything it depends on. Operands in
// the device's memory (the norm, the loss scale) are copied to the host's and back.
Status QueuedRun::ComputeOnHost(OpIndex index) {
  const Op& op = program_.ops[index];
  WT_ASSIGN_OR_RETURN(const Queue queue, QueueOf(op.stream));
  MakeRoomFor(queue);
  WT_RETURN_IF_ERROR(AwaitDependencies(index));
  WT_RETURN_IF_ERROR(LetWaitForMemory(queue, op.stream, op));
  WT_RETURN_IF_ERROR(Drain(queue));
  const Clock::time_point start = Clock::now();
  context_.Resolve(op, state_.operands);
  std::vector<TensorRef> reads = state_.operands.reads, writes = state_.operands.writes;
  WT_RETURN_IF_ERROR(Borrow(op, reads, writes, queue));
  WT_RETURN_IF_ERROR(Drain(queue));
  if (state_.host == nullptr) state_.host = MakeCpuDevice();
  WT_RETURN_IF_ERROR(state_.host->Launch(op.kind, reads, writes, ContextOn(queue)));
  for (size_t i = 0; i < op.writes.size(); ++i) {
    if (writes[i].data == state_.operands.writes[i].data) continue;
    WT_RETURN_IF_ERROR(queues_.Copy(queue, state_.operands.writes[i].data, writes[i].data,
                                    BytesOf(op.writes[i], writes[i])));
  }
  WT_RETURN_IF_ERROR(Drain(queue));
  ordinals_[index] = ++state_.issued;
  WT_ASSIGN_OR_RETURN(events_[index], queues_.Record(queue, timing()));
  if (!mode_.spans) return Ok();
  last_[queue] = events_[index];
  issued_.push_back(
      {.op = index,
       .by_host = Span{index, op.stream, Between(start_, start), Between(start_, Clock::now())}});
  return Ok();
}

// Replaces operands in the device's memory by copies in the host's.
Status QueuedRun::Borrow(const Op& op, std::vector<TensorRef>& reads, std::vector<TensorRef>& writes,
                         Queue queue) {
  const auto is_borrowed = [this](const Slice& slice) {
    return context_.role().buffers[slice.buffer].space != MemorySpace::kHost;
  };
  Bytes bytes;
  const auto add = [&](const std::vector<Slice>& slices, const std::vector<TensorRef>& refs) {
    for (size_t i = 0; i < slices.size(); ++i)
      if (is_borrowed(slices[i])) bytes += Aligned(BytesOf(slices[i], refs[i]));
  };
  add(op.reads, reads);
  add(op.writes, writes);
  if (bytes > state_.borrowed_bytes) {
    if (state_.borrowed != 0) queues_.host_memory().Release(state_.borrowed, state_.borrowed_bytes);
    WT_ASSIGN_OR_RETURN(state_.borrowed, queues_.host_memory().Reserve(bytes));
    state_.borrowed_bytes = bytes;
  }
  uint64_t at = state_.borrowed;
  const auto borrow = [&](const std::vector<Slice>& slices, std::vector<TensorRef>& refs) -> Status {
    for (size_t i = 0; i < slices.size(); ++i) {
      if (!is_borrowed(slices[i])) continue;
      void* const to = reinterpret_cast<void*>(at);
      const Bytes own = BytesOf(slices[i], refs[i]);
      at += static_cast<uint64_t>(Aligned(own).count());
      WT_RETURN_IF_ERROR(queues_.Copy(queue, to, refs[i].data, own));
      refs[i].data = to;
    }
    return Ok();
  };
  WT_RETURN_IF_ERROR(borrow(op.reads, reads));
  return borrow(op.writes, writes);
}

Bytes QueuedRun::BytesOf(const Slice& slice, const TensorRef& located) const {
  return SizeOf(context_.role().buffers[slice.buffer].dtype) * located.elements;
}

// ---- batches: made ahead of time in memory that the device reads by itself --------------------------------

Result<StagedBatch*> QueuedRun::Stage(const LoadBatch& op, int64_t step, std::span<const TensorRef> writes) {
  const bool held_out = noted_step_ == FlightRecorder::kEvaluation;
  Bytes bytes;
  for (const TensorRef& tensor : writes) bytes += Aligned(BytesOfBatch(tensor));
  StagedBatch* free = nullptr;
  for (StagedBatch& batch : state_.batches) {
    const bool is_it =
        batch.step == step && batch.held_out == held_out && batch.micro_batch == op.micro_batch;
    if (is_it && batch.bytes == bytes) return &batch;
    if (batch.bytes != bytes || batch.read == DeviceQueues::kNever) continue;
    WT_ASSIGN_OR_RETURN(const bool is_read, queues_.IsDone(batch.read));
    if (is_read && free == nullptr) free = &batch;
  }
  if (free == nullptr) {
    StagedBatch batch;
    batch.bytes = bytes;
    WT_ASSIGN_OR_RETURN(batch.address, queues_.host_memory().Reserve(bytes));
    free = &state_.batches.emplace_back(batch);
  }
  std::vector<TensorRef> staged;
  uint64_t at = free->address;
  for (const TensorRef& tensor : writes) {
    staged.push_back({reinterpret_cast<void*>(at), tensor.elements});
    at += static_cast<uint64_t>(Aligned(BytesOfBatch(tensor)).count());
  }
  context_.Load(op, step, noted_step_, staged);
  free->step = step;
  free->held_out = held_out;
  free->micro_batch = op.micro_batch;
  free->read = DeviceQueues::kNever;
  return free;
}

Status QueuedRun::Load(const LoadBatch& op, Queue queue) {
  WT_ASSIGN_OR_RETURN(StagedBatch * batch, Stage(op, step_, state_.operands.writes));
  uint64_t at = batch->address;
  for (const TensorRef& tensor : state_.operands.writes) {
    WT_RETURN_IF_ERROR(
        queues_.Copy(queue, tensor.data, reinterpret_cast<const void*>(at), BytesOfBatch(tensor)));
    at += static_cast<uint64_t>(Aligned(BytesOfBatch(tensor)).count());
  }
  WT_ASSIGN_OR_RETURN(batch->read, queues_.Record(queue, DeviceQueues::Timing::kNone));
  return Ok();
}

// Makes the next step's batches while the device works on this step. A replay is of the same step
// again, and needs nothing new.
Status QueuedRun::StageNextStep() {
  if (noted_step_ < 0 || mode_.communication != ExecutionMode::Communication::kAll) return Ok();
  for (const Op& op : program_.ops) {
    const auto* load = std::get_if<LoadBatch>(&op.kind);
    if (load == nullptr) continue;
    std::vector<TensorRef> sizes;
    for (const Slice& slice : op.writes) sizes.push_back({nullptr, slice.elements});
    WT_ASSIGN_OR_RETURN([[maybe_unused]] StagedBatch * staged, Stage(*load, step_ + 1, sizes));
  }
  return Ok();
}

// ---- the end ----------------------------------------------------------------------------------------------

Status QueuedRun::Finish() {
  std::vector<Event> ends;
  for (size_t stream = 0; stream < state_.queues.size(); ++stream) {
    const StreamKind kind = context_.role().streams[stream].kind;
    if (stream != kComputeStream && (kind != StreamKind::kCopy || state_.queues[stream] < 0)) continue;
    const Queue queue = stream == kComputeStream ? DeviceQueues::kCompute : state_.queues[stream];
    WT_ASSIGN_OR_RETURN(const Event end, queues_.Record(queue, DeviceQueues::Timing::kTimed));
    ends.push_back(end);
  }
  WT_RETURN_IF_ERROR(StageNextStep());
  WT_RETURN_IF_ERROR(WaitForAll());
  for (Event end : ends) {
    WT_RETURN_IF_ERROR(queues_.Await(end));
    WT_ASSIGN_OR_RETURN(const Duration time, TimeOf(end));
    timeline_.end = std::max(timeline_.end, time);
  }
  for (OpIndex index : submitted_) {
    WT_ASSIGN_OR_RETURN(const Duration end, EndOf(index));
    timeline_.end = std::max(timeline_.end, end);
  }
  if (led_ != DeviceQueues::kNever) {
    WT_ASSIGN_OR_RETURN(const Duration begun, TimeOf(led_));
    timeline_.end -= std::min(begun, timeline_.end);
  }
  WT_RETURN_IF_ERROR(context_.device().Fault());
  context_.pool().FinishProgram();
  if (mode_.spans) WT_RETURN_IF_ERROR(CollectSpans());
  context_.recorder().NoteStepDone(noted_step_);
  return Ok();
}

Status QueuedRun::WaitForAll() {
  for (OpIndex index : submitted_) {
    context_.recorder().NoteWaiting(noted_step_, index);
    if (auto status = context_.Await(program_.ops[index].stream, tickets_[index]); !status)
      return tl::unexpected(context_.Named(program_.ops[index], noted_step_, status.error()));
  }
  return Ok();
}

Result<Duration> QueuedRun::TimeOf(Event event) {
  WT_ASSIGN_OR_RETURN(const Clock::time_point time, queues_.TimeOf(event));
  return std::max(Between(start_, time), Duration());
}

Result<Duration> QueuedRun::EndOf(OpIndex index) {
  if (tickets_[index] != 0) {
    const auto times = context_.CommunicatorOf(program_.ops[index].stream).TimesOf(tickets_[index]);
    return std::max(Between(start_, times.end), Duration());
  }
  if (events_[index] == DeviceQueues::kNever) return Duration();
  return TimeOf(events_[index]);
}

Status QueuedRun::CollectSpans() {
  for (const Issued& issued : issued_) {
    if (issued.by_host) {
      timeline_.spans.push_back(*issued.by_host);
      continue;
    }
    WT_ASSIGN_OR_RETURN(const Duration end, TimeOf(issued.done));
    Duration begin = mode_.keep_busy ? Duration() : Between(start_, issued.time);
    if (issued.before != DeviceQueues::kNever) {
      WT_ASSIGN_OR_RETURN(const Duration before, TimeOf(issued.before));
      begin = std::max(begin, before);
    }
    for (OpIndex dependency : issued.waits) {
      if (mode_.communication == ExecutionMode::Communication::kOne) break;
      WT_ASSIGN_OR_RETURN(const Duration ready, EndOf(dependency));
      begin = std::max(begin, ready);
    }
    timeline_.spans.push_back(Span{issued.op, program_.ops[issued.op].stream, std::min(begin, end), end});
  }
  for (OpIndex index : submitted_) {
    const StreamId stream = program_.ops[index].stream;
    const auto times = context_.CommunicatorOf(stream).TimesOf(tickets_[index]);
    timeline_.spans.push_back(Span{index, stream, std::max(Between(start_, times.start), Duration()),
                                   std::max(Between(start_, times.end), Duration())});
  }
  return Ok();
}

}  // namespace windtunnel
