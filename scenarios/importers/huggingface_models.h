// Presets of the models that Hugging Face's hub has under their names.
#pragma once

#include <string>
#include <string_view>

namespace windtunnel {

// The preset of a model by its name on the hub or its folder's: "meta-llama/Llama-3.1-8B-Instruct" is
// llama3-8b. Empty if none has its dimensions.
std::string PresetOnTheHub(std::string_view name);

}  // namespace windtunnel
