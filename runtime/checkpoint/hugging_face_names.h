// The names that Hugging Face's transformers give to the tensors of a scenario's model, and the configuration
// that describes the model there (hugging_face_weights.h lists the differences).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

// One of this project's tensors; a vector has one column.
struct HuggingFaceMapping {
  // A tensor in transformers: rows [first_row, first_row + rows) of this project's tensor, or their
  // transpose.
  struct Part {
    std::string name;
    int64_t first_row = 0, rows = 0;
    bool transposed = false;
  };
  std::string tensor;
  std::vector<int64_t> shape;
  std::vector<Part> parts;

  int64_t columns() const { return shape.size() < 2 ? 1 : shape[1]; }
  // The shape of the part in transformers.
  std::vector<int64_t> ShapeOf(const Part& part) const {
    if (shape.size() < 2) return {part.rows};
    return part.transposed ? std::vector<int64_t>{shape[1], part.rows}
                           : std::vector<int64_t>{part.rows, shape[1]};
  }
};

// Mappings of all tensors of the model. Errors: Unsupported for a model that transformers does not have;
// names what differs.
Result<std::vector<HuggingFaceMapping>> HuggingFaceMappings(const ModelSpec& model);

// The text of config.json. Errors: as above, and for a GPT-2 without biases, of which weights alone are
// known.
Result<std::string> HuggingFaceConfig(const ModelSpec& model);

}  // namespace windtunnel
