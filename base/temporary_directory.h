// The place of temporary files: $TMPDIR, or /tmp if that is not set or empty.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace windtunnel {

// Does not check that it exists.
std::string TemporaryPath();

// Makes a directory with a new name, "PREFIX-" and six characters, for this user only, and returns its path.
// The caller removes it. Errors: InvalidInput "TMPDIR is '/x', expected a directory"; Failed if no directory
// can be made there.
Result<std::string> MakeTemporaryDirectory(const std::string& prefix);

// A temporary directory that is removed with its contents.
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
