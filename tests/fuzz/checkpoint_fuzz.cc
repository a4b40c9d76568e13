// A checkpoint's metadata.json beside a sound file of tensors. The CRC-32 is made right, so that what is behind it is seen, too.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/checkpoint/checkpoint.h"
#include "tests/fuzz/input_file.h"

namespace {

// A directory with rank_00000.safetensors, in which "a" and "b" have 6 and 4 elements; it goes away at the end.
class Directory {
 public:
  Directory() {
    WT_CHECK(mkdtemp(path_) != nullptr);
    const auto values = [](size_t elements) {
      return [=]() -> windtunnel::Result<std::vector<float>> { return std::vector<float>(elements); };
    };
    WT_CHECK(windtunnel::WriteSafetensors(std::string(path_) + "/rank_00000.safetensors",
                                          {{"a", {2, 3}, values(6)}, {"b", {4}, values(4)}}, {})
                 .has_value());
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/checkpoint-fuzz-XXXXXX";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto sealed = windtunnel::SealMetadata(text);
  std::ofstream(directory.path() + "/metadata.json", std::ios::binary) << (sealed ? *sealed : text);
  const auto checkpoint = windtunnel::Checkpoint::Open(directory.path());
  if (!checkpoint) return 0;
  for (const std::string& name : checkpoint->Tensors()) (void)checkpoint->Read(name);
  return 0;
}
