#include "scenarios/unused_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// Collects the keys that have no effect for one reason (the value of another key).
class Unused {
 public:
  explicit Unused(std::string reason) : reason_(std::move(reason)) {}

  template <typename T>
  void Add(const char* key, const T& value, const T& by_default, bool is_read) {
    if (!is_read && value != by_default) keys_.emplace_back(key);
  }
  void AppendTo(std::vector<std::string>& lines) const {
    if (keys_.empty()) return;
    lines.push_back(fmt::format("{} {} no effect with {}", fmt::join(keys_, ", "),
                                keys_.size() == 1 ? "has" : "have", reason_));
  }

 private:
  std::string reason_;
  std::vector<std::string> keys_;
};

void AddDataKeys(const Scenario& scenario, std::vector<std::string>& lines) {
  const DataParallelSpec& data = scenario.parallel.data;
  const DataParallelSpec unset;
  const bool is_fsdp = data.kind == DataParallelKind::kFsdp, is_ddp = data.kind == DataParallelKind::kDdp,
             is_zero3 = data.kind == DataParallelKind::kZero3;
  const bool has_buckets =
      HasOverlapKey(data.kind) || (data.kind == DataParallelKind::kNone && HasMegatronsBuffers(scenario));
  // Megatron-Core's reducer has neither of the two keys that depend on this.
  const bool is_pytorchs = scenario.framework != Framework::kMegatronCore;
  Unused kind(fmt::format("parallel.data.kind: {}", WordOf(data.kind)));
  kind.Add("parallel.data.sharding", data.sharding, unset.sharding, is_fsdp);
  kind.Add("parallel.data.version", data.version, unset.version, is_fsdp);
  if (!scenario.derived.reshard_after_forward)
    kind.Add("parallel.data.reshard_after_forward", data.reshard_after_forward && data.reshard_ranks == 0,
             true, is_fsdp);
  kind.Add("parallel.data.forward_prefetch", data.forward_prefetch, unset.forward_prefetch, is_fsdp);
  kind.Add("parallel.data.wrap", data.wrap, unset.wrap, is_fsdp);
  kind.Add("parallel.data.prefetch", data.prefetch, unset.prefetch, is_fsdp);
  kind.Add("parallel.data.limit_all_gathers", data.limit_all_gathers, unset.limit_all_gathers, is_fsdp);
  kind.Add("parallel.data.zero3", data.zero3, unset.zero3, is_zero3);
  kind.Add("parallel.data.shard_size", data.shard_size, unset.shard_size,
           is_fsdp || is_zero3 || IsZero(data.kind));
  kind.Add("parallel.data.bucket_cap_mb", data.bucket_cap_mb, unset.bucket_cap_mb, has_buckets);
  kind.Add("parallel.data.overlap", data.overlap, unset.overlap, has_buckets);
  kind.Add("parallel.data.find_unused_parameters", data.find_unused_parameters, unset.find_unused_parameters,
           is_ddp);
  kind.Add("parallel.data.gradient_as_bucket_view", data.gradient_as_bucket_view,
           unset.gradient_as_bucket_view, is_ddp);
  kind.AppendTo(lines);
  if (data.powersgd && !is_ddp)
    lines.emplace_back("parallel.data.powersgd has no effect with one data-parallel rank");
  Unused framework(fmt::format("framework: {}", WordOf(scenario.framework)));
  framework.Add("parallel.data.find_unused_parameters", data.find_unused_parameters,
                unset.find_unused_parameters, !is_ddp || is_pytorchs);
  framework.Add("parallel.data.gradient_as_bucket_view", data.gradient_as_bucket_view,
                unset.gradient_as_bucket_view, !is_ddp || is_pytorchs);
  framework.Add("optimizer.fused", scenario.optimizer.fused, false, IsPytorch(scenario.framework));
  framework.AppendTo(lines);
  Unused sharding(fmt::format("parallel.data.sharding: {}", WordOf(data.sharding)));
  sharding.Add("parallel.data.shard_size", data.shard_size, unset.shard_size,
               !is_fsdp || IsHybrid(data.sharding));
  sharding.AppendTo(lines);
  Unused version("parallel.data.version: 2");
  version.Add("parallel.data.limit_all_gathers", data.limit_all_gathers, unset.limit_all_gathers,
              !is_fsdp || data.version == 1);
  version.AppendTo(lines);
}

void AddAttentionKeys(const ModelSpec& model, std::vector<std::string>& lines) {
  if (!model.has_pattern() || model.AnyLayer(ModelSpec::HasAttention)) return;
  const ModelSpec unset;
  Unused pattern(fmt::format("{}.pattern: {}", model.pattern_block(), model.pattern()));
  pattern.Add("model.attention", model.attention, unset.attention, false);
  pattern.Add("model.qk_norm", model.qk_norm, unset.qk_norm, false);
  pattern.Add("model.attention_gate", model.attention_gate, unset.attention_gate, false);
  pattern.AppendTo(lines);
}

void AddTokenPredictionKeys(const Scenario& scenario, std::vector<std::string>& lines) {
  if (!scenario.model.mtp) return;
  const TokenPredictionSpec &mtp = *scenario.model.mtp, unset;
  Unused layers(fmt::format("model.mtp.layers: {}", mtp.layers));
  layers.Add("model.mtp.repeated", mtp.repeated, unset.repeated, mtp.layers > 1);
  layers.AppendTo(lines);
  Unused compute(fmt::format("precision.compute: {}", WordOf(scenario.precision.compute)));
  compute.Add("model.mtp.fp8", mtp.fp8, unset.fp8, scenario.precision.compute == Precision::kFp8);
  compute.AppendTo(lines);
}

void AddSchedulerKeys(const Scenario& scenario, std::vector<std::string>& lines) {
  const LearningRateScheduler &scheduler = scenario.lr_scheduler, unset;
  const bool steps = scheduler.decay == LearningRateDecay::kStep;
  const bool ends = !steps && scheduler.decay != LearningRateDecay::kNone;
  Unused decay(fmt::format("lr_scheduler.decay: {}", WordOf(scheduler.decay)));
  decay.Add("lr_scheduler.total_steps", scheduler.total_steps, unset.total_steps, ends);
  decay.Add("lr_scheduler.min_lr_factor", scheduler.min_lr_factor, unset.min_lr_factor, ends);
  decay.Add("lr_scheduler.step_size", scheduler.step_size, unset.step_size, steps);
  decay.Add("lr_scheduler.gamma", scheduler.gamma, unset.gamma, steps);
  decay.AppendTo(lines);
}

void AddOptimizerKeys(const Scenario& scenario, std::vector<std::string>& lines) {
  const OptimizerSpec &optimizer = scenario.optimizer, unset;
  const bool is_muon = optimizer.kind == OptimizerKind::kMuon;
  Unused kind(fmt::format("optimizer.kind: {}", WordOf(optimizer.kind)));
  kind.Add("optimizer.ns_steps", optimizer.ns_steps, unset.ns_steps, is_muon);
  kind.Add("optimizer.adjust_lr", optimizer.adjust_lr, unset.adjust_lr, is_muon);
  kind.AppendTo(lines);
  Unused sharing(fmt::format("optimizer.zero_redundancy: {}", optimizer.zero_redundancy));
  sharing.Add("optimizer.parameters_as_bucket_view", optimizer.parameters_as_bucket_view, false,
              optimizer.zero_redundancy);
  sharing.AppendTo(lines);
  if (optimizer.zero_redundancy && !SharesUpdates(scenario))
    lines.emplace_back("optimizer.zero_redundancy has no effect with one data-parallel rank");
  Unused moments(fmt::format("optimizer.moments: {}", WordOf(optimizer.moments)));
  moments.Add("optimizer.fused", optimizer.fused, false, optimizer.moments != MomentsType::kInt8);
  moments.AppendTo(lines);
  const bool has_hidden = scenario.model.kind == ModelKind::kTransformer || scenario.model.widths.size() > 3;
  if (is_muon && !has_hidden)
    lines.emplace_back(
        "optimizer.kind: muon is AdamW here: model.widths has no layer between the first and the last");
}

}  // namespace

std::vector<std::string> KeysWithoutEffect(const Scenario& scenario) {
  std::vector<std::string> lines;
  if (scenario.search) return lines;
  const ParallelSpec& parallel = scenario.parallel;
  const ParallelSpec unset;
  AddDataKeys(scenario, lines);
  AddOptimizerKeys(scenario, lines);
  AddAttentionKeys(scenario.model, lines);
  AddTokenPredictionKeys(scenario, lines);
  AddSchedulerKeys(scenario, lines);
  Unused pipeline("parallel.pipeline.size: 1");
  pipeline.Add("parallel.pipeline.schedule", parallel.pipeline.schedule, unset.pipeline.schedule,
               parallel.pipeline.size > 1);
  pipeline.Add("parallel.pipeline.mtp", parallel.pipeline.mtp, unset.pipeline.mtp,
               parallel.pipeline.size > 1);
  pipeline.AppendTo(lines);
  Unused model("no model.mtp");
  model.Add("parallel.pipeline.mtp", parallel.pipeline.mtp, unset.pipeline.mtp,
            scenario.model.mtp || parallel.pipeline.size == 1);
  model.AppendTo(lines);
  Unused tensor("parallel.tensor.size: 1");
  tensor.Add("parallel.tensor.sequence", parallel.tensor.sequence, unset.tensor.sequence,
             parallel.tensor.size > 1);
  tensor.AppendTo(lines);
  Unused context("parallel.context.size: 1");
  context.Add("parallel.context.kind", parallel.context.kind, unset.context.kind, parallel.context.size > 1);
  context.AppendTo(lines);
  return lines;
}

}  // namespace windtunnel
