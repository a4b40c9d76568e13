#include "reports/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "scenarios/checks.h"
#include "scenarios/derived.h"
#include "scenarios/framework_doubts.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// One change, applied to a scenario; false where it changes nothing.
using Change = std::function<bool(Remedy&)>;

// All layers instead of some.
bool RecomputeAllLayers(Remedy& remedy) {
  Scenario& scenario = remedy.scenario;
  if (!scenario.RecomputesSomeLayers()) return false;
  if (scenario.recompute_layers > 0) remedy.settings.emplace_back("recompute_layers=0");
  if (scenario.recompute_every > 1) remedy.settings.emplace_back("recompute_every=1");
  scenario.recompute_layers = 0;
  scenario.recompute_every = 1;
  return true;
}

// Layers that are graphs are not recomputed as a whole.
void GiveUpGraphsOfLayers(Remedy& remedy) {
  RunSpec& run = remedy.scenario.run;
  if (!HasGraphsOfLayers(remedy.scenario)) return;
  remedy.settings.emplace_back("run.cuda_graphs=false");
  if (!run.cuda_graph_scope.empty()) remedy.settings.emplace_back("run.cuda_graph_scope=[]");
  run.cuda_graphs = false;
  run.cuda_graph_scope.clear();
}

// Exchanges of experts are not overlapped with what runs them again, moves activations or gathers parameters.
void GiveUpOverlapOfExperts(Remedy& remedy) {
  ExpertParallelSpec& expert = remedy.scenario.parallel.expert;
  if (!expert.overlap) return;
  remedy.settings.emplace_back("parallel.expert.overlap=false");
  if (expert.delay_wgrad) remedy.settings.emplace_back("parallel.expert.delay_wgrad=false");
  expert.overlap = expert.delay_wgrad = false;
}

// (Megatron and DeepSpeed recompute no single operators.)
Change RecomputeBy(Recompute kind) {
  return [kind](Remedy& remedy) {
    Scenario& scenario = remedy.scenario;
    if (kind == Recompute::kFull && scenario.recompute == kind) return RecomputeAllLayers(remedy);
    if (scenario.recompute >= kind) return false;
    if (kind == Recompute::kSelectiveOp && IsMegatronOrDeepspeed(scenario.framework)) return false;
    scenario.recompute = kind;
    remedy.settings.push_back(fmt::format("recompute={}", WordOf(kind)));
    if (kind == Recompute::kFull) {
      GiveUpGraphsOfLayers(remedy);
      GiveUpOverlapOfExperts(remedy);
    }
    if (kind != Recompute::kSelective && !scenario.recompute_modules.empty()) {
      scenario.recompute_modules.clear();  // selective's
      remedy.settings.emplace_back("recompute_modules=[]");
    }
    return true;
  };
}

bool FuseTheLoss(Remedy& remedy) {
  Scenario& scenario = remedy.scenario;
  const bool is_eager =
      scenario.cross_entropy == CrossEntropyKind::kFramework && scenario.framework != Framework::kWindtunnel;
  if (!is_eager || !HasFusedLosses(scenario.framework) || scenario.model.kind != ModelKind::kTransformer)
    return false;
  scenario.cross_entropy = CrossEntropyKind::kFused;
  remedy.settings.emplace_back("cross_entropy=fused");
  return true;
}

// The head and the loss in eight parts, or as many as divide the tokens.
bool SplitTheLoss(Remedy& remedy) {
  Scenario& scenario = remedy.scenario;
  const int64_t tokens = scenario.batch.micro * scenario.model.seq_len / scenario.parallel.context.size;
  const int64_t chunks = std::gcd(tokens, int64_t{8});
  const bool has_parts = scenario.framework == Framework::kWindtunnel || IsPytorch(scenario.framework);
  if (scenario.cross_entropy_chunks > 1 || chunks == 1 || !has_parts) return false;
  scenario.cross_entropy_chunks = chunks;
  remedy.settings.push_back(fmt::format("cross_entropy_chunks={}", chunks));
  return true;
}

// Of a model with adapters, the weights that are not trained.
bool QuantizeFrozenWeights(Remedy& remedy) {
  std::optional<LoraSpec>& lora = remedy.scenario.model.lora;
  if (!lora || lora->is_quantized() || IsMegatronOrDeepspeed(remedy.scenario.framework)) return false;
  lora->quantize = Quantization::kNf4;
  remedy.settings.emplace_back("model.lora.quantize=nf4");
  return true;
}

// Applies to replicas that each keep everything, or more than `kind` leaves them; also to a single one, whose
// states can then be offloaded. Megatron's FSDP is not modelled, PyTorch has no ZeRO-1 like theirs, and
// DeepSpeed shards parameters by ZeRO-3.
Change ShardBy(DataParallelKind kind) {
  return [kind](Remedy& remedy) {
    Scenario& scenario = remedy.scenario;
    DataParallelSpec& data = scenario.parallel.data;
    const bool is_fsdp = kind == DataParallelKind::kFsdp;
    const bool is_deepspeed = scenario.framework == Framework::kDeepspeed;
    const bool shards_less = data.kind == DataParallelKind::kNone || data.kind == DataParallelKind::kDdp ||
                             (is_fsdp && IsZero(data.kind));
    const bool has_kind =
        is_fsdp ? is_deepspeed || !IsMegatronOrDeepspeed(scenario.framework) : !IsPytorch(scenario.framework);
    if (!shards_less || !has_kind) return false;
    data.kind = is_fsdp && is_deepspeed ? DataParallelKind::kZero3 : kind;
    scenario.derived.kind = false;
    remedy.settings.push_back(fmt::format("parallel.data.kind={}", WordOf(data.kind)));
    if (scenario.optimizer.zero_redundancy) {
      scenario.optimizer.zero_redundancy = false;
      remedy.settings.emplace_back("optimizer.zero_redundancy=false");
    }
    if (data.powersgd) {
      data.powersgd.reset();
      remedy.settings.emplace_back("parallel.data.powersgd=null");
    }
    if (data.kind == DataParallelKind::kZero3 && data.sync == GradientSync::kLastMicroBatch &&
        !scenario.derived.sync) {
      data.sync = GradientSync::kEveryMicroBatch;
      remedy.settings.emplace_back("parallel.data.sync=every_micro_batch");
    }
    if (is_fsdp && data.overlap_param_gather) {
      data.overlap_param_gather = false;
      remedy.settings.push_back("parallel.data.overlap_param_gather=false");
    }
    if (ShardsParameters(data.kind)) GiveUpOverlapOfExperts(remedy);
    return true;
  };
}

// FSDP over all copies, and of parameters, too.
bool ShardFully(Remedy& remedy) {
  DataParallelSpec& data = remedy.scenario.parallel.data;
  if (data.kind != DataParallelKind::kFsdp || data.sharding == Sharding::kFullShard) return false;
  data.sharding = Sharding::kFullShard;
  remedy.settings.emplace_back("parallel.data.sharding=full_shard");
  if (data.shard_size > 0 && !remedy.scenario.derived.shard_size) {
    data.shard_size = 0;
    remedy.scenario.derived.shard_size = true;
    remedy.settings.emplace_back("parallel.data.shard_size=0");
  }
  return true;
}

// ZeRO over all copies instead of groups of them.
bool SpreadOverAll(Remedy& remedy) {
  ParallelSpec& parallel = remedy.scenario.parallel;
  const int64_t all = parallel.data.size * parallel.context.size;
  const bool is_zero = IsZero(parallel.data.kind) || parallel.data.kind == DataParallelKind::kZero3;
  if (!is_zero || parallel.data.shard_size == 0 || parallel.data.shard_size == all) return false;
  parallel.data.shard_size = all;
  remedy.scenario.derived.shard_size = false;
  remedy.settings.push_back(fmt::format("parallel.data.shard_size={}", all));
  return true;
}

bool TakeSequencesOneByOne(Remedy& remedy) { return TakeSequences(1, remedy); }
// Half of a micro-batch, unless that is one sequence.
bool HalveMicroBatches(Remedy& remedy) {
  const int64_t micro = remedy.scenario.batch.micro;
  return micro > 2 && micro % 2 == 0 && TakeSequences(micro / 2, remedy);
}

bool UseTheHost(Remedy& remedy) {
  DataParallelSpec& data = remedy.scenario.parallel.data;
  if (data.offload != Offload::kNone) return false;
  if (!IsSharded(data.kind)) return false;
  data.offload = ShardsParameters(data.kind) ? Offload::kParam : Offload::kOptimizer;
  remedy.settings.push_back(fmt::format("parallel.data.offload={}", WordOf(data.offload)));
  return true;
}

// What blocks keep for backward goes to the host.
bool MoveActivations(Remedy& remedy) {
  if (remedy.scenario.activation_offload) return false;
  remedy.scenario.activation_offload = true;
  remedy.settings.emplace_back("activation_offload=true");
  GiveUpOverlapOfExperts(remedy);
  return true;
}

// Each parameter is updated in backward, so that its gradient need not wait for the others.
bool UpdateInBackward(Remedy& remedy) {
  if (remedy.scenario.optimizer.in_backward) return false;
  remedy.scenario.optimizer.in_backward = true;
  remedy.settings.emplace_back("optimizer.in_backward=true");
  return true;
}

bool PackMoments(Remedy& remedy) {
  OptimizerSpec& optimizer = remedy.scenario.optimizer;
  if (optimizer.moments == MomentsType::kInt8) return false;
  optimizer.moments = MomentsType::kInt8;
  remedy.settings.emplace_back("optimizer.moments=int8");
  return true;
}

// What is tried; what costs little time comes first.
std::vector<std::vector<Change>> Combinations() {
  const Change selective = RecomputeBy(Recompute::kSelective), ops = RecomputeBy(Recompute::kSelectiveOp),
               full = RecomputeBy(Recompute::kFull);
  const Change zero1 = ShardBy(DataParallelKind::kZero1), fsdp = ShardBy(DataParallelKind::kFsdp);
  const Change fused = FuseTheLoss, half = HalveMicroBatches, micro = TakeSequencesOneByOne,
               offload = UseTheHost, fully = ShardFully, spread = SpreadOverAll, parts = SplitTheLoss,
               packed = QuantizeFrozenWeights, away = MoveActivations, early = UpdateInBackward,
               moments = PackMoments;
  // clang-format off
  return {
      {fused}, {parts}, {packed}, {early}, {selective}, {zero1}, {fully}, {spread}, {half}, {micro}, {fsdp},
      {fused, half}, {fused, micro}, {parts, half}, {parts, micro}, {fused, zero1}, {fused, fsdp}, {fused, fully},
      {ops}, {half, ops}, {fused, ops}, {parts, ops}, {fused, half, ops}, {fully, ops}, {fsdp, ops},
      {fully, half}, {fully, micro}, {fsdp, half}, {fsdp, micro}, {fused, fsdp, ops}, {fsdp, half, ops},
      {fsdp, micro, ops},
      {full}, {fused, full}, {parts, full}, {packed, full}, {packed, parts, full}, {early, full}, {zero1, full},
      {half, full}, {micro, full}, {fsdp, full}, {fully, full}, {spread, full}, {fused, fully, full},
      {away}, {parts, away}, {fully, away}, {full, away}, {parts, full, away}, {fsdp, full, away},
      {fully, full, away},
      {zero1, micro, full}, {fsdp, micro, full}, {fully, micro, full}, {fused, micro, full},
      {moments}, {early, moments}, {full, moments}, {early, full, moments}, {early, parts, full, moments},
      {fsdp, full, moments}, {fully, full, moments}, {fully, full, away, moments},
      {offload}, {zero1, offload}, {fsdp, offload}, {spread, offload}, {full, offload}, {fully, full, offload},
      {full, away, offload}, {micro, full, offload}, {zero1, micro, full, offload},
      {fsdp, micro, full, offload}, {spread, micro, full, offload},
  };
  // clang-format on
}

// The scenario with all `changes`; nothing if one of them changes nothing, or if they are no advice for it:
// the framework would not run them, or other keys forbid them.
std::optional<Remedy> Changed(const Scenario& scenario, const std::vector<Change>& changes) {
  Remedy remedy{{}, scenario};
  const bool changes_all =
      std::all_of(changes.begin(), changes.end(), [&](const Change& change) { return change(remedy); });
  if (!changes_all) return std::nullopt;
  Scenario& made = remedy.scenario;
  made.parallel = WithDerivedKeys(made.derived, made.cluster, made.parallel);
  if (made.derived.reduce) made.precision.reduce = DerivedReduce(made);
  if (AddsDoubts(scenario, made) || !CheckScenario(made)) return std::nullopt;
  return remedy;
}

}  // namespace

bool AddsDoubts(const Scenario& scenario, const Scenario& changed) {
  const std::vector<std::string> before = FrameworkDoubts(scenario), after = FrameworkDoubts(changed);
  return std::any_of(after.begin(), after.end(), [&](const std::string& doubt) {
    return std::find(before.begin(), before.end(), doubt) == before.end();
  });
}

std::vector<Remedy> RemediesFor(const Scenario& scenario) {
  std::vector<Remedy> remedies;
  for (const std::vector<Change>& changes : Combinations())
    if (auto remedy = Changed(scenario, changes)) remedies.push_back(*std::move(remedy));
  return remedies;
}

bool TakeSequences(int64_t micro, Remedy& remedy) {
  BatchSpec& batch = remedy.scenario.batch;
  if (micro >= batch.micro || batch.micro % micro != 0) return false;
  batch.accumulate *= batch.micro / micro;
  batch.micro = micro;
  remedy.settings.push_back(fmt::format("batch.micro={}", batch.micro));
  remedy.settings.push_back(fmt::format("batch.accumulate={}", batch.accumulate));
  return true;
}

}  // namespace windtunnel
