#include "sim/search/legality.h"

#include <algorithm>

#include "plan/axes.h"
#include "plan/balance.h"
#include "plan/outline.h"
#include "plan/stages.h"
#include "scenarios/checks.h"
#include "scenarios/derived.h"
#include "scenarios/known_schedules.h"
#include "scenarios/model_spec.h"
#include "scenarios/rules.h"

namespace windtunnel {
namespace {

// The scenario's own balance if it has as many stages, else equally many layers in each; with multi-token
// prediction before the last stage, in each before those modules, or else in each before the last. Empty if
// the stages do not divide the layers.
std::vector<int64_t> EvenBalance(const Scenario& base, int64_t stages) {
  const std::vector<int64_t>& own = base.parallel.pipeline.balance;
  if (own.size() == static_cast<size_t>(stages)) return own;
  const int64_t layers = LayerCount(base.model);
  const bool apart = PredictsBeforeLastStage(base, stages);
  for (int64_t without = apart ? 2 : 0; without >= (apart ? 1 : 0); --without) {
    if (stages <= without || !Divides(stages - without, layers)) continue;
    std::vector<int64_t> balance(static_cast<size_t>(stages), layers / (stages - without));
    std::fill(balance.end() - without, balance.end(), 0);
    return balance;
  }
  return {};
}

// What hybrid sharding is equal to if there is only one group.
Sharding WholeOf(Sharding hybrid) {
  return hybrid == Sharding::kHybridShard ? Sharding::kFullShard : Sharding::kShardGradOp;
}

bool ShardsInGroups(const Configuration& c) {
  return c.kind == DataParallelKind::kFsdp ? IsHybrid(c.sharding) : IsSharded(c.kind);
}

template <typename T>
bool HasValue(const std::vector<T>& range, const T& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

// Whether a value of a range without effect is not the one that stands for all: the scenario's if it is in
// the range, else the range's first.
template <typename T>
bool IsRepeated(const std::vector<T>& range, const T& value, const T& own) {
  if (range.empty()) return false;
  return value != (HasValue(range, own) ? own : static_cast<T>(range.front()));
}

}  // namespace

Legality::Legality(const Scenario& base, const SearchSpec& ranges, const ChooseStages& choose)
    : base_(base),
      ranges_(ranges),
      choose_(choose),
      global_batch_(base.batch.micro * base.batch.accumulate * base.parallel.data.size) {}

const char* Legality::WhyTooLarge(const Configuration& c) const {
  const auto product = [](auto... factors) { return (1.0 * ... * static_cast<double>(factors)); };
  if (product(c.data, c.tensor, c.pipeline, c.context) > kRanks.max) return "there are too many devices";
  if (product(c.micro, c.accumulate, c.data, std::max<int64_t>(base_.model.SampleTokens(), 1)) > kMostTokens)
    return "the batch has too many tokens";
  if (product(c.pipeline, c.virtual_stages, c.accumulate) > kMostActions)
    return "the schedule has more than 16 million actions";
  return nullptr;
}

std::optional<std::string> Legality::WhyIllegal(Configuration& c) {
  if (const char* why = WhyIllegalHere(c)) return why;
  if (!ShardsInGroups(c) && !ranges_.shard_size.empty()) c.shard_size = 0;  // it takes none
  const Status status = CheckScenario(ScenarioOf(base_, c));
  return status ? std::nullopt : std::optional(status.error().message);
}

// Null if search itself has no objection.
const char* Legality::WhyIllegalHere(Configuration& c) {
  if (const char* why = WhyIllegalCluster(c)) return why;
  if (const char* why = WhyIllegalModel(c)) return why;
  if (const char* why = WhyIllegalData(c)) return why;
  if (const char* why = WhyRepeatedKey(c)) return why;
  if (c.activation_offload && (c.kind == DataParallelKind::kDp || (c.expert > 1 && c.expert_overlap)))
    return "activation_offload, with kind: dp or expert_overlap";
  if (c.recompute != Recompute::kFull &&
      IsRepeated(ranges_.recompute_layers, c.recompute_layers, base_.recompute_layers))
    return "recompute_layers has no effect: counted once";
  if (const char* why = WhyRepeatedExperts(c)) return why;
  if (const char* why = WhyIllegalPipeline(c)) return why;
  if (const char* why = AssignLayers(c)) return why;
  return WhyRepeatedLayers(c);
}

const char* Legality::WhyIllegalCluster(const Configuration& c) const {
  const int64_t per_node = base_.cluster.devices_per_node;
  if (c.devices() > per_node && !Divides(per_node, c.devices())) return "the devices do not fill their nodes";
  if (c.micro * c.accumulate * c.data != global_batch_) return "the global batch is another";
  if (c.expert_tensor == 1 && c.tensor > 1) {
    if (!Divides(c.tensor, c.expert)) return "expert.tensor: 1, and tensor does not divide expert";
    if (!c.sequence) return "expert.tensor: 1 without sequence";
    if (!Divides(c.expert, c.tensor * c.data * c.context))
      return "expert does not divide tensor x data x context";
  } else if (!Divides(c.expert, c.data * c.context)) {
    return "expert does not divide data x context";
  }
  return nullptr;
}

const char* Legality::WhyIllegalModel(const Configuration& c) const {
  const ModelSpec& model = base_.model;
  const int64_t stages = c.pipeline * c.virtual_stages;
  const int64_t layers = LayerCount(model);
  const bool shares = model.encoder || model.position == PositionKind::kRelative;
  if (shares && (c.pipeline > 1 || c.context > 1))
    return "model.encoder or position: relative, with a pipeline or context ranks";
  if (stages > layers + (PredictsBeforeLastStage(base_, stages) ? 2 : 0) &&
      !EndsAreStages(base_, stages, layers))
    return "the pipeline has more stages than the model layers";
  if (!c.uneven && EvenBalance(base_, stages).empty())
    return "the pipeline's stages do not divide the layers, and search.uneven is not true";
  if (model.kind != ModelKind::kTransformer) {
    if (c.context > 1 || c.recompute != Recompute::kNone) return "the model is not a transformer";
    return CheckSplits(ScenarioOf(base_, c)) ? nullptr : "tensor does not divide the widths of the MLP";
  }
  if (const char* why = WhyIllegalTensor(c)) return why;
  if (const char* why = WhyIllegalModules(c)) return why;
  if (const char* why = WhyIllegalGraphs(c)) return why;
  if (const char* why = WhyIllegalLatents(c)) return why;
  if (const char* why = WhyIllegalPattern(c)) return why;
  if (const char* why = WhyIllegalGates(c)) return why;
  if (const char* why = WhyIllegalContext(c)) return why;
  if (c.expert > 1 && (!model.experts || !Divides(c.expert, model.experts->count)))
    return "expert does not divide the experts";
  if (c.sequence && !Divides(c.tensor, c.micro * model.seq_len / c.context))
    return "sequence: tensor does not divide a rank's tokens";
  return nullptr;
}

const char* Legality::WhyIllegalTensor(const Configuration& c) const {
  const ModelSpec& model = base_.model;
  const int64_t shared = model.experts ? model.experts->shared_ffn : 0;
  if (!Divides(c.tensor, shared)) return "tensor does not divide model.experts.shared_ffn";
  // If tensor ranks have whole experts, these are not divided.
  const bool splits_ffn = !model.experts || c.expert_tensor != 1;
  for (int64_t dimension : {model.heads, model.kv_heads, splits_ffn ? model.ffn : c.tensor, model.vocab}) {
    if (!Divides(c.tensor, dimension)) return "tensor does not divide heads, kv_heads, ffn and vocab";
  }
  if ((splits_ffn || model.MixesExperts()) && !Divides(c.tensor, model.DenseFfn()))
    return "tensor does not divide model.experts.dense_ffn";
  return nullptr;
}

const char* Legality::WhyIllegalModules(const Configuration& c) const {
  const bool is_sharded = RepeatsModule(base_.model) && ShardsParameters(c.kind);
  return is_sharded ? "model.mtp.repeated, with sharded parameters" : nullptr;
}

const char* Legality::WhyIllegalGraphs(const Configuration& c) const {
  if (!base_.run.cuda_graphs || base_.framework != Framework::kMegatronCore) return nullptr;
  const bool recomputes = c.recompute == Recompute::kFull || c.recompute == Recompute::kSelective;
  if (recomputes && RecomputesGraphs(ScenarioOf(base_, c)))
    return "run.cuda_graphs, with a recompute of what they are parts of";
  if (c.activation_offload) return "run.cuda_graphs, with activation_offload";
  const bool are_of_layers = HasGraphsOfLayers(base_);
  return are_of_layers || c.pipeline == 1 ? nullptr : "run.cuda_graph_scope: full_iteration, with a pipeline";
}

const char* Legality::WhyIllegalLatents(const Configuration& c) const {
  const ModelSpec& model = base_.model;
  if (!model.experts || model.experts->latent == 0) return nullptr;
  if (c.expert_overlap) return "model.experts.latent, with parallel.expert.overlap";
  if (c.recompute == Recompute::kSelectiveOp) return "model.experts.latent, with recompute: selective_op";
  return nullptr;
}

// Of models whose layers are given by letters.
const char* Legality::WhyIllegalPattern(const Configuration& c) const {
  if (!base_.model.has_pattern()) return nullptr;
  const auto& mamba = base_.model.mamba;
  const int64_t groups = mamba ? mamba->groups : base_.model.delta_net->key_heads;
  if (!Divides(c.tensor, groups))
    return mamba ? "tensor does not divide model.mamba.groups"
                 : "tensor does not divide model.delta_net.key_heads";
  if (!Divides(c.context * c.tensor, groups))
    return mamba ? "context x tensor does not divide model.mamba.groups"
                 : "context x tensor does not divide model.delta_net.key_heads";
  if (c.context > 1 && !SplitsStates(base_.framework))
    return mamba ? "model.mamba, with the framework's context ranks"
                 : "model.delta_net, with the framework's context ranks";
  if (c.expert_overlap)
    return mamba ? "model.mamba, with parallel.expert.overlap"
                 : "model.delta_net, with parallel.expert.overlap";
  if (c.recompute == Recompute::kSelectiveOp)
    return mamba ? "model.mamba, with recompute: selective_op"
                 : "model.delta_net, with recompute: selective_op";
  return nullptr;
}

const char* Legality::WhyIllegalGates(const Configuration& c) const {
  if (c.recompute != Recompute::kSelectiveOp) return nullptr;
  const ModelSpec& model = base_.model;
  if (model.attention_gate) return "model.attention_gate, with recompute: selective_op";
  if (model.experts && model.experts->shared_gate)
    return "model.experts.shared_gate, with recompute: selective_op";
  return nullptr;
}

const char* Legality::WhyIllegalContext(const Configuration& c) const {
  const ModelSpec& model = base_.model;
  if (!Divides(c.context, model.seq_len)) return "context does not divide the sequence";
  if (c.context == 1) return nullptr;
  const bool ulysses = c.context_kind == ContextKind::kUlysses;
  if (!ulysses && !Divides(2 * c.context, model.seq_len)) return "2 x context does not divide the sequence";
  if (!ulysses && model.attention != AttentionKind::kFlash) return "context without flash attention";
  if (c.context_kind == ContextKind::kRing && model.HasWindows())
    return "a ring of context ranks with a window";
  if (!ulysses && model.DocumentTokens() < model.seq_len)
    return "context ranks other than ulysses, with documents";
  if (ulysses && !Divides(c.context * c.tensor, model.kv_heads))
    return "context x tensor does not divide kv_heads";
  return nullptr;
}

const char* Legality::WhyIllegalData(const Configuration& c) const {
  const int64_t copies = c.data * c.context;
  if (c.kind == DataParallelKind::kNone && copies > 1) return "kind: none with several replicas";
  const int64_t others = c.pipeline * c.tensor * c.context * c.expert;
  if (c.kind == DataParallelKind::kDp && (others > 1 || c.nodes > 1))
    return "kind: dp goes with nothing else";
  if (const char* why = WhyIllegalShards(c)) return why;
  if (c.pipeline > 1 && copies > 1 && c.kind == DataParallelKind::kZero2) return "kind: zero2 in a pipeline";
  if (c.kind == DataParallelKind::kZero3 && (c.pipeline > 1 || c.expert > 1))
    return "kind: zero3 in a pipeline, or with experts of several ranks";
  const bool is_group = c.shard_size > 0 && c.shard_size < copies;
  if (c.kind == DataParallelKind::kZero3 && is_group && c.offload != Offload::kNone)
    return "kind: zero3 in groups, with offload";
  return nullptr;
}

const char* Legality::WhyIllegalShards(const Configuration& c) const {
  const int64_t copies = c.data * c.context;
  const bool in_groups = ShardsInGroups(c);
  if (in_groups && c.shard_size > 0 && !Divides(c.shard_size, copies))
    return "shard_size does not divide data x context";
  if (IsSharded(c.kind) && c.expert > 1) {
    const Scenario scenario = ScenarioOf(base_, c);
    const int64_t shard = ShardRanks(scenario), sharing = scenario.parallel.ExpertDataRanks();
    if (!Divides(sharing, shard) && !Divides(shard, sharing))
      return "expert and shard_size do not divide each other";
  }
  if (in_groups && c.kind == DataParallelKind::kFsdp && c.shard_size == copies &&
      HasValue(ranges_.sharding, WholeOf(c.sharding)))
    return "hybrid sharding in a single group: counted once, as sharding over all ranks";
  return nullptr;
}

// If a key has no effect, the scenario's own value stands for all values.
const char* Legality::WhyRepeatedKey(const Configuration& c) const {
  const ParallelSpec& own = base_.parallel;
  const bool overlap_has_effect = HasOverlapKey(c.kind) && c.data * c.context > 1;
  if (!overlap_has_effect && IsRepeated(ranges_.overlap, c.overlap, own.data.overlap))
    return "overlap has no effect: counted once";
  if (!ShardsInGroups(c) && IsRepeated(ranges_.shard_size, c.shard_size, own.data.shard_size))
    return "shard_size has no effect: counted once";
  if (c.kind != DataParallelKind::kFsdp && IsRepeated(ranges_.sharding, c.sharding, own.data.sharding))
    return "sharding has no effect: counted once";
  if (c.tensor == 1 && IsRepeated(ranges_.sequence, c.sequence, own.tensor.sequence))
    return "sequence has no effect: counted once";
  const bool has_parts = c.tensor > 1 && c.sequence;
  if (!has_parts && IsRepeated(ranges_.tensor_overlap, c.tensor_overlap, own.tensor.overlap))
    return "tensor_overlap has no effect: counted once";
  if (c.context == 1 && IsRepeated(ranges_.context_kind, c.context_kind, own.context.kind))
    return "context_kind has no effect: counted once";
  return nullptr;
}

const char* Legality::WhyRepeatedExperts(const Configuration& c) const {
  const ExpertParallelSpec& own = base_.parallel.expert;
  if (c.expert > 1) return nullptr;
  if (IsRepeated(ranges_.dispatcher, c.dispatcher, own.dispatcher))
    return "dispatcher has no effect: counted once";
  if (IsRepeated(ranges_.expert_overlap, c.expert_overlap, own.overlap))
    return "expert_overlap has no effect: counted once";
  return nullptr;
}

const char* Legality::WhyIllegalPipeline(const Configuration& c) {
  if (c.pipeline == 1) {
    if (c.virtual_stages > 1) return "virtual stages without a pipeline";
    const bool repeats = IsRepeated(ranges_.schedule, c.schedule, base_.parallel.pipeline.schedule);
    return repeats ? "schedule has no effect: counted once" : nullptr;
  }
  if (HasOneStagePerRank(c.schedule) && c.virtual_stages > 1) return "the schedule has one stage a rank";
  // Whether these two run does not depend on the number of stages a rank has, from two on. Others have a
  // number of stages of their own.
  Configuration shorter = c;
  shorter.virtual_stages = std::min<int64_t>(c.virtual_stages, 2);
  const bool takes_any = c.schedule == "interleaved" || c.schedule == "looped_bfs";
  const Configuration& tried = takes_any ? shorter : c;
  const auto key = std::tuple(c.schedule, c.pipeline, tried.virtual_stages, c.accumulate,
                              c.expert > 1 && c.expert_overlap);
  auto [entry, is_new] = why_not_.try_emplace(key, "");
  if (is_new) entry->second = WhyNotRun(tried);
  return entry->second.empty() ? nullptr : entry->second.c_str();
}

// Empty if the schedule runs. A file's own mistakes are told as they are.
std::string Legality::WhyNotRun(const Configuration& c) const {
  const auto schedule = ScheduleOf(ScenarioOf(base_, c));
  if (!schedule && c.schedule.ends_with(".csv")) return schedule.error().message;
  const bool runs = schedule && schedule->stages() == c.pipeline * c.virtual_stages;
  return runs ? "" : "the schedule does not run with so many micro-batches and stages";
}

// Assigns layers to stages. Returns why the configuration is a repetition or not possible, or null.
const char* Legality::AssignLayers(Configuration& c) const {
  const int64_t stages = c.pipeline * c.virtual_stages;
  const bool has_effect = stages > 1;
  if (!has_effect)
    return IsRepeated(ranges_.uneven, c.uneven, false) ? "uneven has no effect: counted once" : nullptr;
  const std::vector<int64_t> even = EvenBalance(base_, stages);
  c.balance = even;
  if (!c.uneven) return nullptr;
  c.balance.clear();
  const auto chosen = choose_(ScenarioOf(base_, c));
  if (!chosen) return "the layers cannot be given to the stages";
  c.balance = *chosen;
  return c.balance == even && IsRepeated(ranges_.uneven, c.uneven, false)
             ? "uneven has no effect: counted once"
             : nullptr;
}

// What recomputes all layers of each stage is 0, or else the range's least such number.
const char* Legality::WhyRepeatedLayers(const Configuration& c) const {
  if (c.recompute != Recompute::kFull || c.recompute_layers == 0) return nullptr;
  const int64_t largest =
      c.balance.empty() ? base_.model.AllLayers() : *std::max_element(c.balance.begin(), c.balance.end());
  if (c.recompute_layers < largest) return nullptr;
  const auto stands_for_all = [&](int64_t other) {
    return other == 0 || (other >= largest && other < c.recompute_layers);
  };
  const bool is_repeated =
      std::any_of(ranges_.recompute_layers.begin(), ranges_.recompute_layers.end(), stands_for_all);
  return is_repeated ? "recompute_layers are all layers of a stage: counted once" : nullptr;
}

}  // namespace windtunnel
