#include "runtime/calibration.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/median.h"
#include "cost_models/cost_keys.h"

namespace windtunnel {
namespace {

using Mode = ExecutionMode;

// How many operators a driver's queue has room for: kIssuedWithoutWaiting with several kernels each,
// kIssuedAhead with one each, as most have.
constexpr int32_t kIssuedWithoutWaiting = 400;
constexpr size_t kIssuedAhead = 900;
constexpr Duration kLongestLead = Milliseconds(20);

Duration Now() { return TimeOn(CLOCK_MONOTONIC); }

Duration SinceEpoch(Communicator::Clock::time_point time) { return DurationOf(time.time_since_epoch()); }

void SpinFor(Duration time) {
  for (const Duration until = Now() + time; Now() < until;) {
  }
}

class Calibrator {
 public:
  Calibrator(RankSession& session, Store& store, const CalibrationOptions& options)
      : session_(session), store_(store), options_(options), program_(session.executor().role().steady) {
    keys_.reserve(program_.ops.size());
    for (const Op& op : program_.ops) keys_.push_back(CostKey(op));
    FindTargets();
  }
  ~Calibrator() {
    if (device_operands_ != 0) session_.device().memory().Release(device_operands_, operand_bytes_);
  }

  Result<CalibrationSamples> Measure();

 private:
  // A collective, or a send with its receive, whose cost is needed: the first operator of this rank's
  // program that does it on `axis`, and how often a round repeats it. It works on the calibrator's
  // memory, since the program's own buffers may not be allocated when it runs. A rank that takes no part
  // only keeps the others company.
  struct Target {
    AxisId axis;
    OpIndex op;      // -1: this rank takes no part
    size_t samples;  // into samples_.collectives
    std::vector<TensorRef> reads = {}, writes = {};
    int64_t alone = 0, under_compute = 0;
  };

  void FindTargets();
  OpIndex FindOwn(AxisId axis, const TransferKey& key, const std::string& backend) const;
  std::string BackendOf(int rank, AxisId axis) const;
  Result<int64_t> Agree(int decider, const std::string& what, double seconds_each, double seconds,
                        int64_t least, int64_t most);
  Status KernelPass();
  Status HostPass();
  Result<Duration> DeviceTime(bool graphs);
  Status DevicePass();
  Status GraphPass();
  Status PassInEveryWay();
  Status KernelRound(int64_t passes);
  void Collect(const Timeline& timeline);
  void CollectCommonMode(const Timeline& timeline, const std::map<std::string, Duration>& medians);
  Status PlanRepetitions(double pass_seconds);
  Status CollectiveRound(const Target& target);
  Status AloneOnce(const Target& target);
  Status CoreTime(const Target& target, int64_t repetitions);
  Status OverlapOnce(const Target& target, const std::map<std::string, Duration>& medians);
  struct Overlap {
    Duration submitted, compute_end;  // since the pass began
    double compute_rate = 1;
  };
  Overlap MeasureOverlap(const Timeline& timeline, OpIndex backward,
                         const std::map<std::string, Duration>& medians) const;
  Status RunOnce(const Target& target);
  Result<uint64_t> Complete(const Target& target);
  bool host_computes() const { return queues_ == nullptr; }
  // Whether `what` is true of any role's operators. All ranks get the same answer, since ranks of all roles
  // do the same passes: they meet before each.
  template <typename What>
  bool SomeRankHas(What what) const {
    const std::vector<Role>& roles = session_.plan().roles;
    return std::any_of(roles.begin(), roles.end(), [&](const Role& role) {
      return std::any_of(role.steady.ops.begin(), role.steady.ops.end(), what);
    });
  }
  void SubtractEvents();
  Status ReserveOperands(size_t bytes);
  Status LayOutOperands();
  std::map<std::string, Duration> Medians() const;
  OpIndex FirstOfBackward() const;

  RankSession& session_;
  Store& store_;
  CalibrationOptions options_;
  const Program& program_;
  std::vector<std::string> keys_;
  std::vector<Target> targets_;
  DeviceQueues* queues_ = session_.device().queues();
  std::vector<char> operands_;    // of one collective at a time
  uint64_t device_operands_ = 0;  // instead of them, on a device with memory of its own
  Bytes operand_bytes_;
  // With a device: by DispatchKey, GraphLaunchKey and kGraphSavesKey.
  std::map<std::string, std::vector<Duration>> host_times_;
  Duration lead_;                    // in which the host issues as much as a driver's queue has room for
  std::vector<double> event_times_;  // seconds that timing an operator adds to it, by pass
  std::vector<Timeline> passes_;
  CalibrationSamples samples_;
};

// Finds the targets of all roles, in one order on all ranks.
void Calibrator::FindTargets() {
  const Plan& plan = session_.plan();
  std::set<std::tuple<std::string, int64_t, int, std::string>> seen;
  for (const Role& role : plan.roles) {
    for (const Op& op : role.steady.ops) {
      if (!IsCommunication(op.kind)) continue;
      const AxisId axis = role.streams[op.stream].axis;
      const TransferKey key = TransferKeyOf(op);
      for (int rank : role.ranks) {  // some may have a group within a node, others one over several
        CollectiveSamples samples;
        samples.op = key.op;
        samples.backend = BackendOf(rank, axis);
        samples.bytes = key.bytes.count();
        samples.ranks = plan.axes[axis].size();
        if (!seen.emplace(samples.op, samples.bytes, samples.ranks, samples.backend).second) continue;
        targets_.push_back(Target{axis, FindOwn(axis, key, samples.backend), samples_.collectives.size()});
        samples_.collectives.push_back(std::move(samples));
      }
    }
  }
}

// The name of the group's backend; empty for a group within a node.
std::string Calibrator::BackendOf(int rank, AxisId axis) const {
  const Plan& plan = session_.plan();
  const Group& group = plan.axes[axis].GroupOf(rank);
  return NodesOf(plan, group) > 1 ? CommunicatorName(plan, group) : "";
}

OpIndex Calibrator::FindOwn(AxisId axis, const TransferKey& key, const std::string& backend) const {
  const Role& role = session_.executor().role();
  for (OpIndex index = 0; index < static_cast<OpIndex>(program_.ops.size()); ++index) {
    const Op& op = program_.ops[index];
    if (!IsCommunication(op.kind) || role.streams[op.stream].axis != axis) continue;
    const TransferKey own = TransferKeyOf(op);
    if (own.op == key.op && own.bytes == key.bytes && BackendOf(session_.rank(), axis) == backend)
      return index;
  }
  return -1;
}

// The number of repetitions that fits `seconds`: one rank decides, all do the same.
Result<int64_t> Calibrator::Agree(int decider, const std::string& what, double seconds_each, double seconds,
                                  int64_t least, int64_t most) {
  const std::string key = "calibration/" + what;
  if (session_.rank() == decider) {
    const double wanted = seconds / std::max(seconds_each, 1e-7);
    const int64_t count = std::clamp(static_cast<int64_t>(std::min(wanted, 1e9)), least, most);
    WT_RETURN_IF_ERROR(store_.Set(key, std::to_string(count)));
  }
  WT_ASSIGN_OR_RETURN(std::string text, store_.Get(key, std::chrono::seconds(60)));
  return std::stoll(text);
}

// A device is kept busy, so that a span is the operator's time alone.
Status Calibrator::KernelPass() {
  WT_RETURN_IF_ERROR(session_.Barrier());
  Mode mode{.communication = Mode::Communication::kNone, .thread_time = options_.ranks_per_core > 1};
  mode.keep_busy = !host_computes();
  WT_ASSIGN_OR_RETURN(Timeline timeline, session_.Replay(program_, mode));
  passes_.push_back(std::move(timeline));
  return Ok();
}

// Measures the host's time to issue each operator.
Status Calibrator::HostPass() {
  WT_RETURN_IF_ERROR(session_.Barrier());
  Mode mode{.communication = Mode::Communication::kNone,
            .spans = false,
            .graphs = false,
            .pause_every = kIssuedWithoutWaiting};
  WT_RETURN_IF_ERROR(session_.Replay(program_, mode));
  Duration issuing;
  size_t issued = 0;
  for (const Executor::HostTime& time : session_.executor().host_times()) {
    samples_.dispatch.push_back(time.host);
    host_times_[DispatchKey(program_.ops[time.op].kind)].push_back(time.host);
    if (issued++ < kIssuedAhead) issuing += time.host;
  }
  lead_ = std::min(issuing * 5 / 4, kLongestLead);
  return Ok();
}

// The device's time for the program when it never waits for the host and nobody times its kernels.
Result<Duration> Calibrator::DeviceTime(bool graphs) {
  WT_RETURN_IF_ERROR(session_.Barrier());
  Mode mode{.communication = Mode::Communication::kNone, .spans = false, .graphs = graphs, .lead = lead_};
  WT_ASSIGN_OR_RETURN(const Timeline timeline, session_.Replay(program_, mode));
  return timeline.end;
}

// Measures how much longer the device takes when every operator is timed, as the sum of the last pass's spans
// less the time of a pass without spans, and how much less when kernels follow each other in graphs.
Status Calibrator::DevicePass() {
  const int64_t behind_others =
      std::count_if(program_.ops.begin(), program_.ops.end(), [](const Op& op) { return op.graph < 0; });
  // Where the host runs operators itself, the device waits for it now and then, and differences say
  // nothing of events and graphs.
  if (SomeRankHas([](const Op& op) { return op.on_host; })) {
    if (behind_others > 0) host_times_[kGraphSavesKey].push_back(Duration());
    return Ok();
  }
  Duration spans;
  int64_t kernels = 0;
  for (const Span& span : passes_.back().spans) {
    if (span.stream != kComputeStream) continue;
    spans += span.end - span.start;
    ++kernels;
  }
  WT_ASSIGN_OR_RETURN(const Duration one_by_one, DeviceTime(/*graphs=*/false));
  const double each = ToSeconds(spans - one_by_one) / static_cast<double>(std::max<int64_t>(kernels, 1));
  event_times_.push_back(std::clamp(each, 0.0, ToSeconds(kLongestEvent)));
  if (!SomeRankHas([](const Op& op) { return op.graph > 0; })) return Ok();
  WT_ASSIGN_OR_RETURN(const Duration in_graphs, DeviceTime(/*graphs=*/true));
  if (behind_others > 0)
    host_times_[kGraphSavesKey].push_back(std::max(one_by_one - in_graphs, Duration()) / behind_others);
  return Ok();
}

// Measures the host's time to launch graphs, once they have been captured.
Status Calibrator::GraphPass() {
  if (!SomeRankHas([](const Op& op) { return op.graph > 0; })) return Ok();
  WT_RETURN_IF_ERROR(session_.Barrier());
  Mode mode{.communication = Mode::Communication::kNone, .spans = false};
  WT_RETURN_IF_ERROR(session_.Replay(program_, mode));
  for (const Executor::GraphTime& graph : session_.executor().graph_times())
    host_times_[GraphLaunchKey(graph.operators)].push_back(graph.host);
  return Ok();
}

// Takes the events' time off the kernels' times, since nobody times the kernels of a step.
void Calibrator::SubtractEvents() {
  if (event_times_.empty()) return;
  const Duration event = Seconds(Median(event_times_));
  for (auto& [key, times] : samples_.kernels)
    for (Duration& time : times) time = std::max(time - event, time / 2);
}

// Runs the program once in each of the ways that are timed.
Status Calibrator::PassInEveryWay() {
  WT_RETURN_IF_ERROR(KernelPass());
  if (host_computes()) return Ok();
  WT_RETURN_IF_ERROR(HostPass());
  WT_RETURN_IF_ERROR(DevicePass());
  return GraphPass();
}

Status Calibrator::KernelRound(int64_t passes) {
  for (int64_t pass = 0; pass < passes; ++pass) WT_RETURN_IF_ERROR(PassInEveryWay());
  for (const Timeline& timeline : passes_) Collect(timeline);
  const auto medians = Medians();
  for (const Timeline& timeline : passes_) CollectCommonMode(timeline, medians);
  passes_.clear();
  return Ok();
}

void Calibrator::Collect(const Timeline& timeline) {
  Duration previous;
  for (const Span& span : timeline.spans) {
    samples_.kernels[keys_[span.op]].push_back(span.end - span.start);
    if (host_computes()) samples_.dispatch.push_back(span.start - previous);
    previous = span.end;
  }
}

// How slow this pass was as a whole: the median over its operators of time over the operator's usual time, so
// that the noise of single operators is not counted twice.
void Calibrator::CollectCommonMode(const Timeline& timeline, const std::map<std::string, Duration>& medians) {
  std::vector<double> ratios;
  for (const Span& span : timeline.spans) {
    const Duration usual = medians.at(keys_[span.op]);
    if (usual > Duration()) ratios.push_back((span.end - span.start) / usual);
  }
  if (!ratios.empty()) samples_.common_mode.push_back(Median(std::move(ratios)));
}

std::map<std::string, Duration> Calibrator::Medians() const {
  std::map<std::string, Duration> medians;
  for (const auto& [key, times] : samples_.kernels) medians[key] = Median(times);
  return medians;
}

OpIndex Calibrator::FirstOfBackward() const {
  for (OpIndex index = 0; index < static_cast<OpIndex>(program_.ops.size()); ++index) {
    const Op& op = program_.ops[index];
    if (op.phase == Phase::kBackward && !IsCommunication(op.kind)) return index;
  }
  return 0;
}

// Operands that share a buffer in the program share one here. Each buffer begins on a page of its own.
Status Calibrator::LayOutOperands() {
  constexpr int64_t kPage = 4096;
  const std::vector<Buffer>& buffers = session_.executor().role().buffers;
  int64_t most = 0;
  auto lay_out = [&](Target& target, char* memory) {
    const Op& op = program_.ops[target.op];
    std::map<BufferId, char*> place;
    int64_t used = 0;
    for (const auto* slices : {&op.writes, &op.reads}) {
      auto& refs = slices == &op.writes ? target.writes : target.reads;
      refs.clear();
      for (const Slice& slice : *slices) {
        const Buffer& buffer = buffers[slice.buffer];
        auto [at, is_new] = place.emplace(slice.buffer, memory + used);
        if (is_new) used += buffer.bytes.RoundedUpTo(Bytes(kPage)).count();
        const Plan& plan = session_.plan();
        const auto [first, elements] = Locate(slice, plan.axes[slice.axis].position_of_rank[session_.rank()]);
        refs.push_back({at->second + first * SizeOf(buffer.dtype).count(), elements});
      }
    }
    most = std::max(most, used);
  };
  for (Target& target : targets_) {
    if (target.op >= 0) lay_out(target, nullptr);
  }
  if (most == 0) return Ok();
  WT_RETURN_IF_ERROR(ReserveOperands(static_cast<size_t>(most + kPage)));
  const uintptr_t begin = host_computes() ? reinterpret_cast<uintptr_t>(operands_.data()) : device_operands_;
  char* aligned = reinterpret_cast<char*>(begin + kPage - begin % kPage);
  for (Target& target : targets_) {
    if (target.op >= 0) lay_out(target, aligned);
  }
  return Ok();
}

Status Calibrator::ReserveOperands(size_t bytes) {
  operand_bytes_ = Bytes(static_cast<int64_t>(bytes));
  if (host_computes()) {
    operands_.assign(bytes, 0);
    return Ok();
  }
  WT_ASSIGN_OR_RETURN(device_operands_, session_.device().memory().Reserve(operand_bytes_));
  return queues_->Fill(DeviceQueues::kCompute, reinterpret_cast<void*>(device_operands_), 0, operand_bytes_);
}

Result<uint64_t> Calibrator::Complete(const Target& target) {
  const Op& op = program_.ops[target.op];
  Communicator& communicator = *session_.communicator(session_.executor().role().streams[op.stream].axis);
  const uint64_t ticket = communicator.Submit(op.kind, target.reads, target.writes, op.name);
  WT_RETURN_IF_ERROR(communicator.Wait(ticket));
  return ticket;
}

Status Calibrator::RunOnce(const Target& target) {
  if (target.op < 0) return Ok();
  WT_ASSIGN_OR_RETURN([[maybe_unused]] const uint64_t ticket, Complete(target));
  return Ok();
}

// As in a step, the ranks arrive nearly together, after computing.
Status Calibrator::AloneOnce(const Target& target) {
  WT_RETURN_IF_ERROR(session_.Barrier());
  SpinFor(Microseconds(40));
  if (target.op < 0) return Ok();
  CollectiveSamples& samples = samples_.collectives[target.samples];
  const Duration arrived = Now();
  WT_ASSIGN_OR_RETURN(const uint64_t ticket, Complete(target));
  if (host_computes()) {
    samples.arrived.push_back(arrived);
    samples.done.push_back(Now());
    return Ok();
  }
  // By the device's own time: the time that the host waits is not the operator's.
  const Op& op = program_.ops[target.op];
  const auto times =
      session_.communicator(session_.executor().role().streams[op.stream].axis)->TimesOf(ticket);
  samples.arrived.push_back(SinceEpoch(times.start));
  samples.done.push_back(SinceEpoch(times.end));
  return Ok();
}

Status Calibrator::CoreTime(const Target& target, int64_t repetitions) {
  if (!host_computes()) return Ok();  // a device communicates by itself
  WT_RETURN_IF_ERROR(session_.Barrier());
  if (target.op < 0) return Ok();
  const Duration before = TimeOn(CLOCK_PROCESS_CPUTIME_ID);
  for (int64_t i = 0; i < repetitions; ++i) WT_RETURN_IF_ERROR(RunOnce(target));
  const Duration used = TimeOn(CLOCK_PROCESS_CPUTIME_ID) - before;
  // Ranks that share the process run the same operator, so each has an even share.
  const int64_t sharing = SharesProcess(session_.plan()) ? session_.plan().world_size : 1;
  samples_.collectives[target.samples].core_time.push_back(used / (sharing * repetitions));
  return Ok();
}

// A pass of the kernels with this one collective in flight from the beginning of backward on.
Status Calibrator::OverlapOnce(const Target& target, const std::map<std::string, Duration>& medians) {
  if (target.op < 0) {
    WT_RETURN_IF_ERROR(KernelPass());
    passes_.pop_back();
    return Ok();
  }
  WT_RETURN_IF_ERROR(session_.Barrier());
  const OpIndex backward = FirstOfBackward();
  Mode mode{.communication = Mode::Communication::kOne,
            .only = target.op,
            .submit_before = backward,
            .reads = target.reads,
            .writes = target.writes};
  mode.keep_busy = !host_computes();
  WT_ASSIGN_OR_RETURN(Timeline timeline, session_.Replay(program_, mode));
  const Duration start = SinceEpoch(session_.executor().started());
  const Overlap overlap = MeasureOverlap(timeline, backward, medians);
  CollectiveSamples& samples = samples_.collectives[target.samples];
  samples.overlap_arrived.push_back(start + overlap.submitted);
  samples.overlap_done.push_back(start + timeline.spans.back().end);
  samples.overlap_compute_end.push_back(start + overlap.compute_end);
  samples.compute_rate.push_back(overlap.compute_rate);
  return Ok();
}

// The computing thread's speed while the collective was in flight: the usual time of what it got done, over
// the time that it had. An operator that outlasts the collective continues at full speed (in its turns on a
// shared core), so the part done before is its usual time less the rest. Gaps between operators count as
// time, since the communication threads often run just there.
Calibrator::Overlap Calibrator::MeasureOverlap(const Timeline& timeline, OpIndex backward,
                                               const std::map<std::string, Duration>& medians) const {
  const Duration landed = timeline.spans.back().end;
  Overlap overlap;
  Duration done;
  bool in_flight = false;
  for (const Span& span : timeline.spans) {
    if (span.stream != kComputeStream) continue;
    if (span.op >= backward && !in_flight)
      overlap.submitted = overlap.compute_end;  // the previous operator's end
    in_flight |= span.op >= backward;
    overlap.compute_end = span.end;
    if (!in_flight || span.start >= landed) continue;
    const Duration after = std::max(span.end - landed, Duration()) / options_.ranks_per_core;
    done += std::max(medians.at(keys_[span.op]) - after, Duration());
  }
  const Duration computing = std::min(landed, overlap.compute_end) - overlap.submitted;
  if (computing > Duration()) overlap.compute_rate = done / computing;
  return overlap;
}

// Half of a collective's share of the time goes to repetitions alone, half to passes under computation.
Status Calibrator::PlanRepetitions(double pass_seconds) {
  const double each = options_.seconds / options_.rounds / static_cast<double>(targets_.size()) / 2;
  for (Target& target : targets_) {
    const CollectiveSamples& samples = samples_.collectives[target.samples];
    // Groups of one size within nodes and across nodes are two targets, with deciders of their own.
    const std::string key =
        fmt::format("{} {} {} {}", samples.op, samples.bytes, samples.ranks, samples.backend);
    const int decider = session_.plan().axes[target.axis].groups.front().ranks.front();
    for (int i = 0; i < 2; ++i) WT_RETURN_IF_ERROR(RunOnce(target));
    const Duration start = Now();
    for (int i = 0; i < 3; ++i) WT_RETURN_IF_ERROR(RunOnce(target));
    WT_ASSIGN_OR_RETURN(target.alone,
                        Agree(decider, key + " alone", ToSeconds(Now() - start) / 3, each, 5, 250));
    if (!options_.under_compute) continue;
    WT_ASSIGN_OR_RETURN(target.under_compute,
                        Agree(decider, key + " under compute", pass_seconds, each, 1, 12));
  }
  return Ok();
}

Status Calibrator::CollectiveRound(const Target& target) {
  for (int64_t i = 0; i < target.alone; ++i) WT_RETURN_IF_ERROR(AloneOnce(target));
  WT_RETURN_IF_ERROR(CoreTime(target, std::max<int64_t>(target.alone / 2, 4)));
  if (samples_.collectives[target.samples].op == Name(CollectiveKind::kBarrier))
    return Ok();  // nothing computes meanwhile
  const auto medians = Medians();
  for (int64_t i = 0; i < target.under_compute; ++i) WT_RETURN_IF_ERROR(OverlapOnce(target, medians));
  return Ok();
}

Result<CalibrationSamples> Calibrator::Measure() {
  WT_RETURN_IF_ERROR(LayOutOperands());
  // The first pass warms caches; the second says how long one takes.
  WT_RETURN_IF_ERROR(KernelPass());
  const Duration before = Now();
  WT_RETURN_IF_ERROR(KernelPass());
  const double pass_seconds = ToSeconds(Now() - before), rounds = options_.rounds;
  WT_RETURN_IF_ERROR(PassInEveryWay());
  const Duration before_all = Now();
  WT_RETURN_IF_ERROR(PassInEveryWay());
  const double seconds_in_every_way = ToSeconds(Now() - before_all);
  WT_ASSIGN_OR_RETURN(const int64_t passes,
                      Agree(0, "passes", seconds_in_every_way, options_.seconds / rounds, 3, 400));
  passes_.clear();
  event_times_.clear();
  host_times_.clear();
  samples_.dispatch.clear();
  WT_RETURN_IF_ERROR(PlanRepetitions(pass_seconds));
  // Everything has run by now, and there are no samples yet that would count as memory of libraries.
  WT_ASSIGN_OR_RETURN(const RankSession::Resident resident, session_.MeasureResident(operand_bytes_));
  samples_.outside_allocator = resident.outside_allocator;
  for (int round = 0; round < options_.rounds; ++round) {
    WT_RETURN_IF_ERROR(KernelRound(passes));
    for (const Target& target : targets_) WT_RETURN_IF_ERROR(CollectiveRound(target));
    if (session_.rank() == 0) {
      WT_RETURN_IF_ERROR(store_.Set("calibration/progress", fmt::format("{}", (round + 1) / rounds)));
    }
  }
  SubtractEvents();
  samples_.kernels.merge(host_times_);
  return std::move(samples_);
}

}  // namespace

Result<CalibrationSamples> MeasureCosts(RankSession& session, Store& store,
                                        const CalibrationOptions& options) {
  return Calibrator(session, store, options).Measure();
}

}  // namespace windtunnel
