#include "scenarios/importers/launch_command.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "base/text.h"
#include "scenarios/importers/slurm_options.h"

namespace windtunnel {
namespace {

std::string BaseName(const std::string& word) { return word.substr(word.find_last_of('/') + 1); }

bool IsFlag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

bool IsProgram(const std::string& word) { return word.ends_with(".py"); }

// "-m", "-np"; not "-1".
bool IsShortFlag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

// ">", "2>&1", "|&", ";": of a command that was a text.
bool IsShellOperator(const std::string& word) {
  return word.find_first_of("<>|&;") != std::string::npos &&
         word.find_first_not_of("<>|&;12") == std::string::npos;
}

bool EndsValues(const std::string& word) {
  return IsFlag(word) || IsShortFlag(word) || IsProgram(word) || IsShellOperator(word);
}

// A command within a command's word (`bash -c "…"`) as words of its own.
ShellCommand Flattened(const ShellCommand& words) {
  ShellCommand flat;
  for (const std::string& word : words) {
    const bool holds_command =
        word.find(" --") != std::string::npos || word.find("\n--") != std::string::npos;
    if (!holds_command) flat.push_back(word);
    else
      for (const std::string& part : SplitWords(word)) flat.push_back(part);
  }
  return flat;
}

std::string NameOf(std::string flag) {
  flag.erase(0, flag.find_first_not_of('-'));
  std::replace(flag.begin(), flag.end(), '-', '_');
  return LowerCase(flag);
}

// A variable without a value.
bool IsUnknown(const std::string& word) {
  return !word.empty() && word.front() == kUnknown && word.find(kUnknownEnd) == word.size() - 1;
}

// A variable behind a flag's value stands for further flags, which go to `left_out`.
void AddFlags(const ShellCommand& words, Settings& settings, std::vector<std::string>& left_out) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!IsFlag(words[i])) continue;
    const size_t equals = words[i].find('=');
    Setting setting{NameOf(words[i].substr(0, equals)), words[i].substr(0, equals), {}};
    if (equals != std::string::npos) setting.values.push_back(words[i].substr(equals + 1));
    for (; i + 1 < words.size() && !EndsValues(words[i + 1]); ++i) {
      const bool has_value = equals != std::string::npos || !setting.values.empty();
      if (has_value && IsUnknown(words[i + 1])) left_out.push_back(words[i + 1]);
      else if (equals == std::string::npos) setting.values.push_back(words[i + 1]);
    }
    settings.Add(std::move(setting));
  }
}

bool IsConfiguration(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
}

// Programs that are not scripts of Python, and what makes a module one: `trl sft`, `-m axolotl.cli.train`.
bool IsNamedProgram(const std::string& word) {
  const std::string name = BaseName(word);
  return name == "trl" || name == "llamafactory-cli" || name == "axolotl" || word.starts_with("axolotl.") ||
         word.starts_with("llamafactory.") || word.starts_with("trl.");
}

// The first word behind the program that names a configuration and is no flag's value; empty if there is
// none.
std::string ConfigurationIn(const ShellCommand& words) {
  bool is_behind = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_value = i > 0 && (IsFlag(words[i - 1]) || IsShortFlag(words[i - 1])) &&
                          words[i - 1].find('=') == std::string::npos;
    if (is_behind && !is_value && IsConfiguration(words[i])) return words[i];
    is_behind = is_behind || IsProgram(words[i]) || IsNamedProgram(words[i]);
  }
  return "";
}

// The options of srun, which are taken out of `words`.
std::vector<Setting> TakeSrunOptions(ShellCommand& words) {
  const auto srun = std::find_if(words.begin(), words.end(),
                                 [](const std::string& word) { return BaseName(word) == "srun"; });
  if (srun == words.end()) return {};
  SlurmOptions options = ReadSlurmOptions(std::span(srun + 1, words.end()));
  words.erase(srun + 1, srun + 1 + static_cast<std::ptrdiff_t>(options.words));
  return std::move(options.settings);
}

// Where the options of a launcher end: at what it launches.
bool IsLaunched(const std::string& word) {
  const bool is_python = word.find('=') == std::string::npos && BaseName(word).starts_with("python");
  return IsProgram(word) || IsNamedProgram(word) || is_python;
}

// The options of mpirun that say how many ranks there are and where, and that of deepspeed, which are taken
// out of `words`. Those of the program that is launched may have the same names.
std::vector<Setting> TakeHostOptions(ShellCommand& words) {
  struct Option {
    std::string_view shown, name;
    bool is_deepspeeds = false;
  };
  constexpr Option kOptions[] = {{"-np", "mpirun_np"},
                                 {"--np", "mpirun_np"},
                                 {"-n", "mpirun_np"},
                                 {"-H", "mpirun_hosts"},
                                 {"-host", "mpirun_hosts"},
                                 {"--host", "mpirun_hosts"},
                                 {"-i", "deepspeed_include", true},
                                 {"--include", "deepspeed_include", true}};
  const auto is_mpiruns = [](const std::string& word) {
    return BaseName(word) == "mpirun" || BaseName(word) == "mpiexec";
  };
  const auto is_deepspeeds = [](const std::string& word) {
    return BaseName(word) == "deepspeed" || word == "deepspeed.launcher.runner";
  };
  std::vector<Setting> options;
  auto word = std::find_if(words.begin(), words.end(), [&](const std::string& one) {
    return IsProgram(one) || is_mpiruns(one) || is_deepspeeds(one);
  });
  const bool of_deepspeed = word != words.end() && is_deepspeeds(*word);
  while (word != words.end() && !IsLaunched(*word)) {
    const size_t equals = std::min(word->find('='), word->size());
    const auto option = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& one) {
      return one.is_deepspeeds == of_deepspeed && one.shown == word->substr(0, equals);
    });
    const bool is_joined = equals < word->size();
    if (option == std::end(kOptions) || (!is_joined && word + 1 == words.end())) {
      ++word;
      continue;
    }
    options.push_back({std::string(option->name),
                       word->substr(0, equals),
                       {is_joined ? word->substr(equals + 1) : word[1]}});
    word = words.erase(word, word + (is_joined ? 1 : 2));
  }
  return options;
}

size_t FlagsIn(const ShellCommand& words) {
  return static_cast<size_t>(std::count_if(words.begin(), words.end(), IsFlag));
}

}  // namespace

Result<LaunchCommand> ReadLaunchCommand(const ShellCommand& words, const std::string& source) {
  ShellCommand flat = Flattened(words);
  LaunchCommand command{"", "", Settings(source), {}};
  // The last one: launchers may be Python programs, too.
  for (const std::string& word : flat)
    if (IsProgram(word)) command.program = word.substr(word.find_last_of("/\\") + 1);
  if (const auto named = std::find_if(flat.begin(), flat.end(), IsNamedProgram);
      command.program.empty() && named != flat.end())
    command.program = *named;
  if (const auto trl = std::find(flat.begin(), flat.end(), "trl");
      command.program == "trl" && trl + 1 != flat.end() && !trl[1].starts_with('-') &&
      !IsConfiguration(trl[1]))
    command.program += " " + trl[1];
  command.file = ConfigurationIn(flat);
  for (const Setting& option : TakeSrunOptions(flat)) command.settings.Add(option);
  for (const Setting& option : TakeHostOptions(flat)) command.settings.Add(option);
  // Variables before the first flag may stand for flags, too.
  std::copy_if(flat.begin(), std::find_if(flat.begin(), flat.end(), IsFlag),
               std::back_inserter(command.left_out), IsUnknown);
  AddFlags(flat, command.settings, command.left_out);
  if (command.settings.empty() && command.file.empty())
    return InvalidInput("{}: no flags (--num-layers …) are there, expected the command of a training",
                        source);
  return command;
}

Result<LaunchCommand> FindLaunchCommand(const std::string& script, const std::string& source,
                                        const std::map<std::string, std::string>& definitions) {
  const ShellScript read = ReadShellScript(script, definitions);
  ShellCommand longest;
  for (const ShellCommand& command : read.commands) {
    ShellCommand flat = Flattened(command);
    const bool trains_by_file = FlagsIn(longest) == 0 && !ConfigurationIn(flat).empty();
    if (trains_by_file || FlagsIn(flat) > FlagsIn(longest)) longest = std::move(flat);
  }
  WT_ASSIGN_OR_RETURN(LaunchCommand command, ReadLaunchCommand(longest, source));
  // srun's own options count more than those of the job.
  std::vector<Setting> of_job;
  std::copy_if(read.slurm_options.begin(), read.slurm_options.end(), std::back_inserter(of_job),
               [&](const Setting& option) { return !command.settings.Holds(option.name); });
  for (Setting& option : of_job) command.settings.Add(std::move(option));
  command.left_out.insert(command.left_out.end(), read.conditional.begin(), read.conditional.end());
  return command;
}

}  // namespace windtunnel
