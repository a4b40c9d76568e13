#include "scenarios/optimizer_checks.h"

#include <vector>

#include "scenarios/derived.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// The scenario's own, and those that a search goes through.
std::vector<DataParallelKind> KindsOf(const Scenario& scenario) {
  std::vector<DataParallelKind> kinds = {scenario.parallel.data.kind};
  if (scenario.search) kinds.insert(kinds.end(), scenario.search->kind.begin(), scenario.search->kind.end());
  return kinds;
}

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
  check.Expect(scenario.optimizer.moments == MomentsType::kBf16, {"optimizer.moments", "precision.optimizer"},
               "optimizer.moments is {}, expected bf16 with precision.optimizer: bf16",
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

void CheckMoments(const Scenario& scenario, Checker& check) {
  const OptimizerSpec& optimizer = scenario.optimizer;
  const bool is_sgd = optimizer.kind == OptimizerKind::kSgd, is_muon = optimizer.kind == OptimizerKind::kMuon;
  const bool has_momentum = optimizer.momentum > 0;
  check.Expect(!has_momentum || is_sgd || is_muon, {"optimizer.momentum"},
               "optimizer.momentum is {}, expected 0 unless kind is sgd or muon", optimizer.momentum);
  check.Expect(has_momentum || !is_sgd || optimizer.moments == MomentsType::kFp32 ||
                   scenario.precision.optimizer == Precision::kBf16,
               {"optimizer.moments"}, "optimizer.moments is {}, expected fp32 for sgd without momentum",
               WordOf(optimizer.moments));
}

}  // namespace

void CheckOptimizer(const Scenario& scenario, Checker& check) {
  CheckPureBf16(scenario, check);
  CheckMoments(scenario, check);
  CheckMuon(scenario, check);
  CheckZeroRedundancy(scenario, check);
}

}  // namespace windtunnel
