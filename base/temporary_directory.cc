#include "base/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace windtunnel {
namespace {

// The variable's value; null if it is not set or empty.
const char* Variable() {
  const char* path = std::getenv("TMPDIR");
  return path != nullptr && *path != '\0' ? path : nullptr;
}

}  // namespace

std::string TemporaryPath() { return Variable() != nullptr ? Variable() : "/tmp"; }

Result<std::string> MakeTemporaryDirectory(const std::string& prefix) {
  const std::string parent = TemporaryPath();
  std::error_code ignored;
  if (Variable() != nullptr && !std::filesystem::is_directory(parent, ignored))
    return InvalidInput("TMPDIR is '{}', expected a directory", parent);
  std::string path = parent + "/" + prefix + "-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return Failed("no directory can be made in {} ({}): name another with TMPDIR", parent,
                  std::strerror(errno));
  return path;
}

Result<TemporaryDirectory> TemporaryDirectory::Make(const std::string& prefix) {
  WT_ASSIGN_OR_RETURN(std::string path, MakeTemporaryDirectory(prefix));
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace windtunnel
