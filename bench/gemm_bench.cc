// GFLOP/s of the GEMMs that training uses, on one thread, for each library. The choice in runtime/cpu/gemm.cc
// and the tables of runtime/cpu/README.md are based on them.
//
//   ./bazelw run //bench:gemm_bench -- --benchmark_filter='^(classes|gpt_small|gpt2-124m)/'
//
// Names: MODEL/LAYER/PASS/LIBRARY and classes/LAYOUT/MxNxK/LIBRARY. Passes over 512 tokens: forward is Y = X
// W^T (layout nt), input_gradient dX = dY W (nn), weight_gradient dW = dY^T X (tn). The library "chosen" is
// GemmEngine's choice. The largest presets need tens of gigabytes and minutes; select benchmarks with the
// filter.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/pages.h"
#include "scenarios/presets.h"

namespace windtunnel {
namespace {

using cpu::GemmEngine;
using cpu::GemmLibrary;
using cpu::GemmProblem;
using cpu::PageRegion;

constexpr int64_t kTokens = 512;

// Values of the size of activations. Zeros would hide denormals and save power.
PageRegion RandomMatrix(int64_t elements, uint64_t stream) {
  Result<PageRegion> region = PageRegion::Map(Bytes(elements * int64_t{sizeof(float)}));
  WT_CHECK(region.has_value());
  RandomStream random(/*seed=*/0, stream);
  float* values = static_cast<float*>(region->data());
  for (int64_t i = 0; i < elements; ++i) values[i] = static_cast<float>(2.0 * random.Uniform() - 1.0);
  return std::move(*region);
}

void Multiply(benchmark::State& state, const GemmProblem& problem, const std::string& library) {
  GemmEngine engine;
  const PageRegion a = RandomMatrix(problem.m * problem.k, 1), b = RandomMatrix(problem.k * problem.n, 2);
  const PageRegion c = RandomMatrix(problem.m * problem.n, 3);
  GemmLibrary used = engine.Choose(problem);
  for (GemmLibrary named : {GemmLibrary::kOneDnnMatmul, GemmLibrary::kOneDnnSgemm, GemmLibrary::kOpenBlas}) {
    if (library == Name(named)) used = named;
  }
  const auto multiply = [&] {
    const Status status =
        engine.RunWith(used, problem, static_cast<const float*>(a.data()),
                       static_cast<const float*>(b.data()), nullptr, static_cast<float*>(c.data()));
    if (!status) state.SkipWithError(status.error().message.c_str());
  };
  multiply();  // creates the primitive
  for (auto _ : state) multiply();
  const double flops =
      2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) * static_cast<double>(problem.k);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(std::string(Name(used)));
}

void RegisterProblem(const std::string& name, const GemmProblem& problem) {
  for (const std::string library : {"onednn_matmul", "onednn_sgemm", "openblas", "chosen"}) {
    benchmark::RegisterBenchmark((name + "/" + library).c_str(), [problem, library](benchmark::State& state) {
      Multiply(state, problem, library);
    })->Unit(benchmark::kMicrosecond);
  }
}

void RegisterLayer(const std::string& name, int64_t in, int64_t out) {
  RegisterProblem(name + "/forward", GemmProblem::Dense(kTokens, out, in, false, true));
  RegisterProblem(name + "/input_gradient", GemmProblem::Dense(kTokens, in, out, false, false));
  RegisterProblem(name + "/weight_gradient", GemmProblem::Dense(out, in, kTokens, true, false));
}

void RegisterTransformer(const std::string& name, const ModelSpec& model) {
  const int64_t kv_heads = model.kv_heads == 0 ? model.heads : model.kv_heads;
  const int64_t head_dim = model.head_dim == 0 ? model.hidden / model.heads : model.head_dim;
  const int64_t ffn = model.ffn == 0 ? 4 * model.hidden : model.ffn;
  const int64_t projections = IsGated(model.activation) ? 2 * ffn : ffn;
  RegisterLayer(name + "/qkv", model.hidden, (model.heads + 2 * kv_heads) * head_dim);
  RegisterLayer(name + "/proj", model.heads * head_dim, model.hidden);
  RegisterLayer(name + "/up", model.hidden, projections);
  RegisterLayer(name + "/down", ffn, model.hidden);
  RegisterLayer(name + "/head", model.hidden, model.vocab);
}

void RegisterModels() {
  ModelSpec small;  // the size of the shipped GPT scenarios
  small.hidden = 256;
  small.heads = 4;
  small.vocab = 4096;
  RegisterTransformer("gpt_small", small);
  for (const std::string& preset : ModelPresetNames()) {
    const ModelSpec model = ModelPreset(preset);
    if (model.kind == ModelKind::kTransformer) {
      RegisterTransformer(preset, model);
      continue;
    }
    for (size_t i = 0; i + 1 < model.widths.size(); ++i) {
      RegisterLayer(preset + "/" + std::to_string(i), model.widths[i], model.widths[i + 1]);
    }
  }
}

// Small and skinny GEMMs, for which GemmEngine's choice of library changes.
void RegisterClasses() {
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& s : {Shape{20, 100, 10}, Shape{20, 10, 100}, Shape{32, 32, 32}, Shape{64, 64, 64},
                         Shape{64, 128, 64}, Shape{96, 96, 96}, Shape{128, 128, 64}, Shape{128, 128, 128},
                         Shape{8, 1024, 128}, Shape{16, 512, 128}, Shape{32, 256, 128}}) {
    const std::string shape = fmt::format("{}x{}x{}", s.m, s.n, s.k);
    RegisterProblem("classes/nt/" + shape, GemmProblem::Dense(s.m, s.n, s.k, false, true));
    RegisterProblem("classes/nn/" + shape, GemmProblem::Dense(s.m, s.n, s.k, false, false));
    RegisterProblem("classes/tn/" + shape, GemmProblem::Dense(s.m, s.n, s.k, true, false));
  }
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) {
  windtunnel::RegisterClasses();
  windtunnel::RegisterModels();
  benchmark::AddCustomContext("onednn", windtunnel::cpu::OneDnnVersion());
  benchmark::AddCustomContext("openblas", windtunnel::cpu::OpenBlasVersion());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
