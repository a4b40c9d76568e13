// Printed scenarios are read back unchanged: presets, a scenario with every key, and random ones.
#include "scenarios/load.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "scenarios/characters.h"
#include "scenarios/keys.h"
#include "scenarios/presets.h"
#include "scenarios/printer.h"
#include "scenarios/scalars.h"
#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

// Every block and list of the format, none of them at its default.
constexpr char kEverything[] = R"(name: everything
description: "a: b # not a comment, \"quoted\", ünï\tcode"
model: {layers: 8, hidden: 256, heads: 8, kv_heads: 4, ffn: 512, vocab: 100, seq_len: 64, activation: swiglu,
        norm: rmsnorm, position: rope, bias: true, tie_embeddings: true, attention: eager, dropout: 0.1,
        sliding_window: {tokens: 16, full_every: 4},
        experts: {count: 8, top_k: 2, capacity_factor: 1.25, imbalance: 1.5, bias: true, shared_ffn: 64, first_dense: 1, every: 2,
                  dense_ffn: 1024, groups: 4, top_k_groups: 2}}
batch: {micro: 2, accumulate: 4}
precision: {param: bf16, compute: fp8, reduce: bf16, buffer: bf16, fp8_recipe: rowwise,
            loss_scale: dynamic, init_scale: 1024, growth_interval: 100}
optimizer: {kind: sgd, lr: 0.1, beta1: 0.8, beta2: 0.99, eps: 1e-6, weight_decay: 0.2, momentum: 0.9, clip_norm: 1}
lr_scheduler: {warmup_steps: 1, decay: cosine, total_steps: 100, decay_steps: 10, min_lr_factor: 0.1, step_size: 2, gamma: 0.5}
recompute: selective_op
parallel:
  data: {kind: fsdp, size: 4, sharding: hybrid_shard, version: 1, reshard_after_forward: false, forward_prefetch: 1,
         shard_size: 2, bucket_cap_mb: 12.5, find_unused_parameters: true, gradient_as_bucket_view: true,
         sync: last_micro_batch, overlap: false, wrap: [Block, "a b"], prefetch: backward_post,
         limit_all_gathers: false, offload: param}
  pipeline: {size: 2, schedule: steps/one.csv, virtual_stages: 2, balance: [1, 2, 3, 2]}
  tensor: {size: 2, sequence: true}
  context: {size: 2, kind: ulysses}
  expert: {size: 4, tensor: 1}
cluster:
  device: h200-sxm-141g
  nodes: 4
  devices_per_node: 8
  network: {intra_node: nvlink4, inter_node: {kind: infiniband, gbits_per_nic: 400, gbytes_per_s: 45, latency_us: 2.5},
            nics_per_node: 8}
  topology: {nodes: [{name: a, kind: device}, {name: "b c", kind: switch}],
             links: [{from: a, to: "b c", gbytes_per_s: 25, latency_us: 1}]}
  straggler: {rank: 3, slowdown: 1.3}
  slow_link: {from: a, to: "b c", factor: 0.5}
  jitter: 0.05
framework: megatron
allocator: pytorch_expandable
data: text/corpus.txt
run: {backend: mpi, warmup: 1, steps: 2, seed: 12345678901234, pin: false}
search: {data: [1, 2], tensor: [1], pipeline: [1], context: [1], expert: [1], micro: [1], accumulate: [1],
         virtual_stages: [1], shard_size: [2], kind: [ddp, fsdp], sharding: [full_shard], schedule: [1f1b, steps/two.csv],
         recompute: [none, full], devices: [4, 8], overlap: [true, false], sequence: [false]}
tolerance: {step_time: 0.1, peak_memory: 0.05}
)";

// Reads what ResolvedYaml prints, from elsewhere and under another name.
Scenario ReadBack(const Scenario& scenario) {
  std::string yaml = ResolvedYaml(scenario);
  Result<Scenario> again = ParseScenario(yaml, "resolved.yaml", "/elsewhere", {});
  if (!again) ADD_FAILURE() << again.error().message << "\nin\n" << yaml;
  return again.value_or(Scenario{});
}

TEST(Resolved, PresetsAreReadBack) {
  for (const std::string& name : ModelPresetNames()) {
    Scenario scenario = Parsed("model: {preset: " + name + "}\n");
    EXPECT_EQ(ReadBack(scenario), scenario) << name;
  }
}

TEST(Resolved, AScenarioWithEveryKeyIsReadBack) {
  Scenario scenario = Parsed(kEverything);
  EXPECT_EQ(ReadBack(scenario), scenario);
  EXPECT_EQ(scenario.parallel.pipeline.schedule, "/somewhere/steps/one.csv");
  EXPECT_EQ(scenario.search->schedule, (std::vector<std::string>{"1f1b", "/somewhere/steps/two.csv"}));
  EXPECT_EQ(scenario.description, "a: b # not a comment, \"quoted\", ünï\tcode");
}

TEST(Resolved, ANumberOfRanksToReshardToIsReadBack) {
  const std::string text =
      "model: {preset: gpt2-124m}\nparallel: {data: {kind: fsdp, size: 8, reshard_after_forward: 4}}\n";
  Scenario scenario = Parsed(text);
  EXPECT_TRUE(scenario.parallel.data.reshard_after_forward);
  EXPECT_EQ(scenario.parallel.data.reshard_ranks, 4);
  EXPECT_EQ(ReadBack(scenario), scenario);
}

// Collects the dotted paths of a tree's keys. A list of blocks counts by its first element.
void CollectKeys(const YamlNode& node, std::string path, std::vector<std::string>& keys) {
  for (size_t i = 0; i < node.keys.size(); ++i) {
    keys.push_back(JoinPath(path, node.keys[i].name));
    const YamlNode& value = node.items[i];
    const YamlNode& inner = value.is_list() && !value.items.empty() ? value.items.front() : value;
    CollectKeys(inner, keys.back(), keys);
  }
}

TEST(Resolved, PrintsEveryKeyOfTheFormat) {
  std::vector<std::string> printed;
  // Beside kEverything, the two presets that exclude what it spells out, links by kind and part, latent
  // attention, adapters, an encoder, and hybrids.
  const std::string presets =
      "model: {preset: gpt2-124m}\n"
      "cluster: {device: h100-sxm-80g,\n"
      "          network: {preset: dgx-h100, nics_per_node: 2, intra_node: {kind: pcie5, latency_us: 1}},\n"
      "          topology: {preset: dgx-a100, oversubscription: 2, nodes_per_leaf: 4}}\n";
  const std::string latents = "model: {preset: deepseek-v3, mtp: {layers: 1}}\n";
  const std::string adapters =
      "model: {preset: gpt2-124m, lora: {rank: 4, alpha: 8, dropout: 0.1, targets: [qkv, down]}}\n";
  const std::string encoder = "model: {preset: t5-small, encoder: {seq_len: 256}}\n";
  const std::string hybrid =
      "model: {preset: nemotron3-super-120b, mamba: {conv: 3}, mtp: {pattern: '*E'}}\n";
  const std::string nets = "model: {preset: qwen3-next-80b-a3b, delta_net: {conv: 3}}\n";
  const std::string compressed =
      "model: {preset: gpt2-124m}\n"
      "parallel: {data: {size: 2, powersgd: {rank: 3, start_step: 9, error_feedback: false}}}\n";
  for (const std::string& text : {std::string(kEverything), std::string(kMlp), presets, latents, adapters,
                                  encoder, hybrid, nets, compressed}) {
    EXPECT_EQ(Parsed(ResolvedYaml(Parsed(text))), Parsed(text));
    YamlNode tree = ParseYaml(ResolvedYaml(Parsed(text)), "resolved").value();
    CollectKeys(tree, "", printed);
  }
  for (const std::string& key : ScenarioKeys()) {
    if (key == "model.config") continue;  // expanded when it is read
    EXPECT_NE(std::find(printed.begin(), printed.end(), key), printed.end()) << key;
  }
}

TEST(Resolved, DoesNotDependOnWhereItWasReadFrom) {
  std::string yaml = ResolvedYaml(Parsed(kEverything));
  EXPECT_EQ(ResolvedYaml(ReadBack(Parsed(kEverything))), yaml);
}

RC_GTEST_PROP(YamlText, IsReadBackByteForByte, ()) {
  std::string text;
  for (int c : *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 128))) text += static_cast<char>(c);
  Result<YamlNode> tree = ParseYaml("key: " + YamlText(text) + "\n", "s");
  RC_ASSERT(tree.has_value());
  const YamlNode& node = *tree->Find("key");
  RC_ASSERT(node.text == text);
  RC_ASSERT(ReadText(node).has_value() == !HasControlCharacters(text));
}

RC_GTEST_PROP(Resolved, RandomNumbersAreReadBackExactly, ()) {
  Scenario scenario = Parsed(kMlp);
  scenario.optimizer.lr = std::abs(*rc::gen::arbitrary<double>());
  scenario.optimizer.eps = 1.0 / *rc::gen::inRange<int64_t>(1, 1'000'000'000);
  scenario.tolerance.step_time = *rc::gen::inRange(0, 1000) / 7.0;
  scenario.run.seed = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 62);
  scenario.model.widths = *rc::gen::container<std::vector<int64_t>>(3, rc::gen::inRange<int64_t>(1, 100'000));
  Result<Scenario> again = ParseScenario(ResolvedYaml(scenario), "r", "/", {});
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == scenario);
}

TEST(Digest, IsThatOfWhatIsTrainedAndWhere) {
  Scenario scenario = Parsed(kEverything);
  std::string digest = ScenarioDigest(scenario);
  EXPECT_EQ(digest.size(), std::string("sha256:").size() + 64);
  EXPECT_EQ(digest.substr(0, 7), "sha256:");
  Scenario renamed = scenario;
  renamed.name = "another";
  renamed.description = "";
  renamed.run.steps = 1000;
  renamed.run.warmup = 0;
  renamed.tolerance.step_time = 1;
  renamed.source_file = "elsewhere.yaml";
  EXPECT_EQ(ScenarioDigest(renamed), digest);
  Scenario other = scenario;
  other.batch.micro = 3;
  EXPECT_NE(ScenarioDigest(other), digest);
  other = scenario;
  other.run.seed = 1;
  EXPECT_NE(ScenarioDigest(other), digest);
}

TEST(Digest, APresetAndItsDimensionsAreTheSameModel) {
  EXPECT_EQ(ScenarioDigest(Parsed("model: {preset: mlp-10-100-10}\n")),
            ScenarioDigest(Parsed("model: {kind: mlp, widths: [10, 100, 10]}\n")));
}

}  // namespace
}  // namespace windtunnel
