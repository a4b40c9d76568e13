#include "sim/composed/stage_memory.h"

namespace windtunnel::composed {
namespace {

MemoryPass MemoryOf(const Part& part, std::span<const LayerUnit> units) {
  MemoryPass pass;
  for (const MemoryChange& change : part.memory)
    pass.Add(change.of_unit < 0 ? change.bytes
                                : change.bytes * units[static_cast<size_t>(change.of_unit)].count);
  return pass;
}

int32_t FirstCompute(const Part& part) {
  for (size_t i = 0; i < part.ops.size(); ++i)
    if (part.ops[i].stream == kCompute) return static_cast<int32_t>(i);
  return static_cast<int32_t>(part.ops.size());
}

// For the part that an action begins with.
ActionMemory Split(const Part& part) {
  const int32_t first = FirstCompute(part);
  ActionMemory memory;
  bool is_lead = true;
  for (const MemoryChange& change : part.memory) {
    is_lead = is_lead && (change.op < first || (change.op == first && !change.is_after && change.bytes < 0));
    (is_lead ? memory.lead : memory.rest).Add(change.bytes);
  }
  return memory;
}

// Goes through an action's changes of memory one by one, with the strategy's among them.
class FirstBackward {
 public:
  FirstBackward(const RankStrategy& strategy, size_t group) : strategy_(strategy), group_(group) {}

  ActionMemory Run(const PartRuns& runs) {
    for (const PartRun& run : runs) {
      for (int64_t i = 0; i < run.count; ++i) AddPart(*run.part);
    }
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
        has_begun_ |= begins && (next.is_after || next.bytes > 0);
        Add(next.bytes);
      }
      has_begun_ |= begins;
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

  void Add(int64_t bytes) { (has_begun_ ? memory_.rest : memory_.lead).Add(bytes); }

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
  ActionMemory memory;
  bool has_begun = false;
  for (const PartRun& run : runs) {
    if (run.count == 0) continue;
    if (has_begun || run.part->ops.empty()) {
      memory.rest = memory.rest.Then(MemoryOf(*run.part, units).Times(run.count));
      continue;
    }
    has_begun = true;
    const ActionMemory first = Split(*run.part);
    memory.lead = first.lead;
    memory.rest = first.rest.Then(MemoryOf(*run.part, units).Times(run.count - 1));
  }
  return memory;
}

ActionMemory MemoryOfFirst(const PartRuns& runs, const RankStrategy& strategy, size_t group) {
  return FirstBackward(strategy, group).Run(runs);
}

}  // namespace windtunnel::composed
