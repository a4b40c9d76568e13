// What the ifs, cases, loops and groups around a command of a script say of it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/importers/shell_condition.h"

namespace windtunnel {

enum class BranchKind { kIf, kLoop, kCase, kGroup };

struct Branch {
  BranchKind kind = BranchKind::kIf;
  bool in_condition = false;
  bool at_pattern = false;   // of a `case`: what comes next is the pattern of a branch
  std::string subject = {};  // of a `case`
  Truth taken = false;       // whether the branch that is being read runs
  Truth any_before = false;  // whether one of the branches before it did
};

// Those that are open where a script is being read.
class ShellBranches {
 public:
  bool empty() const { return branches_.empty(); }
  // The last one that was opened. REQUIRES: there is one.
  Branch& Innermost() { return branches_.back(); }
  const Branch& Innermost() const { return branches_.back(); }
  bool IsIn(BranchKind kind) const { return !branches_.empty() && branches_.back().kind == kind; }
  bool InCondition() const { return !branches_.empty() && branches_.back().in_condition; }
  // Whether a command here is not known to be skipped; and whether it is known to run.
  bool MayRun() const {
    return std::none_of(branches_.begin(), branches_.end(),
                        [](const Branch& branch) { return branch.taken == Truth(false); });
  }
  bool SurelyRuns() const {
    return std::all_of(branches_.begin(), branches_.end(),
                       [](const Branch& branch) { return branch.taken == Truth(true); });
  }

  void Open(Branch branch) { branches_.push_back(std::move(branch)); }
  void CloseGroup() { branches_.pop_back(); }
  // The innermost one that is no group, with the groups in it that have no end.
  void Close() {
    while (branches_.size() > 1 && IsIn(BranchKind::kGroup)) branches_.pop_back();
    branches_.pop_back();
  }

  // Begins a branch under a condition: it runs if that holds and no branch before it ran.
  void Enter(Truth condition) {
    Branch& branch = branches_.back();
    branch.in_condition = false;
    if (branch.any_before == Truth(true) || condition == Truth(false)) branch.taken = false;
    else if (condition == Truth(true) && branch.any_before == Truth(false)) branch.taken = true;
    else branch.taken = std::nullopt;
  }
  void Leave() {
    Branch& branch = branches_.back();
    if (branch.taken == Truth(true)) branch.any_before = true;
    else if (!branch.taken && branch.any_before == Truth(false)) branch.any_before = std::nullopt;
  }

 private:
  std::vector<Branch> branches_;
};

}  // namespace windtunnel
