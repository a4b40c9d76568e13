#include "reports/svg_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/format.h"
#include "plan/ops.h"
#include "reports/pipeline_actions.h"
#include "reports/svg_canvas.h"
#include "reports/words.h"

namespace windtunnel {
namespace {

// In pixels.
constexpr double kBubbleColumn = 52;
constexpr double kThinLane = 4, kThinGap = 1;
// Blocks of one colour that are narrower than the first and closer than the second are drawn as one.
constexpr double kMergeNarrower = 1.5, kMergeBelow = 0.35;
// Blocks at least this wide are separated by a thin gap, so that equal neighbours can be counted.
constexpr double kSetApartFrom = 3, kHair = 0.6;

// Numbers in blocks: two sizes of type, and the width of a digit in terms of them.
constexpr double kDigits = 11.5, kSmallDigits = 8.5, kDigitWidth = 0.56;

struct Rgb {
  int r = 0, g = 0, b = 0;
};
// Blue for forward and green for backward follow Megatron's drawings of pipelines. Teal and a yellowish green
// distinguish the two halves of a backward from it and from each other, also in grey.
enum Fill { kForward, kBackward, kInputGradient, kWeightGradient, kOptimizer, kSync, kMessage, kBarrier };
struct Meaning {
  Rgb colour;
  std::string_view words;
};
constexpr std::array<Meaning, 8> kMeanings = {{{{59, 113, 181}, "forward"},
                                               {{72, 152, 84}, "backward"},
                                               {{55, 165, 165}, "input gradient"},
                                               {{170, 186, 62}, "weight gradient"},
                                               {{157, 117, 93}, "optimizer"},
                                               {{228, 87, 86}, "gradient sync"},
                                               {{126, 101, 178}, "messages"},
                                               {{255, 191, 181}, "barrier"}}};

Fill FillOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kBackward:
      return kBackward;
    case ActionKind::kInputGradient:
      return kInputGradient;
    case ActionKind::kWeightGradient:
      return kWeightGradient;
    default:
      return kForward;
  }
}

using Half = WholeActionSpan::Half;

// A colour; for actions also the virtual stage that tints it, and for those of a pair their half of the lane.
struct Style {
  Fill fill = kForward;
  int tint = 0;
  Half half = Half::kNone;
  auto operator<=>(const Style&) const = default;
};

// The first virtual stage has the full colour, the last one is more than half white.
Rgb ColourOf(const Style& style, int tints) {
  const Rgb& full = kMeanings[style.fill].colour;
  if (tints < 2) return full;
  const double white = 0.58 * style.tint / (tints - 1);
  auto mixed = [&](int value) { return static_cast<int>(std::lround(value + (255 - value) * white)); };
  return {mixed(full.r), mixed(full.g), mixed(full.b)};
}

bool IsDark(const Rgb& colour) { return 0.299 * colour.r + 0.587 * colour.g + 0.114 * colour.b < 145; }

std::string Hex(const Rgb& colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.r, colour.g, colour.b);
}

struct Block {
  Style style;
  double left = 0, right = 0;
  int64_t micro_batch = -1;

  double width() const { return right - left; }
};

// Whether the operator is a collective that sums gradients (all-reduce or reduce-scatter).
bool IsOfGradients(const Op& op) {
  const auto* collective = std::get_if<Collective>(&op.kind);
  return collective && op.phase != Phase::kForward && op.phase != Phase::kRecompute &&
         (collective->kind == CollectiveKind::kAllReduce ||
          collective->kind == CollectiveKind::kReduceScatter);
}

// The times in which the compute stream waited for communication that is not between stages, before an
// operator or at the end of the step (BreakDown's exposed communication, plan/timeline.h).
std::vector<Span> ExposedCommunication(const Role& role, const Timeline& timeline) {
  std::vector<const Span*> span_of(role.steady.ops.size());
  for (const Span& span : timeline.spans) span_of[span.op] = &span;
  std::vector<Span> exposed;
  Duration now;
  auto wait = [&](std::vector<const Span*> awaited, Duration to) {
    std::sort(awaited.begin(), awaited.end(), [](const Span* a, const Span* b) { return a->end < b->end; });
    for (const Span* one : awaited) {
      const Duration until = std::min(one->end, to);
      if (until <= now) continue;
      if (!role.streams[one->stream].between_stages) exposed.push_back({one->op, one->stream, now, until});
      now = until;
    }
  };
  AwaitedOnIssue by_host(role.steady);
  for (const Span& span : timeline.spans) {
    if (span.stream != kComputeStream) continue;
    std::vector<const Span*> awaited;
    std::vector<OpIndex> dependencies = role.steady.ops[span.op].dependencies;
    by_host.Until(span.op, dependencies);
    for (OpIndex dependency : dependencies) {
      const Span* one = span_of[dependency];
      if (one && one->stream != kComputeStream) awaited.push_back(one);
    }
    wait(std::move(awaited), span.start);
    now = span.end;
  }
  std::vector<const Span*> last;
  for (const Span& span : timeline.spans)
    if (span.stream != kComputeStream) last.push_back(&span);
  wait(std::move(last), timeline.end);
  return exposed;
}

// Blocks of one lane as strokes of its height, with one path for each style. A block takes ten bytes.
class Strokes {
 public:
  Strokes(double middle, double height) : middle_(middle), height_(height) {}

  void Add(const Style& style, double left, double right) {
    Path& path = paths_[style];
    left = Rounded(left);
    right = Rounded(std::max(right, left + 0.2));
    if (path.data.empty()) path.data = fmt::format("M{:g} {:g}", left, middle_);
    else path.data += fmt::format("m{:g} 0", Rounded(left - path.at));
    path.data += fmt::format("h{:g}", Rounded(right - left));
    path.at = right;
  }

  void AppendTo(SvgCanvas& canvas, int tints) const {
    for (const auto& [style, path] : paths_)
      canvas.Append(fmt::format("<path stroke=\"{}\" stroke-width=\"{:g}\" d=\"{}\"/>\n",
                                Hex(ColourOf(style, tints)), height_, path.data));
  }

 private:
  struct Path {
    std::string data;
    double at = 0;
  };
  static double Rounded(double pixels) { return std::round(pixels * 100) / 100; }

  double middle_, height_;
  std::map<Style, Path> paths_;
};

class PipelineDrawing {
 public:
  PipelineDrawing(const Plan& plan, Duration total)
      : plan_(plan),
        tints_(static_cast<int>(plan.pipeline->stages.size()) / plan.mesh.pipeline()),
        lane_(LaneHeight(plan.mesh.pipeline())),
        canvas_(Header(plan), total, kBubbleColumn) {}

  void Panel(std::string_view title, const std::vector<Timeline>& timelines, const StepBreakdown& mean) {
    const double top = canvas_.y();
    const Duration end = LongestOf(timelines);
    canvas_.PanelTitle(
        fmt::format("{}: {}, {} bubble", title, FormatDuration(end), FormatPercent(mean.bubble_fraction())));
    canvas_.Text(SvgCanvas::kWidth - SvgCanvas::kMargin, canvas_.y() - 9, "bubble",
                 "class=\"s\" text-anchor=\"end\"");
    for (const Timeline* timeline : TimelinesByPipelineRank(plan_, timelines))
      if (timeline) Lane(*timeline);
    canvas_.EndLine(end, top);
    canvas_.Down(8);
  }

  std::string Finish() {
    canvas_.Axis();
    Legend();
    return canvas_.Finish(fmt::format(
        ".s{{font-size:10.5px;fill:#777}}.n{{font-size:{:g}px;text-anchor:middle}}.m{{font-size:{:g}px}}"
        ".n text{{fill:#fff}}.d text{{fill:#222}}path{{fill:none}}",
        kDigits, kSmallDigits));
  }

 private:
  static std::vector<std::string> Header(const Plan& plan) {
    constexpr size_t kColumns = 170;  // that a line has room for
    const std::string model = ModelInWords(plan), split = ParallelismInWords(plan.scenario);
    std::vector<std::string> lines = {plan.scenario.name, model + " · " + split};
    if (lines.back().size() > kColumns) lines = {plan.scenario.name, model, split};
    lines.push_back(PipelineInWords(plan) + " · " + BatchInWords(plan));
    return lines;
  }
  static double LaneHeight(int ranks) { return ranks <= 8 ? 26 : ranks <= 16 ? 20 : ranks <= 32 ? 13 : 8; }

  void Lane(const Timeline& timeline) {
    const Role& role = plan_.RoleOf(timeline.rank);
    const double left = canvas_.X(Duration()), y = canvas_.y();
    canvas_.Rect(left, y, canvas_.X(timeline.end) - left, lane_, "fill=\"#f4f4f4\"");
    Labels(timeline, role);
    std::vector<Block> blocks = Blocks(timeline, role);
    for (const Half half : {Half::kNone, Half::kUpper, Half::kLower}) {
      Strokes strokes(y + MiddleOf(half), HeightOf(half));
      for (const Block& block : blocks) {
        if (block.style.half != half) continue;
        const double hair = block.width() >= kSetApartFrom ? kHair : 0;
        strokes.Add(block.style, block.left, block.right - hair);
      }
      strokes.AppendTo(canvas_, tints_);
    }
    Numbers(blocks);
    canvas_.Down(lane_ + kThinGap);
    Communication(timeline, role);
    canvas_.Down(kThinLane + (lane_ > 10 ? 5 : 2));
  }

  // In pixels from the lane's top.
  double MiddleOf(Half half) const {
    return half == Half::kNone ? lane_ / 2 : half == Half::kUpper ? lane_ / 4 : 3 * lane_ / 4;
  }
  double HeightOf(Half half) const { return half == Half::kNone ? lane_ : lane_ / 2; }

  void Labels(const Timeline& timeline, const Role& role) {
    const double baseline = canvas_.y() + lane_ / 2 + 4;
    // Pixels for both labels together, and for a character of either.
    constexpr double kRoom = 116, kLarge = 6.6, kSmall = 5.3;
    const std::string rank = fmt::format("rank {}", timeline.rank);
    const double left = kRoom - kLarge * static_cast<double>(rank.size());
    canvas_.Text(SvgCanvas::kMargin, baseline, rank, "");
    canvas_.Text(SvgCanvas::kMargin + SvgCanvas::kLabels - 7, baseline,
                 ShortRoleName(role, static_cast<size_t>(std::clamp(left / kSmall, 4.0, 14.0))),
                 "class=\"s\" text-anchor=\"end\"");
    const StepBreakdown breakdown = BreakDown(timeline, role, role.steady);
    if (breakdown.step > Duration())
      canvas_.Text(SvgCanvas::kWidth - SvgCanvas::kMargin, baseline,
                   FormatPercent(breakdown.bubble_fraction()), "class=\"s\" text-anchor=\"end\"");
  }

  // Everything in the lane from left to right.
  std::vector<Block> Blocks(const Timeline& timeline, const Role& role) {
    const int pipeline_rank = plan_.mesh.PlaceOf(timeline.rank).pipeline;
    const std::vector<int> stages = StagesOfRank(plan_, pipeline_rank);
    std::vector<Block> blocks;
    auto add = [&](const Style& style, Duration start, Duration end, int64_t micro_batch) {
      Block block{style, canvas_.X(start), canvas_.X(end), micro_batch};
      blocks.push_back(block);
      used_.insert(style.fill);
    };
    for (const WholeActionSpan& span : WholeActionSpans(plan_, timeline)) {
      const auto tint = std::find(stages.begin(), stages.end(), span.action.stage) - stages.begin();
      has_pairs_ |= span.half != Half::kNone;
      add({FillOf(span.action.kind), static_cast<int>(tint), span.half}, span.start, span.end,
          span.action.micro_batch);
    }
    const ActionLookup lookup(plan_, pipeline_rank);
    for (const Span& span : timeline.spans) {
      const Op& op = role.steady.ops.at(span.op);
      Action action;
      if (span.stream != kComputeStream || lookup.Find(op, action)) continue;
      // An operator within an action, such as scaling the gradients of a bucket, is part of its block.
      if (op.micro_batch < 0)
        add({op.phase == Phase::kGradientSync ? kSync : kOptimizer}, span.start, span.end, -1);
    }
    for (const Span& span : ExposedCommunication(role, timeline)) AddOutside(blocks, span, add);
    std::stable_sort(blocks.begin(), blocks.end(),
                     [](const Block& a, const Block& b) { return a.left < b.left; });
    return Merged(blocks);
  }

  // Waiting within an action is part of its block.
  template <typename Add>
  void AddOutside(const std::vector<Block>& blocks, const Span& span, const Add& add) {
    const double middle = (canvas_.X(span.start) + canvas_.X(span.end)) / 2;
    for (const Block& block : blocks)
      if (block.left <= middle && middle <= block.right) return;
    add(Style{kSync}, span.start, span.end, -1);
  }

  static std::vector<Block> Merged(const std::vector<Block>& blocks) {
    std::vector<Block> merged;
    for (const Block& block : blocks) {
      Block* last = merged.empty() ? nullptr : &merged.back();
      const bool is_action = block.micro_batch >= 0;
      const bool is_narrow = last && block.width() < kMergeNarrower && last->width() < kMergeNarrower;
      if (last && last->style == block.style && block.left - last->right < kMergeBelow &&
          (is_narrow || !is_action)) {
        last->right = std::max(last->right, block.right);
        if (is_action) last->micro_batch = block.micro_batch;
      } else {
        merged.push_back(block);
      }
    }
    return merged;
  }

  // Draws micro-batch numbers in the blocks that have room for them, in one of two sizes.
  void Numbers(const std::vector<Block>& blocks) {
    std::map<std::string, std::string> by_class;
    for (const Block& block : blocks) {
      if (block.micro_batch < 0) continue;
      const std::string number = std::to_string(block.micro_batch);
      const double room = (block.width() - 3) / (kDigitWidth * static_cast<double>(number.size()));
      const double height = HeightOf(block.style.half);
      if (room < kSmallDigits || height < kSmallDigits + 3) continue;
      const bool is_small = room < kDigits || height < kDigits + 3;
      const std::string names =
          fmt::format("n{}{}", is_small ? " m" : "", IsDark(ColourOf(block.style, tints_)) ? "" : " d");
      by_class[names] += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", (block.left + block.right - kHair) / 2,
          canvas_.y() + MiddleOf(block.style.half) + 0.36 * (is_small ? kSmallDigits : kDigits), number);
    }
    for (const auto& [names, texts] : by_class)
      canvas_.Append(fmt::format("<g class=\"{}\">{}</g>\n", names, texts));
  }

  // The thin lane: what this rank sends, and its collectives, from when this rank is ready for them. Receives
  // are left out: they are posted long before their message is made, so they would say little. What
  // tensor-parallel ranks exchange is part of the blocks above.
  void Communication(const Timeline& timeline, const Role& role) {
    const ActionLookup lookup(plan_, plan_.mesh.PlaceOf(timeline.rank).pipeline);
    std::map<Fill, std::vector<Block>> blocks;
    for (const Span& span : timeline.spans) {
      const OpKind& kind = role.steady.ops.at(span.op).kind;
      Action action;
      if (!IsCommunication(kind) || std::holds_alternative<Receive>(kind)) continue;
      if (lookup.Find(role.steady.ops[span.op], action)) continue;
      Fill fill = kSync;
      if (std::holds_alternative<Send>(kind)) fill = kMessage;
      if (OperatorName(kind) == "barrier") fill = kBarrier;
      if (fill == kSync && !IsOfGradients(role.steady.ops[span.op])) has_other_collectives_ = true;
      blocks[fill].push_back({{fill}, canvas_.X(span.start), canvas_.X(span.end)});
      used_.insert(fill);
    }
    Strokes strokes(canvas_.y() + kThinLane / 2, kThinLane);
    for (const auto& [fill, of_fill] : blocks) {
      // Wide enough to be seen, but not so that many short ones look like a busy link.
      const double least = std::min(0.8, 100.0 / static_cast<double>(of_fill.size()));
      for (const Block& block : Merged(of_fill))
        strokes.Add(block.style, block.left, std::max(block.right, block.left + least));
    }
    strokes.AppendTo(canvas_, 1);
  }

  bool Recomputes() const {
    for (const Op& op : plan_.roles.front().steady.ops)
      if (op.phase == Phase::kRecompute) return true;
    return false;
  }

  std::string WordsFor(Fill fill) const {
    const bool is_backward = fill == kBackward || fill == kInputGradient;
    if (is_backward && Recomputes()) return std::string(kMeanings[fill].words) + " with recomputation";
    if (fill == kSync && has_other_collectives_) return "collectives";
    return std::string(kMeanings[fill].words);
  }

  void Legend() {
    canvas_.BeginLegend();
    for (Fill fill : used_) {
      const int tints = fill <= kWeightGradient ? tints_ : 1;
      std::vector<std::string> swatches;
      for (int tint = 0; tint < tints; ++tint)
        swatches.push_back(fmt::format("fill=\"{}\"", Hex(ColourOf({fill, tint}, tints))));
      canvas_.LegendEntry(swatches, WordsFor(fill), tints > 1 ? 9 : 12);
    }
    canvas_.LegendEntry({"fill=\"#f4f4f4\" stroke=\"#ccc\""}, "waiting for another stage: the bubble");
    if (tints_ > 1) canvas_.LegendEntry({}, "A rank's later stages are lighter.");
    if (has_pairs_) canvas_.LegendEntry({}, "One above the other: they take turns, layer by layer.");
    canvas_.EndLegend();
  }

  const Plan& plan_;
  const int tints_;  // virtual stages
  const double lane_;
  SvgCanvas canvas_;
  std::set<Fill> used_;
  bool has_other_collectives_ = false;  // than for gradients
  bool has_pairs_ = false;
};

}  // namespace

std::string PipelineSvg(const Outcome& outcome, Duration total) {
  PipelineDrawing drawing(outcome.plan, total);
  if (outcome.prediction)
    drawing.Panel("predicted", outcome.prediction->timelines, outcome.prediction->breakdown);
  if (outcome.measurement)
    drawing.Panel("measured", outcome.measurement->timelines, outcome.measurement->breakdown);
  return drawing.Finish();
}

}  // namespace windtunnel
