#include "sim/network_flows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/random.h"

namespace windtunnel {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) { return Mix64(Mix64(a) ^ b); }

// Makes sums equal that differ only by rounding.
uint64_t Rounded(double share) { return static_cast<uint64_t>(std::llround(share * 0x1p30)); }

// A communication operator of an axis, as it occurs in a role. For a send or receive, each rank of the role
// has links of its own.
struct AxisOp {
  const Op* op = nullptr;
  int32_t role = -1;
  bool is_pair = false;
};

// Every distinct communication operator, by axis.
std::vector<std::vector<AxisOp>> OperatorsOf(const Plan& plan) {
  std::vector<std::vector<AxisOp>> of_axis(plan.axes.size());
  std::set<std::tuple<AxisId, int32_t, std::string>> seen;
  for (size_t role = 0; role < plan.roles.size(); ++role) {
    for (const Op& op : plan.roles[role].steady.ops) {
      if (!IsCommunication(op.kind)) continue;
      const AxisId axis = plan.roles[role].streams[op.stream].axis;
      std::string key = CostKey(op.kind);
      if (const auto* collective = std::get_if<Collective>(&op.kind))
        key += fmt::format(" distance={}", collective->distance);
      const auto* send = std::get_if<Send>(&op.kind);
      const auto* receive = std::get_if<Receive>(&op.kind);
      const bool is_pair = send != nullptr || receive != nullptr;
      if (is_pair) key += std::to_string(send ? send->peer : receive->peer);
      if (seen.emplace(axis, is_pair ? static_cast<int32_t>(role) : -1, std::move(key)).second)
        of_axis[axis].push_back({&op, static_cast<int32_t>(role), is_pair});
    }
  }
  return of_axis;
}

// Colour refinement of groups and links.
class LinkRefinement {
 public:
  LinkRefinement(const Plan& plan, const CostModel& model) : plan_(plan), model_(model) {}

  Status Collect() {
    const std::vector<std::vector<AxisOp>> operators = OperatorsOf(plan_);
    for (size_t a = 0; a < plan_.axes.size(); ++a) {
      for (const Group& group : plan_.axes[a].groups) {
        Node& node = nodes_.emplace_back();
        for (size_t i = 0; i < operators[a].size(); ++i)
          WT_RETURN_IF_ERROR(Add(operators[a][i], i, group, node));
      }
    }
    return Ok();
  }

  // Returns, by axis and group, the axis's first group of the same colour. Groups start divided by `classes`.
  std::vector<std::vector<int32_t>> Refine(const std::vector<std::vector<int32_t>>& classes) {
    std::vector<uint64_t> links(links_, 0);
    colours_.clear();
    for (size_t a = 0; a < classes.size(); ++a) {
      for (size_t g = 0; g < classes[a].size(); ++g)
        colours_.push_back(Mix(Mix(a, static_cast<uint64_t>(classes[a][g])), nodes_[colours_.size()].fixed));
    }
    for (size_t before = 0; before != Distinct(links);) {
      before = Distinct(links);
      std::vector<uint64_t> refined(links.size());
      for (size_t i = 0; i < links.size(); ++i) refined[i] = Mix64(links[i]);
      for (size_t n = 0; n < nodes_.size(); ++n) {
        for (const Use& use : nodes_[n].uses) refined[use.link] += Mix(colours_[n], use.how);
      }
      links = std::move(refined);
      for (size_t n = 0; n < nodes_.size(); ++n) {
        uint64_t sum = Mix64(colours_[n]);
        for (const Use& use : nodes_[n].uses) sum += Mix(links[use.link], use.how);
        colours_[n] = sum;
      }
    }
    return FirstAlike();
  }

 private:
  struct Use {
    int32_t link = -1;
    uint64_t how = 0;  // by which operator, and its share
  };
  struct Node {          // a group
    uint64_t fixed = 0;  // what its operators cost
    std::vector<Use> uses;
    std::vector<const LinkDemands*> known;
  };

  // Skips operators with the same LinkDemands as an earlier one of the group: they differ only in bytes,
  // which distinguishes nothing further.
  Status Add(const AxisOp& op, size_t index, const Group& group, Node& node) {
    if (group.ranks.size() <= 1) return Ok();
    const int positions = op.is_pair ? static_cast<int>(group.ranks.size()) : 1;
    for (int position = 0; position < positions; ++position) {
      if (op.is_pair && plan_.role_of_rank[group.ranks[position]] != op.role) continue;
      WT_ASSIGN_OR_RETURN(const std::shared_ptr<const LinkDemands> links,
                          model_.Links(*op.op, group, position));
      if (!links || std::find(node.known.begin(), node.known.end(), links.get()) != node.known.end())
        continue;
      node.known.push_back(links.get());
      WT_ASSIGN_OR_RETURN(const CommunicationCost cost, model_.Communication(*op.op, group));
      node.fixed = Mix(node.fixed, static_cast<uint64_t>(cost.time.p50().picoseconds()));
      const uint64_t how = Mix64(index + 1);
      for (const LinkDemand& demand : *links) {
        node.uses.push_back({demand.link, Mix(how, Rounded(demand.share))});
        links_ = std::max(links_, static_cast<size_t>(demand.link) + 1);
      }
    }
    return Ok();
  }

  static size_t DistinctOf(std::vector<uint64_t> colours) {
    std::sort(colours.begin(), colours.end());
    return static_cast<size_t>(std::unique(colours.begin(), colours.end()) - colours.begin());
  }
  size_t Distinct(const std::vector<uint64_t>& links) const {
    return DistinctOf(colours_) + DistinctOf(links);
  }

  std::vector<std::vector<int32_t>> FirstAlike() const {
    std::vector<std::vector<int32_t>> first(plan_.axes.size());
    size_t n = 0;
    for (size_t a = 0; a < plan_.axes.size(); ++a) {
      std::map<uint64_t, int32_t> seen;
      for (size_t g = 0; g < plan_.axes[a].groups.size(); ++g, ++n)
        first[a].push_back(seen.try_emplace(colours_[n], static_cast<int32_t>(g)).first->second);
    }
    return first;
  }

  const Plan& plan_;
  const CostModel& model_;
  std::vector<Node> nodes_;  // of all axes, concatenated
  size_t links_ = 0;
  std::vector<uint64_t> colours_;  // of the groups
};

// Finds the shares of links that transfers take.
class FlowBuilder {
 public:
  FlowBuilder(const StepSchedule& schedule, const CostModel& model) : schedule_(schedule), model_(model) {
    for (const auto& classes : schedule.folding.class_of_group) {
      auto& groups = groups_of_class_.emplace_back();
      for (size_t g = 0; g < classes.size(); ++g) groups[classes[g]].push_back(static_cast<int32_t>(g));
    }
  }

  Result<NetworkFlows> Run() {
    for (const Transfer& transfer : schedule_.transfers) {
      WT_ASSIGN_OR_RETURN(const int32_t flow, FlowOf(transfer));
      flows_.flow_of_transfer.push_back(flow);
    }
    MergeLinks();
    return std::move(flows_);
  }

 private:
  Result<int32_t> FlowOf(const Transfer& transfer) {
    if (transfer.engine != Engine::kLinks) return -1;
    const Participant& first = schedule_.participants[transfer.first_participant];
    const Op& op = schedule_.OpOf(first.rank, first.op);
    const bool is_pair = !std::holds_alternative<Collective>(op.kind);
    // The links of the class's first group. Operators that cross the same links there do so in all groups of
    // the class.
    const Axis& axis = schedule_.plan->axes[transfer.axis];
    const int position = is_pair ? axis.position_of_rank[schedule_.ranks[first.rank].rank] : 0;
    const Group& group =
        is_pair ? axis.GroupOf(schedule_.ranks[first.rank].rank) : axis.groups[transfer.group];
    WT_ASSIGN_OR_RETURN(const std::shared_ptr<const LinkDemands> links, model_.Links(op, group, position));
    if (!links) return -1;
    auto [entry, is_new] = known_.try_emplace({transfer.axis, transfer.group, links.get()},
                                              static_cast<int32_t>(flows_.flows.size()));
    if (is_new) {
      WT_ASSIGN_OR_RETURN(LinkDemands together, Together(op, transfer, is_pair ? first.rank : -1));
      flows_.flows.push_back({std::move(together), LargestOf(*links)});
    }
    return entry->second;
  }

  static double LargestOf(const LinkDemands& demands) {
    double largest = 0;
    for (const LinkDemand& demand : demands) largest = std::max(largest, demand.share);
    return largest;
  }

  // The sum over all groups of the transfer's class; for a pair, over all of their ranks of the class `rank`.
  Result<LinkDemands> Together(const Op& op, const Transfer& transfer, int32_t rank) const {
    LinkDemands all;
    const Axis& axis = schedule_.plan->axes[transfer.axis];
    const int32_t of_class = schedule_.folding.class_of_group[transfer.axis][transfer.group];
    for (int32_t g : groups_of_class_[transfer.axis].at(of_class)) {
      const Group& group = axis.groups[g];
      for (size_t position = 0; position < (rank < 0 ? 1 : group.ranks.size()); ++position) {
        if (rank >= 0 && schedule_.folding.class_of_rank[group.ranks[position]] != rank) continue;
        WT_ASSIGN_OR_RETURN(const std::shared_ptr<const LinkDemands> links,
                            model_.Links(op, group, static_cast<int>(position)));
        if (!links) continue;
        all.insert(all.end(), links->begin(), links->end());
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const LinkDemand& a, const LinkDemand& b) { return a.link < b.link; });
    LinkDemands together;
    for (const LinkDemand& demand : all) {
      if (together.empty() || together.back().link != demand.link) together.push_back({demand.link, 0});
      together.back().share += demand.share;
    }
    return together;
  }

  void MergeLinks() {
    std::map<int32_t, std::vector<std::pair<int32_t, uint64_t>>> users;  // by link: flows and their shares
    for (size_t flow = 0; flow < flows_.flows.size(); ++flow) {
      for (const LinkDemand& demand : flows_.flows[flow].demands)
        users[demand.link].emplace_back(static_cast<int32_t>(flow), Rounded(demand.share));
    }
    std::map<std::vector<std::pair<int32_t, uint64_t>>, int32_t> classes;
    std::map<int32_t, int32_t> class_of_link;
    std::set<int32_t> first_of_class;
    for (const auto& [link, of_link] : users) {
      const auto [entry, is_new] = classes.try_emplace(of_link, static_cast<int32_t>(classes.size()));
      class_of_link[link] = entry->second;
      if (is_new) first_of_class.insert(link);
    }
    for (NetworkFlow& flow : flows_.flows) {
      std::erase_if(flow.demands,
                    [&](const LinkDemand& demand) { return !first_of_class.contains(demand.link); });
      for (LinkDemand& demand : flow.demands) demand.link = class_of_link[demand.link];
    }
    flows_.links = static_cast<int32_t>(classes.size());
  }

  const StepSchedule& schedule_;
  const CostModel& model_;
  NetworkFlows flows_;
  std::vector<std::map<int32_t, std::vector<int32_t>>> groups_of_class_;  // by axis
  std::map<std::tuple<AxisId, int32_t, const LinkDemands*>, int32_t> known_;
};

}  // namespace

Result<Folding> FoldWithLinks(const Plan& plan, const CostModel& model) {
  LinkRefinement links(plan, model);
  WT_RETURN_IF_ERROR(links.Collect());
  std::vector<std::vector<int32_t>> lies_like = LieAlike(plan);
  size_t before = 0;
  for (;;) {
    lies_like = links.Refine(lies_like);
    Folding folding = Fold(plan, lies_like);
    size_t classes = folding.representatives.size();
    for (const auto& first : folding.first_group) classes += first.size();
    if (classes == before) return folding;
    before = classes;
    lies_like = folding.class_of_group;
  }
}

Result<NetworkFlows> FlowsOf(const StepSchedule& schedule, const CostModel& model) {
  if (!model.has_links()) return NetworkFlows{};
  return FlowBuilder(schedule, model).Run();
}

}  // namespace windtunnel
