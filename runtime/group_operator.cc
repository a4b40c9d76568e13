#include "runtime/group_operator.h"

#include <algorithm>

#include "runtime/reduce.h"

namespace windtunnel {

std::string_view Name(GroupOperation operation) {
  switch (operation) {
    case GroupOperation::kAllReduce:
      return "all_reduce";
    case GroupOperation::kAllGather:
      return "all_gather";
    case GroupOperation::kReduceScatter:
      return "reduce_scatter";
    case GroupOperation::kBroadcast:
      return "broadcast";
    case GroupOperation::kReduce:
      return "reduce";
    case GroupOperation::kGather:
      return "gather";
    case GroupOperation::kScatter:
      return "scatter";
    case GroupOperation::kAllToAll:
      return "all_to_all";
    case GroupOperation::kShift:
      return "shift";
    case GroupOperation::kBarrier:
      return "barrier";
    case GroupOperation::kSend:
      return "send";
    case GroupOperation::kReceive:
      return "receive";
  }
  return "?";
}

namespace {

std::string RootText(const Fingerprint& fingerprint) {
  switch (fingerprint.operation) {
    case GroupOperation::kBroadcast:
    case GroupOperation::kScatter:
      return fmt::format(" from root {}", fingerprint.root & ~Fingerprint::kOfMaximum);
    case GroupOperation::kReduce:
    case GroupOperation::kGather:
      return fmt::format(" to root {}", fingerprint.root & ~Fingerprint::kOfMaximum);
    default:
      return "";
  }
}

}  // namespace

std::string Describe(const Fingerprint& fingerprint) {
  std::string_view what =
      fingerprint.operation == GroupOperation::kSend ? "message" : Name(fingerprint.operation);
  if (fingerprint.operation == GroupOperation::kBarrier)
    return fmt::format("number {}, {}", fingerprint.number, what);
  return fmt::format("number {}, {} of {} x {}{}", fingerprint.number, what, fingerprint.elements,
                     Name(fingerprint.dtype), RootText(fingerprint));
}

Part PartOf(int64_t elements, int parts, int index) {
  const int64_t base = elements / parts, extra = elements % parts;
  return {index * base + std::min<int64_t>(index, extra), base + (index < extra ? 1 : 0)};
}

uint32_t OperatorNumbers::Next(const GroupOperator& op) {
  if (op.operation == GroupOperation::kSend) return ++sent_[op.peer];
  if (op.operation == GroupOperation::kReceive) return ++received_[op.peer];
  return ++collectives_;
}

namespace {

GroupOperation OperationOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return GroupOperation::kAllReduce;
    case CollectiveKind::kAllGather:
      return GroupOperation::kAllGather;
    case CollectiveKind::kReduceScatter:
      return GroupOperation::kReduceScatter;
    case CollectiveKind::kBroadcast:
      return GroupOperation::kBroadcast;
    case CollectiveKind::kReduce:
      return GroupOperation::kReduce;
    case CollectiveKind::kGather:
      return GroupOperation::kGather;
    case CollectiveKind::kScatter:
      return GroupOperation::kScatter;
    case CollectiveKind::kAllToAll:
      return GroupOperation::kAllToAll;
    case CollectiveKind::kShift:
      return GroupOperation::kShift;
    case CollectiveKind::kTokenExchange:  // refused in LocateCollective
    case CollectiveKind::kBarrier:
      return GroupOperation::kBarrier;
  }
  return GroupOperation::kBarrier;
}

// Operand `index` of a list, which must have at least `elements`.
Result<void*> Operand(std::span<const TensorRef> list, size_t index, const char* what, int64_t elements) {
  if (list.size() <= index) return Failed("operand {} is missing", what);
  if (list[index].elements < elements)
    return Failed("operand {} has {} elements, {} are needed", what, list[index].elements, elements);
  return list[index].data;
}

Status LocateScratch(const Collective& collective, std::span<const TensorRef> writes, int size,
                     GroupOperator& op) {
  const int64_t needed = CollectiveScratchElements(collective, size);
  if (needed == 0) return Ok();
  WT_ASSIGN_OR_RETURN(op.scratch, Operand(writes, 1, "scratch", needed));
  op.scratch_elements = needed;
  return Ok();
}

Status LocateCollective(const Collective& collective, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, int rank, int size, GroupOperator& op) {
  const int64_t elements = collective.elements, part = PartOf(elements, size, rank).elements;
  const bool is_root = rank == collective.root;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce: {
      WT_RETURN_IF_ERROR(CheckReducible(collective.dtype));
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "x", elements));
      return LocateScratch(collective, writes, size, op);
    }
    case CollectiveKind::kReduceScatter: {
      WT_RETURN_IF_ERROR(CheckReducible(collective.dtype));
      WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "whole", elements));
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "shard", part));
      return LocateScratch(collective, writes, size, op);
    }
    case CollectiveKind::kAllGather: {
      WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "shard", part));
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "whole", elements));
      return Ok();
    }
    case CollectiveKind::kReduce: {
      WT_RETURN_IF_ERROR(CheckReducible(collective.dtype));
      WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "x", elements));
      if (is_root) {
        WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "sum", elements));
      }
      return Ok();
    }
    case CollectiveKind::kGather: {
      WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "shard", part));
      if (is_root) {
        WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "whole", elements));
      }
      return Ok();
    }
    case CollectiveKind::kScatter: {
      if (is_root) {
        WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "whole", elements));
      }
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "shard", part));
      return Ok();
    }
    case CollectiveKind::kAllToAll: {
      if (elements % size != 0) return Failed("{} elements do not divide among {} ranks", elements, size);
      WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "in", elements));
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "out", elements));
      return Ok();
    }
    case CollectiveKind::kShift: {
      if (op.distance < 1 || op.distance >= std::max(size, 2))
        return Failed("a shift goes {} ranks ahead in a group of {}", op.distance, size);
      WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "x", elements));
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "y", elements));
      return Ok();
    }
    case CollectiveKind::kBroadcast: {
      WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "x", elements));
      return Ok();
    }
    case CollectiveKind::kTokenExchange:
      return Unsupported("an exchange of tokens without a capacity is predicted only");
    case CollectiveKind::kBarrier:
      return Ok();
  }
  return Ok();
}

// Fills everything but operands and name.
Status Flatten(const OpKind& kind, int rank, GroupOperator& op) {
  uint16_t root = 0;
  if (const auto* collective = std::get_if<Collective>(&kind)) {
    op.operation = OperationOf(collective->kind);
    op.dtype = collective->dtype;
    op.elements = collective->elements;
    op.peer = HasRoot(collective->kind) ? collective->root : 0;
    op.reduction = collective->reduction;
    op.distance = collective->distance;
    root = static_cast<uint16_t>(collective->kind == CollectiveKind::kShift ? op.distance : op.peer);
    if (op.reduction == Reduction::kMax) root |= Fingerprint::kOfMaximum;
  } else if (const auto* send = std::get_if<Send>(&kind)) {
    op.operation = GroupOperation::kSend;
    op.dtype = send->dtype;
    op.elements = send->elements;
    op.peer = send->peer;
    root = static_cast<uint16_t>(rank);
  } else if (const auto* receive = std::get_if<Receive>(&kind)) {
    op.operation = GroupOperation::kReceive;
    op.dtype = receive->dtype;
    op.elements = receive->elements;
    op.peer = receive->peer;
    root = static_cast<uint16_t>(op.peer);
  } else {
    return Unsupported("a communicator carries collectives, send and receive, not {}", OperatorName(kind));
  }
  if (IsPacked(op.dtype)) {  // communicators know no such elements, which are only moved
    op.elements *= SizeOf(op.dtype).count();
    op.dtype = DType::kUInt8;
  }
  GroupOperation agreed = op.operation == GroupOperation::kReceive ? GroupOperation::kSend : op.operation;
  op.fingerprint = {0, agreed, op.dtype, root, op.elements};
  return Ok();
}

}  // namespace

Status DescribeOperator(const OpKind& kind, std::span<const TensorRef> reads,
                        std::span<const TensorRef> writes, std::string_view name, int rank, int size,
                        GroupOperator& op) {
  op.name.assign(name);  // keeps its capacity: operators are reused
  op.in = nullptr;
  op.out = op.scratch = nullptr;
  op.scratch_elements = 0;
  WT_RETURN_IF_ERROR(Flatten(kind, rank, op));
  if (op.peer < 0 || op.peer >= size) return Failed("there is no rank {} in a group of {}", op.peer, size);
  if (const auto* collective = std::get_if<Collective>(&kind))
    return LocateCollective(*collective, reads, writes, rank, size, op);
  if (op.peer == rank) return Failed("a rank cannot send to itself");
  if (op.operation == GroupOperation::kSend) {
    WT_ASSIGN_OR_RETURN(op.in, Operand(reads, 0, "x", op.elements));
  } else {
    WT_ASSIGN_OR_RETURN(op.out, Operand(writes, 0, "x", op.elements));
  }
  return Ok();
}

}  // namespace windtunnel
