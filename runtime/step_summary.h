// What is reported of a step as soon as it is done, with torchtitan's names and units (torchtitan,
// components/metrics.py): values, a line of text, and scalars for TensorBoard. runtime/step_reporter.h
// gathers and writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"
#include "runtime/event_file.h"

namespace windtunnel {

// One rank's part of the report.
struct StepOfRank {
  int64_t step = 0;  // steps done, this one included
  // The model's own, then by module of model.mtp; none in a pipeline before its last stage.
  std::vector<double> losses = {};
  Duration time = {};
  Bytes allocated = {}, reserved = {};  // peaks: of start-up while it lasts, then of the steps after it
};

// For the store. Parse errors are Failed: a peer of another version.
std::string Serialize(const StepOfRank& step);
Result<StepOfRank> ParseStepOfRank(const std::string& bytes);

// Over all ranks.
struct StepSummary {
  int64_t step = 0;
  double loss = 0, max_loss = 0;                  // mean and maximum over the ranks that have one
  std::vector<double> mtp_losses = {};            // likewise, by module of model.mtp
  std::optional<double> gradient_norm = {};       // before clipping; only a program that clips computes it
  double learning_rate = 0;                       // of the step's update
  bool schedules_lr = false;                      // it changes from step to step
  std::optional<LossScaleState> loss_scale = {};  // for the next step; only where the loss is scaled
  Duration time = {};                             // the slowest rank's
  Bytes allocated = {}, reserved = {};            // the largest rank's
  double tokens_per_s = 0, tflops = 0;            // per device; model FLOPs of the PaLM convention
  std::optional<double> mfu = {};                 // a fraction
  const char* throughput_name = "tps";            // "sps", samples: of an MLP
};

// `ranks` is not empty; `peak` is a device's dense peak, 0 where it is not known.
StepSummary Summarize(const Plan& plan, const std::vector<StepOfRank>& ranks,
                      std::optional<double> gradient_norm, FlopRate peak,
                      std::optional<LossScaleState> loss_scale = std::nullopt);

// "step:  3  loss:  8.3586  grad_norm:  1.2345  memory: 134 MiB  tps: 3,370  tflops: 0.11  mfu: n/a". Memory
// is what is reserved.
std::string StepLine(const StepSummary& summary);

EventFile::Scalars StepScalars(const StepSummary& summary);

}  // namespace windtunnel
