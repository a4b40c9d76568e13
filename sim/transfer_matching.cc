#include "sim/transfer_matching.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace windtunnel {
namespace {

// What ranks' operators have to agree on to form one transfer: the cost key (kind, type, bytes), and the root,
// the reduction or the distance.
std::string Fingerprint(const Op& op) {
  if (const auto* c = std::get_if<Collective>(&op.kind)) {
    std::string print = CostKey(op.kind);
    if (HasRoot(c->kind)) print += fmt::format(" root={}", c->root);
    if (c->reduction == Reduction::kMax) print += " max";
    if (c->kind == CollectiveKind::kShift) print += fmt::format(" distance={}", c->distance);
    return print;
  }
  if (const auto* send = std::get_if<Send>(&op.kind))
    return fmt::format("{} x {}", Name(send->dtype), send->elements);
  const auto* receive = std::get_if<Receive>(&op.kind);
  WT_CHECK(receive != nullptr);
  return fmt::format("{} x {}", Name(receive->dtype), receive->elements);
}

class Matcher {
 public:
  explicit Matcher(StepSchedule& schedule) : schedule_(schedule) {}

  Status Run() {
    for (const RankLayout& rank : schedule_.ranks)
      Collect(static_cast<int32_t>(&rank - schedule_.ranks.data()), rank);
    for (auto& [key, parts] : parts_) WT_RETURN_IF_ERROR(Add(key.axis, key.group, key.is_pair, parts));
    return Ok();
  }

 private:
  // Identifies operators that meet: the k-th collective of a class of groups, or the k-th transfer there from
  // one class of ranks to another.
  struct Key {
    AxisId axis;
    int32_t group;
    bool is_pair;
    int32_t from, to;
    int32_t k;
    auto operator<=>(const Key&) const = default;
  };
  struct Part {
    Participant participant;
    int32_t index;  // into transfer_of_position
  };

  void Collect(int32_t rank, const RankLayout& layout) {
    const RoleSchedule& role = schedule_.roles[layout.role];
    // Operator, queue, index into transfer_of_position.
    std::vector<std::tuple<OpIndex, int32_t, int32_t>> ops;
    for (size_t q = 0; q < role.queues.size(); ++q) {
      const int32_t queue = layout.first_queue + static_cast<int32_t>(q);
      int32_t index = schedule_.queues[queue].first_transfer;
      for (OpIndex op : role.queues[q].ops) {
        if (IsCommunication(schedule_.OpOf(rank, op).kind)) ops.emplace_back(op, queue, index);
        else AddAlone({rank, queue, op}, index);
        ++index;
      }
    }
    std::sort(ops.begin(), ops.end());  // the order in which the host issues them, across queues
    std::map<Key, int32_t> met;
    for (const auto& [op, queue, index] : ops) {
      Key key = KeyOf(rank, op, schedule_.queues[queue].stream);
      key.k = met[key]++;
      parts_[key].push_back({{rank, queue, op}, index});
    }
  }

  // A kernel, or a copy between host and device: a transfer of its own.
  void AddAlone(Participant participant, int32_t index) {
    const auto* copy = std::get_if<Copy>(&schedule_.OpOf(participant.rank, participant.op).kind);
    const bool crosses = copy != nullptr && copy->crosses != Copy::Crosses::kNothing;
    schedule_.transfer_of_position[index] = static_cast<int32_t>(schedule_.transfers.size());
    schedule_.transfers.push_back({.first_participant = static_cast<int32_t>(schedule_.participants.size()),
                                   .participants = 1,
                                   .needed = 1,
                                   .engine = crosses ? Engine::kCopies : Engine::kKernels});
    schedule_.participants.push_back(participant);
  }

  Key KeyOf(int32_t rank, OpIndex index, StreamId stream) const {
    const Op& op = schedule_.OpOf(rank, index);
    const RankLayout& layout = schedule_.ranks[rank];
    const AxisId id = schedule_.plan->roles[layout.role].streams[stream].axis;
    const Axis& axis = schedule_.plan->axes[id];
    const Folding& folding = schedule_.folding;
    const int32_t group = folding.class_of_group[id][axis.group_of_rank[layout.rank]];
    auto class_of = [&](int peer) { return folding.class_of_rank[axis.GroupOf(layout.rank).ranks[peer]]; };
    if (const auto* send = std::get_if<Send>(&op.kind))
      return {id, group, true, rank, class_of(send->peer), 0};
    if (const auto* receive = std::get_if<Receive>(&op.kind))
      return {id, group, true, class_of(receive->peer), rank, 0};
    return {id, group, false, -1, -1, 0};
  }

  Status Add(AxisId axis, int32_t class_of_groups, bool is_pair, const std::vector<Part>& parts) {
    const int32_t transfer = static_cast<int32_t>(schedule_.transfers.size());
    const int32_t group = schedule_.folding.first_group[axis][class_of_groups];
    const int32_t needed = is_pair ? 2 : ClassesIn(axis, group);
    schedule_.transfers.push_back({.first_participant = static_cast<int32_t>(schedule_.participants.size()),
                                   .participants = static_cast<int32_t>(parts.size()),
                                   .needed = needed,
                                   .axis = axis,
                                   .group = group});
    for (const Part& part : parts) {
      WT_RETURN_IF_ERROR(CheckSame(parts.front().participant, part.participant));
      schedule_.participants.push_back(part.participant);
      schedule_.transfer_of_position[part.index] = transfer;
    }
    return Ok();
  }

  int32_t ClassesIn(AxisId axis, int32_t group) {
    auto [entry, is_new] = classes_in_.try_emplace({axis, group}, 0);
    if (is_new) {
      std::set<int32_t> classes;
      for (int rank : schedule_.plan->axes[axis].groups[group].ranks)
        classes.insert(schedule_.folding.class_of_rank[rank]);
      entry->second = static_cast<int32_t>(classes.size());
    }
    return entry->second;
  }

  Status CheckSame(const Participant& a, const Participant& b) const {
    if (a.op == b.op && schedule_.ranks[a.rank].role == schedule_.ranks[b.rank].role) return Ok();
    const Op& first = schedule_.OpOf(a.rank, a.op);
    const Op& second = schedule_.OpOf(b.rank, b.op);
    const std::string x = Fingerprint(first), y = Fingerprint(second);
    if (x == y) return Ok();
    return Failed("rank {} calls '{}' ({}) where rank {} calls '{}' ({}): operators that meet must agree",
                  schedule_.ranks[a.rank].rank, first.name, x, schedule_.ranks[b.rank].rank, second.name, y);
  }

  StepSchedule& schedule_;
  std::map<Key, std::vector<Part>> parts_;  // ordered, so that transfers are numbered the same on any machine
  std::map<std::pair<AxisId, int32_t>, int32_t> classes_in_;  // by axis and group
};

}  // namespace

Status MatchTransfers(StepSchedule& schedule) { return Matcher(schedule).Run(); }

}  // namespace windtunnel
