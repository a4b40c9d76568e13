#include "runtime/job.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/ceil_divide.h"
#include "base/json_numbers.h"
#include "base/read_file.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

Json ToJson(Duration duration) { return duration.picoseconds(); }
Json ToJson(const std::vector<Duration>& durations) {
  Json json = Json::array();
  for (Duration duration : durations) json.push_back(duration.picoseconds());
  return json;
}
Duration ToDuration(const Json& json) { return Picoseconds(WholeNumber<int64_t>(json)); }
std::vector<Duration> ToDurations(const Json& json) {
  std::vector<Duration> durations;
  for (const Json& value : json) durations.push_back(ToDuration(value));
  return durations;
}

Json ToJson(const Timeline& timeline) {
  Json spans = Json::array(), memory = Json::array();
  for (const Span& span : timeline.spans) {
    for (int64_t value :
         {int64_t{span.op}, int64_t{span.stream}, span.start.picoseconds(), span.end.picoseconds()}) {
      spans.push_back(value);
    }
  }
  for (const MemorySample& sample : timeline.memory) {
    for (int64_t value : {int64_t{sample.index}, sample.time.picoseconds(), sample.allocated.count(),
                          sample.reserved.count()}) {
      memory.push_back(value);
    }
  }
  return Json{{"rank", timeline.rank},
              {"end", ToJson(timeline.end)},
              {"spans", spans},
              {"memory", memory},
              {"host_computes", timeline.host_computes}};
}

Timeline ToTimeline(const Json& json) {
  Timeline timeline;
  timeline.rank = WholeNumber<int>(json.at("rank"));
  timeline.end = ToDuration(json.at("end"));
  timeline.host_computes = json.at("host_computes").get<bool>();
  const auto spans = WholeNumbers<int64_t>(json.at("spans"));
  for (size_t i = 0; i + 3 < spans.size(); i += 4) {
    timeline.spans.push_back(Span{static_cast<OpIndex>(spans[i]), static_cast<StreamId>(spans[i + 1]),
                                  Picoseconds(spans[i + 2]), Picoseconds(spans[i + 3])});
  }
  const auto memory = WholeNumbers<int64_t>(json.at("memory"));
  for (size_t i = 0; i + 3 < memory.size(); i += 4) {
    timeline.memory.push_back(MemorySample{static_cast<OpIndex>(memory[i]), Picoseconds(memory[i + 1]),
                                           Bytes(memory[i + 2]), Bytes(memory[i + 3])});
  }
  return timeline;
}

Json ToJson(const TimedSteps& steps) {
  Json timelines = Json::array();
  for (const Timeline& timeline : steps.timelines) timelines.push_back(ToJson(timeline));
  return Json{{"times", ToJson(steps.times)}, {"stride", steps.stride}, {"timelines", timelines}};
}
TimedSteps ToTimedSteps(const Json& json) {
  TimedSteps steps{ToDurations(json.at("times")), WholeNumber<int64_t>(json.at("stride")), {}};
  for (const Json& timeline : json.at("timelines")) steps.timelines.push_back(ToTimeline(timeline));
  const auto all = static_cast<int64_t>(steps.times.size());
  const auto kept = static_cast<int64_t>(steps.timelines.size());
  const bool is_stride = steps.stride >= 1 && steps.stride <= std::max<int64_t>(all, 1);
  if (!is_stride || kept != CeilDivide(all, steps.stride))
    throw Json::type_error::create(302, "timelines must be those of every stride-th step", &json);
  return steps;
}

Json ToJson(const CoreUse& use) {
  return {use.machine, use.process, use.places, use.cores, use.busy, use.own};
}
CoreUse ToCoreUse(const Json& json) {
  return {json.at(0).get<std::string>(), json.at(1).get<std::string>(), json.at(2).get<std::string>(),
          json.at(3).get<double>(),      json.at(4).get<double>(),      json.at(5).get<double>()};
}

Json ToJson(const MemoryPeak& peak) {
  Json categories = Json::array(), host_categories = Json::array();
  for (Bytes bytes : peak.by_category) categories.push_back(bytes.count());
  for (Bytes bytes : peak.host_by_category) host_categories.push_back(bytes.count());
  return Json{{"allocated", peak.allocated.count()},
              {"reserved", peak.reserved.count()},
              {"by_category", categories},
              {"host_allocated", peak.host_allocated.count()},
              {"host_by_category", host_categories},
              {"allocated_at_reserved", peak.allocated_at_reserved.count()},
              {"largest_unserved", peak.largest_unserved.count()},
              {"retries", peak.retries},
              {"requested", peak.requested.count()}};
}

MemoryPeak ToPeak(const Json& json) {
  MemoryPeak peak;
  peak.allocated = Bytes(WholeNumber<int64_t>(json.at("allocated")));
  peak.reserved = Bytes(WholeNumber<int64_t>(json.at("reserved")));
  peak.host_allocated = Bytes(WholeNumber<int64_t>(json.at("host_allocated")));
  peak.allocated_at_reserved = Bytes(WholeNumber<int64_t>(json.at("allocated_at_reserved")));
  peak.largest_unserved = Bytes(WholeNumber<int64_t>(json.at("largest_unserved")));
  peak.retries = WholeNumber<int64_t>(json.at("retries"));
  peak.requested = Bytes(WholeNumber<int64_t>(json.at("requested")));
  for (int i = 0; i < kCategories; ++i) {
    peak.by_category[i] = Bytes(WholeNumber<int64_t>(json.at("by_category").at(i)));
    peak.host_by_category[i] = Bytes(WholeNumber<int64_t>(json.at("host_by_category").at(i)));
  }
  return peak;
}

Json ToJson(const RunOptions& run) {
  return Json{{"checkpoints", run.checkpoints},
              {"checkpoint_every", run.checkpoint_every},
              {"keep", run.keep},
              {"resumes", run.resumes},
              {"resume_from", run.resume_from},
              {"evaluates", run.evaluates},
              {"import_weights", run.import_weights},
              {"reporting",
               {{"every", run.reporting.every},
                {"lines", run.reporting.lines},
                {"tensorboard", run.reporting.tensorboard},
                {"peak", run.reporting.peak.flops_per_second()},
                {"is_restart", run.reporting.is_restart}}}};
}

RunOptions ToRunOptions(const Json& json) {
  RunOptions run;
  run.checkpoints = json.at("checkpoints").get<std::string>();
  run.checkpoint_every = WholeNumber<int64_t>(json.at("checkpoint_every"));
  run.keep = WholeNumber<int64_t>(json.at("keep"));
  run.resumes = json.at("resumes").get<bool>();
  run.resume_from = json.at("resume_from").get<std::string>();
  run.evaluates = json.at("evaluates").get<bool>();
  run.import_weights = json.at("import_weights").get<std::string>();
  const Json& reporting = json.at("reporting");
  run.reporting.every = WholeNumber<int64_t>(reporting.at("every"));
  run.reporting.lines = reporting.at("lines").get<bool>();
  run.reporting.tensorboard = reporting.at("tensorboard").get<std::string>();
  run.reporting.is_restart = reporting.at("is_restart").get<bool>();
  run.reporting.peak = FlopRate::FromFlopsPerSecond(reporting.at("peak").get<double>());
  return run;
}

std::string ToCbor(const Json& json) {
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return std::string(bytes.begin(), bytes.end());
}

// Runs `read` over the parsed bytes; nlohmann's exceptions stay here.
template <typename T, typename Read>
Result<T> Parse(const std::string& bytes, const char* what, Read read) {
  try {
    return read(Json::from_cbor(bytes));
  } catch (const Json::exception& error) {
    return Failed("cannot read {} from a rank: {}", what, error.what());
  }
}

Json ToJson(const CollectiveSamples& c) {
  return Json{{"op", c.op},
              {"backend", c.backend},
              {"bytes", c.bytes},
              {"ranks", c.ranks},
              {"arrived", ToJson(c.arrived)},
              {"done", ToJson(c.done)},
              {"core_time", ToJson(c.core_time)},
              {"overlap_arrived", ToJson(c.overlap_arrived)},
              {"overlap_done", ToJson(c.overlap_done)},
              {"overlap_compute_end", ToJson(c.overlap_compute_end)},
              {"compute_rate", c.compute_rate}};
}

CollectiveSamples ToCollectiveSamples(const Json& json) {
  CollectiveSamples c;
  c.op = json.at("op").get<std::string>();
  c.backend = json.at("backend").get<std::string>();
  c.bytes = WholeNumber<int64_t>(json.at("bytes"));
  c.ranks = WholeNumber<int>(json.at("ranks"));
  c.arrived = ToDurations(json.at("arrived"));
  c.done = ToDurations(json.at("done"));
  c.core_time = ToDurations(json.at("core_time"));
  c.overlap_arrived = ToDurations(json.at("overlap_arrived"));
  c.overlap_done = ToDurations(json.at("overlap_done"));
  c.overlap_compute_end = ToDurations(json.at("overlap_compute_end"));
  c.compute_rate = json.at("compute_rate").get<std::vector<double>>();
  return c;
}

const char* NameOf(Job::Mode mode) {
  switch (mode) {
    case Job::Mode::kRun:
      return "run";
    case Job::Mode::kCalibrate:
      return "calibrate";
    case Job::Mode::kCheckCosts:
      return "check_costs";
  }
  return "";
}

Result<Job::Mode> ModeOfName(const std::string& name, const std::string& where) {
  for (const Job::Mode mode : {Job::Mode::kRun, Job::Mode::kCalibrate, Job::Mode::kCheckCosts})
    if (name == NameOf(mode)) return mode;
  return InvalidInput("{}: not a job file: mode '{}'", where, name);
}

}  // namespace

Result<Job> ParseJob(const std::string& text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    Job job;
    WT_ASSIGN_OR_RETURN(job.mode, ModeOfName(json.at("mode").get<std::string>(), where));
    job.scenario = json.at("scenario").get<std::string>();
    job.world_size = WholeNumber<int>(json.at("world_size"));
    job.local_ranks = WholeNumber<int>(json.at("local_ranks"));
    job.cores = WholeNumber<int64_t>(json.at("cores"));
    job.shares_core = json.at("shares_core").get<bool>();
    job.host = json.at("host").get<std::string>();
    job.interface = json.at("interface").get<std::string>();
    job.store_port = WholeNumber<int>(json.at("store_port"));
    job.token = json.at("token").get<std::string>();
    job.flight_record = json.at("flight_record").get<std::string>();
    job.collective_timeout_ms = WholeNumber<int64_t>(json.at("collective_timeout_ms"));
    job.restarts = WholeNumber<int>(json.at("restarts"));
    job.max_restarts = WholeNumber<int>(json.at("max_restarts"));
    job.run = ToRunOptions(json.at("run"));
    return job;
  } catch (const Json::exception& error) {
    return InvalidInput("{}: not a job file: {}", where, error.what());
  }
}

std::string Serialize(const Job& job) {
  const Json json{{"mode", NameOf(job.mode)},
                  {"scenario", job.scenario},
                  {"world_size", job.world_size},
                  {"local_ranks", job.local_ranks},
                  {"cores", job.cores},
                  {"shares_core", job.shares_core},
                  {"host", job.host},
                  {"interface", job.interface},
                  {"store_port", job.store_port},
                  {"token", job.token},
                  {"flight_record", job.flight_record},
                  {"collective_timeout_ms", job.collective_timeout_ms},
                  {"restarts", job.restarts},
                  {"max_restarts", job.max_restarts},
                  {"run", ToJson(job.run)}};
  return json.dump(2) + "\n";
}

Result<Job> ReadJob(const std::string& path) {
  WT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "a job file written by windtunnel's launcher"));
  return ParseJob(text, path);
}

Status WriteJob(const Job& job, const std::string& path) {
  std::ofstream file(path);
  file << Serialize(job);
  if (!file.flush()) return Failed("{}: cannot be written: {}", path, std::strerror(errno));
  return Ok();
}

std::string Serialize(const RankRun& run) {
  Json saves = Json::array();
  for (const RankRun::Save& save : run.saves)
    saves.push_back({save.step, save.time.picoseconds(), save.bytes.count()});
  return ToCbor(Json{{"first_step", run.first_step},
                     {"saves", saves},
                     {"steps_after_saves", run.steps_after_saves},
                     {"held_out_losses", run.held_out_losses},
                     {"held_out_sequences", run.held_out_sequences},
                     {"losses", run.losses},
                     {"mtp_losses", run.mtp_losses},
                     {"gradient_norms", run.gradient_norms},
                     {"loss_scales", run.loss_scales},
                     {"skipped_steps", run.skipped_steps},
                     {"measured", ToJson(run.measured)},
                     {"traced", ToJson(run.traced)},
                     {"initial", ToJson(run.initial)},
                     {"steady", ToJson(run.steady)},
                     {"resident_growth", run.resident_growth.count()},
                     {"outside_allocator", run.outside_allocator.count()},
                     {"core_use", run.core_use ? ToJson(*run.core_use) : Json()}});
}

Result<RankRun> ParseRankRun(const std::string& bytes) {
  return Parse<RankRun>(bytes, "a measurement", [](const Json& json) {
    RankRun run;
    run.first_step = WholeNumber<int64_t>(json.at("first_step"));
    for (const Json& save : json.at("saves")) {
      run.saves.push_back({WholeNumber<int64_t>(save.at(0)), ToDuration(save.at(1)),
                           Bytes(WholeNumber<int64_t>(save.at(2)))});
    }
    run.steps_after_saves = WholeNumber<int64_t>(json.at("steps_after_saves"));
    run.held_out_losses = json.at("held_out_losses").get<std::vector<double>>();
    run.held_out_sequences = WholeNumber<int64_t>(json.at("held_out_sequences"));
    run.losses = json.at("losses").get<std::vector<double>>();
    run.mtp_losses = json.at("mtp_losses").get<std::vector<double>>();
    run.gradient_norms = json.at("gradient_norms").get<std::vector<double>>();
    run.loss_scales = json.at("loss_scales").get<std::vector<double>>();
    run.skipped_steps = WholeNumbers<int64_t>(json.at("skipped_steps"));
    run.measured = ToTimedSteps(json.at("measured"));
    run.traced = ToTimedSteps(json.at("traced"));
    run.initial = ToPeak(json.at("initial"));
    run.steady = ToPeak(json.at("steady"));
    run.resident_growth = Bytes(WholeNumber<int64_t>(json.at("resident_growth")));
    run.outside_allocator = Bytes(WholeNumber<int64_t>(json.at("outside_allocator")));
    if (const Json& use = json.at("core_use"); !use.is_null()) run.core_use = ToCoreUse(use);
    return run;
  });
}

std::string Serialize(const RankCosts& costs) {
  const CalibrationSamples& samples = costs.samples;
  Json kernels = Json::object(), collectives = Json::array();
  for (const auto& [key, times] : samples.kernels) kernels[key] = ToJson(times);
  for (const CollectiveSamples& collective : samples.collectives) collectives.push_back(ToJson(collective));
  return ToCbor(Json{{"kernels", kernels},
                     {"dispatch", ToJson(samples.dispatch)},
                     {"common_mode", samples.common_mode},
                     {"collectives", collectives},
                     {"outside_allocator", samples.outside_allocator.count()},
                     {"core_use", costs.core_use ? ToJson(*costs.core_use) : Json()}});
}

Result<RankCosts> ParseRankCosts(const std::string& bytes) {
  return Parse<RankCosts>(bytes, "a calibration", [](const Json& json) {
    RankCosts costs;
    CalibrationSamples& samples = costs.samples;
    for (const auto& [key, times] : json.at("kernels").items()) samples.kernels[key] = ToDurations(times);
    samples.dispatch = ToDurations(json.at("dispatch"));
    samples.common_mode = json.at("common_mode").get<std::vector<double>>();
    for (const Json& collective : json.at("collectives"))
      samples.collectives.push_back(ToCollectiveSamples(collective));
    samples.outside_allocator = Bytes(WholeNumber<int64_t>(json.at("outside_allocator")));
    if (const Json& use = json.at("core_use"); !use.is_null()) costs.core_use = ToCoreUse(use);
    return costs;
  });
}

}  // namespace windtunnel
