// A file to which a search appends its results, so that it can go on after an interruption.
//
// The first line is "windtunnel-search-state 2 KEY", where KEY consists of digests of the scenario, its
// ranges and the profile. Only a search with the same KEY reads on. Then there is a line for each evaluated
// configuration: its number, outcome (f: feasible; b: feasible, its time is a lower bound; i: infeasible; r:
// refused), picoseconds, bytes, and the reason of a refusal. A last line that was cut short is dropped.
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "base/result.h"
#include "sim/search/evaluator.h"

namespace windtunnel {

class StateFile {
 public:
  // The evaluations in a file, which another process may be writing; empty if there is no file. Errors:
  // InvalidInput for a file of another search.
  static Result<std::map<int64_t, Evaluation>> Read(const std::string& path, const std::string& key);
  // Opens or creates `path`, for this process alone as long as the result lives. Errors: InvalidInput while
  // another process has it open; those of Read; Failed if it cannot be written.
  static Result<StateFile> Open(const std::string& path, const std::string& key);
  StateFile(StateFile&& other) noexcept;
  StateFile& operator=(StateFile&&) = delete;
  ~StateFile();

  // Appends a line, which survives if this process ends at any later moment. Line breaks in a reason become
  // spaces. Errors: Failed if the file cannot be written.
  Status Append(int64_t id, const Evaluation& evaluation);

 private:
  StateFile() = default;

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace windtunnel
