#include "scenarios/importers/huggingface_settings.h"

#include <string_view>

#include "scenarios/importers/configuration.h"

namespace windtunnel {
namespace {

// Axolotl's names, and those of older and newer versions and of scripts that are often copied.
struct Synonym {
  std::string_view theirs, name;
};
constexpr Synonym kSynonyms[] = {
    {"base_model", "model_name_or_path"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"optimizer", "optim"},
    {"gradient_clipping", "max_grad_norm"},
    {"sample_packing", "packing"},
    {"torch_dtype", "dtype"},
    {"fsdp_transformer_layer_cls", "fsdp_transformer_layer_cls_to_wrap"},
    {"lora_rank", "lora_r"},
    {"lora_modules", "lora_target_modules"},
    {"lora_modules_to_save", "modules_to_save"},
    {"use_peft_lora", "use_peft"},
    {"use_lora", "use_peft"},
    {"lora_enable", "use_peft"},
    {"find_unused_parameters", "ddp_find_unused_parameters"},
    {"use_4bit_quantization", "load_in_4bit"},
    {"use_nested_quant", "use_bnb_nested_quant"},
    {"bnb_4bit_use_double_quant", "use_bnb_nested_quant"},
    {"double_quantization", "use_bnb_nested_quant"},
    {"double_quant", "use_bnb_nested_quant"},
    {"context_parallel_size", "cp_size"},
    {"tensor_parallel_size", "tp_size"},
};

// Blocks of files whose keys are the Trainer's own, behind the prefix that they have in accelerate's flags.
struct Block {
  std::string_view name, prefix;
};
constexpr Block kBlocks[] = {{"fsdp_config.", "fsdp_"},
                             {"deepspeed_config.", ""},
                             {"parallelism_config.", ""},
                             {"dynamo_config.", "dynamo_"},
                             {"training_arguments.", ""},
                             {"model_init_kwargs.", ""},
                             {"peft.", ""}};

std::string NameOf(std::string name) {
  for (const Block& block : kBlocks) {
    if (!name.starts_with(block.name)) continue;
    name.erase(0, block.name.size());
    if (!name.starts_with(block.prefix)) name.insert(0, block.prefix);
    break;
  }
  constexpr std::string_view kParallelism = "parallelism_config_";
  if (name.starts_with(kParallelism)) name.erase(0, kParallelism.size());
  for (const Synonym& synonym : kSynonyms)
    if (name == synonym.theirs) return std::string(synonym.name);
  return name;
}

// A key without a value, as templates have them.
bool IsNull(const Setting& setting) {
  return setting.values == std::vector<std::string>{""} ||
         setting.values == std::vector<std::string>{"null"} ||
         setting.values == std::vector<std::string>{"~"};
}

void AddRenamed(const Settings& from, Settings& to) {
  for (Setting setting : from.All()) {
    if (IsNull(setting)) continue;
    setting.name = NameOf(setting.name);
    to.Add(std::move(setting));
  }
}

// The file that the setting `name` of `given` names, if there is one.
void AddFile(const std::string& name, const Settings& given, const ReadNamedFile& read, Settings& all) {
  const Setting* setting = given.Peek(name);
  if (setting == nullptr) return;
  const std::string path = setting->values.size() == 1 ? setting->values[0] : "";
  if (path.empty() || path.find(kUnknown) != std::string::npos)
    return all.Fail("{} is '{}', expected a file that is known here (--define gives variables)",
                    setting->shown, WithUnknownShown(path));
  const Result<NamedFile> named = read(path);
  if (!named) return all.Fail("{} is '{}': {}", setting->shown, path, named.error().message);
  const Result<Settings> file = ReadJsonSettings(named->text, path);
  if (!file) return all.Fail("{} is '{}': {}", setting->shown, path, file.error().message);
  AddRenamed(*file, all);
}

// The Trainer's --fsdp_config, a file or JSON, whose keys may lack their prefix.
void AddFsdpConfiguration(const ReadNamedFile& read, Settings& all) {
  const Setting* setting = all.Find("fsdp_config");
  if (setting == nullptr || setting->values.size() != 1) return;
  const std::string path = setting->values[0];
  const Result<NamedFile> named = path.starts_with('{') ? Result<NamedFile>({"", path}) : read(path);
  const Result<Settings> file = named ? ReadJsonSettings(named->text, path) : tl::unexpected(named.error());
  if (!file) return all.Fail("fsdp_config is '{}': {}", path, file.error().message);
  for (Setting one : file->All()) {
    if (!one.name.starts_with("fsdp_")) one.name.insert(0, "fsdp_");
    all.Add(std::move(one));
  }
}

}  // namespace

bool IsTrue(Settings& settings, std::string_view name, bool missing) {
  const std::string word = settings.Word(name);
  if (word == "auto" || word == "full" || word == "yes") return true;
  if (word == "no" || word == "null" || word == "~") return false;
  return settings.Flag(name, missing);
}

Settings AllOfHuggingFace(const Settings& given, const ReadNamedFile& read) {
  Settings all(given.source());
  AddFile("config_file", given, read, all);
  AddFile("config", given, read, all);
  AddRenamed(given, all);
  AddFsdpConfiguration(read, all);
  return all;
}

}  // namespace windtunnel
