// A model's weights with its adapters (model.lora) merged into them: W + alpha / rank B A.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/tensor_source.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

// Whether a logical tensor belongs to an adapter: "model.blocks.0.attn.proj.lora_a.weight".
bool IsOfAdapter(const std::string& tensor);

// The tensors of `source`, which must outlive this, as those of the model without adapters. Of a source
// without adapters it is the source itself.
class MergedAdapters : public TensorSource {
 public:
  MergedAdapters(const TensorSource& source, const ModelSpec& model) : source_(source), lora_(model.lora) {}

  std::string path() const override { return source_.path(); }
  std::optional<std::vector<int64_t>> ShapeOf(const std::string& tensor) const override {
    return IsOfAdapter(tensor) ? std::nullopt : source_.ShapeOf(tensor);
  }
  Result<std::vector<float>> Read(const std::string& tensor) const override;

 private:
  const TensorSource& source_;
  std::optional<LoraSpec> lora_;
};

}  // namespace windtunnel
