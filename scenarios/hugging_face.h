// Model dimensions from a Hugging Face config.json, of a model_type that ReadModel names. What describes training and not the model (dropout
// probabilities, initialisation, dtype) is left to the scenario, and so are modules for tokens further on (model.mtp); the context length
// becomes seq_len. Experts take all tokens that choose them: capacity_factor 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// `seq_len`: where the scenario has another than the configuration's context length. Errors: InvalidInput with the place in the
// configuration; Unsupported for another model_type or a variant of these whose operators are not modelled (an activation of another kind,
// windows in another order than one after so many, an only expert a token whose weight is 1).
Result<ModelSpec> ReadHuggingFaceConfig(const std::string& path,
                                        std::optional<int64_t> seq_len = std::nullopt);

}  // namespace windtunnel
