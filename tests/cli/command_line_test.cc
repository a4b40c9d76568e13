#include "cli/command_line.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

std::string ErrorOf(const std::vector<std::string>& arguments) {
  auto options = ParseCommandLine(arguments);
  if (options) return "";
  EXPECT_EQ(options.error().kind, ErrorKind::kInvalidInput);
  return options.error().message;
}

TEST(ParseCommandLine, TakesTheOptionsOfTheContract) {
  auto options =
      ParseCommandLine({"predict", "a.yaml", "--profile", "h200", "--json", "-", "--trace", "t.json", "--set",
                        "a.b=1", "--set", "c=2", "--seed", "7", "-q", "-v", "--no-progress"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->command, Command::kPredict);
  EXPECT_EQ(options->files, std::vector<std::string>{"a.yaml"});
  EXPECT_EQ(options->profile, "h200");
  EXPECT_EQ(options->json, "-");
  EXPECT_EQ(options->trace, "t.json");
  EXPECT_EQ(options->sets, (std::vector<std::string>{"a.b=1", "c=2"}));
  EXPECT_EQ(options->seed, 7u);
  EXPECT_TRUE(options->quiet && options->verbose);
  EXPECT_FALSE(options->progress);
}

TEST(ParseCommandLine, TakesOneValuePerSet) {
  auto options = ParseCommandLine({"compare", "--set", "a=1", "x.yaml", "y.yaml"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->sets, std::vector<std::string>{"a=1"});
  EXPECT_EQ(options->files, (std::vector<std::string>{"x.yaml", "y.yaml"}));
}

TEST(ParseCommandLine, KeepsCommasAndBracketsOfASet) {
  auto options = ParseCommandLine({"predict", "x.yaml", "--set", "model.widths=[32, 100, 10]"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->sets, std::vector<std::string>{"model.widths=[32, 100, 10]"});
}

TEST(ParseCommandLine, KnowsEveryCommand) {
  const std::vector<std::pair<std::vector<std::string>, Command>> commands = {
      {{"run", "f"}, Command::kRun},
      {{"checkpoint", "show", "f"}, Command::kCheckpointShow},
      {{"checkpoint", "check", "f", "g"}, Command::kCheckpointCheck},
      {{"checkpoint", "export", "f", "--out", "g"}, Command::kCheckpointExport},
      {{"compare", "f", "--recalibrate"}, Command::kCompare},
      {{"calibrate"}, Command::kCalibrate},
      {{"search", "f", "--json", "x"}, Command::kSearch},
      {{"validate", "rows.jsonl"}, Command::kValidate},
      {{"explain", "f", "--resolved"}, Command::kExplain},
      {{"profile", "show", "f"}, Command::kProfileShow},
      {{"profile", "merge", "f", "g", "--out", "h"}, Command::kProfileMerge},
      {{"profile", "check", "f"}, Command::kProfileCheck},
      {{"import", "train.sh"}, Command::kImport},
      {{"rank", "job"}, Command::kRank}};
  for (const auto& [arguments, command] : commands) {
    auto options = ParseCommandLine(arguments);
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_EQ(options->command, command) << arguments.front();
  }
}

TEST(ParseCommandLine, LeavesACommandBehindDashesAsItIs) {
  auto options =
      ParseCommandLine({"import", "--set", "a=1", "--", "torchrun", "--nproc_per_node", "8", "", "-q"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->launch, (std::vector<std::string>{"torchrun", "--nproc_per_node", "8", "", "-q"}));
  EXPECT_TRUE(options->files.empty());
  EXPECT_FALSE(options->quiet);
}

TEST(ParseCommandLine, PrintsHelpWithoutTheHiddenCommand) {
  auto options = ParseCommandLine({"--help"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->command, Command::kPrint);
  EXPECT_NE(options->text.find("compare"), std::string::npos);
  EXPECT_EQ(options->text.find("rank JOB"), std::string::npos);
  EXPECT_EQ(options->text.find("(internal)"), std::string::npos);
}

TEST(ParseCommandLine, PrintsTheHelpOfOneCommand) {
  auto options = ParseCommandLine({"compare", "--help"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->command, Command::kPrint);
  EXPECT_NE(options->text.find("--recalibrate"), std::string::npos);
}

TEST(ParseCommandLine, HelpSaysHowManyAreTaken) {
  const std::string predict = ParseCommandLine({"predict", "--help"})->text;
  EXPECT_EQ(predict.find("..."), std::string::npos) << predict;
  EXPECT_NE(ParseCommandLine({"compare", "--help"})->text.find("SCENARIO..."), std::string::npos);
  EXPECT_NE(ParseCommandLine({"profile", "check", "--help"})->text.find("exit status 3"), std::string::npos);
}

TEST(ParseCommandLine, TakesWhatARunDoesBesideItsSteps) {
  auto options =
      ParseCommandLine({"run", "f", "--checkpoint-dir", "d", "--checkpoint-every", "10", "--resume",
                        "--max-restarts", "3", "--eval", "--export", "e", "--collective-timeout", "2.5"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->checkpoint_dir, "d");
  EXPECT_EQ(options->checkpoint_every, 10);
  EXPECT_EQ(options->keep, 2);
  EXPECT_TRUE(options->resume && options->evaluate);
  EXPECT_EQ(options->max_restarts, 3);
  EXPECT_EQ(options->collective_timeout_s, 2.5);
  EXPECT_NE(ErrorOf({"run", "f", "--resume"}).find("--checkpoint-dir"), std::string::npos);
  EXPECT_NE(ErrorOf({"run", "f", "--resume-from", "c", "--import", "w"}).find("--import"), std::string::npos);
  EXPECT_NE(ErrorOf({"checkpoint", "export", "c"}).find("--out"), std::string::npos);
}

TEST(ParseCommandLine, TakesBothOfTorchrunsSpellings) {
  const auto options =
      ParseCommandLine({"run", "f", "--nproc_per_node", "4", "--max_restarts=2", "--rdzv_id=a_b"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->nproc_per_node, 4);
  EXPECT_EQ(options->max_restarts, 2);
  EXPECT_EQ(options->rdzv_id, "a_b");
}

TEST(ParseCommandLine, SaysWhichOfTorchrunsCountsItTakes) {
  for (const char* word : {"gpu", "cpu", "auto", "4x"}) {
    const std::string error = ErrorOf({"run", "f", "--nproc_per_node", word});
    EXPECT_NE(error.find("'" + std::string(word) +
                         "' is not a number of ranks from 1 to 100000: words such as auto are not supported; "
                         "the scenario has cluster.devices_per_node"),
              std::string::npos)
        << error;
  }
  EXPECT_NE(ErrorOf({"run", "f", "--nnodes=1:4"})
                .find("'1:4' is not a number of nodes from 1 to 100000: ranges such as 1:4, of elastic jobs, "
                      "are not supported"),
            std::string::npos);
  const std::string zero = ErrorOf({"run", "f", "--nnodes", "0"});
  EXPECT_NE(zero.find("'0' is not a number of nodes from 1 to 100000"), std::string::npos) << zero;
  EXPECT_EQ(zero.find("elastic"), std::string::npos) << zero;
  const auto plain = ParseCommandLine({"run", "f", "--nnodes", "1", "--nproc-per-node", "2"});
  EXPECT_EQ(plain ? plain->nnodes : std::nullopt, 1);
}

TEST(ParseCommandLine, TakesTorchrunsEndpoint) {
  const auto node_0 = [](const std::string& endpoint) {
    const auto options = ParseCommandLine({"run", "x.yaml", "--rdzv_endpoint=" + endpoint});
    if (!options) return options.error().message;
    return options->master_addr + " " + std::to_string(options->master_port);
  };
  EXPECT_EQ(node_0("head:29400"), "head 29400");
  EXPECT_EQ(node_0("head"), "head 29500");
  EXPECT_EQ(node_0("[fe80::1]:29400"), "fe80::1 29400");
  EXPECT_EQ(node_0("fe80::1"), "fe80::1 29500");
  EXPECT_EQ(node_0("localhost:0"), "localhost 0") << "any port, on one node";
  for (const char* wrong : {"head:", "head:99999", "head:http", ":29400"})
    EXPECT_NE(node_0(wrong).find("expected HOST or HOST:PORT, with a port of 1 to 65535"), std::string::npos)
        << wrong;
  EXPECT_NE(ErrorOf({"run", "x.yaml", "--rdzv-endpoint", "a:1", "--master-addr", "b"}).find("excludes"),
            std::string::npos);
}

TEST(ParseCommandLine, RefusesWrongUsageAndSaysWhatWasExpected) {
  EXPECT_NE(ErrorOf({}).find("expected a command"), std::string::npos);
  EXPECT_NE(ErrorOf({"predct", "x"}).find("unknown command 'predct', did you mean 'predict'?"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"simulate", "x"}).find("did you mean 'predict'?"), std::string::npos);
  EXPECT_NE(ErrorOf({"frobnicate", "x"}).find("expected predict, run, compare,"), std::string::npos);
  EXPECT_NE(ErrorOf({"help", "predct"}).find("did you mean 'predict'?"), std::string::npos);
  EXPECT_NE(ErrorOf({"predict"}).find("SCENARIO is required"), std::string::npos);
  EXPECT_NE(ErrorOf({"predict", "x", "y"}).find("`windtunnel predict` takes one file, 2 were given"),
            std::string::npos);
  EXPECT_EQ(
      ErrorOf({"predict", "x", "--seed", "many"}),
      "--seed: 'many' is not a whole number from 0 to 9223372036854775807 (see `windtunnel predict --help`)");
  EXPECT_EQ(
      ErrorOf({"predict", "x", "--seed", "-1"}),
      "--seed: '-1' is not a whole number from 0 to 9223372036854775807 (see `windtunnel predict --help`)");
  EXPECT_EQ(ErrorOf({"predict", "x", "--json", ""}), "--json is empty (see `windtunnel predict --help`)");
  EXPECT_EQ(ErrorOf({"predict", "x", "--json", "--no-progress"}),
            "--json took the option --no-progress as its value (see `windtunnel predict --help`)");
  EXPECT_EQ(ErrorOf({"predict", "x", "--html", "-q"}),
            "--html took the option -q as its value (see `windtunnel predict --help`)");
  EXPECT_EQ(ErrorOf({"profile"}),
            "a subcommand is missing, expected show, merge or check (see `windtunnel profile --help`)");
}

// Before what is missing, such as the file: the word that nothing takes may be what is wrong with the rest.
TEST(ParseCommandLine, NamesTheWordThatNothingTakes) {
  EXPECT_EQ(ErrorOf({"--foo"}), "unknown option '--foo' (see `windtunnel --help`)");
  EXPECT_EQ(ErrorOf({"run", "--foo"}), "unknown option '--foo' (see `windtunnel run --help`)");
  EXPECT_EQ(ErrorOf({"run", "-z"}), "unknown option '-z' (see `windtunnel run --help`)");
  EXPECT_EQ(ErrorOf({"predict", "x", "--jsn=y"}),
            "unknown option '--jsn', did you mean '--json'? (see `windtunnel predict --help`)");
  EXPECT_EQ(ErrorOf({"run", "--checkpoint", "x"}),
            "unknown option '--checkpoint', did you mean '--checkpoint-dir'? (see `windtunnel run --help`)");
  EXPECT_EQ(
      ErrorOf({"-q", "predict", "x"}),
      "the option -q is given too early, expected it after `windtunnel predict` (see `windtunnel predict "
      "--help`)");
  EXPECT_EQ(ErrorOf({"profile", "nope", "x"}),
            "unknown subcommand 'nope', expected show, merge or check (see `windtunnel profile --help`)");
  EXPECT_EQ(ErrorOf({"checkpoint", "exprt", "x"}),
            "unknown subcommand 'exprt', did you mean 'export'? (see `windtunnel checkpoint --help`)");
  EXPECT_EQ(ErrorOf({"predict", "--"}), "SCENARIO is required (see `windtunnel predict --help`)");
}

TEST(ParseCommandLine, SortsTheOptionsThatOneExcludes) {
  const std::string help = ParseCommandLine({"run", "--help"})->text;
  EXPECT_NE(help.find("--resume-from CHECKPOINT Excludes: --import --resume\n"), std::string::npos) << help;
}

TEST(ParseCommandLine, PrintsTheHelpOfTheCommandThatFollows) {
  const std::string help = ParseCommandLine({"run", "--help"})->text;
  for (const char* option : {"--help", "-h"})
    EXPECT_EQ(ParseCommandLine({option, "run"})->text, help) << option;
  EXPECT_EQ(ParseCommandLine({"--help", "profile", "show"})->text,
            ParseCommandLine({"profile", "show", "--help"})->text);
  EXPECT_NE(ErrorOf({"--help", "predct"}).find("did you mean 'predict'?"), std::string::npos);
}

}  // namespace
}  // namespace windtunnel
