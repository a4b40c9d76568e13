#include "cli/completion.h"

#include <fmt/ranges.h>

#include <functional>

#include "scenarios/characters.h"

namespace windtunnel {
namespace {

// The completions of a value or operand, by its name in the help.
struct Values {
  enum Kind { kNothing, kFiles, kDirectories, kWords } kind = kNothing;
  std::string suffix;              // of the files; empty: any file
  std::vector<std::string> words;  // offered in addition to files, or alone
};

Values ValuesOf(const std::string& name, const std::vector<std::string>& profiles, bool of_profile_command) {
  if (name == "SCENARIO") return {Values::kFiles, "yaml", {}};
  if (name == "ROWS") return {Values::kFiles, "jsonl", {}};
  if (name == "NAME|FILE" || (name == "FILE" && of_profile_command))
    return {Values::kFiles, "json", profiles};
  if (name == "FILE") return {Values::kFiles, "", {}};
  if (name == "DIR") return {Values::kDirectories, "", {}};
  if (name == "WHAT")
    return {Values::kWords,
            "",
            {"devices", "models", "networks", "links", "topologies", "frameworks", "schedules"}};
  if (name == "SHELL") return {Values::kWords, "", {"bash", "zsh", "fish"}};
  return {};
}

// The operand of `profile show` and similar commands is a profile; the FILE of an option is any file.
Values OperandsOf(const CommandWords& command, const std::vector<std::string>& profiles) {
  return ValuesOf(command.operand, profiles, !command.path.empty() && command.path.front() == "profile");
}

std::string Joined(const std::vector<std::string>& words, const char* separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

std::vector<std::string> OptionNames(const CommandWords& command) {
  std::vector<std::string> names;
  for (const OptionWords& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// `text` with a backslash before each character of `special`.
std::string Escaped(const std::string& text, const std::string& special) {
  std::string escaped;
  for (char c : text) {
    if (special.find(c) != std::string::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// ---- bash

std::string BashValues(const Values& values) {
  std::string text;
  if (!values.words.empty()) text += fmt::format(" _windtunnel_words {}", ShellWord(Joined(values.words)));
  if (values.kind == Values::kFiles)
    text += fmt::format("{} _windtunnel_files '{}'", text.empty() ? "" : ";", values.suffix);
  if (values.kind == Values::kDirectories) text += " _windtunnel_directories";
  return text.empty() ? " :" : text;
}

constexpr char kBashHead[] = R"(# Completion of windtunnel's commands, options and files for bash.
_windtunnel_words() { COMPREPLY+=($(compgen -W "$1" -- "$current")); }
_windtunnel_directories() {
  compopt -o filenames 2> /dev/null
  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current")
}
_windtunnel_files() {
  compopt -o filenames 2> /dev/null
  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f ${1:+-X "!*.$1"} -- "$current"; [[ -z $1 ]] || compgen -d -- "$current")
}
_windtunnel() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} path=windtunnel i
  COMPREPLY=()
  # --option=value arrives as three words.
  [[ $current == = ]] && current=
  [[ $previous == = ]] && ((COMP_CWORD > 2)) && previous=${COMP_WORDS[COMP_CWORD-2]}
)";

std::string BashScript(const std::vector<CommandWords>& commands, const std::vector<std::string>& profiles) {
  std::vector<std::string> paths;
  for (const CommandWords& command : commands)
    if (!command.path.empty()) paths.push_back("\"windtunnel " + Joined(command.path) + "\"");
  std::string text = kBashHead;
  text += "  for ((i = 1; i < COMP_CWORD; ++i)); do\n    case \"$path ${COMP_WORDS[i]}\" in\n      " +
          Joined(paths, " | ") +
          ") path+=\" ${COMP_WORDS[i]}\" ;;\n    esac\n  done\n  case \"$path:$previous\" in\n";
  for (const CommandWords& command : commands) {
    const std::string path = Joined(command.path);
    for (const OptionWords& option : command.options) {
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(fmt::format("\"windtunnel{}{}:{}\"", path.empty() ? "" : " ", path, name));
      text += fmt::format("    {}){}; return ;;\n", Joined(patterns, " | "),
                          BashValues(ValuesOf(option.value, profiles, false)));
    }
  }
  text += "  esac\n  case \"$path\" in\n";
  for (const CommandWords& command : commands) {
    const std::string path = Joined(command.path);
    std::vector<std::string> words = command.subcommands;
    text += fmt::format("    \"windtunnel{}{}\")\n", path.empty() ? "" : " ", path);
    text += fmt::format("      if [[ $current == -* ]]; then _windtunnel_words {}; return; fi\n",
                        ShellWord(Joined(OptionNames(command))));
    if (!words.empty()) text += fmt::format("      _windtunnel_words {}\n", ShellWord(Joined(words)));
    text += fmt::format("     {} ;;\n", BashValues(OperandsOf(command, profiles)));
  }
  return text + "  esac\n}\ncomplete -F _windtunnel windtunnel\n";
}

// ---- zsh

std::string ZshAction(const std::string& name, const Values& values) {
  const std::string what = Escaped(name.empty() ? "argument" : name, ":\\");
  const std::string words = values.words.empty() ? "" : "(" + Joined(values.words) + ")";
  const std::string files =
      values.suffix.empty() ? "_files" : fmt::format("_files -g \"*.{}\"", values.suffix);
  switch (values.kind) {
    case Values::kNothing:
      return what + ": ";
    case Values::kWords:
      return what + ":" + words;
    case Values::kDirectories:
      return what + ":_files -/";
    case Values::kFiles:
      if (words.empty()) return what + ":" + files;
      return fmt::format("{}:{{ compadd -- {}; {} }}", what, Joined(values.words), files);
  }
  return what;
}

std::string ZshFunction(const CommandWords& command) {
  return "_windtunnel" + (command.path.empty() ? "" : "_" + Joined(command.path, "_"));
}

std::string ZshScript(const std::vector<CommandWords>& commands, const std::vector<std::string>& profiles) {
  std::string text =
      "#compdef windtunnel\n# Completion of windtunnel's commands, options and files for zsh.\n";
  const auto description_of = [&](const CommandWords& parent, const std::string& name) {
    std::vector<std::string> path = parent.path;
    path.push_back(name);
    for (const CommandWords& command : commands)
      if (command.path == path) return command.description;
    return std::string();
  };
  for (const CommandWords& command : commands) {
    text += fmt::format(
        "{}() {{\n  local -a arguments commands\n  local context state state_descr line\n  typeset -A "
        "opt_args\n  arguments=(\n",
        ZshFunction(command));
    for (const OptionWords& option : command.options) {
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        std::string spec = fmt::format("{}{}[{}]", name,
                                       option.value.empty() ? ""
                                       : is_long            ? "="
                                                            : "+",
                                       Escaped(option.description, "[]:\\"));
        if (!option.value.empty())
          spec += ":" + ZshAction(option.value, ValuesOf(option.value, profiles, false));
        text += "    " + ShellWord((name == "--set" ? "*" : "") + spec) + "\n";
      }
    }
    if (command.subcommands.empty()) {
      if (!command.operand.empty())
        text += "    " + ShellWord("*:" + ZshAction(command.operand, OperandsOf(command, profiles))) + "\n";
      text += "  )\n  _arguments -S $arguments\n}\n";
      continue;
    }
    text +=
        "    '1: :->command'\n    '*:: :->rest'\n  )\n  _arguments -C $arguments\n  case $state in\n    "
        "command)\n      commands=(\n";
    for (const std::string& name : command.subcommands)
      text += "        " +
              ShellWord(Escaped(name, ":\\") + ":" + Escaped(description_of(command, name), ":\\")) + "\n";
    text += fmt::format(
        "      )\n      _describe command commands ;;\n    rest)\n      (( $+functions[{0}_$words[1]] )) && "
        "{0}_$words[1] ;;\n  esac\n}}\n",
        ZshFunction(command));
  }
  // If zsh loads the file from $fpath, the file is the function's body. If it is sourced, it registers the
  // function.
  return text +
         "if [[ $funcstack[1] == _windtunnel ]]; then _windtunnel \"$@\"; else compdef _windtunnel "
         "windtunnel; fi\n";
}

// ---- fish

// fish knows the escapes \' and \\ between single quotes.
std::string FishQuoted(const std::string& text) { return "'" + Escaped(text, "'\\") + "'"; }

std::string FishValues(const Values& values) {
  std::string text;
  if (values.kind == Values::kFiles && !values.suffix.empty())
    text = fmt::format("(__fish_complete_suffix .{})", values.suffix);
  if (values.kind == Values::kDirectories) text = "(__fish_complete_directories)";
  if (!values.words.empty()) text += (text.empty() ? "" : " ") + Joined(values.words);
  return text;
}

// A condition that holds if the words so far are those of the command, and not yet those of one of its
// subcommands.
std::string FishCondition(const CommandWords& command) {
  std::string condition;
  for (const std::string& word : command.path)
    condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
  if (!command.subcommands.empty())
    condition += (condition.empty() ? "" : "; and ") +
                 ("not __fish_seen_subcommand_from " + Joined(command.subcommands));
  return FishQuoted(condition);
}

std::string FishScript(const std::vector<CommandWords>& commands, const std::vector<std::string>& profiles) {
  std::string text =
      "# Completion of windtunnel's commands, options and files for fish.\ncomplete -c windtunnel -f\n";
  for (const CommandWords& command : commands) {
    const std::string start = "complete -c windtunnel -n " + FishCondition(command);
    for (const OptionWords& option : command.options) {
      std::string line = start;
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const Values values = ValuesOf(option.value, profiles, false);
      if (!option.value.empty())
        line += values.kind == Values::kFiles && values.suffix.empty() ? " -r -F" : " -x";
      if (const std::string words = FishValues(values); !option.value.empty() && !words.empty())
        line += " -a " + FishQuoted(words);
      text += line + " -d " + FishQuoted(option.description) + "\n";
    }
    for (const CommandWords& sub : commands) {
      if (sub.path.size() != command.path.size() + 1 ||
          !std::equal(command.path.begin(), command.path.end(), sub.path.begin()))
        continue;
      text +=
          fmt::format("{} -a {} -d {}\n", start, FishQuoted(sub.path.back()), FishQuoted(sub.description));
    }
    if (const std::string words = FishValues(OperandsOf(command, profiles)); !words.empty())
      text += fmt::format("{} -a {}\n", start, FishQuoted(words));
  }
  return text;
}

}  // namespace

Result<std::string> CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands,
                                     const std::vector<std::string>& profiles) {
  if (shell == "bash") return BashScript(commands, profiles);
  if (shell == "zsh") return ZshScript(commands, profiles);
  if (shell == "fish") return FishScript(commands, profiles);
  return InvalidInput("completion for '{}': expected bash, zsh or fish", shell);
}

}  // namespace windtunnel
