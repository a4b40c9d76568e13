#include "reports/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "reports/pipeline_actions.h"
#include "reports/version.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;

enum class Side { kPredicted, kMeasured };

double ToMicroseconds(Duration time) { return time / Microseconds(1); }

// Writes one event a line, so that a trace can be read and compared as text.
class TraceWriter {
 public:
  explicit TraceWriter(const Plan& plan) : plan_(plan) {
    Json other = {{"scenario", plan.scenario.name}, {"windtunnel", kVersion}};
    text_ = R"({"displayTimeUnit": "ms", "otherData": )" + Text(other) + ",\n\"traceEvents\": [\n";
  }

  void Add(const Timeline& timeline, Side side) {
    const Role& role = plan_.RoleOf(timeline.rank);
    int process = 2 * timeline.rank + (side == Side::kMeasured ? 1 : 0);
    NameTracks(timeline, role, process, side);
    AddStep(timeline, process);
    for (const ActionSpan& span : ActionSpans(plan_, timeline)) AddAction(span, process, ActionTrack(role));
    for (const Span& span : timeline.spans) AddSpan(span, role.steady.ops.at(span.op), process);
    AddArrows(timeline, role.steady, process);
    AddMemory(timeline.memory, process);
  }

  std::string Finish() && { return std::move(text_) + "\n]}\n"; }

 private:
  static std::string Text(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void Emit(const Json& event) {
    if (!first_) text_ += ",\n";
    first_ = false;
    text_ += Text(event);
  }

  void Metadata(const char* name, int process, int track, const Json& arguments) {
    Emit({{"name", name}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", arguments}});
  }

  // The track of a pipeline's actions: numbered after the streams' tracks, but shown above them.
  static int ActionTrack(const Role& role) { return static_cast<int>(role.streams.size()) + 1; }

  // Track 0 is the step as a whole; stream s is track s + 1.
  void NameTracks(const Timeline& timeline, const Role& role, int process, Side side) {
    const char* what = side == Side::kPredicted ? "predicted" : "measured";
    Metadata("process_name", process, 0, {{"name", fmt::format("rank {} {}", timeline.rank, what)}});
    Metadata("process_sort_index", process, 0, {{"sort_index", process}});
    Metadata("thread_name", process, 0, {{"name", "step"}});
    Metadata("thread_sort_index", process, 0, {{"sort_index", 0}});
    int sort_index = 1;
    if (plan_.pipeline) {
      Metadata("thread_name", process, ActionTrack(role), {{"name", role.name}});
      Metadata("thread_sort_index", process, ActionTrack(role), {{"sort_index", sort_index++}});
    }
    for (size_t stream = 0; stream < role.streams.size(); ++stream) {
      int track = static_cast<int>(stream) + 1;
      Metadata("thread_name", process, track, {{"name", role.streams[stream].name}});
      Metadata("thread_sort_index", process, track, {{"sort_index", sort_index++}});
    }
  }

  void AddStep(const Timeline& timeline, int process) {
    Emit({{"name", "step"},
          {"cat", "step"},
          {"ph", "X"},
          {"ts", 0.0},
          {"dur", ToMicroseconds(timeline.end)},
          {"pid", process},
          {"tid", 0}});
  }

  void AddAction(const ActionSpan& span, int process, int track) {
    Emit({{"name", FormatAction(span.action)},
          {"cat", ActionLetters(span.action.kind)},
          {"ph", "X"},
          {"ts", ToMicroseconds(span.start)},
          {"dur", ToMicroseconds(span.end - span.start)},
          {"pid", process},
          {"tid", track},
          {"args", {{"stage", span.action.stage}, {"micro_batch", span.action.micro_batch}}}});
  }

  void AddSpan(const Span& span, const Op& op, int process) {
    Json arguments = {{"phase", std::string(Name(op.phase))}, {"shape", CostKey(op)}};
    if (op.layer >= 0) arguments["layer"] = op.layer;
    if (op.micro_batch >= 0) arguments["micro_batch"] = op.micro_batch;
    std::string name(OperatorName(op.kind));
    Emit({{"name", op.name.empty() ? name : op.name},
          {"cat", name},
          {"ph", "X"},
          {"ts", ToMicroseconds(span.start)},
          {"dur", ToMicroseconds(span.end - span.start)},
          {"pid", process},
          {"tid", span.stream + 1},
          {"args", arguments}});
  }

  // An arrow for each dependency between streams, from the end of one span to the start of the other.
  void AddArrows(const Timeline& timeline, const Program& program, int process) {
    std::vector<const Span*> span_of(program.ops.size());
    for (const Span& span : timeline.spans) span_of[span.op] = &span;
    for (const Span& span : timeline.spans)
      for (OpIndex dependency : program.ops[span.op].dependencies)
        if (const Span* from = span_of[dependency]) AddArrow(*from, span, process);
  }

  void AddArrow(const Span& from, const Span& to, int process) {
    int id = ++arrows_;
    Emit({{"name", "dependency"},
          {"cat", "dependency"},
          {"ph", "s"},
          {"id", id},
          {"ts", ToMicroseconds(from.end)},
          {"pid", process},
          {"tid", from.stream + 1}});
    Emit({{"name", "dependency"},
          {"cat", "dependency"},
          {"ph", "f"},
          {"bp", "e"},
          {"id", id},
          {"ts", ToMicroseconds(to.start)},
          {"pid", process},
          {"tid", to.stream + 1}});
  }

  // A counter keeps its value until its next event, so events that repeat it are left out, but for the last
  // one: most samples are of allocations within what is reserved already.
  void AddMemory(const std::vector<MemorySample>& samples, int process) {
    std::optional<Bytes> allocated, reserved;
    for (size_t i = 0; i < samples.size(); ++i) {
      const MemorySample& sample = samples[i];
      const bool is_last = i + 1 == samples.size();
      const auto counter = [&](const char* name, Bytes bytes, std::optional<Bytes>& before) {
        if (!is_last && before == bytes) return;
        before = bytes;
        Emit({{"name", name},
              {"ph", "C"},
              {"ts", ToMicroseconds(sample.time)},
              {"pid", process},
              {"args", {{"MiB", bytes / MiB(1)}}}});
      };
      counter("allocated memory", sample.allocated, allocated);
      counter("reserved memory", sample.reserved, reserved);
    }
  }

  const Plan& plan_;
  std::string text_;
  bool first_ = true;
  int arrows_ = 0;
};

}  // namespace

std::string TraceJson(const Outcome& outcome) {
  TraceWriter writer(outcome.plan);
  if (outcome.prediction)
    for (const Timeline& timeline : outcome.prediction->timelines) writer.Add(timeline, Side::kPredicted);
  if (outcome.measurement)
    for (const Timeline& timeline : outcome.measurement->timelines) writer.Add(timeline, Side::kMeasured);
  return std::move(writer).Finish();
}

}  // namespace windtunnel
