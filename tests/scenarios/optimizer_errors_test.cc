// Mistakes in optimizers and number formats, and where they are reported.
#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

std::string Gpt(const std::string& rest) { return kGpt + rest; }

TEST(OptimizerErrors, OptimizersOfBf16UpdateParametersOfBf16) {
  const auto of = [](const std::string& rest) {
    return MistakesOf(Gpt("precision: {param: bf16, optimizer: bf16}\n" + rest));
  };
  EXPECT_EQ(of("framework: pytorch\nparallel: {data: {kind: fsdp, size: 2}}\n"), "(no error)");
  EXPECT_EQ(of(""),
            "s.yaml:2:37: precision.optimizer is bf16, expected framework pytorch or pytorch_compile, which "
            "train so, not windtunnel");
  EXPECT_EQ(
      of("framework: pytorch\nparallel: {data: {kind: zero1, size: 2}}\n"),
      "s.yaml:2:37: precision.optimizer is bf16, expected parallel.data.kind none, ddp or fsdp, not zero1");
  EXPECT_EQ(
      of("framework: pytorch\nsearch: {kind: [ddp, zero1]}\n"),
      "s.yaml:2:37: precision.optimizer is bf16, expected parallel.data.kind none, ddp or fsdp, not zero1");
  EXPECT_EQ(of("framework: pytorch\nparallel: {data: {kind: fsdp, size: 2, offload: param}}\n"),
            "s.yaml:2:37: precision.optimizer is bf16, expected parallel.data.offload: none, not param");
  EXPECT_EQ(MistakesOf(Gpt("precision: {optimizer: bf16}\nframework: pytorch\n")),
            "s.yaml:2:24: precision.optimizer is bf16, expected precision.param: bf16, not fp32");
  EXPECT_EQ(of("framework: pytorch\noptimizer: {moments: bf16}\n"), "(no error)");
  EXPECT_EQ(of("framework: pytorch\noptimizer: {moments: fp32}\n"),
            "s.yaml:4:22: optimizer.moments is fp32, expected bf16 or int8 with precision.optimizer: bf16");
  EXPECT_EQ(of("framework: pytorch\noptimizer: {moments: int8}\n"), "(no error)");
}

TEST(OptimizerErrors, ProductsAreNotInMoreBitsThanParameters) {
  EXPECT_EQ(
      MistakesOf(Gpt("precision: {param: bf16, compute: fp32}\n")),
      "s.yaml:2:35: precision.compute is 'fp32', expected precision.param (bf16) or a type of fewer bits");
  EXPECT_NE(MistakesOf(Gpt("precision: {param: fp8}\n"))
                .find("precision.param is 'fp8', expected fp32, bf16 or fp16"),
            std::string::npos);
}

TEST(OptimizerErrors, MomentsOfBf16AreOfOptimizersThatHaveMoments) {
  const auto of = [](const std::string& optimizer) {
    return MistakesOf(Gpt("optimizer: {" + optimizer + "}\n"));
  };
  EXPECT_EQ(of("moments: bf16"), "(no error)");
  EXPECT_EQ(of("kind: sgd, momentum: 0.9, moments: bf16"), "(no error)");
  EXPECT_EQ(of("kind: sgd, moments: bf16"),
            "s.yaml:2:33: optimizer.moments is bf16, expected fp32 for sgd without momentum");
  EXPECT_EQ(of("moments: fp8"), "s.yaml:2:22: optimizer.moments is 'fp8', expected fp32, bf16 or int8");
}

TEST(OptimizerErrors, MomentsIn8BitsAreOfWholeTensors) {
  const auto of = [](const std::string& rest, const std::string& optimizer = "") {
    return MistakesOf(Gpt("optimizer: {moments: int8" + optimizer + "}\n" + rest));
  };
  EXPECT_EQ(of(""), "(no error)");
  EXPECT_EQ(of("parallel: {data: {kind: fsdp, size: 2}}\n"), "(no error)");
  EXPECT_EQ(of("", ", kind: muon"),
            "s.yaml:2:22: optimizer.moments is int8, expected optimizer.kind: adam or adamw, not muon");
  EXPECT_EQ(of("parallel: {data: {kind: zero1, size: 2}}\n"),
            "s.yaml:2:22: optimizer.moments is int8, expected parallel.data.kind none, ddp, dp or fsdp, not "
            "zero1");
  EXPECT_EQ(
      of("parallel: {data: {kind: fsdp, size: 2, version: 1}}\n"),
      "s.yaml:2:22: optimizer.moments is int8, expected parallel.data.version: 2, whose shards are parts "
      "of single parameters");
  EXPECT_EQ(of("parallel: {data: {kind: fsdp, size: 2, offload: param}}\n"),
            "s.yaml:2:22: optimizer.moments is int8, whose updates are kernels of devices; expected "
            "parallel.data.offload: none, not param");
  EXPECT_EQ(of("framework: megatron_core\n"),
            "s.yaml:2:22: optimizer.moments is int8, expected framework windtunnel, pytorch or "
            "pytorch_compile, not megatron_core");
}

TEST(OptimizerErrors, UpdatesInBackwardNeedNoOtherGradients) {
  const auto of = [](const std::string& rest, const std::string& optimizer = "") {
    return MistakesOf(Gpt("optimizer: {in_backward: true" + optimizer + "}\n" + rest));
  };
  const std::string is_true = "s.yaml:2:26: optimizer.in_backward is true, expected ";
  EXPECT_EQ(of(""), "(no error)");
  EXPECT_EQ(of("parallel: {data: {kind: fsdp, size: 2}}\n"), "(no error)");
  EXPECT_EQ(
      of("parallel: {data: {size: 2}}\n"),
      is_true +
          "parallel.data.kind: fsdp, or one data-parallel rank, not ddp over 2 ranks: gradients would be "
          "used before DDP has reduced them");
  EXPECT_EQ(
      of("parallel: {data: {kind: fsdp, size: 2}}\nsearch: {kind: [fsdp, ddp]}\n"),
      is_true +
          "parallel.data.kind: fsdp, or one data-parallel rank, not ddp over 2 ranks: gradients would be "
          "used before DDP has reduced them");
  EXPECT_EQ(of("parallel: {data: {kind: fsdp, size: 2, version: 1}}\n"),
            is_true + "parallel.data.version: 2, which reduces gradients of parameters");
  EXPECT_EQ(of("parallel: {data: {kind: zero2, size: 2}}\n"),
            is_true + "parallel.data.kind none or fsdp, not zero2");
  EXPECT_EQ(of("parallel: {data: {kind: fsdp, size: 2, offload: param}}\n"),
            is_true + "parallel.data.offload: none, not param");
  EXPECT_EQ(of("batch: {micro: 2, accumulate: 4}\n"),
            is_true + "batch.accumulate: 1, not 4: a gradient is gone once it is used");
  EXPECT_EQ(of("", ", clip_norm: 1"),
            is_true + "optimizer.clip_norm: 0, not 1: the norm is known only when backward is over");
  EXPECT_EQ(of("precision: {param: fp16}\n"),
            is_true + "precision.loss_scale: none: overflows are known only when backward is over");
  EXPECT_EQ(of("parallel: {pipeline: {size: 2}}\n"), is_true + "parallel.pipeline.size: 1, not 2");
  EXPECT_EQ(of("parallel: {tensor: {size: 2}}\n"), is_true + "parallel.tensor.size: 1, not 2");
}

}  // namespace
}  // namespace windtunnel
