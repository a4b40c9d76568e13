// What a live run measured, gathered from all ranks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/timeline.h"
#include "runtime/core_use.h"

namespace windtunnel {

struct MeasuredMemory {
  int rank = 0;
  MemoryPeak steady;        // over the measured steps
  Bytes initial_peak;       // allocated, over start-up
  Bytes resident_growth;    // of the process, from before the device existed to after the last step
  Bytes outside_allocator;  // resident_growth less the allocators' segments, the host's too
};

// A saved checkpoint: the time until the slowest rank had done its part, and the bytes of all ranks.
struct MeasuredSave {
  int64_t step = 0;  // steps done
  Duration time;
  Bytes bytes;
};

// The loss on data that training does not see, after the last step.
struct HeldOutLoss {
  double loss = 0;        // mean over all tokens (samples)
  double perplexity = 0;  // e to the loss; 0 where the loss is no cross-entropy
  int64_t sequences = 0;  // samples
};

struct Measurement {
  std::vector<Duration> step_times;  // of the measured steps in order; each the slowest rank's
  std::vector<double> losses;        // of every step, warm-up included: mean over ranks and micro-batches
  std::vector<std::vector<double>> mtp_losses;  // likewise, by module of model.mtp
  std::vector<double> gradient_norms;           // of every step, when clipping
  std::vector<double> loss_scales;              // after every step, where the loss is scaled
  // Numbers of the steps whose gradients overflowed; step_times leaves them out.
  std::vector<int64_t> skipped_steps;
  // By rank: the step whose time is the (lower) median. On a device with queues it is a step beside the
  // measured ones, since timing every operator takes time of its own.
  std::vector<Timeline> timelines;
  // Averaged over ranks and over the middle half of the steps, like Prediction's; `breakdown` is scaled to
  // the median. The time that timing operators took is in neither.
  StepBreakdown breakdown;
  std::map<std::string, Duration> by_operator;
  std::vector<RankBreakdown> by_rank;  // what `breakdown` is the mean of
  std::vector<MeasuredMemory> memory;  // by rank
  // The first step of this run; those before are in the checkpoint that it resumed from. If that had all
  // steps already, nothing is measured.
  int64_t first_step = 0;
  std::vector<MeasuredSave> saves;
  int64_t steps_after_saves = 0;  // steps that step_times leaves out because they follow a save
  std::optional<HeldOutLoss> evaluation;
  std::optional<SharedCores> cores;   // over all steps, where that can be told (runtime/core_use.h)
  std::vector<std::string> restarts;  // the reason of each
};

}  // namespace windtunnel
