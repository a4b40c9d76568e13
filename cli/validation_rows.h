// Reading validation rows (docs/contract.md, "Validation rows"): one JSON object per line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/plan.h"

namespace windtunnel {

// The convention that published FLOP/s follow (docs/contract.md): PaLM's; Megatron's model FLOPs; Megatron's
// with recomputation.
enum class FlopsConvention { kPalm, kMegatron, kMegatronCausal, kMegatronHardware };

// A row gives any subset of these.
struct PublishedMeasurement {
  std::optional<double> step_time_s = {};
  std::optional<double> tokens_per_s_per_device = {};
  std::optional<double> tflops_per_device = {};
  std::optional<double> mfu = {};
  std::optional<double> peak_memory_bytes = {};  // allocated
  std::optional<double> reserved_memory_bytes = {};
  std::optional<double> device_memory_used_bytes = {};
  // The allocator's peaks are this rank's; without it, the largest of all ranks'.
  std::optional<int64_t> memory_rank = {};
  FlopsConvention flops_convention = FlopsConvention::kPalm;
};

struct ValidationRow {
  std::string id;
  std::string scenario;  // JSON, which is YAML too
  std::string file;      // "rows.jsonl"
  std::string place;     // "rows.jsonl:12:1"
  PublishedMeasurement measured;
};

// Errors: InvalidInput with the file and line of a row that is not a JSON object, or whose keys are unknown
// or of the wrong type.
Result<std::vector<ValidationRow>> LoadValidationRows(const std::string& path);
Result<std::vector<ValidationRow>> ParseValidationRows(const std::string& text, const std::string& path);

// FLOPs per token by a convention. Megatron's (Narayanan et al. 2021, section 5.1; Korthikanti et al. 2022,
// appendix A) count GEMMs, the head, and attention without causality. Per token: 6 x the weights of the
// layers' GEMMs + 12 L s h + 6 h V. The factors are 8, 16 and 6 with full recomputation, and 6, 16 and 6 if
// the attention core is recomputed.
Flops FlopsPerToken(const Plan& plan, FlopsConvention convention);

// The step time: as given, or derived from tokens per second, from FLOP/s, or from MFU over `peak` (zero:
// unknown), in this order.
std::optional<Duration> StepTimeOf(const PublishedMeasurement& measured, const Plan& plan, FlopRate peak);

}  // namespace windtunnel
