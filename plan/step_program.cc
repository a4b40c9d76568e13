#include "plan/step_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace windtunnel {

Op::Op() = default;
Op::Op(OpKind kind, StreamId stream, std::vector<Slice> reads, std::vector<Slice> writes,
       std::vector<OpIndex> dependencies, std::string name)
    : kind(std::move(kind)),
      reads(std::move(reads)),
      writes(std::move(writes)),
      dependencies(std::move(dependencies)),
      name(std::move(name)),
      stream(stream) {}
Op::Op(const Op&) = default;
Op::Op(Op&&) noexcept = default;
Op& Op::operator=(const Op&) = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

namespace {

std::string CheckSlice(const Slice& slice, const std::vector<Buffer>& buffers, const std::vector<Axis>& axes,
                       const std::vector<bool>& alive) {
  if (slice.buffer < 0 || slice.buffer >= static_cast<BufferId>(buffers.size())) {
    return fmt::format("names buffer {} of {}", slice.buffer, buffers.size());
  }
  const Buffer& buffer = buffers[slice.buffer];
  if (!alive[slice.buffer]) return fmt::format("uses '{}', which is not allocated", buffer.name);
  const Bytes element = SizeOf(buffer.dtype);
  const auto fits = [&](int64_t first, int64_t elements) {
    return first >= 0 && elements >= 0 && element * (first + elements) <= buffer.bytes;
  };
  const bool is_same_everywhere = slice.per_rank == 0 && slice.shard == 0;
  if (is_same_everywhere && fits(slice.offset, slice.elements)) return {};
  // If the ranks' slices are evenly spaced, the first and the last suffice; a cycle only permutes them.
  const int last = is_same_everywhere ? 0 : axes[slice.axis].size() - 1;
  const int step = slice.shard == 0 ? std::max(last, 1) : 1;
  Slice straight = slice;
  straight.turn = straight.cycle = 0;
  for (int rank = 0; rank <= last; rank += step) {
    const auto [first, elements] = Locate(straight, rank);
    if (!fits(first, elements)) {
      return fmt::format("uses elements {}+{} of '{}', which has {}", first, elements, buffer.name,
                         buffer.bytes.count() / element.count());
    }
  }
  return {};
}

std::string CheckMemoryOp(const MemoryOp& op, const std::vector<Buffer>& buffers, std::vector<bool>& alive) {
  if (op.buffer < 0 || op.buffer >= static_cast<BufferId>(buffers.size())) return "names no buffer";
  if (alive[op.buffer] == op.allocates()) {
    return fmt::format("{} '{}', which is {}", op.allocates() ? "allocates" : "frees",
                       buffers[op.buffer].name, alive[op.buffer] ? "allocated" : "free");
  }
  alive[op.buffer] = op.allocates();
  return {};
}

StreamKind StreamKindOf(const OpKind& kind, StreamKind actual) {
  if (IsCommunication(kind)) return StreamKind::kCommunication;
  if (std::holds_alternative<HostWait>(kind)) return StreamKind::kHost;
  const bool may_copy = std::holds_alternative<Copy>(kind) || std::holds_alternative<Scale>(kind) ||
                        std::holds_alternative<Fp8Cast>(kind) || std::holds_alternative<PackShards>(kind) ||
                        std::holds_alternative<UnpackShards>(kind);
  if (may_copy && actual == StreamKind::kCopy) return StreamKind::kCopy;
  return StreamKind::kCompute;
}

std::string CheckDependencies(const Program& program, const std::vector<Stream>& streams, OpIndex index) {
  const Op& op = program.ops[index];
  if (op.stream < 0 || op.stream >= static_cast<StreamId>(streams.size())) return "is on no stream";
  if (StreamKindOf(op.kind, streams[op.stream].kind) != streams[op.stream].kind) {
    return fmt::format("is on stream '{}', which is not for it", streams[op.stream].name);
  }
  OpIndex previous = -1;
  for (OpIndex dependency : op.dependencies) {
    if (dependency < 0 || dependency >= index)
      return fmt::format("depends on operator {}, not an earlier one", dependency);
    if (dependency <= previous) return "has dependencies out of order";
    if (program.ops[dependency].stream == op.stream) return "depends on an operator of its own stream";
    previous = dependency;
  }
  return {};
}

std::string CheckOp(const Program& program, OpIndex index, const std::vector<Buffer>& buffers,
                    const std::vector<Stream>& streams, const std::vector<Axis>& axes,
                    const std::vector<bool>& alive) {
  if (auto error = CheckDependencies(program, streams, index); !error.empty()) return error;
  const Op& op = program.ops[index];
  for (const auto* slices : {&op.reads, &op.writes}) {
    for (const Slice& slice : *slices) {
      if (auto error = CheckSlice(slice, buffers, axes, alive); !error.empty()) return error;
    }
  }
  return {};
}

}  // namespace

std::string_view Name(Category category) {
  switch (category) {
    case Category::kParameters:
      return "parameters";
    case Category::kGradients:
      return "gradients";
    case Category::kOptimizer:
      return "optimizer";
    case Category::kActivations:
      return "activations";
    case Category::kCommunication:
      return "communication";
    case Category::kWorkspace:
      return "workspace";
  }
  return "?";
}

std::string_view Name(MemorySpace space) { return space == MemorySpace::kDevice ? "device" : "host"; }

std::string_view Name(MemoryOp::Kind kind) { return kind == MemoryOp::Kind::kAlloc ? "alloc" : "free"; }

std::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kInitialize:
      return "initialize";
    case Phase::kForward:
      return "forward";
    case Phase::kLoss:
      return "loss";
    case Phase::kRecompute:
      return "recompute";
    case Phase::kBackward:
      return "backward";
    case Phase::kBackwardWeights:
      return "backward_weights";
    case Phase::kGradientSync:
      return "gradient_sync";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kEnd:
      return "end";
  }
  return "?";
}

Located Locate(const Slice& slice, int position) {
  const int part = slice.cycle > 0 ? (position + slice.turn) % slice.cycle : position;
  const int64_t place = slice.offset + part * slice.per_rank;
  if (slice.shard == 0) return {place, slice.elements};
  const int64_t own = position * slice.shard;
  const int64_t begin = std::max(slice.start, own);
  const int64_t end = std::min(slice.start + slice.elements, own + slice.shard);
  if (begin >= end) return {};
  return {place + begin - own, end - begin};
}

Axis MakeAxis(std::string name, int world_size, int size, int stride) {
  WT_CHECK(size > 0 && stride > 0 && world_size % (size * stride) == 0);
  Axis axis{std::move(name), {}, std::vector<int32_t>(world_size), std::vector<int32_t>(world_size)};
  const int groups = world_size / size;
  for (int g = 0; g < groups; ++g) {
    axis.groups.push_back(Group{groups == 1 ? axis.name : fmt::format("{} {}", axis.name, g), {}});
  }
  for (int rank = 0; rank < world_size; ++rank) {
    axis.group_of_rank[rank] = rank / (size * stride) * stride + rank % stride;
    axis.position_of_rank[rank] = rank / stride % size;
    axis.groups[axis.group_of_rank[rank]].ranks.push_back(rank);
  }
  return axis;
}

std::string FindProgramError(const Program& program, const std::vector<Buffer>& buffers,
                             const std::vector<Stream>& streams, const std::vector<Axis>& axes,
                             std::vector<bool>& alive) {
  alive.resize(buffers.size(), false);
  OpIndex after = 0;
  for (size_t i = 0; i < program.memory.size(); ++i) {
    const MemoryOp& op = program.memory[i];
    if (op.before < after || op.before > static_cast<OpIndex>(program.ops.size()))
      return fmt::format("{}: {} {} is out of order", program.name, Name(op.kind), i);
    after = op.before;
  }
  const auto check_memory = [&](int32_t index) -> Status {
    const MemoryOp& op = program.memory[index];
    const std::string error = CheckMemoryOp(op, buffers, alive);
    if (error.empty()) return Ok();
    return Failed("{}: {} {} before operator {} {}", program.name, Name(op.kind), index, op.before, error);
  };
  const auto check_op = [&](OpIndex index) -> Status {
    const Op& op = program.ops[index];
    const std::string error = CheckOp(program, index, buffers, streams, axes, alive);
    if (error.empty()) return Ok();
    return Failed("{}: operator {} '{}' ({}) {}", program.name, index, op.name, OperatorName(op.kind), error);
  };
  const Status status = WalkProgram(program, check_memory, check_op);
  return status ? std::string() : status.error().message;
}

std::string CostKey(const Op& op) { return op.on_host ? CostKey(op.kind) + " on_host" : CostKey(op.kind); }

std::string DispatchKey(const OpKind& kind) { return fmt::format("dispatch {}", OperatorName(kind)); }

std::string GraphLaunchKey(int32_t operators) { return fmt::format("graph_launch operators={}", operators); }

}  // namespace windtunnel
