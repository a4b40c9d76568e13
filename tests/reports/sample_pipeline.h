// Small pipelines, compiled and predicted on A100s, that the tests of reports share.
#pragma once

#include <string>
#include <vector>

#include "reports/outcome.h"

namespace windtunnel {

struct SamplePipeline {
  std::string schedule = "1f1b";
  int64_t ranks = 2, virtual_stages = 1, micro_batches = 4, layers = 8;
  int64_t data = 1;  // ranks, under DDP
  int64_t tensor = 1;
  int64_t hidden = 256;
  // As Megatron-Core does: hosts wait for messages, and ZeRO-1's parameters are gathered in the next forward.
  bool gathers_late = false;
  // Four experts, two on each of two data ranks: micro-batches hide each other's expert exchange.
  bool takes_turns = false;
};

Scenario PipelineScenario(const SamplePipeline& sample);
// Both fail the test if the plan or the prediction cannot be made.
Plan PipelinePlanOf(const SamplePipeline& sample);
Outcome PipelineOutcome(const SamplePipeline& sample);

// One of each named schedule, with sizes that it runs with.
std::vector<SamplePipeline> EverySchedule();

}  // namespace windtunnel
