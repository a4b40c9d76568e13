#include "scenarios/zero3_checks.h"

#include "scenarios/words.h"

namespace windtunnel {

// What DeepSpeed refuses with its third stage, and frameworks that do not have it.
void CheckZero3(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  if (parallel.data.kind != DataParallelKind::kZero3) return;
  const char* const key = "parallel.data.kind";
  check.Expect(parallel.pipeline.size == 1, {key, "parallel.pipeline.size"},
               "{} is zero3, expected zero1 in a pipeline: DeepSpeed's takes nothing that shards gradients",
               key);
  check.Expect(
      parallel.expert.size == 1, {key, "parallel.expert.size"},
      "{} is zero3, expected parallel.expert.size: 1, not {}: DeepSpeed's experts go with its stages "
      "up to 2",
      key, parallel.expert.size);
  check.Expect(parallel.data.sync == GradientSync::kEveryMicroBatch, {"parallel.data.sync", key},
               "parallel.data.sync is last_micro_batch, expected every_micro_batch for kind: zero3, which "
               "keeps no whole gradients");
  const int64_t copies = parallel.data.size * parallel.context.size, shard = parallel.data.shard_size;
  check.Expect(
      shard == 0 || shard == copies || parallel.data.offload == Offload::kNone,
      {"parallel.data.shard_size", "parallel.data.offload"},
      "parallel.data.shard_size is {}, expected all ranks with offload, whose gradients are in host memory",
      shard);
  const Framework framework = scenario.framework;
  check.Expect(framework != Framework::kMegatron && framework != Framework::kMegatronCore, {key, "framework"},
               "{} is zero3, expected zero1 with framework: {}; DeepSpeed's third stage goes with deepspeed, "
               "pytorch, pytorch_compile and windtunnel",
               key, WordOf(framework));
}

}  // namespace windtunnel
