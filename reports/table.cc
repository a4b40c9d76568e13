#include "reports/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/format.h"
#include "cost_models/disturbed_costs.h"
#include "reports/by_role.h"
#include "reports/pipeline_actions.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

// Rows of a label, predicted, measured and a last column. Omits the column of a side that the outcome lacks.
class Table {
 public:
  Table(const Outcome& outcome, Ink ink)
      : ink_(ink), predicted_(outcome.prediction), measured_(outcome.measurement) {}

  bool both() const { return predicted_ && measured_; }
  const Ink& ink() const { return ink_; }

  void Heading(const std::string& title, const std::string& last) {
    text_ += "\n";
    text_ += ink_.Bold(Columns(title, "predicted", "measured", both() ? last : "")) + "\n";
  }
  void Row(const std::string& label, const std::string& predicted, const std::string& measured,
           const std::string& last = "") {
    std::string line = Columns(label, predicted, measured, both() ? last : "");
    line.erase(line.find_last_not_of(' ') + 1);
    text_ += line + "\n";
  }
  void Note(const std::string& note) { text_ += ink_.Dim("  " + note) + "\n"; }
  void Line(const std::string& line) { text_ += line + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string Columns(const std::string& label, const std::string& predicted, const std::string& measured,
                      const std::string& last) const {
    std::string line = fmt::format("{:<26}", label);
    if (predicted_) line += fmt::format("{:>20}", predicted);
    if (measured_) line += fmt::format("{:>20}", measured);
    if (!last.empty()) line += "  " + last;
    return line;
  }

  Ink ink_;
  bool predicted_, measured_;
  std::string text_;
};

std::string Difference(Bytes difference) {
  if (difference == Bytes(0)) return "exact";
  return fmt::format("{}{}", difference > Bytes(0) ? "+" : "-",
                     FormatBytes(Bytes(std::llabs(difference.count()))));
}

// Empty if all steps take the same time, as they do with modelled costs.
std::string Spread(const StepTimes& times) {
  if (times.p10 == times.p90) return "";
  return fmt::format("{} – {}", FormatDuration(times.p10), FormatDuration(times.p90));
}

// The error of a positive quantity in the last column, right-aligned.
std::string RelativeError(double predicted, double measured) {
  return fmt::format("{:>10}", measured > 0 ? FormatSignedPercent(predicted / measured - 1) : "");
}

// The difference of two shares of a step: predicted minus measured.
std::string ShareDifference(double predicted, double measured) {
  return fmt::format("{:>10}", fmt::format("{:+.1f} pp", 100 * (predicted - measured)));
}

// The columns of a text without wide characters: the number of its code points.
size_t ColumnsOf(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });
}

// Adds lines with as many parts as fit in each.
void AddParts(Table& table, const std::vector<std::string>& parts) {
  constexpr size_t kColumns = 100;
  std::string line;
  for (const std::string& part : parts) {
    if (!line.empty() && 2 + ColumnsOf(line) + 3 + ColumnsOf(part) > kColumns) {
      table.Line("  " + line);
      line.clear();
    }
    line += (line.empty() ? "" : " · ") + part;
  }
  table.Line("  " + line);
}

void AddHeader(Table& table, const Outcome& outcome) {
  const Ink& ink = table.ink();
  const Scenario& scenario = outcome.plan.scenario;
  table.Line(ink.Bold(ink.Cyan(scenario.name)) +
             (scenario.description.empty() ? "" : "  " + scenario.description));
  table.Line("  " + ModelInWords(outcome.plan));
  std::vector<std::string> parts = {ParallelismInWords(scenario), BatchInWords(outcome.plan)};
  if (outcome.plan.pipeline) parts.insert(parts.begin() + 1, PipelineInWords(outcome.plan));
  AddParts(table, parts);
  std::string device = "  " + CostsInWords(outcome);
  if (outcome.measurement)
    device += fmt::format(" · {} measured steps", outcome.measurement->step_times.size());
  table.Line(device);
  if (const std::string cluster = ClusterInWords(outcome); !cluster.empty()) table.Line("  " + cluster);
}

void AddStepTime(Table& table, const Outcome& outcome) {
  StepTimes predicted = outcome.prediction ? StepTimesOf(*outcome.prediction) : StepTimes();
  StepTimes measured = outcome.measurement ? StepTimesOf(*outcome.measurement) : StepTimes();
  Throughput predicted_rate = ThroughputOf(outcome.plan, predicted.p50);
  Throughput measured_rate = ThroughputOf(outcome.plan, measured.p50);
  table.Heading("a step", "     error");
  table.Row("  time (median)", FormatTime(predicted.p50), FormatTime(measured.p50),
            RelativeError(ToSeconds(predicted.p50), ToSeconds(measured.p50)));
  if (!(Spread(predicted) + Spread(measured)).empty())
    table.Row("    p10 – p90", Spread(predicted), Spread(measured));
  table.Row("  " + TokenWord(outcome.plan.scenario) + "/s", FormatCount(predicted_rate.tokens_per_s),
            FormatCount(measured_rate.tokens_per_s),
            RelativeError(predicted_rate.tokens_per_s, measured_rate.tokens_per_s));
  table.Row("  FLOP/s of a device", FormatFlopRate(predicted_rate.flops_per_device),
            FormatFlopRate(measured_rate.flops_per_device));
  auto mfu = [&](Duration step) {
    auto share = MfuOf(outcome.plan, outcome.profile, step);
    return share ? FormatPercent(*share) : std::string();
  };
  if (DensePeak(outcome.plan, outcome.profile) == FlopRate()) return;
  table.Row("  MFU", mfu(predicted.p50), mfu(measured.p50));
  constexpr double kWorthSaying = 0.98;
  if (const double unmasked = UnmaskedShare(outcome.plan); unmasked < kWorthSaying) {
    const auto halved = [&](Duration step) {
      const auto share = MfuOf(outcome.plan, outcome.profile, step);
      return share ? FormatPercent(unmasked * *share) : std::string();
    };
    table.Row("    half of attention", halved(predicted.p50), halved(measured.p50));
  }
  const double share = MfuOf(outcome.plan, outcome.profile, predicted.p50).value_or(0);
  if (share * LeastExecutedShare(outcome.plan) > 1)
    table.Line("    more than the device can do: its costs, or a profile's factors, are wrong");
  else if (share > 1)
    table.Line(
        "    by PaLM's convention, which counts embeddings, though they multiply nothing, and all of "
        "attention");
}

// "12.1 seconds", "31.4 hours", "52.3 days", "2.31 years"
std::string FormatLongTime(double seconds) {
  const double hours = seconds / 3600, days = hours / 24;
  if (seconds < 60) return fmt::format("{:.3g} seconds", seconds);
  if (hours < 1) return fmt::format("{:.3g} minutes", 60 * hours);
  if (days < 2) return fmt::format("{:.3g} hours", hours);
  return days < 730 ? fmt::format("{:.3g} days", days) : fmt::format("{:.3g} years", days / 365.25);
}

void AddTraining(Table& table, const Outcome& outcome) {
  const std::optional<TrainingRun> run = TrainingRunOf(outcome);
  if (!run) return;
  table.Heading(fmt::format("training, {} {}", FormatCount(run->tokens), TokenWord(outcome.plan.scenario)), "");
  table.Row("  steps", FormatCount(run->steps), "");
  table.Row("  time", FormatLongTime(run->seconds), "");
  const bool is_less = run->device_hours < 0.01;
  table.Row("  device hours", is_less ? "less than 0.01" : FormatCount(run->device_hours), "");
  table.Note("without checkpoints, evaluation and failures");
}

// The bubble of a pipeline rank, or the mean over neighbouring ranks, on both sides; zero where there is
// none.
struct BubbleRow {
  size_t first = 0, last = 0;  // roles
  StepBreakdown predicted, measured;

  bool IsWithin(double tolerance, const BubbleRow& other) const {
    return std::fabs(predicted.bubble_fraction() - other.predicted.bubble_fraction()) <= tolerance &&
           std::fabs(measured.bubble_fraction() - other.measured.bubble_fraction()) <= tolerance;
  }
};

constexpr size_t kBubbleRows = 8;

// Neighbours whose bubbles are within `tolerance` (a share of the step) of the first of them share a row.
std::vector<BubbleRow> Folded(const std::vector<BubbleRow>& rows, double tolerance) {
  std::vector<BubbleRow> folded;
  for (size_t first = 0, end; first < rows.size(); first = end) {
    BreakdownMean predicted, measured;
    for (end = first; end < rows.size() && rows[end].IsWithin(tolerance, rows[first]); ++end) {
      predicted.Add(rows[end].predicted);
      measured.Add(rows[end].measured);
    }
    folded.push_back({first, end - 1, predicted.Mean(), measured.Mean()});
  }
  return folded;
}

// The bubbles of all roles, in at most kBubbleRows rows. Roles that are not known on a side have zeros there.
std::vector<BubbleRow> BubbleRows(const Outcome& outcome) {
  const Plan& plan = outcome.plan;
  std::vector<BubbleRow> rows(plan.roles.size());
  for (size_t role = 0; role < rows.size(); ++role) rows[role].first = rows[role].last = role;
  auto fill = [&](const std::vector<RankBreakdown>& by_rank, StepBreakdown BubbleRow::*side) {
    for (const RoleTime& time : TimeByRole(plan, by_rank))
      rows[plan.role_of_rank[time.ranks.front()]].*side = time.breakdown;
  };
  if (outcome.prediction) fill(outcome.prediction->by_rank, &BubbleRow::predicted);
  if (outcome.measurement) fill(outcome.measurement->by_rank, &BubbleRow::measured);
  std::vector<BubbleRow> folded = rows;
  for (double tolerance = 0.005; folded.size() > kBubbleRows; tolerance *= 2)
    folded = Folded(rows, tolerance);
  return folded;
}

std::string BubbleLabel(const Plan& plan, const BubbleRow& row) {
  if (row.first == row.last) return "    bubble of " + ShortRoleName(plan.roles[row.first], 12);
  if (plan.pipeline->schedule.rank_of_stage.size() == plan.roles.size())
    return fmt::format("    bubble of stages {}-{}", row.first, row.last);
  std::vector<int> ranks;
  for (size_t role = row.first; role <= row.last; ++role)
    ranks.insert(ranks.end(), plan.roles[role].ranks.begin(), plan.roles[role].ranks.end());
  return "    bubble of ranks " + RankRanges(ranks);
}

// Where a step's time goes; the last column is the difference of the shares.
void AddBreakdown(Table& table, const Outcome& outcome) {
  StepBreakdown predicted = outcome.prediction ? outcome.prediction->breakdown : StepBreakdown();
  StepBreakdown measured = outcome.measurement ? outcome.measurement->breakdown : StepBreakdown();
  auto cell = [&](Duration part, Duration step) {
    return fmt::format("{} {:>3.0f} %", FormatTime(part), 100 * ShareOf(part, step));
  };
  auto row = [&](const char* label, Duration StepBreakdown::*part) {
    table.Row(
        label, cell(predicted.*part, predicted.step), cell(measured.*part, measured.step),
        ShareDifference(ShareOf(predicted.*part, predicted.step), ShareOf(measured.*part, measured.step)));
  };
  table.Heading("where its time goes", "difference");
  row("  compute", &StepBreakdown::compute);
  row("  exposed communication", &StepBreakdown::exposed_communication);
  row("  bubble", &StepBreakdown::bubble);
  if (outcome.plan.pipeline) {
    for (const BubbleRow& stage : BubbleRows(outcome))
      table.Row(BubbleLabel(outcome.plan, stage), cell(stage.predicted.bubble, stage.predicted.step),
                cell(stage.measured.bubble, stage.measured.step),
                ShareDifference(stage.predicted.bubble_fraction(), stage.measured.bubble_fraction()));
  }
  row("  host", &StepBreakdown::host);
  row("  (communication in all)", &StepBreakdown::communication);
  constexpr double kWorthSaying = 0.005;  // of the step
  if (outcome.prediction && ShareOf(outcome.prediction->slowed, predicted.step) >= kWorthSaying)
    table.Row("  (compute slowed by it)", cell(outcome.prediction->slowed, predicted.step), "", "");
}

// What a peak consists of.
void AddCategories(Table& table, const Outcome& outcome, const MemoryPeak& predicted,
                   const MemoryPeak& measured) {
  for (int i = 0; i < kCategories; ++i) {
    Bytes p = predicted.by_category[i], m = measured.by_category[i];
    if (p == Bytes(0) && m == Bytes(0)) continue;
    table.Row(fmt::format("    {}", Name(static_cast<Category>(i))), FormatBytes(p), FormatBytes(m),
              fmt::format("{:>10}", Difference(p - m)));
  }
  // PyTorch's users look at reserved memory. Windtunnel's own allocator keeps it close to the allocated.
  if (outcome.plan.scenario.allocator != AllocatorKind::kWindtunnel)
    table.Row("    (reserved)", FormatBytes(predicted.reserved), FormatBytes(measured.reserved),
              fmt::format("{:>10}", Difference(predicted.reserved - measured.reserved)));
}

constexpr size_t kListedRanks = 16;  // more than a person compares

void AddMoreRanks(Table& table, size_t ranks) {
  if (ranks > 0) table.Note(fmt::format("… and {} more ranks", ranks));
}

// Neighbouring roles with equal peaks share a row; below the largest stands what it consists of.
void AddPredictedMemory(Table& table, const Outcome& outcome) {
  const std::vector<PredictedMemory>& memory = outcome.prediction->memory;
  const auto largest =
      std::max_element(memory.begin(), memory.end(), [](const PredictedMemory& a, const PredictedMemory& b) {
        return a.steady.allocated < b.steady.allocated;
      });
  size_t rows = 0, left_out = 0;
  for (auto first = memory.begin(), end = first; first != memory.end(); first = end) {
    std::vector<int> ranks;
    for (end = first; end != memory.end() && end->steady.allocated == first->steady.allocated; ++end)
      ranks.insert(ranks.end(), end->ranks.begin(), end->ranks.end());
    std::sort(ranks.begin(), ranks.end());
    if (rows >= kListedRanks && largest != first) {
      left_out += ranks.size();
      continue;
    }
    ++rows;
    table.Row("  " + NamedRanks(ranks), FormatBytes(first->steady.allocated), "");
    if (largest == first) AddCategories(table, outcome, first->steady, {});
  }
  AddMoreRanks(table, left_out);
}

void AddRankMemory(Table& table, const Outcome& outcome) {
  if (!outcome.measurement) return AddPredictedMemory(table, outcome);
  size_t listed = 0;
  for (const MeasuredMemory& memory : outcome.measurement->memory) {
    if (listed == kListedRanks) break;
    MemoryPeak predicted;
    if (outcome.prediction) predicted = PredictedMemoryOf(*outcome.prediction, memory.rank).steady;
    table.Row(fmt::format("  rank {}", memory.rank), FormatBytes(predicted.allocated),
              FormatBytes(memory.steady.allocated),
              fmt::format("{:>10}", Difference(predicted.allocated - memory.steady.allocated)));
    if (listed++ == 0) AddCategories(table, outcome, predicted, memory.steady);
  }
  AddMoreRanks(table, outcome.measurement->memory.size() - listed);
}

// A quantity of one rank: that where it is largest or, with both sides, where they are furthest apart.
struct OfRank {
  Bytes predicted, measured;
};
OfRank FurthestApart(const Outcome& outcome, const std::function<Bytes(int rank)>& predicted,
                     Bytes MeasuredMemory::*member) {
  OfRank result;
  if (!outcome.measurement) {
    for (const PredictedMemory& memory : outcome.prediction->memory)
      result.predicted = std::max(result.predicted, predicted(memory.ranks.front()));
    return result;
  }
  Bytes furthest(-1);
  for (const MeasuredMemory& memory : outcome.measurement->memory) {
    const OfRank one{outcome.prediction ? predicted(memory.rank) : Bytes(), memory.*member};
    const Bytes apart(outcome.prediction ? std::llabs((one.measured - one.predicted).count())
                                         : one.measured.count());
    const bool is_larger = apart == furthest && one.measured > result.measured;
    if (apart > furthest || is_larger) result = one;
    furthest = std::max(furthest, apart);
  }
  return result;
}

// The largest host peak of all ranks; no row where there is none.
void AddHostMemory(Table& table, const Outcome& outcome) {
  Bytes predicted, measured;
  if (outcome.prediction)
    for (const PredictedMemory& memory : outcome.prediction->memory)
      predicted = std::max(predicted, memory.steady.host_allocated);
  if (outcome.measurement)
    for (const MeasuredMemory& memory : outcome.measurement->memory)
      measured = std::max(measured, memory.steady.host_allocated);
  if (predicted == Bytes(0) && measured == Bytes(0)) return;
  table.Row("  host memory of a rank", FormatBytes(predicted), FormatBytes(measured),
            fmt::format("{:>10}", Difference(predicted - measured)));
  if (table.both() || !outcome.prediction) return;
  table.Row("  host memory of a node",
            FormatBytes(PredictedHostMemoryOfNode(outcome.plan.scenario, *outcome.prediction)), "", "");
}

std::string DoesNotFit(const Prediction& prediction) {
  return fmt::format("DOES NOT FIT in the device's {} (explain says what would)",
                     FormatBytes(prediction.device_memory));
}

void AddMemory(Table& table, const Outcome& outcome) {
  table.Heading("peak memory", "difference");
  AddRankMemory(table, outcome);
  AddHostMemory(table, outcome);
  auto row = [&](const char* label, const std::function<Bytes(int rank)>& predicted,
                 Bytes MeasuredMemory::*member) {
    const OfRank value = FurthestApart(outcome, predicted, member);
    table.Row(label, FormatBytes(value.predicted), FormatBytes(value.measured),
              fmt::format("{:>10}", Difference(value.predicted - value.measured)));
  };
  row(
      "  start-up", [&](int rank) { return PredictedMemoryOf(*outcome.prediction, rank).initial_peak; },
      &MeasuredMemory::initial_peak);
  row(
      HasDeviceMemory(outcome.plan.scenario) ? "  whole device" : "  whole process",
      [&](int rank) { return PredictedResident(outcome, rank); }, &MeasuredMemory::resident_growth);
  if (!outcome.prediction) return;
  if (auto fits = FitsInDevice(*outcome.prediction)) {
    const std::string memory = FormatBytes(outcome.prediction->device_memory);
    // The device waits while segments are given back and reserved again; the step's time excludes that.
    std::string retries = DescribeRetries(*outcome.prediction);
    const Bytes needed = outcome.prediction->peak_reserved + outcome.prediction->outside_allocator;
    if (!retries.empty()) retries = fmt::format(", but {} (slow: too tight)", retries);
    else if (*fits && IsAtLimit(needed, outcome.prediction->device_memory))
      retries = fmt::format(", with {} to spare (at the limit: predictions of peaks are some per cent off)",
                            FormatBytes(outcome.prediction->device_memory - needed));
    if (PredictedHostMemoryOfNode(outcome.plan.scenario, *outcome.prediction) > Bytes(0))
      retries += " (that the host has room is not checked)";
    table.Line(*fits ? fmt::format("  fits in the device's {}{}", memory, retries)
                     : table.ink().Red("  " + DoesNotFit(*outcome.prediction)));
  }
}

// A bar of at most kBarCells on either side of an axis: to the left if the prediction is too short, to the
// right if it is too long.
constexpr int kBarCells = 7;

std::string Bar(double contribution, double largest) {
  int cells = largest > 0 ? static_cast<int>(std::lround(kBarCells * std::fabs(contribution) / largest)) : 0;
  std::string blocks;
  for (int i = 0; i < cells; ++i) blocks += "█";
  std::string empty(kBarCells, ' ');
  return contribution < 0 ? fmt::format("{:>{}}│", blocks, kBarCells) : empty + "│" + blocks;
}

void AddOperators(Table& table, const Outcome& outcome) {
  std::vector<OperatorRow> rows = OperatorRows(outcome);
  Duration predicted, measured;
  double contribution = 0, largest = 0;
  table.Heading(table.both() ? "where the error comes from" : "by operator", "contribution");
  for (const OperatorRow& row : rows) {
    predicted += row.predicted;
    measured += row.measured;
    contribution += row.contribution;
    largest = std::max(largest, std::fabs(row.contribution));
  }
  for (const OperatorRow& row : rows)
    table.Row("  " + row.name, FormatTime(row.predicted), FormatTime(row.measured),
              fmt::format("{:>+9.2f} pp {}", 100 * row.contribution, Bar(row.contribution, largest)));
  table.Row("  together", FormatDuration(predicted), FormatDuration(measured),
            fmt::format("{:>+9.2f} pp", 100 * contribution));
  if (table.both())
    table.Note("shares of the median step, from the middle half of the steps; pp of the measured one");
}

std::string CostSources(const Prediction& prediction) {
  std::string text;
  auto add = [&text](const char* source, double share) {
    if (share > 0) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : " · ", source, 100 * share);
  };
  add("measured", prediction.measured_share);
  add("interpolated", prediction.interpolated_share);
  add("modelled", prediction.modelled_share);
  return text;
}

std::string Verdict(const Outcome& outcome, Ink ink) {
  Comparison comparison = Compare(outcome);
  const ToleranceSpec& tolerance = outcome.plan.scenario.tolerance;
  std::string step = fmt::format("step time {} (±{:.0f} %)", FormatSignedPercent(comparison.step_time),
                                 100 * tolerance.step_time);
  std::string memory = comparison.peak_memory == Bytes(0)
                           ? std::string("peak memory exact")
                           : fmt::format("peak memory off by {} ({:.1f} %, allowed {:.1f} %)",
                                         FormatBytes(comparison.peak_memory),
                                         100 * comparison.peak_memory_share, 100 * tolerance.peak_memory);
  std::string verdict =
      comparison.within_tolerance() ? ink.Green("within tolerance") : ink.Red("OUTSIDE TOLERANCE");
  return fmt::format("{}: {}, {}", verdict, step, memory);
}

std::string DescribeSaves(const Measurement& measurement) {
  Duration slowest;
  for (const MeasuredSave& save : measurement.saves) slowest = std::max(slowest, save.time);
  std::string text = fmt::format("checkpoints: {} saved, {} each, {} at most", measurement.saves.size(),
                                 FormatBytes(measurement.saves.back().bytes), FormatDuration(slowest));
  if (measurement.steps_after_saves > 0)
    text += fmt::format("; {} right after them not counted", Counted(measurement.steps_after_saves, "step"));
  return text;
}

// " · checked: operators take 0.4 % longer now", " · measured again: operators take 14.2 % longer than
// before"
std::string DescribeCheck(const std::optional<CostCheck>& check) {
  if (!check) return "";
  return fmt::format(" · {}: operators take {:.1f} % {} {}",
                     check->measured_again ? "measured again" : "checked", 100 * std::abs(check->drift),
                     check->drift > 0 ? "longer" : "less", check->measured_again ? "than before" : "now");
}

std::string DescribeCrowd(const Measurement& measurement) {
  return measurement.cores ? DescribeCrowd(*measurement.cores) : "";
}

// Adds what a run did apart from its steps, and what other processes used of the cores.
void AddRun(Table& table, const Measurement& measurement) {
  if (measurement.first_step > 0) table.Line(fmt::format("went on from step {}", measurement.first_step));
  for (const std::string& reason : measurement.restarts) table.Line("restarted: " + reason);
  if (!measurement.saves.empty()) table.Line(DescribeSaves(measurement));
  if (const std::string busy = DescribeCrowd(measurement); !busy.empty()) table.Line(busy);
  if (measurement.evaluation) table.Line("evaluation: " + DescribeEvaluation(*measurement.evaluation));
}

}  // namespace

std::optional<std::string> DescribeDivergence(const Measurement& measurement) {
  const std::vector<double>& losses = measurement.losses;
  if (!losses.empty() && measurement.skipped_steps.size() == losses.size())
    return fmt::format(
        "all {} were skipped, since their gradients overflowed: no parameter has changed "
        "(precision.loss_scale)",
        Counted(static_cast<int64_t>(losses.size()), "step"));
  if (losses.empty() || std::isfinite(losses.back())) return std::nullopt;
  const auto last =
      std::find_if(losses.rbegin(), losses.rend(), [](double loss) { return std::isfinite(loss); });
  return fmt::format("the loss is {} from step {} on: training has diverged",
                     std::isinf(losses.back()) ? "infinite" : "not a number",
                     measurement.first_step + (losses.rend() - last) + 1);
}

std::string DescribeEvaluation(const HeldOutLoss& evaluation) {
  std::string text = fmt::format("loss {:.4f}", UnsignedNan(evaluation.loss));
  if (evaluation.perplexity > 0) text += fmt::format(", perplexity {:.4g}", evaluation.perplexity);
  const bool is_of_tokens = evaluation.perplexity != 0;  // NaN, if the loss is
  return text +
         fmt::format(", on {} held-out {}", evaluation.sequences, is_of_tokens ? "sequences" : "samples");
}

std::string OutcomeTable(const Outcome& outcome, Ink ink) {
  Table table(outcome, ink);
  AddHeader(table, outcome);
  AddStepTime(table, outcome);
  AddTraining(table, outcome);
  AddBreakdown(table, outcome);
  AddMemory(table, outcome);
  AddOperators(table, outcome);
  table.Line("");
  if (outcome.prediction)
    table.Line("costs: " + CostSources(*outcome.prediction) + DescribeCheck(outcome.cost_check));
  if (const std::string disturbance = DescribeDisturbance(outcome.profile, outcome.plan);
      outcome.prediction && !disturbance.empty())
    table.Line(disturbance + " calibrate again");
  if (outcome.measurement && !outcome.measurement->losses.empty())
    table.Line(
        fmt::format("loss: {:.4f} → {:.4f} over {} steps", UnsignedNan(outcome.measurement->losses.front()),
                    UnsignedNan(outcome.measurement->losses.back()), outcome.measurement->losses.size()));
  if (outcome.measurement) {
    if (const auto divergence = DescribeDivergence(*outcome.measurement)) table.Line(*divergence);
  }
  if (outcome.measurement)
    for (size_t module = 0; module < outcome.measurement->mtp_losses.size(); ++module) {
      const std::vector<double>& losses = outcome.measurement->mtp_losses[module];
      table.Line(fmt::format("mtp {} loss: {:.4f} → {:.4f}", module + 1, UnsignedNan(losses.front()),
                             UnsignedNan(losses.back())));
    }
  if (outcome.measurement && !outcome.measurement->loss_scales.empty())
    table.Line(fmt::format("loss scale: {} at the end, {} steps skipped",
                           outcome.measurement->loss_scales.back(),
                           outcome.measurement->skipped_steps.size()));
  if (outcome.measurement) AddRun(table, *outcome.measurement);
  if (table.both()) table.Line(Verdict(outcome, ink));
  return table.text();
}

std::string VerdictLine(const Outcome& outcome, Ink ink) {
  if (!outcome.prediction) return "";
  if (!outcome.measurement) {
    if (FitsInDevice(*outcome.prediction).value_or(true)) return "";
    return ink.Bold(outcome.plan.scenario.name) + ": " + ink.Red(DoesNotFit(*outcome.prediction));
  }
  std::string line = ink.Bold(outcome.plan.scenario.name) + ": " + Verdict(outcome, ink);
  if (const std::string busy = DescribeCrowd(*outcome.measurement); !busy.empty()) line += "; " + busy;
  return line;
}

}  // namespace windtunnel
