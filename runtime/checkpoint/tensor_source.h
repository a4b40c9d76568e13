// Where tensors come from, by their logical names (runtime/checkpoint/tensor_pieces.h): a checkpoint, or weights of another program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // For messages.
  virtual std::string path() const = 0;
  // Of the whole tensor; nullopt where there is none of that name.
  virtual std::optional<std::vector<int64_t>> ShapeOf(const std::string& tensor) const = 0;
  // The whole tensor, row-major. Errors: InvalidInput, naming the file and the tensor (none of that name, damaged).
  virtual Result<std::vector<float>> Read(const std::string& tensor) const = 0;
};

}  // namespace windtunnel
