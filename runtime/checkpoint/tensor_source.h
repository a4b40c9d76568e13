// A source of tensors by their logical names (runtime/checkpoint/tensor_pieces.h): a checkpoint, or another
// program's weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/checkpoint/tensor_pieces.h"

namespace windtunnel {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // For messages.
  virtual std::string path() const = 0;
  // The shape of the whole tensor; nullopt if there is none of that name.
  virtual std::optional<std::vector<int64_t>> ShapeOf(const std::string& tensor) const = 0;
  // Whether a model that has the tensor is complete without it: the tensor keeps its initial values.
  virtual bool MayLack(const std::string& /*tensor*/) const { return false; }
  // Returns the whole tensor, row-major. Errors: InvalidInput, naming the file and the tensor (none of that
  // name, damaged).
  virtual Result<std::vector<float>> Read(const std::string& tensor) const = 0;
  // Returns the tensor's elements that `runs` name, in their order. Errors: as Read, as far as it looked.
  virtual Result<std::vector<float>> ReadRuns(const std::string& tensor,
                                              const std::vector<StridedRuns>& runs) const {
    WT_ASSIGN_OR_RETURN(const std::vector<float> whole, Read(tensor));
    std::vector<float> part;
    ForEachRun(runs, [&](int64_t, int64_t first, int64_t elements) {
      part.insert(part.end(), whole.begin() + first, whole.begin() + first + elements);
    });
    return part;
  }
};

}  // namespace windtunnel
