#include "cli/paths.h"

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

Status Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return Ok();
  return Failed("cannot write to standard output: {}", std::strerror(errno));
}

Status WriteText(const std::string& path, const std::string& text) {
  if (path == "-") return Print(text);
  if (const std::error_code error = WriteOutput(path, text))
    return Failed("{}: cannot write: {}", path, error.message());
  return Ok();
}

}  // namespace windtunnel
