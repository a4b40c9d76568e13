#include "plan/optimizer_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "plan/data_parallel.h"

namespace windtunnel {
namespace {

int StatesPerTarget(const OptimizerSpec& spec) {
  if (spec.kind == OptimizerKind::kSgd) return spec.momentum != 0 ? 1 : 0;
  return 2;
}

// The sizes of the PyTorch tensors in one target: FSDP 2 shards parameters separately, FSDP 1 whole units.
std::vector<int64_t> TensorsOf(const Role& role, const Slice& values) {
  std::vector<int64_t> sizes;
  int64_t sum = 0;
  for (const Parameter& parameter : role.parameters) {
    if (parameter.values.buffer != values.buffer || parameter.values.per_rank == 0 || parameter.is_frozen)
      continue;
    sizes.push_back(parameter.values.per_rank);
    sum += parameter.values.per_rank;
  }
  return sum == values.elements ? sizes : std::vector{values.elements};
}

}  // namespace

bool UpdatesForeach(Framework framework, const OptimizerSpec& spec) {
  return IsPytorch(framework) && spec.kind != OptimizerKind::kSgd && !spec.fused;
}

OptimizerSteps::OptimizerSteps(Role& role, const OptimizerSpec& spec, CollectiveStream& tensor,
                               const std::vector<OptimizerTarget>& targets, Framework framework,
                               int dense_copies)
    : role_(role),
      spec_(spec),
      tensor_(tensor),
      dense_copies_(dense_copies),
      targets_(targets),
      states_per_target_(StatesPerTarget(spec)) {
  static constexpr const char* kNames[] = {".exp_avg", ".exp_avg_sq"};
  const DType dtype = MomentsOf(spec);
  for (int state = 0; state < states_per_target_; ++state) {
    const char* name = spec.kind == OptimizerKind::kSgd ? ".momentum" : kNames[state];
    for (const OptimizerTarget& target : targets_) {
      const MemorySpace space = role.buffers[target.values.buffer].space;
      states_.push_back(
          NewBuffer(role, target.name + name, target.values.elements, Category::kOptimizer, dtype, space));
      role.optimizer_states.push_back({name + 1, target.values, states_.back()});
    }
  }
  is_foreach_ = UpdatesForeach(framework, spec);
  if (spec.clip_norm > 0) {
    role.gradient_norm = NewBuffer(role, "gradient norm", 1, Category::kWorkspace).buffer;
  }
}

// A parameter's gradient, or the rank's shard of it. Gradients are laid out like the target's values.
Slice OptimizerSteps::GradientOf(const Parameter& parameter) const {
  const Placement& place = parameter.values;
  const auto target = std::find_if(targets_.begin(), targets_.end(),
                                   [&](const OptimizerTarget& t) { return t.values.buffer == place.buffer; });
  WT_CHECK(target != targets_.end());
  const Slice &values = target->values, &gradient = target->gradient;
  const int64_t within = (place.in_whole ? place.start : place.offset) - values.offset;
  Slice slice{gradient.buffer, gradient.offset, parameter.elements, gradient.per_rank};
  if (place.per_rank > 0 && !place.in_whole) {  // the parameter's placement shards it
    slice.offset += within;
    slice.axis = place.axis;
    slice.shard = place.per_rank;
    slice.start = place.start;
  } else if (values.per_rank > 0) {  // the parameter is whole; the target is the rank's part of a buffer
    slice.axis = values.axis;
    slice.shard = values.per_rank;
    slice.start = within;
  } else {
    slice.offset += within;
  }
  return slice;
}

void OptimizerSteps::AddTensorSums(ProgramBuilder& b, StreamId copies) {
  b.SetPhase(Phase::kGradientSync);
  std::vector<Slice> gradients;
  int64_t elements = 0;
  bool sharded = false;
  for (const Parameter& parameter : role_.parameters) {
    if (!parameter.is_partial_gradient) continue;
    gradients.push_back(GradientOf(parameter));
    elements += parameter.elements;
    sharded |= gradients.back().shard > 0;
  }
  if (gradients.empty()) return;
  const std::string name = "tensor sums";
  const bool from_host = role_.buffers[gradients[0].buffer].space == MemorySpace::kHost;
  const Slice all = b.Temporary(name, elements, Category::kCommunication);
  const Slice gathered = from_host ? b.Temporary(name + " (host)", elements, Category::kCommunication,
                                                 DType::kFloat32, MemorySpace::kHost)
                                   : all;
  std::vector<Slice> parts;
  int64_t offset = 0;
  for (const Slice& gradient : gradients) {
    Slice& part = parts.emplace_back(gradient);
    part.buffer = gathered.buffer;
    // Element e of the flat tensor that the gradient is cut from is element e - start of the gradient.
    part.offset = offset - gradient.start;
    part.per_rank = gradient.shard;
    offset += gradient.elements;
  }
  if (sharded)
    b.Add(Fill{elements}, name, {}, {gathered});  // other ranks' shards are summed, too, and not used
  const CopyTensors copy{elements, static_cast<int64_t>(gradients.size())};
  b.Add(copy, name, gradients, parts);
  OpIndex there = b.LastCompute();
  const auto cross = [&](Copy::Crosses crosses, Slice from, Slice to) {
    there = AddBeside(b, copies, Copy{.elements = elements, .crosses = crosses}, name, from, to, {there});
  };
  if (from_host) cross(Copy::Crosses::kToDevice, gathered, all);
  there = tensor_.AllReduce(b, all, name, {there});
  if (from_host) cross(Copy::Crosses::kToHost, all, gathered);
  b.WaitBeforeNextCompute(there);
  b.Add(copy, name, parts, gradients);
}

// The norm over the gradients that the rank counts: over whole targets if all parameters count alike.
GradientNorm OptimizerSteps::NormOf(std::vector<Slice>& gradients) const {
  GradientNorm norm;
  for (const OptimizerTarget& target : targets_) norm.elements += target.gradient.elements;
  const bool has_copies =
      std::any_of(role_.parameters.begin(), role_.parameters.end(),
                  [](const Parameter& parameter) { return parameter.is_copy && !parameter.is_frozen; });
  if (tensor_.ranks() == 1 && dense_copies_ == 1 && !has_copies) {
    for (const OptimizerTarget& target : targets_) gradients.push_back(target.gradient);
  } else {
    for (const Parameter& parameter : role_.parameters) {
      if (parameter.is_copy || parameter.is_frozen) continue;
      gradients.push_back(GradientOf(parameter));
      norm.replicas.push_back((parameter.part.empty() ? tensor_.ranks() : 1) *
                              (parameter.is_of_experts() ? 1 : dense_copies_));
    }
  }
  norm.tensors = static_cast<int64_t>(gradients.size());
  if (!gradients.empty()) norm.dtype = role_.buffers[gradients.front().buffer].dtype;
  return norm;
}

void OptimizerSteps::AddUnscaling(ProgramBuilder& b, const std::vector<CollectiveStream*>& agree_over) {
  if (!role_.loss_scaling) return;
  b.SetPhase(Phase::kOptimizer);
  const Slice found_inf = role_.loss_scaling->found_inf;
  std::vector<Slice> writes = {found_inf};
  int64_t elements = 0;
  for (const OptimizerTarget& target : targets_) {
    writes.push_back(target.gradient);
    elements += target.gradient.elements;
  }
  OpIndex found = b.Add(UnscaleGradients{elements, targets()}, "unscale", {role_.loss_scaling->numbers},
                        std::move(writes));
  for (CollectiveStream* axis : agree_over) {
    if (axis->ranks() > 1) found = axis->AllReduce(b, found_inf, "found_inf", {found}, Reduction::kMax);
  }
  if (b.StreamOf(found) != kComputeStream) b.WaitBeforeNextCompute(found);
}

void OptimizerSteps::AddClipping(ProgramBuilder& b, bool first,
                                 const std::vector<CollectiveStream*>& sum_over) {
  if (spec_.clip_norm <= 0) return;
  b.SetPhase(Phase::kOptimizer);
  const Slice norm{role_.gradient_norm, 0, 1};
  std::vector<Slice> gradients, counted;
  int64_t elements = 0;
  for (const OptimizerTarget& target : targets_) {
    gradients.push_back(target.gradient);
    elements += target.gradient.elements;
  }
  GradientNorm local = NormOf(counted);
  local.squared = std::any_of(sum_over.begin(), sum_over.end(),
                              [](const CollectiveStream* axis) { return axis->ranks() > 1; });
  if (first) b.Alloc(norm.buffer);
  OpIndex sum = b.Add(local, "gradient_norm", counted, {norm});
  for (CollectiveStream* axis : sum_over) {
    if (axis->ranks() > 1) sum = axis->AllReduce(b, norm, "gradient_norm", {sum});
  }
  if (local.squared) b.Add(SquareRoot{}, "gradient_norm", {norm}, {norm}, {sum});
  b.Add(ClipGradients{elements, targets(), spec_.clip_norm, local.dtype}, "clip", {norm}, gradients);
}

OpIndex OptimizerSteps::AddUpdate(ProgramBuilder& b, bool first, int begin, int end, std::string name) {
  b.SetPhase(Phase::kOptimizer);
  if (begin == end) return b.LastCompute();  // a stage whose parameters are all frozen
  std::vector<Slice> gradients, writes;
  int64_t elements = 0;
  for (int i = begin; i < end; ++i) {
    gradients.push_back(targets_[i].gradient);
    writes.push_back(targets_[i].values);
    elements += targets_[i].values.elements;
  }
  OptimizerUpdate update{spec_, elements, end - begin, states_per_target_};
  update.dtype = role_.buffers[targets_[begin].values.buffer].dtype;
  if (role_.loss_scaling) {
    update.guarded = true;
    gradients.push_back(role_.loss_scaling->found_inf);
    gradients.push_back(role_.loss_scaling->numbers);
  }
  for (int state = 0; state < states_per_target_; ++state) {
    for (int i = begin; i < end; ++i)
      writes.push_back(states_[static_cast<size_t>(state) * targets_.size() + i]);
  }
  if (first) {
    for (size_t i = static_cast<size_t>(end - begin); i < writes.size(); ++i) {
      b.Alloc(writes[i].buffer);
      b.Add(Fill{.elements = writes[i].elements, .dtype = MomentsOf(spec_)},
            role_.buffers[writes[i].buffer].name, {}, {writes[i]});
    }
  }
  const std::string roots = fmt::format("roots of second moments ({})", name);
  const OpIndex updated = b.Add(update, std::move(name), std::move(gradients), std::move(writes));
  // On the host, tensors are updated one by one (torch/optim/optimizer.py, _default_to_fused_or_foreach).
  const bool is_on_device = role_.buffers[targets_[begin].values.buffer].space == MemorySpace::kDevice;
  if (is_foreach_ && is_on_device) {
    for (int i = begin; i < end; ++i) {
      for (const int64_t elements_of_one : TensorsOf(role_, targets_[i].values))
        b.WorkedInBy(updated, b.Temporary(roots, elements_of_one, Category::kWorkspace, update.dtype));
    }
  }
  return updated;
}

}  // namespace windtunnel
