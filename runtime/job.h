// What a launcher tells its ranks and what they return, as files and store values of this
// binary's own (not a public format).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost_models/fit.h"
#include "runtime/core_use.h"
#include "runtime/run_options.h"
#include "runtime/timed_steps.h"

namespace windtunnel {

struct Job {
  enum class Mode { kRun, kCalibrate, kCheckCosts } mode = Mode::kRun;
  std::string scenario;  // resolved, YAML
  int world_size = 1;
  int local_ranks = 1;                  // on each node
  int64_t cores = 1;                    // of the node; its ranks share them
  bool shares_core = false;             // whether this machine has more ranks, of whichever node, than cores
  std::string host = "127.0.0.1";       // of the store
  std::string interface = "127.0.0.1";  // of this node, on which communicators listen
  int store_port = 0;
  std::string token;
  std::string flight_record;  // path
  int64_t collective_timeout_ms = 60'000;
  int restarts = 0, max_restarts = 0;  // launches of the same job before this one, and their maximum
  RunOptions run;
};
Result<Job> ReadJob(const std::string& path);
Result<Job> ParseJob(const std::string& text, const std::string& where);
std::string Serialize(const Job& job);
Status WriteJob(const Job& job, const std::string& path);

// What one rank measured in a run. Steps count from 0; the first measured one is `warmup`.
struct RankRun {
  // A saved checkpoint: the steps done, the time that the rank took, and the bytes that it wrote.
  struct Save {
    int64_t step = 0;
    Duration time;
    Bytes bytes;
  };
  int64_t first_step = 0;  // of this run; earlier steps are in the checkpoint that it resumed from
  std::vector<Save> saves;
  int64_t steps_after_saves = 0;               // left out of the measured ones because they follow a save
  std::vector<double> held_out_losses;         // by batch; empty: not evaluated, or another rank has them
  int64_t held_out_sequences = 0;              // of all ranks
  std::vector<double> losses, gradient_norms;  // of every step
  std::vector<double> mtp_losses;              // likewise, step by step, of each module of model.mtp
  std::vector<double> loss_scales;             // after every step, where the rank scales its loss
  std::vector<int64_t> skipped_steps;          // their numbers; they are not among the measured ones
  TimedSteps measured;                         // timelines are without spans where `traced` has some
  TimedSteps traced;                           // further steps, whose operators were timed one by one
  MemoryPeak initial, steady;
  Bytes resident_growth, outside_allocator;
  std::optional<CoreUse> core_use;  // over all steps
};

// What one rank has calibrated.
struct RankCosts {
  CalibrationSamples samples;
  std::optional<CoreUse> core_use = {};  // meanwhile
};

// CBOR. Parse errors are Failed: a peer of another version.
std::string Serialize(const RankRun& run);
Result<RankRun> ParseRankRun(const std::string& bytes);
std::string Serialize(const RankCosts& costs);
Result<RankCosts> ParseRankCosts(const std::string& bytes);

}  // namespace windtunnel
