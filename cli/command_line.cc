#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "reports/version.h"
#include "scenarios/suggest.h"

namespace windtunnel {
namespace {

// "nan" is within every range.
CLI::Validator IsFinite() {
  const auto complaint = [](const std::string& text) {
    return std::isfinite(std::strtod(text.c_str(), nullptr)) ? std::string()
                                                             : text + " is not a finite number";
  };
  return CLI::Validator(complaint, "");
}

// What may be typed; the hidden "rank" beside them is not offered.
const std::vector<std::string>& Commands() {
  static const std::vector<std::string> commands = {"predict",    "run",       "compare", "calibrate",
                                                    "search",     "validate",  "explain", "profile",
                                                    "checkpoint", "completion"};
  return commands;
}

bool TakesOneFile(Command command) {
  return command == Command::kPredict || command == Command::kRun || command == Command::kExplain ||
         command == Command::kSearch || command == Command::kCheckpointExport ||
         command == Command::kCompletion || command == Command::kRank;
}

// The numbers that run.seed may be; CLI11 would take -1 for the largest of 64 bits.
std::string WrongSeed(const std::string& text) {
  int64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size() && seed >= 0) return "";
  return fmt::format("'{}' is no whole number from 0 to {}", text, std::numeric_limits<int64_t>::max());
}

class Parser {
 public:
  Parser()
      : app_(
            "Predicts distributed training steps from measured costs, and holds the predictions against live "
            "runs.") {
    app_.name("windtunnel");
    app_.set_version_flag("--version", std::string("windtunnel ") + kVersion);
    app_.require_subcommand(1);
    app_.footer(
        "Exit status: 0 success, 1 the work failed, 2 wrong usage or a bad file, 3 outside the tolerance.\n"
        "docs/contract.md describes the files; `windtunnel COMMAND --help` the options of a command.");
    AddPredict();
    AddRun();
    AddCompare();
    AddCalibrate();
    AddValidate();
    AddExplain();
    AddSearch();
    AddProfileCommands();
    AddCheckpointCommands();
    CLI::App* completion =
        AddCommand(app_, "completion", Command::kCompletion,
                   "Print a script that lets a shell complete commands, options and files.");
    AddFile(*completion, "SHELL", "bash, zsh or fish");
    CLI::App* rank = AddCommand(app_, "rank", Command::kRank, "One rank of a job (internal).");
    rank->group("");
    AddFile(*rank, "JOB", "The job's file");
  }

  Result<Options> Parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForVersion& version) {
      options_.text = std::string(version.what()) + "\n";
    } catch (const CLI::Success&) {
      options_.text = HelpText();
    } catch (const CLI::ParseError& error) {
      return WrongUsage(error.what());
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
  // "--quiet" or "-q", and no number and no "-".
  static bool LooksLikeOption(const std::string& value) {
    return value.starts_with("--") || (value.size() == 2 && value[0] == '-' && std::isalpha(value[1]) != 0);
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
      const std::string type = option->get_type_name();  // "N:INT in [1 - 9]": the check is no name
      if (option->get_items_expected_max() > 0) added.value = type.substr(0, type.find(':'));
      added.description = option->get_description();
    }
    std::vector<const CLI::App*> visible =
        app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
    for (const CLI::App* sub : visible) words.subcommands.push_back(sub->get_name());
    commands.push_back(std::move(words));
    for (const CLI::App* sub : visible) {
      std::vector<std::string> longer = path;
      longer.push_back(sub->get_name());
      Describe(*sub, longer, commands);
    }
  }

  CLI::App* AddCommand(CLI::App& parent, const std::string& name, Command command,
                       const std::string& description) {
    CLI::App* added = parent.add_subcommand(name, description);
    added->parse_complete_callback([this, command] { options_.command = command; });
    return added;
  }

  void AddFiles(CLI::App& command, const std::string& what, const std::string& description) {
    command.add_option(what, options_.files, description)->required()->type_name("");
  }
  void AddFile(CLI::App& command, const std::string& what, const std::string& description) {
    command.add_option(what, options_.files, description)
        ->required()
        ->type_name("")
        ->expected(1)                                            // for the help;
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);  // Parse says what is wrong with more
  }

  void AddPredict() {
    CLI::App* predict = AddCommand(app_, "predict", Command::kPredict, "Simulate the scenario's step.");
    AddFile(*predict, "SCENARIO", "A scenario file");
    AddCommon(*predict);
    AddFolding(*predict);
    AddReports(*predict);
  }

  void AddRun() {
    CLI::App* run =
        AddCommand(app_, "run", Command::kRun,
                   "Run the scenario's step live: launches the local ranks, or joins when RANK is set.");
    AddFile(*run, "SCENARIO", "A scenario file");
    run->add_option("--tensorboard", options_.tensorboard,
                    "Write event files for TensorBoard into DIR, while the steps run")
        ->type_name("DIR");
    run->add_option("--log-every", options_.log_every,
                    "Report every Nth step only, on standard error and to TensorBoard (default 1)")
        ->type_name("N")
        ->check(CLI::Range(1, 1'000'000'000));
    AddCommon(*run);
    AddReports(*run);
    AddTraining(*run);
    AddNodes(*run);
  }

  void AddCompare() {
    CLI::App* compare = AddCommand(app_, "compare", Command::kCompare,
                                   "Calibrate what is missing, predict, run live, and compare.");
    AddFiles(*compare, "SCENARIO", "Scenario files");
    AddNodes(*compare);
    compare->add_flag("--recalibrate", options_.recalibrate, "Measure all costs again");
    AddCommon(*compare);
    AddFolding(*compare);
    AddReports(*compare);
  }

  void AddCalibrate() {
    CLI::App* calibrate = AddCommand(app_, "calibrate", Command::kCalibrate,
                                     "Measure kernels and collectives of this machine into a profile.");
    calibrate
        ->add_option("SCENARIO", options_.files,
                     "Scenario files whose operators to measure (default: a small GPT)")
        ->type_name("");
    calibrate
        ->add_option("--out", options_.out, "The profile to write or extend (default: this machine's cache)")
        ->type_name("FILE");
    calibrate
        ->add_option("--steps", options_.steps,
                     "Fit a framework profile to measured steps (files of validation rows) instead; --out "
                     "FILE takes it")
        ->type_name("ROWS");
    AddNodes(*calibrate);
    calibrate->add_flag("--recalibrate", options_.recalibrate, "Measure all costs again");
    AddCommon(*calibrate);
  }

  void AddValidate() {
    CLI::App* validate = AddCommand(app_, "validate", Command::kValidate,
                                    "Predict published measurements and print the errors.");
    AddFiles(*validate, "ROWS", "Files of validation rows (JSON, one object a line)");
    AddCommon(*validate);
    CLI::Option* cross_fit =
        validate
            ->add_option("--cross-fit", options_.cross_fit,
                         "Fit each source to this share of its rows, and print the errors of its others")
            ->type_name("SHARE")
            ->check(CLI::Range(0.0, 1.0))
            ->check(IsFinite());
    validate->add_option("--seeds", options_.seeds, "How many draws --cross-fit makes")
        ->type_name("N")
        ->check(CLI::Range(1, 1000))
        ->needs(cross_fit);
    validate->add_option("--svg", options_.svg, "Write a picture: predicted over measured")
        ->type_name("FILE");
    validate->add_option("--json", options_.json, "Write the errors as JSON; - is standard output")
        ->type_name("FILE");
  }

  void AddExplain() {
    CLI::App* explain =
        AddCommand(app_, "explain", Command::kExplain, "Say where the step time and the memory go.");
    AddFile(*explain, "SCENARIO", "A scenario file");
    CLI::Option* resolved =
        explain->add_flag("--resolved", options_.resolved, "Print the scenario with every default filled in");
    CLI::Option* memory = explain->add_flag("--memory", options_.memory, "Only memory, which needs no costs");
    for (CLI::Option* report : AddReports(*explain)) report->excludes(resolved)->excludes(memory);
    AddCommon(*explain);
    AddFolding(*explain);
  }

  // torchrun's names, in both of its spellings. The command is given on every node.
  void AddNodes(CLI::App& command) {
    command.add_option("--nnodes", options_.nnodes, "Nodes of the job (default: cluster.nodes)")
        ->type_name("N")
        ->check(CLI::Range(1, 100'000));
    command
        .add_option("--nproc-per-node,--nproc_per_node", options_.nproc_per_node,
                    "Ranks on each (default: cluster.devices_per_node)")
        ->type_name("N")
        ->check(CLI::Range(1, 100'000));
    command.add_option("--node-rank,--node_rank", options_.node_rank, "Which of the nodes this is, from 0")
        ->type_name("N")
        ->check(CLI::Range(0, 100'000));
    command.add_option("--master-addr,--master_addr", options_.master_addr, "Where node 0 is")
        ->type_name("HOST");
    command
        .add_option("--master-port,--master_port", options_.master_port, "A free port there (default 29500)")
        ->type_name("PORT")
        ->check(CLI::Range(1, 65535));
    command
        .add_option("--rdzv-id,--rdzv_id", options_.rdzv_id,
                    "What nodes of this job know and others need not: any text")
        ->type_name("ID");
    command
        .add_option("--rendezvous-timeout", options_.rendezvous_timeout_s,
                    "For all nodes, or ranks of another launcher's, to come (default 60)")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, 86'400.0))
        ->check(IsFinite());
  }

  // What a live run does beside its steps.
  void AddTraining(CLI::App& run) {
    CLI::Option* directory =
        run.add_option("--checkpoint-dir", options_.checkpoint_dir,
                       "Save checkpoints there: after the last step, and as --checkpoint-every says")
            ->type_name("DIR");
    run.add_option("--checkpoint-every", options_.checkpoint_every, "Save after every N steps")
        ->type_name("N")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
        ->needs(directory);
    run.add_option("--checkpoint-keep", options_.keep, "Keep the N newest checkpoints (default 2; 0: all)")
        ->type_name("N")
        ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
        ->needs(directory);
    CLI::Option* resume = run.add_flag(
        "--resume", options_.resume, "Go on from the newest checkpoint in --checkpoint-dir, if there is one");
    resume->needs(directory);
    CLI::Option* from = run.add_option("--resume-from", options_.resume_from, "Go on from this checkpoint")
                            ->type_name("CHECKPOINT")
                            ->excludes(resume);
    run.add_option("--import", options_.import_weights,
                   "First weights: a safetensors file of GPT-2 or Llama, or the directory that has it")
        ->type_name("FILE|DIR")
        ->excludes(from);
    run.add_option("--export", options_.export_weights,
                   "Write the weights to DIR as safetensors with Hugging Face's names, and config.json")
        ->type_name("DIR");
    run.add_flag("--eval", options_.evaluate, "Evaluate on held-out data after the last step");
    run.add_option("--max-restarts,--max_restarts", options_.max_restarts,
                   "Launch the job again up to N times when a rank fails, from its newest checkpoint")
        ->type_name("N")
        ->check(CLI::Range(0, 1'000'000));
    run.add_option("--collective-timeout", options_.collective_timeout_s,
                   "Deadline of every collective (default 60)")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, 86'400.0))
        ->check(IsFinite());
    run.add_option("--flight-record", options_.flight_record,
                   "Where the last operators of all ranks are written when one fails")
        ->type_name("FILE");
  }

  void AddCheckpointCommands() {
    CLI::App* checkpoint =
        app_.add_subcommand("checkpoint", "Look at checkpoints, and export their weights.");
    checkpoint->require_subcommand(1);
    const char* what = "Checkpoints, or directories of them, whose newest is meant";
    CLI::App* show =
        AddCommand(*checkpoint, "show", Command::kCheckpointShow, "Print what a checkpoint has.");
    AddFiles(*show, "CHECKPOINT", what);
    CLI::App* check = AddCommand(*checkpoint, "check", Command::kCheckpointCheck,
                                 "Read checkpoints whole, and compare all checksums.");
    AddFiles(*check, "CHECKPOINT", what);
    CLI::App* write =
        AddCommand(*checkpoint, "export", Command::kCheckpointExport,
                   "Write the weights as safetensors with Hugging Face's names, and config.json.");
    AddFile(*write, "CHECKPOINT", "A checkpoint, or a directory of them, whose newest is meant");
    write->add_option("--out", options_.out, "The directory to write")->type_name("DIR")->required();
  }

  void AddSearch() {
    CLI::App* search =
        AddCommand(app_, "search", Command::kSearch,
                   "Find the best parallel configuration within the scenario's `search:` ranges.");
    AddFile(*search, "SCENARIO", "A scenario file with ranges");
    search->add_option("--top", options_.top, "How many of the fastest to show (default 10)")
        ->type_name("N")
        ->check(CLI::Range(1, 1'000'000));
    search
        ->add_option("--state", options_.state,
                     "Keep what is found in FILE, and go on from what is there after an interruption")
        ->type_name("FILE");
    CLI::Option* full = search->add_flag(
        "--full", options_.full, "Predict the whole Pareto front in full, not only the best (takes long)");
    search->add_flag("--quick", options_.quick, "Predict nothing in full: step times and memory are the same")
        ->excludes(full);
    search->add_option("--threads", options_.threads, "Threads (default: one for each core)")
        ->type_name("N")
        ->check(CLI::Range(1, 4096));
    AddCommon(*search);
    search->add_option("--json", options_.json, "Write the result as JSON; - is standard output")
        ->type_name("FILE");
    search
        ->add_option("--html", options_.html,
                     "Write a report with plots: one HTML file that needs nothing else")
        ->type_name("FILE");
  }

  void AddProfileCommands() {
    CLI::App* profile = app_.add_subcommand("profile", "Look at hardware profiles.");
    profile->require_subcommand(1);
    CLI::App* show = AddCommand(*profile, "show", Command::kProfileShow, "Print the costs of a profile.");
    AddFiles(*show, "FILE", "Profile files or names");
    CLI::App* merge = AddCommand(*profile, "merge", Command::kProfileMerge,
                                 "Merge profiles of one machine: all their entries, the newer of two.");
    AddFiles(*merge, "FILE", "Profile files or names");
    merge->add_option("--out", options_.out, "The file to write; - is standard output (the default)")
        ->type_name("FILE");
    CLI::App* check = AddCommand(
        *profile, "check", Command::kProfileCheck,
        "Check that profiles are well formed, and that their costs can be (exit status 3: one cannot).");
    AddFiles(*check, "FILE", "Profile files or names");
  }

  void AddCommon(CLI::App& command) {
    command
        .add_option("--profile", options_.profile,
                    "Costs: a profile's file or name (default: this machine's cache)")
        ->type_name("NAME|FILE");
    command
        .add_option("--framework-profile", options_.framework_profile,
                    "What the framework makes of operators (default: what is known of the scenario's)")
        ->type_name("FILE");
    command.add_option("--set", options_.sets, "Override a scenario key by its dotted path; repeatable")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false);
    command.add_option("--seed", options_.seed, "Override run.seed")
        ->type_name("N")
        ->check(CLI::Validator([](std::string& text) { return WrongSeed(text); }, ""));
    command.add_flag("-q,--quiet", options_.quiet, "Only verdicts and errors: no tables, no progress");
    command.add_flag("-v,--verbose", options_.verbose, "Log losses and other detail to standard error");
    command.add_flag_callback(
        "--no-progress", [this] { options_.progress = false; }, "No line of progress");
  }

  void AddFolding(CLI::App& command) {
    command.add_flag_callback(
        "--no-fold", [this] { options_.fold = false; }, "Simulate every rank, alike or not");
  }

  std::vector<CLI::Option*> AddReports(CLI::App& command) {
    std::vector<CLI::Option*> reports = {
        command.add_option("--json", options_.json, "Write the result as JSON; - is standard output"),
        command.add_option("--trace", options_.trace, "Write a trace for Perfetto or chrome://tracing"),
        command.add_option("--svg", options_.svg, "Write a picture of the timelines"),
        command.add_option("--html", options_.html,
                           "Write a report with plots: one HTML file that needs nothing else")};
    for (CLI::Option* report : reports) report->type_name("FILE");
    return reports;
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

  std::string HelpText() const { return Selected()->help(PathOf(Selected()->get_parent())); }

  CLI::App app_;
  Options options_;
};

}  // namespace

std::vector<CommandWords> DescribeCommands() { return Parser().Describe(); }

Result<Options> ParseCommandLine(const std::vector<std::string>& arguments) {
  if (arguments.empty())
    return InvalidInput("expected a command: {} (see `windtunnel --help`)", JoinWithOr(Commands()));
  const std::string& command = arguments.front();
  if (command == "help") {  // "help predict" is "predict --help"
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
  return Parser().Parse(arguments);
}

}  // namespace windtunnel
