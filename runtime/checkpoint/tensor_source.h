// A source of tensors by their logical names (runtime/checkpoint/tensor_pieces.h): a checkpoint, or another
// program's weights.
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
  // The shape of the whole tensor; nullopt if there is none of that name.
  virtual std::optional<std::vector<int64_t>> ShapeOf(const std::string& tensor) const = 0;
  // Returns the whole tensor, row-major. Errors: InvalidInput, naming the file and the tensor (none of that
  // name, damaged).
  virtual Result<std::vector<float>> Read(const std::string& tensor) const = 0;
};

}  // namespace windtunnel
