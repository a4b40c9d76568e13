#include "base/write_file.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace windtunnel {
namespace {

std::error_code LastError() { return {errno, std::generic_category()}; }

std::error_code WriteWhole(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return LastError();
  std::error_code error;
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size()) error = LastError();
  if (std::fclose(file) != 0 && !error) error = LastError();
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
