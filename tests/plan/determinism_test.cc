// run.deterministic: which operators are marked, and which key their costs have.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

Scenario OnGpu(Scenario s) {
  s.model.attention = AttentionKind::kFlash;
  s.precision.param = s.precision.compute = Precision::kBf16;
  s.cluster.device = "cuda";
  s.run.deterministic = true;
  return s;
}

// The number of a step's backward attention operators, and of those that are deterministic.
struct Counts {
  int backward = 0, deterministic = 0;
  bool operator==(const Counts&) const = default;
};
Counts CountsOf(const Scenario& scenario) {
  const auto plan = CompilePlan(scenario);
  if (!plan) throw std::runtime_error(plan.error().message);
  Counts counts;
  for (const Op& op : plan->roles[0].steady.ops) {
    const auto* backward = std::get_if<AttentionBackward>(&op.kind);
    if (backward == nullptr) continue;
    ++counts.backward;
    counts.deterministic += backward->deterministic;
  }
  return counts;
}

TEST(Determinism, IsAskedOfFlashAttentionsBackwardIn16BitsOnAGpu) {
  const Counts all = CountsOf(OnGpu(TinyLlama()));
  EXPECT_GT(all.backward, 0);
  EXPECT_EQ(all.deterministic, all.backward);
  Scenario ulysses = OnGpu(TinyLlama());
  ulysses.parallel.context = {.size = 2, .kind = ContextKind::kUlysses};
  ulysses.cluster.devices_per_node = 2;
  EXPECT_EQ(CountsOf(ulysses), all);
}

TEST(Determinism, ChangesNothingWhereKernelsRepeatTheirBitsAnyway) {
  Scenario on_cpu = OnGpu(TinyLlama()), eager = OnGpu(TinyLlama()), fp32 = OnGpu(TinyLlama()),
           not_asked = OnGpu(TinyLlama());
  on_cpu.cluster.device = "cpu";
  eager.model.attention = AttentionKind::kEager;
  fp32.precision.param = fp32.precision.compute = Precision::kFp32;
  not_asked.run.deterministic = false;
  for (const Scenario& scenario : {on_cpu, eager, fp32, not_asked}) {
    EXPECT_EQ(CountsOf(scenario).deterministic, 0);
    EXPECT_GT(CountsOf(scenario).backward, 0);
  }
}

TEST(Determinism, HasCostsOfItsOwn) {
  AttentionBackward op{2, 16, 4, 2, 8, AttentionKind::kFlash, DType::kBFloat16};
  EXPECT_EQ(CostKey(op), "attention_backward flash bf16 b=2 s=16 h=4 kv=2 d=8");
  op.deterministic = true;
  EXPECT_EQ(CostKey(op), "attention_backward flash bf16 b=2 s=16 h=4 kv=2 d=8 deterministic");
}

}  // namespace
}  // namespace windtunnel
