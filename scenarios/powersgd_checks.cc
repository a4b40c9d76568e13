#include "scenarios/powersgd_checks.h"

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {

// A communication hook of PyTorch's DistributedDataParallel, whose ranks all have whole gradients.
void CheckPowerSgd(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  if (!parallel.data.powersgd) return;
  const char* const key = "parallel.data.powersgd";
  for (const DataParallelKind kind : KindsOf(scenario)) {
    check.Expect(kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp,
                 {key, "parallel.data.kind", "search.kind"},
                 "{} is given, expected parallel.data.kind: ddp, not {}: it is a hook of DDP's buckets", key,
                 WordOf(kind));
  }
  check.Expect(scenario.framework == Framework::kWindtunnel || IsPytorch(scenario.framework),
               {key, "framework"},
               "{} is given, expected framework pytorch, pytorch_compile or windtunnel, not {}, whose "
               "reductions have no such hook",
               key, WordOf(scenario.framework));
  const auto expect_one = [&](const char* axis, int64_t size) {
    check.Expect(size == 1, {key, axis},
                 "{} is given, expected {}: 1, not {}: all ranks share the parameters", key, axis, size);
  };
  expect_one("parallel.pipeline.size", parallel.pipeline.size);
  expect_one("parallel.tensor.size", parallel.tensor.size);
  expect_one("parallel.expert.size", parallel.expert.size);
  check.Expect(parallel.data.sync == GradientSync::kLastMicroBatch, {"parallel.data.sync", key},
               "parallel.data.sync is every_micro_batch, expected last_micro_batch with {}", key);
  check.Expect(!scenario.precision.scales_loss(), {key, "precision.loss_scale", "precision.param"},
               "{} is given, expected precision.loss_scale: none: a gradient that overflows would stay in "
               "what is added to the next step's",
               key);
}

}  // namespace windtunnel
