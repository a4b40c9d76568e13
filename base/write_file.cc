#include "base/write_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace windtunnel {
namespace {

constexpr mode_t kAllMayWrite = 0666;  // less the umask

std::error_code LastError() { return {errno, std::generic_category()}; }

// Writes a file without a name and then gives it that name, so that a process which is killed leaves nothing
// behind.
// Returns whether that worked: some file systems have no such files, and the name is given by way of /proc.
bool WriteNameless(const std::string& path, std::string_view text, std::error_code& error) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const int file = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kAllMayWrite);
  if (file < 0) return false;
  error = WriteAll(file, text);
  bool is_there = true;
  if (!error) {
    std::remove(path.c_str());  // of an earlier process with the same number
    const std::string itself = "/proc/self/fd/" + std::to_string(file);
    is_there = linkat(AT_FDCWD, itself.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }
  if (close(file) != 0 && !error) error = LastError();
  return is_there;
}

std::error_code WriteInto(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kAllMayWrite);
  if (file < 0) return LastError();
  std::error_code error = WriteAll(file, text);
  if (close(file) != 0 && !error) error = LastError();
  return error;
}

std::error_code WriteWhole(const std::string& path, std::string_view text) {
  std::error_code error;
  return WriteNameless(path, text, error) ? error : WriteInto(path, text);
}

// Whether `path` may be replaced by a new file: it is a regular file or does not exist yet (no device, pipe
// or link such as /dev/stdout), and its directory is writable.
bool MayBeReplaced(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  const bool is_free =
      !fs::exists(status) || (fs::is_regular_file(status) && access(path.c_str(), W_OK) == 0);
  const fs::path directory = fs::path(path).parent_path();
  return is_free && access(directory.empty() ? "." : directory.c_str(), W_OK) == 0;
}

}  // namespace

std::error_code WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return LastError();
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

std::error_code ReplaceFile(const std::string& path, std::string_view text) {
  namespace fs = std::filesystem;
  // The process number keeps two writers apart.
  std::string beside = path + "." + std::to_string(getpid()) + ".tmp";
  // A name of nearly the most bytes has no room for more.
  if (fs::path(beside).filename().native().size() > NAME_MAX)
    beside = fs::path(path).replace_filename(".windtunnel." + std::to_string(getpid()) + ".tmp");
  std::error_code error = WriteWhole(beside, text), ignored;
  if (!error) {
    const fs::file_status before = fs::status(path, ignored);
    if (fs::exists(before)) fs::permissions(beside, before.permissions(), ignored);
    if (std::rename(beside.c_str(), path.c_str()) == 0) return {};
    error = LastError();
  }
  std::remove(beside.c_str());
  return error;
}

std::error_code WriteOutput(const std::string& path, std::string_view text) {
  return MayBeReplaced(path) ? ReplaceFile(path, text) : WriteInto(path, text);
}

}  // namespace windtunnel
