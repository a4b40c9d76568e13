// Small pipelines, compiled and predicted on A100s, that the tests of reports share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cost_models/device_cost_model.h"
#include "reports/outcome.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {

struct SamplePipeline {
  std::string schedule = "1f1b";
  int64_t ranks = 2, virtual_stages = 1, micro_batches = 4, layers = 8;
  int64_t data = 1;  // ranks, under DDP
  int64_t tensor = 1;
  int64_t hidden = 256;
  // Megatron-Core's: hosts wait for messages, and ZeRO-1's parameters come with the next forward.
  bool gathers_late = false;
};

inline Scenario PipelineScenario(const SamplePipeline& sample) {
  Scenario s = TinyGpt(sample.data);
  s.name = "pipeline";
  s.model.layers = sample.layers;
  s.model.hidden = sample.hidden;
  s.model.head_dim = s.model.hidden / s.model.heads;
  s.model.ffn = 4 * sample.hidden;
  s.batch.accumulate = sample.micro_batches;
  s.parallel.pipeline.size = sample.ranks;
  s.parallel.pipeline.schedule = sample.schedule;
  s.parallel.pipeline.virtual_stages = sample.virtual_stages;
  s.cluster.device = "a100-sxm-80g";
  s.cluster.devices_per_node = sample.ranks * sample.data * sample.tensor;
  s.parallel.tensor.size = sample.tensor;
  s.cluster.network.intra_node.kind = "nvlink3";
  if (!sample.gathers_late) return s;
  s.framework = Framework::kMegatronCore;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.bucket_cap_mb = 64;
  s.parallel.data.overlap_param_gather = true;
  return s;
}

inline Plan PipelinePlanOf(const SamplePipeline& sample) {
  auto plan = CompilePlan(PipelineScenario(sample));
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

inline Outcome PipelineOutcome(const SamplePipeline& sample) {
  Outcome outcome;
  outcome.plan = PipelinePlanOf(sample);
  auto device = ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g");
  EXPECT_TRUE(device) << device.error().message;
  auto prediction = Predict(outcome.plan, *MakeDeviceCostModel(*device, outcome.plan), {});
  EXPECT_TRUE(prediction) << prediction.error().message;
  outcome.profile.name = "a100-sxm-80g";
  outcome.prediction = *prediction;
  return outcome;
}

// One of each named schedule, with sizes that it runs with.
inline std::vector<SamplePipeline> EverySchedule() {
  return {{.schedule = "none"},
          {.schedule = "gpipe"},
          {.schedule = "1f1b"},
          {.schedule = "interleaved", .virtual_stages = 2},
          {.schedule = "looped_bfs", .virtual_stages = 2},
          {.schedule = "zb_h1"},
          {.schedule = "zb_v", .virtual_stages = 2},
          {.schedule = "dualpipe_v", .virtual_stages = 2}};
}

}  // namespace windtunnel
