#include "base/read_file.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace windtunnel {
namespace {

constexpr size_t kMostOfNoFile = size_t{1} << 30;

bool IsRegular(std::FILE* file) {
  struct stat status {};
  return fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode);
}

tl::unexpected<Error> CannotRead(const std::string& path, int error, std::string_view expected) {
  if (error == EISDIR) return InvalidInput("{}: is a directory, expected {}", path, expected);
  return InvalidInput("{}: cannot be read ({}), expected {}", path, std::strerror(error), expected);
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, std::string_view expected) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return CannotRead(path, errno, expected);
  std::string text;
  std::array<char, 65536> part;
  while (const size_t bytes = std::fread(part.data(), 1, part.size(), file.get())) {
    text.append(part.data(), bytes);
    if (text.size() > kMostOfNoFile && !IsRegular(file.get()))
      return InvalidInput("{}: is longer than 1 GiB, expected {}", path, expected);
  }
  // A directory can be opened; only reading shows that it is one.
  if (std::ferror(file.get())) return CannotRead(path, errno, expected);
  return text;
}

}  // namespace windtunnel
