#include "scenarios/graph_checks.h"

#include <algorithm>
#include <vector>

#include "scenarios/derived.h"
#include "scenarios/recompute_checks.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

bool Contains(const std::vector<CudaGraphScope>& scope, CudaGraphScope what) {
  return std::find(scope.begin(), scope.end(), what) != scope.end();
}

// Whether any layer of the model has what the scope names.
bool IsThere(CudaGraphScope what, const ModelSpec& model) {
  switch (what) {
    case CudaGraphScope::kAttention:
      return model.delta_net || HasModule(model, RecomputeModule::kCoreAttention);
    case CudaGraphScope::kMamba:
      return model.mamba.has_value();
    case CudaGraphScope::kMlp:
      return HasModule(model, RecomputeModule::kMlp);
    case CudaGraphScope::kMoe:
    case CudaGraphScope::kMoeRouter:
    case CudaGraphScope::kMoePreprocess:
      return HasModule(model, RecomputeModule::kMoe);
    case CudaGraphScope::kFullIteration:
      return true;
  }
  return false;
}

// Conditions of Megatron-Core's graphs: its own, but for the pipeline.
void CheckMegatron(const Scenario& scenario, Checker& check) {
  const std::vector<CudaGraphScope>& scope = scenario.run.cuda_graph_scope;
  const bool is_one = Contains(scope, CudaGraphScope::kFullIteration);
  const bool has_experts = scope.empty() || is_one || Contains(scope, CudaGraphScope::kMoe);
  if (has_experts && scenario.model.experts)
    check.Expect(
        scenario.model.experts->capacity_factor > 0, {"run.cuda_graph_scope", "run.cuda_graphs"},
        "run.cuda_graphs takes in experts, expected model.experts.capacity_factor above 0, or "
        "run.cuda_graph_scope with moe_router in place of moe: a graph has the same number of tokens "
        "each time");
  check.Expect(!RecomputesGraphs(scenario) || scenario.recompute != Recompute::kFull,
               {"recompute", "run.cuda_graphs"},
               "recompute is full, expected none or selective with run.cuda_graphs, unless "
               "run.cuda_graph_scope is [full_iteration]");
  check.Expect(
      !RecomputesGraphs(scenario) || scenario.recompute == Recompute::kFull,
      {"recompute_modules", "run.cuda_graph_scope"},
      "recompute_modules has moe, expected others with moe_router in run.cuda_graph_scope: a graph is "
      "not recomputed as a part of something");
  check.Expect(
      !scenario.activation_offload, {"activation_offload", "run.cuda_graphs"},
      "activation_offload is true, expected false with run.cuda_graphs and framework: megatron_core");
  check.Expect(
      !is_one || scenario.parallel.pipeline.size == 1, {"run.cuda_graph_scope", "parallel.pipeline.size"},
      "run.cuda_graph_scope is full_iteration, expected parallel.pipeline.size 1, not {}: hosts wait "
      "for messages",
      scenario.parallel.pipeline.size);
}

void CheckScope(const Scenario& scenario, Checker& check) {
  const std::vector<CudaGraphScope>& scope = scenario.run.cuda_graph_scope;
  for (const CudaGraphScope what : scope) {
    const std::string_view word = WordOf(what);
    const auto count = std::count(scope.begin(), scope.end(), what);
    check.Expect(count == 1, {"run.cuda_graph_scope"}, "run.cuda_graph_scope has {} {} times, expected once",
                 word, count);
    check.Expect(IsThere(what, scenario.model), {"run.cuda_graph_scope"},
                 "run.cuda_graph_scope has {}, which no layer of the model has", word);
  }
  const bool is_one = Contains(scope, CudaGraphScope::kFullIteration);
  check.Expect(!is_one || scope.size() == 1, {"run.cuda_graph_scope"},
               "run.cuda_graph_scope has full_iteration and others, which are parts of it");
  const bool has_part =
      Contains(scope, CudaGraphScope::kMoeRouter) || Contains(scope, CudaGraphScope::kMoePreprocess);
  check.Expect(!has_part || !Contains(scope, CudaGraphScope::kMoe), {"run.cuda_graph_scope"},
               "run.cuda_graph_scope has moe and a part of it");
  check.Expect(
      !Contains(scope, CudaGraphScope::kMoePreprocess) || Contains(scope, CudaGraphScope::kMoeRouter),
      {"run.cuda_graph_scope"},
      "run.cuda_graph_scope has moe_preprocess, expected moe_router, too, which goes before it");
}

}  // namespace

void CheckGraphs(const Scenario& scenario, Checker& check) {
  const RunSpec& run = scenario.run;
  check.Expect(run.cuda_graphs || run.cuda_graph_scope.empty(), {"run.cuda_graph_scope", "run.cuda_graphs"},
               "run.cuda_graph_scope is given, expected run.cuda_graphs: true");
  if (!run.cuda_graphs) return;
  check.Expect(
      scenario.cluster.device != "cpu", {"run.cuda_graphs"},
      "run.cuda_graphs is true, expected false for cluster.device: cpu, which runs what others launch");
  const bool is_megatron = scenario.framework == Framework::kMegatronCore;
  check.Expect(is_megatron || scenario.framework == Framework::kWindtunnel, {"run.cuda_graphs"},
               "run.cuda_graphs is true, expected false for framework: {}: only Windtunnel's and "
               "Megatron-Core's are known",
               WordOf(scenario.framework));
  CheckScope(scenario, check);
  if (is_megatron) CheckMegatron(scenario, check);
  check.Expect(is_megatron || !Contains(run.cuda_graph_scope, CudaGraphScope::kFullIteration),
               {"run.cuda_graph_scope"},
               "run.cuda_graph_scope is full_iteration, expected it with framework: megatron_core; "
               "Windtunnel's graphs are of parts of layers, or of all that is between collectives");
}

}  // namespace windtunnel
