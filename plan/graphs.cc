#include "plan/graphs.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "scenarios/derived.h"

namespace windtunnel {
namespace {

// Parts of layers, as bits.
using Parts = uint32_t;
constexpr Parts Bit(LayerPart part) { return 1u << static_cast<int>(part); }
constexpr Parts kOfExperts = Bit(LayerPart::kRouter) | Bit(LayerPart::kShared) | Bit(LayerPart::kPreprocess) |
                             Bit(LayerPart::kExperts);
constexpr Parts kLayers =
    Bit(LayerPart::kAttention) | Bit(LayerPart::kMamba) | Bit(LayerPart::kMlp) | kOfExperts;
constexpr Parts kEverything = kLayers | Bit(LayerPart::kNone) | Bit(LayerPart::kStrategy);

Parts PartsOf(CudaGraphScope scope) {
  switch (scope) {
    case CudaGraphScope::kAttention:
      return Bit(LayerPart::kAttention);
    case CudaGraphScope::kMamba:
      return Bit(LayerPart::kMamba);
    case CudaGraphScope::kMlp:
      return Bit(LayerPart::kMlp);
    case CudaGraphScope::kMoe:
      return kOfExperts;
    case CudaGraphScope::kMoeRouter:
      return Bit(LayerPart::kRouter) | Bit(LayerPart::kShared);
    case CudaGraphScope::kMoePreprocess:
      return Bit(LayerPart::kPreprocess);
    case CudaGraphScope::kFullIteration:
      return kEverything;
  }
  return 0;
}

Parts PartsOf(const std::vector<CudaGraphScope>& scopes) {
  Parts parts = 0;
  for (const CudaGraphScope scope : scopes) parts |= PartsOf(scope);
  return parts;
}

// The operators of a graph that is being formed, in program order.
class Graph {
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

// ---- Windtunnel's -----------------------------------------------------------------------------------------

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

std::vector<bool> AwaitedByOthers(const Program& program) {
  std::vector<bool> is_awaited(program.ops.size(), false);
  for (const Op& op : program.ops)
    for (OpIndex dependency : op.dependencies) is_awaited[dependency] = true;
  return is_awaited;
}

void FormRuns(Program& program, Parts parts) {
  const std::vector<bool> is_awaited = AwaitedByOthers(program);
  Graph run;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    op.graph = 0;
    const bool belongs = CanBeInGraph(op) && (parts & Bit(op.part)) != 0;
    if (!belongs || !op.dependencies.empty()) run.End();
    if (!belongs) continue;
    run.Add(op);
    if (is_awaited[i]) run.End();
  }
  run.End();
}

// ---- Megatron-Core's --------------------------------------------------------------------------------------

// One graph for all of the passes; the optimizer is left out.
void FormOneGraph(Program& program) {
  Graph graph;
  for (Op& op : program.ops) {
    op.graph = 0;
    const bool is_before = std::holds_alternative<LoadBatch>(op.kind) || op.phase == Phase::kInitialize;
    const bool is_behind = op.phase == Phase::kOptimizer || op.phase == Phase::kEnd;
    if (!is_before && !is_behind) graph.Add(op);
  }
  graph.End();
}

// Graphs of one layer's forward, or backward, of one micro-batch. Two may be formed at a time, where
// micro-batches take turns. What the strategy does in between is launched by itself. `are_apart`: a layer's
// mixer and its MLP are two layers, as in hybrid models.
void FormByLayers(Program& program, Parts parts, bool are_apart) {
  struct Pass {
    int32_t layer = -1;
    bool is_mixer = false;
    Graph graph = {};
  };
  std::map<std::pair<int32_t, bool>, Pass> passes;  // by micro-batch and whether it is backward
  for (Op& op : program.ops) {
    op.graph = 0;
    if (op.part == LayerPart::kStrategy) continue;
    const bool is_backward = op.phase == Phase::kBackward || op.phase == Phase::kRecompute;
    Pass& pass = passes[{op.micro_batch, is_backward}];
    const bool belongs = (parts & Bit(op.part)) != 0 && !std::holds_alternative<HostWait>(op.kind);
    const bool is_mixer = op.part == LayerPart::kAttention || op.part == LayerPart::kMamba;
    if (!belongs || op.layer != pass.layer || (are_apart && is_mixer != pass.is_mixer)) pass.graph.End();
    pass.layer = op.layer;
    pass.is_mixer = is_mixer;
    if (belongs) pass.graph.Add(op);
  }
  for (auto& [of, pass] : passes) pass.graph.End();
}

}  // namespace

void FormGraphs(const Scenario& scenario, Program& program) {
  const std::vector<CudaGraphScope>& scope = scenario.run.cuda_graph_scope;
  if (HasGraphsOfLayers(scenario))
    FormByLayers(program, scope.empty() ? kLayers : PartsOf(scope), scenario.model.mamba.has_value());
  else if (scenario.framework == Framework::kMegatronCore) FormOneGraph(program);
  else FormRuns(program, scope.empty() ? kEverything : PartsOf(scope));
}

}  // namespace windtunnel
