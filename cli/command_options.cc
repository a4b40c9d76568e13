#include "cli/command_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "cli/option_values.h"
#include "reports/version.h"

namespace windtunnel {
namespace {

// Help in which the options that one needs or excludes are sorted: CLI11 keeps sets of pointers, whose order
// changes with their addresses.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    text.resize(std::min({text.size(), text.find(" Needs:"), text.find(" Excludes:")}));
    return text + NamesOf("Needs", option->get_needs()) + NamesOf("Excludes", option->get_excludes());
  }

 private:
  static std::string NamesOf(std::string_view title, const std::set<CLI::Option*>& options) {
    if (options.empty()) return "";
    std::set<std::string> names;
    for (const CLI::Option* option : options) names.insert(option->get_name());
    return fmt::format(" {}: {}", title, fmt::join(names, " "));
  }
};

constexpr char kExitStatus[] =
    "Exit status: 0 success, 1 the work failed, 2 wrong usage or a bad file, 3 outside the tolerance.";

// Groups of options in the help.
constexpr char kCostOptions[] = "Costs and scenario";
constexpr char kReportOptions[] = "Reports";
constexpr char kOutputOptions[] = "Terminal output";
constexpr char kCheckpointOptions[] = "Checkpoints and weights";
constexpr char kFailureOptions[] = "Failures";
constexpr char kNodeOptions[] = "Several nodes (run the same command on each)";

// Adds each command with its options. CLI11's callbacks refer only to `options`, which outlives this object.
class Commands {
 public:
  Commands(CLI::App& app, Options& options) : app_(app), options_(options) {}

  void Add() {
    app_.name("windtunnel");
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.set_version_flag("--version", std::string("windtunnel ") + kVersion);
    app_.require_subcommand(1);
    app_.footer(
        fmt::format("Begin with `windtunnel compare SCENARIO`, which measures what it needs; then predict "
                    "and explain variations with\n"
                    "--set KEY=VALUE. `windtunnel COMMAND --help` shows a command's options and examples.\n"
                    "{}\nScenario keys and file formats: docs/contract.md in the source tree.",
                    kExitStatus));
    AddCompare();
    AddPredict();
    AddExplain();
    AddRun();
    AddSearch();
    AddList();
    AddCalibrate();
    AddValidate();
    AddProfileCommands();
    AddCheckpointCommands();
    AddImport();
    CLI::App* completion =
        AddCommand(app_, "completion", Command::kCompletion,
                   "Print a script with which a shell completes commands, options and files.");
    AddFile(*completion, "SHELL", "bash, zsh or fish");
    Examples(*completion, {{"source <(windtunnel completion bash)", "for this shell; in ~/.bashrc for all"}});
    CLI::App* rank = AddCommand(app_, "rank", Command::kRank, "One rank of a job (internal).");
    rank->group("");
    AddFile(*rank, "JOB", "The job's file");
  }

 private:
  CLI::App* AddCommand(CLI::App& parent, const std::string& name, Command command,
                       const std::string& description) {
    CLI::App* added = parent.add_subcommand(name, description);
    added->parse_complete_callback([&options = options_, command] { options.command = command; });
    return added;
  }

  struct Example {
    std::string command, what;
  };
  static void Examples(CLI::App& command, const std::vector<Example>& examples) {
    size_t width = 0;
    for (const Example& example : examples) width = std::max(width, example.command.size());
    std::string text = examples.size() == 1 ? "Example:\n" : "Examples:\n";
    for (const Example& example : examples)
      text += fmt::format("  {:{}}   {}\n", example.command, width, example.what);
    command.footer(text + "\n" + kExitStatus);
  }

  void AddFiles(CLI::App& command, const std::string& what, const std::string& description) {
    command.add_option(what, options_.files, description)->required()->type_name("");
  }
  void AddFile(CLI::App& command, const std::string& what, const std::string& description) {
    command.add_option(what, options_.files, description)
        ->required()
        ->type_name("")
        ->expected(1)                                            // so that the help shows one file;
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);  // Parse reports more than one
  }

  void AddPredict() {
    CLI::App* predict =
        AddCommand(app_, "predict", Command::kPredict, "Predict the scenario's step time and memory.");
    AddFile(*predict, "SCENARIO", "A scenario file");
    Examples(*predict,
             {{"windtunnel predict s.yaml --set batch.micro=8", "a key changed"},
              {"windtunnel predict s.yaml --profile h100-sxm-80g", "on another device"},
              {"windtunnel predict s.yaml --html s.html --trace s.json",
               "a report, and a trace for ui.perfetto.dev"},
              {"windtunnel predict s.yaml --tokens 15T", "also the days and device hours of a training"}});
    AddCommon(*predict);
    AddFolding(*predict);
    predict
        ->add_option("--tokens", options_.tokens,
                     "Also print how long a training of N tokens (samples, of an MLP) takes: 15T, 300B, 2e9")
        ->type_name("N")
        ->transform(TokenCount())
        ->group(kReportOptions);
    AddReports(*predict);
  }

  void AddRun() {
    CLI::App* run = AddCommand(
        app_, "run", Command::kRun,
        "Train the scenario live: launches this node's ranks, or joins a job of torchrun, mpirun or srun.");
    AddFile(*run, "SCENARIO", "A scenario file");
    Examples(*run,
             {{"windtunnel run s.yaml --checkpoint-dir ckpt --checkpoint-every 100", "saves checkpoints"},
              {"windtunnel run s.yaml --checkpoint-dir ckpt --resume --set run.steps=500",
               "resumes, up to 500 steps in all"},
              {"mpirun -n 2 windtunnel run s.yaml", "as the ranks of another launcher"},
              {"windtunnel run s.yaml --node-rank 0 --master-addr node0", "on the first of several nodes"}});
    AddCheckpoints(*run);
    AddFailures(*run);
    AddNodes(*run);
    AddReports(*run);
    run->add_option("--tensorboard", options_.tensorboard,
                    "Write event files for TensorBoard into DIR while the steps run")
        ->type_name("DIR")
        ->group(kReportOptions);
    AddCommon(*run);
    run->add_option("--log-every", options_.log_every,
                    "Report only every Nth step, on standard error and to TensorBoard (default 1)")
        ->type_name("N")
        ->check(In(1, 1'000'000'000))
        ->group(kOutputOptions);
  }

  void AddCompare() {
    CLI::App* compare = AddCommand(app_, "compare", Command::kCompare,
                                   "Measure missing costs, predict, run live, and print the errors.");
    AddFiles(*compare, "SCENARIO", "Scenario files");
    Examples(*compare, {{"windtunnel compare s.yaml", "costs measured before are reused"},
                        {"windtunnel compare s.yaml --recalibrate --html s.html",
                         "everything measured now, and a report"}});
    AddRecalibrate(*compare);
    AddCommon(*compare);
    AddFolding(*compare);
    AddReports(*compare);
    AddNodes(*compare);
  }

  void AddCalibrate() {
    CLI::App* calibrate =
        AddCommand(app_, "calibrate", Command::kCalibrate,
                   "Measure this machine's kernels and collectives, or fit a framework to measured steps.");
    calibrate
        ->add_option(
            "SCENARIO", options_.files,
            "Scenario files whose operators to measure (default: a small GPT on one rank and on two)")
        ->type_name("");
    Examples(*calibrate, {{"windtunnel calibrate s.yaml", "into this user's cache, which predict reads"},
                          {"windtunnel calibrate s.yaml --out node.json",
                           "into a profile of its own (--profile node.json)"},
                          {"windtunnel calibrate --steps rows.jsonl --out mine.json",
                           "factors from measured steps (--framework-profile mine.json)"}});
    calibrate
        ->add_option("--out", options_.out,
                     "The file to write; an existing profile is extended (default: this user's cache)")
        ->type_name("FILE");
    calibrate
        ->add_option("--steps", options_.steps,
                     "Fit a framework profile to measured steps (files of validation rows) instead, and "
                     "write it to --out")
        ->type_name("ROWS");
    AddRecalibrate(*calibrate);
    AddCommon(*calibrate);
    AddNodes(*calibrate);
  }

  void AddValidate() {
    CLI::App* validate = AddCommand(app_, "validate", Command::kValidate,
                                    "Predict measured steps, of papers or your own, and print the errors.");
    AddFiles(*validate, "ROWS", "Files of validation rows (JSON, one object a line)");
    Examples(*validate, {{"windtunnel validate docs/measured/torchtitan_more.jsonl", "published rows"},
                         {"windtunnel validate mine.jsonl --cross-fit 0.05",
                          "how much a fit to a twentieth of them helps"}});
    CLI::Option* cross_fit = validate
                                 ->add_option("--cross-fit", options_.cross_fit,
                                              "Fit each source to this share of its rows, 0 to 1 (at least "
                                              "three rows), and print the errors "
                                              "of its others")
                                 ->type_name("SHARE")
                                 ->check(In(0.0, 1.0))
                                 ->check(IsFinite());
    validate->add_option("--seeds", options_.seeds, "How many draws --cross-fit makes (default 5)")
        ->type_name("N")
        ->check(In(1, 1000))
        ->needs(cross_fit);
    validate->add_option("--svg", options_.svg, "Write a picture: predicted over measured")
        ->type_name("FILE")
        ->group(kReportOptions);
    validate->add_option("--json", options_.json, "Write the errors as JSON; - is standard output")
        ->type_name("FILE")
        ->group(kReportOptions);
    AddCommon(*validate);
  }

  void AddExplain() {
    CLI::App* explain = AddCommand(
        app_, "explain", Command::kExplain,
        "Explain a prediction: critical path, exposed communication, bubbles, memory, what would fit.");
    AddFile(*explain, "SCENARIO", "A scenario file");
    Examples(*explain,
             {{"windtunnel explain s.yaml --memory", "the peak by category, without any costs"},
              {"windtunnel explain s.yaml --resolved", "the scenario with every default"},
              {"windtunnel explain s.yaml --schedule > s.csv", "for torch's _load_csv, or to be edited"}});
    CLI::Option* resolved =
        explain->add_flag("--resolved", options_.resolved, "Print the scenario with every default filled in");
    CLI::Option* memory =
        explain->add_flag("--memory", options_.memory, "Explain only the memory, which needs no costs");
    CLI::Option* schedule =
        explain->add_flag("--schedule", options_.schedule,
                          "Print the pipeline's schedule as torch.distributed.pipelining's CSV");
    memory->excludes(resolved);
    schedule->excludes(resolved)->excludes(memory);
    for (CLI::Option* report : AddReports(*explain))
      report->excludes(resolved)->excludes(memory)->excludes(schedule);
    AddCommon(*explain);
    AddFolding(*explain);
  }

  void AddRecalibrate(CLI::App& command) {
    command.add_flag("--recalibrate", options_.recalibrate, "Measure all costs again")->group(kCostOptions);
  }

  // The names are torchrun's.
  void AddNodes(CLI::App& command) {
    command.add_option("--nnodes", options_.nnodes, "Number of nodes (default: cluster.nodes)")
        ->type_name("N")
        ->check(TorchrunsCount("a number of nodes", "ranges such as 1:4, of elastic jobs, are not supported"))
        ->group(kNodeOptions);
    command
        .add_option("--nproc-per-node", options_.nproc_per_node,
                    "Ranks on each node (default: cluster.devices_per_node)")
        ->type_name("N")
        ->check(
            TorchrunsCount("a number of ranks",
                           "words such as auto are not supported; the scenario has cluster.devices_per_node"))
        ->group(kNodeOptions);
    command.add_option("--node-rank", options_.node_rank, "Number of this node, from 0; node 0 reports")
        ->type_name("N")
        ->check(In(0, 100'000))
        ->group(kNodeOptions);
    CLI::Option* address =
        command.add_option("--master-addr", options_.master_addr, "Host name or address of node 0")
            ->type_name("HOST")
            ->group(kNodeOptions);
    CLI::Option* port =
        command.add_option("--master-port", options_.master_port, "A free port of node 0 (default 29500)")
            ->type_name("PORT")
            ->check(In(1, 65535))
            ->group(kNodeOptions);
    command
        .add_option_function<std::string>(
            "--rdzv-endpoint",
            [&options = options_](const std::string& endpoint) { SetEndpoint(endpoint, options); },
            "--master-addr and --master-port in one")
        ->type_name("HOST[:PORT]")
        ->check(CLI::Validator([](std::string& text) { return WrongEndpoint(text); }, ""))
        ->excludes(address)
        ->excludes(port)
        ->group(kNodeOptions);
    command
        .add_option("--rdzv-backend", options_.rdzv_backend,
                    "For torchrun's command lines; nodes meet at node 0, whichever it is")
        ->type_name("NAME")
        ->check(CLI::IsMember({"c10d", "static"}))
        ->group(kNodeOptions);
    command.add_flag("--standalone", options_.standalone, "For torchrun's command lines: there is one node")
        ->group(kNodeOptions);
    command
        .add_option("--rdzv-id", options_.rdzv_id,
                    "A text that only this job's nodes know; nodes that give another one are turned away")
        ->type_name("ID")
        ->group(kNodeOptions);
    command
        .add_option("--rendezvous-timeout", options_.rendezvous_timeout_s,
                    "How long to wait for all nodes, or for the ranks of another launcher (default 60)")
        ->type_name("SECONDS")
        ->check(In(0.1, 86'400.0))
        ->check(IsFinite())
        ->group(kNodeOptions);
  }

  void AddCheckpoints(CLI::App& run) {
    CLI::Option* directory =
        run.add_option(
               "--checkpoint-dir", options_.checkpoint_dir,
               "Save a checkpoint there after the last step, and every N steps with --checkpoint-every")
            ->type_name("DIR")
            ->group(kCheckpointOptions);
    run.add_option("--checkpoint-every", options_.checkpoint_every, "Save after every N steps")
        ->type_name("N")
        ->check(In(int64_t{1}, int64_t{1'000'000'000}))
        ->needs(directory)
        ->group(kCheckpointOptions);
    run.add_option("--checkpoint-keep", options_.keep, "Keep the N newest checkpoints (default 2; 0: all)")
        ->type_name("N")
        ->check(In(int64_t{0}, int64_t{1'000'000'000}))
        ->needs(directory)
        ->group(kCheckpointOptions);
    CLI::Option* resume =
        run.add_flag("--resume", options_.resume,
                     "Resume from the newest checkpoint in --checkpoint-dir; without one, start "
                     "anew. run.steps counts all steps of the run");
    resume->needs(directory)->group(kCheckpointOptions);
    CLI::Option* from =
        run.add_option("--resume-from", options_.resume_from,
                       "Resume from this checkpoint, or from the newest one in this directory")
            ->type_name("CHECKPOINT")
            ->excludes(resume)
            ->group(kCheckpointOptions);
    run.add_option("--import", options_.import_weights,
                   "Start from these weights: a safetensors file with Hugging Face's names, or its directory")
        ->type_name("FILE|DIR")
        ->excludes(from)
        ->group(kCheckpointOptions);
    run.add_option("--export", options_.export_weights,
                   "Write the weights to DIR as safetensors with Hugging Face's names, and config.json")
        ->type_name("DIR")
        ->group(kCheckpointOptions);
    run.add_flag("--eval", options_.evaluate, "Evaluate the loss on held-out data after the last step");
  }

  void AddFailures(CLI::App& run) {
    run.add_option("--max-restarts", options_.max_restarts,
                   "When a rank fails, restart the job up to N times from its newest checkpoint (default 0)")
        ->type_name("N")
        ->check(In(0, 1'000'000))
        ->group(kFailureOptions);
    run.add_option("--collective-timeout", options_.collective_timeout_s,
                   "Deadline of every collective (default 60)")
        ->type_name("SECONDS")
        ->check(In(0.1, 86'400.0))
        ->check(IsFinite())
        ->group(kFailureOptions);
    run.add_option(
           "--flight-record", options_.flight_record,
           "Where to write the last operators of all ranks when one fails (default: a file in TMPDIR)")
        ->type_name("FILE")
        ->group(kFailureOptions);
  }

  void AddCheckpointCommands() {
    CLI::App* checkpoint =
        app_.add_subcommand("checkpoint", "Show and check checkpoints, and export their weights.");
    checkpoint->require_subcommand(1);
    const char* what = "Checkpoints, or directories, of which the newest checkpoint is taken";
    CLI::App* show = AddCommand(*checkpoint, "show", Command::kCheckpointShow,
                                "Print a checkpoint's step, scenario and tensors.");
    AddFiles(*show, "CHECKPOINT", what);
    CLI::App* check = AddCommand(*checkpoint, "check", Command::kCheckpointCheck,
                                 "Read entire checkpoints and verify all checksums.");
    AddFiles(*check, "CHECKPOINT", what);
    CLI::App* write =
        AddCommand(*checkpoint, "export", Command::kCheckpointExport,
                   "Write the weights as safetensors with Hugging Face's names, and config.json.");
    AddFile(*write, "CHECKPOINT", "A checkpoint, or a directory, of which the newest checkpoint is taken");
    write->add_option("--out", options_.out, "The directory to write")->type_name("DIR")->required();
  }

  void AddSearch() {
    CLI::App* search =
        AddCommand(app_, "search", Command::kSearch,
                   "Find the fastest parallel configuration within the scenario's `search:` ranges.");
    AddFile(*search, "SCENARIO", "A scenario file with ranges");
    Examples(*search,
             {{"windtunnel search s.yaml --top 20 --quick", "step times and memory only"},
              {"windtunnel search s.yaml --state s.state", "can be interrupted and resumed"},
              {"mpirun -n 8 windtunnel search s.yaml --state s.state", "several processes share the work"}});
    search->add_option("--top", options_.top, "How many of the fastest to show (default 10)")
        ->type_name("N")
        ->check(In(1, 1'000'000));
    search
        ->add_option("--state", options_.state,
                     "Keep results in FILE, and resume from them after an interruption")
        ->type_name("FILE");
    CLI::Option* full = search->add_flag(
        "--full", options_.full,
        "Predict every configuration that is reported in detail, not only the best (seconds each)");
    search
        ->add_flag("--quick", options_.quick,
                   "Skip the detailed prediction of the best configuration; step times and memory are the "
                   "same, or marked with >")
        ->excludes(full);
    search->add_option("--threads", options_.threads, "Threads (default: one for each core)")
        ->type_name("N")
        ->check(In(1, 4096));
    search->add_option("--json", options_.json, "Write the result as JSON; - is standard output")
        ->type_name("FILE")
        ->group(kReportOptions);
    search->add_option("--html", options_.html, "Write a self-contained HTML report with plots")
        ->type_name("FILE")
        ->group(kReportOptions);
    AddCommon(*search);
  }

  void AddList() {
    CLI::App* list = AddCommand(app_, "list", Command::kList,
                                "List the devices, models, networks, … that a scenario can name.");
    list->add_option("WHAT", options_.files,
                     "devices, models, networks, links, topologies, frameworks or schedules (default: all)")
        ->type_name("");
  }

  void AddImport() {
    CLI::App* import = AddCommand(
        app_, "import", Command::kImport,
        "Write a scenario from what Megatron-LM, Hugging Face's Trainer, DeepSpeed or torchtitan is "
        "told to train.");
    import
        ->add_option(
            "FILE", options_.files,
            "A launch script of Megatron-LM or of Hugging Face's Trainer, a recipe (TRL, LLaMA-Factory, "
            "Axolotl) or a configuration of accelerate (YAML), a ds_config.json, or a torchtitan "
            "configuration (TOML); instead of it, a command may follow --")
        ->type_name("")
        ->expected(0, 1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    Examples(*import,
             {{"windtunnel import train.sh --set cluster.device=h100-sxm-80g --out s.yaml",
               "then: predict s.yaml"},
              {"windtunnel import ds_config.json --set model.preset=llama3-8b --set cluster.nodes=2 "
               "--set cluster.devices_per_node=8",
               "DeepSpeed's file has neither"},
              {"windtunnel import --set cluster.device=h100-sxm-80g -- torchrun … pretrain_gpt.py …",
               "a command, of which the shell expands the variables"},
              {"windtunnel import --set cluster.device=a100-sxm-80g -- accelerate launch --config_file "
               "fsdp.yaml sft.py --config recipe.yaml",
               "files that a command names are read"}});
    import
        ->add_option("--from", options_.from,
                     "Whose settings they are (default: what the file's ending and its settings speak of)")
        ->type_name("PROGRAM")
        ->check(CLI::IsMember({"megatron", "deepspeed", "torchtitan", "huggingface"}));
    const auto add_repeatable = [&](const char* name, std::vector<std::string>& values, const char* what) {
      return import->add_option(name, values, what)
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->allow_extra_args(false);
    };
    add_repeatable("--set", options_.sets, "Give a scenario key, as in --set cluster.nodes=4; repeatable")
        ->type_name("KEY=VALUE");
    add_repeatable("--define", options_.defines,
                   "The value of a variable that the script takes from outside; repeatable")
        ->type_name("NAME=VALUE");
    import->add_option("--out", options_.out, "The file to write; - is standard output (the default)")
        ->type_name("FILE");
  }

  void AddProfileCommands() {
    CLI::App* profile = app_.add_subcommand("profile", "Show, merge or check hardware profiles.");
    profile->require_subcommand(1);
    CLI::App* show = AddCommand(*profile, "show", Command::kProfileShow, "Print the costs of a profile.");
    AddFiles(*show, "FILE", "Profile files or names (`windtunnel list devices`)");
    CLI::App* merge =
        AddCommand(*profile, "merge", Command::kProfileMerge,
                   "Merge profiles of one machine; the newer entry wins where two have the same one.");
    AddFiles(*merge, "FILE", "Profile files or names");
    merge->add_option("--out", options_.out, "The file to write; - is standard output (the default)")
        ->type_name("FILE");
    CLI::App* check = AddCommand(*profile, "check", Command::kProfileCheck,
                                 "Check that profiles are well formed and their costs physically possible "
                                 "(exit status 3 if one is not).");
    AddFiles(*check, "FILE", "Profile files or names");
  }

  void AddCommon(CLI::App& command) {
    command
        .add_option("--profile", options_.profile,
                    "Take costs from a profile: a file, or a device's name, which also stands for "
                    "cluster.device: cpu "
                    "(default: this user's cache)")
        ->type_name("NAME|FILE")
        ->group(kCostOptions);
    command
        .add_option("--framework-profile", options_.framework_profile,
                    "Kernels and host overheads of the framework (default: those built in for the scenario's "
                    "framework)")
        ->type_name("FILE")
        ->group(kCostOptions);
    command
        .add_option(
            "--set", options_.sets,
            "Override a scenario key, as in --set batch.micro=8 or --set 'parallel.pipeline.balance=[1,2]'; "
            "repeatable")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false)
        ->group(kCostOptions);
    command.add_option("--seed", options_.seed, "Override run.seed")
        ->type_name("N")
        ->check(CLI::Validator([](std::string& text) { return WrongSeed(text); }, ""))
        ->group(kCostOptions);
    command.add_flag("-q,--quiet", options_.quiet, "Print only verdicts and errors: no tables, no progress")
        ->group(kOutputOptions);
    command.add_flag("-v,--verbose", options_.verbose, "Print more detail on standard error")
        ->group(kOutputOptions);
    command
        .add_flag_callback(
            "--no-progress", [&options = options_] { options.progress = false; }, "Show no progress line")
        ->group(kOutputOptions);
  }

  void AddFolding(CLI::App& command) {
    command
        .add_flag_callback(
            "--no-fold", [&options = options_] { options.fold = false; },
            "Simulate every rank by itself, not one for each group of identical ranks (slow)")
        ->group(kCostOptions);
  }

  std::vector<CLI::Option*> AddReports(CLI::App& command) {
    std::vector<CLI::Option*> reports = {
        command.add_option("--json", options_.json, "Write the result as JSON; - is standard output"),
        command.add_option("--trace", options_.trace, "Write a trace for Perfetto or chrome://tracing"),
        command.add_option("--svg", options_.svg, "Write a picture of the timelines"),
        command.add_option("--html", options_.html, "Write a self-contained HTML report with plots")};
    for (CLI::Option* report : reports) report->type_name("FILE")->group(kReportOptions);
    return reports;
  }

  CLI::App& app_;
  Options& options_;
};

}  // namespace

void AddCommands(CLI::App& app, Options& options) { Commands(app, options).Add(); }

}  // namespace windtunnel
