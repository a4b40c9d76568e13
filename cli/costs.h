// Which profile a command takes its costs from: the one named, else the device's, else this machine's cache.
//
// The cache has a file of everything measured on this machine, and beside it a snapshot for each scenario
// that was calibrated: host times and small collectives depend on what runs between them, so a scenario's own
// are preferred. Scenarios whose steady steps have the same operators share one: a seed or a learning rate
// makes no other.
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
  std::string path;  // where it is kept: new measurements are saved there
  bool of_this_machine =
      false;  // the fingerprint and the libraries are those in use, so that measurements may be added
  bool cached = false;                  // from this machine's cache
  bool of_this_scenario = false;        // the cache's snapshot for the scenario asked for
  std::optional<CostCheck> check = {};  // where they, or those that they took the place of, were checked
};

// The files that options name, read: for commands that ask for many costs once, since a pipe can be read only once.
struct NamedCosts {
  std::optional<Costs> profile;               // --profile
  std::optional<FrameworkProfile> framework;  // --framework-profile
  std::string framework_file, framework_text;
};
// Errors: InvalidInput when one is missing or malformed.
Result<NamedCosts> LoadNamedCosts(const Options& options);

// Errors: InvalidInput when the device's profile, or what the scenario names, is missing or malformed.
Result<Costs> FindCosts(const NamedCosts& named, const Plan& plan);
Result<Costs> FindCosts(const Options& options, const Plan& plan);

// A profile by file or by name (a file NAME.json of cost_models/profiles or of the cache, else one that is built in).
Result<Costs> LoadNamedCosts(const std::string& name);

// Whose datasheet `cluster.device: cuda` is predicted by where there is no such device.
inline constexpr char kDeviceNotAtHand[] = "h200-sxm-141g";

// This machine's cache for a device that is at hand; an empty profile when there is none yet, or it is of other library versions or not
// readable.
Result<Costs> CachedCosts(const std::string& device);
// The same, or the scenario's snapshot where there is one, which its operators say: an outline (plan/outline.h) has none, so that pipelines
// are balanced by what everything costs. `path` is the file of everything in either case.
Result<Costs> CachedCosts(const Plan& plan);
// Keeps the profile as the scenario's snapshot. REQUIRES: costs.cached.
Status SaveSnapshot(const Costs& costs, const Plan& plan);

bool IsOfThisMachine(const Profile& profile, const Profile& machine);

// Makes the directory of `costs.path`, before anything is measured that will be saved there. Errors: InvalidInput where it cannot be made
// or written in.
Status MakeCostsDirectory(const Costs& costs);

// The scenario with the pipeline's layers balanced by these costs, and by the device's memory where that is known. As it is: without a
// pipeline, with a balance of its own, where costs of its operators are missing, or where it cannot be compiled.
Scenario WithBalance(Scenario scenario, const Costs& costs);

// Predict, with an error that says how to come by the costs that are missing.
Result<Prediction> PredictFrom(const Costs& costs, const Plan& plan, bool fold = true, int threads = 1);

}  // namespace windtunnel
