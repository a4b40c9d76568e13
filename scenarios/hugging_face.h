// Model dimensions from a Hugging Face config.json of model_type gpt2 or llama. What describes training and
// not the model (dropout probabilities, initialisation, dtype) is left to the scenario; the context length
// becomes seq_len.
#pragma once

#include <string>

#include "base/result.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Errors: InvalidInput with the place in the configuration; Unsupported for another model_type or a variant
// of the two whose operators are not modelled (a head dimension other than hidden / heads, an activation of
// another kind).
Result<ModelSpec> ReadHuggingFaceConfig(const std::string& path);

}  // namespace windtunnel
