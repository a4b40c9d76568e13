// Everything that is reported about one scenario: its plan, the costs, and the prediction or the measurement
// or both. Every report is a function of an Outcome.
//
//   Outcome outcome{.plan = plan, .profile = profile, .prediction = prediction, .measurement = measurement};
//   fmt::print("{}", OutcomeTable(outcome, Ink(false)));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cost_models/cost_drift.h"
#include "cost_models/profile.h"
#include "plan/plan.h"
#include "runtime/measurement.h"
#include "sim/predict.h"

namespace windtunnel {

struct Outcome {
  Plan plan;
  Profile profile;  // where the costs came from; without a prediction, this machine's profile without costs
  std::optional<Prediction> prediction;
  std::optional<Measurement> measurement;
  std::optional<CostCheck> cost_check = {};    // of stored costs, made before the prediction
  Duration prediction_wall, measurement_wall;  // how long it took to predict and to measure
  double train_tokens = 0;  // of a whole training, whose time is reported; 0: not asked for
};

// "device h100-sxm-80g · profile h100-sxm-80g · framework pytorch_fsdp1". The framework is named only if its
// kernels are predicted from a datasheet.
std::string CostsInWords(const Outcome& outcome);

// "32 nodes of 8 · 8 x 400 Gb/s infiniband a node · rank 3 takes 1.3 x as long": the nodes, links, topology,
// straggler and jitter, as far as the scenario has them. Empty where it has none (one device), and where
// nothing is predicted from a datasheet.
std::string ClusterInWords(const Outcome& outcome);

// Percentiles of one step (not of the median).
struct StepTimes {
  Duration p10, p50, p90;
};
StepTimes StepTimesOf(const Prediction& prediction);
// REQUIRES: at least one step.
StepTimes StepTimesOf(const Measurement& measurement);

// The speed of a step that takes `step`: tokens (samples, for an MLP) per second over all ranks, and model
// FLOP/s of one device by the PaLM convention (Chowdhery et al. 2022, appendix B).
struct Throughput {
  double tokens_per_s = 0;
  FlopRate flops_per_device;
};
Throughput ThroughputOf(const Plan& plan, Duration step);

// A training of `tokens` tokens (samples, for an MLP) in steps of the predicted median: without checkpoints,
// evaluation and failures.
struct TrainingRun {
  double tokens = 0, steps = 0, seconds = 0, device_hours = 0;
};
// Nothing unless outcome.train_tokens asks for it and there is a prediction.
std::optional<TrainingRun> TrainingRunOf(const Outcome& outcome);

// The device's dense peak for `precision.compute`; zero if the profile has none, as a CPU's.
FlopRate DensePeak(const Plan& plan, const Profile& profile);
// Model FLOP/s utilisation: ThroughputOf over that peak.
std::optional<double> MfuOf(const Plan& plan, const Profile& profile, Duration step);
// The least share of the operations counted by PaLM's convention that products must execute. An embedding
// that the head does not share takes part in no product, and causal kernels do half of attention's
// operations. In (0, 1].
double LeastExecutedShare(const Plan& plan);
// The share of a step's FLOPs, by PaLM's convention, that is left if masked scores are not counted, as in
// Megatron-Core's logs: 1 where nothing is masked.
double UnmaskedShare(const Plan& plan);

// Whether the prediction's peak of reserved memory and what is outside the allocator fit in the device's
// memory together; nothing if the device's memory is not known.
std::optional<bool> FitsInDevice(const Prediction& prediction);

// Whether less than two per cent of the device's memory stay free, about as much as predicted peaks are off.
bool IsAtLimit(Bytes needed, Bytes device_memory);
// "only by giving back cached memory 2 times a step"; empty if no rank's allocator has to.
std::string DescribeRetries(const Prediction& prediction);

// One kind of operator (a key of Prediction::by_operator). Over all rows, the times of each side add up to
// its p50. A side that lacks the kind has zero.
struct OperatorRow {
  std::string name;
  Duration predicted, measured;
  // To the error of the step time: (predicted - measured) / measured step; 0 unless there are both sides.
  double contribution = 0;
};
// The largest contribution (as a magnitude) comes first; with one side alone, the longest time.
std::vector<OperatorRow> OperatorRows(const Outcome& outcome);

struct RankMemory {
  int rank = 0;
  Bytes predicted, measured;  // peak allocated on the device in the steady step
};

// A prediction compared with a measurement. Signs: predicted minus measured.
struct Comparison {
  double step_time = 0;          // predicted p50 / measured p50 - 1
  double bubble_fraction = 0;    // difference of the fractions
  Bytes peak_memory;             // the largest difference over ranks, as a magnitude
  double peak_memory_share = 0;  // the largest such difference over the rank's measured peak
  Bytes peak_host;               // the same for host memory
  Bytes initial_peak;            // the same as peak_memory for start-up
  // PredictedResident minus the growth of the process, of the rank where they differ most.
  Bytes resident;
  std::vector<RankMemory> ranks;
  bool step_time_within_tolerance = false, peak_memory_within_tolerance = false;

  bool within_tolerance() const { return step_time_within_tolerance && peak_memory_within_tolerance; }
};
// REQUIRES: outcome.prediction and outcome.measurement.
Comparison Compare(const Outcome& outcome);

// Whether devices have memory of their own, apart from the hosts'.
bool HasDeviceMemory(const Scenario& scenario);

// The most memory that a rank is predicted to hold on its device: the allocator's segments and what lies
// outside them. On a CPU this is the process's memory, which includes the segments of what would be host
// memory. REQUIRES: outcome.prediction.
Bytes PredictedResident(const Outcome& outcome, int rank);

// Host memory that the ranks of a node take at their peaks (CPU offload), of the node that takes most.
Bytes PredictedHostMemoryOfNode(const Scenario& scenario, const Prediction& prediction);

// Memory that `rank` is predicted to use in the steady step. REQUIRES: a rank of the plan.
const PredictedMemory& PredictedMemoryOf(const Prediction& prediction, int rank);

}  // namespace windtunnel
