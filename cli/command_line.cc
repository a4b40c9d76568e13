#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "cli/command_options.h"
#include "scenarios/suggest.h"

namespace windtunnel {
namespace {

// torchrun accepts its options with underscores and with dashes, and so does this program.
std::string WithDashes(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const auto end = std::find(argument.begin(), argument.end(), '=');
  std::replace(argument.begin(), end, '_', '-');
  return argument;
}

// The commands that may be typed, except the hidden "rank".
const std::vector<std::string>& Commands() {
  static const std::vector<std::string> commands = {"predict", "run",        "compare", "calibrate",
                                                    "search",  "validate",   "explain", "list",
                                                    "profile", "checkpoint", "import",  "completion"};
  return commands;
}

bool TakesOneFile(Command command) {
  return command == Command::kPredict || command == Command::kRun || command == Command::kExplain ||
         command == Command::kSearch || command == Command::kCheckpointExport ||
         command == Command::kCompletion || command == Command::kImport || command == Command::kRank;
}

class Parser {
 public:
  Parser()
      : app_(
            "Predicts the step time and the memory of distributed training, and compares predictions with "
            "live "
            "runs.") {
    AddCommands(app_, options_);
  }

  Result<Options> Parse(std::vector<std::string> arguments) {
    std::transform(arguments.begin(), arguments.end(), arguments.begin(), WithDashes);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForVersion& version) {
      options_.text = std::string(version.what()) + "\n";
    } catch (const CLI::Success&) {
      options_.text = HelpText();
    } catch (const CLI::ParseError& error) {
      const std::string unplaced = Unplaced();
      return WrongUsage(unplaced.empty() ? error.what() : unplaced);
    }
    if (options_.files.size() > 1 && TakesOneFile(options_.command))
      return InvalidInput("`{}` takes one file, {} were given: {}, {}", SelectedPath(), options_.files.size(),
                          options_.files[0], options_.files[1]);
    for (const CLI::Option* option : Selected()->get_options()) {
      const std::vector<std::string>& given = option->results();
      if (std::find(given.begin(), given.end(), "") != given.end())
        return WrongUsage(fmt::format("{} is empty", option->get_name()));
      const auto taken = std::find_if(given.begin(), given.end(), LooksLikeOption);
      if (option->get_items_expected_max() > 0 && taken != given.end())
        return WrongUsage(fmt::format("{} took the option {} as its value", option->get_name(), *taken));
    }
    return options_;
  }

  tl::unexpected<Error> WrongUsage(const std::string& what) const {
    return InvalidInput("{} (see `{} --help`)", what, SelectedPath());
  }

  std::vector<CommandWords> Describe() const {
    std::vector<CommandWords> commands;
    Describe(app_, {}, commands);
    return commands;
  }

 private:
  // Whether `value` looks like "--quiet" or "-q", and not like a number or "-".
  static bool LooksLikeOption(const std::string& value) {
    return value.starts_with("--") || (value.size() == 2 && value[0] == '-' && std::isalpha(value[1]) != 0);
  }

  // The subcommands that may be typed.
  static std::vector<const CLI::App*> Visible(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
  }

  static void Describe(const CLI::App& app, const std::vector<std::string>& path,
                       std::vector<CommandWords>& commands) {
    CommandWords words{path, app.get_description(), {}, {}, ""};
    for (const CLI::Option* option : app.get_options()) {
      if (!option->nonpositional()) {
        words.operand = option->get_name(true);
        continue;
      }
      OptionWords& added = words.options.emplace_back();
      for (const std::string& name : option->get_snames()) added.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) added.names.push_back("--" + name);
      const std::string type = option->get_type_name();  // of "N:INT in [1 - 9]", only "N" is the name
      if (option->get_items_expected_max() > 0) added.value = type.substr(0, type.find(':'));
      added.description = option->get_description();
    }
    const std::vector<const CLI::App*> visible = Visible(app);
    for (const CLI::App* sub : visible) words.subcommands.push_back(sub->get_name());
    commands.push_back(std::move(words));
    for (const CLI::App* sub : visible) {
      std::vector<std::string> longer = path;
      longer.push_back(sub->get_name());
      Describe(*sub, longer, commands);
    }
  }

  const CLI::App* Selected() const {
    const CLI::App* app = &app_;
    while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
    return app;
  }

  // "windtunnel profile merge"
  static std::string PathOf(const CLI::App* app) {
    std::string path;
    for (; app; app = app->get_parent()) path = app->get_name() + (path.empty() ? "" : " " + path);
    return path;
  }
  std::string SelectedPath() const { return PathOf(Selected()); }

  // A complaint about an argument that nothing takes; empty: there is none. CLI11 itself complains first of
  // what is missing, such as the file, and leaves the user to find the misspelt word.
  std::string Unplaced() const {
    for (const std::string& left : app_.remaining(/*recurse=*/true))
      if (left.size() > 1 && left[0] == '-' && left != "--") return UnknownOption(left);
    const std::vector<const CLI::App*> visible = Visible(*Selected());
    if (visible.empty()) return "";
    std::vector<std::string> names;
    for (const CLI::App* sub : visible) names.push_back(sub->get_name());
    std::vector<std::string> left = Selected()->remaining();
    std::erase(left, "--");
    if (left.empty()) return fmt::format("a subcommand is missing, expected {}", JoinWithOr(names));
    const std::string meant = MeantWord(left.front(), names);
    return fmt::format(
        "unknown subcommand '{}', {}", left.front(),
        meant.empty() ? "expected " + JoinWithOr(names) : fmt::format("did you mean '{}'?", meant));
  }

  std::string UnknownOption(const std::string& argument) const {
    const std::string name = argument.substr(0, argument.find('='));
    if (Selected()->get_option_no_throw(name) != nullptr)  // it stands before the command
      return fmt::format("the option {} is given too early, expected it after `{}`", name, SelectedPath());
    std::vector<std::string> known;
    for (const CLI::Option* option : Selected()->get_options())
      for (const std::string& word : option->get_lnames()) known.push_back(word);
    // Without dashes, which all options have in common.
    const std::string meant =
        MeantWord(name.substr(std::min(name.find_first_not_of('-'), name.size())), known);
    return fmt::format("unknown option '{}'", name) +
           (meant.empty() ? "" : fmt::format(", did you mean '--{}'?", meant));
  }

  // CLI11 separates groups of options by two empty lines; the help has one.
  std::string HelpText() const {
    std::string text = Selected()->help(PathOf(Selected()->get_parent()));
    for (size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    return text;
  }

  CLI::App app_;
  Options options_;
};

}  // namespace

std::vector<CommandWords> DescribeCommands() { return Parser().Describe(); }

Result<Options> ParseCommandLine(const std::vector<std::string>& arguments) {
  if (arguments.empty())
    return InvalidInput("expected a command: {} (see `windtunnel --help`)", JoinWithOr(Commands()));
  const std::string& command = arguments.front();
  const bool is_help_option = command == "--help" || command == "-h";
  const bool names_command = arguments.size() > 1 && !arguments[1].starts_with("-");
  if (command == "help" || (is_help_option && names_command)) {  // both of "predict" are "predict --help"
    std::vector<std::string> asked(arguments.begin() + 1, arguments.end());
    asked.push_back("--help");
    return ParseCommandLine(asked);
  }
  bool known = std::find(Commands().begin(), Commands().end(), command) != Commands().end();
  if (!known && command != "rank" && !command.starts_with("-")) {
    const std::string meant = MeantWord(command, Commands());
    return InvalidInput(
        "unknown command '{}', {} (see `windtunnel --help`)", command,
        meant.empty() ? "expected " + JoinWithOr(Commands()) : fmt::format("did you mean '{}'?", meant));
  }
  if (command != "import") return Parser().Parse(arguments);
  // What follows "--" is another program's command, with options of its own.
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  WT_ASSIGN_OR_RETURN(Options options, Parser().Parse({arguments.begin(), end}));
  if (end != arguments.end()) options.launch.assign(end + 1, arguments.end());
  return options;
}

}  // namespace windtunnel
