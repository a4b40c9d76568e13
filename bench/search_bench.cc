// The number of configurations per second that the search simulates on one core. GPT-3 175B at a global batch
// of 4,096 on 4,096 A100s, whose steps are composed; and Llama 3 70B with FSDP on 256 H100s, whose steps are
// stretched (sim/README.md).
//
//   ./bazelw run -c opt //bench:search_bench
//
// configurations_per_s counts those that fit the device and were simulated. The time is that of all
// configurations, from scratch: what configurations share is made anew in each iteration. `infeasible` counts
// those discarded for their memory.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "cost_models/device_spec.h"
#include "scenarios/load.h"
#include "sim/search/evaluator.h"
#include "sim/search/space.h"

namespace windtunnel {
namespace {

void BM_Search(benchmark::State& state, const char* file) {
  const Scenario scenario = LoadScenario(file, {}).value();
  const SearchSpace space = EnumerateSpace(scenario).value();
  const Profile profile = ParseProfile(EmbeddedProfile(scenario.cluster.device).value(), "profile").value();
  int64_t feasible = 0, infeasible = 0;
  for (auto _ : state) {
    const Evaluator evaluator(scenario, profile);
    feasible = infeasible = 0;
    for (const Configuration& configuration : space.legal) {
      const Evaluation evaluation = evaluator.Evaluate(configuration);
      WT_CHECK(evaluation.outcome != Evaluation::Outcome::kRefused);
      ++(evaluation.outcome == Evaluation::Outcome::kFeasible ? feasible : infeasible);
    }
  }
  state.counters["feasible"] = static_cast<double>(feasible);
  state.counters["infeasible"] = static_cast<double>(infeasible);
  state.counters["configurations_per_s"] =
      benchmark::Counter(static_cast<double>(feasible), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(BM_Search, gpt3_175b, "scenarios/search_gpt3_175b_4096xa100.yaml")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Search, llama3_70b_fsdp, "scenarios/search_llama3_70b_fsdp_256xh100.yaml")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace windtunnel

BENCHMARK_MAIN();
