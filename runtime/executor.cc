#include "runtime/executor.h"

#include <time.h>

#include <iterator>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "runtime/imitation.h"
#include "runtime/queued_run.h"

namespace windtunnel {
namespace {

using Clock = Communicator::Clock;

Duration Since(Clock::time_point start, Clock::time_point time) { return DurationOf(time - start); }

Duration ThreadTime() { return TimeOn(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace

struct Executor::RunState {
  const Program& program;
  int64_t step;
  const ExecutionMode& mode;
  int64_t noted_step;  // the number under which the flight recorder knows the program
  Clock::time_point start{};
  Duration thread_start{};
  Duration now{};                   // the end of the last operator
  Duration uncounted{};             // time spent imitating
  std::vector<uint64_t> tickets{};  // by operator; 0: not submitted
  std::vector<OpIndex> submitted{};
  Timeline timeline{};

  Duration Time() const {
    return (mode.thread_time ? ThreadTime() - thread_start : Since(start, Clock::now())) - uncounted;
  }
};

Executor::Executor(const Plan& plan, int rank, Device& device, Communicators& communicators,
                   BatchLoader& loader, FlightRecorder& recorder)
    : role_(plan.RoleOf(rank)),
      // Transfers may be under way when memory runs out: nothing here waits for them.
      memory_(device.memory(),
              [this] {
                if (queued_ != nullptr) queued_->graphs.Flush();
              }),
      context_(plan, rank, device, memory_, communicators, loader, recorder),
      values_(plan, rank, device, context_.pool()) {
  if (device.queues() != nullptr) queued_ = std::make_unique<QueuedState>(device);
}

Executor::~Executor() = default;

Result<Timeline> Executor::Run(const Program& program, int64_t step, const ExecutionMode& mode) {
  const int64_t noted_step = &program == &role_.restore    ? FlightRecorder::kRestore
                             : &program == &role_.evaluate ? FlightRecorder::kEvaluation
                                                           : step;
  if (queued_ != nullptr) return QueuedRun(context_, *queued_, times_, program, step, noted_step, mode).Run();
  RunState run{program, step, mode, noted_step};
  run.tickets.assign(program.ops.size(), 0);
  run.timeline.rank = context_.rank();
  run.timeline.spans.reserve(program.ops.size());
  run.timeline.memory.reserve(program.memory.size());
  if (mode.thread_time) run.thread_start = ThreadTime();
  run.start = times_.started = Clock::now();
  const auto on_memory = [&](int32_t index) { return ExecuteMemory(run, index); };
  const auto on_op = [&](OpIndex index) -> Status {
    const Status status = Execute(run, index);
    if (!status) return tl::unexpected(context_.Named(program.ops[index], noted_step, status.error()));
    return Ok();
  };
  WT_RETURN_IF_ERROR(WalkProgram(program, on_memory, on_op));
  WT_RETURN_IF_ERROR(Finish(run));
  return std::move(run.timeline);
}

Status Executor::Execute(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  context_.recorder().Note(run.noted_step, index);
  const ExecutionMode& mode = run.mode;
  if (index == mode.submit_before) WT_RETURN_IF_ERROR(SubmitCommunication(run, mode.only));
  if (!IsCommunication(op.kind)) return Compute(run, index);
  if (mode.communication == ExecutionMode::Communication::kAll) return SubmitCommunication(run, index);
  ImitateCommunication(run, index);
  return Ok();
}

void Executor::ImitateCommunication(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  const Duration before = run.Time();
  context_.Resolve(op, operands_);
  const Axis& axis = context_.AxisOf(op.stream);
  Imitate(op.kind, context_.PositionOn(axis), axis.size(), context_.plan().scenario.model.vocab,
          operands_.reads, operands_.writes);
  run.uncounted += run.Time() - before;
}

Status Executor::ExecuteMemory(RunState& run, int32_t index) {
  const MemoryOp& op = run.program.memory[index];
  if (const Status status = context_.pool().Execute(run.program, op); !status)
    return tl::unexpected(context_.Named(op, run.noted_step, status.error()));
  run.timeline.memory.push_back(
      MemorySample{index, run.now, context_.pool().allocated(), context_.pool().reserved()});
  return Ok();
}

// The stream waits for what the operator depends on, not the host. That is collectives of other streams only,
// since computing operators have finished by now.
Status Executor::SubmitCommunication(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  std::vector<Prerequisite> after;
  for (OpIndex dependency : op.dependencies) {
    if (!IsPending(run, dependency)) continue;
    after.push_back({&context_.CommunicatorOf(run.program.ops[dependency].stream), run.tickets[dependency]});
  }
  if (index == run.mode.only) {
    operands_.reads.assign(run.mode.reads.begin(), run.mode.reads.end());
    operands_.writes.assign(run.mode.writes.begin(), run.mode.writes.end());
  } else {
    context_.Resolve(op, operands_);
  }
  run.tickets[index] =
      context_.CommunicatorOf(op.stream).Submit(op.kind, operands_.reads, operands_.writes, op.name, after);
  context_.recorder().NoteSubmitted(run.noted_step, index, run.tickets[index]);
  run.submitted.push_back(index);
  return Ok();
}

// Computing operators have finished when they return, so only communication is ever waited for.
bool Executor::IsPending(const RunState& run, OpIndex dependency) const {
  return run.tickets[dependency] != 0 && run.mode.communication != ExecutionMode::Communication::kOne;
}

Status Executor::WaitFor(RunState& run, OpIndex communication) {
  if (!IsPending(run, communication)) return Ok();
  context_.recorder().NoteWaiting(run.noted_step, communication);
  return context_.Await(run.program.ops[communication].stream, run.tickets[communication]);
}

Status Executor::Compute(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  for (OpIndex dependency : op.dependencies) WT_RETURN_IF_ERROR(WaitFor(run, dependency));
  if (std::holds_alternative<HostWait>(op.kind)) {
    context_.pool().NoteHostWait(run.program, index);
    return Ok();
  }
  context_.Resolve(op, operands_);
  const Duration start = run.Time();
  if (const auto* load = std::get_if<LoadBatch>(&op.kind)) {
    context_.Load(*load, run.step, run.noted_step, operands_.writes);
  } else {
    WT_RETURN_IF_ERROR(
        context_.device().Launch(op.kind, operands_.reads, operands_.writes, context_.ContextOf(run.step)));
  }
  run.now = run.Time();
  run.timeline.spans.push_back(Span{index, op.stream, start, run.now});
  return Ok();
}

Status Executor::Finish(RunState& run) {
  for (OpIndex index : run.submitted) {
    context_.recorder().NoteWaiting(run.noted_step, index);
    const Op& op = run.program.ops[index];
    WT_RETURN_IF_ERROR(context_.Await(op.stream, run.tickets[index]));
  }
  run.timeline.end = run.Time();
  context_.pool().FinishProgram();
  for (OpIndex index : run.submitted) {
    const StreamId stream = run.program.ops[index].stream;
    const auto times = context_.CommunicatorOf(stream).TimesOf(run.tickets[index]);
    run.timeline.spans.push_back(
        Span{index, stream, Since(run.start, times.start), Since(run.start, times.end)});
  }
  context_.recorder().NoteStepDone(run.noted_step);
  return Ok();
}

Result<std::vector<double>> Executor::Losses() const {
  std::vector<double> means;
  for (const Slice& losses : role_.losses) {
    WT_ASSIGN_OR_RETURN(const std::span<const float> values, Values(losses));
    means.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) means[i] += values[i];
  }
  for (double& mean : means) mean /= static_cast<double>(role_.losses.size());
  return means;
}

Result<double> Executor::GradientNormValue() const {
  if (role_.gradient_norm < 0) return 0.0;
  WT_ASSIGN_OR_RETURN(const std::span<const float> norm, Values(Slice{role_.gradient_norm, 0, 1}));
  return norm[0];
}

Result<std::optional<LossScaleState>> Executor::LossScale() const {
  if (!role_.loss_scaling) return std::nullopt;
  WT_ASSIGN_OR_RETURN(const std::span<const float> numbers, Values(role_.loss_scaling->numbers));
  return LossScaleState{numbers[0], static_cast<int64_t>(numbers[1]), static_cast<int64_t>(numbers[2])};
}

Status Executor::SetLossScale(const LossScaleState& state) {
  if (!role_.loss_scaling) {
    context_.SetSkippedBefore(state.skipped_steps);
    return Ok();
  }
  const double scale = state.scale > 0 ? state.scale : role_.loss_scaling->first;
  const float numbers[] = {static_cast<float>(scale), static_cast<float>(state.growth_tracker),
                           static_cast<float>(state.skipped_steps)};
  static_assert(std::size(numbers) == kLossScaleNumbers);
  return SetValues(role_.loss_scaling->numbers, numbers);
}

Result<int64_t> Executor::SkippedSteps() const {
  WT_ASSIGN_OR_RETURN(const std::optional<LossScaleState> state, LossScale());
  return state ? state->skipped_steps : context_.skipped_before();
}

}  // namespace windtunnel
