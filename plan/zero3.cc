// ZeRO-3's modules, parts and buffers, their first values, and the update.
#include "plan/zero3.h"

#include <algorithm>
#include <map>

#include "plan/gradient_buckets.h"
#include "plan/model.h"

namespace windtunnel {

Zero3::Zero3(const StrategyContext& context)
    : role_(context.role),
      spec_(context.scenario.parallel.data.zero3),
      offload_(context.scenario.parallel.data.offload),
      framework_(context.scenario.framework),
      type_(TypesOf(context.scenario.precision).storage),
      reduce_(TypeOf(context.scenario.precision.reduce)),
      data_(context.dense.all),
      shard_axis_(context.dense.shard),
      replicate_(context.dense.replicate),
      copies_(context.copies),
      reductions_(context.reductions),
      host_(context.host),
      overlaps_(context.scenario.parallel.data.overlap),
      optimizer_(context.role, context.scenario, context.tensor, NormRanksOf(context)) {
  MakeModules();
  MakeParts(spec_.param_persistence_threshold);
  const Bytes of_one = SizeOf(reduce_);
  bucket_elements_ = BucketCap(context.scenario, of_one).count() / of_one.count();
  // DeepSpeed's own is as large as it is configured, whatever the model has.
  if (framework_ == Framework::kWindtunnel) {
    int64_t all = 0;
    for (const ParameterState& parameter : parameters_) all += parameter.elements;
    bucket_elements_ = std::min(bucket_elements_, all);
  }
  MakeBuffers();
}

// A module has the parameters whose names differ in the last part only: "blocks.0.mlp.up.weight", ".bias".
void Zero3::MakeModules() {
  std::map<std::string, int> known;
  parameters_.resize(role_.parameters.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = role_.parameters[i];
    const auto [at, is_new] = known.try_emplace(parameter.name.substr(0, parameter.name.rfind('.')),
                                                static_cast<int>(modules_.size()));
    if (is_new) modules_.emplace_back();
    ModuleState& module = modules_[at->second];
    module.parameters.push_back(static_cast<int>(i));
    module.elements += parameter.elements;
    parameters_[i].module = at->second;
  }
}

// Parameters that are trained come first, so that their masters and gradients are laid out alike.
void Zero3::MakeParts(int64_t threshold) {
  for (const bool is_frozen : {false, true}) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (role_.parameters[i].is_frozen != is_frozen) continue;
      ParameterState& parameter = parameters_[i];
      parameter.elements = role_.parameters[i].elements;
      parameter.shard = (parameter.elements + ranks() - 1) / ranks();
      parameter.start = elements_;
      parameter.is_whole = ranks() > 1 && parameter.elements <= threshold;
      elements_ += parameter.shard;
    }
    if (!is_frozen) trained_ = elements_;
  }
}

void Zero3::MakeBuffers() {
  const auto space = [](bool is_offloaded) {
    return is_offloaded ? MemorySpace::kHost : MemorySpace::kDevice;
  };
  const MemorySpace optimizer_space = space(offload_ != Offload::kNone);
  values_ =
      NewBuffer(role_, "parts", elements_, Category::kParameters, type_, space(offload_ == Offload::kParam));
  if (has_masters())
    masters_ = NewBuffer(role_, "masters", trained_, Category::kOptimizer, DType::kFloat32, optimizer_space);
  const DType added = offload_ == Offload::kNone ? reduce_ : DType::kFloat32;
  gradients_ = NewBuffer(role_, "gradients", trained_, Category::kGradients, added, optimizer_space);
  bucket_ = NewBuffer(role_, "bucket", bucket_elements_, Category::kGradients, reduce_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    ParameterState& parameter = parameters_[i];
    parameter.values = Slice{values_.buffer, parameter.start, parameter.shard};
    if (parameter.is_whole) {
      const int64_t elements = gathers_each() ? parameter.shard * ranks() : parameter.elements;
      parameter.whole = NewBuffer(role_, role_.parameters[i].name, elements, Category::kParameters, type_);
    }
    const BufferId holder =
        has_masters() && !role_.parameters[i].is_frozen ? masters_.buffer : values_.buffer;
    role_.parameters[i].values =
        ranks() == 1 ? Placement{holder, parameter.start, 0, 0, 0}
                     : Placement{holder, parameter.start, parameter.shard, 0, shard_axis_.axis()};
  }
}

OpIndex Zero3::AddOn(StreamId stream, OpKind kind, std::string name, std::vector<Slice> reads,
                     std::vector<Slice> writes, std::vector<OpIndex> after) {
  std::erase_if(after, [&](OpIndex index) { return index < 0 || b_->StreamOf(index) == stream; });
  return b_->Add(std::move(kind), std::move(name), std::move(reads), std::move(writes), std::move(after),
                 stream);
}

void Zero3::Initialize(ProgramBuilder& b) {
  for (const Slice& buffer : {values_, masters_, gradients_, bucket_})
    if (buffer.buffer >= 0) b.Alloc(buffer.buffer);
  for (size_t i = 0; i < parameters_.size(); ++i) InitializeParameter(b, static_cast<int>(i));
}

// One parameter at a time is whole on every rank, which then keeps its part (zero.Init).
void Zero3::InitializeParameter(ProgramBuilder& b, int index) {
  const ParameterState& parameter = parameters_[index];
  const std::string name = role_.parameters[index].name;
  const Slice whole = b.Temporary(name + " (fp32)", parameter.shard * ranks(), Category::kParameters);
  const Slice used{whole.buffer, 0, parameter.elements};
  if (const int64_t padding = whole.elements - parameter.elements; padding > 0)
    b.Add(Fill{padding}, name, {}, {Slice{whole.buffer, parameter.elements, padding}});
  AddInitialValues(b, {index}, {used});
  const OpIndex broadcast = data_.Broadcast(b, 0, whole, name, {b.LastCompute()});
  b.Carries(broadcast, {index});
  b.WaitBeforeNextCompute(broadcast);
  const Slice own = OwnShard(shard_axis_, whole, parameter.shard);
  const auto keep = [&](Slice from, Slice to, bool is_offloaded) {
    const auto crosses = is_offloaded ? Copy::Crosses::kToHost : Copy::Crosses::kNothing;
    b.Add(Copy{.elements = to.elements, .to = role_.buffers[to.buffer].dtype, .crosses = crosses}, name,
          {from}, {to});
  };
  keep(own, parameter.values, offload_ == Offload::kParam);
  if (has_masters() && !role_.parameters[index].is_frozen)
    keep(own, Slice{masters_.buffer, parameter.start, parameter.shard}, offload_ != Offload::kNone);
  if (parameter.is_whole) {
    b.Alloc(parameter.whole.buffer);
    keep(used, Slice{parameter.whole.buffer, 0, parameter.elements}, false);
  }
}

// Starts a program: nothing is fetched yet.
void Zero3::BeginProgram(ProgramBuilder& b) {
  b_ = &b;
  for (ParameterState& parameter : parameters_) {
    if (!parameter.is_whole) parameter.whole = {};
    parameter.fetch = kNone;
    parameter.gradient = {};
    parameter.holds_gradient = parameter.is_awaited = false;
  }
  for (ModuleState& module : modules_) module.used_in = kNone;
  fetches_.clear();
  fetched_.clear();
  scopes_.clear();
  in_bucket_.clear();
  arriving_.clear();
  filled_ = last_scope_ = 0;
  module_ = kNone;
  last_fetch_ = last_copied_ = last_reduction_ = bucket_free_after_ = -1;
}

void Zero3::BeginStep(ProgramBuilder& b, int64_t) {
  BeginProgram(b);
  evaluates_ = adds_gradients_ = false;
}

void Zero3::BeginEvaluation(ProgramBuilder& b) {
  BeginProgram(b);
  evaluates_ = true;
}

// Called for weights that two pipeline stages share, and there are no pipelines.
Slice Zero3::ReducedGradient(int index) { return PartOf(index); }

void Zero3::Update(ProgramBuilder& b, bool first) {
  b.SetPhase(Phase::kOptimizer);
  Slice gradients = gradients_;
  const DType added = role_.buffers[gradients_.buffer].dtype;
  // DeepSpeed flattens a copy even of fp32 gradients (_prepare_fp32_grad_for_sub_group).
  const bool flattens = framework_ != Framework::kWindtunnel && offload_ == Offload::kNone;
  if (added != DType::kFloat32 || flattens) {
    gradients = b.Temporary("gradients (fp32)", trained_, Category::kGradients);
    b.Add(Copy{.elements = trained_, .from = added}, "gradients", {gradients_}, {gradients});
  }
  const Slice values = has_masters() ? masters_ : Slice{values_.buffer, 0, trained_};
  optimizer_.BeginUpdate(b, {{"parts", values, gradients}}, copies_);
  optimizer_.PrepareGradients(b, first);
  GatherWhole(ConvertMasters(optimizer_.AddUpdate(b, first, 0, 1)), false);
}

void Zero3::Restore(ProgramBuilder& b) {
  BeginProgram(b);
  GatherWhole(ConvertMasters(-1), true);
}

// Writes the parts that the model computes with. Returns the operator behind which they are there.
OpIndex Zero3::ConvertMasters(OpIndex after) {
  if (!has_masters()) return after;
  const auto crosses = offload_ == Offload::kOptimizer ? Copy::Crosses::kToDevice : Copy::Crosses::kNothing;
  return AddBeside(*b_, copies_, Copy{.elements = trained_, .to = type_, .crosses = crosses}, "parts",
                   masters_, Slice{values_.buffer, 0, trained_}, {after});
}

// Gathers the parameters that every rank keeps whole: those that are trained, or all.
void Zero3::GatherWhole(OpIndex after, bool with_frozen) {
  std::vector<int> kept;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_whole && (with_frozen || gathers_each() || !role_.parameters[i].is_frozen))
      kept.push_back(static_cast<int>(i));
  }
  if (kept.empty()) return;
  if (gathers_each()) return GatherEach(kept, after);
  const Packed packed = Pack(kept, after);
  const OpIndex gather =
      shard_axis_.AllGather(*b_, packed.own, packed.whole, "whole parameters", {packed.ready});
  b_->Carries(gather, kept);
  std::vector<Slice> tensors;
  for (const int index : kept) tensors.push_back(parameters_[index].whole);
  b_->WaitBeforeNextCompute(AddOn(copies_, UnpackShards{ranks(), packed.shards, type_}, "whole parameters",
                                  {packed.whole}, tensors, {gather}));
}

// As _allgather_params_coalesced, which despite its name gathers them one by one, and the host waits.
void Zero3::GatherEach(const std::vector<int>& parameters, OpIndex after) {
  OpIndex last = -1;
  for (const int index : parameters) {
    const ParameterState& parameter = parameters_[index];
    OpIndex ready = after;
    const Slice part = PartOnDevice(index, ready);
    last = shard_axis_.AllGather(*b_, part, parameter.whole, NameOf(index), {ready});
    b_->Carries(last, {index});
  }
  b_->WaitBeforeNextCompute(last);
  if (host_ >= 0) b_->Add(HostWait{}, "whole parameters", {}, {}, {last}, host_);
}

std::unique_ptr<DataParallel> MakeZero3(const StrategyContext& context) {
  return std::make_unique<Zero3>(context);
}

}  // namespace windtunnel
