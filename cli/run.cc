#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/machine_memory.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/elapsed.h"
#include "cli/load_plan.h"
#include "cli/machine_room.h"
#include "cli/nodes.h"
#include "cli/notes.h"
#include "cli/outcomes.h"
#include "cli/outputs.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "reports/result.h"
#include "reports/table.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/files.h"
#include "runtime/checkpoint/hugging_face_weights.h"
#include "runtime/data.h"
#include "runtime/input_files.h"
#include "runtime/live.h"
#include "runtime/rank_session.h"
#include "runtime/socket.h"
#include "scenarios/changed_key.h"
#include "scenarios/characters.h"
#include "scenarios/load.h"

namespace windtunnel {
namespace {

// In a job that another launcher started, only the first rank prints.
bool IsSilentRank(const Options& options) { return JoinsJob(options) && !IsFirstRankOfJob(); }

// torchrun restarts a job with the same command line.
bool IsRestart(const Options& options) {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return JoinsJob(options) && count && std::atoi(count) > 0;
}

// A temporary checkpoint for --export, used if no checkpoints are asked for.
std::string CheckpointForExport(const Options& options) { return options.export_weights + "/.checkpoint"; }

std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

bool IsSame(const std::string& a, const std::string& b) {
  std::error_code error;
  return !a.empty() && !b.empty() && std::filesystem::equivalent(a, b, error) && !error;
}

// Whether `path` is `directory` or lies in it.
bool LiesIn(const std::string& path, const std::string& directory) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  if (error) return false;
  const std::filesystem::path outer = std::filesystem::weakly_canonical(directory, error);
  if (error) return false;
  return std::mismatch(outer.begin(), outer.end(), whole.begin(), whole.end()).first == outer.end();
}

Error WouldOverwrite(const CheckpointDirectory& directory, const std::string& latest) {
  return {
      ErrorKind::kInvalidInput,
      fmt::format("--checkpoint-dir: {} has checkpoints of a run already ({}), expected --resume to go on "
                  "from them, or an empty directory",
                  directory.path(), std::filesystem::path(latest).filename().string())};
}

// Job files and checkpoints are JSON, whose text must be UTF-8.
Status CheckIsText(const char* option, const std::string& path) {
  if (Utf8Prefix(path) == path.size()) return Ok();
  return InvalidInput("{}: the path {} is not UTF-8", option,
                      Printable(path.substr(0, Utf8Prefix(path))) + "…");
}

// The error, prefixed with the option whose value it is about.
Status OfOption(const char* option, const Error& error) {
  return tl::unexpected(Error{error.kind, fmt::format("{}: {}", option, error.message)});
}

// Checks the ranks' inputs first, so that no rank has to fail on them.
Status CheckInputs(const Options& options, const Plan& plan) {
  // Costs at most balance a pipeline here, but the files that are named must exist.
  if (!options.profile.empty() || !options.framework_profile.empty())
    WT_RETURN_IF_ERROR(FindCosts(options, plan));
  if (const auto data = MakeDataSource(plan.scenario); !data) return tl::unexpected(data.error());
  if (!options.resume_from.empty()) {
    if (const auto from = Checkpoint::Open(options.resume_from); !from)
      return OfOption("--resume-from", from.error());
  }
  if (options.import_weights.empty()) return Ok();
  const auto weights = OpenHuggingFaceWeights(options.import_weights, plan.scenario.model);
  return weights ? Ok() : OfOption("--import", weights.error());
}

// Refuses a directory that is a checkpoint itself: the run that owns the checkpoint would delete its files
// with it.
Status CheckIsNoCheckpoint(const char* option, const std::string& path) {
  if (path.empty() || !IsCheckpoint(path)) return Ok();
  return InvalidInput(
      "{}: {} is a checkpoint, expected another directory: the one that has it, or a new one (with "
      "--resume-from {})",
      option, path, path);
}

// Refuses to resume from what a failed export has left in its directory: another export into it begins by
// removing that.
Status CheckKeepsResumed(const Options& options) {
  if (options.resume_from.empty() || !options.checkpoint_dir.empty()) return Ok();
  if (!LiesIn(Absolute(options.resume_from), Absolute(CheckpointForExport(options)))) return Ok();
  return InvalidInput(
      "--export: {0} would lose {1}, which --resume-from reads, expected another directory, or "
      "`windtunnel checkpoint export {1} --out {0}` for its weights as they are",
      options.export_weights, options.resume_from);
}

Status CheckOutputDirectories(const Options& options, const ModelSpec& model) {
  const std::pair<const char*, const std::string&> paths[] = {{"--checkpoint-dir", options.checkpoint_dir},
                                                              {"--export", options.export_weights},
                                                              {"--tensorboard", options.tensorboard},
                                                              {"--resume-from", options.resume_from},
                                                              {"--import", options.import_weights}};
  for (const auto& [option, path] : paths) WT_RETURN_IF_ERROR(CheckIsText(option, Absolute(path)));
  WT_RETURN_IF_ERROR(CheckIsNoCheckpoint("--checkpoint-dir", options.checkpoint_dir));
  WT_RETURN_IF_ERROR(CheckIsNoCheckpoint("--export", options.export_weights));
  if (!options.export_weights.empty()) {
    if (const Status named = CheckHuggingFaceExport(model); !named) return OfOption("--export", named.error());
    std::error_code error;
    const std::filesystem::path imported = Absolute(options.import_weights);
    const bool is_file = std::filesystem::is_regular_file(imported, error);
    if (IsSame(options.export_weights, is_file ? imported.parent_path().string() : options.import_weights))
      return InvalidInput("--export and --import are both {}, expected different directories",
                          options.export_weights);
    WT_RETURN_IF_ERROR(CheckKeepsResumed(options));
  }
  WT_RETURN_IF_ERROR(CheckOutputDirectory("--checkpoint-dir", options.checkpoint_dir));
  if (options.node_rank.value_or(0) > 0) return Ok();  // the first node writes the others
  WT_RETURN_IF_ERROR(CheckOutputDirectory("--export", options.export_weights));
  return CheckOutputDirectory("--tensorboard", options.tensorboard);
}

Result<RunOptions> RunOptionsOf(const Options& options, bool silent) {
  RunOptions run;
  run.checkpoint_every = options.checkpoint_every.value_or(0);
  run.keep = options.keep;
  run.resumes = options.resume || !options.resume_from.empty() || IsRestart(options);
  run.resume_from = Absolute(options.resume_from);
  run.import_weights = Absolute(options.import_weights);
  run.evaluates = options.evaluate;
  if (options.checkpoint_dir.empty()) {
    if (options.export_weights.empty()) return run;
    run.checkpoints = Absolute(CheckpointForExport(options));
    std::error_code ignored;
    if (!silent) std::filesystem::remove_all(run.checkpoints, ignored);  // left by an interrupted run
    return run;
  }
  run.checkpoints = Absolute(options.checkpoint_dir);
  const CheckpointDirectory directory(run.checkpoints);
  const auto latest = directory.Latest();
  if (!options.resume && !IsRestart(options)) {
    if (latest && !IsSame(run.resume_from, *latest) && !IsSame(run.resume_from, directory.path()))
      return tl::unexpected(WouldOverwrite(directory, *latest));
    return run;
  }
  WT_RETURN_IF_ERROR(directory.CheckWhole());
  if (latest) run.resume_from = *latest;
  else if (!silent && run.resume_from.empty())
    Note(options, fmt::format("no checkpoint in {} yet: beginning from step 0", run.checkpoints));
  return run;
}

// Notes the keys that a resumed run continues with other values of. Changes that are not allowed are refused
// by the ranks.
void NoteChanges(const Options& options, const Plan& plan, const std::string& resume_from) {
  const auto checkpoint = Checkpoint::Open(resume_from);
  if (!checkpoint) return;
  const std::string now = ResolvedYaml(plan.scenario);
  for (const char* block : {"data", "optimizer"}) {
    std::vector<std::string> noted;
    for (;;) {
      const auto changed = FindChangedKey(now, checkpoint->info().scenario, block, noted);
      if (!changed || !*changed) break;
      Note(options, fmt::format("{} is {}; until {} the run had {}", (*changed)->key, (*changed)->now,
                                checkpoint->path(), (*changed)->before));
      noted.push_back((*changed)->key);
    }
  }
  const std::string before = checkpoint->info().data, digest = DigestOfData(plan.scenario);
  if (!before.empty() && !digest.empty() && before != digest)
    Note(options, fmt::format("data: {} has another text than the run had until {}", plan.scenario.data,
                              checkpoint->path()));
}

Result<LiveOptions> LiveOptionsOf(const Options& options, Progress& progress, bool silent) {
  LiveOptions live = silent ? LiveOptions{} : LiveOptionsFor(options, progress);
  WT_ASSIGN_OR_RETURN(live.run, RunOptionsOf(options, silent));
  live.max_restarts = options.max_restarts;
  live.flight_record = options.flight_record;
  live.rendezvous_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.rendezvous_timeout_s * 1000));
  if (options.collective_timeout_s) {
    live.collective_timeout =
        std::chrono::milliseconds(static_cast<int64_t>(*options.collective_timeout_s * 1000));
  }
  return live;
}

// Two runs that save to one directory would remove each other's checkpoints.
Result<std::vector<DirectoryLock>> LockDirectories(const Options& options) {
  std::vector<DirectoryLock> locks;
  const auto take = [&](const char* option, Result<DirectoryLock> taken) -> Status {
    if (!taken) return Failed("{}: {}", option, taken.error().message);
    locks.push_back(*std::move(taken));
    return Ok();
  };
  if (!options.checkpoint_dir.empty())
    WT_RETURN_IF_ERROR(take("--checkpoint-dir", DirectoryLock::Take(Absolute(options.checkpoint_dir))));
  if (!options.export_weights.empty())
    WT_RETURN_IF_ERROR(take("--export", DirectoryLock::TakeWithoutFile(Absolute(options.export_weights))));
  return locks;
}

// Removes the checkpoint that exists only for --export, unless `keep` is set.
struct ExportCleaner {
  const Options& options;
  const RunOptions& run;
  bool keep = false;
  ~ExportCleaner() {
    std::error_code ignored;
    const bool is_for_export = !options.export_weights.empty() && options.checkpoint_dir.empty();
    if (is_for_export && !keep) std::filesystem::remove_all(run.checkpoints, ignored);
  }
};

// Without -q restarts are said when they happen, else at the end, whichever that is.
Result<Measurement> Train(const Options& options, const Plan& plan, LiveOptions live) {
  std::vector<std::string> restarts;
  if (options.quiet) live.note = [&](const std::string& reason) { restarts.push_back(reason); };
  Result<Measurement> measured = JoinsJob(options) ? JoinLive(plan, live) : RunLive(plan, live);
  for (const std::string& reason : restarts)
    std::fprintf(stderr, "windtunnel: restarted after an error: %s\n", reason.c_str());
  return measured;
}

// Exports the newest checkpoint. A run that had no step left saved none; then the one that it would have
// resumed from.
Status Export(const Options& options, const RunOptions& run, ExportCleaner& cleaner) {
  if (options.export_weights.empty()) return Ok();
  const bool has_saved = CheckpointDirectory(run.checkpoints).Latest().has_value();
  WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                      Checkpoint::Open(has_saved ? run.checkpoints : run.resume_from));
  const Status exported = ExportHuggingFace(checkpoint, options.export_weights);
  if (exported) return Ok();
  cleaner.keep = has_saved;
  return tl::unexpected(
      Error{exported.error().kind, fmt::format("{}; `windtunnel checkpoint export {}` has the weights",
                                               exported.error().message, checkpoint.path())});
}

// For a run that had all its steps already. It may have evaluated.
Result<int> ReportNothingLeft(const Options& options, const RunOptions& run,
                              const std::vector<Outcome>& outcomes) {
  const Measurement& measurement = *outcomes[0].measurement;
  Note(options,
       fmt::format("{} has all {} steps of the run already", run.resume_from, measurement.first_step));
  const std::pair<const char*, std::string> pictures[] = {
      {"--html", options.html}, {"--svg", options.svg}, {"--trace", options.trace}};
  for (const auto& [flag, file] : pictures)
    if (!file.empty())
      Note(options, fmt::format("{} {} is not written: there is no step to show", flag, file));
  if (measurement.evaluation) Note(options, DescribeEvaluation(*measurement.evaluation));
  if (!options.json.empty()) WT_RETURN_IF_ERROR(WriteText(options.json, ResultJson(outcomes)));
  return 0;
}

Result<int> ReportRun(const Options& options, const RunOptions& run, const std::vector<Outcome>& outcomes) {
  if (outcomes[0].measurement->step_times.empty()) return ReportNothingLeft(options, run, outcomes);
  WT_RETURN_IF_ERROR(Report(options, outcomes));
  // Also with -q, and where the table goes nowhere.
  if (const auto divergence = DescribeDivergence(*outcomes[0].measurement))
    std::fprintf(stderr, "windtunnel: %s\n", divergence->c_str());
  return 0;
}

}  // namespace

Result<int> RunLiveCommand(const Options& options) {
  IgnoreBrokenPipes();  // training outlives the reader of its messages
  WT_RETURN_IF_ERROR(CheckReports(options));
  WT_ASSIGN_OR_RETURN(Plan plan, LoadPlan(options, options.files.front(), PlanFor::kRun));
  const bool joins = JoinsJob(options);
  const bool silent = IsSilentRank(options);
  WT_RETURN_IF_ERROR(CheckInputs(options, plan));
  // Before the nodes meet: giving the command on each of them would not help.
  if (!joins) WT_RETURN_IF_ERROR(CheckRunsHere(plan));
  if (!silent) WT_RETURN_IF_ERROR(CheckOutputDirectories(options, plan.scenario.model));
  // Of ranks that another launcher started, nobody knows which others are on this machine.
  if (!joins) WT_RETURN_IF_ERROR(CheckRoomFor(plan, options.node_rank.value_or(0), MachineMemory()));
  std::vector<DirectoryLock> locks;
  if (!silent && options.node_rank.value_or(0) == 0) {
    WT_ASSIGN_OR_RETURN(locks, LockDirectories(options));
  }
  Progress progress(false);  // the lines of steps show the progress
  WT_ASSIGN_OR_RETURN(LiveOptions live, LiveOptionsOf(options, progress, silent));
  if (!silent && !live.run.resume_from.empty()) NoteChanges(options, plan, live.run.resume_from);
  ExportCleaner cleaner{options, live.run, silent || options.node_rank.value_or(0) > 0};
  live.run.reporting = {options.log_every, !options.quiet, Absolute(options.tensorboard),
                        DensePeak(plan, MachineProfile(KindOfDevice(plan.scenario.cluster.device))),
                        IsRestart(options)};
  std::unique_ptr<NodeGroup> nodes;
  if (!joins) {
    WT_ASSIGN_OR_RETURN(nodes, MeetNodes(options, plan));
    live.nodes = nodes.get();
  }
  if (nodes != nullptr && nodes->node() > 0) {
    WT_RETURN_IF_ERROR(FollowNode(*nodes, live));
    return 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  WT_ASSIGN_OR_RETURN(Measurement measurement, Train(options, plan, live));
  const Duration wall = TimeSince(begin);
  if (silent) return 0;
  WT_RETURN_IF_ERROR(Export(options, live.run, cleaner));
  std::vector<Outcome> outcomes(1);
  outcomes[0].plan = std::move(plan);
  outcomes[0].profile = MachineProfile(KindOfDevice(outcomes[0].plan.scenario.cluster.device));
  outcomes[0].measurement = std::move(measurement);
  outcomes[0].measurement_wall = wall;
  return ReportRun(options, live.run, outcomes);
}

}  // namespace windtunnel
