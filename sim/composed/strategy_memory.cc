#include "sim/composed/strategy_memory.h"

#include <algorithm>
#include <variant>

#include "base/check.h"
#include "plan/buffer_pool.h"
#include "plan/ops.h"

namespace windtunnel::composed {
namespace {

// Walks through the step's operators and changes of memory in order.
class MemoryWalk {
 public:
  MemoryWalk(const DrivenRole& driven, RankStrategy& strategy)
      : driven_(driven), strategy_(strategy), is_temporary_(driven.role.buffers.size()) {}

  void Run() {
    FindTemporaries();
    AddResident();
    WalkProgram(
        driven_.step, [&](int32_t index) { AddChange(driven_.step.memory[index]); },
        [&](OpIndex index) { PassOp(index); });
    if (is_awaited_) strategy_.peak_after = peak_;
    else SetBefore();
  }

 private:
  // Temporary buffers are allocated and then freed within the step.
  void FindTemporaries() {
    std::vector<bool> is_allocated(driven_.role.buffers.size());
    for (const MemoryOp& op : driven_.step.memory) {
      if (op.allocates()) is_allocated[op.buffer] = true;
      else if (is_allocated[op.buffer]) is_temporary_[op.buffer] = true;
    }
  }

  void AddResident() {
    for (size_t i = 0; i < driven_.role.buffers.size(); ++i) {
      const Buffer& buffer = driven_.role.buffers[i];
      const auto id = static_cast<BufferId>(i);
      if (id == driven_.tensor_scratch) strategy_.tensor_scratch = buffer.bytes.count();
      else if (id == driven_.expert_scratch) strategy_.expert_scratch = buffer.bytes.count();
      else if (Stays(id)) strategy_.resident += RequestedBy(buffer, driven_.allocator);
    }
  }

  bool Stays(BufferId id) const {
    const auto i = static_cast<size_t>(id);
    if (std::find(driven_.rebuilt.begin(), driven_.rebuilt.end(), id) != driven_.rebuilt.end()) return true;
    if (i >= driven_.built) return i >= driven_.before_step && !is_temporary_[i];
    return !driven_.starts_up || driven_.role.buffers[i].use != BufferUse::kFirstBucket;
  }

  void PassOp(OpIndex index) {
    number_ = index;
    const bool reads_values = !strategy_.values.empty() && number_ <= strategy_.values.back().marker;
    if (strategy_.ops[number_].is_marker && !reads_values) {
      ++groups_;
      conversions_ = 0;
    } else if (std::holds_alternative<Copy>(driven_.step.ops[index].kind)) {
      ++conversions_;
    }
  }

  void AddChange(const MemoryOp& op) {
    const bool is_alloc = op.allocates(), is_temporary = is_temporary_[op.buffer];
    const int64_t bytes = RequestedBy(driven_.role.buffers[op.buffer], driven_.allocator);
    if (!is_temporary && !is_alloc) {
      strategy_.freed += bytes;
      return;
    }
    const int32_t next = op.before;
    if (number_ >= strategy_.after_backwards || (is_alloc && next >= strategy_.after_backwards)) {
      // The messages' memory is freed before what the operator that waits for them allocates.
      if (number_ >= strategy_.sends_awaited || (is_alloc && next >= strategy_.sends_awaited)) SetBefore();
      level_ += is_alloc ? bytes : -bytes;
      peak_ = std::max(peak_, level_);
    } else if (!is_temporary) {
      AddAllocation(bytes, next);
    }
  }

  // Takes effect once, when the sent messages are freed.
  void SetBefore() {
    if (is_awaited_) return;
    strategy_.net_before = level_;
    strategy_.peak_before = peak_;
    is_awaited_ = true;
    level_ = peak_ = 0;
  }

  // Adds an allocation in the first backwards: to the next marker's group, or as a late one to the last
  // marker's if operators of that group are still to come.
  void AddAllocation(int64_t bytes, int32_t next) {
    std::vector<RankStrategy::Group>& first = strategy_.first;
    const bool is_late = groups_ > 0 && groups_ <= first.size() && next < first[groups_ - 1].end;
    if (is_late) {
      RankStrategy::Group& late = first[groups_ - 1];
      if (late.lates++ == 0) late.first_late = static_cast<int32_t>(strategy_.late_allocations.size());
      strategy_.late_allocations.push_back({conversions_, bytes});
    } else {
      WT_CHECK_LT(groups_, first.size());
      first[groups_].allocates += bytes;
    }
  }

  const DrivenRole& driven_;
  RankStrategy& strategy_;
  std::vector<bool> is_temporary_;         // by buffer
  int32_t number_ = -1, conversions_ = 0;  // last operator; conversions since the last marker
  size_t groups_ = 0;                      // markers passed
  int64_t level_ = 0, peak_ = 0;           // bytes, after the backwards
  bool is_awaited_ = false;                // the sent messages have been freed
};

}  // namespace

int64_t RequestedBy(const Buffer& buffer, AllocatorKind allocator) {
  if (buffer.space != MemorySpace::kDevice) return 0;
  return RequestedBytes(buffer.bytes, allocator).count();
}

void AddMemory(const DrivenRole& driven, RankStrategy& strategy) { MemoryWalk(driven, strategy).Run(); }

}  // namespace windtunnel::composed
