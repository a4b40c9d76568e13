#include "scenarios/framework_doubts.h"

#include <gmock/gmock.h>

#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> DoubtsOf(const std::vector<std::string>& sets) {
  return FrameworkDoubts(
      Parsed("model: {preset: llama3-8b}\n"
             "batch: {micro: 1, accumulate: 8}\n"
             "precision: {param: bf16}\n"
             "cluster: {device: h100-sxm-80g, nodes: 1, devices_per_node: 8, network: dgx-h100}\n"
             "parallel: {data: {size: 4, kind: zero1}, pipeline: {size: 2}}\n",
             sets));
}

TEST(FrameworkDoubts, NameWhatAFrameworkDoesNotRun) {
  EXPECT_THAT(DoubtsOf({}), IsEmpty());
  EXPECT_THAT(DoubtsOf({"framework=megatron_core"}), IsEmpty());
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "parallel.pipeline.schedule=zb_h1"}),
              ElementsAre("megatron_core has no schedule zb_h1, but 1f1b and interleaved"));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "parallel.pipeline.schedule=interleaved",
                        "parallel.pipeline.virtual_stages=2"}),
              IsEmpty());
  EXPECT_THAT(DoubtsOf({"framework=deepspeed", "parallel.data.kind=fsdp"}),
              ElementsAre(HasSubstr("third stage is kind: zero3")));
  EXPECT_THAT(DoubtsOf({"framework=megatron", "precision.compute=fp8"}),
              ElementsAre("megatron is that of 2021 and 2022, which had no fp8: megatron_core has"));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "precision.compute=fp8", "precision.fp8_recipe=rowwise"}),
              ElementsAre(HasSubstr("no recipe rowwise")));
  const std::string narrow = "optimizer.moments=bf16";
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", narrow}), IsEmpty());
  EXPECT_THAT(DoubtsOf({"framework=megatron", narrow}), ElementsAre(HasSubstr("precision-aware")));
  EXPECT_THAT(DoubtsOf({"framework=pytorch", "parallel.data.kind=fsdp", "parallel.pipeline.size=1",
                        "parallel.data.size=8", narrow}),
              ElementsAre(HasSubstr("not torch.optim's")));
  const std::string lora = "model.lora={rank: 8}";
  EXPECT_THAT(DoubtsOf({"framework=megatron", lora}), ElementsAre(HasSubstr("had no adapters")));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "model.lora={quantize: nf4}"}),
              ElementsAre(HasSubstr("weights in 4 bits")));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", lora}), IsEmpty());
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", lora, "parallel.tensor.size=2", "parallel.data.size=2"}),
              ElementsAre(HasSubstr("gathers between them")));
  const std::string beside = "model.parallel_residual=two_norms", split = "parallel.tensor.size=2";
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", beside}), ElementsAre(HasSubstr("framework: deepspeed")));
  EXPECT_THAT(DoubtsOf({"framework=deepspeed", beside}), IsEmpty());
  EXPECT_THAT(DoubtsOf({"framework=deepspeed", beside, split, "parallel.data.size=2"}),
              ElementsAre(HasSubstr("reduces the sum")));
  const std::string ddp = "parallel.data.kind=ddp", pytorch = "framework=pytorch";
  EXPECT_THAT(DoubtsOf({pytorch, "parallel.pipeline.schedule=zb_h1", ddp, "precision.optimizer=bf16"}),
              IsEmpty());
  EXPECT_THAT(DoubtsOf({pytorch, ddp}), ElementsAre(HasSubstr("precision.optimizer: bf16")));
  EXPECT_THAT(DoubtsOf({pytorch}), ElementsAre(HasSubstr("no strategy like kind: zero1")));
  EXPECT_THAT(DoubtsOf({pytorch, "precision.compute=fp8", "precision.fp8_recipe=delayed",
                        "parallel.data.kind=ddp", "precision.optimizer=bf16"}),
              ElementsAre(HasSubstr("no recipe delayed")));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "parallel.data.kind=fsdp"}),
              ElementsAre(HasSubstr("Megatron's own FSDP is not modelled")));
  const std::vector<std::string> whole = {"parallel.pipeline.size=1", "parallel.data.size=8"};
  for (const char* framework : {"framework=deepspeed", "framework=pytorch"}) {
    const std::string zero3 = "parallel.data.kind=zero3";
    EXPECT_THAT(DoubtsOf({framework, zero3, whole[0], whole[1], "precision.reduce=bf16"}), IsEmpty());
    EXPECT_THAT(DoubtsOf({framework, zero3, whole[0], whole[1]}), IsEmpty());  // bf16 is what is derived
    EXPECT_THAT(DoubtsOf({framework, zero3, whole[0], whole[1], "precision.reduce=fp32"}),
                ElementsAre(HasSubstr("precision.reduce: bf16")));
  }
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "parallel.data.kind=zero2", "parallel.pipeline.size=1",
                        "parallel.data.size=8"}),
              ElementsAre(HasSubstr("distributed optimizer is kind: zero1")));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", "recompute=selective_op"}),
              ElementsAre(HasSubstr("which is torchtitan's")));
  const std::string away = "activation_offload=true";
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", away}), ElementsAre(HasSubstr("nor with a pipeline")));
  EXPECT_THAT(DoubtsOf({"framework=megatron_core", away, "recompute=full", "parallel.pipeline.size=1",
                        "parallel.data.size=8"}),
              ElementsAre(HasSubstr("neither with recomputation")));
  EXPECT_THAT(DoubtsOf({"framework=deepspeed", away, "parallel.pipeline.size=1", "parallel.data.size=8"}),
              ElementsAre(HasSubstr("cpu_checkpointing")));
  const std::vector<std::string> context = {"parallel.context.size=2", "parallel.data.size=2"};
  const auto with_context = [&](const std::string& framework, const std::string& kind) {
    return DoubtsOf({"framework=" + framework, context[0], context[1], "parallel.context.kind=" + kind});
  };
  EXPECT_THAT(with_context("deepspeed", "ulysses"), IsEmpty());
  EXPECT_THAT(with_context("deepspeed", "ring"), ElementsAre(HasSubstr("is ulysses")));
  EXPECT_THAT(with_context("pytorch", "ulysses"),
              ElementsAre(HasSubstr("kind: zero1"), HasSubstr("has no ulysses")));
}

TEST(FrameworkDoubts, NameMicroBatchesThatAScheduleRefusesAndWiderReductions) {
  const auto interleaved = [](const char* framework, const char* micro_batches) {
    return DoubtsOf({framework, micro_batches, "parallel.pipeline.schedule=interleaved",
                     "parallel.pipeline.virtual_stages=2"});
  };
  EXPECT_THAT(interleaved("framework=megatron_core", "batch.accumulate=3"), IsEmpty());
  EXPECT_THAT(
      interleaved("framework=megatron", "batch.accumulate=3"),
      ElementsAre("megatron's schedule interleaved needs a multiple of 2 micro-batches, and stops at 3"));
  const std::string wide = "precision.reduce=fp32";
  EXPECT_THAT(
      DoubtsOf({"framework=pytorch", "parallel.data.kind=ddp", wide}),
      ElementsAre(HasSubstr("fp32 copies"), HasSubstr("PyTorch's DDP has buckets of their own type")));
  EXPECT_THAT(DoubtsOf({"framework=deepspeed", wide}), ElementsAre(HasSubstr("communication_data_type")));
}

TEST(FrameworkDoubts, SayWhatATutorialsReaderMayNotExpect) {
  const std::vector<std::string> fsdp = {"framework=pytorch", "parallel.data.kind=fsdp"};
  const auto with = [&](std::vector<std::string> sets) {
    sets.insert(sets.begin(), fsdp.begin(), fsdp.end());
    return DoubtsOf(sets);
  };
  EXPECT_THAT(with({}), ElementsAre(HasSubstr("reshard_after_forward: false")));
  EXPECT_THAT(with({"parallel.data.reshard_after_forward=true"}), IsEmpty());
  const std::vector<std::string> version1 = {"parallel.pipeline.size=1", "parallel.data.size=8",
                                             "parallel.data.version=1"};
  EXPECT_THAT(with(version1), ElementsAre(HasSubstr("FlashAttention's first version")));
  EXPECT_THAT(with({"parallel.pipeline.size=1", "parallel.data.size=8"}), IsEmpty());
  EXPECT_THAT(with({"parallel.pipeline.size=1", "parallel.data.size=8", "parallel.data.sharding=no_shard"}),
              ElementsAre(HasSubstr("no counterpart of sharding: no_shard")));
  EXPECT_THAT(DoubtsOf({"framework=pytorch_compile", "parallel.data.kind=fsdp",
                        "parallel.data.reshard_after_forward=true"}),
              ElementsAre(HasSubstr("cross_entropy: fused")));
}

}  // namespace
}  // namespace windtunnel
