#include "sim/composed/composed_step.h"

#include <fmt/compile.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/buffer_pool.h"
#include "plan/data_parallel.h"
#include "plan/message_protocol.h"
#include "plan/model.h"
#include "scenarios/derived.h"
#include "scenarios/words.h"
#include "sim/composed/assembled_step.h"
#include "sim/composed/step_course.h"
#include "sim/composed/stretched_step.h"

namespace windtunnel {

using namespace composed;

namespace {

// A thread-safe cache: each value, or the error instead of it, is made once per key; threads that ask for it
// meanwhile wait.
template <typename Value>
class Shelf {
 public:
  template <typename Make>
  Result<std::shared_ptr<const Value>> Find(const std::string& key, Make make) {
    Place& place = PlaceOf(key);
    std::lock_guard lock(place.mutex);
    if (!place.made) {
      Result<Value> made = make();
      if (made) place.made.emplace(std::make_shared<const Value>(*std::move(made)));
      else place.made.emplace(tl::unexpected(std::move(made).error()));
    }
    return *place.made;
  }

 private:
  struct Place {
    std::mutex mutex;
    std::optional<Result<std::shared_ptr<const Value>>> made;
  };

  Place& PlaceOf(const std::string& key) {
    std::lock_guard lock(mutex_);
    return places_[key];
  }

  std::mutex mutex_;
  std::map<std::string, Place> places_;
};

// How a rank's layers are spread over its stages makes no difference, unless stages reduce their gradients
// one by one or split their backwards: gradients come in the same order, which follows from the kinds of the
// layers.
std::string LayersKey(const ModelSpec& model, const std::vector<StageKind>& of_rank, bool by_stage) {
  std::string key;
  int64_t layers = 0;
  for (const StageKind& stage : of_rank) {
    layers += stage.layers.layers;
    if (stage.layers.layers == 0) key += " none";
    if (model.HasAlikeLayers() && !by_stage) continue;
    key += fmt::format(FMT_COMPILE(" {}+{}@{}"), stage.layers.dense, stage.layers.layers - stage.layers.dense,
                       stage.layers.phase);
  }
  return fmt::format(FMT_COMPILE("{}{}"), layers, key);
}
// Empty for WholePasses.
std::string PassesKey(const PassOrder& passes) {
  std::string key;
  if (!passes.splits()) return key;
  for (const std::vector<BackwardPass>* order : {&passes.first, &passes.last}) {
    for (const BackwardPass pass : *order)
      key += fmt::format(FMT_COMPILE(" {}{}"), pass.chunk, "biw"[static_cast<int>(pass.kind)]);
    key += '/';
  }
  return key;
}
// How a scenario's layers run, as far as a cost model depends on it (CostModel::layer_factor).
std::string LayerCostKey(const CostModel& model) {
  return model.layer_factor() == 1 ? "" : fmt::format(FMT_COMPILE(" f{}"), model.layer_factor());
}

// Keys of everything that a scenario's parts depend on.
class Keys {
 public:
  Keys(const Scenario& scenario, const CostModel& model)
      : scenario_(scenario), model_(model), axes_(AxesOf(scenario)), layer_cost_(LayerCostKey(model)) {}

  std::string Mesh() const {
    const ParallelSpec& parallel = scenario_.parallel;
    return fmt::format(FMT_COMPILE("{} d{} p{}"), axes_, parallel.data.size, parallel.pipeline.size);
  }
  // (The recomputed modules are the same for all configurations of a search.)
  std::string Stage(const StageKind& kind) const {
    const Scenario& s = scenario_;
    // Weights are converted once for all micro-batches, each of which takes a share of the time.
    const bool shares = s.framework == Framework::kMegatronCore && s.precision.fp8_recipe != Fp8Recipe::kNone;
    return fmt::format(FMT_COMPILE("{} m{} r{}s{} z{} w{} v{}{} {}{}{}{}"), axes_, s.batch.micro,
                       static_cast<int>(s.recompute), s.RecomputedShare(), HasZerosGradients(),
                       shares ? s.batch.accumulate : 1, model_.product_speed(), layer_cost_, kind.is_first,
                       kind.is_last, kind.splits_backwards, UnitsKey(s.model, kind.layers));
  }
  // A stage's parameters and gradients do not depend on micro-batch and recomputation.
  std::string Shape(const StageKind& kind) const {
    return fmt::format(FMT_COMPILE("{} z{} {}{}{}{}"), axes_, HasZerosGradients(), kind.is_first,
                       kind.is_last, kind.splits_backwards, UnitsKey(scenario_.model, kind.layers));
  }
  std::string Strategy(const std::vector<StageKind>& of_rank, const PassOrder& passes) const {
    const Scenario& s = scenario_;
    const DataParallelSpec& data = s.parallel.data;
    const bool aligns = AlignsReductions(s);
    return fmt::format(FMT_COMPILE("{} d{} p{} k{} o{}a{}g{}{} l{} {}{}{}{}"), axes_, data.size,
                       s.parallel.pipeline.size, static_cast<int>(data.kind), data.overlap, aligns,
                       data.overlap_param_gather, layer_cost_,
                       LayersKey(s.model, of_rank, aligns || passes.splits()), of_rank.front().is_first,
                       of_rank.back().is_last, s.batch.accumulate == 1, PassesKey(passes));
  }
  std::string Walk() const {
    const PipelineSpec& p = scenario_.parallel.pipeline;
    return fmt::format(FMT_COMPILE("{} {} {} {}"), p.schedule, p.size, p.virtual_stages,
                       scenario_.batch.accumulate);
  }

 private:
  // The cluster; tensor ranks and how they split tokens; context ranks, and how they combine tokens; expert
  // ranks.
  static std::string AxesOf(const Scenario& s) {
    const TensorParallelSpec& tensor = s.parallel.tensor;
    const ContextParallelSpec& context = s.parallel.context;
    const ExpertParallelSpec& expert = s.parallel.expert;
    return fmt::format(FMT_COMPILE("{}x{} t{}{} c{}k{} e{}t{}d{}"), s.cluster.nodes,
                       s.cluster.devices_per_node, tensor.size,
                       tensor.overlap    ? "o"
                       : tensor.sequence ? "s"
                                         : "",
                       context.size, static_cast<int>(context.kind), expert.size,
                       s.parallel.TensorRanksHaveExperts(), static_cast<int>(expert.dispatcher));
  }
  // Whether a stage's gradients lie as ZeRO has them, which is all that its operators know of the strategy.
  bool HasZerosGradients() const {
    return scenario_.parallel.data.kind == DataParallelKind::kZero1 || HasMegatronsBuffers(scenario_);
  }

  const Scenario& scenario_;
  const CostModel& model_;
  const std::string axes_, layer_cost_;
};

Status CheckAlike(const CostModel& model) {
  if (model.has_links()) return Unsupported("collectives that share cards");
  if (model.host_computes() || model.cores_per_node() != 0 || model.CommonMode(0) != 1 ||
      model.CommonMode(1) != 1)
    return Unsupported("hosts that compute");
  return Ok();
}

// Whether queries, keys or values have adapters.
bool AdaptsFirstProducts(const ModelSpec& model) {
  return model.HasAdapter(LoraTarget::kQkv) || model.HasAdapter(LoraTarget::kQueries) ||
         model.HasAdapter(LoraTarget::kKeys) || model.HasAdapter(LoraTarget::kValues);
}

// Ranks must be alike.
Status CheckCluster(const ClusterSpec& cluster) {
  if (cluster.jitter != 0) return Unsupported("cluster.jitter");
  if (cluster.straggler) return Unsupported("cluster.straggler");
  if (cluster.slow_link) return Unsupported("cluster.slow_link");
  if (!cluster.topology.preset.empty() || !cluster.topology.links.empty())
    return Unsupported("cluster.topology");
  return Ok();
}

// For steps that are not stretched.
Status CheckParts(const Scenario& s) {
  const bool kinds = s.parallel.data.kind == DataParallelKind::kNone ||
                     s.parallel.data.kind == DataParallelKind::kDdp ||
                     s.parallel.data.kind == DataParallelKind::kZero1;
  const bool is_zero = s.parallel.data.kind == DataParallelKind::kZero1;
  const int64_t copies = s.parallel.data.size * s.parallel.context.size;
  const bool whole_shards = s.parallel.data.shard_size == 0 || s.parallel.data.shard_size == copies;
  if (s.model.kind != ModelKind::kTransformer) return Unsupported("another model");
  if (!kinds) return Unsupported("{}", WordOf(s.parallel.data.kind));
  if (s.parallel.data.offload != Offload::kNone)
    return Unsupported("{} with parallel.data.offload", WordOf(s.parallel.data.kind));
  if (s.parallel.data.sync != GradientSync::kLastMicroBatch)
    return Unsupported("parallel.data.sync: {}", WordOf(s.parallel.data.sync));
  if (SharesUpdates(s)) return Unsupported("optimizer.zero_redundancy");
  if (s.parallel.data.powersgd) return Unsupported("parallel.data.powersgd");
  if (s.optimizer.in_backward) return Unsupported("optimizer.in_backward");
  if (s.model.encoder) return Unsupported("model.encoder");
  if (s.model.has_pattern()) return Unsupported("{}", s.model.pattern_block());
  if (s.model.position == PositionKind::kRelative) return Unsupported("model.position: relative");
  if (s.parallel.expert.overlap) return Unsupported("parallel.expert.overlap");
  if (PredictsBeforeLastStage(s))
    return Unsupported("parallel.pipeline.mtp: {}", WordOf(s.parallel.pipeline.mtp));
  if (s.cross_entropy_chunks > 1) return Unsupported("cross_entropy_chunks");
  if (s.run.cuda_graphs && !HasGraphsOfLayers(s)) return Unsupported("run.cuda_graphs");
  if (s.activation_offload) return Unsupported("activation_offload");
  const bool recomputes_some = s.recompute == Recompute::kFull && s.RecomputesSomeLayers();
  if (recomputes_some && s.recompute_every > 1) return Unsupported("recompute_every");
  if (recomputes_some && (!s.model.HasAlikeLayers() || s.model.mtp))
    return Unsupported("recompute_layers of layers that are not alike");
  // Backward ends within the first layer, so that it is none of several units' layers; and behind its
  // attention, so that it looks like any other from the next layer. (If the MLP takes the same stream, it
  // does not.)
  if (s.model.lora && (!s.model.HasAlikeLayers() || !AdaptsFirstProducts(s.model) ||
                       s.model.parallel_residual != ParallelResidual::kNone))
    return Unsupported("model.lora of such layers or targets");
  // Several operators make a gradient.
  if (s.precision.fp8_recipe == Fp8Recipe::kRowwise) return Unsupported("precision.fp8_recipe: rowwise");
  const bool reduces_as_is =
      s.precision.reduce == Precision::kFp32 || s.precision.reduce == s.precision.param;
  if (is_zero && !whole_shards) return Unsupported("parallel.data.shard_size");
  if (is_zero && !reduces_as_is) return Unsupported("precision.reduce");
  if (s.precision.fp8_param_gather && s.precision.fp8_recipe == Fp8Recipe::kMxfp8 &&
      s.parallel.data.overlap_param_gather)
    return Unsupported("precision.fp8_param_gather with mxfp8 and overlap_param_gather");
  const std::vector<int64_t>& balance = s.parallel.pipeline.balance;
  const int64_t ranks = s.parallel.pipeline.size;
  if (ranks > 1 && (balance.empty() || static_cast<int64_t>(balance.size()) % ranks != 0))
    return Unsupported("stages that are not known");
  return Ok();
}

// Whether a rank has the first and the last stage, and another hands over between its stages.
bool IsV(const PipelineWalk& walk) {
  return walk.ranks > 1 && walk.rank_of_stage.front() == walk.rank_of_stage.back();
}

}  // namespace

Status CheckComposable(const Scenario& scenario) {
  WT_RETURN_IF_ERROR(CheckCluster(scenario.cluster));
  const bool is_stretched = scenario.parallel.data.kind == DataParallelKind::kFsdp;
  return is_stretched ? CheckStretchable(scenario) : CheckParts(scenario);
}

struct ComposedSteps::Step::Content : AssembledStep {
  std::optional<StretchedStep> stretched;  // if set, only `peak` is set besides
  std::shared_ptr<StepBeginnings> beginnings;
};

ComposedSteps::Step::Step(std::unique_ptr<Content> content) : content_(std::move(content)) {}
ComposedSteps::Step::~Step() = default;
ComposedSteps::Step::Step(Step&&) noexcept = default;
ComposedSteps::Step& ComposedSteps::Step::operator=(Step&&) noexcept = default;

Bytes ComposedSteps::Step::memory() const { return Bytes(content_->peak); }

Duration ComposedSteps::Step::Time() const {
  return content_->stretched ? content_->stretched->time : StepCourse(*content_).Run(*content_->beginnings);
}

class ComposedSteps::Parts {
 public:
  Result<Step> Compose(const Scenario& scenario, const CostModel& model, Bytes capacity) {
    WT_RETURN_IF_ERROR(CheckAlike(model));
    WT_RETURN_IF_ERROR(CheckComposable(scenario));
    if (scenario.parallel.data.kind == DataParallelKind::kFsdp)
      return ComposeStretched(scenario, model, capacity);
    const Keys keys(scenario, model);
    WT_ASSIGN_OR_RETURN(const auto groups, groups_.Find(keys.Mesh(), [&] { return MeshGroupsOf(scenario); }));
    composed::Costs costs(model);
    auto content = std::make_unique<Step::Content>();
    content->beginnings = beginnings_;
    const int ranks = static_cast<int>(scenario.parallel.pipeline.size);
    const int chunks = ranks == 1 ? 1 : static_cast<int>(scenario.parallel.pipeline.balance.size()) / ranks;
    const size_t stages = static_cast<size_t>(ranks) * static_cast<size_t>(chunks);
    const auto find_walk = [&] {
      return walks_.Find(keys.Walk(), [&] { return MakePipelineWalk(scenario); });
    };
    if (!HasWholePasses(scenario.parallel.pipeline)) {
      WT_ASSIGN_OR_RETURN(content->walk, find_walk());
      if (content->walk->rank_of_stage.size() != stages) return Unsupported("a balance of other stages");
      if (IsV(*content->walk) && scenario.model.SharesEmbedding())
        return Unsupported("an embedding that a rank has twice");
    }
    const std::vector<StageKind> kinds = KindsOf(scenario, content->walk.get());
    // Resident memory comes first: most configurations have too much of it.
    AddClasses(ranks, kinds, *content);
    for (Step::Content::RankClass& of : content->classes) {
      WT_ASSIGN_OR_RETURN(of.strategy, FindStrategy(scenario, keys, of, kinds, *groups, costs, capacity));
      of.resident = of.strategy->resident;
      if (of.resident <= capacity.count()) continue;
      content->peak = of.resident;
      return Step(std::move(content));
    }
    if (content->walk == nullptr) {
      WT_ASSIGN_OR_RETURN(content->walk, find_walk());
      if (content->walk->rank_of_stage.size() != stages) return Unsupported("a balance of other stages");
    }
    // Then the first rank's peak, which is mostly the highest: if it does not fit, the other stages' actions
    // are not needed.
    content->actions.resize(stages);
    KnownActions known;
    for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, ranks)}) {
      if (begin == end) continue;
      WT_RETURN_IF_ERROR(AddActions(scenario, keys, begin, end, kinds, *groups, costs, known, *content));
      if (begin == 0) WT_RETURN_IF_ERROR(AddProtocol(scenario, *content));
      AddOtherMemory(scenario, begin, end, kinds, *content);
      content->FindPeak(begin, end, capacity.count());
      if (content->peak > capacity.count()) return Step(std::move(content));
    }
    WT_RETURN_IF_ERROR(AddMessages(scenario, *groups, costs, *content));
    return Step(std::move(content));
  }

 private:
  Result<Step> ComposeStretched(const Scenario& scenario, const CostModel& model, Bytes capacity) {
    if (!IsLonger(scenario)) return Unsupported("a step that is as short");
    WT_ASSIGN_OR_RETURN(const auto once,
                        once_.Find(OnceKey(scenario) + LayerCostKey(model), [&] { return OnceOf(scenario, model); }));
    auto content = std::make_unique<Step::Content>();
    WT_ASSIGN_OR_RETURN(content->stretched, Stretch(scenario, model, *once, capacity.count()));
    content->peak = content->stretched->peak;
    return Step(std::move(content));
  }

  // `walk`: of a schedule without WholePasses; else null.
  static std::vector<StageKind> KindsOf(const Scenario& scenario, const PipelineWalk* walk) {
    if (scenario.parallel.pipeline.size == 1)
      return {{true, true, false, StageLayersOf(scenario, 0, scenario.model.layers)}};
    const bool splits = walk != nullptr && walk->splits_backwards;
    const std::vector<int64_t>& balance = scenario.parallel.pipeline.balance;
    std::vector<StageKind> kinds;
    kinds.reserve(balance.size());
    int64_t first = 0;
    for (const int64_t layers : balance) {
      kinds.push_back({kinds.empty(), kinds.size() + 1 == balance.size(), splits,
                       StageLayersOf(scenario, first, layers)});
      first += layers;
    }
    return kinds;
  }

  static void AddClasses(int ranks, const std::vector<StageKind>& kinds, Step::Content& content) {
    const PipelineWalk* walk = content.walk.get();
    const size_t chunks = kinds.size() / static_cast<size_t>(ranks);
    std::vector<int> stages(kinds.size());  // by rank and chunk
    std::vector<size_t> known_stages(static_cast<size_t>(ranks));
    for (size_t stage = 0; stage < kinds.size(); ++stage) {
      const size_t rank =
          walk == nullptr ? stage % known_stages.size() : static_cast<size_t>(walk->rank_of_stage[stage]);
      stages[rank * chunks + known_stages[rank]++] = static_cast<int>(stage);
    }
    const auto kind_of = [&](int stage) -> const StageKind& { return kinds[static_cast<size_t>(stage)]; };
    std::map<std::pair<std::vector<StageKind>, PassOrder>, int> known;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::span of_rank = std::span(stages).subspan(static_cast<size_t>(rank) * chunks, chunks);
      // A rank's class is mostly that of the rank before it.
      if (rank > 0) {
        const Step::Content::RankClass& last = content.ClassOf(rank - 1);
        const bool has_same_stages =
            std::equal(of_rank.begin(), of_rank.end(), last.stages.begin(),
                       [&](int stage, int other) { return kind_of(stage) == kind_of(other); });
        if (has_same_stages && (walk == nullptr || walk->passes[static_cast<size_t>(rank)] == last.passes)) {
          content.class_of.push_back(content.class_of.back());
          continue;
        }
      }
      PassOrder passes =
          walk == nullptr ? WholePasses(static_cast<int>(chunks)) : walk->passes[static_cast<size_t>(rank)];
      std::vector<StageKind> kinds_of_rank;
      for (const int stage : of_rank) kinds_of_rank.push_back(kind_of(stage));
      const auto [found, is_new] =
          known.try_emplace({std::move(kinds_of_rank), passes}, static_cast<int>(content.classes.size()));
      if (is_new)
        content.classes.push_back(
            {.rank = rank, .stages = {of_rank.begin(), of_rank.end()}, .passes = std::move(passes)});
      content.class_of.push_back(found->second);
    }
  }

  using KnownActions = std::map<StageKind, const StageActions*>;

  // For the stages of ranks [begin, end).
  Status AddActions(const Scenario& scenario, const Keys& keys, int begin, int end,
                    const std::vector<StageKind>& kinds, const MeshGroups& groups, composed::Costs& costs,
                    KnownActions& known, Step::Content& content) {
    for (size_t stage = 0; stage < kinds.size(); ++stage) {
      const int rank = content.walk->rank_of_stage[stage];
      if (rank < begin || rank >= end) continue;
      const StageActions*& found = known[kinds[stage]];
      if (found == nullptr) {
        WT_ASSIGN_OR_RETURN(auto actions, FindActions(scenario, keys, kinds[stage],
                                                      static_cast<int>(kinds.size()), groups, costs));
        found = actions.get();
        content.kept_actions.push_back(std::move(actions));
      }
      content.actions[stage] = found;
    }
    return Ok();
  }

  // How stages hand over to each other; the first stage stands for all.
  static Status AddProtocol(const Scenario& scenario, Step::Content& content) {
    const StageTemplate& first = *content.actions[0]->stage;
    if (content.walk->ranks > 1) {
      content.message = first.message;
      content.received = first.message_part;
    }
    content.host_awaits_messages =
        MessageProtocolOf(scenario, content.stages(), first.message_elements).host_waits;
    if (IsV(*content.walk) && first.message_parts > 1)
      return Unsupported("messages in parts beside stages that hand over within a rank");
    content.gathers_with_forward = scenario.parallel.data.overlap_param_gather;
    if (content.gathers_with_forward && !content.GathersAreKnown())
      return Unsupported("values that come with a forward behind backwards, or without a message");
    return Ok();
  }

  Result<std::shared_ptr<const StageActions>> FindActions(const Scenario& scenario, const Keys& keys,
                                                          const StageKind& kind, int stages,
                                                          const MeshGroups& groups, composed::Costs& costs) {
    const std::string key = keys.Stage(kind);
    WT_ASSIGN_OR_RETURN(std::shared_ptr<const StageTemplate> stage,
                        stages_.Find(key, [&] { return MakeStageTemplate(scenario, kind, groups, costs); }));
    const MessageProtocol protocol = MessageProtocolOf(scenario, stages, stage->message_elements);
    const bool from_idle = protocol.host_waits;
    if (protocol.parts > 1) {
      WT_ASSIGN_OR_RETURN(stage, scattered_.Find(key, [&] {
        return WithScatteredMessages(*stage, protocol.parts, scenario, groups, costs);
      }));
    }
    const int64_t layers = kind.layers.layers;
    return actions_.Find(fmt::format(FMT_COMPILE("{} l{}.{}.{}{}"), key, kind.layers.dense,
                                     kind.layers.recomputed, layers, from_idle ? " i" : ""),
                         [&]() -> Result<StageActions> {
                           const std::vector<LayerUnit> units = UnitsOf(scenario.model, kind.layers);
                           int64_t kept = 0;
                           for (size_t unit = 0; unit < units.size(); ++unit)
                             kept += units[unit].count * stage->kept[unit];
                           StageActions actions{stage, kept, MakeForward(*stage, units, from_idle), {}, {}};
                           for (size_t of = 0; of < (kind.splits_backwards ? kBackwardKinds : 1); ++of) {
                             actions.first_backward[of] =
                                 MakeBackward(stage->first_backward[of], units, from_idle);
                             actions.backward[of] = MakeBackward(stage->backward[of], units, from_idle);
                           }
                           return actions;
                         });
  }

  // A stage's parameters and gradients do not depend on micro-batch and recomputation, so any template that
  // differs only in these will do.
  Result<std::shared_ptr<const StageTemplate>> FindShape(const Scenario& scenario, const Keys& keys,
                                                         const StageKind& kind, const MeshGroups& groups,
                                                         composed::Costs& costs) {
    return shapes_.Find(keys.Shape(kind), [&]() -> Result<StageTemplate> {
      WT_ASSIGN_OR_RETURN(const auto stage, stages_.Find(keys.Stage(kind), [&] {
        return MakeStageTemplate(scenario, kind, groups, costs);
      }));
      return *stage;
    });
  }

  Result<std::shared_ptr<const RankStrategy>> FindStrategy(const Scenario& scenario, const Keys& keys,
                                                           const Step::Content::RankClass& of,
                                                           const std::vector<StageKind>& kinds,
                                                           const MeshGroups& groups, composed::Costs& costs,
                                                           Bytes capacity) {
    std::vector<StageKind> of_rank;
    for (const int stage : of.stages) of_rank.push_back(kinds[static_cast<size_t>(stage)]);
    const auto make = [&]() -> Result<RankStrategy> {
      RankShape shape;
      shape.passes = of.passes;
      shape.has_first = of_rank.front().is_first;
      shape.has_last = of_rank.back().is_last;
      std::vector<std::shared_ptr<const StageTemplate>> of_stages;
      for (const StageKind& kind : of_rank) {
        WT_ASSIGN_OR_RETURN(auto found, FindShape(scenario, keys, kind, groups, costs));
        of_stages.push_back(std::move(found));
        shape.stages.push_back(of_stages.back().get());
        shape.units.push_back(UnitsOf(scenario.model, kind.layers));
      }
      WT_ASSIGN_OR_RETURN(RankStrategy strategy,
                          MakeRankStrategy(scenario, shape, groups, costs, capacity.count()));
      RunCopiesAhead(strategy);
      return strategy;
    };
    WT_ASSIGN_OR_RETURN(auto found, strategies_.Find(keys.Strategy(of_rank, of.passes), make));
    // One that did not fit into less memory is known in part only.
    if (!found->is_whole && found->resident <= capacity.count()) {
      WT_ASSIGN_OR_RETURN(RankStrategy whole, make());
      found = std::make_shared<const RankStrategy>(std::move(whole));
    }
    return found;
  }

  // Adds what models keep, the scratch of the model axes' collectives, and the losses, for the classes whose
  // first rank is in [begin, end).
  static void AddOtherMemory(const Scenario& scenario, int begin, int end,
                             const std::vector<StageKind>& kinds, Step::Content& content) {
    for (Step::Content::RankClass& of : content.classes) {
      if (of.rank < begin || of.rank >= end) continue;
      int64_t tensor_scratch = of.strategy->tensor_scratch, context_scratch = 0;
      int64_t expert_scratch = of.strategy->expert_scratch;
      for (const int index : of.stages) {
        const auto stage = static_cast<size_t>(index);
        const StageTemplate& made_of = *content.actions[stage]->stage;
        tensor_scratch = std::max(tensor_scratch, made_of.tensor_scratch);
        context_scratch = std::max(context_scratch, made_of.context_scratch);
        expert_scratch = std::max(expert_scratch, made_of.expert_scratch);
        for (const int64_t kept : {content.actions[stage]->kept, made_of.kept_behind})
          if (kept > 0) of.resident += RequestedBytes(Bytes(kept), scenario.allocator).count();
      }
      if (scenario.parallel.tensor.size > 1)
        of.resident += RequestedBytes(Bytes(tensor_scratch), scenario.allocator).count();
      if (scenario.parallel.context.size > 1)
        of.resident += RequestedBytes(Bytes(context_scratch), scenario.allocator).count();
      if (scenario.parallel.expert.size > 1)
        of.resident += RequestedBytes(Bytes(expert_scratch), scenario.allocator).count();
      if (kinds[static_cast<size_t>(of.stages.back())].is_last)
        of.resident += RequestedBytes(SizeOf(DType::kFloat32) * scenario.batch.accumulate *
                                          (1 + scenario.model.MtpLayers()),
                                      scenario.allocator)
                           .count();
    }
  }

  Status AddMessages(const Scenario& scenario, const MeshGroups& groups, composed::Costs& costs,
                     Step::Content& content) {
    if (content.walk->ranks == 1) return Ok();
    const StageTemplate& stage = *content.actions[0]->stage;
    const DType type = TypesOf(scenario.precision).storage;
    Op send, receive;
    const int64_t elements = stage.message_elements / stage.message_parts;
    send.kind = Send{type, elements, 1};
    receive.kind = Receive{type, elements, 0};
    WT_ASSIGN_OR_RETURN(content.send_host, costs.Host(send));
    WT_ASSIGN_OR_RETURN(content.receive_host, costs.Host(receive));
    const int64_t node = std::max<int64_t>(scenario.cluster.devices_per_node, 1);
    for (const Group& ends : groups.messages) {
      const bool leaves_node = ends.ranks[0] / node != ends.ranks[1] / node;
      WT_ASSIGN_OR_RETURN(const TransferCost cost,
                          costs.Communication(send, leaves_node ? kMessageBeyondAxis : kMessageAxis, ends));
      if (cost.efficiency < 1) return Unsupported("messages that slow kernels down");
      content.message_times.push_back(cost.time);
    }
    return Ok();
  }

  Shelf<MeshGroups> groups_;
  Shelf<PipelineWalk> walks_;
  Shelf<StageTemplate> stages_, scattered_, shapes_;
  Shelf<StageActions> actions_;
  Shelf<RankStrategy> strategies_;
  Shelf<OncePerStep> once_;
  const std::shared_ptr<StepBeginnings> beginnings_ = std::make_shared<StepBeginnings>();
};

ComposedSteps::ComposedSteps() : parts_(std::make_unique<Parts>()) {}
ComposedSteps::~ComposedSteps() = default;

Result<ComposedSteps::Step> ComposedSteps::Compose(const Scenario& scenario, const CostModel& model,
                                                   Bytes capacity) {
  return parts_->Compose(scenario, model, capacity);
}

}  // namespace windtunnel
