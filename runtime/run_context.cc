#include "runtime/run_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/learning_rate.h"
#include "runtime/run_length.h"

namespace windtunnel {

RunContext::RunContext(const Plan& plan, int rank, Device& device, SegmentSource& memory,
                       Communicators& communicators, BatchLoader& loader, FlightRecorder& recorder)
    : plan_(plan),
      role_(plan.RoleOf(rank)),
      rank_(rank),
      device_(device),
      communicators_(communicators),
      loader_(loader),
      recorder_(recorder),
      pool_(role_.buffers, MemorySetup{.device = &memory,
                                       .host = device.queues() != nullptr ? &device.queues()->host_memory()
                                                                          : &device.memory(),
                                       .allocator = plan.scenario.allocator,
                                       .can_wait = false}) {
  for (const Buffer& buffer : role_.buffers) element_size_.push_back(SizeOf(buffer.dtype));
  KeepTimesOfPrograms();
}

// Keeps the times of a whole program, since they are asked for when it has ended.
void RunContext::KeepTimesOfPrograms() {
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

Status RunContext::Await(StreamId stream, uint64_t ticket) {
  Status status = CommunicatorOf(stream).Wait(ticket);
  if (status) return status;
  const Group& group = AxisOf(stream).GroupOf(rank_);
  constexpr size_t kMost = 16;  // ranks that a line names
  if (group.ranks.size() == static_cast<size_t>(plan_.world_size) || group.ranks.size() > kMost)
    return status;
  status.error().message += fmt::format(" (ranks of group '{}', from 0 on: {} of the job)", group.name,
                                        fmt::join(group.ranks, ", "));
  return status;
}

void RunContext::Resolve(const Op& op, Operands& operands) const {
  Resolve(op.reads, operands.reads);
  Resolve(op.writes, operands.writes);
}

void RunContext::Resolve(const std::vector<Slice>& slices, std::vector<TensorRef>& refs) const {
  refs.clear();
  for (const Slice& slice : slices) {
    const auto [first, elements] = Locate(slice, plan_.axes[slice.axis].position_of_rank[rank_]);
    const uint64_t address = pool_.address(slice.buffer) + first * element_size_[slice.buffer].count();
    refs.push_back(TensorRef{reinterpret_cast<void*>(address), elements});
  }
}

void RunContext::Load(const LoadBatch& op, int64_t step, int64_t noted_step,
                      std::span<const TensorRef> writes) {
  const int context_rank = plan_.mesh.PlaceOf(rank_).context;
  if (noted_step == FlightRecorder::kEvaluation) loader_.LoadHeldOut(op, step, context_rank, writes);
  else loader_.Load(op, step, context_rank, writes);
}

KernelContext RunContext::ContextOf(int64_t step) const {
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

Error RunContext::Named(const Op& op, int64_t noted_step, const Error& error) const {
  return Error{error.kind, fmt::format("rank {}, {}, operator '{}' ({}): {}", rank_, DescribeStep(noted_step),
                                       op.name, OperatorName(op.kind), error.message)};
}

Error RunContext::Named(const MemoryOp& op, int64_t noted_step, const Error& error) const {
  return Error{error.kind, fmt::format("rank {}, {}, operator '{}' ({}): {}", rank_, DescribeStep(noted_step),
                                       role_.buffers[op.buffer].name, Name(op.kind), error.message)};
}

}  // namespace windtunnel
