#include "cli/completion.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace windtunnel {
namespace {

const CommandWords* Find(const std::vector<CommandWords>& commands, const std::vector<std::string>& path) {
  const auto found =
      std::find_if(commands.begin(), commands.end(), [&](const auto& c) { return c.path == path; });
  return found == commands.end() ? nullptr : &*found;
}

TEST(DescribeCommands, AreThoseThatTheCommandLineParses) {
  const std::vector<CommandWords> commands = DescribeCommands();
  for (const CommandWords& command : commands) {
    if (!command.subcommands.empty()) continue;
    for (const OptionWords& option : command.options) {
      for (const std::string& name : option.names) {
        std::vector<std::string> words = command.path;
        if (!command.operand.empty()) words.push_back("x");
        words.push_back(name);
        // Give a value that numbers and files accept, or none. Any error may follow but that the option is
        // unknown.
        if (!option.value.empty()) words.push_back("1");
        const auto options = ParseCommandLine(words);
        EXPECT_TRUE(options || options.error().message.find("unknown option") == std::string::npos)
            << name << ": " << options.error().message;
      }
    }
  }
}

TEST(DescribeCommands, SayWhatFollowsAnOption) {
  const std::vector<CommandWords> commands = DescribeCommands();
  const CommandWords* search = Find(commands, {"search"});
  ASSERT_NE(search, nullptr);
  EXPECT_EQ(search->operand, "SCENARIO");
  const auto top = std::find_if(search->options.begin(), search->options.end(),
                                [](const auto& o) { return o.names == std::vector<std::string>{"--top"}; });
  ASSERT_NE(top, search->options.end());
  EXPECT_EQ(top->value, "N");
  const CommandWords* profile = Find(commands, {"profile"});
  ASSERT_NE(profile, nullptr);
  EXPECT_EQ(profile->subcommands, (std::vector<std::string>{"show", "merge", "check"}));
  EXPECT_NE(Find(commands, {"profile", "merge"}), nullptr);
}

TEST(DescribeCommands, LeaveOutWhatIsInternal) {
  const std::vector<CommandWords> commands = DescribeCommands();
  EXPECT_EQ(Find(commands, {"rank"}), nullptr);
  const CommandWords* program = Find(commands, {});
  ASSERT_NE(program, nullptr);
  EXPECT_EQ(std::count(program->subcommands.begin(), program->subcommands.end(), "rank"), 0);
  EXPECT_EQ(std::count(program->subcommands.begin(), program->subcommands.end(), "compare"), 1);
}

TEST(CompletionScript, OfEveryShellKnowsEveryCommandAndOption) {
  const std::vector<CommandWords> commands = DescribeCommands();
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = CompletionScript(shell, commands, {"a100-sxm-80g"});
    ASSERT_TRUE(script);
    EXPECT_NE(script->find("a100-sxm-80g"), std::string::npos) << shell;
    for (const CommandWords& command : commands) {
      for (const std::string& name : command.subcommands) EXPECT_NE(script->find(name), std::string::npos);
      for (const OptionWords& option : command.options) {
        const std::string& name = option.names.back();
        const bool is_fish = std::string(shell) == "fish";
        EXPECT_NE(script->find(is_fish ? " -l " + name.substr(2) : name), std::string::npos)
            << shell << " " << name;
      }
    }
  }
}

// A description ends neither the quotes nor the brackets around it.
TEST(CompletionScript, DescriptionsAreQuoted) {
  const std::vector<CommandWords> commands = {
      {{}, "", {"go"}, {}, ""}, {{"go"}, "it's [a]: b\\c", {}, {{{"--x"}, "FILE", "it's [a]: b\\c"}}, ""}};
  EXPECT_NE(CompletionScript("zsh", commands, {})->find("'--x=[it'\\''s \\[a\\]\\: b\\\\c]:FILE:_files'"),
            std::string::npos)
      << *CompletionScript("zsh", commands, {});
  EXPECT_NE(CompletionScript("fish", commands, {})->find("-l x -r -F -d 'it\\'s [a]: b\\\\c'"),
            std::string::npos)
      << *CompletionScript("fish", commands, {});
}

TEST(CompletionScript, AnotherShellIsAnErrorThatSaysWhichThereAre) {
  const auto script = CompletionScript("csh", {}, {});
  ASSERT_FALSE(script);
  EXPECT_EQ(script.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(script.error().message, "completion for 'csh': expected bash, zsh or fish");
}

}  // namespace
}  // namespace windtunnel
