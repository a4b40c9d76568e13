#include "cost_models/block_speed.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "plan/model.h"
#include "plan/plan.h"

namespace windtunnel {
namespace {

// Of so many layers the last is like the model's last, and not the first, which has no residual stream to add.
int64_t FewestLayers(const ModelSpec& model) {
  int64_t dense = 0, period = 1;
  if (model.experts) {
    dense = model.experts->first_dense;
    period = std::lcm(period, std::max<int64_t>(model.experts->every, 1));
  }
  if (model.sliding_window) period = std::lcm(period, std::max<int64_t>(model.sliding_window->full_every, 1));
  const int64_t beyond = model.layers - dense;
  if (beyond <= 0) return model.layers;
  const int64_t fewest = dense + (beyond - 1) % period + 1;
  return fewest == 1 ? std::min(1 + period, model.layers) : fewest;
}

// The data axis of as few ranks as have each other's experts, and gather and reduce as its ranks do.
DataParallelSpec FewestRanksOf(const ParallelSpec& parallel) {
  const DataParallelSpec& all = parallel.data;
  DataParallelSpec few{.kind = all.kind, .size = parallel.ExpertDataRanks()};
  if (all.size > 1) few.size = std::max<int64_t>(few.size, 2);
  few.version = all.version;
  few.reshard_after_forward = all.reshard_after_forward;
  return few;
}

// What a block of one micro-batch depends on, and of the rest as little as makes a plan: of all ranks those that work on the same block.
Scenario OneBlockOf(const Scenario& scenario) {
  Scenario one;
  one.model = scenario.model;
  one.model.layers = FewestLayers(scenario.model);
  one.model.mtp.reset();
  one.batch.micro = scenario.batch.micro;
  one.precision = scenario.precision;
  one.recompute = scenario.recompute;
  one.recompute_modules = scenario.recompute_modules;
  one.parallel.tensor = scenario.parallel.tensor;
  one.parallel.context = scenario.parallel.context;
  one.parallel.expert = scenario.parallel.expert;
  one.parallel.expert.overlap = false;
  one.parallel.data = FewestRanksOf(scenario.parallel);
  one.cluster.device = scenario.cluster.device;
  one.cluster.devices_per_node =
      one.parallel.tensor.size * one.parallel.context.size * one.parallel.data.size;
  one.framework = scenario.framework;
  return one;
}

std::vector<const Op*> WorkOfLastBlock(const Plan& plan) {
  std::vector<const Op*> work;
  int32_t layer = 0;
  for (const Op& op : plan.roles.front().steady.ops) {
    if (op.layer < layer || op.stream != kComputeStream || op.on_host || IsCommunication(op.kind) ||
        IsMemory(op.kind) || std::holds_alternative<HostWait>(op.kind))
      continue;
    if (op.layer > layer) work.clear();
    layer = op.layer;
    work.push_back(&op);
  }
  return work;
}

bool IsFlashAttention(const OpKind& kind) {
  const auto* forward = std::get_if<AttentionForward>(&kind);
  const auto* backward = std::get_if<AttentionBackward>(&kind);
  return std::holds_alternative<ContextAttentionForward>(kind) ||
         std::holds_alternative<ContextAttentionBackward>(kind) ||
         (forward != nullptr && forward->kind == AttentionKind::kFlash) ||
         (backward != nullptr && backward->kind == AttentionKind::kFlash);
}

// What cannot be compiled, or computed on the device, has no speed: whoever asks for its costs is told why.
double SpeedIn(const Scenario& one_block, const DeviceSpec& device, const FrameworkProfile& framework) {
  const auto plan = CompilePlan(one_block, {.checks = false, .starts_up = false});
  if (!plan || plan->roles.empty()) return 1;
  const ArithmeticContext context = ArithmeticOf(one_block);
  Duration products, attention, others;
  for (const Op* op : WorkOfLastBlock(*plan)) {
    const auto time = DeviceTime(op->kind, framework, device, context);
    if (!time) return 1;
    (IsProduct(op->kind) ? products : IsFlashAttention(op->kind) ? attention : others) += *time;
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
          .recomputes = scenario.recompute == Recompute::kFull,
          .flash = KernelsOf(scenario.model.flash_kernels)};
}

double ProductSpeeds::Of(const Scenario& scenario, const DeviceSpec& device,
                         const FrameworkProfile& framework) {
  if (device.power.limit_watts == 0 || scenario.model.kind != ModelKind::kTransformer) return 1;
  const Scenario block = OneBlockOf(scenario);
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const auto& of) { return of.first == block; });
  if (found != known_.end()) return found->second;
  return known_.emplace_back(block, SpeedIn(block, device, framework)).second;
}

}  // namespace windtunnel
