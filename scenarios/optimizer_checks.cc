#include "scenarios/optimizer_checks.h"

#include <vector>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// The optimizer updates the bf16 parameters directly: model.to(torch.bfloat16) with torch.optim.
void CheckPureBf16(const Scenario& scenario, Checker& check) {
  const PrecisionSpec& precision = scenario.precision;
  if (precision.optimizer != Precision::kBf16) return;
  const DataParallelSpec& data = scenario.parallel.data;
  check.Expect(precision.param == Precision::kBf16, {"precision.optimizer", "precision.param"},
               "precision.optimizer is bf16, expected precision.param: bf16, not {}",
               WordOf(precision.param));
  check.Expect(
      IsPytorch(scenario.framework), {"precision.optimizer", "framework"},
      "precision.optimizer is bf16, expected framework pytorch or pytorch_compile, which train so, not {}",
      WordOf(scenario.framework));
  for (const DataParallelKind kind : KindsOf(scenario)) {
    const bool is_known =
        kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp || kind == DataParallelKind::kFsdp;
    check.Expect(is_known, {"precision.optimizer", "parallel.data.kind", "search.kind"},
                 "precision.optimizer is bf16, expected parallel.data.kind none, ddp or fsdp, not {}",
                 WordOf(kind));
  }
  check.Expect(scenario.optimizer.moments != MomentsType::kFp32, {"optimizer.moments", "precision.optimizer"},
               "optimizer.moments is {}, expected bf16 or int8 with precision.optimizer: bf16",
               WordOf(scenario.optimizer.moments));
  check.Expect(data.offload == Offload::kNone, {"precision.optimizer", "parallel.data.offload"},
               "precision.optimizer is bf16, expected parallel.data.offload: none, not {}",
               WordOf(data.offload));
}

// Newton-Schulz iterations need whole matrices in fp32.
void CheckMuon(const Scenario& scenario, Checker& check) {
  if (scenario.optimizer.kind != OptimizerKind::kMuon) return;
  for (const DataParallelKind kind : KindsOf(scenario)) {
    const bool has_whole_matrices =
        kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp || kind == DataParallelKind::kDp;
    check.Expect(
        has_whole_matrices, {"optimizer.kind", "parallel.data.kind", "search.kind"},
        "optimizer.kind is muon, which updates whole matrices; expected parallel.data.kind none, ddp "
        "or dp, not {}, which shards them",
        WordOf(kind));
  }
  check.Expect(scenario.precision.optimizer == Precision::kFp32, {"optimizer.kind", "precision.optimizer"},
               "optimizer.kind is muon, expected precision.optimizer: fp32, not {}",
               WordOf(scenario.precision.optimizer));
  check.Expect(!scenario.optimizer.fused, {"optimizer.fused", "optimizer.kind"},
               "optimizer.fused is true, expected false for muon, which torch.optim has no fused form of");
}

// The optimizer of torch.distributed.optim, beside DistributedDataParallel over all ranks.
void CheckZeroRedundancy(const Scenario& scenario, Checker& check) {
  if (!scenario.optimizer.zero_redundancy) return;
  const char* const key = "optimizer.zero_redundancy";
  for (const DataParallelKind kind : KindsOf(scenario)) {
    const bool is_replicated = kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp;
    check.Expect(is_replicated, {key, "parallel.data.kind", "search.kind"},
                 "{} is true, expected parallel.data.kind: ddp, not {}{}", key, WordOf(kind),
                 kind == DataParallelKind::kDp ? "" : ", which shards optimizer states itself");
  }
  check.Expect(scenario.framework == Framework::kWindtunnel || IsPytorch(scenario.framework),
               {key, "framework"},
               "{} is true, expected framework pytorch, pytorch_compile or windtunnel, not {}: PyTorch's "
               "ZeroRedundancyOptimizer is not used there",
               key, WordOf(scenario.framework));
  const ParallelSpec& parallel = scenario.parallel;
  check.Expect(
      parallel.data.size <= kMostUpdateRanks, {"parallel.data.size", key},
      "parallel.data.size is {}, expected at most {} with {}, since the program of every rank is simulated",
      parallel.data.size, kMostUpdateRanks, key);
  const auto expect_one = [&](const char* axis, int64_t size) {
    check.Expect(size == 1, {key, axis}, "{} is true, expected {}: 1, not {}: all ranks share the parameters",
                 key, axis, size);
  };
  expect_one("parallel.pipeline.size", parallel.pipeline.size);
  expect_one("parallel.tensor.size", parallel.tensor.size);
  expect_one("parallel.context.size", parallel.context.size);
  expect_one("parallel.expert.size", parallel.expert.size);
}

// Of whole parameters, or of the parts of each that FSDP 2 has: the optimizers of bitsandbytes and torchao see
// each parameter as a tensor of its own.
void CheckMomentsIn8Bits(const Scenario& scenario, Checker& check) {
  const OptimizerSpec& optimizer = scenario.optimizer;
  if (optimizer.moments != MomentsType::kInt8) return;
  check.Expect(optimizer.kind == OptimizerKind::kAdam || optimizer.kind == OptimizerKind::kAdamW,
               {"optimizer.moments", "optimizer.kind"},
               "optimizer.moments is int8, expected optimizer.kind: adam or adamw, not {}",
               WordOf(optimizer.kind));
  for (const DataParallelKind kind : KindsOf(scenario)) {
    check.Expect(!IsZero(kind) && kind != DataParallelKind::kZero3,
                 {"optimizer.moments", "parallel.data.kind", "search.kind"},
                 "optimizer.moments is int8, expected parallel.data.kind none, ddp, dp or fsdp, not {}",
                 WordOf(kind));
    check.Expect(kind != DataParallelKind::kFsdp || scenario.parallel.data.version == 2,
                 {"optimizer.moments", "parallel.data.version"},
                 "optimizer.moments is int8, expected parallel.data.version: 2, whose shards are parts of "
                 "single parameters");
  }
  const Offload offload = scenario.parallel.data.offload;
  check.Expect(offload == Offload::kNone, {"optimizer.moments", "parallel.data.offload"},
               "optimizer.moments is int8, whose updates are kernels of devices; expected "
               "parallel.data.offload: none, not {}",
               WordOf(offload));
  check.Expect(scenario.framework == Framework::kWindtunnel || IsPytorch(scenario.framework),
               {"optimizer.moments", "framework"},
               "optimizer.moments is int8, expected framework windtunnel, pytorch or pytorch_compile, not {}",
               WordOf(scenario.framework));
}

// Whoever looks at all gradients together, or adds to them later, cannot do without any of them.
void CheckInBackward(const Scenario& scenario, Checker& check) {
  const OptimizerSpec& optimizer = scenario.optimizer;
  if (!optimizer.in_backward) return;
  const char* const key = "optimizer.in_backward";
  const ParallelSpec& parallel = scenario.parallel;
  const DataParallelSpec& data = parallel.data;
  for (const DataParallelKind kind : KindsOf(scenario)) {
    if (kind == DataParallelKind::kFsdp) {
      check.Expect(data.version == 2, {key, "parallel.data.version"},
                   "{} is true, expected parallel.data.version: 2, which reduces gradients of parameters",
                   key);
      check.Expect(data.offload == Offload::kNone, {key, "parallel.data.offload"},
                   "{} is true, expected parallel.data.offload: none, not {}", key, WordOf(data.offload));
      continue;
    }
    const bool is_replicated = kind == DataParallelKind::kNone || kind == DataParallelKind::kDdp;
    check.Expect(is_replicated, {key, "parallel.data.kind", "search.kind"},
                 "{} is true, expected parallel.data.kind none or fsdp, not {}", key, WordOf(kind));
    if (!is_replicated) continue;
    const int64_t ranks = data.size * parallel.context.size;
    check.Expect(
        ranks == 1, {key, "parallel.data.size", "parallel.context.size", "search.kind"},
        "{} is true, expected parallel.data.kind: fsdp, or one data-parallel rank, not {} over {} ranks: "
        "gradients would be used before DDP has reduced them",
        key, WordOf(kind), ranks);
  }
  check.Expect(scenario.batch.accumulate == 1, {key, "batch.accumulate"},
               "{} is true, expected batch.accumulate: 1, not {}: a gradient is gone once it is used", key,
               scenario.batch.accumulate);
  check.Expect(optimizer.clip_norm == 0, {key, "optimizer.clip_norm"},
               "{} is true, expected optimizer.clip_norm: 0, not {}: the norm is known only when backward is "
               "over",
               key, optimizer.clip_norm);
  check.Expect(
      !scenario.precision.scales_loss(), {key, "precision.loss_scale"},
      "{} is true, expected precision.loss_scale: none: overflows are known only when backward is over", key);
  check.Expect(!optimizer.zero_redundancy, {key, "optimizer.zero_redundancy"},
               "{} is true, expected optimizer.zero_redundancy: false", key);
  const auto expect_one = [&](const char* axis, int64_t size) {
    check.Expect(size == 1, {key, axis}, "{} is true, expected {}: 1, not {}", key, axis, size);
  };
  expect_one("parallel.pipeline.size", parallel.pipeline.size);
  expect_one("parallel.tensor.size", parallel.tensor.size);
  expect_one("parallel.expert.size", parallel.expert.size);
  check.Expect(scenario.framework == Framework::kWindtunnel || IsPytorch(scenario.framework),
               {key, "framework"},
               "{} is true, expected framework pytorch, pytorch_compile or windtunnel, not {}", key,
               WordOf(scenario.framework));
}

void CheckMoments(const Scenario& scenario, Checker& check) {
  const OptimizerSpec& optimizer = scenario.optimizer;
  const bool is_sgd = optimizer.kind == OptimizerKind::kSgd, is_muon = optimizer.kind == OptimizerKind::kMuon;
  const bool has_momentum = optimizer.momentum > 0;
  check.Expect(!has_momentum || is_sgd || is_muon, {"optimizer.momentum"},
               "optimizer.momentum is {}, expected 0 unless kind is sgd or muon", optimizer.momentum);
  const bool has_other_moments =
      optimizer.moments == MomentsType::kBf16 && scenario.precision.optimizer != Precision::kBf16;
  check.Expect(has_momentum || !is_sgd || !has_other_moments, {"optimizer.moments"},
               "optimizer.moments is {}, expected fp32 for sgd without momentum", WordOf(optimizer.moments));
}

}  // namespace

void CheckOptimizer(const Scenario& scenario, Checker& check) {
  CheckPureBf16(scenario, check);
  CheckMoments(scenario, check);
  CheckMomentsIn8Bits(scenario, check);
  CheckMuon(scenario, check);
  CheckZeroRedundancy(scenario, check);
  CheckInBackward(scenario, check);
}

}  // namespace windtunnel
