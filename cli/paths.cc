#include "cli/paths.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/write_file.h"

namespace windtunnel {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Status WriteAll(std::FILE* file, const std::string& path, const std::string& text) {
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (!written) return Failed("{}: cannot write: {}", path, std::strerror(errno));
  return Ok();
}

// Whether `path` may be replaced by a new file: it is a regular file or does not exist yet (no device, pipe
// or link such as /dev/stdout), and its directory is writable.
bool MayBeReplaced(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  const bool is_free =
      !fs::exists(status) || (fs::is_regular_file(status) && access(path.c_str(), W_OK) == 0);
  const fs::path directory = fs::path(path).parent_path();
  return is_free && access(directory.empty() ? "." : directory.c_str(), W_OK) == 0;
}

}  // namespace

JobProcess ThisJobProcess() {
  const struct {
    const char *rank, *count;
  } known[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
               {"PMI_RANK", "PMI_SIZE"},
               {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& variables : known) {
    const int rank = std::atoi(Environment(variables.rank).c_str());
    const int count = std::atoi(Environment(variables.count).c_str());
    if (count > 1 && rank >= 0 && rank < count) return {rank, count};
  }
  return {};
}

Status EnterUserDirectory() {
  std::string directory = Environment("WINDTUNNEL_USER_DIRECTORY");
  if (directory.empty()) directory = Environment("BUILD_WORKING_DIRECTORY");
  if (directory.empty()) return Ok();
  std::error_code error;
  fs::current_path(directory, error);
  if (error) return Failed("{}: cannot be entered: {}", directory, error.message());
  return Ok();
}

Result<std::string> CacheDirectory() {
  if (std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/windtunnel";
  if (std::string home = Environment("HOME"); !home.empty()) return home + "/.cache/windtunnel";
  return InvalidInput(
      "neither XDG_CACHE_HOME nor HOME is set, so there is no cache: name a profile with --profile");
}

std::vector<std::string> InstallDirectories() {
  std::vector<std::string> directories;
  if (std::string runfiles = Environment("RUNFILES_DIR"); !runfiles.empty())
    directories.push_back(runfiles + "/windtunnel");
  std::error_code error;
  fs::path binary = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    directories.push_back(binary.string() + ".runfiles/windtunnel");
    directories.push_back(binary.parent_path().string());
  }
  return directories;
}

Status WriteText(const std::string& path, const std::string& text) {
  if (path == "-") return WriteAll(stdout, "standard output", text);
  if (MayBeReplaced(path)) {
    if (const std::error_code error = ReplaceFile(path, text))
      return Failed("{}: cannot write: {}", path, error.message());
    return Ok();
  }
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return Failed("{}: cannot open for writing: {}", path, std::strerror(errno));
  Status status = WriteAll(file, path, text);
  if (std::fclose(file) != 0 && status) return Failed("{}: cannot write: {}", path, std::strerror(errno));
  return status;
}

}  // namespace windtunnel
