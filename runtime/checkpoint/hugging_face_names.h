// Under which names Hugging Face's transformers have the tensors of a scenario's model, and which configuration says what the model is
// (hugging_face_weights.h says what differs).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// One of our tensors; a vector is of one column.
struct HuggingFaceMapping {
  // A tensor of the other program: rows [first_row, first_row + rows) of ours, or their transpose.
  struct Part {
    std::string name;
    int64_t first_row = 0, rows = 0;
    bool transposed = false;
  };
  std::string tensor;
  std::vector<int64_t> shape;
  std::vector<Part> parts;

  int64_t columns() const { return shape.size() < 2 ? 1 : shape[1]; }
  // As the other program has the part.
  std::vector<int64_t> ShapeOf(const Part& part) const {
    if (shape.size() < 2) return {part.rows};
    return part.transposed ? std::vector<int64_t>{shape[1], part.rows}
                           : std::vector<int64_t>{part.rows, shape[1]};
  }
};

// Of all tensors of the model. Errors: Unsupported for a model that transformers has under no such names; names what differs.
Result<std::vector<HuggingFaceMapping>> HuggingFaceMappings(const ModelSpec& model);

// The text of config.json. Errors: as above.
Result<std::string> HuggingFaceConfig(const ModelSpec& model);

}  // namespace windtunnel
