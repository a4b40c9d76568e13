#include "reports/remedies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/ceil_divide.h"
#include "base/format.h"
#include "reports/outcome.h"
#include "scenarios/characters.h"
#include "scenarios/checks.h"
#include "scenarios/derived.h"
#include "scenarios/framework_doubts.h"
#include "scenarios/words.h"
#include "sim/role_memory.h"

namespace windtunnel {
namespace {

constexpr size_t kShown = 3;

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

// (Megatron and DeepSpeed recompute no single operators.)
Change RecomputeBy(Recompute kind) {
  return [kind](Remedy& remedy) {
    Scenario& scenario = remedy.scenario;
    if (kind == Recompute::kFull && scenario.recompute == kind) return RecomputeAllLayers(remedy);
    if (scenario.recompute >= kind) return false;
    if (kind == Recompute::kSelectiveOp && IsMegatronOrDeepspeed(scenario.framework)) return false;
    scenario.recompute = kind;
    remedy.settings.push_back(fmt::format("recompute={}", WordOf(kind)));
    if (kind == Recompute::kFull) GiveUpGraphsOfLayers(remedy);
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
    if (data.kind == DataParallelKind::kZero3 && data.sync == GradientSync::kLastMicroBatch &&
        !scenario.derived.sync) {
      data.sync = GradientSync::kEveryMicroBatch;
      remedy.settings.emplace_back("parallel.data.sync=every_micro_batch");
    }
    if (is_fsdp && data.overlap_param_gather) {
      data.overlap_param_gather = false;
      remedy.settings.push_back("parallel.data.overlap_param_gather=false");
    }
    return true;
  };
}

// FSDP over all copies, and of parameters, too.
bool ShardFully(Remedy& remedy) {
  DataParallelSpec& data = remedy.scenario.parallel.data;
  const bool has_size = data.shard_size > 0 && !remedy.scenario.derived.shard_size;
  if (data.kind != DataParallelKind::kFsdp || data.sharding == Sharding::kFullShard || has_size) return false;
  data.sharding = Sharding::kFullShard;
  remedy.settings.emplace_back("parallel.data.sharding=full_shard");
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

// Micro-batches of `micro` sequences, and more of them.
bool TakeSequences(int64_t micro, Remedy& remedy) {
  BatchSpec& batch = remedy.scenario.batch;
  if (micro >= batch.micro || batch.micro % micro != 0) return false;
  batch.accumulate *= batch.micro / micro;
  batch.micro = micro;
  remedy.settings.push_back(fmt::format("batch.micro={}", batch.micro));
  remedy.settings.push_back(fmt::format("batch.accumulate={}", batch.accumulate));
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
      {fused, half}, {fused, micro}, {fused, zero1}, {fused, fsdp},
      {ops}, {half, ops}, {fused, ops}, {fsdp, ops},
      {fsdp, half}, {fsdp, micro}, {fused, fsdp, ops}, {fsdp, half, ops}, {fsdp, micro, ops},
      {full}, {parts, full}, {packed, full}, {packed, parts, full}, {early, full}, {zero1, full}, {half, full},
      {micro, full}, {fsdp, full}, {fully, full}, {spread, full},
      {away}, {parts, away}, {full, away}, {parts, full, away}, {fsdp, full, away},
      {zero1, micro, full}, {fsdp, micro, full},
      {moments}, {early, moments}, {full, moments}, {early, full, moments}, {early, parts, full, moments},
      {fsdp, full, moments},
      {offload}, {zero1, offload}, {fsdp, offload}, {spread, offload}, {full, offload},
      {full, away, offload}, {micro, full, offload}, {zero1, micro, full, offload},
      {fsdp, micro, full, offload}, {spread, micro, full, offload},
  };
  // clang-format on
}

// The scenario with all `changes`; nothing if one of them changes nothing, or if they are no advice for it:
// the framework would not run them (`doubts` are those about the scenario itself), or other keys forbid them.
std::optional<Remedy> Changed(const Scenario& scenario, const std::vector<Change>& changes,
                              const std::vector<std::string>& doubts) {
  Remedy remedy{{}, scenario};
  const bool changes_all =
      std::all_of(changes.begin(), changes.end(), [&](const Change& change) { return change(remedy); });
  if (!changes_all) return std::nullopt;
  Scenario& made = remedy.scenario;
  made.parallel = WithDerivedKeys(made.derived, made.cluster, made.parallel);
  if (made.derived.reduce) made.precision.reduce = DerivedReduce(made);
  const auto is_new = [&](const std::string& doubt) {
    return std::find(doubts.begin(), doubts.end(), doubt) == doubts.end();
  };
  const std::vector<std::string> doubts_now = FrameworkDoubts(made);
  if (std::any_of(doubts_now.begin(), doubts_now.end(), is_new) || !CheckScenario(made)) return std::nullopt;
  return remedy;
}

// Some layers instead of all: as few of each stage as fit, or with PyTorch every so many-th of the model.
// Nothing if all have to be recomputed, or `full` does something else besides.
std::optional<Remedy> WithFewestLayers(const Remedy& full, Bytes room, const CompileScenario& compile,
                                       Bytes& reserved) {
  const std::vector<std::string>& settings = full.settings;
  const bool recomputes = std::find(settings.begin(), settings.end(), "recompute=full") != settings.end();
  if (!recomputes || full.scenario.RecomputesSomeLayers()) return std::nullopt;
  const auto fits = [&](Remedy& remedy, const char* key, int64_t& value, int64_t tried) {
    value = tried;
    remedy.settings = settings;
    remedy.settings.push_back(fmt::format("{}={}", key, tried));
    const auto needed = ReservedWith(remedy, compile);
    if (!needed || *needed > room) return false;
    reserved = *needed;
    return true;
  };
  Remedy some = full;
  if (IsPytorch(full.scenario.framework)) {
    for (const int64_t every : {4, 3, 2})
      if (fits(some, "recompute_every", some.scenario.recompute_every, every)) return some;
    return std::nullopt;
  }
  const PipelineSpec& pipeline = full.scenario.parallel.pipeline;
  const int64_t stages = std::max<int64_t>(pipeline.size * pipeline.virtual_stages, 1);
  const ModelSpec& model = full.scenario.model;
  // `low` layers are too few, `high` are enough.
  int64_t low = 0, high = CeilDivide(std::max(model.layers, model.EncoderLayers()), stages);
  std::optional<Remedy> fewest;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(some, "recompute_layers", some.scenario.recompute_layers, middle)) {
      fewest = some;
      high = middle;
    } else {
      low = middle;
    }
  }
  return fewest;
}

// The largest micro-batch that fits, where single sequences do.
std::optional<Remedy> WithLargestMicroBatch(const Remedy& single, const BatchSpec& own, Bytes room,
                                            const CompileScenario& compile, Bytes& reserved) {
  if (single.scenario.batch.micro != 1) return std::nullopt;
  Remedy larger = single;
  std::erase_if(larger.settings, [](const std::string& setting) { return setting.starts_with("batch."); });
  for (int64_t micro = own.micro / 2; micro > 1; --micro) {
    if (own.micro % micro != 0) continue;
    Remedy tried = larger;
    tried.scenario.batch = own;
    if (!TakeSequences(micro, tried)) continue;
    const auto needed = ReservedWith(tried, compile);
    if (!needed || *needed > room) continue;
    reserved = *needed;
    return tried;
  }
  return std::nullopt;
}

// Whether `remedy` changes all that `less` does, or makes micro-batches smaller still.
bool IsMore(const Remedy& remedy, const Remedy& less) {
  return std::all_of(less.settings.begin(), less.settings.end(), [&](const std::string& setting) {
    if (setting.starts_with("batch.")) return remedy.scenario.batch.micro <= less.scenario.batch.micro;
    return std::find(remedy.settings.begin(), remedy.settings.end(), setting) != remedy.settings.end();
  });
}

std::string Describe(const Remedy& remedy) {
  std::string text;
  for (const std::string& setting : remedy.settings)
    text += fmt::format("{}--set {}", text.empty() ? "" : " ", ShellWord(setting));
  return text;
}

// A line of the table of what would fit. The host's optimizer is predicted at the least that it can take.
std::string Row(const Remedy& remedy, Bytes memory, const CompileScenario& compile,
                const PredictPlan& predict) {
  std::string step = "?", host;
  if (const auto plan = compile(remedy.scenario)) {
    if (const auto prediction = predict(*plan)) {
      step = FormatDuration(prediction->p50);
      const bool updates_on_host = remedy.scenario.parallel.data.offload != Offload::kNone;
      if (updates_on_host) step = "≥ " + step;
      if (updates_on_host || remedy.scenario.activation_offload) {
        host = fmt::format("  # {} of host memory a node",
                           FormatBytes(PredictedHostMemoryOfNode(remedy.scenario, *prediction)));
      }
    }
  }
  return fmt::format("    {:>10}{:>11}  {}{}\n", FormatBytes(memory), step, Describe(remedy), host);
}

}  // namespace

Scenario WithFewMicroBatches(Scenario scenario) {
  const int64_t few = 2 * std::max<int64_t>(scenario.parallel.pipeline.size, 1);
  scenario.batch.accumulate = std::min(scenario.batch.accumulate, few);
  return scenario;
}

std::vector<Remedy> RemediesFor(const Scenario& scenario) {
  const std::vector<std::string> doubts = FrameworkDoubts(scenario);
  std::vector<Remedy> remedies;
  for (const std::vector<Change>& changes : Combinations())
    if (auto remedy = Changed(scenario, changes, doubts)) remedies.push_back(*std::move(remedy));
  return remedies;
}

Result<Bytes> ReservedWith(const Remedy& remedy, const CompileScenario& compile) {
  const PipelineSpec& pipeline = remedy.scenario.parallel.pipeline;
  const bool holds_more_with_more =
      pipeline.size > 1 && pipeline.schedule != "1f1b" && pipeline.schedule != "interleaved";
  Result<Plan> plan = compile(holds_more_with_more ? remedy.scenario : WithFewMicroBatches(remedy.scenario));
  if (!plan) plan = compile(remedy.scenario);  // (a schedule may be for one number of micro-batches only)
  if (!plan) return tl::unexpected(plan.error());
  Bytes reserved;
  for (const Role& role : plan->roles) {
    // Without a limit: a remedy that fits only by giving back cached memory does not count.
    WT_ASSIGN_OR_RETURN(const RoleMemory memory,
                        SimulateMemory(role, {.allocator = plan->scenario.allocator}));
    reserved = std::max(reserved, memory.steady.reserved);
  }
  return reserved;
}

std::string DescribeRemedies(const Scenario& scenario, Bytes room, Bytes outside,
                             const CompileScenario& compile, const PredictPlan& predict) {
  std::string fitting;
  std::optional<std::pair<Bytes, std::string>> least;
  std::vector<Remedy> fit;
  const auto is_more_than_enough = [&fit](const Remedy& remedy) {
    return std::any_of(fit.begin(), fit.end(), [&](const Remedy& less) { return IsMore(remedy, less); });
  };
  for (const Remedy& remedy : RemediesFor(scenario)) {
    if (is_more_than_enough(remedy)) continue;
    const auto reserved = ReservedWith(remedy, compile);
    if (!reserved) continue;
    if (!least || *reserved < least->first) least.emplace(*reserved, Describe(remedy));
    if (*reserved > room) continue;
    Bytes with_more;
    if (const auto larger = WithLargestMicroBatch(remedy, scenario.batch, room, compile, with_more)) {
      fitting += Row(*larger, with_more + outside, compile, predict);
      fit.push_back(remedy);
      if (fit.size() == kShown) break;
      continue;
    }
    Bytes with_some;
    if (const auto some = WithFewestLayers(remedy, room, compile, with_some))
      fitting += Row(*some, with_some + outside, compile, predict);
    fitting += Row(remedy, *reserved + outside, compile, predict);
    fit.push_back(remedy);
    if (fit.size() == kShown) break;
  }
  if (!fit.empty())
    return fmt::format("  what would fit:\n    {:>10}{:>11}\n", "memory", "step time") + fitting;
  const bool pipelines = scenario.parallel.data.kind != DataParallelKind::kZero3;
  const std::string devices =
      pipelines ? "more devices, or more tensor or pipeline ranks" : "more devices, or more tensor ranks";
  if (!least) return fmt::format("  what would fit?  {}\n", devices);
  return fmt::format(
      "  what would fit?  {}: the least that recomputation, sharding and offload come to is {}, with {}\n",
      devices, FormatBytes(least->first + outside), least->second);
}

}  // namespace windtunnel
