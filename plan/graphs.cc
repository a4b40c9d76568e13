#include "plan/graphs.h"

#include <vector>

namespace windtunnel {
namespace {

// Whether the operator draws random numbers: which ones, it is told with each launch.
bool Draws(const OpKind& kind) {
  if (const auto* dropout = std::get_if<Dropout>(&kind))
    return !dropout->backward;  // backward reads what was drawn
  if (const auto* attention = std::get_if<AttentionForward>(&kind)) return attention->dropout.drops();
  if (const auto* attention = std::get_if<AttentionBackward>(&kind)) return attention->dropout.drops();
  if (const auto* attention = std::get_if<ContextAttentionForward>(&kind)) return attention->dropout.drops();
  if (const auto* attention = std::get_if<ContextAttentionBackward>(&kind)) return attention->dropout.drops();
  return false;
}

bool CanBeInGraph(const Op& op) {
  if (op.stream != kComputeStream || op.on_host || IsCommunication(op.kind) || Draws(op.kind)) return false;
  if (const auto* copy = std::get_if<Copy>(&op.kind)) return copy->crosses == Copy::Crosses::kNothing;
  return !std::holds_alternative<LoadBatch>(op.kind) && !std::holds_alternative<OptimizerUpdate>(op.kind) &&
         !std::holds_alternative<MuonUpdate>(op.kind) && !std::holds_alternative<HostWait>(op.kind);
}

// Operators in program order that may make a graph.
class Run {
 public:
  void Add(Op& op) { ops_.push_back(&op); }
  void End() {
    const bool is_graph = ops_.size() > 1;
    for (Op* op : ops_) op->graph = is_graph ? -1 : 0;
    if (is_graph) ops_.front()->graph = static_cast<int32_t>(ops_.size());
    ops_.clear();
  }

 private:
  std::vector<Op*> ops_;
};

std::vector<bool> AwaitedByOthers(const Program& program) {
  std::vector<bool> is_awaited(program.ops.size(), false);
  for (const Op& op : program.ops)
    for (OpIndex dependency : op.dependencies) is_awaited[dependency] = true;
  return is_awaited;
}

}  // namespace

void FormGraphs(Program& program) {
  const std::vector<bool> is_awaited = AwaitedByOthers(program);
  Run run;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    op.graph = 0;
    const bool belongs = CanBeInGraph(op);
    if (!belongs || !op.dependencies.empty()) run.End();
    if (!belongs) continue;
    run.Add(op);
    if (is_awaited[i]) run.End();
  }
  run.End();
}

}  // namespace windtunnel
