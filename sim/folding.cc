#include "sim/folding.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace windtunnel {
namespace {

using Key = std::vector<int32_t>;

// Numbers keys in the order of their first use.
class Numbering {
 public:
  int32_t NumberOf(const Key& key) {
    return numbers_.try_emplace(key, static_cast<int32_t>(numbers_.size())).first->second;
  }
  int32_t size() const { return static_cast<int32_t>(numbers_.size()); }

 private:
  std::map<Key, int32_t> numbers_;
};

// The number of the group's ranks on each node that it touches, in order.
Key CountsByNode(const Group& group, int devices_per_node) {
  Key counts;
  int node = -1;
  for (int rank : group.ranks) {
    if (rank / devices_per_node != node) counts.push_back(0);
    node = rank / devices_per_node;
    ++counts.back();
  }
  return counts;
}

std::vector<int32_t> FirstAlike(const Axis& axis, int devices_per_node) {
  std::vector<int32_t> first(axis.groups.size());
  std::map<Key, int32_t> seen;
  for (size_t g = 0; g < axis.groups.size(); ++g) {
    first[g] = seen.try_emplace(CountsByNode(axis.groups[g], devices_per_node), static_cast<int32_t>(g))
                   .first->second;
  }
  return first;
}

class Refinement {
 public:
  Refinement(const Plan& plan, std::vector<std::vector<int32_t>> lies_like) : plan_(plan) {
    folding_.lies_like = std::move(lies_like);
  }

  Folding Run() {
    Begin();
    for (int32_t before = 0; before != classes_;) {
      before = classes_;
      DivideGroups();
      DivideRanks();
    }
    NameClasses();
    return std::move(folding_);
  }

 private:
  // Divides ranks by role, the straggler apart, and finds the axes that each role uses.
  void Begin() {
    const auto& straggler = plan_.scenario.cluster.straggler;
    Numbering numbering;
    for (int rank = 0; rank < plan_.world_size; ++rank) {
      const bool is_straggler = straggler && straggler->rank == rank && straggler->slowdown != 1;
      folding_.class_of_rank.push_back(numbering.NumberOf({plan_.role_of_rank[rank], is_straggler}));
    }
    classes_ = numbering.size();
    for (const Role& role : plan_.roles) {
      std::vector<AxisId>& axes = axes_of_role_.emplace_back();
      for (const Stream& stream : role.streams) {
        if (stream.axis >= 0 && std::find(axes.begin(), axes.end(), stream.axis) == axes.end())
          axes.push_back(stream.axis);
      }
    }
    for (const Axis& axis : plan_.axes) folding_.class_of_group.emplace_back(axis.groups.size(), 0);
    folding_.first_group.resize(plan_.axes.size());
  }

  void DivideGroups() {
    for (size_t a = 0; a < plan_.axes.size(); ++a) {
      Numbering numbering;
      folding_.first_group[a].clear();
      for (size_t g = 0; g < plan_.axes[a].groups.size(); ++g) {
        Key key = MembersOf(plan_.axes[a].groups[g]);
        key.push_back(folding_.lies_like[a][g]);
        const int32_t of_group = folding_.class_of_group[a][g] = numbering.NumberOf(key);
        if (of_group == static_cast<int32_t>(folding_.first_group[a].size()))
          folding_.first_group[a].push_back(static_cast<int32_t>(g));
      }
    }
  }

  // For a pair, its two ranks' classes in order, since one sends to the other. Otherwise each class and its
  // number of ranks.
  Key MembersOf(const Group& group) const {
    Key classes;
    for (int rank : group.ranks) classes.push_back(folding_.class_of_rank[rank]);
    if (classes.size() <= 2) return classes;
    std::sort(classes.begin(), classes.end());
    Key members;
    for (auto it = classes.begin(); it != classes.end();) {
      const auto end = std::upper_bound(it, classes.end(), *it);
      members.push_back(*it);
      members.push_back(static_cast<int32_t>(end - it));
      it = end;
    }
    return members;
  }

  void DivideRanks() {
    Numbering numbering;
    Key key;
    for (int rank = 0; rank < plan_.world_size; ++rank) {
      key = {folding_.class_of_rank[rank]};
      for (AxisId axis : axes_of_role_[plan_.role_of_rank[rank]]) {
        const int32_t group = plan_.axes[axis].group_of_rank[rank];
        key.push_back(group < 0 ? -1 : folding_.class_of_group[axis][group]);
      }
      folding_.class_of_rank[rank] = numbering.NumberOf(key);
    }
    classes_ = numbering.size();
  }

  // Classes are numbered in the order of their first ranks.
  void NameClasses() {
    folding_.sizes.assign(classes_, 0);
    for (int rank = 0; rank < plan_.world_size; ++rank) {
      const int32_t of_rank = folding_.class_of_rank[rank];
      if (folding_.sizes[of_rank]++ == 0) folding_.representatives.push_back(rank);
    }
  }

  const Plan& plan_;
  Folding folding_;
  int32_t classes_ = 0;
  std::vector<std::vector<AxisId>> axes_of_role_;
};

}  // namespace

std::vector<std::vector<int32_t>> LieAlike(const Plan& plan) {
  const int devices = static_cast<int>(std::max<int64_t>(plan.scenario.cluster.devices_per_node, 1));
  std::vector<std::vector<int32_t>> alike;
  for (const Axis& axis : plan.axes) alike.push_back(FirstAlike(axis, devices));
  return alike;
}

Folding Fold(const Plan& plan) { return Fold(plan, LieAlike(plan)); }
Folding Fold(const Plan& plan, std::vector<std::vector<int32_t>> lies_like) {
  return Refinement(plan, std::move(lies_like)).Run();
}

Folding Unfolded(const Plan& plan) {
  Folding folding;
  folding.class_of_rank.resize(plan.world_size);
  std::iota(folding.class_of_rank.begin(), folding.class_of_rank.end(), 0);
  folding.representatives.assign(folding.class_of_rank.begin(), folding.class_of_rank.end());
  folding.sizes.assign(plan.world_size, 1);
  for (const Axis& axis : plan.axes) {
    std::vector<int32_t>& classes = folding.class_of_group.emplace_back(axis.groups.size());
    std::iota(classes.begin(), classes.end(), 0);
    folding.first_group.push_back(classes);
  }
  folding.lies_like = LieAlike(plan);
  return folding;
}

}  // namespace windtunnel
