#include "scenarios/importers/huggingface_models.h"

#include <algorithm>

#include "base/text.h"
#include "scenarios/presets.h"

namespace windtunnel {
namespace {

struct Rewrite {
  std::string_view from, to;
};

// How names on the hub begin, and how presets do.
constexpr Rewrite kBeginnings[] = {
    {"llama-2-", "llama2-"},
    {"llama-3-", "llama3-"},
    {"llama-3.1-", "llama3-"},
    {"llama-3.3-", "llama3-"},
    {"gemma-3-", "gemma3-"},
    {"olmo-2-0425-", "olmo2-"},
    {"olmo-2-1124-", "olmo2-"},
    {"olmo-2-0325-", "olmo2-"},
    {"olmo-3-1025-", "olmo3-"},
    {"olmo-3-1125-", "olmo3-"},
    {"olmo-3-", "olmo3-"},
    {"llama-4-scout-17b-16e", "llama4-scout"},
    {"llama-4-maverick-17b-128e", "llama4-maverick"},
    {"nvidia-nemotron-3-nano-30b-a3b", "nemotron3-nano-30b"},
};

// Names that are other ones.
constexpr Rewrite kNames[] = {
    {"gpt2", "gpt2-124m"},
    {"t5-v1-1-small", "flan-t5-small"},
    {"t5-v1-1-base", "flan-t5-base"},
    {"t5-v1-1-large", "flan-t5-large"},
    {"t5-v1-1-xl", "flan-t5-xl"},
    {"t5-v1-1-xxl", "flan-t5-xxl"},
    {"gpt2-medium", "gpt2-355m"},
    {"gpt2-large", "gpt2-774m"},
    {"gpt2-xl", "gpt2-1.5b"},
    {"zephyr-7b", "mistral-7b-v0.1"},
    {"zephyr-7b-beta", "mistral-7b-v0.1"},
    {"vicuna-7b-v1.1", "llama-7b"},
    {"vicuna-7b-v1.3", "llama-7b"},
    {"vicuna-7b-v1.5", "llama2-7b"},
    {"vicuna-13b-v1.5", "llama2-13b"},
    {"deepseek-r1", "deepseek-v3"},
    {"nemotron-h-8b-base-8k", "nemotron-h-8b"},
    {"nemotron-h-56b-base-8k", "nemotron-h-56b"},
};

// What does not change the dimensions.
constexpr std::string_view kEndings[] = {
    "-hf",       "-instruct", "-chat",    "-base",  "-it",   "-pt",   "-deduped", "-2507",
    "-thinking", "-bnb-4bit", "-uncased", "-cased", "-v0.1", "-v1",   "-0324",    "-0905",
    "-unsloth",  "-bf16",     "-fp16",    "-sft",   "-dpo",  "-lora", "-qlora",   "-full"};

std::string Renamed(std::string name) {
  for (const Rewrite& whole : kNames)
    if (name == whole.from) return std::string(whole.to);
  for (const Rewrite& begin : kBeginnings)
    if (name.starts_with(begin.from)) return std::string(begin.to) + name.substr(begin.from.size());
  return name;
}

// Without one of the endings; empty if it has none.
std::string Shortened(const std::string& name) {
  for (const std::string_view end : kEndings)
    if (name.size() > end.size() && name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return "";
}

}  // namespace

std::string PresetOnTheHub(std::string_view given) {
  while (given.ends_with('/')) given.remove_suffix(1);
  std::string name = LowerCase(given.substr(given.find_last_of('/') + 1));
  std::replace(name.begin(), name.end(), '_', '-');
  if (name.starts_with("meta-llama-")) name.erase(0, 5);
  for (; !name.empty(); name = Shortened(name))
    if (const std::string preset = Renamed(name); IsModelPreset(preset)) return preset;
  return "";
}

}  // namespace windtunnel
