#include "scenarios/importers/shell_flow.h"

#include <utility>

namespace windtunnel {

void ShellFlow::EndCommand(Truth truth, bool mostly_succeeds) {
  const Truth before = joined_by_ == '&' && succeeds_ ? Truth(true) : status_;
  if (!skips_) status_ = joined_by_ == ' ' ? truth : Combined(before, joined_by_, truth);
  succeeds_ = !status_ && mostly_succeeds && certain_ && !InCondition();
}

// `[ … ] && command` and `[ … ] || command` are an if of one command.
void ShellFlow::Join(char by) {
  joined_by_ = by;
  const bool is_joined = by != ' ' && !InCondition();
  skips_ = is_joined && status_ && *status_ != (by == '&');
  certain_ = !is_joined || status_ || (succeeds_ && by == '&');
}

void ShellFlow::OpenIf() {
  branches_.Open({.kind = BranchKind::kIf});
  BeginCondition();
}

void ShellFlow::Then() {
  if (HasOpen()) branches_.Enter(status_);
}

void ShellFlow::ElseIf() {
  if (!HasOpen()) return;
  branches_.Leave();
  BeginCondition();
}

void ShellFlow::Else() {
  if (!HasOpen()) return;
  branches_.Leave();
  branches_.Enter(true);
}

void ShellFlow::Close() {
  if (!HasOpen()) return;
  branches_.Close();
  status_ = std::nullopt;
  succeeds_ = true;
}

void ShellFlow::BeginCondition() {
  Branch& branch = branches_.Innermost();
  branch.in_condition = true;
  branch.taken = branch.any_before ? Truth(!*branch.any_before) : std::nullopt;
  status_ = true;
  BeginList();
}

// What comes next does not depend on what came before.
void ShellFlow::BeginList() {
  joined_by_ = ' ';
  skips_ = false;
  certain_ = true;
}

void ShellFlow::OpenGroup() {
  const Truth taken = skips_ ? Truth(false) : certain_ ? Truth(true) : std::nullopt;
  branches_.Open({.kind = BranchKind::kGroup, .taken = taken});
  BeginList();
}

void ShellFlow::CloseGroup() {
  if (!branches_.IsIn(BranchKind::kGroup)) return;
  if (!branches_.Innermost().taken) {
    status_ = std::nullopt;
    succeeds_ = false;
  }
  branches_.CloseGroup();
}

void ShellFlow::OpenCase(std::string subject, bool has_branches) {
  branches_.Open({.kind = BranchKind::kCase, .at_pattern = has_branches, .subject = std::move(subject)});
  if (!has_branches) branches_.Innermost().taken = std::nullopt;
}

std::string ShellFlow::BeginPatterns() {
  Branch& branch = branches_.Innermost();
  branch.at_pattern = false;
  return branch.subject;
}

void ShellFlow::EnterCaseBranch(Truth matches) {
  branches_.Enter(matches);
  BeginList();
}

void ShellFlow::LeaveCaseBranch(bool goes_on) {
  branches_.Leave();
  Branch& branch = branches_.Innermost();
  if (goes_on && branch.taken != Truth(false)) branch.any_before = std::nullopt;
  branch.at_pattern = true;
}

}  // namespace windtunnel
