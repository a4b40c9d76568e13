// Reading validation rows (docs/contract.md, "Validation rows"): one JSON object a line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"

namespace windtunnel {

// How published FLOP/s count (docs/contract.md): the PaLM convention; Megatron's model FLOPs; those with recomputation.
enum class FlopsConvention { kPalm, kMegatron, kMegatronHardware };

// Any subset of it is given.
struct PublishedMeasurement {
  std::optional<double> step_time_s = {};
  std::optional<double> tokens_per_s_per_device = {};
  std::optional<double> tflops_per_device = {};
  std::optional<double> mfu = {};
  std::optional<double> peak_memory_bytes = {};  // allocated
  std::optional<double> reserved_memory_bytes = {};
  std::optional<double> device_memory_used_bytes = {};
  std::optional<int64_t> memory_rank =
      {};  // the allocator's peaks are this rank's, or else the largest of all ranks'
  FlopsConvention flops_convention = FlopsConvention::kPalm;
};

struct ValidationRow {
  std::string id;
  std::string scenario;  // JSON, which is YAML too
  std::string file;      // "rows.jsonl"
  std::string place;     // "rows.jsonl:12:1"
  PublishedMeasurement measured;
};

// Errors: InvalidInput with the file and line of a row that is no JSON object, or whose keys are unknown or of the wrong type.
Result<std::vector<ValidationRow>> LoadValidationRows(const std::string& path);
Result<std::vector<ValidationRow>> ParseValidationRows(const std::string& text, const std::string& path);

// FLOPs of a token by a convention. Megatron's (Narayanan et al. 2021, section 5.1; Korthikanti et al. 2022, appendix A) count matrix
// products, the head and attention without its causality: per token 6 x the weights of the layers' products + 12 L s h + 6 h V, and with
// full recomputation 8, 16 and 6; with the attention core recomputed 6, 16 and 6.
Flops FlopsPerToken(const Plan& plan, FlopsConvention convention);

// The step's time: as given, or from tokens per second, FLOP/s, or MFU over `peak` (zero: not known), whichever comes first.
std::optional<Duration> StepTimeOf(const PublishedMeasurement& measured, const Plan& plan, FlopRate peak);

}  // namespace windtunnel
