// Ranks that cannot be told apart are simulated once.
//
// Ranks and groups are put into classes, an equitable partition of the two: ranks of one class have the same role and belong, on
// every axis that the role uses, to groups of one class; groups of one class lie alike in the cluster and have as many ranks of each
// class. It is found by refinement: ranks start out by what singles them out (role, straggler), groups by how they lie, and classes
// are split as long as members differ in what they are made of or belong to. So a straggler splits the roles of those that
// feel it, and only them.
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
  std::vector<int> representatives;                  // by class of ranks: its first rank, ascending
  std::vector<int64_t> sizes;                        // by class of ranks: how many there are
  std::vector<std::vector<int32_t>> class_of_group;  // by axis and group
  std::vector<std::vector<int32_t>> first_group;     // by axis and class of groups
  // By axis and group: the first group of the axis that lies as this one does, so that what it does costs as much.
  std::vector<std::vector<int32_t>> lies_like;

  int classes() const { return static_cast<int>(representatives.size()); }
  bool is_folded() const { return representatives.size() < class_of_rank.size(); }
};

// How groups lie, by axis and group: the first group of the axis that has as many ranks on each of the nodes it touches.
std::vector<std::vector<int32_t>> LieAlike(const Plan& plan);

// The coarsest such partition; of groups that lie as they are said to, where that is finer.
Folding Fold(const Plan& plan);
Folding Fold(const Plan& plan, std::vector<std::vector<int32_t>> lies_like);
// Every rank and every group a class of its own.
Folding Unfolded(const Plan& plan);

}  // namespace windtunnel
