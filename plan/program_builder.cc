#include "plan/program_builder.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "base/check.h"

namespace windtunnel {

Slice NewBuffer(Role& role, std::string name, int64_t elements, Category category, DType dtype,
                MemorySpace space) {
  role.buffers.push_back(Buffer{std::move(name), SizeOf(dtype) * elements, category, dtype, space});
  return Slice{static_cast<BufferId>(role.buffers.size()) - 1, 0, elements};
}

Slice ProgramBuilder::Temporary(std::string name, int64_t elements, Category category, DType dtype,
                                MemorySpace space) {
  Slice slice = NewBuffer(role_, std::move(name), elements, category, dtype, space);
  temporaries_.push_back(slice.buffer);
  return slice;
}

// Copies between the memories and communication are on the device. Without a host stream there is one memory.
bool ProgramBuilder::IsOnHost(const Op& op) const {
  const auto in_host_memory = [this](const Slice& slice) {
    return role_.buffers[slice.buffer].space == MemorySpace::kHost;
  };
  if (std::none_of(op.reads.begin(), op.reads.end(), in_host_memory) &&
      std::none_of(op.writes.begin(), op.writes.end(), in_host_memory))
    return false;
  const auto* copy = std::get_if<Copy>(&op.kind);
  const bool crosses = copy != nullptr && copy->crosses != Copy::Crosses::kNothing;
  if (crosses || IsCommunication(op.kind)) return false;
  return std::any_of(role_.streams.begin(), role_.streams.end(),
                     [](const Stream& stream) { return stream.kind == StreamKind::kHost; });
}

OpIndex ProgramBuilder::Add(OpKind kind, std::string name, std::vector<Slice> reads,
                            std::vector<Slice> writes, std::vector<OpIndex> dependencies, StreamId stream) {
  for (const auto* slices : {&reads, &writes}) {
    for (const Slice& slice : *slices) StartParts(slice);
  }
  if (stream == kComputeStream) {
    dependencies.insert(dependencies.end(), awaited_.begin(), awaited_.end());
    awaited_.clear();
  }
  for (const auto* slices : {&reads, &writes}) {
    for (const Slice& slice : *slices) {
      const auto awaited = awaited_by_use_.find(slice.buffer);
      if (awaited == awaited_by_use_.end() || ops_[awaited->second].stream == stream) continue;
      dependencies.push_back(awaited->second);
      if (stream == kComputeStream) awaited_by_use_.erase(awaited);
    }
  }
  std::sort(dependencies.begin(), dependencies.end());
  dependencies.erase(std::unique(dependencies.begin(), dependencies.end()), dependencies.end());
  const OpIndex index = static_cast<OpIndex>(ops_.size());
  Op& op = ops_.emplace_back(std::move(kind), stream, std::move(reads), std::move(writes),
                             std::move(dependencies), std::move(name));
  op.phase = phase_;
  op.part = part_;
  op.layer = layer_;
  op.micro_batch = micro_batch_;
  op.stage = stage_;
  op.on_host = IsOnHost(op);
  if (last_on_.size() <= static_cast<size_t>(stream)) last_on_.resize(static_cast<size_t>(stream) + 1, -1);
  last_on_[stream] = index;
  if (is_in_turns_) turns_.back().places.push_back(Place());
  return index;
}

void ProgramBuilder::Carries(OpIndex op, const std::vector<int>& parameters) {
  if (op >= 0) ops_[op].parameters.assign(parameters.begin(), parameters.end());
}

void ProgramBuilder::WaitBeforeNextCompute(OpIndex op) {
  if (op >= 0 && ops_[op].stream != kComputeStream) awaited_.push_back(op);
}

void ProgramBuilder::WaitBeforeUse(const Slice& slice, OpIndex op) {
  if (op >= 0 && ops_[op].stream != kComputeStream) awaited_by_use_[slice.buffer] = op;
}

void ProgramBuilder::AwaitWith(const Slice& slice, const Slice& other) {
  const auto awaited = awaited_by_use_.extract(slice.buffer);
  if (awaited.empty()) return;
  OpIndex& op = awaited_by_use_.try_emplace(other.buffer, awaited.mapped()).first->second;
  WT_CHECK_EQ(ops_[op].stream, ops_[awaited.mapped()].stream);
  op = std::max(op, awaited.mapped());
}

void ProgramBuilder::ComesInParts(const Slice& whole, std::function<std::vector<Arrival>()> start) {
  coming_[whole.buffer] = std::move(start);
}

void ProgramBuilder::StartParts(const Slice& whole) {
  if (const auto parts = TakeParts(whole); !parts.empty()) WaitBeforeUse(whole, parts.back().op);
}

std::vector<ProgramBuilder::Arrival> ProgramBuilder::TakeParts(const Slice& whole) {
  const auto found = coming_.find(whole.buffer);
  if (found == coming_.end()) return {};
  const auto start = std::move(found->second);
  coming_.erase(found);  // before start(), which uses `whole` itself
  return start();
}

std::vector<OpIndex> ProgramBuilder::BeforeNextCompute() const {
  std::vector<OpIndex> before = awaited_;
  if (LastCompute() >= 0) before.push_back(LastCompute());
  return before;
}

void ProgramBuilder::AddMemory(MemoryOp op) {
  op.before = static_cast<OpIndex>(ops_.size());
  op.phase = phase_;
  op.layer = layer_;
  op.micro_batch = micro_batch_;
  memory_.push_back(op);
  if (is_in_turns_) turns_.back().memory_places.push_back(Place());
}

int32_t ProgramBuilder::Place() const {
  constexpr int kSlots = 16;
  WT_CHECK(slot_ < kSlots);
  return (turn_ + 1) * kSlots + slot_;
}

void ProgramBuilder::BeginTurns() {
  WT_CHECK(!is_in_turns_);
  is_in_turns_ = true;
  turns_.push_back(Turns{.begin = static_cast<OpIndex>(ops_.size()),
                         .begin_memory = memory_.size(),
                         .last_on = last_on_,
                         .awaited = awaited_});
  AtTurn(-1);
}

void ProgramBuilder::NextRun() {
  WT_CHECK(is_in_turns_);
  Turns& turns = turns_.back();
  turns.next = static_cast<OpIndex>(ops_.size());
  turns.left_awaited = std::exchange(awaited_, turns.awaited);
  last_on_ = turns.last_on;
  AtTurn(-1);
}

void ProgramBuilder::EndTurns() {
  WT_CHECK(is_in_turns_ && turns_.back().next >= 0);
  is_in_turns_ = false;
  Turns& turns = turns_.back();
  turns.end = static_cast<OpIndex>(ops_.size());
  turns.end_memory = memory_.size();
  CheckOrder(turns);
  awaited_.insert(awaited_.end(), turns.left_awaited.begin(), turns.left_awaited.end());
  last_on_ = turns.last_on;
  for (const OpIndex index : InOrder(turns)) {
    const auto stream = static_cast<size_t>(ops_[index].stream);
    if (last_on_.size() <= stream) last_on_.resize(stream + 1, -1);
    last_on_[stream] = index;
  }
}

void ProgramBuilder::CheckOrder(const Turns& turns) const {
  std::unordered_map<StreamId, int32_t> last;
  for (OpIndex index = turns.begin; index < turns.end; ++index) {
    if (index == turns.next) last.clear();
    const int32_t place = turns.places[index - turns.begin];
    int32_t& before = last.try_emplace(ops_[index].stream, place).first->second;
    WT_CHECK_LE(before, place);
    before = place;
  }
}

std::vector<OpIndex> ProgramBuilder::InOrder(const Turns& turns) const {
  std::vector<OpIndex> order(turns.places.size());
  std::iota(order.begin(), order.end(), turns.begin);
  std::stable_sort(order.begin(), order.end(), [&](OpIndex a, OpIndex b) {
    return turns.places[a - turns.begin] < turns.places[b - turns.begin];
  });
  return order;
}

// Within a place, memory operations stay before the operators that they precede. `order`: of the operators.
void ProgramBuilder::PutMemoryInOrder(const Turns& turns, const std::vector<OpIndex>& order) {
  std::vector<size_t> by_place(turns.memory_places.size());
  std::iota(by_place.begin(), by_place.end(), size_t{0});
  std::stable_sort(by_place.begin(), by_place.end(),
                   [&](size_t a, size_t b) { return turns.memory_places[a] < turns.memory_places[b]; });
  std::vector<MemoryOp> own;
  own.reserve(by_place.size());
  for (const size_t i : by_place) {
    MemoryOp& op = own.emplace_back(memory_[turns.begin_memory + i]);
    const auto comes_first = [&](OpIndex other, int32_t place) {
      const int32_t its = turns.places[other - turns.begin];
      return its != place ? its < place : other < op.before;
    };
    const auto next = std::lower_bound(order.begin(), order.end(), turns.memory_places[i], comes_first);
    op.before = turns.begin + static_cast<OpIndex>(next - order.begin());
  }
  std::copy(own.begin(), own.end(), memory_.begin() + static_cast<std::ptrdiff_t>(turns.begin_memory));
}

void ProgramBuilder::PutInOrder() {
  WT_CHECK(!is_in_turns_);
  if (turns_.empty()) return;
  std::vector<OpIndex> place(ops_.size());  // by index
  std::iota(place.begin(), place.end(), 0);
  for (const Turns& turns : turns_) {
    const std::vector<OpIndex> order = InOrder(turns);
    PutMemoryInOrder(turns, order);
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = turns.begin + static_cast<OpIndex>(i);
    std::vector<Op> own(order.size());
    for (size_t i = 0; i < order.size(); ++i) own[i] = std::move(ops_[order[i]]);
    std::move(own.begin(), own.end(), ops_.begin() + turns.begin);
  }
  for (OpIndex index = 0; index < static_cast<OpIndex>(ops_.size()); ++index) {
    std::vector<OpIndex>& dependencies = ops_[index].dependencies;
    for (OpIndex& dependency : dependencies) {
      dependency = place[dependency];
      WT_CHECK_LT(dependency, index);
    }
    std::sort(dependencies.begin(), dependencies.end());
  }
  for (auto* named : {&kept_, &worked_in_})
    for (auto& [buffer, op] : *named)
      if (op >= 0) op = place[op];
  turns_.clear();
}

OpIndex ProgramBuilder::LastOn(StreamId stream) const {
  return static_cast<size_t>(stream) < last_on_.size() ? last_on_[stream] : -1;
}

OpIndex ProgramBuilder::LastWriterOf(BufferId buffer) const {
  OpIndex index = static_cast<OpIndex>(ops_.size()) - 1;
  auto writes = [&](const Op& op) {
    return std::any_of(op.writes.begin(), op.writes.end(),
                       [&](const Slice& slice) { return slice.buffer == buffer; });
  };
  while (index >= 0 && !writes(ops_[index])) --index;
  WT_CHECK_GE(index, 0);
  return index;
}

std::vector<OpIndex> ProgramBuilder::WaitedForBy() const {
  // Goes backwards: whatever waits for an operator, or for a later one of its stream, follows it.
  const auto size = static_cast<OpIndex>(ops_.size());
  const bool ends_with_memory = !memory_.empty() && memory_.back().before == size;
  const OpIndex last = ends_with_memory ? size : size - 1;
  std::vector<OpIndex> waits(ops_.size(), last);
  std::unordered_map<StreamId, OpIndex> of_next;  // by stream: the result for its next operator
  for (OpIndex index = size - 1; index >= 0; --index) {
    const Op& op = ops_[index];
    OpIndex first = index;
    if (op.stream != kComputeStream) {
      OpIndex& next = of_next.try_emplace(op.stream, last).first->second;
      first = next = waits[index] = std::min(waits[index], next);
    }
    for (OpIndex dependency : op.dependencies) waits[dependency] = std::min(waits[dependency], first);
  }
  return waits;
}

std::vector<ProgramBuilder::Lifetime> ProgramBuilder::LifetimesOfTemporaries() const {
  std::vector<int32_t> position(role_.buffers.size(), -1);  // by buffer; -1: not a temporary
  for (size_t i = 0; i < temporaries_.size(); ++i) position[temporaries_[i]] = static_cast<int32_t>(i);
  std::vector<Lifetime> lifetimes(temporaries_.size());
  for (const auto& [buffer, op] : worked_in_) lifetimes[position[buffer]] = {op, op};
  const std::vector<OpIndex> waits = WaitedForBy();
  for (OpIndex index = 0; index < static_cast<OpIndex>(ops_.size()); ++index) {
    const Op& op = ops_[index];
    const bool elsewhere = op.stream != kComputeStream;
    OpIndex last = elsewhere ? -1 : index;  // -1: not known yet
    for (const auto* slices : {&op.reads, &op.writes}) {
      for (const Slice& slice : *slices) {
        if (position[slice.buffer] < 0) continue;
        Lifetime& lifetime = lifetimes[position[slice.buffer]];
        if (lifetime.first < 0) lifetime.first = index;
        if (last < 0) last = waits[index];
        if (last < lifetime.last || (last == lifetime.last && elsewhere)) continue;
        lifetime.last = last;
        const bool is_end = last == static_cast<OpIndex>(ops_.size());
        lifetime.ends_before = elsewhere && last != index && (is_end || ops_[last].stream == kComputeStream);
      }
    }
  }
  for (const auto& [buffer, until] : kept_) {
    Lifetime& lifetime = lifetimes[position[buffer]];
    if (until < lifetime.last) continue;
    lifetime.last = until;
    lifetime.ends_before = false;
  }
  return lifetimes;
}

// All memory operations. In each gap: frees of temporaries last used by the operator before it, memory_,
// frees of temporaries that end before the next operator, allocations for the next operator.
std::vector<MemoryOp> ProgramBuilder::PlaceMemory() const {
  const std::vector<Lifetime> lifetimes = LifetimesOfTemporaries();
  // Temporaries by the operator next to which they are allocated or freed; those of one operator as created.
  struct Beside {
    OpIndex op;
    size_t temporary;
  };
  std::vector<Beside> born, dead, dying;
  for (size_t i = 0; i < temporaries_.size(); ++i) {
    WT_CHECK_GE(lifetimes[i].first, 0);
    born.push_back({lifetimes[i].first, i});
    (lifetimes[i].ends_before ? dead : dying).push_back({lifetimes[i].last, i});
  }
  for (auto* all : {&born, &dead, &dying})
    std::stable_sort(all->begin(), all->end(), [](const Beside& a, const Beside& b) { return a.op < b.op; });

  const std::unordered_set<BufferId> recorded(recorded_.begin(), recorded_.end());
  const auto size = static_cast<OpIndex>(ops_.size());
  std::vector<MemoryOp> result;
  result.reserve(memory_.size() + 2 * temporaries_.size());
  const auto add = [&](MemoryOp::Kind kind, size_t temporary, OpIndex beside, OpIndex before) {
    const Op& like = ops_[std::min(beside, size - 1)];
    MemoryOp op{.kind = kind, .phase = like.phase, .buffer = temporaries_[temporary], .before = before};
    op.layer = like.layer;
    op.micro_batch = like.micro_batch;
    const auto apart = apart_.find(op.buffer);
    op.stream = apart != apart_.end() ? apart->second
                : belong_to_compute_  ? kComputeStream
                                      : ops_[lifetimes[temporary].first].stream;
    const bool is_recorded = recorded.contains(op.buffer) && op.stream != kComputeStream;
    if (op.allocates()) op.apart = apart != apart_.end();
    else if (is_recorded) op.recorded_stream = kComputeStream;
    result.push_back(op);
  };
  size_t next_born = 0, next_dead = 0, next_dying = 0, next_other = 0;
  const auto each = [&](const std::vector<Beside>& all, size_t& next, OpIndex beside, MemoryOp::Kind kind,
                        OpIndex before) {
    for (; next < all.size() && all[next].op == beside; ++next)
      add(kind, all[next].temporary, beside, before);
  };
  for (OpIndex index = 0; index <= size; ++index) {
    each(dying, next_dying, index - 1, MemoryOp::Kind::kFree, index);
    for (; next_other < memory_.size() && memory_[next_other].before == index; ++next_other)
      result.push_back(memory_[next_other]);
    each(dead, next_dead, index, MemoryOp::Kind::kFree, index);
    each(born, next_born, index, MemoryOp::Kind::kAlloc, index);
  }
  WT_CHECK_EQ(result.size(), memory_.size() + 2 * temporaries_.size());
  return result;
}

void ProgramBuilder::AddOffload() {
  std::unordered_set<BufferId> staying(recorded_.begin(), recorded_.end());
  for (const auto& [buffer, stream] : apart_) staying.insert(buffer);
  for (const auto* named : {&kept_, &worked_in_})
    for (const auto& [buffer, op] : *named) staying.insert(buffer);
  std::vector<Op> ops(std::make_move_iterator(ops_.begin()), std::make_move_iterator(ops_.end()));
  const std::vector<OpIndex> place = AddActivationCopies(*offload_, role_, ops, temporaries_, staying);
  ops_.assign(std::make_move_iterator(ops.begin()), std::make_move_iterator(ops.end()));
  for (MemoryOp& op : memory_) op.before = place[op.before];
  for (auto* named : {&kept_, &worked_in_})
    for (auto& [buffer, op] : *named)
      if (op >= 0) op = place[op];
}

Program ProgramBuilder::Finish() {
  PutInOrder();
  if (offload_) AddOffload();
  Program result{std::move(name_), {}, PlaceMemory()};
  result.ops.reserve(ops_.size());
  for (; !ops_.empty(); ops_.pop_front()) result.ops.push_back(std::move(ops_.front()));
  return result;
}

}  // namespace windtunnel
