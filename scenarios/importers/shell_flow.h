// Whether the commands of a script run: what the branches around them (shell_branches.h) and the && and ||
// before them say.
#pragma once

#include <optional>
#include <string>

#include "scenarios/importers/shell_branches.h"
#include "scenarios/importers/shell_condition.h"

namespace windtunnel {

// Follows a script from command to command, and into and out of its branches. Words that end or go on with a
// branch where none is open do nothing.
class ShellFlow {
 public:
  // Of the next command: whether no branch around it is known not to run; whether && or || skips it; whether
  // neither is so.
  bool MayEnter() const { return branches_.MayRun(); }
  bool skips() const { return skips_; }
  bool MayRun() const { return MayEnter() && !skips(); }
  // Whether it is known that a command that MayRun() does. What && and || join in a condition is not told
  // apart.
  bool IsCertain() const {
    return certain_ && branches_.SurelyRuns() && (joined_by_ == ' ' || !branches_.InCondition());
  }
  bool InCondition() const { return branches_.InCondition(); }

  // The command has come to `truth`. If that is not known, && goes on behind one that `mostly_succeeds`.
  void EndCommand(Truth truth, bool mostly_succeeds);
  // What joins the next command to it: '&' for &&, '|' for ||, ' ' for neither.
  void Join(char by);

  void OpenIf();
  void Then();
  void ElseIf();
  void Else();
  void OpenLoop() { branches_.Open({.kind = BranchKind::kLoop, .taken = std::nullopt}); }
  bool HasOpen() const { return !branches_.empty(); }
  // Whether the body of the loop that has been opened runs, once. REQUIRES: HasOpen().
  void DecideLoop(bool runs) { branches_.Innermost().taken = runs; }
  void Close();  // fi, done, esac

  // { and }: behind && and || a group runs as a whole.
  void OpenGroup();
  void CloseGroup();

  // Without `in` behind its subject a `case` has no branches that could be told apart.
  void OpenCase(std::string subject, bool has_branches);
  bool InCase() const { return branches_.IsIn(BranchKind::kCase); }
  // Whether the patterns of a branch come next. BeginPatterns() takes them up, and returns what they are
  // compared with.
  bool AtPatterns() const { return InCase() && branches_.Innermost().at_pattern; }
  std::string BeginPatterns();
  void EnterCaseBranch(Truth matches);
  // Behind ;; or, where the next branch may run as well (`goes_on`), ;& and ;;&.
  void LeaveCaseBranch(bool goes_on);

 private:
  void BeginCondition();
  void BeginList();

  ShellBranches branches_;
  Truth status_;          // what the list of commands so far has come to
  bool succeeds_ = true;  // whether it is taken to succeed where that is not known
  char joined_by_ = ' ';  // as in Join()
  bool skips_ = false;    // the next command does not run
  bool certain_ = true;   // it is known whether it does
};

}  // namespace windtunnel
