// Model dimensions from a Hugging Face config.json of model_type gpt2, llama, mistral, mixtral, qwen2, qwen3 or qwen3_moe. What describes training and
// not the model (dropout probabilities, initialisation, dtype) is left to the scenario; the context length
// becomes seq_len. Experts take all tokens that choose them: capacity_factor 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// `seq_len`: where the scenario has another than the configuration's context length. Errors: InvalidInput with the place in the
// configuration; Unsupported for another model_type or a variant of these whose operators are not modelled (an activation of another kind, attention within a window shorter than the sequences, one expert a token).
Result<ModelSpec> ReadHuggingFaceConfig(const std::string& path,
                                        std::optional<int64_t> seq_len = std::nullopt);

}  // namespace windtunnel
