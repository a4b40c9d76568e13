// Scenarios from the files and commands with which other programs are told what to train.
//
//   WT_ASSIGN_OR_RETURN(std::string yaml, ImportScenario({.program = SourceProgram::kMegatron, .source = "train.sh", …}));
//
// An importer reads settings (settings.h) and writes a draft (draft.h), whose every key says where it comes
// from. What it cannot carry over stands at the top of the file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenarios/importers/huggingface.h"
#include "scenarios/overrides.h"

namespace windtunnel {

enum class SourceProgram { kMegatron, kDeepSpeed, kTorchtitan, kHuggingFace };

struct ImportRequest {
  std::optional<SourceProgram> program;  // else the one that the file's name and its settings speak of
  std::string source;                // the file's name in messages
  std::string text;                  // the file: a shell script, YAML, JSON, or TOML
  std::vector<std::string> command;  // instead of a file: the words of a command
  ReadNamedFile read;                // reads files that settings name; without it, none can be read
  std::vector<Override> sets;        // keys of the scenario that come before everything else
  std::map<std::string, std::string> definitions;  // values of the shell's variables
};

// The scenario as YAML, which the loader accepts. Errors: InvalidInput for settings or a scenario that is
// wrong or lacks something, Unsupported for models that scenarios cannot express.
Result<std::string> ImportScenario(const ImportRequest& request);

}  // namespace windtunnel
