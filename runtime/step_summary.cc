#include "runtime/step_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/format.h"
#include "base/json_numbers.h"
#include "runtime/learning_rate.h"
#include "runtime/run_length.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

double ToGiB(Bytes bytes) { return bytes / GiB(1); }

// "1,234,567"
std::string WithThousands(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace

std::string Serialize(const StepOfRank& step) {
  const Json json = {step.step, step.losses, step.time.picoseconds(), step.allocated.count(),
                     step.reserved.count()};
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return std::string(bytes.begin(), bytes.end());
}

Result<StepOfRank> ParseStepOfRank(const std::string& bytes) {
  try {
    const Json json = Json::from_cbor(bytes);
    StepOfRank step;
    step.step = WholeNumber<int64_t>(json.at(0));
    step.losses = json.at(1).get<std::vector<double>>();
    step.time = Picoseconds(WholeNumber<int64_t>(json.at(2)));
    step.allocated = Bytes(WholeNumber<int64_t>(json.at(3)));
    step.reserved = Bytes(WholeNumber<int64_t>(json.at(4)));
    return step;
  } catch (const Json::exception& error) {
    return Failed("cannot read a step's report from a rank: {}", error.what());
  }
}

StepSummary Summarize(const Plan& plan, const std::vector<StepOfRank>& ranks,
                      std::optional<double> gradient_norm, FlopRate peak,
                      std::optional<LossScaleState> loss_scale) {
  WT_CHECK(!ranks.empty());
  StepSummary summary;
  summary.step = ranks.front().step;
  summary.gradient_norm = gradient_norm;
  summary.loss_scale = loss_scale;
  int64_t with_loss = 0;
  for (const StepOfRank& rank : ranks) {
    summary.time = std::max(summary.time, rank.time);
    summary.allocated = std::max(summary.allocated, rank.allocated);
    summary.reserved = std::max(summary.reserved, rank.reserved);
    if (rank.losses.empty()) continue;
    const double loss = rank.losses.front();
    summary.loss += loss;
    summary.max_loss = with_loss == 0 ? loss : std::max(summary.max_loss, loss);
    summary.mtp_losses.resize(rank.losses.size() - 1);
    for (size_t i = 1; i < rank.losses.size(); ++i) summary.mtp_losses[i - 1] += rank.losses[i];
    ++with_loss;
  }
  if (with_loss > 0) summary.loss /= static_cast<double>(with_loss);
  for (double& loss : summary.mtp_losses) loss /= static_cast<double>(with_loss);
  const LearningRateScheduler& scheduler = plan.scenario.lr_scheduler;
  const int64_t index = std::max<int64_t>(summary.step, 1) - 1;
  summary.learning_rate =
      plan.scenario.optimizer.lr * LearningRateFactor(scheduler, LengthOf(plan).steps, index);
  summary.schedules_lr = scheduler.changes();
  if (plan.scenario.model.kind == ModelKind::kMlp) summary.throughput_name = "sps";
  if (summary.time <= Duration()) return summary;
  summary.tokens_per_s =
      static_cast<double>(plan.model.tokens_per_step) / plan.world_size / ToSeconds(summary.time);
  const double flops_per_s = plan.model.flops_per_token.count() * summary.tokens_per_s;
  summary.tflops = flops_per_s / 1e12;
  if (peak > FlopRate()) summary.mfu = flops_per_s / peak.flops_per_second();
  return summary;
}

std::string StepLine(const StepSummary& summary) {
  std::string line = fmt::format("step: {:2}  loss: {:>7.4f}", summary.step, UnsignedNan(summary.loss));
  for (size_t i = 0; i < summary.mtp_losses.size(); ++i)
    line += fmt::format("  mtp_{}: {:>7.4f}", i + 1, UnsignedNan(summary.mtp_losses[i]));
  if (summary.gradient_norm)
    line += fmt::format("  grad_norm: {:>7.4f}", UnsignedNan(*summary.gradient_norm));
  if (summary.schedules_lr) line += fmt::format("  lr: {:.3e}", summary.learning_rate);
  if (const auto& scale = summary.loss_scale)
    line += fmt::format("  loss_scale: {}  skipped: {}", scale->scale, scale->skipped_steps);
  // For small models on small machines: three digits where torchtitan has GiB and TFLOP/s with two decimals.
  line += fmt::format(
      "  memory: {:>8}  {}: {}  tflops: {}", FormatBytes(summary.reserved), summary.throughput_name,
      WithThousands(summary.tokens_per_s),
      summary.tflops < 1 ? fmt::format("{:.3g}", summary.tflops) : fmt::format("{:.2f}", summary.tflops));
  return line + (summary.mfu ? fmt::format("  mfu: {:.2f}%", 100 * *summary.mfu) : "  mfu: n/a");
}

EventFile::Scalars StepScalars(const StepSummary& summary) {
  EventFile::Scalars scalars = {{"loss_metrics/global_avg_loss", summary.loss},
                                {"loss_metrics/global_max_loss", summary.max_loss}};
  for (size_t i = 0; i < summary.mtp_losses.size(); ++i)
    scalars.emplace_back(fmt::format("loss_metrics/mtp_{}_loss", i + 1), summary.mtp_losses[i]);
  if (summary.gradient_norm) scalars.emplace_back("grad_norm", *summary.gradient_norm);
  scalars.emplace_back("lr", summary.learning_rate);
  if (const auto& scale = summary.loss_scale) {
    scalars.emplace_back("loss_scale", scale->scale);
    scalars.emplace_back("skipped_steps", static_cast<double>(scale->skipped_steps));
  }
  scalars.emplace_back("time_metrics/end_to_end(s)", ToSeconds(summary.time));
  scalars.emplace_back(fmt::format("throughput({})", summary.throughput_name), summary.tokens_per_s);
  scalars.emplace_back("tflops", summary.tflops);
  if (summary.mfu) scalars.emplace_back("mfu(%)", 100 * *summary.mfu);
  scalars.emplace_back("memory/max_active(GiB)", ToGiB(summary.allocated));
  scalars.emplace_back("memory/max_reserved(GiB)", ToGiB(summary.reserved));
  return scalars;
}

}  // namespace windtunnel
