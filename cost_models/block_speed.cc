#include "cost_models/block_speed.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/ceil_divide.h"
#include "plan/model.h"
#include "plan/plan.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

// The fewest layers that have one of each kind: one period, the last `model - first` layers of a model of
// `model` layers. Other layers precede them, so that they have a residual stream to add.
struct Layers {
  int64_t model = 0, first = 0;
};
Layers LastPeriodOf(const ModelSpec& model) {
  const int64_t period = model.LayerPeriod();
  int64_t before =
      model.experts && !model.has_pattern() ? CeilDivide(model.experts->first_dense, period) * period : 0;
  if (before == 0) before = period;
  const int64_t all = std::min(before + period, model.layers);
  return {all, std::max<int64_t>(all - period, 0)};
}

// Gathers and reduces as the scenario's data axis does, over as few ranks as hold all experts together
// with the context ranks.
DataParallelSpec FewestRanksOf(const ParallelSpec& parallel) {
  DataParallelSpec few = parallel.data;
  few.size = parallel.ExpertDataRanks();
  if (parallel.data.size > 1) few.size = std::max<int64_t>(few.size, 2);
  if (IsHybrid(few.sharding)) few.sharding = Sharding::kFullShard;
  few.reshard_after_forward &= few.reshard_ranks != 1;
  few.shard_size = few.reshard_ranks = 0;
  few.offload = Offload::kNone;
  few.powersgd.reset();  // compresses whole buckets, outside of blocks
  return few;
}

// The scenario reduced to what a block depends on, with as little else as makes a plan: only the ranks that
// work on the same block, and of several micro-batches two, since gradients are reduced with the last.
Scenario FewBlocksOf(const Scenario& scenario) {
  Scenario few;
  few.model = scenario.model;
  few.model.layers = LastPeriodOf(scenario.model).model;
  if (few.model.encoder) few.model.encoder->layers = std::exchange(few.model.layers, 1);
  few.model.mtp.reset();
  few.batch = {.micro = scenario.batch.micro, .accumulate = std::min<int64_t>(scenario.batch.accumulate, 2)};
  few.precision = scenario.precision;
  few.optimizer = scenario.optimizer;
  few.recompute = scenario.recompute;  // of all layers or of none
  few.recompute_modules = scenario.recompute_modules;
  few.cross_entropy = scenario.cross_entropy;
  few.parallel.tensor = scenario.parallel.tensor;
  few.parallel.context = scenario.parallel.context;
  few.parallel.expert = scenario.parallel.expert;
  few.parallel.expert.overlap = few.parallel.expert.delay_wgrad = false;
  few.parallel.data = FewestRanksOf(scenario.parallel);
  few.cluster.device = scenario.cluster.device;
  few.cluster.devices_per_node =
      few.parallel.tensor.size * few.parallel.context.size * few.parallel.data.size;
  few.framework = scenario.framework;
  return few;
}

// The device's own operators of the first micro-batch, in layers from `first` on.
std::vector<const Op*> WorkOf(const Plan& plan, int64_t first) {
  std::vector<const Op*> work;
  for (const Op& op : plan.roles.front().steady.ops) {
    const bool is_of_device = op.stream == kComputeStream && !op.on_host && !IsCommunication(op.kind) &&
                              !std::holds_alternative<HostWait>(op.kind);
    if (is_of_device && op.layer >= first && op.micro_batch == 0) work.push_back(&op);
  }
  return work;
}

// Includes eager attention's products, which are a third of it.
bool IsAttention(const OpKind& kind) {
  return std::holds_alternative<AttentionForward>(kind) || std::holds_alternative<AttentionBackward>(kind) ||
         std::holds_alternative<ContextAttentionForward>(kind) ||
         std::holds_alternative<ContextAttentionBackward>(kind);
}

// 1 for a plan that cannot be compiled, or computed on the device: whoever asks for its costs is told why.
double SpeedIn(const Scenario& blocks, int64_t first, const DeviceSpec& device,
               const FrameworkProfile& framework) {
  const auto plan = CompilePlan(blocks, {.checks = false, .starts_up = false});
  if (!plan || plan->roles.empty()) return 1;
  constexpr double kAtOnce = 1e9;
  ArithmeticContext alone = ArithmeticOf(blocks), at_once = alone;
  at_once.product_speed = kAtOnce;
  Duration products, attention, others;
  for (const Op* op : WorkOf(*plan, first)) {
    const auto time = DeviceTime(op->kind, framework, device, alone);
    if (!time) return 1;
    if (IsProduct(op->kind)) {
      // The time of its launch, and of its traffic where that is longer, does not depend on the clock.
      const Duration other = DeviceTime(op->kind, framework, device, at_once).value();
      products += *time - other;
      others += other;
    } else {
      (IsAttention(op->kind) ? attention : others) += *time;
    }
  }
  return ProductSpeed(device.power, products, attention, others);
}

std::optional<FlashKernels> KernelsOf(FlashChoice choice) {
  switch (choice) {
    case FlashChoice::kFramework:
      return std::nullopt;
    case FlashChoice::kFlashAttention2:
      return FlashKernels::kFlashAttention2;
    case FlashChoice::kCudnn:
      return FlashKernels::kCudnn;
  }
  return std::nullopt;
}

}  // namespace

ArithmeticContext ArithmeticOf(const Scenario& scenario) {
  return {.tf32 = scenario.precision.compute == Precision::kTf32,
          .parameters = TypesOf(scenario.precision).storage,
          .recomputed = scenario.RecomputedShare(),
          .flash = KernelsOf(scenario.model.flash_kernels)};
}

double ProductSpeeds::Of(const Scenario& scenario, const DeviceSpec& device,
                         const FrameworkProfile& framework) {
  if (device.power.limit_watts == 0 || scenario.model.kind != ModelKind::kTransformer) return 1;
  const Scenario block = FewBlocksOf(scenario);
  {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const auto& of) { return of.first == block; });
    if (found != known_.end()) return found->second;
  }
  const double speed = SpeedIn(block, LastPeriodOf(scenario.model).first, device, framework);
  std::lock_guard lock(mutex_);
  known_.emplace_back(block, speed);  // possibly by several threads, which all found the same speed
  return speed;
}

}  // namespace windtunnel
