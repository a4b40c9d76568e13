#include "runtime/executor.h"

#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>

#include "base/clock.h"
#include "runtime/imitation.h"
#include "runtime/learning_rate.h"
#include "runtime/queued_run.h"
#include "runtime/run_length.h"

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
    : plan_(plan),
      role_(plan.RoleOf(rank)),
      rank_(rank),
      device_(device),
      communicators_(communicators),
      loader_(loader),
      recorder_(recorder),
      // Transfers may be under way when memory runs out: nothing here waits for them.
      memory_(device.memory(),
              [this] {
                if (queued_ != nullptr) queued_->graphs.Flush();
              }),
      pool_(role_.buffers, MemorySetup{.device = &memory_,
                                       .host = device.queues() != nullptr ? &device.queues()->host_memory()
                                                                          : &device.memory(),
                                       .allocator = plan.scenario.allocator,
                                       .can_wait = false}),
      values_(plan, rank, device, pool_) {
  for (const Buffer& buffer : role_.buffers) element_size_.push_back(SizeOf(buffer.dtype));
  KeepTimesOfPrograms();
  if (device.queues() != nullptr) queued_ = std::make_unique<QueuedState>(device);
}

Executor::~Executor() = default;

// Keeps the times of a whole program, since they are asked for when it has ended.
void Executor::KeepTimesOfPrograms() {
  std::vector<const Program*> programs = {&role_.initialize, &role_.steady, &role_.restore, &role_.evaluate};
  for (const Program& program : role_.startup) programs.push_back(&program);
  std::vector<uint64_t> most(communicators_.size(), 0);  // by axis
  for (const Program* program : programs) {
    std::vector<uint64_t> submitted(communicators_.size(), 0);
    for (const Op& op : program->ops) {
      if (!IsCommunication(op.kind)) continue;
      const AxisId axis = role_.streams[op.stream].axis;
      most[axis] = std::max(most[axis], ++submitted[axis]);
    }
  }
  for (size_t axis = 0; axis < most.size(); ++axis)
    if (communicators_[axis] != nullptr) communicators_[axis]->KeepTimes(most[axis]);
}

Result<Timeline> Executor::Run(const Program& program, int64_t step, const ExecutionMode& mode) {
  const int64_t noted_step = &program == &role_.restore    ? FlightRecorder::kRestore
                             : &program == &role_.evaluate ? FlightRecorder::kEvaluation
                                                           : step;
  if (device_.queues() != nullptr) return QueuedRun(*this, program, step, noted_step, mode).Run();
  RunState run{program, step, mode, noted_step};
  run.tickets.assign(program.ops.size(), 0);
  run.timeline.rank = rank_;
  run.timeline.spans.reserve(program.ops.size());
  run.timeline.memory.reserve(program.memory.size());
  if (mode.thread_time) run.thread_start = ThreadTime();
  run.start = started_ = Clock::now();
  const auto on_memory = [&](int32_t index) { return ExecuteMemory(run, index); };
  const auto on_op = [&](OpIndex index) -> Status {
    const Status status = Execute(run, index);
    if (status) return Ok();
    const Op& op = program.ops[index];
    return tl::unexpected(
        Error{status.error().kind,
              fmt::format("rank {}, {}, operator '{}' ({}): {}", rank_, DescribeStep(noted_step), op.name,
                          OperatorName(op.kind), status.error().message)});
  };
  WT_RETURN_IF_ERROR(WalkProgram(program, on_memory, on_op));
  WT_RETURN_IF_ERROR(Finish(run));
  return std::move(run.timeline);
}

Error Executor::NameMemory(const MemoryOp& op, int64_t noted_step, const Error& error) const {
  return Error{error.kind, fmt::format("rank {}, {}, operator '{}' ({}): {}", rank_, DescribeStep(noted_step),
                                       role_.buffers[op.buffer].name, Name(op.kind), error.message)};
}

void Executor::ForgetBatches() {
  if (queued_ == nullptr) return;
  for (StagedBatch& batch : queued_->batches) batch.step = -1;
}

Status Executor::Execute(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  recorder_.Note(run.noted_step, index);
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
  Resolve(op.reads, reads_);
  Resolve(op.writes, writes_);
  const Axis& axis = plan_.axes[role_.streams[op.stream].axis];
  Imitate(op.kind, axis.position_of_rank[rank_], axis.size(), plan_.scenario.model.vocab, reads_, writes_);
  run.uncounted += run.Time() - before;
}

Status Executor::ExecuteMemory(RunState& run, int32_t index) {
  const MemoryOp& op = run.program.memory[index];
  if (const Status status = pool_.Execute(run.program, op); !status)
    return tl::unexpected(NameMemory(op, run.noted_step, status.error()));
  run.timeline.memory.push_back(MemorySample{index, run.now, pool_.allocated(), pool_.reserved()});
  return Ok();
}

void Executor::Resolve(const std::vector<Slice>& slices, std::vector<TensorRef>& refs) const {
  refs.clear();
  for (const Slice& slice : slices) {
    const auto [first, elements] = Locate(slice, PositionOn(slice.axis));
    const uint64_t address = pool_.address(slice.buffer) + first * element_size_[slice.buffer].count();
    refs.push_back(TensorRef{reinterpret_cast<void*>(address), elements});
  }
}

// The stream waits for what the operator depends on, not the host. That is collectives of other streams only,
// since computing operators have finished by now.
Status Executor::SubmitCommunication(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  std::vector<Prerequisite> after;
  for (OpIndex dependency : op.dependencies) {
    if (!IsPending(run, dependency)) continue;
    after.push_back({&CommunicatorOf(run.program.ops[dependency].stream), run.tickets[dependency]});
  }
  if (index == run.mode.only) {
    reads_.assign(run.mode.reads.begin(), run.mode.reads.end());
    writes_.assign(run.mode.writes.begin(), run.mode.writes.end());
  } else {
    Resolve(op.reads, reads_);
    Resolve(op.writes, writes_);
  }
  run.tickets[index] = CommunicatorOf(op.stream).Submit(op.kind, reads_, writes_, op.name, after);
  recorder_.NoteSubmitted(run.noted_step, index, run.tickets[index]);
  run.submitted.push_back(index);
  return Ok();
}

// Computing operators have finished when they return, so only communication is ever waited for.
bool Executor::IsPending(const RunState& run, OpIndex dependency) const {
  return run.tickets[dependency] != 0 && run.mode.communication != ExecutionMode::Communication::kOne;
}

Status Executor::WaitFor(RunState& run, OpIndex communication) {
  if (!IsPending(run, communication)) return Ok();
  recorder_.NoteWaiting(run.noted_step, communication);
  return Await(run.program.ops[communication].stream, run.tickets[communication]);
}

Status Executor::Await(StreamId stream, uint64_t ticket) {
  Status status = CommunicatorOf(stream).Wait(ticket);
  if (status) return status;
  const Group& group = plan_.axes[role_.streams[stream].axis].GroupOf(rank_);
  constexpr size_t kMost = 16;  // ranks that a line names
  if (group.ranks.size() == static_cast<size_t>(plan_.world_size) || group.ranks.size() > kMost)
    return status;
  status.error().message += fmt::format(" (ranks of group '{}', from 0 on: {} of the job)", group.name,
                                        fmt::join(group.ranks, ", "));
  return status;
}

Status Executor::Compute(RunState& run, OpIndex index) {
  const Op& op = run.program.ops[index];
  for (OpIndex dependency : op.dependencies) WT_RETURN_IF_ERROR(WaitFor(run, dependency));
  if (std::holds_alternative<HostWait>(op.kind)) {
    pool_.NoteHostWait(run.program, index);
    return Ok();
  }
  Resolve(op.reads, reads_);
  Resolve(op.writes, writes_);
  const Duration start = run.Time();
  if (const auto* load = std::get_if<LoadBatch>(&op.kind)) {
    const int context_rank = plan_.mesh.PlaceOf(rank_).context;
    if (run.noted_step == FlightRecorder::kEvaluation)
      loader_.LoadHeldOut(*load, run.step, context_rank, writes_);
    else loader_.Load(*load, run.step, context_rank, writes_);
  } else {
    WT_RETURN_IF_ERROR(device_.Launch(op.kind, reads_, writes_, ContextOf(run.step)));
  }
  run.now = run.Time();
  run.timeline.spans.push_back(Span{index, op.stream, start, run.now});
  return Ok();
}

KernelContext Executor::ContextOf(int64_t step) const {
  const MeshPlace place = plan_.mesh.PlaceOf(rank_);
  return {
      .step = step - skipped_before_,
      .seed = plan_.scenario.run.seed,
      .tensor = {place.tensor, plan_.mesh.tensor()},
      .context = {place.context, plan_.mesh.context()},
      .expert = {plan_.ExpertRankOf(rank_)},
      .replica = {place.data, plan_.mesh.data(), plan_.scenario.parallel.data.kind == DataParallelKind::kDp},
      .lr_factor = LearningRateFactor(plan_.scenario.lr_scheduler, LengthOf(plan_).steps, step),
      .batch_step = step};
}

Status Executor::Finish(RunState& run) {
  for (OpIndex index : run.submitted) {
    recorder_.NoteWaiting(run.noted_step, index);
    const Op& op = run.program.ops[index];
    WT_RETURN_IF_ERROR(Await(op.stream, run.tickets[index]));
  }
  run.timeline.end = run.Time();
  pool_.FinishProgram();
  for (OpIndex index : run.submitted) {
    const StreamId stream = run.program.ops[index].stream;
    const auto times = CommunicatorOf(stream).TimesOf(run.tickets[index]);
    run.timeline.spans.push_back(
        Span{index, stream, Since(run.start, times.start), Since(run.start, times.end)});
  }
  recorder_.NoteStepDone(run.noted_step);
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
    skipped_before_ = state.skipped_steps;
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
  return state ? state->skipped_steps : skipped_before_;
}

}  // namespace windtunnel
