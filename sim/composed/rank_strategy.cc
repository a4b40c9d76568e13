#include "sim/composed/rank_strategy.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/check.h"
#include "plan/collectives.h"
#include "plan/data_parallel.h"
#include "plan/loss_scaling.h"
#include "plan/ops.h"
#include "plan/step_end.h"
#include "sim/composed/rank_parameters.h"
#include "sim/composed/rank_streams.h"
#include "sim/composed/strategy_memory.h"

namespace windtunnel::composed {
namespace {

// Where an operator was added, in Op::stage. Reductions have kReduction + stage.
enum Mark : int { kOpening, kBefore, kMarker, kAfter, kEndBackward, kAfterSends, kReduction };

Role RoleFor(const Scenario& scenario) {
  Role role;
  AddLossScaling(role, scenario.precision);
  return role;
}

// Has a strategy make the step of a rank, with markers for the model's operators.
class Driver {
 public:
  Driver(const Scenario& scenario, const RankShape& shape, const MeshGroups& groups)
      : scenario_(scenario),
        shape_(shape),
        role_(RoleFor(scenario)),
        parameters_(shape, role_),
        streams_(scenario, shape, groups, role_) {
    for (Parameter& parameter : role_.parameters)
      parameter.is_shared =
          streams_.embedding().ranks() > 1 && parameter.ordinal == 0 && !parameter.is_frozen;
    const bool is_zero = scenario_.parallel.data.kind == DataParallelKind::kZero1;
    const auto ranks_of = [&](CollectiveStream& all) {
      return StateRanks{all, is_zero ? all : streams_.alone(), is_zero ? streams_.alone() : all};
    };
    StrategyContext context{.scenario = scenario_,
                            .role = role_,
                            .modules = modules_,
                            .dense = ranks_of(streams_.data()),
                            .of_experts = ranks_of(streams_.expert_data()),
                            .reshard = streams_.alone(),
                            .tensor = streams_.tensor(),
                            .expert = streams_.expert_part(),
                            .copies = kComputeStream,
                            .host = -1,
                            .model_parts = {&streams_.tensor(), &streams_.pipeline()},
                            .pipeline_rank = shape_.has_first ? 0 : 1,  // only this distinction matters
                            .first_parameters = parameters_.first_of_stages()};
    if (is_zero) {
      context.copies = streams_.Add(StreamKind::kCopy, "copy", kCopies);
      context.host = streams_.Add(StreamKind::kHost, "host", kCompute);
    }
    strategy_ = is_zero ? MakeZero(context) : MakeReplicated(context);
    built_ = role_.buffers.size();
  }

  // The memory that the strategy holds from its construction on, in bytes.
  int64_t ResidentSoFar() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < built_; ++i)
      if (role_.buffers[i].use != BufferUse::kFirstBucket)
        bytes += RequestedBy(role_.buffers[i], scenario_.allocator);
    return bytes;
  }

  void Run() {
    StartUp();
    Step();
  }

  // Of Run().
  const Program& step() const { return step_; }
  const RankStreams& streams() const { return streams_; }
  size_t uses() const { return uses_; }      // markers of values
  size_t firsts() const { return firsts_; }  // markers of first backwards, which follow
  DrivenRole driven() const {
    return {.role = role_,
            .step = step_,
            .allocator = scenario_.allocator,
            .built = built_,
            .before_step = before_step_,
            .starts_up = StartsUp(),
            .rebuilt = rebuilt_,
            .tensor_scratch = streams_.tensor().scratch(),
            .expert_scratch = streams_.expert().scratch()};
  }

 private:
  // Whether DDP finds its buckets in the first steps.
  bool StartsUp() const { return strategy_->startup_steps() > 1; }

  void StartUp() {
    if (!StartsUp()) return;
    ProgramBuilder zeroth(role_, "step 0"), first(role_, "step 1");
    strategy_->BeginStep(zeroth, 0);
    parameters_.ForEachCall(/*is_first=*/false,
                            [&](const GradientCalls& calls, const PartParameters& parameter) {
                              CallAfter(calls, parameter, /*is_last=*/true);
                            });
    strategy_->EndBackward();
    const size_t before = role_.buffers.size();
    strategy_->BeginStep(first, 1);
    for (size_t i = before; i < role_.buffers.size(); ++i) {
      if (role_.buffers[i].use == BufferUse::kBucket) rebuilt_.push_back(static_cast<BufferId>(i));
    }
  }

  // What the model calls after an operator that writes gradients.
  void CallAfter(const GradientCalls& calls, const PartParameters& parameter, bool is_last) {
    for (const GradientCalls::After& after : calls.after) {
      if (after.is_ready) strategy_->Ready(parameter(after.parameter), is_last);
      else strategy_->Wrote(parameter(after.parameter));
    }
  }

  void Step() {
    ProgramBuilder b(role_, "steady");
    before_step_ = role_.buffers.size();
    b.SetStage(kOpening);
    strategy_->BeginStep(b, std::max<int64_t>(strategy_->startup_steps(), 1));
    if (scenario_.parallel.data.overlap_param_gather) ReadValues(b);
    const bool is_single = scenario_.batch.accumulate == 1;
    for (bool is_last : {false, true}) {
      if (is_single && !is_last) continue;
      const auto call = [&](const GradientCalls& calls, const PartParameters& parameter) {
        b.SetStage(kBefore);
        std::vector<Slice> gradients;
        for (int local : calls.gradients) gradients.push_back(strategy_->Gradient(parameter(local)));
        b.SetStage(kMarker);
        b.Add(SquareRoot{}, "", {}, gradients);
        b.SetStage(kAfter);
        CallAfter(calls, parameter, is_last);
        if (!is_last) ++firsts_;
      };
      // After the last backward of a rank's first stage, only the pipeline's first rank has a reduction in
      // the schedule.
      parameters_.ForEachCall(!is_last || is_single, call, [&](BackwardPass pass) {
        if (!is_last || (pass.chunk == 0 && !shape_.has_first)) return;
        b.SetStage(kReduction + pass.chunk);
        strategy_->ReduceStage(pass.chunk);
      });
    }
    b.SetStage(kEndBackward);
    strategy_->EndBackward();
    b.SetStage(kAfterSends);
    SumTiedGradient(b, *strategy_, streams_.embedding());
    strategy_->Update(b, /*first=*/false);
    AddLossScaleUpdate(b);
    CloseWithBarrier(b, streams_.world());
    step_ = b.Finish();
    streams_.SizeScratch();
  }

  // Adds the requests for values in the first forwards.
  void ReadValues(ProgramBuilder& b) {
    parameters_.ForEachUse([&](const std::vector<int>& parameters) {
      b.SetStage(kBefore);
      for (int parameter : parameters) strategy_->Values(parameter);
      b.SetStage(kMarker);
      b.Add(SquareRoot{}, "", {}, {});
      ++uses_;
    });
  }

  const Scenario& scenario_;
  const RankShape& shape_;
  Role role_;
  RankParameters parameters_;
  RankStreams streams_;
  std::vector<Module> modules_;
  std::unique_ptr<DataParallel> strategy_;
  size_t built_ = 0, before_step_ = 0;  // DrivenRole
  std::vector<BufferId> rebuilt_;
  Program step_;
  size_t uses_ = 0, firsts_ = 0;
};

// Makes what was driven a RankStrategy, without its memory.
class Conversion {
 public:
  Conversion(const Scenario& scenario, const MeshGroups& groups, Costs& costs, const Driver& driver)
      : scenario_(scenario), groups_(groups), costs_(costs), driver_(driver) {}

  Result<RankStrategy> Run(size_t stages) {
    result_.after_backwards = result_.sends_from = result_.sends_awaited = -1;
    result_.reductions.resize(stages);
    for (const Op& op : driver_.step().ops) {
      AddOp(op);
      if (op.stage != kMarker) WT_RETURN_IF_ERROR(Cost(op, result_.ops.back()));
      Place(op, static_cast<int32_t>(result_.ops.size()) - 1);
    }
    const int32_t size = static_cast<int32_t>(result_.ops.size());
    for (int32_t* place : {&result_.after_backwards, &result_.sends_from, &result_.sends_awaited})
      if (*place < 0) *place = size;
    const auto first = groups_of_markers_.begin() + static_cast<ptrdiff_t>(driver_.uses());
    const auto last = first + static_cast<ptrdiff_t>(driver_.firsts());
    result_.values.assign(groups_of_markers_.begin(), first);
    result_.first.assign(first, last);
    result_.last.assign(last, groups_of_markers_.end());
    if (result_.first.empty()) result_.first = result_.last;  // one micro-batch
    return std::move(result_);
  }

 private:
  // Notes where operator `number` was added.
  void Place(const Op& op, int32_t number) {
    result_.adds_to_first |=
        std::holds_alternative<Fill>(op.kind) && (op.stage == kBefore || op.stage == kAfter);
    switch (op.stage) {
      case kOpening:
        result_.opening = begin_ = number + 1;
        break;
      case kBefore:
        break;
      case kMarker:
        result_.ops.back().is_marker = true;
        groups_of_markers_.push_back({begin_, number, number + 1, 0});
        begin_ = number + 1;
        break;
      case kAfter:
        groups_of_markers_.back().end = begin_ = number + 1;
        break;
      default:
        if (op.stage >= kReduction) {
          RankStrategy::Reduction& reduction = result_.reductions[static_cast<size_t>(op.stage - kReduction)];
          if (reduction.begin == reduction.end) reduction.begin = number;
          reduction.end = begin_ = number + 1;
          break;
        }
        if (result_.after_backwards < 0) result_.after_backwards = number;
        if (op.stage != kAfterSends) break;
        if (result_.sends_from < 0) result_.sends_from = number;
        if (op.stream == kComputeStream && result_.sends_awaited < 0) result_.sends_awaited = number;
    }
  }

  void AddOp(const Op& op) {
    StrategyOp& added = result_.ops.emplace_back();
    added.stream = driver_.streams().LocalOf(op.stream);
    added.first_dependency = static_cast<int32_t>(result_.dependencies.size());
    for (OpIndex dependency : op.dependencies) result_.dependencies.push_back(dependency);
    added.dependencies = static_cast<int32_t>(op.dependencies.size());
  }

  Status Cost(const Op& op, StrategyOp& added) {
    const AxisId axis = driver_.streams().AxisOf(op.stream);
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

  const Scenario& scenario_;
  const MeshGroups& groups_;
  Costs& costs_;
  const Driver& driver_;
  std::vector<RankStrategy::Group> groups_of_markers_;
  int32_t begin_ = 0;  // of the group of the next marker
  RankStrategy result_;
};

}  // namespace

Result<RankStrategy> MakeRankStrategy(const Scenario& scenario, const RankShape& shape,
                                      const MeshGroups& groups, Costs& costs, int64_t capacity) {
  Driver driver(scenario, shape, groups);
  if (const int64_t resident = driver.ResidentSoFar(); resident > capacity) {
    RankStrategy bound;
    bound.is_whole = false;
    bound.resident = resident;
    return bound;
  }
  driver.Run();
  WT_ASSIGN_OR_RETURN(RankStrategy strategy,
                      Conversion(scenario, groups, costs, driver).Run(shape.stages.size()));
  AddMemory(driver.driven(), strategy);
  return strategy;
}

}  // namespace windtunnel::composed
