// A checkpoint of two files. An input is a byte, metadata.json up to a zero byte, and rank_00000.safetensors.
// If the first byte is odd, the metadata get the checksum that they ought to have, without which little would
// be reached.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "runtime/checkpoint/checkpoint.h"

namespace windtunnel {
namespace {

// The metadata with the checksum that they ought to have; unchanged if it cannot be determined.
std::string Sealed(const std::string& metadata) {
  const auto sealed = SealMetadata(metadata);
  return sealed ? *sealed : metadata;
}

// A directory, in memory if possible, that is removed at the program's end.
struct Scratch {
  Scratch() {
    const char* test = std::getenv("TEST_TMPDIR");
    path = std::filesystem::exists("/dev/shm") ? "/dev/shm" : test != nullptr ? test : "/tmp";
    path += "/checkpoint_fuzz_" + std::to_string(getpid());
    std::filesystem::create_directories(path);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

const std::string& Directory() {
  static const Scratch scratch;
  return scratch.path;
}

void Write(const std::string& name, const std::string& bytes) {
  std::ofstream file(Directory() + "/" + name, std::ios::binary);
  file << bytes << std::flush;
  WT_CHECK(file.good());
}

void Fuzz(const std::string& input) {
  if (input.empty()) return;
  const size_t end = std::min(input.find('\0', 1), input.size());
  const std::string metadata = input.substr(1, end - 1);
  Write("metadata.json", (input[0] & 1) != 0 ? Sealed(metadata) : metadata);
  Write("rank_00000.safetensors", end < input.size() ? input.substr(end + 1) : "");
  const auto checkpoint = Checkpoint::Open(Directory());
  if (!checkpoint) {
    WT_CHECK(!checkpoint.error().message.empty());
    return;
  }
  const bool is_whole = checkpoint->Check().has_value();
  for (const std::string& name : checkpoint->Tensors()) {
    const auto values = checkpoint->Read(name);
    WT_CHECK(values.has_value() || !is_whole);
    const std::vector<int64_t> shape = *checkpoint->ShapeOf(name);
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    if (values) WT_CHECK_EQ(static_cast<int64_t>(values->size()), elements);
  }
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
