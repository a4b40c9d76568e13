// What Hugging Face's Trainer was told: by the flags of a script (run_clm.py, TRL's sft.py, FastChat's
// train.py), a recipe (TRL, alignment-handbook, LLaMA-Factory, Axolotl) or a configuration of accelerate.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

struct NamedFile {
  std::string path, text;  // where it is, as an absolute path
};
// A file that settings name, by the path that they have. Errors: InvalidInput if it cannot be read.
using ReadNamedFile = std::function<Result<NamedFile>(const std::string& path)>;

// Whether these are settings of the Trainer or of accelerate.
bool IsHuggingFace(const Settings& settings);

// Adds what the settings and the files that they name say to `draft`, which may already have keys, such as
// the cluster; these stay. `program` is the script that trains, "run_clm.py", or "trl sft"; empty
// for a recipe. What is not given has the Trainer's defaults (transformers/training_args.py). Errors:
// InvalidInput for a missing or a wrong value.
Status ImportHuggingFace(const Settings& given, const std::string& program, const ReadNamedFile& read,
                         Draft& draft);

}  // namespace windtunnel
