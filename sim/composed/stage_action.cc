#include "sim/composed/stage_action.h"

#include <algorithm>
#include <utility>

#include "sim/composed/rank_walk.h"

namespace windtunnel::composed {
namespace {

// A part's number of operators of the model, and the host time of all its operators.
int64_t ModelOps(const Part& part) {
  return std::count_if(part.ops.begin(), part.ops.end(), [](const TimedOp& op) { return !op.is_strategy; });
}
int64_t HostOf(const Part& part) {
  int64_t host = 0;
  for (const TimedOp& op : part.ops) host += op.host;
  return host;
}

bool HoldsHost(const Part& part) {
  return std::any_of(part.ops.begin(), part.ops.end(), [](const TimedOp& op) { return op.holds_host; });
}

// Finds how long an action takes. Only a few of its middle layers are walked: once two in a row take equal
// times and leave communication in the same state, all following ones take that time.
class Rehearsal {
 public:
  explicit Rehearsal(StageAction& action) : action_(action), shortened_(action) {}

  void Run(int64_t made_by) {
    int64_t behind = 0;  // operators of the model after the layers that are left out
    for (size_t i = action_.runs.size(); i-- > 0;) {
      const PartRun& run = action_.runs[i];
      if (run.count > kWalked) {
        if (made_by >= behind || !LeaveOut(i)) return;
        break;
      }
      behind += ModelOps(*run.part) * run.count;
    }
    const RankWalk::Rehearsed all = RankWalk::Rehearse(shortened_);
    action_.duration = all.duration() + shift_;
    action_.made = all.made + shift_;
    // Each layer that is left out changes the host's lead by the same time, for itself and for what follows.
    action_.slack = all.slack + std::min<int64_t>(shift_ - host_, 0);
    action_.is_regular = all.is_done() && !action_.holds_host;
  }

 private:
  static constexpr int64_t kWalked = 3;

  // Leaves out all but kWalked of a run. False if they are not alike.
  bool LeaveOut(size_t run) {
    const int64_t left_out = action_.runs[run].count - kWalked;
    RankWalk::Rehearsed after[kWalked + 1];
    for (int64_t count = 1; count <= kWalked; ++count) {
      StageAction prefix = action_;
      prefix.made_at = -1;
      prefix.runs[run].count = count;
      for (size_t i = run + 1; i < prefix.runs.size(); ++i) prefix.runs[i].count = 0;
      after[count] = RankWalk::Rehearse(prefix);
    }
    const auto leads = [&](int64_t count) { return after[count].Leads(); };
    const int64_t period = after[3].duration() - after[2].duration();
    if (period != after[2].duration() - after[1].duration() || leads(3) != leads(2) || leads(2) != leads(1))
      return false;
    shortened_.runs[run].count = kWalked;
    const Part& part = *action_.runs[run].part;
    if (shortened_.made_at >= 0) shortened_.made_at -= static_cast<int32_t>(ModelOps(part) * left_out);
    shift_ = period * left_out;
    host_ = HostOf(part) * left_out;
    return true;
  }

  StageAction& action_;
  StageAction shortened_;
  int64_t shift_ = 0, host_ = 0;  // of what was left out
};

StageAction MakeAction(PartRuns runs, std::span<const LayerUnit> units, int32_t made_by, bool from_idle) {
  StageAction action;
  int64_t ops = 0;
  for (const PartRun& run : runs) {
    ops += ModelOps(*run.part) * run.count;
    action.host += HostOf(*run.part) * run.count;
    action.holds_host |= run.count > 0 && HoldsHost(*run.part);
  }
  action.made_at = made_by < 0 ? -1 : static_cast<int32_t>(ops) - 1 - made_by;
  action.memory = MemoryOf(runs, units);
  action.runs = std::move(runs);
  Rehearsal(action).Run(made_by);
  if (from_idle) {
    const RankWalk::Rehearsed all = RankWalk::Rehearse(action, /*ignores_host=*/false);
    action.duration_from_idle = all.duration();
    action.made_from_idle = all.made;
    action.host_from_idle = all.host;
    action.is_regular_from_idle = all.is_done();
  }
  return action;
}

}  // namespace

StageAction MakeForward(const StageTemplate& stage, std::span<const LayerUnit> units, bool from_idle) {
  const StagePass& pass = stage.forward;
  PartRuns runs = {{&pass.before, 1}};
  for (size_t i = 0; i < units.size(); ++i) runs.push_back({&pass.units[i], units[i].count});
  runs.push_back({&pass.after, 1});
  return MakeAction(std::move(runs), units, stage.is_last ? -1 : pass.made_by, from_idle);
}

StageAction MakeBackward(const StagePass& pass, std::span<const LayerUnit> units, bool from_idle) {
  PartRuns runs = {{&pass.before, 1}};
  for (size_t i = units.size(); i-- > 0;) runs.push_back({&pass.units[i], units[i].count});
  runs.push_back({&pass.after, 1});
  return MakeAction(std::move(runs), units, pass.made_by, from_idle);
}

}  // namespace windtunnel::composed
