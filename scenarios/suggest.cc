#include "scenarios/suggest.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "scenarios/other_names.h"

namespace windtunnel {
namespace {

// Words of PyTorch, DeepSpeed and Megatron for those used here, and other words for commands.
constexpr std::pair<std::string_view, std::string_view> kOtherSpellings[] = {
    {"float32", "fp32"},
    {"float", "fp32"},
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"float8", "fp8"},
    {"float4", "fp4"},
    {"nvfp4", "fp4"},
    {"true", "full"},
    {"fully_shard", "fsdp"},
    {"dataparallel", "dp"},
    {"distributeddataparallel", "ddp"},
    {"fullyshardeddataparallel", "fsdp"},
    {"distributed", "ddp"},
    {"zero-1", "zero1"},
    {"zero-2", "zero2"},
    {"zero-3", "zero3"},
    {"zero_3", "zero3"},
    {"blockwise", "block"},
    {"cpu", "param"},
    {"cpuoffload", "param"},
    {"cpuoffloadpolicy", "param"},
    {"native", "framework"},
    {"te", "fused"},
    {"p2p", "ring"},
    {"a2a", "ulysses"},
    {"allgather", "all_gather"},
    {"alltoall", "all_to_all"},
    {"flex", "deepep"},
    {"interleaved1f1b", "interleaved"},
    {"zbvzerobubble", "zb_v"},
    {"dualpipev", "dualpipe_v"},
    {"schedulegpipe", "gpipe"},
    {"schedule1f1b", "1f1b"},
    {"scheduleinterleaved1f1b", "interleaved"},
    {"scheduleloopedbfs", "looped_bfs"},
    {"schedulezbvzerobubble", "zb_v"},
    {"scheduledualpipev", "dualpipe_v"},
    {"sdpa", "flash"},
    {"flash_attention_2", "flash"},
    {"a100", "a100-sxm-80g"},
    {"a100-80gb", "a100-sxm-80g"},
    {"a100-40gb", "a100-sxm-40g"},
    {"h100-80gb", "h100-sxm-80g"},
    {"h800", "h800-sxm-80g"},
    {"a800", "a800-sxm-80g"},
    {"torchtitan", "pytorch_compile"},
    {"hf", "pytorch"},
    {"huggingface", "pytorch"},
    {"transformers", "pytorch"},
    {"accelerate", "pytorch"},
    {"lightning", "pytorch"},
    {"megatron-core", "megatron_core"},
    {"megatron-lm", "megatron_core"},
    {"megatron_lm", "megatron_core"},
    {"megatron-deepspeed", "deepspeed"},
    {"mcore", "megatron_core"},
    {"nemo", "megatron_core"},
    {"torch", "pytorch"},
    {"gpt2", "gpt2-124m"},
    {"gpt2-small", "gpt2-124m"},
    {"gpt2-medium", "gpt2-355m"},
    {"gpt2-large", "gpt2-774m"},
    {"gpt2-xl", "gpt2-1.5b"},
    {"bert-base-uncased", "bert-base"},
    {"bert-large-uncased", "bert-large"},
    {"t5-v1_1-small", "flan-t5-small"},
    {"t5-v1_1-base", "flan-t5-base"},
    {"t5-v1_1-large", "flan-t5-large"},
    {"t5-v1_1-xl", "flan-t5-xl"},
    {"t5-v1_1-xxl", "flan-t5-xxl"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"paged_adamw_32bit", "adamw"},
    {"ib", "infiniband"},
    {"simulate", "predict"},
    {"estimate", "predict"},
    {"train", "run"},
    {"measure", "calibrate"},
    {"tune", "search"},
    {"plan", "search"}};

// "full_shard" of "shardingstrategy.full_shard", "cpuoffload" of "cpuoffload(offload_params=true)". A number
// behind a dot is part of the word: "qwen2.5-7b".
std::string_view WithoutModuleAndArguments(std::string_view word) {
  word = word.substr(0, word.find('('));
  const size_t dot = word.rfind('.');
  const char next = dot + 1 < word.size() ? word[dot + 1] : '0';
  const bool begins_name = (next >= 'a' && next <= 'z') || next == '_';
  return dot != std::string_view::npos && begins_name ? word.substr(dot + 1) : word;
}

}  // namespace

int EditDistance(std::string_view a, std::string_view b) {
  // distance[i][j]: the distance between the first i characters of a and the first j of b.
  std::vector<std::vector<int>> distance(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = static_cast<int>(i + j);
        continue;
      }
      int changed = a[i - 1] == b[j - 1] ? 0 : 1;
      distance[i][j] =
          std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + changed});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[a.size()][b.size()];
}

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  WT_CHECK(!known.empty());
  size_t nearest = 0;
  int least = EditDistance(word, known[0]);
  for (size_t i = 1; i < known.size(); ++i) {
    // A distance is at least the difference in length, so a word of kilobytes need not be compared with every
    // known one.
    const auto [shorter, longer] = std::minmax({word.size(), known[i].size()});
    if (static_cast<int>(longer - shorter) >= least) continue;
    const int distance = EditDistance(word, known[i]);
    if (distance >= least) continue;
    nearest = i;
    least = distance;
  }
  return known[nearest];
}

std::string MeantWord(std::string_view word, const std::vector<std::string>& known) {
  // Hugging Face's names of models: "meta-llama/Llama-3.1-8B".
  if (const size_t slash = word.rfind('/'); slash != std::string_view::npos) word.remove_prefix(slash + 1);
  const std::string lower = LowerCase(word);
  const auto is_known = [&](std::string_view other) {
    return std::find(known.begin(), known.end(), other) != known.end();
  };
  if (is_known(lower)) return lower;
  for (const auto& [other, ours] : kOtherSpellings)
    if (other == lower && is_known(ours)) return std::string(ours);
  for (const LayerName& layer : kLayerNames)
    if (layer.theirs == lower && is_known(layer.ours)) return std::string(layer.ours);
  constexpr size_t kShortestBeginning = 3;
  const auto begins = [&](const std::string& other) { return other.starts_with(lower); };
  const auto longer = std::find_if(known.begin(), known.end(), begins);
  if (lower.size() >= kShortestBeginning && longer != known.end()) return *longer;
  if (known.empty()) return "";
  const std::string nearest = Nearest(lower, known);
  const size_t letters = std::max(lower.size(), nearest.size());
  if (5 * EditDistance(lower, nearest) < static_cast<int>(2 * letters)) return nearest;
  const std::string_view bare = WithoutModuleAndArguments(lower);
  return bare.size() < lower.size() ? MeantWord(bare, known) : "";
}

std::string_view AnswerTo(std::string_view key, std::string_view word) {
  const std::string lower = LowerCase(word);
  const std::string_view bare = WithoutModuleAndArguments(lower);
  const auto* found =
      std::find_if(std::begin(kOtherValues), std::end(kOtherValues),
                   [&](const OtherValue& other) { return other.key == key && other.theirs == bare; });
  return found == std::end(kOtherValues) ? std::string_view() : found->answer;
}

std::string JoinWithOr(const std::vector<std::string>& words) {
  std::string joined;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) joined += i + 1 == words.size() ? " or " : ", ";
    joined += words[i];
  }
  return joined;
}

}  // namespace windtunnel
