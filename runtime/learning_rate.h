// The learning rate of a step.
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace windtunnel {

// What optimizer.lr is multiplied by in step `step`, counted from 0. Warm-up steps of the run and steps whose
// update is skipped count, as where a PyTorch script calls scheduler.step() after every step. torchtitan's
// schedule, with t = step + 1, `total` steps and the last `decay` of them:
//
//   t <= warmup_steps    t / warmup_steps
//   then                 1
//   the last decay       with x = (t - 1 - total + decay) / decay, at most 1: min_lr_factor + (1 - min_lr_factor) f(x)
//                        linear 1 - x, cosine (1 + cos(pi x)) / 2, sqrt 1 - sqrt(x)
//
// decay: step is torch's StepLR after the warm-up: max(gamma ^ ((step - warmup_steps) / step_size),
// min_lr_factor).
//
// `run_steps`: of the whole run (runtime/run_length.h), which are `total` unless the schedule has its own.
double LearningRateFactor(const LearningRateScheduler& scheduler, int64_t run_steps, int64_t step);

}  // namespace windtunnel
