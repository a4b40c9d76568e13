// Files of tensors in the safetensors format (github.com/huggingface/safetensors, README "Format"): the
// header's length in 8 bytes, a JSON header with each tensor's type, shape and place, then the values,
// row-major and little-endian.
//
//   WT_RETURN_IF_ERROR(WriteSafetensors(path, {{"wte.weight", {256, 64}, [&] { return values; }}}, {}));
//   WT_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
//   WT_ASSIGN_OR_RETURN(const std::vector<float> values, file.Read("wte.weight"));
//
// Files are written in fp32. fp32, bf16 and fp16 are read, all as fp32.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

struct SafetensorsTensor {
  std::string dtype;  // "F32", "BF16", "F16"
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // offsets in bytes from the end of the header

  int64_t elements() const;
};

// Longer headers are refused, as by the format's own reader.
inline constexpr int64_t kSafetensorsMaxHeader = 100'000'000;

class SafetensorsFile {
 public:
  // Reads the header. Errors: InvalidInput, naming the file and what is wrong with it: no such file, no
  // header, tensors whose places overlap, lie outside the file or do not fit their shapes.
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  // Null if there is no tensor of that name.
  const SafetensorsTensor* Find(const std::string& name) const;
  // Returns the values as fp32. Errors: InvalidInput (no such tensor, another type, the file ends before
  // them); the message names file and tensor.
  Result<std::vector<float>> Read(const std::string& name) const;

 private:
  std::string path_;
  int64_t data_ = 0;  // where the values begin
  std::map<std::string, SafetensorsTensor> tensors_;
};

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  // Called when it is the tensor's turn, so that one tensor is held at a time.
  std::function<Result<std::vector<float>>()> values;
  std::function<void(const std::vector<float>&)> written = {};  // gets what was written; may be empty
};
// Writes the file, forces it to the disk and returns its size in bytes. Errors: Failed (names the file),
// those of `values`.
Result<int64_t> WriteSafetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                                 const std::map<std::string, std::string>& metadata);

}  // namespace windtunnel
