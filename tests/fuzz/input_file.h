// An input as a file in memory, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "base/check.h"

namespace windtunnel {

class InputFile {
 public:
  InputFile(const uint8_t* data, size_t size) : file_(memfd_create("input", 0)) {
    WT_CHECK(file_ >= 0);
    WT_CHECK(write(file_, data, size) == static_cast<ssize_t>(size));
  }
  ~InputFile() { close(file_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace windtunnel
