#include "sim/lateness.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/normal.h"
#include "sim/draws.h"

namespace windtunnel {
namespace {

double Variance(const Distribution& distribution) {
  // Between the stored levels the quantile function is linear: a uniform distribution from a to b has
  // E[x^2] = (a^2 + ab + b^2) / 3.
  const auto& levels = Distribution::kLevels;
  const double mean = static_cast<double>(distribution.Mean().picoseconds());
  double variance = 0;
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    const double a = static_cast<double>(distribution.values()[i].picoseconds()) - mean;
    const double b = static_cast<double>(distribution.values()[i + 1].picoseconds()) - mean;
    variance += (levels[i + 1] - levels[i]) * (a * a + a * b + b * b) / 3;
  }
  return variance;
}

const LargestOf& LargestOfNormals(int64_t n) {
  static thread_local std::map<int64_t, LargestOf> known;
  const auto [entry, is_new] = known.try_emplace(n);
  if (is_new) entry->second = LargestNormal(n);
  return entry->second;
}

}  // namespace

// Reads one rank's program.
class Lateness::Reader {
 public:
  Reader(const StepSchedule& schedule, const StepCosts& costs, int32_t rank)
      : schedule_(schedule),
        costs_(costs),
        rank_(rank),
        program_(schedule.plan->roles[schedule.ranks[rank].role].steady) {}

  RankEvents Read() {
    FindTransfers();
    for (OpIndex i = 0; i < static_cast<OpIndex>(program_.ops.size()); ++i) {
      const Op& op = program_.ops[i];
      if (op.stream == kComputeStream) AddWaits(op);
      if (transfer_of_op_[i] < 0) continue;
      if (op.stream == kComputeStream) AddKernel(transfer_of_op_[i]);
      else if (IsCommunication(op.kind)) AddCommunication(i, op);
    }
    return std::move(result_);
  }

 private:
  void FindTransfers() {
    transfer_of_op_.assign(program_.ops.size(), -1);
    const RoleSchedule& role = schedule_.RoleOf(rank_);
    for (size_t q = 0; q < role.queues.size(); ++q) {
      const RankQueue& queue = schedule_.queues[schedule_.ranks[rank_].first_queue + q];
      for (int32_t position = 0; position < queue.size; ++position)
        transfer_of_op_[role.queues[q].ops[position]] =
            schedule_.transfer_of_position[queue.first_transfer + position];
    }
  }

  void AddKernel(int32_t transfer) {
    const Spread spread = SpreadOf(costs_.kernels, costs_.cost_of_transfer[transfer], spread_of_kernel_);
    result_.events.push_back({.kind = Event::Kind::kKernel,
                              .transfer = transfer,
                              .mean = spread.mean,
                              .variance = spread.variance});
    has_computed_ = true;
    clock_ += spread.mean;
  }

  struct Spread {
    double mean = 0, variance = 0;
  };
  template <typename Cost>
  Spread SpreadOf(const std::vector<Cost>& costs, int32_t cost,
                  std::unordered_map<int32_t, Spread>& known) const {
    const auto [entry, is_new] = known.try_emplace(cost);
    if (is_new) {
      const double jitter = schedule_.plan->scenario.cluster.jitter;
      const double mean = static_cast<double>(costs[cost].time.Mean().picoseconds());
      entry->second = {mean, Variance(costs[cost].time) + jitter * jitter * mean * mean};
    }
    return entry->second;
  }

  // Communication that depends on no computation begins when its stream is free. All other communication is
  // where ranks meet.
  void AddCommunication(OpIndex index, const Op& op) {
    const Spread spread = SpreadOf(costs_.communications, costs_.cost_of_transfer[transfer_of_op_[index]],
                                   spread_of_communication_);
    const bool follows = std::any_of(op.dependencies.begin(), op.dependencies.end(), [&](OpIndex before) {
      return program_.ops[before].stream == kComputeStream;
    });
    double& end = end_of_stream_[op.stream];
    end = std::max(end, follows ? clock_ : 0) + spread.mean;
    end_of_op_[index] = end;
    if (follows) AddMeeting(index, op, spread);
  }

  void AddMeeting(OpIndex index, const Op& op, const Spread& spread) {
    const int32_t others = OthersOf(op);
    if (others == 0) return;
    result_.events.push_back({.kind = Event::Kind::kMeet,
                              .transfer = transfer_of_op_[index],
                              .axis = SlotOf(op),
                              .others = others,
                              .meeting = result_.meetings,
                              .counter = CounterOf(rank_, index, ::windtunnel::Draw::kLateness),
                              .mean = spread.mean,
                              .variance = spread.variance});
    meeting_of_op_[index] = result_.events.size() - 1;
    ++result_.meetings;
    has_computed_ = false;
  }

  void AddWaits(const Op& op) {
    for (OpIndex dependency : op.dependencies) {
      const auto end = end_of_op_.find(dependency);
      if (end == end_of_op_.end()) continue;
      const double spare = clock_ - end->second;
      clock_ = std::max(clock_, end->second);
      end_of_op_.erase(end);
      const auto meeting = meeting_of_op_.find(dependency);
      if (meeting == meeting_of_op_.end()) continue;
      Event& met = result_.events[meeting->second];
      met.is_awaited_at_once = !has_computed_ && meeting->second + 1 == result_.events.size();
      if (!met.is_awaited_at_once) {
        met.spare = spare;
        result_.events.push_back({.kind = Event::Kind::kWait,
                                  .axis = met.axis,
                                  .others = met.others,
                                  .meeting = met.meeting,
                                  .spare = spare});
      }
      meeting_of_op_.erase(meeting);
    }
  }

  AxisId AxisOf(const Op& op) const {
    return schedule_.plan->roles[schedule_.ranks[rank_].role].streams[op.stream].axis;
  }

  int32_t SlotOf(const Op& op) {
    const auto [entry, is_new] = slots_.try_emplace(AxisOf(op), result_.axes);
    result_.axes += is_new;
    return entry->second;
  }

  int32_t OthersOf(const Op& op) {
    const AxisId id = AxisOf(op);
    const auto [entry, is_new] = others_on_.try_emplace(id, 0);
    if (is_new) {
      const std::vector<int>& ranks = schedule_.plan->axes[id].GroupOf(schedule_.ranks[rank_].rank).ranks;
      const auto& classes = schedule_.folding.class_of_rank;
      entry->second = static_cast<int32_t>(std::count_if(ranks.begin(), ranks.end(),
                                                         [&](int r) { return classes[r] == rank_; })) -
                      1;
    }
    return entry->second;
  }

  const StepSchedule& schedule_;
  const StepCosts& costs_;
  const int32_t rank_;
  const Program& program_;
  RankEvents result_;
  std::vector<int32_t> transfer_of_op_;
  std::unordered_map<int32_t, Spread> spread_of_kernel_, spread_of_communication_;  // by cost
  std::unordered_map<OpIndex, size_t> meeting_of_op_;  // index of its event, until it is waited for
  std::map<AxisId, int32_t> others_on_, slots_;
  bool has_computed_ = true;
  // By mean times, as if no rank were late: the compute stream's clock, and when communication ends.
  double clock_ = 0;
  std::map<StreamId, double> end_of_stream_;
  std::unordered_map<OpIndex, double> end_of_op_;  // until it is waited for
};

// One replicate of one rank.
class Lateness::Drawing {
 public:
  Drawing(const RandomStream& stream, double scale, const RankEvents& events, StepWork& work)
      : stream_(stream),
        scale_(scale),
        events_(events),
        work_(work),
        axes_(events.axes),
        met_(events.meetings) {}

  void Run() {
    for (const Event& event : events_.events) {
      switch (event.kind) {
        case Event::Kind::kKernel:
          Compute(event);
          break;
        case Event::Kind::kMeet:
          Meet(event);
          break;
        case Event::Kind::kWait:
          Wait(event);
          break;
      }
    }
  }

 private:
  // How late ranks are, relative to the mean time of the kernels: `own` of the simulated rank, `mean` and
  // `variance` of any other.
  struct Progress {
    double own = 0, mean = 0, variance = 0;
  };
  // Progress since the step began: at present, and when the group last met.
  struct AxisState {
    Progress now, met;
    int32_t meeting = -1;
  };

  void Wait(const Event& event) {
    AxisState& axis = axes_[event.axis];
    if (!IsOverInTime(event, met_[event.meeting], axis.met)) MeetAgain(axis, event.meeting);
  }

  // Whether no rank waits for the collective although it begins with the latest rank. `then` is the progress
  // at the collective, `met` that when the group last met before.
  bool IsOverInTime(const Event& event, const Progress& then, const Progress& met) const {
    const double deviation = std::sqrt(std::max(0.0, then.variance - met.variance));
    const double latest = then.mean - met.mean + deviation * LargestOfNormals(event.others + 1).mean;
    return event.spare * scale_ >= latest;
  }

  // All ranks have reached that meeting. Does nothing if a later one has been waited for already.
  void MeetAgain(AxisState& axis, int32_t meeting) {
    if (meeting < axis.meeting) return;
    axis.met = met_[meeting];
    axis.meeting = meeting;
  }

  void Compute(const Event& event) {
    const double late =
        static_cast<double>(work_.transfers[event.transfer].picoseconds()) - event.mean * scale_;
    const double variance = event.variance * scale_ * scale_;
    for (AxisState& axis : axes_) {
      axis.now.own += late;
      axis.now.variance += variance;
    }
  }

  void Meet(const Event& event) {
    AxisState& here = axes_[event.axis];
    const double variance = std::max(0.0, here.now.variance - here.met.variance);
    const double deviation = std::sqrt(variance);
    const double u = (static_cast<double>(stream_.At(event.counter) >> 12) + 0.5) * 0x1.0p-52;
    const double latest =
        here.now.mean - here.met.mean + deviation * NormalQuantile(NthRoot(u, event.others));
    const double late = std::max(0.0, latest - (here.now.own - here.met.own));
    met_[event.meeting] = here.now;
    if (!IsOverInTime(event, here.now, here.met)) {
      Duration& lateness = work_.lateness[event.transfer];
      lateness = std::max(lateness, Picoseconds(1).Scaled(late));
    }
    if (!event.is_awaited_at_once) return;
    const LargestOf& largest = LargestOfNormals(event.others + 1);
    const double own = static_cast<double>(work_.transfers[event.transfer].picoseconds()) - event.mean;
    for (AxisState& axis : axes_) {
      axis.now.own += late + own;
      axis.now.mean += largest.mean * deviation;
      axis.now.variance += event.variance - (1 - largest.variance) * variance;
    }
    met_[event.meeting] = here.now;
    MeetAgain(here, event.meeting);
  }

  const RandomStream& stream_;
  const double scale_;
  const RankEvents& events_;
  StepWork& work_;
  std::vector<AxisState> axes_;
  std::vector<Progress> met_;  // by meeting
};

Lateness::Lateness(const StepSchedule& schedule, const StepCosts& costs) : schedule_(schedule) {
  for (int32_t rank = 0; rank < static_cast<int32_t>(schedule.ranks.size()); ++rank)
    ranks_.push_back(Reader(schedule, costs, rank).Read());
}

void Lateness::Draw(const RandomStream& stream, double common_mode, StepWork& work) const {
  work.lateness.assign(schedule_.transfers.size(), Duration());
  const auto& straggler = schedule_.plan->scenario.cluster.straggler;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool is_slow = straggler && straggler->rank == schedule_.ranks[rank].rank;
    const double scale = common_mode * (is_slow ? straggler->slowdown : 1);
    Drawing(stream, scale, ranks_[rank], work).Run();
  }
}

}  // namespace windtunnel
