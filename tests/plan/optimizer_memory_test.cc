// The memory of frameworks' optimizers: master parameters, moments and workspaces.
#include <gtest/gtest.h>

#include <utility>

#include "plan/plan.h"
#include "sim/role_memory.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// In fp32: PyTorch's multi-tensor AdamW computes the roots of all second moments at once.
TEST(OptimizerMemory, PytorchsAdamWTakesAFourthTensorForAWhile) {
  const auto peak = [](Framework framework, OptimizerKind kind, bool fused = false) {
    Scenario s = TinyGpt();
    s.model.hidden = 512;  // parameters are most of the memory
    s.model.head_dim = s.model.hidden / s.model.heads;
    s.model.ffn = 2048;
    s.cluster.device = "a100-sxm-80g";
    s.optimizer.kind = kind;
    s.optimizer.fused = fused;
    s.framework = framework;
    return SimulateMemory(CompilePlan(s)->roles[0]).value().steady.requested;
  };
  Bytes parameters;
  Scenario s = TinyGpt();
  s.model.hidden = 512;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 2048;
  const Plan plan = *CompilePlan(s);
  for (const Parameter& parameter : plan.roles[0].parameters)
    parameters += SizeOf(DType::kFloat32) * parameter.elements;
  const Bytes more =
      peak(Framework::kPytorch, OptimizerKind::kAdamW) - peak(Framework::kWindtunnel, OptimizerKind::kAdamW);
  EXPECT_NEAR(more / parameters, 1, 0.1);
  EXPECT_EQ(peak(Framework::kPytorch, OptimizerKind::kSgd),
            peak(Framework::kWindtunnel, OptimizerKind::kSgd));
  EXPECT_EQ(peak(Framework::kPytorch, OptimizerKind::kAdamW, /*fused=*/true),
            peak(Framework::kWindtunnel, OptimizerKind::kAdamW));
}

// FSDP 2 shards each parameter by itself, and PyTorch's lists have a tensor for each. A unit of FSDP 1 is one
// tensor.
TEST(OptimizerMemory, RootsAreTensorByTensor) {
  const auto roots = [](int version) {
    Scenario s = TinyGpt(2);
    s.parallel.data.kind = DataParallelKind::kFsdp;
    s.parallel.data.version = version;
    s.cluster.device = "a100-sxm-80g";
    s.framework = Framework::kPytorch;
    const Plan plan = CompilePlan(s).value();
    const Role& role = plan.roles[0];
    int64_t count = 0;
    for (const MemoryOp& op : role.steady.memory)
      count += op.allocates() && role.buffers[op.buffer].name.starts_with("roots of second moments");
    return std::pair(count, static_cast<int64_t>(role.parameters.size()));
  };
  EXPECT_EQ(roots(2).first, roots(2).second);
  EXPECT_EQ(roots(1).first, TinyGpt().model.layers + 1) << "blocks, and the root";
}

// Bytes per parameter (Megatron's README, "Distributed Optimizer"): parameters and gradients, the optimizer's
// copies and moments.
TEST(OptimizerMemory, MegatronsReplicasHaveOneBufferOfGradients) {
  const auto bytes_a_parameter = [](DataParallelKind kind, Precision reduce,
                                    MomentsType moments = MomentsType::kFp32) {
    Scenario s = TinyGpt(2);
    s.model.layers = 16;  // so that the placeholders of gradients, as large as those of a layer, are little
    s.model.hidden = 512;
    s.model.head_dim = s.model.hidden / s.model.heads;
    s.model.ffn = 2048;
    s.parallel.data.kind = kind;
    s.cluster.device = "a100-sxm-80g";
    s.framework = Framework::kMegatronCore;
    s.precision.param = s.precision.compute = Precision::kBf16;
    s.precision.reduce = reduce;
    s.optimizer.moments = moments;
    const Plan plan = CompilePlan(s).value();
    double parameters = 0;
    for (const Parameter& parameter : plan.roles[0].parameters)
      parameters += static_cast<double>(parameter.elements);
    return static_cast<double>(SimulateMemory(plan.roles[0]).value().steady.requested.count()) / parameters;
  };
  EXPECT_NEAR(bytes_a_parameter(DataParallelKind::kDdp, Precision::kFp32), 18, 0.5);
  EXPECT_NEAR(bytes_a_parameter(DataParallelKind::kDdp, Precision::kBf16), 20, 0.5);
  EXPECT_NEAR(bytes_a_parameter(DataParallelKind::kZero1, Precision::kFp32), 12, 0.5);
  EXPECT_NEAR(bytes_a_parameter(DataParallelKind::kDdp, Precision::kFp32, MomentsType::kBf16), 14, 0.5);
  EXPECT_NEAR(bytes_a_parameter(DataParallelKind::kZero1, Precision::kFp32, MomentsType::kBf16), 10, 0.5);
}

// In pure bf16: parameters, gradients and two moments of two bytes each, divided by the ranks that share
// them. fp32 masters make it 16 and more.
TEST(OptimizerMemory, OfPureBf16TakesEightBytesAParameter) {
  const auto bytes_a_parameter = [](DataParallelSpec data, Precision optimizer,
                                    const OptimizerSpec& spec = {.moments = MomentsType::kBf16}) {
    Scenario s = TinyGpt();
    s.model.layers = 8;  // so that what is gathered of a block is little
    s.model.hidden = 512;
    s.model.head_dim = s.model.hidden / s.model.heads;
    s.model.ffn = 2048;
    s.parallel.data = std::move(data);
    s.cluster.device = "a100-sxm-80g";
    s.cluster.devices_per_node = s.WorldSize();
    s.framework = Framework::kPytorch;
    s.optimizer = spec;
    s.optimizer.fused = true;
    s.precision = {.param = Precision::kBf16,
                   .compute = Precision::kBf16,
                   .reduce = Precision::kBf16,
                   .optimizer = optimizer};
    if (optimizer == Precision::kFp32) s.optimizer.moments = MomentsType::kFp32;
    const Plan plan = CompilePlan(s).value();
    double parameters = 0;
    for (const Parameter& parameter : plan.roles[0].parameters)
      parameters += static_cast<double>(parameter.elements);
    return static_cast<double>(SimulateMemory(plan.roles[0]).value().steady.requested.count()) / parameters;
  };
  EXPECT_NEAR(bytes_a_parameter({}, Precision::kBf16), 8, 0.5);
  EXPECT_NEAR(bytes_a_parameter({}, Precision::kBf16, {.moments = MomentsType::kInt8}), 6.03, 0.5);
  // Of the gradients, only those of a block's largest weight are there at once.
  EXPECT_NEAR(bytes_a_parameter({}, Precision::kBf16, {.moments = MomentsType::kInt8, .in_backward = true}),
              4.03, 0.6);
  EXPECT_GT(bytes_a_parameter({}, Precision::kFp32), 16);
  DataParallelSpec fsdp;
  fsdp.kind = DataParallelKind::kFsdp;
  fsdp.size = 4;
  EXPECT_NEAR(bytes_a_parameter(fsdp, Precision::kFp32) - bytes_a_parameter(fsdp, Precision::kBf16), 8.0 / 4,
              0.2);
}

}  // namespace
}  // namespace windtunnel
