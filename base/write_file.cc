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

std::error_code LastError() { return {errno, std::generic_category()}; }

std::error_code WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return LastError();
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// Writes the file at `path`. Until it is complete it has no name where the file system allows that, so that a
// process which is killed leaves nothing behind.
std::error_code WriteWhole(const std::string& path, std::string_view text) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  constexpr mode_t kAll = 0666;  // less the umask
  int file = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kAll);
  const bool is_nameless = file >= 0;
  if (!is_nameless) file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kAll);
  if (file < 0) return LastError();
  std::error_code error = WriteAll(file, text);
  if (!error && is_nameless) {
    const std::string itself = "/proc/self/fd/" + std::to_string(file);
    std::remove(path.c_str());  // of an earlier process with the same number
    if (linkat(AT_FDCWD, itself.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) error = LastError();
  }
  if (close(file) != 0 && !error) error = LastError();
  return error;
}

}  // namespace

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

}  // namespace windtunnel
