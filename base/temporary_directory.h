// Where temporary files go: $TMPDIR, or /tmp where that is not set or empty.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace windtunnel {

// Without a look at what is there.
std::string TemporaryPath();

// Makes a directory of a new name, "PREFIX-" and six characters, for this user alone; the path. Whoever asked for it removes it.
// Errors: InvalidInput "TMPDIR is '/x', expected a directory"; Failed where nothing can be made in it.
Result<std::string> MakeTemporaryDirectory(const std::string& prefix);

// One that goes away with its contents.
class TemporaryDirectory {
 public:
  // Errors: MakeTemporaryDirectory's.
  static Result<TemporaryDirectory> Make(const std::string& prefix);
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace windtunnel
