#include "tests/reports/sample_pipeline.h"

#include <gtest/gtest.h>

#include "cost_models/device_cost_model.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {

Scenario PipelineScenario(const SamplePipeline& sample) {
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
  if (sample.takes_turns) {
    s.model.experts = ExpertsSpec{.count = 4, .top_k = 2};
    s.parallel.data.size = 2;
    s.parallel.expert = {.size = 2, .overlap = true, .delay_wgrad = true};
    s.cluster.devices_per_node = s.WorldSize();
  }
  if (!sample.gathers_late) return s;
  s.framework = Framework::kMegatronCore;
  s.parallel.data.kind = DataParallelKind::kZero1;
  s.parallel.data.bucket_cap_mb = 64;
  s.parallel.data.overlap_param_gather = true;
  return s;
}

Plan PipelinePlanOf(const SamplePipeline& sample) {
  auto plan = CompilePlan(PipelineScenario(sample));
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

Outcome PipelineOutcome(const SamplePipeline& sample) {
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

std::vector<SamplePipeline> EverySchedule() {
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
