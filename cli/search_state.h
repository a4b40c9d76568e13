// The processes of one search, and their results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/paths.h"
#include "sim/search/state_file.h"

namespace windtunnel {

// Each process evaluates a share of the search, and has a file in which the others find its results. The
// first process's is the state file; the others append their number to its name.
class SharedState {
 public:
  // `path`: empty if results are not kept. `configurations`: how many the processes share. Errors: StateFile's;
  // InvalidInput for several processes without a file.
  static Result<SharedState> Open(const std::string& path, const std::string& key, size_t configurations);

  const JobProcess& process() const { return process_; }
  bool is_kept() const { return own_.has_value(); }
  // The processes take turns by runs of neighbours, which share what an evaluation is made of.
  bool IsOwn(int64_t id) const { return id / neighbours_ % process_.count == process_.rank; }
  const std::map<int64_t, Evaluation>& known() const { return known_; }
  Status Append(int64_t id, const Evaluation& evaluation) { return own_->Append(id, evaluation); }

  // Reads the results of all processes so far, from the files that have grown.
  Status ReadAll();

 private:
  static constexpr size_t kTurns = 8;  // of each process: some neighbours take longer than others

  SharedState(std::string path, std::string key, JobProcess process, size_t configurations)
      : path_(std::move(path)),
        key_(std::move(key)),
        process_(process),
        neighbours_(static_cast<int64_t>(
            std::max<size_t>(configurations / (kTurns * static_cast<size_t>(process.count)), 1))) {}

  std::string PathOf(int rank) const;

  std::string path_, key_;
  JobProcess process_;
  int64_t neighbours_ = 1;
  std::optional<StateFile> own_;
  std::map<int64_t, Evaluation> known_;
  std::vector<std::uintmax_t> read_;  // by process: the bytes of its file when it was last read
};

}  // namespace windtunnel
