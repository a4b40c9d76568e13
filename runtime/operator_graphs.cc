#include "runtime/operator_graphs.h"

#include <algorithm>

#include "plan/step_program.h"

namespace windtunnel {

void OperatorGraphs::Begin(const Program& program, int32_t first, const KernelContext& context) {
  key_ = {&program, first};
  context_ = context;
  parts_.clear();
  operands_.clear();
  is_flushed_ = false;
  flushed_ = Ok();
}

void OperatorGraphs::Add(const Op& op, std::span<const TensorRef> reads, std::span<const TensorRef> writes) {
  if (is_flushed_) {
    if (flushed_) flushed_ = device_.Launch(op.kind, reads, writes, context_);
    return;
  }
  parts_.push_back({&op, reads.size(), writes.size()});
  operands_.insert(operands_.end(), reads.begin(), reads.end());
  operands_.insert(operands_.end(), writes.begin(), writes.end());
}

bool OperatorGraphs::HasOperandsOf(const Known& known) const {
  return std::equal(
      operands_.begin(), operands_.end(), known.operands.begin(), known.operands.end(),
      [](const TensorRef& a, const TensorRef& b) { return a.data == b.data && a.elements == b.elements; });
}

void OperatorGraphs::Flush() {
  if (is_flushed_ || parts_.empty()) return;
  flushed_ = LaunchEach();
  is_flushed_ = true;
  parts_.clear();
  operands_.clear();
}

Result<bool> OperatorGraphs::Issue() {
  if (is_flushed_) {
    WT_RETURN_IF_ERROR(flushed_);
    return false;
  }
  const auto issued = IssueWhole();
  parts_.clear();
  return issued;
}

Result<bool> OperatorGraphs::IssueWhole() {
  Known& known = known_[key_];
  const bool is_same = HasOperandsOf(known);
  if (is_same && known.graph != kNone && known.generation == device_.generation()) {
    WT_RETURN_IF_ERROR(queues_.LaunchGraph(context_.queue, known.graph));
    return true;
  }
  if (known.graph != kNone)
    WT_RETURN_IF_ERROR(queues_.DiscardGraph(std::exchange(known.graph, DeviceQueues::Graph{kNone})));
  if (is_same && known.captures < kMostCaptures) {
    WT_RETURN_IF_ERROR(Capture(known));
    WT_RETURN_IF_ERROR(queues_.LaunchGraph(context_.queue, known.graph));
    return false;
  }
  known.operands = operands_;
  WT_RETURN_IF_ERROR(LaunchEach());
  return false;
}

Status OperatorGraphs::LaunchEach() {
  std::span<const TensorRef> operands = operands_;
  for (const Part& part : parts_) {
    WT_RETURN_IF_ERROR(device_.Launch(part.op->kind, operands.first(part.reads),
                                      operands.subspan(part.reads, part.writes), context_));
    operands = operands.subspan(part.reads + part.writes);
  }
  return Ok();
}

// The operators have been launched before with these operands, so everything that a launch makes is there: a
// GEMM's kernel is chosen, scratch is as large as it gets, code is loaded.
Status OperatorGraphs::Capture(Known& known) {
  WT_RETURN_IF_ERROR(queues_.BeginCapture(context_.queue));
  const Status launched = LaunchEach();
  auto graph = queues_.EndCapture();
  WT_RETURN_IF_ERROR(launched);
  WT_ASSIGN_OR_RETURN(known.graph, std::move(graph));
  known.generation = device_.generation();
  ++known.captures;
  return Ok();
}

}  // namespace windtunnel
