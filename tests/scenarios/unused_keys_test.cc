// Keys of a scenario that have no effect are named.
#include "scenarios/unused_keys.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "scenarios/load.h"

namespace windtunnel {
namespace {

std::string Unused(const std::string& parallel, const std::string& rest = "") {
  const std::string text =
      "model: {preset: gpt2-124m, vocab: 50304}\nbatch: {accumulate: 2}\nparallel: " + parallel + "\n" + rest;
  const auto scenario = ParseScenario(text, "s.yaml", ".", {});
  if (!scenario) return scenario.error().message;
  return fmt::to_string(fmt::join(KeysWithoutEffect(*scenario), "\n"));
}

TEST(KeysWithoutEffect, AreThoseOfAnotherStrategy) {
  EXPECT_EQ(Unused("{data: {kind: ddp, size: 2, sharding: hybrid_shard, wrap: root}}"),
            "parallel.data.sharding, parallel.data.wrap have no effect with parallel.data.kind: ddp");
  EXPECT_EQ(
      Unused("{data: {kind: fsdp, size: 2, overlap: false, bucket_cap_mb: 25}}"),
      "parallel.data.bucket_cap_mb, parallel.data.overlap have no effect with parallel.data.kind: fsdp");
  EXPECT_EQ(Unused("{data: {kind: fsdp, size: 2, shard_size: 2, limit_all_gathers: false}}"),
            "parallel.data.shard_size has no effect with parallel.data.sharding: full_shard\n"
            "parallel.data.limit_all_gathers has no effect with parallel.data.version: 2");
  EXPECT_EQ(
      Unused("{data: {kind: ddp, size: 2, find_unused_parameters: true}}", "framework: megatron_core\n"),
      "parallel.data.find_unused_parameters has no effect with framework: megatron_core");
}

TEST(KeysWithoutEffect, AreThoseOfAttentionWhereNoLayerHasIt) {
  const auto unused = [](const char* pattern) {
    const std::string text = std::string("model: {preset: mamba2-2.7b, qk_norm: true, attention: eager, mamba: ") +
                             "{pattern: '" + pattern + "'}}\n";
    return fmt::to_string(fmt::join(KeysWithoutEffect(*ParseScenario(text, "s.yaml", ".", {})), "\n"));
  };
  EXPECT_EQ(unused("M-"), "model.attention, model.qk_norm have no effect with model.mamba.pattern: M-");
  EXPECT_EQ(unused("M*"), "");
  const std::string nets = "model: {preset: qwen3.5-9b, delta_net: {pattern: G-}}\n";
  EXPECT_EQ(fmt::to_string(fmt::join(KeysWithoutEffect(*ParseScenario(nets, "s.yaml", ".", {})), "\n")),
            "model.qk_norm, model.attention_gate have no effect with model.delta_net.pattern: G-");
}

TEST(KeysWithoutEffect, AreThoseOfModulesThatPredictOneTokenInSixteenBits) {
  const auto unused = [](const std::string& mtp, const char* more) {
    const std::string text = "model: {preset: llama-7b, mtp: " + mtp + "}\n" + more;
    return fmt::to_string(fmt::join(KeysWithoutEffect(*ParseScenario(text, "s.yaml", ".", {})), "\n"));
  };
  const char* const fp8 =
      "cluster: {device: h100-sxm-80g}\nframework: megatron_core\n"
      "precision: {param: bf16, compute: fp8, reduce: fp32}\n";
  EXPECT_EQ(unused("{repeated: true}", ""), "model.mtp.repeated has no effect with model.mtp.layers: 1");
  EXPECT_EQ(unused("{layers: 2, repeated: true}", ""), "");
  EXPECT_EQ(unused("{fp8: false}", ""), "model.mtp.fp8 has no effect with precision.compute: fp32");
  EXPECT_EQ(unused("{fp8: false}", fp8), "");
}

// Megatron has buffers of gradients with a single replica, too.
TEST(KeysWithoutEffect, AreNotBucketsOfMegatronsBuffers) {
  const std::string buckets = "{tensor: {size: 2}, data: {bucket_cap_mb: 400, overlap: false}}";
  const std::string none =
      "parallel.data.bucket_cap_mb, parallel.data.overlap have no effect with parallel.data.kind: none";
  EXPECT_EQ(Unused(buckets, "framework: megatron_core\n"), "");
  EXPECT_EQ(Unused(buckets, "framework: megatron\n"), "");
  EXPECT_EQ(Unused(buckets, "framework: megatron\nprecision: {param: bf16, reduce: bf16}\n"), none);
  EXPECT_EQ(Unused(buckets), none);
}

TEST(KeysWithoutEffect, AreThoseOfAnotherOptimizer) {
  EXPECT_EQ(Unused("{}", "optimizer: {ns_steps: 4, adjust_lr: original}\n"),
            "optimizer.ns_steps, optimizer.adjust_lr have no effect with optimizer.kind: adamw");
  EXPECT_EQ(Unused("{}", "optimizer: {kind: muon, ns_steps: 4, adjust_lr: original}\n"), "");
  EXPECT_EQ(Unused("{}", "optimizer: {parameters_as_bucket_view: true}\n"),
            "optimizer.parameters_as_bucket_view has no effect with optimizer.zero_redundancy: false");
  EXPECT_EQ(Unused("{}", "optimizer: {zero_redundancy: true}\n"),
            "optimizer.zero_redundancy has no effect with one data-parallel rank");
  EXPECT_EQ(Unused("{data: {size: 2}}", "optimizer: {zero_redundancy: true}\n"), "");
  EXPECT_EQ(Unused("{data: {powersgd: {rank: 2}}}"),
            "parallel.data.powersgd has no effect with one data-parallel rank");
  EXPECT_EQ(Unused("{data: {size: 2, powersgd: {rank: 2}}}"), "");
  EXPECT_EQ(Unused("{}", "optimizer: {moments: int8, fused: true}\nframework: pytorch\n"),
            "optimizer.fused has no effect with optimizer.moments: int8");
}

TEST(KeysWithoutEffect, SayThatAnMlpHasNoMatrixForMuon) {
  const auto lines = [](const std::string& widths) {
    const std::string text = "model: {kind: mlp, widths: " + widths + "}\noptimizer: {kind: muon}\n";
    return KeysWithoutEffect(*ParseScenario(text, "s.yaml", ".", {}));
  };
  EXPECT_EQ(lines("[10, 100, 10]"),
            std::vector<std::string>{"optimizer.kind: muon is AdamW here: model.widths has no layer between "
                                     "the first and the last"});
  EXPECT_TRUE(lines("[10, 100, 100, 10]").empty());
}

// StepLR's two arguments alone say no decay.
TEST(KeysWithoutEffect, AreThoseOfAnotherDecay) {
  EXPECT_EQ(Unused("{}", "lr_scheduler: {step_size: 2, gamma: 0.7}\n"),
            "lr_scheduler.step_size, lr_scheduler.gamma have no effect with lr_scheduler.decay: none");
  EXPECT_EQ(Unused("{}", "lr_scheduler: {decay: step, min_lr_factor: 0.1}\n"),
            "lr_scheduler.min_lr_factor has no effect with lr_scheduler.decay: step");
  EXPECT_EQ(
      Unused("{}", "lr_scheduler: {decay: linear, min_lr_factor: 0.1, total_steps: 90, warmup_steps: 5}\n"),
      "");
}

TEST(KeysWithoutEffect, AreThoseOfAnAxisOfOneRank) {
  EXPECT_EQ(Unused("{pipeline: {schedule: gpipe}, tensor: {sequence: true}, context: {kind: ulysses}}"),
            "parallel.pipeline.schedule has no effect with parallel.pipeline.size: 1\n"
            "parallel.tensor.sequence has no effect with parallel.tensor.size: 1\n"
            "parallel.context.kind has no effect with parallel.context.size: 1");
}

// Keys that the loader derives, keys with an effect, and keys with the value that they would have anyway are
// not named.
TEST(KeysWithoutEffect, AreNotDefaults) {
  EXPECT_EQ(Unused("{data: {kind: fsdp, size: 4, sharding: shard_grad_op}}"), "");
  EXPECT_EQ(Unused("{data: {kind: fsdp, size: 4, sharding: hybrid_shard, shard_size: 2, version: 1, "
                   "limit_all_gathers: false, reshard_after_forward: false}}"),
            "");
  EXPECT_EQ(Unused("{data: {kind: ddp, size: 2, overlap: false, find_unused_parameters: true}}"), "");
  EXPECT_EQ(Unused("{data: {kind: zero1, size: 4, shard_size: 2, wrap: block, version: 2}}"), "");
  EXPECT_EQ(Unused("{data: {kind: ddp, size: 2, wrap: root}}", "search: {tensor: [1]}\n"), "");
}

}  // namespace
}  // namespace windtunnel
