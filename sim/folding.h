// Ranks that cannot be told apart are simulated once.
//
// Ranks and groups are put into classes, which form an equitable partition of both. Ranks of one class have
// the same role and belong, on every axis that the role uses, to groups of one class. Groups of one class
// have the same layout across nodes and equally many ranks of each class. The partition is found by
// refinement: ranks start out divided by role and straggler, groups by layout, and classes are split as long
// as their members differ in the classes that they contain or belong to. So a straggler splits only the roles
// of the ranks that it affects.
//
// Where every cost is a constant, the ranks of a class do the same at every instant.
//
//   const Folding folding = Fold(plan);
//   folding.representatives;   // of 16 stages x 8 tensor x 128 data ranks: 16; with a straggler among them: 64
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace windtunnel {

struct Folding {
  std::vector<int32_t> class_of_rank;                // by world rank
  std::vector<int> representatives;                  // by class of ranks: its lowest rank, ascending
  std::vector<int64_t> sizes;                        // by class of ranks: how many there are
  std::vector<std::vector<int32_t>> class_of_group;  // by axis and group
  std::vector<std::vector<int32_t>> first_group;     // by axis and class of groups
  // By axis and group: the first group of the axis with the same layout, so that the same operators cost the
  // same in both.
  std::vector<std::vector<int32_t>> lies_like;

  int classes() const { return static_cast<int>(representatives.size()); }
  bool is_folded() const { return representatives.size() < class_of_rank.size(); }
};

// The layout of groups across nodes, as Folding::lies_like: the first group of the axis that has, on the
// nodes that it touches, the same numbers of ranks in the same order.
std::vector<std::vector<int32_t>> LieAlike(const Plan& plan);

// The coarsest such partition. `lies_like` may distinguish more groups than LieAlike.
Folding Fold(const Plan& plan);
Folding Fold(const Plan& plan, std::vector<std::vector<int32_t>> lies_like);
// Every rank and every group a class of its own.
Folding Unfolded(const Plan& plan);

}  // namespace windtunnel
