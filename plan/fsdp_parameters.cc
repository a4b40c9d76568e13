// FSDP's parameters: when units are gathered, prefetched and dropped.
#include "plan/fsdp.h"

#include <numeric>

namespace windtunnel {

// The unit's tensors within a flat buffer of the unit's own layout: version 1, or one rank alone. Packed ones
// have another buffer.
std::vector<Slice> Fsdp::TensorsIn(const UnitState& unit, Slice flat) const {
  std::vector<Slice> tensors;
  for (size_t i = 0; i < unit.dense; ++i) {
    tensors.push_back(
        Slice{flat.buffer, unit.layout.starts[i], role_.parameters[unit.parameters[i]].elements});
  }
  for (size_t i = unit.dense; i < unit.parameters.size(); ++i) {
    tensors.push_back(PackedShard(unit, i));
    tensors.back().buffer = unit.packed_here.buffer;
  }
  return tensors;
}

bool Fsdp::IsGatheredAsFactor(const UnitState& unit, size_t place) const {
  return unit.has_factors && role_.parameters[unit.parameters[place]].is_factor;
}

// The bytes of each parameter's part in what is gathered.
std::vector<int64_t> Fsdp::BytesOfParts(const UnitState& unit) const {
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const int64_t elements = unit.layout.shard_elements[i];
    const Parameter& parameter = role_.parameters[unit.parameters[i]];
    bytes.push_back(parameter.packed ? SizeOf(*parameter.packed).count() * parameter.Packed(elements)
                    : IsGatheredAsFactor(unit, i) ? FactorBytes(recipe_, elements)
                                                  : SizeOf(type_).count() * elements);
  }
  return bytes;
}

// The unit's shard as bytes, with packed weights behind all others.
Slice Fsdp::ShardAsBytes(UnitState& unit, OpIndex& ready) {
  const std::vector<int64_t> bytes = BytesOfParts(unit);
  const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  const Slice source =
      b_->Temporary(unit.name + " shard (to send)", all, Category::kParameters, DType::kUInt8);
  SendDense(unit, source);
  const int64_t of_packed = SizeOf(role_.buffers[unit.packed.buffer].dtype).count() * unit.packed.elements;
  const auto crosses = offloads_parameters() ? Copy::Crosses::kToDevice : Copy::Crosses::kNothing;
  ready = AddBeside(*b_, copies_, CopyOfPacked(unit, crosses), unit.name, unit.packed,
                    Slice{source.buffer, all - of_packed, of_packed}, {});
  return source;
}

// Copies the dense part of the shard to the beginning of `to`, in the gathered type. Returns the last copy;
// -1 if there is none.
OpIndex Fsdp::SendDense(UnitState& unit, Slice to) {
  const int64_t width = role_.buffers[to.buffer].dtype == DType::kUInt8 ? SizeOf(type_).count() : 1;
  const auto crosses = offloads_parameters() ? Copy::Crosses::kToDevice : Copy::Crosses::kNothing;
  OpIndex last = -1;
  const auto send = [&](Slice values, int64_t first, DType from) {
    if (values.buffer < 0) return;
    const Copy copy{.elements = values.elements, .from = from, .to = type_, .crosses = crosses};
    last = AddBeside(*b_, copies_, copy, unit.name, values,
                     Slice{to.buffer, first * width, values.elements * width}, {});
  };
  send(unit.values, 0, updated_);
  send(unit.frozen, unit.trained_shard, type_);
  return last;
}

// The unit's shard as bytes: weights of fp8 products in fp8, one kernel each, and the rest in 16 bits.
Slice Fsdp::ConvertShard(UnitState& unit, OpIndex& ready) {
  const std::vector<int64_t> bytes = BytesOfParts(unit);
  const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  const Slice source =
      b_->Temporary(unit.name + " shard (to send)", all, Category::kParameters, DType::kUInt8);
  int64_t others = 0;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const int64_t elements = unit.layout.shard_elements[i];
    if (!IsGatheredAsFactor(unit, i)) {
      others += elements;
      continue;
    }
    ready = AddBeside(*b_, copies_, Fp8Cast{elements, 1, recipe_, false, updated_},
                      role_.parameters[unit.parameters[i]].name, unit.values, source, {});
  }
  if (others > 0)
    ready = AddBeside(*b_, copies_, Copy{.elements = others, .from = updated_, .to = type_}, unit.name,
                      unit.values, source, {});
  return source;
}

// What the all-gather sends: the part kept after forward; or the shard, from the host if need be, in the
// gathered type.
Slice Fsdp::GatherSource(UnitState& unit, OpIndex& ready) {
  if (unit.kept.buffer >= 0) {
    ready = b_->LastWriterOf(unit.kept.buffer);
    return unit.kept;
  }
  if (unit.has_factors) return ConvertShard(unit, ready);
  if (unit.gathers_bytes()) return ShardAsBytes(unit, ready);
  unit.packed_here = unit.packed;
  if (unit.has_packed() && offloads_parameters()) {
    const DType type = role_.buffers[unit.packed.buffer].dtype;
    unit.packed_here =
        b_->Temporary(unit.name + " (packed)", unit.packed.elements, Category::kParameters, type);
    ready = AddBeside(*b_, copies_, CopyOfPacked(unit, Copy::Crosses::kToDevice), unit.name, unit.packed,
                      unit.packed_here, {});
  }
  if (unit.dense == 0 || (!converts() && !offloads_parameters())) return unit.values;
  const Slice source =
      b_->Temporary(unit.name + " shard (to send)", unit.layout.shard, Category::kParameters, type_);
  ready = SendDense(unit, source);
  return source;
}

// Version 1's rate limiter: while two dropped units may still be in use, the host waits for the first.
void Fsdp::LimitAllGathers() {
  if (spec_.version != 1 || !spec_.limit_all_gathers || host_ < 0 || released_.size() < 2) return;
  b_->Add(HostWait{}, "limit_all_gathers", {}, {}, {released_.front()}, host_);
  released_.pop_front();
}

void Fsdp::Gather(UnitState& unit) {
  if (unit.is_gathered) return;
  LimitAllGathers();
  unit.is_gathered = true;
  OpIndex ready = -1;
  const Slice source = GatherSource(unit, ready);
  if (unit.ranks() == 1) {
    unit.whole = source;
    unit.gather = ready;
    return;
  }
  const Category category = spec_.version == 1 ? Category::kParameters : Category::kCommunication;
  unit.whole = unit.gathers_bytes()
                   ? b_->Temporary(unit.name, source.elements * unit.ranks(), category, DType::kUInt8)
                   : b_->Temporary(unit.name, unit.padded(), category, type_);
  if (spec_.version == 1 && host_ >= 0) b_->RecordOnCompute(unit.whole);
  CollectiveStream& axis = unit.kept.buffer >= 0 ? reshard_ : *unit.shard_axis;
  unit.gather = axis.AllGather(*b_, source, unit.whole, unit.name, {ready, gathers_after_, last_gather_});
  last_gather_ = unit.gather;
  b_->Carries(unit.gather, unit.parameters);
}

// The next operators of the compute stream may use the parameters.
void Fsdp::FinishGather(UnitState& unit) {
  if (unit.is_unpacked) return;
  unit.is_unpacked = true;
  b_->WaitBeforeNextCompute(unit.gather);
  if (spec_.version == 1 || unit.ranks() == 1) {
    unit.tensors = TensorsIn(unit, unit.whole);
    return;
  }
  const bool was_kept = unit.kept.buffer >= 0;
  const int ranks = was_kept ? reshard_.ranks() : unit.ranks();
  std::vector<Slice> padded;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const Parameter& parameter = role_.parameters[unit.parameters[i]];
    if (parameter.packed) {
      const int64_t elements = parameter.Packed(unit.layout.shard_elements[i]) * unit.ranks();
      padded.push_back(b_->Temporary(parameter.name, elements, Category::kParameters, *parameter.packed));
      unit.tensors.push_back(padded.back());
      continue;
    }
    // Tensors that are kept in equal parts, or copied as bytes, include their shards' padding.
    const int64_t elements = reshard_.ranks() > 1 || unit.has_packed()
                                 ? unit.layout.shard_elements[i] * unit.ranks()
                                 : parameter.elements;
    const bool is_factor = IsGatheredAsFactor(unit, i);
    padded.push_back(b_->Temporary(parameter.name, is_factor ? FactorBytes(recipe_, elements) : elements,
                                   Category::kParameters, is_factor ? FactorType(recipe_) : type_));
    unit.tensors.push_back(Slice{padded.back().buffer, 0, parameter.elements});
  }
  DropForwardWhole();
  const std::vector<int64_t> parts = was_kept ? KeptElements(unit) : unit.layout.shard_elements;
  const UnpackShards unpack = unit.gathers_bytes() ? UnpackShards{ranks, BytesOfParts(unit), DType::kUInt8}
                                                   : UnpackShards{ranks, parts, type_};
  const OpIndex unpacked = b_->Add(unpack, unit.name, {unit.whole}, padded);
  if (was_kept) {
    b_->KeepUntilHere(unit.kept);
    unit.kept = {};
  }
  if (in_backward_) {
    gathers_after_ = unpacked;
  } else {
    forward_unpacked_ = unpacked;
    forward_whole_ = unit.whole;
  }
}

// Frees the buffer that forward copied out last: only before the next copy-out, or when forward ends.
void Fsdp::DropForwardWhole() {
  if (forward_whole_.buffer < 0) return;
  b_->KeepUntilHere(forward_whole_);
  gathers_after_ = forward_unpacked_;
  forward_whole_ = {};
}

// The elements of each tensor's kept part, with the padding of its shards.
std::vector<int64_t> Fsdp::KeptElements(const UnitState& unit) const {
  std::vector<int64_t> elements;
  for (int64_t shard : unit.layout.shard_elements)
    elements.push_back(shard * unit.ranks() / reshard_.ranks());
  return elements;
}

// REQUIRES: version 2, and the unit's parameters are unpacked.
void Fsdp::KeepPart(UnitState& unit) {
  const std::vector<int64_t> parts = KeptElements(unit);
  unit.kept =
      b_->Temporary(unit.name + " (kept)", unit.padded() / reshard_.ranks(), Category::kParameters, type_);
  int64_t start = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    b_->Add(Copy{.elements = parts[i], .from = type_, .to = type_}, role_.parameters[unit.parameters[i]].name,
            {OwnShard(reshard_, unit.tensors[i], parts[i])}, {Slice{unit.kept.buffer, start, parts[i]}});
    start += parts[i];
  }
}

// Frees all of the unit at once, whichever of its parameters was used last.
void Fsdp::Reshard(UnitState& unit) {
  if (unit.is_gathered) released_.push_back(b_->LastCompute());
  if (unit.is_unpacked && unit.ranks() > 1) {
    if (spec_.version == 1) b_->KeepUntilHere(unit.whole);
    else
      for (const Slice& tensor : unit.tensors) b_->KeepUntilHere(tensor);
  }
  unit.is_gathered = unit.is_unpacked = false;
  unit.tensors.clear();
}

Slice Fsdp::Values(int index) {
  UnitState& unit = units_[unit_of_parameter_[index]];
  if (!unit.is_unpacked) {  // a weight that the unit's stage shares with another of the rank's stages
    Gather(unit);
    FinishGather(unit);
  }
  return unit.tensors.at(place_in_unit_[index]);
}

int64_t Fsdp::NumbersInRun(int index) const {
  const UnitState& unit = units_[unit_of_parameter_[index]];
  return unit.ranks() > 1 ? unit.layout.shard_elements[place_in_unit_[index]] : 0;
}

void Fsdp::BeforeForward(ModuleId module) {
  const int unit = UnitOf(module);
  if (unit == kNoUnit) return;
  Gather(units_[unit]);
  FinishGather(units_[unit]);
  const size_t ahead = in_backward_ ? 0 : static_cast<size_t>(spec_.forward_prefetch);
  for (size_t next = unit + 1; next <= unit + ahead && next < units_.size(); ++next) {
    if (stage_of_unit_[next] == stage_of_unit_[unit]) Gather(units_[next]);
  }
}

// The root stays gathered: backward begins with it.
void Fsdp::AfterForward(ModuleId module) {
  if (is_root_[module]) DropForwardWhole();
  if (UnitOf(module) == kNoUnit || is_root_[module] || !reshards_after_forward_) return;
  UnitState& unit = units_[UnitOf(module)];
  if (reshard_.ranks() > 1 && !evaluates_) KeepPart(unit);
  Reshard(unit);
}

void Fsdp::BeforeBackward(ModuleId module) {
  in_backward_ = true;
  const int unit = UnitOf(module);
  if (unit == kNoUnit) return;
  units_[unit].backward_begun = true;
  Gather(units_[unit]);
  FinishGather(units_[unit]);
  if (spec_.prefetch == Prefetch::kBackwardPre) PrefetchBackward(unit);
}

// Gathers the unit whose backward begins next. (A unit ends after those nested in it, the root after all.)
void Fsdp::PrefetchBackward(int unit) {
  size_t next = static_cast<size_t>(place_in_backward_[unit]) + 1;
  while (next < backward_order_.size() && units_[backward_order_[next]].backward_begun) ++next;
  if (next == backward_order_.size()) return;
  const int following = backward_order_[next];
  if (stage_of_unit_[following] == stage_of_unit_[unit]) Gather(units_[following]);
}

void Fsdp::AfterBackward(ModuleId module) {
  const int unit = UnitOf(module);
  if (unit == kNoUnit) return;
  if (is_last_backward_ || syncs_ || reshards_without_sync_) Reshard(units_[unit]);
  if (spec_.prefetch == Prefetch::kBackwardPost) PrefetchBackward(unit);
  if (!units_[unit].is_trained()) return;
  const bool reduces = splits_backward_ ? units_[unit].incomplete == 0 : syncs_;
  if (reduces) ReduceNext(unit);
  else Accumulate(units_[unit]);
}

}  // namespace windtunnel
