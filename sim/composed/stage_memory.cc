#include "sim/composed/stage_memory.h"

namespace windtunnel::composed {
namespace {

int64_t BytesOf(const MemoryChange& change, std::span<const LayerUnit> units) {
  return change.of_unit < 0 ? change.bytes : change.bytes * units[static_cast<size_t>(change.of_unit)].count;
}

MemoryPass MemoryOf(const Part& part, std::span<const LayerUnit> units) {
  MemoryPass pass;
  for (const MemoryChange& change : part.memory) pass.Add(BytesOf(change, units));
  return pass;
}

int32_t FirstCompute(const Part& part) {
  for (size_t i = 0; i < part.ops.size(); ++i)
    if (part.ops[i].stream == kCompute) return static_cast<int32_t>(i);
  return static_cast<int32_t>(part.ops.size());
}

bool Computes(const PartRuns& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const PartRun& run) {
    return run.count > 0 && FirstCompute(*run.part) < static_cast<int32_t>(run.part->ops.size());
  });
}

// Whether a change is made before operator `op` allocates.
bool IsBefore(const MemoryChange& change, int32_t op) {
  return change.op < op || (change.op == op && !change.is_after && change.bytes < 0);
}

// Adds up an action's changes of memory, each where it belongs.
class ActionSum {
 public:
  // Changes of one part until its first computation begins count as lead if the action begins with the part.
  void AddSplit(const Part& part, std::span<const LayerUnit> units) {
    const bool begins = !has_begun_ && !part.ops.empty();
    const int32_t first = FirstCompute(part);
    bool is_lead = begins;
    for (const MemoryChange& change : part.memory) {
      is_lead = is_lead && IsBefore(change, first);
      if (is_lead) {
        memory_.lead.Add(change.bytes);
        continue;
      }
      if (part.awaits_tensor >= 0 && !IsBefore(change, part.awaits_tensor)) memory_.awaits_tensor = true;
      Rest().Add(BytesOf(change, units));
    }
    memory_.awaits_tensor |= part.awaits_tensor >= 0;
    has_begun_ |= begins;
  }
  void Add(const MemoryPass& pass) { Rest() = Rest().Then(pass); }

  bool has_begun() const { return has_begun_; }
  bool awaits_tensor() const { return memory_.awaits_tensor; }
  ActionMemory Done() {
    memory_.rest = memory_.until_awaited.Then(memory_.behind);
    return memory_;
  }

 private:
  MemoryPass& Rest() { return memory_.awaits_tensor ? memory_.behind : memory_.until_awaited; }

  bool has_begun_ = false;
  ActionMemory memory_;
};

// Goes through an action's changes of memory one by one, with the strategy's among them.
class FirstBackward {
 public:
  FirstBackward(const RankStrategy& strategy, size_t group) : strategy_(strategy), group_(group) {}

  ActionMemory Run(const PartRuns& runs) {
    for (const PartRun& run : runs) {
      for (int64_t i = 0; i < run.count; ++i) AddPart(*run.part);
    }
    memory_.rest = memory_.until_awaited.Then(memory_.behind);
    return memory_;
  }

 private:
  void AddPart(const Part& part) {
    const int32_t ops = static_cast<int32_t>(part.ops.size());
    size_t change = 0;
    around_ = nullptr;
    for (int32_t op = 0; op <= ops; ++op) {
      const bool begins = op < ops && part.ops[op].stream == kCompute;
      if (op < ops && part.ops[op].is_strategy) AddLate();
      if (op < ops && part.ops[op].has_gradients) BeginGroup();
      if (begins) AddDelayed();
      for (; change < part.memory.size() && part.memory[change].op == op; ++change) {
        const MemoryChange& next = part.memory[change];
        if (op == ops && !has_begun_ && next.bytes < 0) {
          delayed_ += next.bytes;
          continue;
        }
        const bool is_before = IsBefore(next, op);
        has_begun_ |= begins && !is_before;
        memory_.awaits_tensor |= op == part.awaits_tensor && !is_before;
        Add(next.bytes);
      }
      has_begun_ |= begins;
      memory_.awaits_tensor |= op == part.awaits_tensor;
    }
  }

  void BeginGroup() {
    around_ = &strategy_.first[group_++];
    conversions_ = lates_ = 0;
    Add(around_->allocates);
  }

  // The next operator is a conversion of the current group.
  void AddLate() {
    if (around_ == nullptr) return;
    for (; lates_ < around_->lates; ++lates_) {
      const auto& late = strategy_.late_allocations[static_cast<size_t>(around_->first_late + lates_)];
      if (late.conversions > conversions_) break;
      Add(late.bytes);
    }
    ++conversions_;
  }

  // What is freed before the action's first computation, if that is in a later part. It is freed after the
  // strategy's allocations for the computation.
  void AddDelayed() {
    Add(delayed_);
    delayed_ = 0;
  }

  void Add(int64_t bytes) {
    (!has_begun_ ? memory_.lead : memory_.awaits_tensor ? memory_.behind : memory_.until_awaited).Add(bytes);
  }

  const RankStrategy& strategy_;
  size_t group_;
  const RankStrategy::Group* around_ = nullptr;
  int32_t conversions_ = 0, lates_ = 0;
  bool has_begun_ = false;
  int64_t delayed_ = 0;
  ActionMemory memory_;
};

}  // namespace

ActionMemory MemoryOf(const PartRuns& runs, std::span<const LayerUnit> units) {
  ActionSum sum;
  for (const PartRun& run : runs) {
    if (run.count == 0) continue;
    const Part& part = *run.part;
    const bool is_split =
        (!sum.has_begun() && !part.ops.empty()) || (!sum.awaits_tensor() && part.awaits_tensor >= 0);
    if (is_split) sum.AddSplit(part, units);
    sum.Add(MemoryOf(part, units).Times(is_split ? run.count - 1 : run.count));
  }
  ActionMemory memory = sum.Done();
  memory.computes = Computes(runs);
  return memory;
}

ActionMemory MemoryOfFirst(const PartRuns& runs, const RankStrategy& strategy, size_t group) {
  ActionMemory memory = FirstBackward(strategy, group).Run(runs);
  memory.computes = Computes(runs);
  return memory;
}

}  // namespace windtunnel::composed
