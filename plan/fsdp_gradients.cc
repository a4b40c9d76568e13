// FSDP's gradients: written whole, reduced into shards, and settled where the optimizer reads them.
#include "plan/fsdp.h"

namespace windtunnel {

// PyTorch allocates a reduction's output on the stream that it issues reductions from (version 2's
// reduce-scatter stream, version 1's post-backward stream), and that output is the gradient. So no activation
// ever uses its memory again.
void Fsdp::BelongsToReductions(const UnitState& unit, Slice temporary) {
  if (unit.ranks() > 1) b_->BelongsApart(temporary, unit.shard_axis->stream());
}

void Fsdp::AllocGradient(UnitState& unit) {
  if (!unit.gradient_alive) {
    if (unit.ranks() > 1) b_->AllocApart(unit.gradient.buffer, unit.shard_axis->stream());
    else b_->Alloc(unit.gradient.buffer);
  }
  unit.gradient_alive = true;
}

// Version 1: made when it is first written, with zeros as padding.
Slice Fsdp::FlatGradient(UnitState& unit) {
  if (unit.flat_gradient.buffer >= 0) return unit.flat_gradient;
  if (ReducesInPlace(unit)) {
    AllocGradient(unit);
    unit.flat_gradient = unit.gradient;
    return unit.flat_gradient;
  }
  unit.flat_gradient = b_->Temporary(unit.name + ".grad", unit.padded(), Category::kGradients, type_);
  const int64_t used = unit.layout.starts.back() + role_.parameters[unit.parameters.back()].elements;
  const int64_t padding = unit.flat_gradient.elements - used;
  if (padding > 0) {
    b_->Add(Fill{padding, 0.0, type_}, unit.name + ".grad", {},
            {Slice{unit.flat_gradient.buffer, used, padding}});
  }
  return unit.flat_gradient;
}

Slice Fsdp::Gradient(int index) {
  UnitState& unit = units_[unit_of_parameter_[index]];
  const int place = place_in_unit_[index];
  if (spec_.version == 1) {
    return Slice{FlatGradient(unit).buffer, unit.layout.starts[place], role_.parameters[index].elements};
  }
  unit.tensor_gradients.resize(unit.trained);
  Slice& gradient = unit.tensor_gradients[place];
  if (gradient.buffer < 0) {
    gradient = b_->Temporary(role_.parameters[index].name + ".grad", role_.parameters[index].elements,
                             Category::kGradients, type_);
  }
  return gradient;
}

// The elements of each trained tensor's part.
std::vector<int64_t> Fsdp::TrainedShards(const UnitState& unit) {
  const std::vector<int64_t>& all = unit.layout.shard_elements;
  return {all.begin(), all.begin() + static_cast<int64_t>(unit.trained)};
}

// The unit's gradients, divided by the number of ranks, in the layout and type of the reduction; there after
// `ready`.
Slice Fsdp::ReductionInput(UnitState& unit, OpIndex& ready) {
  const int all = data_.ranks();  // the mean is over all of these, for experts too
  const double share = 1.0 / static_cast<double>(all);
  const std::string name = unit.name + ".grad";
  if (spec_.version == 1 && type_ == reduce_) {
    const Slice flat = unit.flat_gradient;
    ready = b_->LastCompute();
    if (all > 1)
      ready = AddBeside(*b_, copies_, Scale{flat.elements, share, type_}, name, flat, flat, {ready});
    return flat;
  }
  // Version 1 unsharded: the reduced buffer is the gradient (FlatParamHandle's, after _reduce_grad_no_shard).
  const bool stays = spec_.version == 1 && unit.ranks() == 1 && reduce_ == updated_ && !unit.gradient_holds &&
                     !offloads_parameters();
  if (stays) AllocGradient(unit);
  const Slice input = stays ? unit.gradient
                            : b_->Temporary(name + " (to reduce)", unit.padded_gradients(),
                                            Category::kCommunication, reduce_);
  if (spec_.version == 1) {
    ready = AddBeside(*b_, copies_,
                      Copy{.elements = input.elements, .from = type_, .to = reduce_, .scale = share}, name,
                      unit.flat_gradient, input, {b_->LastCompute()});
    if (!stays) BelongsToReductions(unit, input);
    return input;
  }
  const bool adds = !unit.accumulated.empty();
  ready = b_->Add(PackShards{unit.ranks(), TrainedShards(unit), adds ? reduce_ : type_, reduce_, share}, name,
                  adds ? unit.accumulated : unit.tensor_gradients, {input});
  return input;
}

// Where the reduced shard arrives: the gradient itself, unless it is to be added to, converted or sent to the
// host.
Slice Fsdp::ReductionOutput(UnitState& unit, Slice input) {
  if (unit.ranks() == 1) return input;
  if (unit.gradient_holds || reduce_ != updated_ || offloads_parameters()) {
    const Slice arriving =
        b_->Temporary(unit.name + ".grad (arriving)", unit.trained_shard, Category::kCommunication, reduce_);
    BelongsToReductions(unit, arriving);
    return arriving;
  }
  AllocGradient(unit);
  return unit.gradient;
}

// Accumulates the gradients that are there and not yet in the reduction's type.
void Fsdp::Accumulate(UnitState& unit) {
  if (spec_.version == 1 || type_ == reduce_) return;
  unit.accumulated.resize(unit.trained);
  for (size_t i = 0; i < unit.tensor_gradients.size(); ++i) {
    Slice& gradient = unit.tensor_gradients[i];
    if (gradient.buffer < 0) continue;
    const Parameter& parameter = role_.parameters[unit.parameters[i]];
    Slice& sum = unit.accumulated[i];
    const bool adds = sum.buffer >= 0;
    const std::string name = parameter.name + ".grad (accumulated)";
    if (!adds) sum = b_->Temporary(name, parameter.elements, Category::kGradients, reduce_);
    b_->Add(Copy{.elements = parameter.elements, .from = type_, .to = reduce_, .accumulate = adds}, name,
            {gradient}, {sum});
    gradient = {};
    holds_[unit.parameters[i]] = false;
  }
}

void Fsdp::Ready(int index, bool is_last) {
  holds_[index] = true;
  if (!is_last || !splits_backward_) return;
  const int unit = unit_of_parameter_[index];
  // In a backward, the end of the unit's module reduces it.
  if (--units_[unit].incomplete == 0 && in_weights_) ReduceNext(unit);
}

void Fsdp::ReduceNext(int unit) {
  if (!units_[unit].accumulated.empty()) Accumulate(units_[unit]);
  if (last_reduced_ != kNoUnit) AwaitScatter(units_[last_reduced_]);
  Reduce(units_[unit]);
  last_reduced_ = unit;
}

void Fsdp::Reduce(UnitState& unit) {
  b_->SetPhase(in_weights_ ? Phase::kBackwardWeights : Phase::kBackward);
  OpIndex ready = -1;
  const Slice input = ReductionInput(unit, ready);
  unit.arriving = ReductionOutput(unit, input);
  unit.scattered =
      unit.shard_axis->ReduceScatter(*b_, input, unit.arriving, unit.name, {ready, last_scatter_});
  if (unit.scattered >= 0) last_scatter_ = unit.scattered;
  const std::vector<int> trained(unit.parameters.begin(),
                                 unit.parameters.begin() + static_cast<int64_t>(unit.trained));
  b_->Carries(unit.scattered, trained);
  const OpIndex after = unit.scattered >= 0 ? unit.scattered : ready;
  unit.reduced = unit.replicate->AllReduce(*b_, unit.arriving, unit.name, {after, last_sum_});
  if (unit.reduced >= 0) last_sum_ = unit.reduced;
  b_->Carries(unit.reduced, trained);
  if (unit.reduced < 0) unit.reduced = after;
  unit.flat_gradient = {};
  unit.tensor_gradients.clear();
  unit.accumulated.clear();
  for (int index : unit.parameters) holds_[index] = false;
}

// Waits until the reduced gradients are free; the sum over replicas may still be under way, unless it is to be
// used now.
void Fsdp::AwaitScatter(UnitState& unit) {
  if (unit.replicate->ranks() == 1 || updates_in_backward_) Settle(unit);
  else if (unit.scattered >= 0) b_->WaitBeforeNextCompute(unit.scattered);
}

void Fsdp::Settle(UnitState& unit) {
  if (unit.arriving.buffer < 0) return;
  b_->WaitBeforeNextCompute(unit.reduced);
  if (unit.arriving.buffer != unit.gradient.buffer) {
    AllocGradient(unit);
    const auto crosses = offloads_parameters() ? Copy::Crosses::kToHost : Copy::Crosses::kNothing;
    const Copy copy{.elements = unit.trained_shard,
                    .from = reduce_,
                    .to = updated_,
                    .accumulate = unit.gradient_holds,
                    .crosses = crosses};
    b_->WaitBeforeNextCompute(AddBeside(*b_, copies_, copy, unit.name + " shard.grad", unit.arriving,
                                        unit.gradient, {unit.reduced}));
  }
  unit.gradient_holds = true;
  unit.arriving = {};
  if (updates_in_backward_) UpdateInBackward(unit);
}

void Fsdp::UpdateInBackward(UnitState& unit) {
  if (unit.target < 0) optimizer_.Prepare(Targets());
  const Phase phase = b_->phase();
  optimizer_.AddUpdate(*b_, is_first_step_, unit.target, unit.target + 1);
  b_->SetPhase(phase);
  b_->Free(unit.gradient.buffer);
  unit.gradient_alive = unit.gradient_holds = false;
}

}  // namespace windtunnel
