#include "plan/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/read_file.h"
#include "plan/axes.h"
#include "plan/data_parallel.h"
#include "plan/model.h"
#include "plan/optimizer_steps.h"
#include "plan/schedule_check.h"
#include "plan/schedule_csv.h"
#include "plan/schedules/generators.h"
#include "scenarios/checks.h"
#include "scenarios/derived.h"

namespace windtunnel {
namespace {

// Keeps every parameter whole, in a buffer of its own: for a look at the model's operators.
class BareHooks : public ModelHooks {
 public:
  explicit BareHooks(Role& role) {
    for (const Parameter& parameter : role.parameters) {
      values_.push_back(ValuesBuffer(role, parameter, DType::kFloat32));
    }
  }
  Slice Values(int index) override { return values_[index]; }
  Slice Gradient(int index) override { return values_[index]; }
  bool HoldsValue(int) const override { return true; }
  void Ready(int) override {}
  void Wrote(int) override {}
  // Nothing for a buffer that is not one of Values.
  std::optional<size_t> ParameterOf(BufferId buffer) const {
    const int64_t index = buffer - values_.front().buffer;
    if (index < 0 || index >= static_cast<int64_t>(values_.size())) return std::nullopt;
    return static_cast<size_t>(index);
  }

 private:
  std::vector<Slice> values_;
};

// The costs of a model's parts, which are divided among stages: the layers, what is before the first
// (embedding), and what is behind the last (head).
struct Parts {
  LayerCosts time;         // of one micro-batch
  LayerCosts states;       // bytes that stay allocated
  LayerCosts updates;      // bytes beside them while the optimizer updates, when there are no activations
  LayerCosts activations;  // bytes of one micro-batch
};

double& PartOf(LayerCosts& costs, int layer, bool is_input) {
  return layer >= 0 ? costs.layers[layer] : is_input ? costs.input : costs.output;
}

double CostOf(const LayerCosts& costs, const StageRange& stage) {
  double cost = (stage.is_first ? costs.input : 0) + (stage.is_last ? costs.output : 0);
  for (int64_t layer = stage.first; layer < stage.end; ++layer) cost += costs.layers[layer];
  return cost;
}

// All layers cost the same. Embedding and head cost nothing if the layers divide evenly among stages, else as
// much as a layer each: Megatron-Core's account_for_embedding_in_pipeline_split and
// account_for_loss_in_pipeline_split, Megatron-DeepSpeed's partition methods "type:transformer" and
// "type:transformer|embedding". Where the head is a stage by itself, only the modules of multi-token
// prediction count besides, each as a layer.
LayerCosts CountedLayers(const Scenario& scenario, int stages) {
  const int64_t layers = LayerCount(scenario.model);
  const std::vector<double> each(static_cast<size_t>(layers), 1.0);
  if (PredictsBeforeLastStage(scenario))
    return {each, 0, static_cast<double>(scenario.model.MtpLayers()), /*behind=*/1};
  const double ends = layers % stages == 0 ? 0 : 1;
  return {each, ends, ends};
}

// Bytes of a rank per parameter.
struct StateBytes {
  double kept = 0;       // between steps and in the backward
  double in_update = 0;  // beside them while the optimizer updates
};

// `is_matrix`: Parameter::matrices.
StateBytes StateBytesOf(const Scenario& scenario, bool of_experts, bool is_matrix) {
  const auto bytes = [](DType type) { return static_cast<double>(SizeOf(type).count()); };
  const DType stored = TypesOf(scenario.precision).storage, updated = TypeOf(scenario.precision.optimizer);
  const double values = bytes(stored), reduced = bytes(TypeOf(scenario.precision.reduce));
  const OptimizerSpec& spec = scenario.optimizer;
  const bool is_muons = spec.kind == OptimizerKind::kMuon && is_matrix;
  const int states = is_muons ? 1 : spec.kind != OptimizerKind::kSgd ? 2 : spec.momentum > 0 ? 1 : 0;
  const DType moment = MomentsOf(spec);
  const double moments = bytes(moment) / static_cast<double>(NumbersIn(moment)) * states;
  const bool has_masters = stored != updated;
  // With the optimizer's own copy of the values, if there is one.
  const double optimizer = moments + (has_masters ? bytes(updated) : 0);
  // The roots of all second moments, which PyTorch's foreach optimizer computes at once.
  const double roots = UpdatesForeach(scenario.framework, spec) && !is_muons ? bytes(updated) : 0;
  const DataParallelSpec& data = scenario.parallel.data;
  // In a shard group only one in so many ranks has the same experts.
  const int64_t same = of_experts ? scenario.parallel.ExpertDataRanks() : 1;
  const double ranks = static_cast<double>(std::max<int64_t>(ShardRanks(scenario) / same, 1));
  switch (data.kind) {
    case DataParallelKind::kFsdp:  // values and gradients as the optimizer has them
      return {(2 * bytes(updated) + moments) / ranks, roots / ranks};
    case DataParallelKind::kZero3:
      return {(values + reduced + optimizer) / ranks, roots / ranks};
    case DataParallelKind::kZero1:
      return {values + reduced + optimizer / ranks, roots / ranks};
    case DataParallelKind::kZero2:
      return {values + (reduced + optimizer) / ranks, roots / ranks};
    case DataParallelKind::kNone:
    case DataParallelKind::kDp:
    case DataParallelKind::kDdp:
      break;
  }
  // Gradients have the values' type. The optimizer converts them to that of its own values.
  const bool has_buckets = data.kind == DataParallelKind::kDdp && !data.gradient_as_bucket_view;
  return {2 * values + (has_buckets ? reduced : 0) + optimizer, (has_masters ? bytes(updated) : 0) + roots};
}

// Of a frozen parameter: its values alone.
StateBytes FrozenBytesOf(const Scenario& scenario, const Parameter& parameter) {
  const DataParallelKind kind = scenario.parallel.data.kind;
  const bool is_sharded = kind == DataParallelKind::kFsdp || kind == DataParallelKind::kZero3;
  const DType type = parameter.packed.value_or(TypesOf(scenario.precision).storage);
  return {static_cast<double>(SizeOf(type).count()) / static_cast<double>(NumbersIn(type)) /
          static_cast<double>(is_sharded ? std::max<int64_t>(ShardRanks(scenario), 1) : 1)};
}

class PartsOfModel {
 public:
  PartsOfModel(const Scenario& scenario, const OperatorTimes& times) : scenario_(scenario), times_(times) {
    const size_t layers = static_cast<size_t>(LayerCount(scenario.model));
    for (LayerCosts* costs : {&parts_.time, &parts_.states, &parts_.updates, &parts_.activations})
      costs->layers.resize(layers);
  }

  Parts Measure(const StageRange& range) {
    Role role;
    role.streams = {Stream{StreamKind::kCompute, "compute", -1}};
    CollectiveStream tensor(role, 0, static_cast<int>(scenario_.parallel.tensor.size), "tensor");
    const ContextParallelSpec& context_spec = scenario_.parallel.context;
    CollectiveStream context(role, 0, static_cast<int>(context_spec.size), "context");
    CollectiveStream expert(role, 0, static_cast<int>(scenario_.parallel.expert.size), "expert");
    const std::unique_ptr<Model> model = MakeModel(scenario_, range,
                                                   {.tensor = TensorParallelOf(scenario_, &tensor),
                                                    .context = {&context, context_spec.kind},
                                                    .expert = ExpertParallelOf(scenario_, &expert)});
    model->Register(role);
    BareHooks hooks(role);
    const Slice loss = NewBuffer(role, "loss", model->LossElements(), Category::kActivations);
    const auto boundary = [&](const char* name, int64_t elements) {
      return NewBuffer(role, name, elements, Category::kActivations, model->BoundaryType());
    };
    const Slice input = range.is_first ? Slice{} : boundary("input", model->InputElements());
    ProgramBuilder builder(role, "parts");
    const Slice output = model->Forward(builder, hooks, 0, input, loss, 1.0);
    model->Backward(builder, hooks, 0,
                    range.is_last ? output : boundary("output.grad", model->OutputElements()));
    const Program program = builder.Finish();
    AddTimes(program, role);
    AddActivations(program, role);
    AddStates(program, role, hooks);
    return std::move(parts_);
  }

 private:
  // For operators outside the layers: embeddings, except those of tokens further on (model.mtp).
  static bool IsInput(const Op& op) {
    const auto* forward = std::get_if<EmbeddingForward>(&op.kind);
    const auto* backward = std::get_if<EmbeddingBackward>(&op.kind);
    return std::holds_alternative<LoadBatch>(op.kind) || (forward && !forward->ends) ||
           (backward && !backward->ends);
  }

  void AddTimes(const Program& program, const Role& role) {
    LayerCosts host;
    host.layers.resize(parts_.time.layers.size());
    for (const Op& op : program.ops) {
      double& work = PartOf(parts_.time, op.layer, IsInput(op));
      if (!IsCommunication(op.kind)) work += times_.work(op);
      else if (times_.collective && !IsPartOfRing(op.kind))
        work += times_.collective(op, role.streams[op.stream].name);
      if (times_.host) PartOf(host, op.layer, IsInput(op)) += times_.host(op);
    }
    LayerCosts& time = parts_.time;
    time.input = std::max(time.input, host.input);
    time.output = std::max(time.output, host.output);
    for (size_t i = 0; i < host.layers.size(); ++i) time.layers[i] = std::max(time.layers[i], host.layers[i]);
  }

  // Whether it goes around the ring of ranks while they compute.
  static bool IsPartOfRing(const OpKind& kind) {
    const auto* collective = std::get_if<Collective>(&kind);
    return collective != nullptr && collective->kind == CollectiveKind::kShift;
  }

  // Adds up what forward allocates and backward frees.
  void AddActivations(const Program& program, const Role& role) {
    struct Birth {
      int layer;
      bool is_input;  // before the first layer
    };
    std::map<BufferId, Birth> born;
    bool is_input = true;
    for (const MemoryOp& op : program.memory) {
      is_input &= op.layer < 0;
      if (op.allocates() && op.phase == Phase::kForward) born[op.buffer] = {op.layer, is_input};
      const auto birth = born.find(op.buffer);
      if (op.allocates() || op.phase == Phase::kForward || birth == born.end()) continue;
      PartOf(parts_.activations, birth->second.layer, birth->second.is_input) +=
          static_cast<double>(role.buffers[op.buffer].bytes.count());
    }
  }

  // A parameter counts once in each part that reads it: tied weights at both ends. Copies in another type
  // (autocast) do not count.
  void AddStates(const Program& program, const Role& role, const BareHooks& hooks) {
    std::map<std::pair<BufferId, int>, bool> seen;  // by buffer and layer
    for (const Op& op : program.ops) {
      if (op.phase != Phase::kForward) continue;
      for (const Slice& slice : op.reads) {
        const std::optional<size_t> parameter = hooks.ParameterOf(slice.buffer);
        if (!parameter) continue;
        const int place = op.layer >= 0 ? op.layer : IsInput(op) ? -1 : -2;
        if (!seen.emplace(std::pair{slice.buffer, place}, true).second) continue;
        const Parameter& of = role.parameters[*parameter];
        const StateBytes bytes = of.is_frozen
                                     ? FrozenBytesOf(scenario_, of)
                                     : StateBytesOf(scenario_, of.is_of_experts(), !of.matrices.empty());
        const double elements = static_cast<double>(of.packed ? of.elements : slice.elements);
        PartOf(parts_.states, op.layer, IsInput(op)) += bytes.kept * elements;
        PartOf(parts_.updates, op.layer, IsInput(op)) += bytes.in_update * elements;
      }
    }
  }

  const Scenario& scenario_;
  const OperatorTimes& times_;
  Parts parts_;
};

// All of a model, except heads that are a stage by themselves: of these it has the time (`behind`).
Parts MeasureModel(const Scenario& scenario, const OperatorTimes& times) {
  StageRange range = WholeModel(scenario.model);
  if (!PredictsBeforeLastStage(scenario)) return PartsOfModel(scenario, times).Measure(range);
  StageRange heads = range;
  heads.first = heads.end;
  range.is_last = heads.is_first = heads.has_mtp = false;
  Parts parts = PartsOfModel(scenario, times).Measure(range);
  parts.time.behind = PartsOfModel(scenario, times).Measure(heads).time.output;
  return parts;
}

// Measures one layer of a kind, in a model without others.
Parts MeasureLayer(const Scenario& scenario, const OperatorTimes& times, const LayerKind& kind) {
  Scenario shorter = scenario;
  shorter.model.layers = 1;
  if (shorter.model.experts) {
    shorter.model.experts->first_dense = kind.has_experts ? 0 : 1;
    shorter.model.experts->every = 1;
  }
  if (shorter.model.has_pattern()) {
    std::string& pattern =
        shorter.model.mamba ? shorter.model.mamba->pattern : shorter.model.delta_net->pattern;
    pattern = kind.has_mixer() ? std::string(1, LetterOf(kind.mixer)) : std::string();
    if (kind.has_mlp) pattern += kind.has_experts ? 'E' : '-';
  }
  shorter.model.sliding_window.reset();
  if (kind.window > 0) shorter.model.sliding_window = SlidingWindowSpec{.tokens = kind.window};
  return MeasureModel(shorter, times);
}

// A transformer has few kinds of layers; one of each is measured.
Parts MeasureParts(const Scenario& scenario, const OperatorTimes& times) {
  const ModelSpec& model = scenario.model;
  if (model.kind != ModelKind::kTransformer) return MeasureModel(scenario, times);
  std::map<LayerKind, Parts> of_kind;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const LayerKind kind = model.KindOf(layer);
    if (!of_kind.contains(kind)) of_kind.emplace(kind, MeasureLayer(scenario, times, kind));
  }
  Parts parts = of_kind.at(model.KindOf(0));
  const Parts& last = of_kind.at(model.KindOf(model.layers - 1));
  parts.time.behind = last.time.behind;
  for (auto costs : {&Parts::time, &Parts::states, &Parts::updates, &Parts::activations}) {
    (parts.*costs).output = (last.*costs).output;
    std::vector<double>& layers = (parts.*costs).layers;
    layers.clear();
    for (int64_t layer = 0; layer < model.layers; ++layer)
      layers.push_back((of_kind.at(model.KindOf(layer)).*costs).layers.front());
  }
  return parts;
}

}  // namespace

double RoughTime(const Op& op) {
  constexpr double kFlopsPerByte = 50;
  return FlopsOf(op.kind).count() + kFlopsPerByte * static_cast<double>(TrafficOf(op.kind).count());
}

Result<Schedule> ScheduleOf(const Scenario& scenario) {
  const PipelineSpec& pipeline = scenario.parallel.pipeline;
  const int ranks = static_cast<int>(pipeline.size);
  const int64_t micro_batches = scenario.batch.accumulate;
  if (pipeline.schedule.ends_with(".csv")) {
    const auto text = ReadFile(pipeline.schedule, "a pipeline schedule with a row per rank");
    if (!text) return InvalidInput("parallel.pipeline.schedule: {}", text.error().message);
    return ParseScheduleCsv(pipeline.schedule, *text, ranks, micro_batches);
  }
  // Megatron and DeepSpeed run 1F1B with any number of micro-batches; torch refuses fewer than stages.
  if (pipeline.schedule == "1f1b" && pipeline.virtual_stages == 1 && micro_batches < ranks &&
      IsMegatronOrDeepspeed(scenario.framework))
    return schedules::OneForwardOneBackward(ranks, micro_batches);
  auto schedule = (scenario.parallel.expert.overlap ? MakePairedSchedule : MakeSchedule)(
      pipeline.schedule, ranks, static_cast<int>(pipeline.virtual_stages), micro_batches);
  if (!schedule) {
    return tl::unexpected(Error{schedule.error().kind,
                                fmt::format("parallel.pipeline.schedule: {}", schedule.error().message)});
  }
  return schedule;
}

Result<std::vector<int64_t>> ChooseBalance(const Scenario& scenario, const OperatorTimes& times,
                                           Bytes capacity) {
  WT_RETURN_IF_ERROR(CheckSplits(scenario));
  WT_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(scenario));
  const int stages = schedule.stages();
  if (EndsAreStages(scenario, stages, LayerCount(scenario.model))) {
    std::vector<int64_t> balance(static_cast<size_t>(stages), 1);
    balance.front() = balance.back() = 0;
    return balance;
  }
  const bool heads_are_stage = PredictsBeforeLastStage(scenario);
  const int with_layers = stages - (heads_are_stage ? 1 : 0);
  if (with_layers > LayerCount(scenario.model)) {
    return InvalidInput(
        "parallel.pipeline.schedule: {} has {} stages, expected at most the model's {} layers{}",
        scenario.parallel.pipeline.schedule, stages, LayerCount(scenario.model),
        heads_are_stage ? " plus 1" : "");
  }
  const auto whole = [&](std::vector<int64_t> balance) {
    if (heads_are_stage) balance.push_back(0);
    return balance;
  };
  const int64_t least_at_ends =
      !heads_are_stage && (scenario.model.kind == ModelKind::kMlp || scenario.model.MtpLayers() > 0);
  if (IsMegatronOrDeepspeed(scenario.framework))
    return whole(BalanceStages(CountedLayers(scenario, stages), with_layers, heads_are_stage ? 0 : 1));
  const Parts parts = MeasureParts(scenario, times);
  if (stages != static_cast<int>(schedule.ranks.size()))
    return whole(BalanceRanks(parts.time, schedule.rank_of_stage, least_at_ends));
  if (capacity < Bytes::Max()) {
    const std::vector<int64_t> held = ActivationsInFlight(schedule);
    const StageFits fits = [&](int index, const StageRange& stage) {
      const double activations =
          static_cast<double>(held[schedule.rank_of_stage[index]]) * CostOf(parts.activations, stage);
      return CostOf(parts.states, stage) + std::max(activations, CostOf(parts.updates, stage)) <=
             static_cast<double>(capacity.count());
    };
    if (auto balance = BalanceStages(parts.time, with_layers, least_at_ends, fits); !balance.empty())
      return whole(std::move(balance));
  }
  return whole(BalanceStages(parts.time, with_layers, least_at_ends));
}

}  // namespace windtunnel
