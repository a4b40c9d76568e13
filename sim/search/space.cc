#include "sim/search/space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "plan/axes.h"
#include "plan/balance.h"
#include "plan/outline.h"
#include "plan/stages.h"
#include "scenarios/checks.h"
#include "scenarios/derived.h"
#include "scenarios/model_spec.h"
#include "scenarios/rules.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

// Each value once.
template <typename T>
std::vector<T> Distinct(const std::vector<T>& range) {
  std::vector<T> values;
  for (const T& value : range)
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  return values;
}

template <typename T>
std::vector<T> RangeOr(const std::vector<T>& range, T own) {
  if (range.empty()) return {own};
  return Distinct(range);
}

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

Scenario WithoutRanges(Scenario scenario) {
  scenario.search.reset();
  return scenario;
}

class Enumeration {
 public:
  Enumeration(const Scenario& base, const ChooseStages& choose, const std::function<bool()>& stops)
      : base_(WithoutRanges(base)),
        ranges_(*base.search),
        choose_(choose),
        stops_(stops),
        global_batch_(base.batch.micro * base.batch.accumulate * base.parallel.data.size) {}

  SearchSpace Run() {
    const ParallelSpec& own = base_.parallel;
    for (int64_t tensor : RangeOr(ranges_.tensor, own.tensor.size))
      for (int64_t pipeline : RangeOr(ranges_.pipeline, own.pipeline.size))
        for (int64_t context : RangeOr(ranges_.context, own.context.size))
          for (int64_t expert : RangeOr(ranges_.expert, own.expert.size))
            for (int64_t virtual_stages : RangeOr(ranges_.virtual_stages, own.pipeline.virtual_stages)) {
              Configuration c;
              c.tensor = tensor;
              c.pipeline = pipeline;
              c.context = context;
              c.expert = expert;
              c.virtual_stages = virtual_stages;
              AddSplits(c);
            }
    return std::move(space_);
  }

 private:
  // How ranks divide tokens and layers.
  void AddSplits(Configuration c) {
    const ParallelSpec& own = base_.parallel;
    for (ContextKind context_kind : RangeOr(ranges_.context_kind, own.context.kind))
      for (bool sequence : RangeOr(ranges_.sequence, own.tensor.sequence))
        for (bool tensor_overlap : RangeOr(ranges_.tensor_overlap, own.tensor.overlap))
          for (bool uneven : RangeOr(ranges_.uneven, false)) {
            c.context_kind = context_kind;
            c.sequence = sequence;
            c.tensor_overlap = tensor_overlap;
            c.uneven = uneven;
            AddExperts(c);
          }
  }

  // How ranks hold experts, and how tokens reach them.
  void AddExperts(Configuration c) {
    const ExpertParallelSpec& own = base_.parallel.expert;
    for (int64_t expert_tensor : ExpertTensors(c.tensor))
      for (ExpertDispatcher dispatcher : RangeOr(ranges_.dispatcher, own.dispatcher))
        for (bool expert_overlap : RangeOr(ranges_.expert_overlap, own.overlap)) {
          c.expert_tensor = expert_tensor;
          c.dispatcher = dispatcher;
          c.expert_overlap = expert_overlap;
          AddSchedules(c);
        }
  }

  // The range's values, each meaning once. 0 and the number of tensor ranks mean the same (with one tensor
  // rank, so does 1): of these the scenario's own is kept, or the first.
  std::vector<int64_t> ExpertTensors(int64_t tensor) const {
    const int64_t own = base_.parallel.expert.tensor;
    const auto says = [&](int64_t value) { return value == tensor ? int64_t{0} : value; };
    std::vector<int64_t> values;
    for (int64_t value : RangeOr(ranges_.expert_tensor, own)) {
      const auto is_same = [&](int64_t other) { return says(other) == says(value); };
      if (std::any_of(values.begin(), values.end(), is_same)) continue;
      values.push_back(is_same(own) ? own : value);
    }
    return values;
  }

  void AddSchedules(Configuration c) {
    const PipelineSpec& own = base_.parallel.pipeline;
    if (c.pipeline == 1 && ranges_.virtual_stages.empty())
      c.virtual_stages = 1;  // the scenario's have no effect
    const bool is_1f1b = own.schedule == "1f1b" || own.schedule == "interleaved";
    const std::string own_schedule = !is_1f1b ? own.schedule : c.virtual_stages > 1 ? "interleaved" : "1f1b";
    const bool derives_stages = base_.derived.virtual_stages && ranges_.virtual_stages.empty();
    for (const std::string& schedule : RangeOr(ranges_.schedule, own_schedule)) {
      c.schedule = schedule;
      if (derives_stages) c.virtual_stages = c.pipeline > 1 ? DerivedVirtualStages(schedule) : 1;
      AddDevices(c);
    }
  }

  // The data-parallel replicas, and with them the devices.
  void AddDevices(Configuration c) {
    const int64_t replica = c.tensor * c.pipeline * c.context;
    if (!ranges_.data.empty()) {
      for (int64_t data : Distinct(ranges_.data)) {
        c.data = data;
        const bool is_in_range =
            ranges_.devices.empty() ||
            std::any_of(ranges_.devices.begin(), ranges_.devices.end(), [&](int64_t devices) {
              return devices % replica == 0 && devices / replica == data;
            });
        AddBatches(c, is_in_range ? nullptr : "the devices are not in search.devices");
      }
      return;
    }
    const int64_t own = base_.cluster.nodes * base_.cluster.devices_per_node;
    for (int64_t devices : RangeOr(ranges_.devices, own)) {
      c.data = std::max<int64_t>(devices / replica, 1);
      AddBatches(
          c, Divides(replica, devices) ? nullptr : "tensor x pipeline x context does not divide the devices");
    }
  }

  void AddBatches(Configuration c, const char* illegal) {
    for (int64_t micro : RangeOr(ranges_.micro, base_.batch.micro)) {
      c.micro = micro;
      if (!ranges_.accumulate.empty()) {
        for (int64_t accumulate : Distinct(ranges_.accumulate)) {
          c.accumulate = accumulate;
          AddStates(c, illegal);
        }
        continue;
      }
      c.accumulate = std::max<int64_t>(global_batch_ / (micro * c.data), 1);
      AddStates(c, illegal);
    }
  }

  void AddStates(Configuration c, const char* illegal) {
    if (stops_ && stops_()) return;
    const DataParallelSpec& own = base_.parallel.data;
    for (DataParallelKind kind : RangeOr(ranges_.kind, own.kind))
      for (Sharding sharding : RangeOr(ranges_.sharding, own.sharding))
        for (int64_t shard_size : RangeOr(ranges_.shard_size, own.shard_size))
          for (bool overlap : RangeOr(ranges_.overlap, own.overlap))
            for (Offload offload : RangeOr(ranges_.offload, own.offload)) {
              c.kind = kind;
              c.sharding = sharding;
              c.shard_size = shard_size;
              c.overlap = overlap;
              c.offload = offload;
              AddRecomputation(c, illegal);
            }
  }

  void AddRecomputation(Configuration c, const char* illegal) {
    for (Recompute recompute : RangeOr(ranges_.recompute, base_.recompute))
      for (int64_t layers : RangeOr(ranges_.recompute_layers, base_.recompute_layers)) {
        for (bool offload : RangeOr(ranges_.activation_offload, base_.activation_offload)) {
          c.recompute = recompute;
          c.recompute_layers = layers;
          c.activation_offload = offload;
          Add(c, illegal);
        }
      }
  }

  // Why the configuration is too large for the integers or the memory of later steps; null if it is not.
  const char* WhyTooLarge(const Configuration& c) const {
    const auto product = [](auto... factors) { return (1.0 * ... * static_cast<double>(factors)); };
    if (product(c.data, c.tensor, c.pipeline, c.context) > kRanks.max) return "there are too many devices";
    if (product(c.micro, c.accumulate, c.data, std::max<int64_t>(base_.model.seq_len, 1)) > kMostTokens)
      return "the batch has too many tokens";
    if (product(c.pipeline, c.virtual_stages, c.accumulate) > kMostActions)
      return "the schedule has more than 16 million actions";
    return nullptr;
  }

  void Add(Configuration c, const char* given_reason) {
    ++space_.combinations;
    if (const char* reason = WhyTooLarge(c)) {
      ++space_.illegal[reason];
      return;
    }
    c.devices_per_node = std::min(base_.cluster.devices_per_node, c.devices());
    c.nodes = c.devices() / c.devices_per_node;
    Derive(c);
    const char* own_reason = given_reason != nullptr ? given_reason : WhyIllegal(c);
    if (own_reason == nullptr) own_reason = Balance(c);
    if (own_reason == nullptr) own_reason = WhyRepeatedLayers(c);
    if (!ShardsInGroups(c) && !ranges_.shard_size.empty()) c.shard_size = 0;  // it takes none
    const auto illegal = own_reason != nullptr ? std::optional<std::string>(own_reason) : WhyRefused(c);
    if (illegal) {
      ++space_.illegal[*illegal];
      return;
    }
    space_.legal.push_back(std::move(c));
  }

  void Derive(Configuration& c) {
    if (c.pipeline > 1 && c.schedule.ends_with(".csv") && base_.derived.virtual_stages &&
        ranges_.virtual_stages.empty())
      c.virtual_stages = std::max<int64_t>(StagesOfFile(c) / c.pipeline, 1);
    const int64_t copies = c.data * c.context;
    if (base_.derived.kind && ranges_.kind.empty()) c.kind = DerivedKind(copies);
    const bool has_size = !ranges_.shard_size.empty() && c.shard_size > 0;
    if (base_.derived.shard_size && !has_size)
      c.shard_size = DerivedShardSize(c.kind, c.sharding, c.devices_per_node, c.tensor, copies);
  }

  // 0 if the file cannot be read, or is for another number of micro-batches.
  int64_t StagesOfFile(const Configuration& c) {
    auto [entry, is_new] = stages_of_file_.try_emplace(std::tuple(c.schedule, c.pipeline, c.accumulate), 0);
    if (!is_new) return entry->second;
    if (const auto schedule = ScheduleOf(ScenarioOf(base_, c))) entry->second = schedule->stages();
    return entry->second;
  }

  // Null if search itself has no objection. Its reasons are the same text for many configurations.
  const char* WhyIllegal(const Configuration& c) {
    if (const char* why = WhyIllegalCluster(c)) return why;
    if (const char* why = WhyIllegalModel(c)) return why;
    if (const char* why = WhyIllegalData(c)) return why;
    return WhyIllegalPipeline(c);
  }

  // Nothing if the loader would accept it.
  std::optional<std::string> WhyRefused(const Configuration& c) const {
    const Status status = CheckScenario(ScenarioOf(base_, c));
    return status ? std::nullopt : std::optional(status.error().message);
  }

  const char* WhyIllegalCluster(const Configuration& c) const {
    const int64_t per_node = base_.cluster.devices_per_node;
    if (c.devices() > per_node && !Divides(per_node, c.devices()))
      return "the devices do not fill their nodes";
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

  const char* WhyIllegalModel(const Configuration& c) const {
    const ModelSpec& model = base_.model;
    const int64_t stages = c.pipeline * c.virtual_stages;
    const int64_t layers = LayerCount(model);
    if (stages > layers + (PredictsBeforeLastStage(base_, stages) ? 2 : 0) &&
        !EndsAreStages(base_, stages, layers))
      return "the pipeline has more stages than the model layers";
    if (!c.uneven && EvenBalance(base_, stages).empty())
      return "the pipeline's stages do not divide the layers, and search.uneven is not true";
    if (model.kind != ModelKind::kTransformer) {
      if (c.context > 1 || c.recompute != Recompute::kNone) return "the model is no transformer";
      return CheckSplits(ScenarioOf(base_, c)) ? nullptr : "tensor does not divide the widths of the MLP";
    }
    const int64_t shared = model.experts ? model.experts->shared_ffn : 0;
    if (!Divides(c.tensor, shared)) return "tensor does not divide model.experts.shared_ffn";
    // If tensor ranks have whole experts, these are not divided.
    const bool splits_ffn = !model.experts || c.expert_tensor != 1;
    for (int64_t dimension : {model.heads, model.kv_heads, splits_ffn ? model.ffn : c.tensor, model.vocab}) {
      if (!Divides(c.tensor, dimension)) return "tensor does not divide heads, kv_heads, ffn and vocab";
    }
    if ((splits_ffn || model.MixesExperts()) && !Divides(c.tensor, model.DenseFfn()))
      return "tensor does not divide model.experts.dense_ffn";
    const bool ulysses = c.context_kind == ContextKind::kUlysses;
    if (!Divides(c.context, model.seq_len)) return "context does not divide the sequence";
    if (c.context > 1 && !ulysses && !Divides(2 * c.context, model.seq_len))
      return "2 x context does not divide the sequence";
    if (c.context > 1 && !ulysses && model.attention != AttentionKind::kFlash)
      return "context without flash attention";
    if (c.context > 1 && c.context_kind == ContextKind::kRing && model.HasWindows())
      return "a ring of context ranks with a window";
    if (c.context > 1 && !ulysses && model.DocumentTokens() < model.seq_len)
      return "context ranks other than ulysses, with documents";
    if (c.context > 1 && ulysses && !Divides(c.context * c.tensor, model.kv_heads))
      return "context x tensor does not divide kv_heads";
    if (c.expert > 1 && (!model.experts || !Divides(c.expert, model.experts->count)))
      return "expert does not divide the experts";
    if (c.sequence && !Divides(c.tensor, c.micro * model.seq_len / c.context))
      return "sequence: tensor does not divide a rank's tokens";
    return nullptr;
  }

  // If a key has no effect, the scenario's own value stands for all values.
  const char* WhyIllegalData(const Configuration& c) const {
    const DataParallelSpec& own = base_.parallel.data;
    const bool sharded = IsSharded(c.kind);
    const int64_t copies = c.data * c.context;
    if (c.kind == DataParallelKind::kNone && copies > 1) return "kind: none with several replicas";
    const int64_t others = c.pipeline * c.tensor * c.context * c.expert;
    if (c.kind == DataParallelKind::kDp && (others > 1 || c.nodes > 1))
      return "kind: dp goes with nothing else";
    const bool in_groups = ShardsInGroups(c);
    if (in_groups && c.shard_size > 0 && !Divides(c.shard_size, copies))
      return "shard_size does not divide data x context";
    if (sharded && c.expert > 1) {
      const Scenario scenario = ScenarioOf(base_, c);
      const int64_t shard = ShardRanks(scenario), sharing = scenario.parallel.ExpertDataRanks();
      if (!Divides(sharing, shard) && !Divides(shard, sharing))
        return "expert and shard_size do not divide each other";
    }
    if (in_groups && c.kind == DataParallelKind::kFsdp && c.shard_size == copies &&
        HasInRange(WholeOf(c.sharding)))
      return "hybrid sharding in a single group: counted once, as sharding over all ranks";
    if (c.pipeline > 1 && copies > 1 && c.kind == DataParallelKind::kZero2)
      return "kind: zero2 in a pipeline";
    if (c.kind == DataParallelKind::kZero3 && (c.pipeline > 1 || c.expert > 1))
      return "kind: zero3 in a pipeline, or with experts of several ranks";
    const bool is_group = c.shard_size > 0 && c.shard_size < copies;
    if (c.kind == DataParallelKind::kZero3 && is_group && c.offload != Offload::kNone)
      return "kind: zero3 in groups, with offload";
    const bool overlap_has_effect = HasOverlapKey(c.kind) && copies > 1;
    if (!overlap_has_effect && IsRepeated(ranges_.overlap, c.overlap, own.overlap))
      return "overlap has no effect: counted once";
    if (!in_groups && IsRepeated(ranges_.shard_size, c.shard_size, own.shard_size))
      return "shard_size has no effect: counted once";
    if (c.kind != DataParallelKind::kFsdp && IsRepeated(ranges_.sharding, c.sharding, own.sharding))
      return "sharding has no effect: counted once";
    if (c.tensor == 1 && IsRepeated(ranges_.sequence, c.sequence, base_.parallel.tensor.sequence))
      return "sequence has no effect: counted once";
    const bool has_parts = c.tensor > 1 && c.sequence;
    if (!has_parts && IsRepeated(ranges_.tensor_overlap, c.tensor_overlap, base_.parallel.tensor.overlap))
      return "tensor_overlap has no effect: counted once";
    if (c.context == 1 && IsRepeated(ranges_.context_kind, c.context_kind, base_.parallel.context.kind))
      return "context_kind has no effect: counted once";
    if (c.activation_offload && (c.kind == DataParallelKind::kDp || (c.expert > 1 && c.expert_overlap)))
      return "activation_offload, with kind: dp or expert_overlap";
    if (const char* why = WhyRepeatedRecomputation(c)) return why;
    return WhyRepeatedExperts(c);
  }

  const char* WhyRepeatedRecomputation(const Configuration& c) const {
    const std::vector<int64_t>& range = ranges_.recompute_layers;
    if (c.recompute != Recompute::kFull)
      return IsRepeated(range, c.recompute_layers, base_.recompute_layers)
                 ? "recompute_layers has no effect: counted once"
                 : nullptr;
    return nullptr;
  }

  // What recomputes all layers of each stage is 0, or else the range's least such number.
  const char* WhyRepeatedLayers(const Configuration& c) const {
    if (c.recompute != Recompute::kFull || c.recompute_layers == 0) return nullptr;
    const int64_t largest =
        c.balance.empty() ? base_.model.layers : *std::max_element(c.balance.begin(), c.balance.end());
    if (c.recompute_layers < largest) return nullptr;
    const auto stands_for_all = [&](int64_t other) {
      return other == 0 || (other >= largest && other < c.recompute_layers);
    };
    const bool is_repeated =
        std::any_of(ranges_.recompute_layers.begin(), ranges_.recompute_layers.end(), stands_for_all);
    return is_repeated ? "recompute_layers are all layers of a stage: counted once" : nullptr;
  }

  static bool ShardsInGroups(const Configuration& c) {
    return c.kind == DataParallelKind::kFsdp ? IsHybrid(c.sharding) : IsSharded(c.kind);
  }
  // What hybrid sharding is equal to if there is only one group.
  static Sharding WholeOf(Sharding hybrid) {
    return hybrid == Sharding::kHybridShard ? Sharding::kFullShard : Sharding::kShardGradOp;
  }
  bool HasInRange(Sharding sharding) const {
    return std::find(ranges_.sharding.begin(), ranges_.sharding.end(), sharding) != ranges_.sharding.end();
  }

  const char* WhyRepeatedExperts(const Configuration& c) const {
    const ExpertParallelSpec& own = base_.parallel.expert;
    if (c.expert > 1) return nullptr;
    if (IsRepeated(ranges_.dispatcher, c.dispatcher, own.dispatcher))
      return "dispatcher has no effect: counted once";
    if (IsRepeated(ranges_.expert_overlap, c.expert_overlap, own.overlap))
      return "expert_overlap has no effect: counted once";
    return nullptr;
  }

  // Whether a value of a range without effect is not the one that stands for all: the scenario's if it is in
  // the range, else the range's first.
  template <typename T>
  static bool IsRepeated(const std::vector<T>& range, const T& value, const T& own) {
    if (range.empty()) return false;
    const bool has_own = std::find(range.begin(), range.end(), own) != range.end();
    return value != (has_own ? own : static_cast<T>(range.front()));
  }

  const char* WhyIllegalPipeline(const Configuration& c) {
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
  std::string WhyNotRun(const Configuration& c) const {
    const auto schedule = ScheduleOf(ScenarioOf(base_, c));
    if (!schedule && c.schedule.ends_with(".csv")) return schedule.error().message;
    const bool runs = schedule && schedule->stages() == c.pipeline * c.virtual_stages;
    return runs ? "" : "the schedule does not run with so many micro-batches and stages";
  }

  // Assigns layers to stages. Returns why the configuration is a repetition or not possible, or null.
  const char* Balance(Configuration& c) const {
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

  const Scenario base_;
  const SearchSpec& ranges_;
  const ChooseStages& choose_;
  const std::function<bool()>& stops_;
  const int64_t global_batch_;
  SearchSpace space_;
  // By what a schedule depends on; empty if it runs.
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t, bool>, std::string> why_not_;
  std::map<std::tuple<std::string, int64_t, int64_t>, int64_t> stages_of_file_;
};

}  // namespace

Result<std::vector<int64_t>> StagesByRoughCosts(const Scenario& scenario) {
  return ChooseBalance(scenario, {RoughTime});
}

Status CheckRanges(const Scenario& scenario) {
  if (scenario.search) return Ok();
  return InvalidInput(
      "{}: search is missing, expected a block of ranges such as {{tensor: [1, 2, 4], micro: [1, 2]}}",
      scenario.source_file.empty() ? scenario.name : scenario.source_file);
}

Result<SearchSpace> EnumerateSpace(const Scenario& scenario, const ChooseStages& choose,
                                   const std::function<bool()>& stops) {
  WT_RETURN_IF_ERROR(CheckRanges(scenario));
  SearchSpace space = Enumeration(scenario, choose, stops).Run();
  if (stops && stops()) return Failed("interrupted while looking for legal configurations");
  if (!space.legal.empty()) return space;
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : space.illegal) reasons.push_back(fmt::format("in {} {}", count, reason));
  return InvalidInput("search: none of {} combinations is legal: {}", space.combinations,
                      fmt::join(reasons, ", "));
}

Scenario ScenarioOf(const Scenario& base, const Configuration& c) {
  Scenario s = base;
  s.search.reset();
  s.batch = {c.micro, c.accumulate};
  s.recompute = c.recompute;
  s.recompute_layers = c.recompute_layers;
  s.activation_offload = c.activation_offload;
  if (!c.activation_offload) s.activation_offload_layers = 0;
  if (c.recompute != Recompute::kSelective) s.recompute_modules.clear();
  if (c.recompute != Recompute::kFull) {
    s.recompute_layers = 0;
    s.recompute_every = 1;
  }
  s.cluster.nodes = c.nodes;
  s.cluster.devices_per_node = c.devices_per_node;
  DataParallelSpec& data = s.parallel.data;
  data.kind = c.kind;
  data.size = c.data;
  data.sharding = c.sharding;
  data.shard_size = c.shard_size;
  data.overlap = c.overlap;
  data.offload = c.offload;
  if (base.derived.sync) data.sync = DerivedSync(c.kind, c.pipeline);
  if (base.derived.reshard_after_forward) data.reshard_after_forward = DerivedReshardAfterForward(c.sharding);
  s.parallel.tensor = {.size = c.tensor, .sequence = c.sequence, .overlap = c.overlaps_tensor()};
  s.parallel.context.size = c.context;
  if (c.context > 1) s.parallel.context.kind = c.context_kind;
  const bool sends = c.expert > 1;  // tokens to other ranks
  s.parallel.expert = {.size = c.expert,
                       .tensor = c.expert_tensor,
                       .dispatcher = sends ? c.dispatcher : ExpertDispatcher::kAllToAll,
                       .overlap = sends && c.expert_overlap,
                       .delay_wgrad = sends && c.expert_overlap && base.parallel.expert.delay_wgrad};
  PipelineSpec& pipeline = s.parallel.pipeline;
  pipeline.size = c.pipeline;
  pipeline.schedule = c.pipeline > 1 ? c.schedule : PipelineSpec{}.schedule;
  pipeline.virtual_stages = c.virtual_stages;
  pipeline.balance = c.balance;
  if (base.derived.reduce) s.precision.reduce = DerivedReduce(s);
  return s;
}

namespace {

// "7 + 14 x 8 + 7"
std::string InRuns(const std::vector<int64_t>& values) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    const size_t count = end - i;
    runs.push_back(count > 1 ? fmt::format("{} x {}", count, values[i]) : fmt::format("{}", values[i]));
    i = end;
  }
  return fmt::format("{}", fmt::join(runs, " + "));
}

// "64 (deepep, tensor 1, overlap)"
std::string DescribeExperts(const Configuration& c) {
  std::vector<std::string> how;
  if (c.dispatcher != ExpertDispatcher::kAllToAll) how.emplace_back(WordOf(c.dispatcher));
  if (c.expert_tensor == 1 && c.tensor > 1) how.emplace_back("tensor 1");
  if (c.expert_overlap) how.emplace_back("overlap");
  if (how.empty()) return fmt::format("{}", c.expert);
  return fmt::format("{} ({})", c.expert, fmt::join(how, ", "));
}

}  // namespace

std::string Describe(const Configuration& c) {
  std::string text = fmt::format("tensor {} x pipeline {} x data {}", c.tensor, c.pipeline, c.data);
  if (c.context > 1) text += fmt::format(" x context {}", c.context);
  if (c.context > 1 && c.context_kind != ContextKind::kRing)
    text += fmt::format(" ({})", WordOf(c.context_kind));
  if (c.expert > 1) text += ", experts over " + DescribeExperts(c);
  if (c.virtual_stages > 1) text += fmt::format(", {} virtual stages", c.virtual_stages);
  if (c.pipeline > 1 && c.schedule != "1f1b" && c.schedule != "interleaved") text += ", " + c.schedule;
  if (std::adjacent_find(c.balance.begin(), c.balance.end(), std::not_equal_to<>()) != c.balance.end())
    text += fmt::format(", layers {}", InRuns(c.balance));
  text += fmt::format(", micro {} x {}, {}", c.micro, c.accumulate, WordOf(c.kind));
  if (c.kind == DataParallelKind::kFsdp) text += fmt::format(" {}", WordOf(c.sharding));
  if (IsSharded(c.kind) && c.shard_size > 0) text += fmt::format(" in groups of {}", c.shard_size);
  if (c.offload != Offload::kNone) text += fmt::format(", offload {}", WordOf(c.offload));
  if (c.sequence && c.tensor > 1) text += c.overlaps_tensor() ? ", sequence in parts" : ", sequence";
  if (!c.overlap && HasOverlapKey(c.kind)) text += ", no overlap";
  if (c.recompute != Recompute::kNone) text += fmt::format(", recompute {}", WordOf(c.recompute));
  if (c.recompute == Recompute::kFull && c.recompute_layers > 0)
    text += fmt::format(" of {} layers a stage", c.recompute_layers);
  if (c.activation_offload) text += ", activations on the host";
  return text;
}

}  // namespace windtunnel
