// Model dimensions from a Hugging Face config.json, for each model_type that kModelTypes lists. Settings of
// training (dropout probabilities, initialisation, dtype) are left to the scenario, and so are modules for
// multi-token prediction (model.mtp). Sizes that the file leaves to others are 0 (kv_heads, head_dim, GPT-2's
// ffn). The context length becomes seq_len. Experts take all tokens that choose them: capacity_factor 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

// `seq_len`: the scenario's sequence length, if it differs from the configuration's context length. Errors:
// InvalidInput with the place in the configuration. Unsupported for another model_type, or for a variant of
// these whose operators are not modelled: another kind of activation, windows in another order than one full
// layer after a fixed number of windowed ones, or a single expert per token whose weight is 1.
Result<ModelSpec> ReadHuggingFaceConfig(const std::string& path,
                                        std::optional<int64_t> seq_len = std::nullopt);

// What models of this type compute otherwise than here with the same shapes: "attention has sinks". Empty:
// nothing, or the type is not known. Predictions leave it out. Weights of such a model compute something else
// here.
std::string_view WhatDiffersInHuggingFace(std::string_view model_type);

}  // namespace windtunnel
