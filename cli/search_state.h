// The processes of one search, and their results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "cli/paths.h"
#include "sim/search/state_file.h"

namespace windtunnel {

// Each process evaluates a share of the search, and has a file in which the others find its results. The
// first process's is the state file; the others append their number to its name.
class SharedState {
 public:
  // `path`: empty if results are not kept. Errors: StateFile's; InvalidInput for several processes without a
  // file.
  static Result<SharedState> Open(const std::string& path, const std::string& key);

  const JobProcess& process() const { return process_; }
  bool is_kept() const { return own_.has_value(); }
  bool IsOwn(int64_t id) const { return id % process_.count == process_.rank; }
  const std::map<int64_t, Evaluation>& known() const { return known_; }
  Status Append(int64_t id, const Evaluation& evaluation) { return own_->Append(id, evaluation); }

  // Reads the results of all processes so far.
  Status ReadAll();

 private:
  SharedState(std::string path, std::string key, JobProcess process)
      : path_(std::move(path)), key_(std::move(key)), process_(process) {}

  std::string PathOf(int rank) const;

  std::string path_, key_;
  JobProcess process_;
  std::optional<StateFile> own_;
  std::map<int64_t, Evaluation> known_;
};

}  // namespace windtunnel
