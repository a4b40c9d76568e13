// What a search has found so far, in a file that it appends to, so that it can go on after an interruption.
//
// The first line is "windtunnel-search-state 2 KEY", of whose KEY (digests of the scenario, its ranges and the profile) only a search
// with the same one reads on. Then a line for each evaluated configuration: its number, outcome (f; b where the time is a lower bound; i or r), picoseconds, bytes, and
// the reason of a refusal. A last line that was cut short is dropped.
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "base/result.h"
#include "sim/search/evaluator.h"

namespace windtunnel {

class StateFile {
 public:
  // What a file has, which another process may be writing; nothing where there is none. Errors: InvalidInput for a file of another search.
  static Result<std::map<int64_t, Evaluation>> Read(const std::string& path, const std::string& key);
  // Opens `path`, or makes it, for this process alone: InvalidInput while another has it open, for as long as it lives. Other errors: those
  // of Read; Failed where it cannot be written.
  static Result<StateFile> Open(const std::string& path, const std::string& key);
  StateFile(StateFile&& other) noexcept;
  StateFile& operator=(StateFile&&) = delete;
  ~StateFile();

  // Appends; that survives an end of this process at any later moment. Of a reason, ends of lines become spaces. Failed: the disk's fault.
  Status Append(int64_t id, const Evaluation& evaluation);

 private:
  StateFile() = default;

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace windtunnel
