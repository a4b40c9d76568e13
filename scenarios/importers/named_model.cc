#include "scenarios/importers/named_model.h"

#include <cstdint>
#include <string>

#include "base/result.h"
#include "scenarios/hugging_face.h"
#include "scenarios/presets.h"

namespace windtunnel {

std::optional<ModelSpec> NamedModel(const Draft& draft) {
  ModelSpec model;
  if (const std::string* preset = draft.Find("model.preset")) {
    if (!IsModelPreset(*preset)) return std::nullopt;
    model = ModelPreset(*preset);
  } else if (const std::string* path = draft.Find("model.config")) {
    const Result<ModelSpec> read = ReadHuggingFaceConfig(*path);
    if (!read) return std::nullopt;
    model = *read;
  }
  const auto replace = [&](const char* key, int64_t& size) { size = draft.FindInteger(key).value_or(size); };
  replace("model.layers", model.layers);
  replace("model.hidden", model.hidden);
  replace("model.vocab", model.vocab);
  return model;
}

}  // namespace windtunnel
