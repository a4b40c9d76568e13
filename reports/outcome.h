// What is reported of one scenario: its plan, the costs, and the prediction or the measurement or both. Every
// report is a function of an Outcome.
//
//   Outcome outcome{.plan = plan, .profile = profile, .prediction = prediction, .measurement = measurement};
//   fmt::print("{}", ComparisonTable(outcome, Ink(false)));
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
  Profile profile;  // where the costs came from; of a run alone: this machine's, without costs
  std::optional<Prediction> prediction;
  std::optional<Measurement> measurement;
  std::optional<CostCheck> cost_check = {};    // of costs that had been kept, before the prediction
  Duration prediction_wall, measurement_wall;  // how long it took to predict and to measure
};

// "device h100-sxm-80g · profile h100-sxm-80g · framework pytorch_fsdp1"; the framework where its kernels are what is predicted.
std::string CostsInWords(const Outcome& outcome);

// "32 nodes of 8 · 8 x 400 Gb/s infiniband a node · rank 3 takes 1.3 x as long": what is not one node of devices that are alike; empty where it
// is, and where nothing is predicted from a datasheet.
std::string ClusterInWords(const Outcome& outcome);

// Percentiles of one step (not of the median).
struct StepTimes {
  Duration p10, p50, p90;
};
StepTimes StepTimesOf(const Prediction& prediction);
// REQUIRES: at least one step.
StepTimes StepTimesOf(const Measurement& measurement);

// Speed of a step of `step` in the terms of people: tokens (samples, for an MLP) per second over all ranks,
// and model FLOP/s of one device by the PaLM convention (Chowdhery et al. 2022, appendix B).
struct Throughput {
  double tokens_per_s = 0;
  FlopRate flops_per_device;
};
Throughput ThroughputOf(const Plan& plan, Duration step);

// The device's dense peak for `precision.compute`; zero where the profile does not know one (a CPU has none to be held against).
FlopRate DensePeak(const Plan& plan, const Profile& profile);
// Model FLOP/s utilisation: ThroughputOf over that peak.
std::optional<double> MfuOf(const Plan& plan, const Profile& profile, Duration step);
// Of the operations that PaLM's convention counts, those that products do at the least: no product takes an embedding that the head does not
// share, and of attention causal kernels do half. In (0, 1].
double LeastExecutedShare(const Plan& plan);

// Whether the prediction's peak, with what is outside the allocator, is within the device's memory; nothing where that is not
// known.
std::optional<bool> FitsInDevice(const Prediction& prediction);

// "only by giving back cached memory 2 times a step", where some rank's allocator has to; empty where none has.
std::string DescribeRetries(const Prediction& prediction);

// One kind of operator (a key of Prediction::by_operator), of whose times each side adds up to its p50. What one side lacks is zero.
struct OperatorRow {
  std::string name;
  Duration predicted, measured;
  double contribution =
      0;  // to the error of the step time: (predicted - measured) / measured step; 0 unless both are there
};
// Largest contribution first; with one side alone, longest time first.
std::vector<OperatorRow> OperatorRows(const Outcome& outcome);

struct RankMemory {
  int rank = 0;
  Bytes predicted, measured;  // peak allocated on the device, of the steady step
};

// A prediction held against a measurement. Signs: predicted less measured.
struct Comparison {
  double step_time = 0;          // predicted p50 / measured p50 - 1
  double bubble_fraction = 0;    // difference of the fractions
  Bytes peak_memory;             // the largest difference over ranks, as a magnitude
  double peak_memory_share = 0;  // that, over the rank's measured peak
  Bytes peak_host;               // the same for host memory
  Bytes initial_peak;            // the same as peak_memory for start-up
  Bytes resident;  // reserved and outside bytes less the growth of the process, of the rank where they differ
                   // most
  std::vector<RankMemory> ranks;
  bool step_time_within_tolerance = false, peak_memory_within_tolerance = false;

  bool within_tolerance() const { return step_time_within_tolerance && peak_memory_within_tolerance; }
};
// REQUIRES: outcome.prediction and outcome.measurement.
Comparison Compare(const Outcome& outcome);

// Whether devices have memory of their own, beside the hosts'.
bool HasDeviceMemory(const Scenario& scenario);

// What a rank is predicted to hold at most, of its device's memory: the allocator's segments, and what lies outside them. On a CPU, of its
// process's: the segments of what would be the host's memory, too. REQUIRES: outcome.prediction.
Bytes PredictedResident(const Outcome& outcome, int rank);

// Host memory that the ranks of a node take at their peaks (CPU offload), of the node where it is most.
Bytes PredictedHostMemoryOfNode(const Scenario& scenario, const Prediction& prediction);

// Memory that `rank` is predicted to use in the steady step. REQUIRES: a rank of the plan.
const PredictedMemory& PredictedMemoryOf(const Prediction& prediction, int rank);

}  // namespace windtunnel
