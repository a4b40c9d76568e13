// Threads that compose steps at once share what they make.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "cost_models/cost_model.h"
#include "plan/plan.h"
#include "sim/composed/composed_step.h"
#include "tests/sim/composed_step_testing.h"
#include "tests/sim/datasheets.h"

namespace windtunnel {
namespace {

// Wraps another cost model, counts the requests for kernels and answers them slowly. Copies do not count: each
// caller remembers those itself (composed::Costs).
class CountingModel : public CostModel {
 public:
  explicit CountingModel(const CostModel& model) : model_(model) {}
  int kernels() const { return kernels_; }

  Result<KernelCost> Kernel(const Op& op) const override {
    if (!std::holds_alternative<Copy>(op.kind)) ++kernels_;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return model_.Kernel(op);
  }
  Result<CommunicationCost> Communication(const Op& op, const Group& group) const override {
    return model_.Communication(op, group);
  }
  Distribution Dispatch() const override { return model_.Dispatch(); }
  KernelCost DispatchOf(const Op& op) const override { return model_.DispatchOf(op); }
  bool host_computes() const override { return model_.host_computes(); }
  int cores_per_node() const override { return model_.cores_per_node(); }
  double CommonMode(double level) const override { return model_.CommonMode(level); }
  Bytes OutsideAllocator(const Plan& plan) const override { return model_.OutsideAllocator(plan); }

 private:
  const CostModel& model_;
  mutable std::atomic<int> kernels_ = 0;
};

// A search's threads reach neighbouring configurations at about the same time, and these are made of the same
// parts.
TEST(ComposedStep, IsMadeOnceByThreadsThatComeAtOnce) {
  constexpr int kThreads = 4;
  Scenario s = Base(true);
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.size = 4;
  s.parallel.pipeline = {.size = 2, .schedule = "1f1b", .virtual_stages = 1, .balance = {4, 4}};
  const Plan plan = CompilePlan(s).value();
  const auto model = MakeProfileCostModel(A100(), plan);
  const CountingModel alone(*model), shared(*model);
  ComposedSteps of_one;
  const Duration expected = of_one.Compose(s, alone, Bytes::Max()).value().Time();

  ComposedSteps steps;
  std::latch begin(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        begin.arrive_and_wait();
        EXPECT_EQ(steps.Compose(s, shared, Bytes::Max()).value().Time(), expected);
      });
  }
  EXPECT_EQ(shared.kernels(), alone.kernels());
}

}  // namespace
}  // namespace windtunnel
