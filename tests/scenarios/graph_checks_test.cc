// What may be launched as CUDA graphs.
#include <fmt/format.h>

#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

// The mistakes in a scenario of Megatron-Core on an H100: line 2 is `run`, line 3 and further ones `rest`.
std::string OfMegatron(const std::string& model, const std::string& run, const std::string& rest = "") {
  return MistakesOf(
      fmt::format("model: {{{}}}\nrun: {{{}}}\nframework: megatron_core\ncluster: {{device: "
                  "h100-sxm-80g}}\n{}",
                  model, run, rest));
}

constexpr char kDense[] = "preset: llama3-8b";
constexpr char kMixture[] = "preset: mixtral-8x7b, experts: {count: 8, top_k: 2, capacity_factor: 0}";

TEST(GraphChecks, TakeWhatMegatronTakes) {
  for (const char* run : {"cuda_graphs: true", "cuda_graphs: true, cuda_graph_scope: [attn, mlp]",
                          "cuda_graphs: true, cuda_graph_scope: [full_iteration]"})
    EXPECT_EQ(OfMegatron(kDense, run), "(no error)") << run;
  for (const char* run : {"cuda_graphs: true, cuda_graph_scope: [attn]",
                          "cuda_graphs: true, cuda_graph_scope: [attn, moe_router, moe_preprocess]"})
    EXPECT_EQ(OfMegatron(kMixture, run), "(no error)") << run;
  EXPECT_EQ(OfMegatron("preset: mixtral-8x7b, experts: {count: 8, top_k: 2, capacity_factor: 1}",
                       "cuda_graphs: true, cuda_graph_scope: [moe]"),
            "(no error)");
}

TEST(GraphChecks, AScopeNeedsGraphs) {
  EXPECT_EQ(OfMegatron(kDense, "cuda_graph_scope: [attn]"),
            "s.yaml:2:25: run.cuda_graph_scope is given, expected run.cuda_graphs: true");
}

TEST(GraphChecks, AScopeNamesPartsOfTheModelOnce) {
  const auto of = [](const char* model, const std::string& scope) {
    return OfMegatron(model, "cuda_graphs: true, cuda_graph_scope: [" + scope + "]");
  };
  EXPECT_EQ(of(kDense, "mamba"),
            "s.yaml:2:44: run.cuda_graph_scope has mamba, which no layer of the model has");
  EXPECT_EQ(of(kDense, "moe_router"),
            "s.yaml:2:44: run.cuda_graph_scope has moe_router, which no layer of the model has");
  EXPECT_EQ(of(kMixture, "mlp"),
            "s.yaml:2:44: run.cuda_graph_scope has mlp, which no layer of the model has");
  EXPECT_EQ(of(kDense, "attn, attn"), "s.yaml:2:44: run.cuda_graph_scope has attn 2 times, expected once");
  EXPECT_EQ(
      of(kMixture, "moe_preprocess"),
      "s.yaml:2:44: run.cuda_graph_scope has moe_preprocess, expected moe_router, too, which goes before "
      "it");
  EXPECT_EQ(of(kDense, "attn, full_iteration"),
            "s.yaml:2:44: run.cuda_graph_scope has full_iteration and others, which are parts of it");
  EXPECT_EQ(of(kDense, "attention").substr(0, 88),
            "s.yaml:2:45: run.cuda_graph_scope is 'attention', expected attn, mamba, mlp, moe, moe_ro");
}

// Experts take another number of tokens each time, unless they have a capacity.
TEST(GraphChecks, ExpertsInAGraphNeedACapacity) {
  const std::string message =
      "run.cuda_graphs takes in experts, expected model.experts.capacity_factor above 0, or "
      "run.cuda_graph_scope with moe_router in place of moe: a graph has the same number of tokens each time";
  EXPECT_EQ(OfMegatron(kMixture, "cuda_graphs: true"), "s.yaml:2:20: " + message);
  EXPECT_EQ(OfMegatron(kMixture, "cuda_graphs: true, cuda_graph_scope: [moe]"), "s.yaml:2:44: " + message);
}

// What is recomputed may be within a graph or outside, but no graph is a part of it.
TEST(GraphChecks, AGraphIsNotRecomputedAsAPart) {
  EXPECT_EQ(OfMegatron(kDense, "cuda_graphs: true, cuda_graph_scope: [attn]", "recompute: full\n"),
            "s.yaml:5:12: recompute is full, expected none or selective with run.cuda_graphs, unless "
            "run.cuda_graph_scope is [full_iteration]");
  EXPECT_EQ(OfMegatron(kDense, "cuda_graphs: true", "recompute: full\n"),
            "s.yaml:5:12: recompute is full, expected none or selective with run.cuda_graphs, unless "
            "run.cuda_graph_scope is [full_iteration]");
  EXPECT_EQ(
      OfMegatron(kMixture, "cuda_graphs: true, cuda_graph_scope: [moe_router]",
                 "recompute: selective\nrecompute_modules: [moe]\n"),
      "s.yaml:6:20: recompute_modules has moe, expected others with moe_router in run.cuda_graph_scope: a "
      "graph is not recomputed as a part of something");
  EXPECT_EQ(OfMegatron(kDense, "cuda_graphs: true, cuda_graph_scope: [attn]", "recompute: selective\n"),
            "(no error)");
  EXPECT_EQ(OfMegatron(kMixture, "cuda_graphs: true, cuda_graph_scope: [attn, moe_router]",
                       "recompute: selective\nrecompute_modules: [moe_act, layernorm]\n"),
            "(no error)");
  EXPECT_EQ(OfMegatron(kDense, "cuda_graphs: true, cuda_graph_scope: [full_iteration]", "recompute: full\n"),
            "(no error)");
}

TEST(GraphChecks, OneGraphHoldsNoMessages) {
  EXPECT_EQ(OfMegatron(kDense, "cuda_graphs: true, cuda_graph_scope: [full_iteration]",
                       "parallel: {pipeline: {size: 2}}\nbatch: {accumulate: 2}\n"),
            "s.yaml:2:44: run.cuda_graph_scope is full_iteration, expected parallel.pipeline.size 1, not 2: "
            "hosts wait for messages");
}

TEST(GraphChecks, ActivationsStayOnTheDevice) {
  EXPECT_EQ(OfMegatron(kDense, "cuda_graphs: true", "activation_offload: true\n"),
            "s.yaml:5:21: activation_offload is true, expected false with run.cuda_graphs and framework: "
            "megatron_core");
}

TEST(GraphChecks, OtherFrameworksHaveNone) {
  EXPECT_EQ(MistakesOf("model: {preset: llama3-8b}\ncluster: {device: h100-sxm-80g}\n"
                       "run: {cuda_graphs: true, cuda_graph_scope: [full_iteration]}\n")
                .substr(0, 86),
            "s.yaml:3:44: run.cuda_graph_scope is full_iteration, expected it with framework: megat");

  EXPECT_EQ(
      MessageOf("model: {preset: llama3-8b}\ncluster: {device: a100-sxm-80g}\nframework: megatron\nrun: "
                "{cuda_graphs: true}\n"),
      "s.yaml:4:20: run.cuda_graphs is true, expected false for framework: megatron: only Windtunnel's "
      "and Megatron-Core's are known");
}

}  // namespace
}  // namespace windtunnel
