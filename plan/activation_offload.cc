#include "plan/activation_offload.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "plan/program_builder.h"

namespace windtunnel {
namespace {

// Visits between which a tensor leaves the device, at the least.
constexpr int kVisitsAway = 4;

enum class Pass : uint8_t { kForward, kBackward, kOther };

Pass PassOf(Phase phase) {
  switch (phase) {
    case Phase::kForward:
    case Phase::kLoss:
      return Pass::kForward;
    case Phase::kRecompute:
    case Phase::kBackward:
    case Phase::kBackwardWeights:
      return Pass::kBackward;
    default:
      return Pass::kOther;
  }
}

class Offloader {
 public:
  Offloader(const ActivationOffload& how, Role& role, std::vector<Op>& ops,
            std::vector<BufferId>& temporaries, const std::unordered_set<BufferId>& staying)
      : how_(how), role_(role), ops_(ops), temporaries_(temporaries), staying_(staying) {}

  std::vector<OpIndex> Run() {
    CountVisits();
    NoteUses();
    const size_t own = temporaries_.size();
    for (size_t i = 0; i < own; ++i) Offload(temporaries_[i]);
    UseWhatComesBack();
    LetVisitsWait();
    return Merge();
  }

 private:
  // Of a temporary, by index of operators; -1: none.
  struct Uses {
    OpIndex made = -1;  // the operator of the compute stream behind which forward no longer writes it
    OpIndex first_backward = -1;
    bool stays = false;
  };
  // An operator that is added: before operator `before`, and among several of these by `turn`.
  struct Added {
    Op op;
    OpIndex before = 0, turn = -1;
    OpIndex index = -1;  // once merged
  };
  // The buffer of a tensor that has come back, and the added operator that brings it.
  struct Back {
    BufferId buffer;
    int32_t copy;
  };

  void CountVisits() {
    visit_of_.reserve(ops_.size());
    std::tuple<int, int, Pass> last{-1, -1, Pass::kOther};
    for (OpIndex index = 0; index < static_cast<OpIndex>(ops_.size()); ++index) {
      const Op& op = ops_[index];
      const std::tuple<int, int, Pass> of{op.micro_batch, op.layer, PassOf(op.phase)};
      if (op.stream == kComputeStream && op.layer >= 0 && std::get<Pass>(of) != Pass::kOther && of != last) {
        begins_.push_back(index);
        last = of;
      }
      visit_of_.push_back(static_cast<int>(begins_.size()) - 1);
    }
  }

  void NoteUses() {
    for (const BufferId id : temporaries_) {
      const Buffer& buffer = role_.buffers[id];
      if (buffer.category == Category::kActivations && buffer.space == MemorySpace::kDevice &&
          buffer.bytes >= SizeOf(buffer.dtype) * ActivationOffload::kLeastElements && !staying_.contains(id))
        uses_.emplace(id, Uses{});
    }
    for (OpIndex index = 0; index < static_cast<OpIndex>(ops_.size()); ++index) {
      for (const Slice& read : ops_[index].reads) NoteUse(read.buffer, index, false);
      for (const Slice& written : ops_[index].writes) NoteUse(written.buffer, index, true);
    }
  }

  void NoteUse(BufferId buffer, OpIndex index, bool writes) {
    const auto found = uses_.find(buffer);
    if (found == uses_.end()) return;
    Uses& uses = found->second;
    const Op& op = ops_[index];
    switch (PassOf(op.phase)) {
      case Pass::kForward:
        uses.stays |= uses.first_backward >= 0;
        if (writes) uses.made = -1;
        if (uses.made < 0 && op.stream == kComputeStream) uses.made = index;
        break;
      case Pass::kBackward:
        if (uses.first_backward < 0) uses.first_backward = index;
        break;
      case Pass::kOther:
        uses.stays = true;
    }
  }

  void Offload(BufferId id) {
    const auto found = uses_.find(id);
    if (found == uses_.end()) return;
    const Uses& uses = found->second;
    if (uses.stays || uses.made < 0 || uses.first_backward < 0) return;
    const int layer = ops_[uses.first_backward].layer;
    const int made = visit_of_[uses.made], used = VisitOfUse(uses.first_backward);
    if (layer < 0 || !how_.offloads(layer) || used < made + kVisitsAway) return;
    const Buffer buffer = role_.buffers[id];
    const Slice whole{id, 0, buffer.bytes.count() / SizeOf(buffer.dtype).count()};
    const Slice on_host = Like(buffer, whole.elements, buffer.name + " (host)", MemorySpace::kHost);
    const Slice back = Like(buffer, whole.elements, buffer.name, MemorySpace::kDevice);

    const int32_t there =
        Add({.op = CopyOf(whole, on_host, Copy::Crosses::kToHost), .before = uses.made + 1}, ops_[uses.made]);
    const OpIndex begin = begins_[how_.host_computes() ? used : used - 1];
    const int32_t returns = Add({.op = CopyOf(on_host, back, Copy::Crosses::kToDevice),
                                 .before = std::min(begin, uses.first_backward),
                                 .turn = uses.first_backward},
                                ops_[begin]);
    back_.emplace(id, Back{back.buffer, returns});
    int32_t& last = leaves_.try_emplace(made, there).first->second;
    if (added_[there].before >= added_[last].before) last = there;
  }

  Op CopyOf(const Slice& from, const Slice& to, Copy::Crosses crosses) const {
    const bool leaves = crosses == Copy::Crosses::kToHost;
    const Buffer& on_device = role_.buffers[leaves ? from.buffer : to.buffer];
    const Copy copy{
        .elements = from.elements, .from = on_device.dtype, .to = on_device.dtype, .crosses = crosses};
    return Op(copy, leaves ? how_.to_host : how_.to_device, {from}, {to}, {}, on_device.name);
  }

  // Adds the copy, labelled like the operator beside which it is issued. It follows what was computed before
  // it, which has used the memory that it writes and, if it copies back, has waited for the copy to the host.
  // Returns its index.
  int32_t Add(Added added, const Op& beside) {
    added.op.phase = beside.phase;
    added.op.layer = beside.layer;
    added.op.micro_batch = beside.micro_batch;
    added.op.stage = beside.stage;
    const OpIndex last = LastComputeBefore(added.before);
    if (last >= 0 && !how_.host_computes()) added.op.dependencies = {last};
    added_.push_back(std::move(added));
    return static_cast<int32_t>(added_.size()) - 1;
  }

  // A transfer that backward begins with is issued before the visit's first operator of the compute stream.
  int VisitOfUse(OpIndex index) const {
    const Op& op = ops_[index];
    const int visit = visit_of_[index];
    if (op.stream == kComputeStream) return visit;
    const auto next = static_cast<size_t>(visit + 1);
    const bool begins_next = next < begins_.size() && ops_[begins_[next]].layer == op.layer &&
                             ops_[begins_[next]].micro_batch == op.micro_batch &&
                             PassOf(ops_[begins_[next]].phase) == Pass::kBackward;
    return begins_next ? visit + 1 : visit;
  }

  Slice Like(const Buffer& buffer, int64_t elements, std::string name, MemorySpace space) {
    const Slice slice = NewBuffer(role_, std::move(name), elements, buffer.category, buffer.dtype, space);
    temporaries_.push_back(slice.buffer);
    return slice;
  }

  OpIndex LastComputeBefore(OpIndex index) const {
    do --index;
    while (index >= 0 && ops_[index].stream != kComputeStream);
    return index;
  }

  void UseWhatComesBack() {
    std::map<std::pair<BufferId, StreamId>, OpIndex> first;  // the first use on each stream
    for (OpIndex index = 0; index < static_cast<OpIndex>(ops_.size()); ++index) {
      Op& op = ops_[index];
      if (PassOf(op.phase) != Pass::kBackward) continue;
      for (auto* slices : {&op.reads, &op.writes}) {
        for (Slice& slice : *slices) {
          const auto back = back_.find(slice.buffer);
          if (back == back_.end()) continue;
          slice.buffer = back->second.buffer;
          if (first.try_emplace({slice.buffer, op.stream}, index).second && op.stream != how_.to_device)
            waits_.emplace_back(index, back->second.copy);
        }
      }
    }
  }

  void LetVisitsWait() {
    if (how_.host_computes()) return;
    for (const auto& [visit, copy] : leaves_) waits_.emplace_back(begins_[visit + 2], copy);
  }

  // Puts the added operators among the others.
  std::vector<OpIndex> Merge() {
    std::vector<int32_t> order(added_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return std::pair(added_[a].before, added_[a].turn) < std::pair(added_[b].before, added_[b].turn);
    });
    std::vector<OpIndex> place;
    place.reserve(ops_.size() + 1);
    size_t next = 0;
    for (OpIndex index = 0; index <= static_cast<OpIndex>(ops_.size()); ++index) {
      for (; next < order.size() && added_[order[next]].before == index; ++next)
        added_[order[next]].index = index + static_cast<OpIndex>(next);
      place.push_back(index + static_cast<OpIndex>(next));
    }
    for (const auto& [op, copy] : waits_) late_[op].push_back(added_[copy].index);
    std::vector<Op> merged(ops_.size() + added_.size());
    for (OpIndex index = 0; index < static_cast<OpIndex>(ops_.size()); ++index) {
      Op& op = merged[place[index]] = std::move(ops_[index]);
      for (OpIndex& dependency : op.dependencies) dependency = place[dependency];
      if (const auto late = late_.find(index); late != late_.end()) {
        op.dependencies.insert(op.dependencies.end(), late->second.begin(), late->second.end());
        std::sort(op.dependencies.begin(), op.dependencies.end());
      }
    }
    for (Added& added : added_) {
      Op& op = merged[added.index] = std::move(added.op);
      for (OpIndex& dependency : op.dependencies) dependency = place[dependency];
    }
    ops_ = std::move(merged);
    return place;
  }

  const ActivationOffload& how_;
  Role& role_;
  std::vector<Op>& ops_;
  std::vector<BufferId>& temporaries_;
  const std::unordered_set<BufferId>& staying_;
  std::vector<OpIndex> begins_;  // by visit: its first operator
  std::vector<int> visit_of_;    // by operator: the visit that has begun last
  std::unordered_map<BufferId, Uses> uses_;
  std::vector<Added> added_;
  std::unordered_map<BufferId, Back> back_;         // by the tensor that left
  std::map<int, int32_t> leaves_;                   // by visit: its last copy to the host
  std::vector<std::pair<OpIndex, int32_t>> waits_;  // operators that wait for added ones
  std::unordered_map<OpIndex, std::vector<OpIndex>> late_;
};

}  // namespace

std::vector<OpIndex> AddActivationCopies(const ActivationOffload& how, Role& role, std::vector<Op>& ops,
                                         std::vector<BufferId>& temporaries,
                                         const std::unordered_set<BufferId>& staying) {
  return Offloader(how, role, ops, temporaries, staying).Run();
}

}  // namespace windtunnel
