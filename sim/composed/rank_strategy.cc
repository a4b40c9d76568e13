#include "sim/composed/rank_strategy.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "plan/buffer_pool.h"
#include "plan/collectives.h"
#include "plan/data_parallel.h"
#include "plan/loss_scaling.h"
#include "plan/ops.h"
#include "plan/step_end.h"

namespace windtunnel::composed {
namespace {

// Where an operator was added, in Op::stage. Reductions have kReduction + stage.
enum Mark : int { kOpening, kBefore, kMarker, kAfter, kEndBackward, kAfterSends, kReduction };

class Driver {
 public:
  Driver(const Scenario& scenario, const RankShape& shape, const MeshGroups& groups, Costs& costs)
      : scenario_(scenario), shape_(shape), groups_(groups), costs_(costs) {
    AddParameters();
    AddLossScaling(role_, scenario_.precision);
    AddStreams();
    const DataParallelKind kind = scenario_.parallel.data.kind;
    const bool is_zero = kind == DataParallelKind::kZero1;
    StrategyContext context{
        .scenario = scenario_,
        .role = role_,
        .modules = modules_,
        .dense = {*data_, is_zero ? *data_ : *alone_, is_zero ? *alone_ : *data_},
        .of_experts = {*expert_data_, is_zero ? *expert_data_ : *alone_, is_zero ? *alone_ : *expert_data_},
        .reshard = *alone_,
        .tensor = *tensor_,
        .expert = *expert_part_,
        .copies = kComputeStream,
        .host = -1,
        .model_parts = {tensor_, pipeline_},
        .pipeline_rank = shape_.has_first ? 0 : 1,  // only this distinction matters
        .first_parameters = first_parameter_};
    if (is_zero) {
      context.copies = AddStream(StreamKind::kCopy, "copy", kCopies);
      context.host = AddStream(StreamKind::kHost, "host", kCompute);
    }
    strategy_ = is_zero ? MakeZero(context) : MakeReplicated(context);
    built_ = role_.buffers.size();
  }

  // The memory that the strategy holds from its construction on, in bytes.
  int64_t ResidentSoFar() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < built_; ++i)
      bytes += IsFirstBucket(role_.buffers[i]) ? 0 : RequestedBy(role_.buffers[i]);
    return bytes;
  }

  Result<RankStrategy> Run() {
    StartUp();
    Step();
    WT_RETURN_IF_ERROR(Convert());
    AddMemory();
    return std::move(result_);
  }

 private:
  // ---- what is driven -------------------------------------------------------------------------------------

  void AddParameters() {
    size_t parameters = 0;
    for (size_t i = 0; i < shape_.stages.size(); ++i) {
      const StageTemplate& stage = *shape_.stages[i];
      parameters += stage.head.size() + stage.tail.size();
      for (size_t unit = 0; unit < stage.units.size(); ++unit)
        parameters += stage.units[unit].size() * static_cast<size_t>(shape_.units[i][unit].count);
    }
    role_.parameters.reserve(parameters);
    for (size_t i = 0; i < shape_.stages.size(); ++i) {
      const StageTemplate* stage = shape_.stages[i];
      first_parameter_.push_back(static_cast<int>(role_.parameters.size()));
      auto add = [&](const std::vector<Parameter>& parameters) {
        role_.parameters.insert(role_.parameters.end(), parameters.begin(), parameters.end());
      };
      add(stage->head);
      for (size_t unit = 0; unit < stage->units.size(); ++unit)
        for (int64_t n = 0; n < shape_.units[i][unit].count; ++n) add(stage->units[unit]);
      add(stage->tail);
    }
  }

  StreamId AddStream(StreamKind kind, const char* name, LocalStream local) {
    role_.streams.push_back(Stream{kind, name, -1});
    local_.push_back(local);
    axes_.push_back(-1);
    return static_cast<StreamId>(role_.streams.size()) - 1;
  }

  CollectiveStream* AddCollectives(AxisId axis, LocalStream local, const char* name) {
    const int ranks = static_cast<int>(groups_.Of(axis).ranks.size());
    collectives_.push_back(std::make_unique<CollectiveStream>(role_, axis, ranks, name));
    if (ranks > 1) {
      local_.push_back(local);
      axes_.push_back(axis);
    }
    return collectives_.back().get();
  }

  // As RoleCompiler does.
  void AddStreams() {
    const ParallelSpec& parallel = scenario_.parallel;
    const int64_t world = groups_.world.ranks.size();
    AddStream(StreamKind::kCompute, "compute", kCompute);
    alone_ = std::make_unique<CollectiveStream>(role_, kWorldAxis, 1, "");
    data_ = AddCollectives(kDataAxis, kData, "data");
    tensor_ = AddCollectives(kTensorAxis, kTensor, "tensor");
    expert_ = AddCollectives(kExpertAxis, kExpert, "expert");
    expert_part_ = scenario_.parallel.TensorRanksHaveExperts()
                       ? AddCollectives(kExpertPartAxis, kExpertPart, "expert part")
                       : expert_;
    expert_data_ = AddCollectives(kExpertDataAxis, kExpertData, "expert data");
    world_ = data_->ranks() == world         ? data_
             : parallel.tensor.size == world ? tensor_
                                             : AddCollectives(kWorldAxis, kWorld, "world");
    const bool has_pipeline = parallel.pipeline.size > 1;
    const bool meets_stages = scenario_.optimizer.clip_norm > 0 || scenario_.precision.scales_loss();
    pipeline_ =
        has_pipeline && meets_stages ? AddCollectives(kPipelineAxis, kPipeline, "pipeline") : alone_.get();
    const bool has_embedding =
        has_pipeline && scenario_.model.SharesEmbedding() && (shape_.has_first || shape_.has_last);
    embedding_ = has_embedding ? AddCollectives(kEmbeddingAxis, kEmbedding, "embedding") : alone_.get();
    for (Parameter& parameter : role_.parameters)
      parameter.is_shared = embedding_->ranks() > 1 && parameter.ordinal == 0 && !parameter.is_frozen;
  }

  // A stage's parameters in the role: the first index of those before, in and after its layers.
  struct ParametersOfStage {
    int head = 0, layers = 0, tail = 0;

    // Map a local index to the role's: outside the layers, or in a unit whose parameters begin at `begin`.
    auto Outside() const {
      return [*this](int local) {
        return local < layers - head ? head + local : tail + local - (layers - head);
      };
    }
    static auto In(int begin) {
      return [begin](int local) { return begin + local; };
    }
  };
  ParametersOfStage ParametersOf(size_t stage) const {
    const StageTemplate& of = *shape_.stages[stage];
    ParametersOfStage parameters{.head = first_parameter_[stage]};
    parameters.layers = parameters.tail = parameters.head + static_cast<int>(of.head.size());
    for (size_t unit = 0; unit < of.units.size(); ++unit)
      parameters.tail +=
          static_cast<int>(of.units[unit].size()) * static_cast<int>(shape_.units[stage][unit].count);
    return parameters;
  }

  // Calls `f(calls, parameter)` for each operator that writes gradients in the first or last backwards of the
  // rank's stages, and `after(pass)` after each. `parameter` maps a local index to the role's.
  template <typename F>
  void ForEachCall(
      bool is_first, F f, const std::function<void(BackwardPass)>& after = [](BackwardPass) {}) {
    for (const BackwardPass which : is_first ? shape_.passes.first : shape_.passes.last) {
      const auto i = static_cast<size_t>(which.chunk);
      const StageTemplate& stage = *shape_.stages[i];
      const StagePass& pass =
          (is_first ? stage.first_backward : stage.backward)[static_cast<size_t>(which.kind)];
      const ParametersOfStage parameters = ParametersOf(i);
      for (const GradientCalls& calls : pass.before.gradients) f(calls, parameters.Outside());
      int begin = parameters.tail;
      for (size_t unit = stage.units.size(); unit-- > 0;) {
        for (int64_t n = 0; n < shape_.units[i][unit].count; ++n) {
          begin -= static_cast<int>(stage.units[unit].size());
          for (const GradientCalls& calls : pass.units[unit].gradients)
            f(calls, ParametersOfStage::In(begin));
        }
      }
      for (const GradientCalls& calls : pass.after.gradients) f(calls, parameters.Outside());
      after(which);
    }
  }

  // Calls `f(parameters)` for each operator before which values are requested, in a forward of each stage.
  template <typename F>
  void ForEachUse(F f) {
    const auto use = [&](const Part& part, const auto& parameter) {
      for (std::vector<int> parameters : part.values) {
        for (int& local : parameters) local = parameter(local);
        f(parameters);
      }
    };
    for (size_t i = 0; i < shape_.stages.size(); ++i) {
      const StageTemplate& stage = *shape_.stages[i];
      const StagePass& pass = stage.forward;
      const ParametersOfStage parameters = ParametersOf(i);
      use(pass.before, parameters.Outside());
      int begin = parameters.layers;
      for (size_t unit = 0; unit < stage.units.size(); ++unit) {
        for (int64_t n = 0; n < shape_.units[i][unit].count; ++n) {
          use(pass.units[unit], ParametersOfStage::In(begin));
          begin += static_cast<int>(stage.units[unit].size());
        }
      }
      use(pass.after, parameters.Outside());
    }
  }

  // The steps in which DDP finds its buckets.
  void StartUp() {
    const int64_t steps = strategy_->startup_steps();
    if (steps < 2) return;
    ProgramBuilder zeroth(role_, "step 0"), first(role_, "step 1");
    strategy_->BeginStep(zeroth, 0);
    ForEachCall(/*is_first=*/false, [&](const GradientCalls& calls, const auto& parameter) {
      for (const GradientCalls::After& after : calls.after) {
        if (after.is_ready) strategy_->Ready(parameter(after.parameter), /*is_last=*/true);
        else strategy_->Wrote(parameter(after.parameter));
      }
    });
    strategy_->EndBackward();
    const size_t before = role_.buffers.size();
    strategy_->BeginStep(first, 1);
    for (size_t i = before; i < role_.buffers.size(); ++i) {
      if (role_.buffers[i].use == BufferUse::kBucket) rebuilt_.push_back(static_cast<BufferId>(i));
    }
  }

  void Step() {
    ProgramBuilder b(role_, "steady");
    const size_t before = role_.buffers.size();
    b.SetStage(kOpening);
    strategy_->BeginStep(b, std::max<int64_t>(strategy_->startup_steps(), 1));
    if (scenario_.parallel.data.overlap_param_gather) ReadValues(b);
    const bool is_single = scenario_.batch.accumulate == 1;
    for (bool is_last : {false, true}) {
      if (is_single && !is_last) continue;
      const auto call = [&](const GradientCalls& calls, const auto& parameter) {
        b.SetStage(kBefore);
        std::vector<Slice> gradients;
        for (int local : calls.gradients) gradients.push_back(strategy_->Gradient(parameter(local)));
        b.SetStage(kMarker);
        b.Add(SquareRoot{}, "", {}, gradients);
        b.SetStage(kAfter);
        for (const GradientCalls::After& after : calls.after) {
          if (after.is_ready) strategy_->Ready(parameter(after.parameter), is_last);
          else strategy_->Wrote(parameter(after.parameter));
        }
        if (!is_last) ++firsts_;
      };
      // After the last backward of a rank's first stage, only the pipeline's first rank has a reduction in
      // the schedule.
      ForEachCall(!is_last || is_single, call, [&](BackwardPass pass) {
        if (!is_last || (pass.chunk == 0 && !shape_.has_first)) return;
        b.SetStage(kReduction + pass.chunk);
        strategy_->ReduceStage(pass.chunk);
      });
    }
    b.SetStage(kEndBackward);
    strategy_->EndBackward();
    b.SetStage(kAfterSends);
    SumTiedGradient(b, *strategy_, *embedding_);
    strategy_->Update(b, /*first=*/false);
    AddLossScaleUpdate(b);
    CloseWithBarrier(b, *world_);
    step_ = b.Finish();
    created_in_step_ = before;
    for (auto& collectives : collectives_) collectives->SizeScratch();
  }

  // Adds the requests for values in the first forwards.
  void ReadValues(ProgramBuilder& b) {
    ForEachUse([&](const std::vector<int>& parameters) {
      b.SetStage(kBefore);
      for (int parameter : parameters) strategy_->Values(parameter);
      b.SetStage(kMarker);
      b.Add(SquareRoot{}, "", {}, {});
      ++uses_;
    });
  }

  // ---- the results ----------------------------------------------------------------------------------------

  Status Convert() {
    const std::vector<Op>& ops = step_.ops;
    std::vector<RankStrategy::Group> groups;
    int32_t begin = 0;  // of the group of the next marker
    result_.after_backwards = result_.sends_from = result_.sends_awaited = -1;
    result_.reductions.resize(shape_.stages.size());
    for (size_t i = 0; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const auto number = static_cast<int32_t>(i);
      AddOp(op);
      result_.adds_to_first |=
          std::holds_alternative<Fill>(op.kind) && (op.stage == kBefore || op.stage == kAfter);
      if (op.stage != kMarker) WT_RETURN_IF_ERROR(Cost(op, result_.ops.back()));
      switch (op.stage) {
        case kOpening:
          result_.opening = begin = number + 1;
          break;
        case kBefore:
          break;
        case kMarker:
          result_.ops.back().is_marker = true;
          groups.push_back({begin, number, number + 1, 0});
          begin = number + 1;
          break;
        case kAfter:
          groups.back().end = begin = number + 1;
          break;
        default:
          if (op.stage >= kReduction) {
            RankStrategy::Reduction& reduction =
                result_.reductions[static_cast<size_t>(op.stage - kReduction)];
            if (reduction.begin == reduction.end) reduction.begin = number;
            reduction.end = begin = number + 1;
            break;
          }
          if (result_.after_backwards < 0) result_.after_backwards = number;
          if (op.stage != kAfterSends) break;
          if (result_.sends_from < 0) result_.sends_from = number;
          if (op.stream == kComputeStream && result_.sends_awaited < 0) result_.sends_awaited = number;
      }
    }
    const int32_t size = static_cast<int32_t>(result_.ops.size());
    for (int32_t* place : {&result_.after_backwards, &result_.sends_from, &result_.sends_awaited})
      if (*place < 0) *place = size;
    const auto first = groups.begin() + static_cast<ptrdiff_t>(uses_);
    const auto last = first + static_cast<ptrdiff_t>(firsts_);
    result_.values.assign(groups.begin(), first);
    result_.first.assign(first, last);
    result_.last.assign(last, groups.end());
    if (result_.first.empty()) result_.first = result_.last;  // one micro-batch
    return Ok();
  }

  void AddOp(const Op& op) {
    StrategyOp& added = result_.ops.emplace_back();
    added.stream = local_[op.stream];
    added.first_dependency = static_cast<int32_t>(result_.dependencies.size());
    for (OpIndex dependency : op.dependencies) result_.dependencies.push_back(dependency);
    added.dependencies = static_cast<int32_t>(op.dependencies.size());
  }

  Status Cost(const Op& op, StrategyOp& added) {
    const AxisId axis = axes_[op.stream];
    if (axis < 0) {
      WT_ASSIGN_OR_RETURN(const LocalCost cost, costs_.Local(op));
      added.host = cost.host;
      added.work = cost.kernel.time;
      // Strategies add no products but Muon's, before which all communication has been awaited.
      WT_CHECK(cost.kernel.beside_communication == 0 || op.phase == Phase::kOptimizer);
      return Ok();
    }
    WT_ASSIGN_OR_RETURN(added.host, costs_.Host(op));
    WT_ASSIGN_OR_RETURN(const TransferCost cost, costs_.Communication(op, axis, groups_.Of(axis)));
    added.work = cost.time;
    added.efficiency = cost.efficiency;
    added.holds_multiprocessors = cost.holds_multiprocessors;
    added.meets_ranks = scenario_.parallel.pipeline.size > 1 && added.stream >= kPipeline;
    return Ok();
  }

  static bool IsFirstBucket(const Buffer& buffer) { return buffer.use == BufferUse::kFirstBucket; }

  int64_t RequestedBy(const Buffer& buffer) const {
    if (buffer.space != MemorySpace::kDevice) return 0;
    return RequestedBytes(buffer.bytes, scenario_.allocator).count();
  }

  void AddMemory() {
    FindTemporaries();
    AddResident();
    WalkProgram(
        step_, [&](int32_t index) { AddChange(step_.memory[index]); }, [&](OpIndex index) { PassOp(index); });
    if (passed_.is_awaited) result_.peak_after = passed_.peak;
    else SetBefore();
  }

  // Temporary buffers are allocated and then freed within the step.
  void FindTemporaries() {
    std::vector<bool> is_allocated(role_.buffers.size());
    is_temporary_.assign(role_.buffers.size(), false);
    for (const MemoryOp& op : step_.memory) {
      if (op.allocates()) is_allocated[op.buffer] = true;
      else if (is_allocated[op.buffer]) is_temporary_[op.buffer] = true;
    }
  }

  void PassOp(OpIndex i) {
    passed_.number = i;
    const bool reads_values = !result_.values.empty() && passed_.number <= result_.values.back().marker;
    if (result_.ops[passed_.number].is_marker && !reads_values) {
      ++passed_.groups;
      passed_.conversions = 0;
    } else if (std::holds_alternative<Copy>(step_.ops[i].kind)) {
      ++passed_.conversions;
    }
  }

  void AddChange(const MemoryOp& op) {
    const bool is_alloc = op.allocates(), is_temporary = is_temporary_[op.buffer];
    const int64_t bytes = RequestedBy(role_.buffers[op.buffer]);
    if (!is_temporary && !is_alloc) {
      result_.freed += bytes;
      return;
    }
    const int32_t next = op.before;
    if (passed_.number >= result_.after_backwards || (is_alloc && next >= result_.after_backwards)) {
      // The messages' memory is freed before what the operator that waits for them allocates.
      if (passed_.number >= result_.sends_awaited || (is_alloc && next >= result_.sends_awaited)) SetBefore();
      passed_.level += is_alloc ? bytes : -bytes;
      passed_.peak = std::max(passed_.peak, passed_.level);
    } else if (!is_temporary) {
      AddAllocation(bytes, next);
    }
  }

  // Takes effect once, when the sent messages are freed.
  void SetBefore() {
    if (passed_.is_awaited) return;
    result_.net_before = passed_.level;
    result_.peak_before = passed_.peak;
    passed_.is_awaited = true;
    passed_.level = passed_.peak = 0;
  }

  // Adds an allocation in the first backwards: to the next marker's group, or as a late one to the last
  // marker's if operators of that group are still to come.
  void AddAllocation(int64_t bytes, int32_t next) {
    const size_t groups = passed_.groups;
    const bool is_late = groups > 0 && groups <= result_.first.size() && next < result_.first[groups - 1].end;
    if (is_late) {
      RankStrategy::Group& late = result_.first[groups - 1];
      if (late.lates++ == 0) late.first_late = static_cast<int32_t>(result_.late_allocations.size());
      result_.late_allocations.push_back({passed_.conversions, bytes});
    } else {
      WT_CHECK_LT(groups, result_.first.size());
      result_.first[groups].allocates += bytes;
    }
  }

  void AddResident() {
    for (size_t i = 0; i < role_.buffers.size(); ++i) {
      const Buffer& buffer = role_.buffers[i];
      bool stays = i < built_ ? !IsFirstBucket(buffer) : i >= created_in_step_ && !is_temporary_[i];
      if (i < built_ && strategy_->startup_steps() < 2) stays = true;
      if (std::find(rebuilt_.begin(), rebuilt_.end(), static_cast<BufferId>(i)) != rebuilt_.end())
        stays = true;
      const auto id = static_cast<BufferId>(i);
      if (id == tensor_->scratch()) {
        result_.tensor_scratch = buffer.bytes.count();
        continue;
      }
      if (id == expert_->scratch()) {
        result_.expert_scratch = buffer.bytes.count();
        continue;
      }
      if (stays) result_.resident += RequestedBy(buffer);
    }
  }

  const Scenario& scenario_;
  const RankShape& shape_;
  const MeshGroups& groups_;
  Costs& costs_;
  Role role_;
  std::vector<Module> modules_;
  std::vector<int> first_parameter_;  // by stage of the rank
  std::vector<LocalStream> local_;    // by stream of the role
  std::vector<AxisId> axes_;
  std::vector<std::unique_ptr<CollectiveStream>> collectives_;
  std::unique_ptr<CollectiveStream> alone_;
  CollectiveStream *world_ = nullptr, *data_ = nullptr, *tensor_ = nullptr, *expert_ = nullptr,
                   *expert_part_ = nullptr, *expert_data_ = nullptr, *pipeline_ = nullptr,
                   *embedding_ = nullptr;
  std::unique_ptr<DataParallel> strategy_;
  size_t built_ = 0, created_in_step_ = 0;
  std::vector<BufferId> rebuilt_;
  Program step_;
  std::vector<bool> is_temporary_;  // by buffer
  size_t uses_ = 0, firsts_ = 0;    // markers: of values, of first backwards
  // State of the walk through the step's memory.
  struct Passed {
    int32_t number = -1, conversions = 0;  // last operator; conversions since the last marker
    size_t groups = 0;                     // markers passed
    int64_t level = 0, peak = 0;           // bytes, after the backwards
    bool is_awaited = false;               // the sent messages have been freed
  };
  Passed passed_;
  RankStrategy result_;
};

}  // namespace

Result<RankStrategy> MakeRankStrategy(const Scenario& scenario, const RankShape& shape,
                                      const MeshGroups& groups, Costs& costs, int64_t capacity) {
  Driver driver(scenario, shape, groups, costs);
  if (const int64_t resident = driver.ResidentSoFar(); resident > capacity) {
    RankStrategy bound;
    bound.is_whole = false;
    bound.resident = resident;
    return bound;
  }
  return driver.Run();
}

}  // namespace windtunnel::composed
