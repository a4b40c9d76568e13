// All that Hugging Face's Trainer was told, under one name for each thing.
#pragma once

#include <string_view>

#include "base/result.h"
#include "scenarios/importers/huggingface.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// `given`, with the recipe (--config) and accelerate's configuration (--config_file) that it names. Names are
// those of the Trainer's arguments: accelerate's blocks and the prefixes of their keys are gone
// ("fsdp_config.fsdp_version" is "fsdp_version"), and Axolotl's names are translated. Flags come before the
// files. A file that cannot be read is a mistake of the settings.
Settings AllOfHuggingFace(const Settings& given, const ReadNamedFile& read);

// A truth as these files write it: "yes" and "no" are accelerate's; Axolotl's "auto" is what devices of today can do, and
// its "full" is bf16 as well.
bool IsTrue(Settings& settings, std::string_view name, bool missing = false);

}  // namespace windtunnel
