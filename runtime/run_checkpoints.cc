#include "runtime/run_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/host_name.h"
#include "runtime/checkpoint/hugging_face_weights.h"
#include "scenarios/changed_key.h"
#include "scenarios/load.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

namespace fs = std::filesystem;

// How long to wait for another rank, which may still open what it resumes from.
constexpr std::chrono::minutes kPatience{5};

// Set once a rank's process has ended.
constexpr char kGone[] = "save/gone";

// Says which rank could not write its part first, and why. That rank removes what it has written, and where
// nobody else has written yet the directory too, so that the others fail as well, for no reason of their own.
constexpr char kFailure[] = "save/failure";

// Counts what ranks have written of checkpoints.
constexpr char kWritten[] = "save/written";

// Counts the arrivals of all ranks at meetings, and those of one rank.
constexpr char kArrivals[] = "save/arrivals";
std::string ArrivalsOf(int rank) { return fmt::format("save/arrivals of rank {}", rank); }

// How long a file of another node may stay unseen.
constexpr std::chrono::seconds kUntilSeen{5};

// Makes an empty file with a name of its own, in a directory that is made if it is missing.
std::pair<std::string, Status> LeaveFile(const std::string& directory) {
  std::string name = fmt::format(".rank_00000_{:08x}", std::random_device{}());
  std::error_code error;
  fs::create_directories(directory, error);
  const std::string path = directory + "/" + name;
  if (!error && std::ofstream(path)) return {std::move(name), Ok()};
  const char* why = error ? "" : strerror(errno);
  return {std::move(name), Failed("{}: cannot be written: {}", path, error ? error.message() : why)};
}

// Removes a file in the end.
struct FileRemover {
  fs::path path;
  ~FileRemover() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

// Whether the file is there. In a file system of several nodes it may appear a little later.
bool Appears(const fs::path& file) {
  const auto until = std::chrono::steady_clock::now() + kUntilSeen;
  for (std::error_code ignored; !fs::exists(file, ignored);) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // NFS remembers for half a minute that something was not there, unless a directory is opened.
    for (const fs::path& directory : {file.parent_path().parent_path(), file.parent_path()})
      fs::directory_iterator(directory, ignored);
  }
  return true;
}

std::string OptimizerOf(const Plan& plan) { return std::string(WordOf(plan.scenario.optimizer.kind)); }

Result<LossScaleState> LossScaleOf(const Executor& executor) {
  WT_ASSIGN_OR_RETURN(const std::optional<LossScaleState> state, executor.LossScale());
  if (state) return *state;
  WT_ASSIGN_OR_RETURN(const int64_t skipped, executor.SkippedSteps());
  return LossScaleState{.skipped_steps = skipped};
}

Status Load(const TensorSource& source, RankSession& session, bool with_optimizer) {
  Status set = Ok();
  WT_RETURN_IF_ERROR(LoadPieces(source, session.plan(), session.rank(), with_optimizer,
                                [&](const Slice& slice, std::span<const float> values) {
                                  if (set) set = session.executor().SetValues(slice, values);
                                }));
  return set;
}

Status CheckModel(const Plan& plan, const Checkpoint& checkpoint) {
  // With other values of these keys the parameters mean the same.
  const std::vector<std::string> free = {
      "model.seq_len",    "model.encoder.seq_len",         "model.attention",
      "model.dropout",    "model.experts.capacity_factor", "model.experts.imbalance",
      "model.mamba.chunk"};
  WT_ASSIGN_OR_RETURN(const auto changed,
                      FindChangedKey(ResolvedYaml(plan.scenario), checkpoint.info().scenario, "model", free));
  if (!changed) return Ok();
  return InvalidInput("{} is {}, but {} was saved with {}: a run goes on with the model that it began with",
                      changed->key, changed->now, checkpoint.path(), changed->before);
}

}  // namespace

Result<int64_t> RunCheckpoints::Begin() {
  // The process that serves the store cannot bequeath anything and need not: the store ends with it.
  if (!options_.checkpoints.empty() && session_.plan().world_size > 1)
    (void)store_.Bequeath(kGone, fmt::format("rank {}", session_.rank()));
  WT_RETURN_IF_ERROR(AgreeThatThereIsOne());
  WT_RETURN_IF_ERROR(AgreeOnDirectory());
  if (!options_.resume_from.empty()) {
    WT_RETURN_IF_ERROR(Resume());
  } else if (!options_.import_weights.empty()) {
    WT_RETURN_IF_ERROR(Import());
  }
  return session_.steps_done();
}

Status RunCheckpoints::Resume() {
  WT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenTheSame());
  const CheckpointInfo& info = checkpoint.info();
  const Plan& plan = session_.plan();
  if (info.seed != plan.scenario.run.seed) {
    return InvalidInput("run.seed is {}, but {} was saved with {}: data and random numbers go on from there",
                        plan.scenario.run.seed, checkpoint.path(), info.seed);
  }
  if (info.optimizer != OptimizerOf(plan)) {
    return InvalidInput("optimizer.kind is {}, but {} was saved with {}; --import takes weights alone",
                        OptimizerOf(plan), checkpoint.path(), info.optimizer);
  }
  WT_RETURN_IF_ERROR(CheckModel(plan, checkpoint));
  if (info.step > steps_) {
    return InvalidInput(
        "the run ends after {} steps, run.steps behind the warm-up, but {} has {} steps already", steps_,
        checkpoint.path(), info.step);
  }
  return session_.GoOn(info.step, info.samples, [&]() -> Status {
    WT_RETURN_IF_ERROR(session_.executor().SetLossScale(info.loss_scale));
    return Load(checkpoint, session_, /*with_optimizer=*/info.step > 0);
  });
}

// Checks that all ranks see a checkpoint or none does: each process that another
// launcher started looks for itself.
Status RunCheckpoints::AgreeThatThereIsOne() {
  const int ranks = session_.plan().world_size;
  if (!options_.resumes || ranks == 1) return Ok();
  const auto key = [](int rank) { return fmt::format("resume/seen by rank {}", rank); };
  const auto seen = options_.resume_from.empty()
                        ? fmt::format("no checkpoint in {} on {}", options_.checkpoints, HostName())
                        : options_.resume_from;
  const std::string own = (options_.resume_from.empty() ? "-" : "+") + seen;
  WT_RETURN_IF_ERROR(store_.Set(key(session_.rank()), own));
  // Rank 0 asks all others, and they ask rank 0.
  for (int other = 0; other < (session_.rank() == 0 ? ranks : 1); ++other) {
    if (other == session_.rank()) continue;
    WT_ASSIGN_OR_RETURN(const std::string theirs, store_.Get(key(other), kPatience));
    if (theirs.starts_with("+") != own.starts_with("+"))
      return InvalidInput("rank {} sees {}, rank {} {}: all ranks must find the same checkpoint",
                          session_.rank(), own.substr(1), other, theirs.substr(1));
  }
  return Ok();
}

// Every rank writes its part of a checkpoint in rank 0's directory, but on other nodes that
// path may be another directory. This is checked before there is a step to lose: rank 0 leaves
// a file there that all look for.
Status RunCheckpoints::AgreeOnDirectory() {
  const int ranks = session_.plan().world_size;
  if (options_.checkpoints.empty() || ranks == 1 || SharesProcess(session_.plan())) return Ok();
  constexpr char kFile[] = "save/file of rank 0", kVerdict[] = "save/verdict";
  const auto key = [](int rank) { return fmt::format("save/seen by rank {}", rank); };
  const std::string own = fmt::format("{} on {}", options_.checkpoints, HostName());
  std::string verdict;
  if (session_.rank() > 0) {
    WT_ASSIGN_OR_RETURN(const std::string name, store_.Get(kFile, kPatience));
    if (name.empty()) return Failed("rank 0 cannot write where checkpoints go");
    const bool sees = Appears(fs::path(options_.checkpoints) / name);
    WT_RETURN_IF_ERROR(store_.Set(key(session_.rank()), sees ? "" : own));
    WT_ASSIGN_OR_RETURN(verdict, store_.Get(kVerdict, kPatience));
  } else {
    const auto [name, made] = LeaveFile(options_.checkpoints);
    const FileRemover remover{fs::path(options_.checkpoints) / name};
    WT_RETURN_IF_ERROR(store_.Set(kFile, made ? name : ""));
    if (!made) return made;
    for (int other = 1; other < ranks; ++other) {
      WT_ASSIGN_OR_RETURN(const std::string unseen, store_.Get(key(other), kPatience));
      if (verdict.empty() && !unseen.empty())
        verdict = fmt::format(
            "rank {} ({}) does not see what rank 0 writes in {}: all ranks write their parts of a "
            "checkpoint, expected a directory that all of them share",
            other, unseen, own);
    }
    WT_RETURN_IF_ERROR(store_.Set(kVerdict, verdict));
  }
  if (verdict.empty()) return Ok();
  return Failed("{}", verdict);
}

// A process that another launcher started looks for the latest checkpoint itself, in a file system that may
// not show it yet what rank 0 sees.
Result<Checkpoint> RunCheckpoints::OpenTheSame() {
  constexpr char kKey[] = "resume/rank 0";
  WT_ASSIGN_OR_RETURN(Checkpoint own, Checkpoint::Open(options_.resume_from));
  if (session_.plan().world_size == 1) return own;
  if (session_.rank() == 0) {
    WT_RETURN_IF_ERROR(store_.Set(kKey, own.identity()));
    return own;
  }
  WT_ASSIGN_OR_RETURN(const std::string expected, store_.Get(kKey, kPatience));
  if (own.identity() == expected) return own;
  const fs::path directory = (fs::path(own.path()) / "").parent_path().parent_path();
  auto named = Checkpoint::Open((directory / expected.substr(0, expected.find(' '))).string());
  if (named && named->identity() == expected) return named;
  return InvalidInput(
      "rank {} would go on from {}, whose metadata are '{}', and rank 0 from '{}': all ranks must find the "
      "same checkpoint",
      session_.rank(), own.path(), own.identity(), expected);
}

Status RunCheckpoints::Import() {
  WT_ASSIGN_OR_RETURN(const auto weights,
                      OpenHuggingFaceWeights(options_.import_weights, session_.plan().scenario.model));
  return session_.GoOn(0, 0, [&] { return Load(*weights, session_, /*with_optimizer=*/false); });
}

// Not a collective, whose deadline is for ranks that do the same: one rank may write gigabytes while the
// others wait here. They wait as long as it writes something.
Status RunCheckpoints::Meet() {
  const int ranks = session_.plan().world_size;
  if (ranks == 1) return Ok();
  WT_ASSIGN_OR_RETURN(const int64_t meeting, store_.Add(ArrivalsOf(session_.rank()), 1));
  WT_RETURN_IF_ERROR(store_.Add(kArrivals, 1));
  // Nobody comes to the next meeting before all have come to this one.
  const int64_t of_all = meeting * ranks;
  int64_t written = -1;
  auto moved = std::chrono::steady_clock::now();
  // Once another rank is gone, a rank that waits has little time to remove what it has written.
  while (!store_.WaitForCount(kArrivals, of_all, std::chrono::milliseconds(50))) {
    WT_ASSIGN_OR_RETURN(const bool is_one_gone, store_.Has(kGone));
    WT_ASSIGN_OR_RETURN(const int64_t arrivals, store_.Add(kArrivals, 0));
    if (arrivals >= of_all) continue;
    WT_RETURN_IF_ERROR(FirstFailure());
    if (is_one_gone) {
      WT_ASSIGN_OR_RETURN(const std::string who, store_.Get(kGone, std::chrono::milliseconds(0)));
      return Failed("{} has ended while step {} was saved", who, session_.steps_done());
    }
    WT_ASSIGN_OR_RETURN(const int64_t now_written, store_.Add(kWritten, 0));
    if (std::exchange(written, now_written) != now_written) moved = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - moved > options_.save_patience) return NobodyWrites(meeting);
  }
  return Ok();
}

Status RunCheckpoints::FirstFailure() {
  const Result<bool> is_known = store_.Has(kFailure);
  if (!is_known || !*is_known) return Ok();
  WT_ASSIGN_OR_RETURN(const std::string failure, store_.Get(kFailure, std::chrono::milliseconds(0)));
  return Failed("step {} is not saved: {}", session_.steps_done(), failure);
}

Status RunCheckpoints::NobodyWrites(int64_t meeting) {
  std::vector<int> missing;
  for (int rank = 0; rank < session_.plan().world_size; ++rank) {
    WT_ASSIGN_OR_RETURN(const int64_t meetings, store_.Add(ArrivalsOf(rank), 0));
    if (meetings < meeting) missing.push_back(rank);
  }
  return Failed("step {} was being saved, and nothing has been written for {} s: {} {} did not finish {}",
                session_.steps_done(), std::chrono::duration<double>(options_.save_patience).count(),
                missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
                missing.size() == 1 ? "its part" : "their parts");
}

Status RunCheckpoints::AfterStep() {
  const int64_t step = session_.steps_done();
  const bool is_due = options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0;
  if (options_.checkpoints.empty() || (!is_due && step != steps_)) return Ok();
  const auto start = std::chrono::steady_clock::now();
  const Plan& plan = session_.plan();
  SaveOptions save;
  WT_ASSIGN_OR_RETURN(const LossScaleState loss_scale, LossScaleOf(session_.executor()));
  save.info = {step,
               session_.loader().SamplesSeen(step),
               plan.scenario.run.seed,
               plan.world_size,
               OptimizerOf(plan),
               ResolvedYaml(plan.scenario),
               data_,
               loss_scale};
  save.keep = options_.keep;
  save.barrier = [&] { return Meet(); };
  save.values = [&](const Slice& slice) -> Result<std::vector<float>> {
    if (plan.world_size > 1) WT_RETURN_IF_ERROR(store_.Add(kWritten, 1));
    WT_ASSIGN_OR_RETURN(const std::span<const float> values, session_.executor().Values(slice));
    // Saved, they would take the place of a checkpoint from which training can go on.
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
      return Failed(
          "training has diverged: after step {} '{}' has values that are infinite or not numbers, so the "
          "step is not saved; earlier checkpoints stay",
          step, session_.executor().role().buffers[static_cast<size_t>(slice.buffer)].name);
    }
    return std::vector<float>(values.begin(), values.end());
  };
  const CheckpointDirectory directory(options_.checkpoints);
  const Result<int64_t> bytes = SaveCheckpoint(directory, plan, session_.rank(), save);
  if (!bytes) {
    Status failure = tl::unexpected(bytes.error());
    if (plan.world_size > 1) {
      if (const Status first = FirstFailure(); !first) {
        failure = first;
      } else {
        (void)store_.Set(kFailure, fmt::format("rank {}: {}", session_.rank(), bytes.error().message));
      }
    }
    directory.Abandon(step, session_.rank());
    return failure;
  }
  saves_.push_back({step, DurationOf(std::chrono::steady_clock::now() - start), Bytes(*bytes)});
  return Ok();
}

}  // namespace windtunnel
