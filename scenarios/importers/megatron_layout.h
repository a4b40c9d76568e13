// --pipeline-model-parallel-layout of Megatron-Core: what each stage of a pipeline has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace windtunnel {

struct LayoutStage {
  int64_t layers = 0, predictions = 0;           // "t", and "m": modules of multi-token prediction
  bool has_embedding = false, has_loss = false;  // "E", "L"
};

// "Et*3|(tt|)*29m|L": stages are separated by "|", a letter or a group may be repeated. Nothing if the text
// is not of this form, or has over 10,000 letters.
std::optional<std::vector<LayoutStage>> ReadMegatronLayout(std::string_view text);

}  // namespace windtunnel
