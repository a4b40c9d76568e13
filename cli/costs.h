// The profile that a command takes its costs from: the one named, else the device's, else this machine's
// cache.
//
// The cache has one file of everything measured on this machine, and beside it a snapshot for each calibrated
// scenario. Host times and small collectives depend on what runs between them, so a scenario's own snapshot
// is preferred. Scenarios whose steady steps have the same operators share a snapshot; another seed or
// learning rate needs no other.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "cost_models/cost_drift.h"
#include "cost_models/profile.h"
#include "plan/plan.h"
#include "sim/predict.h"

namespace windtunnel {

struct Costs {
  Profile profile;
  std::string path;  // the file; new measurements are saved there
  // Whether the fingerprint and the libraries are those in use, so that measurements may be added.
  bool of_this_machine = false;
  bool cached = false;                  // from this machine's cache
  bool of_this_scenario = false;        // the cache's snapshot for the scenario asked for
  std::optional<CostCheck> check = {};  // these costs, or those that they replaced, if they were checked
};

// The files that options name, read once: a pipe can be read only once, and some commands ask for costs many
// times.
struct NamedCosts {
  std::optional<Costs> profile;               // --profile
  std::optional<FrameworkProfile> framework;  // --framework-profile
  std::string framework_file, framework_text;
};
// Errors: InvalidInput if a file is missing or malformed.
Result<NamedCosts> LoadNamedCosts(const Options& options);

// Errors: InvalidInput if the device's profile, or a file that the scenario names, is missing or malformed.
Result<Costs> FindCosts(const NamedCosts& named, const Plan& plan);
Result<Costs> FindCosts(const Options& options, const Plan& plan);

// Loads a profile by file or by name: a file NAME.json of cost_models/profiles or of the cache, else a
// built-in one.
Result<Costs> LoadCostsOf(const std::string& name);

// The device whose datasheet predicts `cluster.device: cuda` on a machine without a CUDA device.
inline constexpr char kDeviceNotAtHand[] = "h200-sxm-141g";

// This machine's cache for a device that is at hand. The profile is empty if there is no cache yet, or it is
// unreadable or of other library versions.
Result<Costs> CachedCosts(const std::string& device);
// The same, or the scenario's snapshot if there is one. A plan's operators identify its snapshot; an outline
// (plan/outline.h) has none, so pipelines are balanced by the costs of everything. `path` is the file of
// everything in either case.
Result<Costs> CachedCosts(const Plan& plan);
// Saves the profile as the scenario's snapshot. REQUIRES: costs.cached.
Status SaveSnapshot(const Costs& costs, const Plan& plan);

bool IsOfThisMachine(const Profile& profile, const Profile& machine);

// Makes the directory of `costs.path` before anything is measured that will be saved there. Errors:
// InvalidInput if it cannot be made or written to.
Status MakeCostsDirectory(const Costs& costs);

// The scenario with its pipeline's layers balanced by these costs, and by the device's memory if that is
// known. Unchanged if it has no pipeline or gives a balance, if costs of its operators are missing, or if it
// cannot be compiled.
Scenario WithBalance(Scenario scenario, const Costs& costs);

// How the user gets costs of `plan` that `costs` lack: "measure them with `windtunnel …`". `sets`: the --set
// options that make the plan's scenario of its file (" --set KEY=VALUE", or empty); nullopt: not known here.
// Reads only what an outline has (plan/outline.h).
std::string HowToGetCosts(const Costs& costs, const Plan& plan,
                          const std::optional<std::string>& sets = std::nullopt);

// Predict, with an error that says how to get the missing costs.
Result<Prediction> PredictFrom(const Costs& costs, const Plan& plan, bool fold = true, int threads = 1);

}  // namespace windtunnel
