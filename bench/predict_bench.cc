// The cost of a prediction, from scenario to result, as clusters and steps grow: processor time of compiling
// the plan and of `Predict`.
//
//   ./bazelw run //bench:predict_bench
//
// BM_Replicas      Llama 3 405B, tensor 8 x pipeline 16, by number of data-parallel replicas: 128 to 131,072
// GPUs BM_Topology      the same over a rail-optimised fat tree, whose links collectives share BM_Fsdp
// Llama 8B with FSDP, by number of GPUs: 8 to 131,072 BM_Unfolded      the same with every rank simulated
// BM_MicroBatches  the Llama 3 405B case on 16,384 GPUs, by micro-batches per step: more operators per role
//
// `ops` counts the operators of all roles' steady steps, `events` the events of the engine.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/check.h"
#include "cost_models/cost_model.h"
#include "scenarios/load.h"
#include "sim/predict.h"

namespace windtunnel {
namespace {

constexpr char kThreeDimensional[] = R"(
name: llama3-405b
model: {{layers: 126, hidden: 16384, heads: 128, kv_heads: 8, ffn: 53248, vocab: 128256, seq_len: 8192, activation: swiglu, norm: rmsnorm, position: rope, bias: false, tie_embeddings: false, attention: flash}}
batch: {{micro: 1, accumulate: {micro_batches}}}
precision: {{param: bf16, reduce: fp32}}
optimizer: {{kind: adamw, clip_norm: 1}}
parallel:
  data: {{kind: zero1, size: {replicas}}}
  tensor: {{size: 8, sequence: true}}
  pipeline: {{size: 16, schedule: 1f1b}}
cluster: {{device: h100-sxm-80g, nodes: {nodes}, devices_per_node: 8, network: {{intra_node: nvlink4, inter_node: {{kind: roce, gbits_per_nic: 400}}, nics_per_node: 8}}{topology}}}
framework: megatron
)";

constexpr char kFsdp[] = R"(
name: llama-8b
model: {{layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, vocab: 128256, seq_len: 2048, activation: swiglu, norm: rmsnorm, position: rope, bias: false, tie_embeddings: false, attention: flash}}
batch: {{micro: 1}}
precision: {{param: bf16, reduce: fp32}}
parallel: {{data: {{kind: fsdp, size: {gpus}}}}}
cluster: {{device: h100-sxm-80g, nodes: {nodes}, devices_per_node: 8, network: {{intra_node: nvlink4, inter_node: {{kind: roce, gbits_per_nic: 400}}, nics_per_node: 8}}}}
framework: pytorch
)";

template <typename T>
T Value(Result<T> result) {
  if (!result) internal::CheckFailed(__FILE__, __LINE__, result.error().message);
  return *std::move(result);
}

void PredictFor(benchmark::State& state, const std::string& yaml, bool fold) {
  const Scenario scenario = Value(ParseScenario(yaml, "bench", ".", {}));
  const Profile profile = Value(ParseProfile(*EmbeddedProfile("h100-sxm-80g"), "h100-sxm-80g"));
  int64_t ops = 0, events = 0;
  for (auto _ : state) {
    const Plan plan = Value(CompilePlan(scenario, {.predicts = true}));
    const auto model = MakeProfileCostModel(profile, plan);
    const Prediction prediction = Value(Predict(plan, *model, {.fold = fold}));
    benchmark::DoNotOptimize(prediction.p50);
    ops = 0;
    for (const Role& role : plan.roles) ops += static_cast<int64_t>(role.steady.ops.size());
    events = prediction.events;
  }
  state.counters["ops"] = static_cast<double>(ops);
  state.counters["events"] = static_cast<double>(events);
}

void ThreeDimensional(benchmark::State& state, int64_t replicas, int64_t micro_batches,
                      const char* topology = "") {
  PredictFor(
      state,
      fmt::format(kThreeDimensional, fmt::arg("micro_batches", micro_batches), fmt::arg("replicas", replicas),
                  fmt::arg("nodes", 16 * replicas), fmt::arg("topology", topology)),
      /*fold=*/true);
}

void BM_Replicas(benchmark::State& state) { ThreeDimensional(state, state.range(0), 16); }
BENCHMARK(BM_Replicas)->RangeMultiplier(4)->Range(1, 1024)->Unit(benchmark::kMillisecond);

void BM_Topology(benchmark::State& state) {
  ThreeDimensional(state, state.range(0), 16, ", topology: {preset: rail-fat-tree}");
}
BENCHMARK(BM_Topology)->RangeMultiplier(4)->Range(1, 1024)->Unit(benchmark::kMillisecond);

void BM_MicroBatches(benchmark::State& state) { ThreeDimensional(state, 128, state.range(0)); }
BENCHMARK(BM_MicroBatches)->RangeMultiplier(2)->Range(16, 128)->Unit(benchmark::kMillisecond);

void Fsdp(benchmark::State& state, bool fold) {
  const int64_t gpus = state.range(0);
  PredictFor(state, fmt::format(kFsdp, fmt::arg("gpus", gpus), fmt::arg("nodes", gpus / 8)), fold);
}
void BM_Fsdp(benchmark::State& state) { Fsdp(state, /*fold=*/true); }
BENCHMARK(BM_Fsdp)->RangeMultiplier(4)->Range(8, 131072)->Unit(benchmark::kMillisecond);

void BM_Unfolded(benchmark::State& state) { Fsdp(state, /*fold=*/false); }
BENCHMARK(BM_Unfolded)->RangeMultiplier(4)->Range(8, 1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace windtunnel

BENCHMARK_MAIN();
