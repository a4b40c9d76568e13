// Model presets: published models by name. A preset leaves kv_heads (= heads), head_dim (= hidden / heads)
// and ffn (= 4 x hidden) unset where the model follows the rule, so that a scenario which overrides heads or
// hidden keeps the rule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/model_spec.h"

namespace windtunnel {

// Every preset's name, in the order of the table.
std::vector<std::string> ModelPresetNames();

bool IsModelPreset(std::string_view name);

// The preset's dimensions; REQUIRES: IsModelPreset(name).
ModelSpec ModelPreset(const std::string& name);

}  // namespace windtunnel
