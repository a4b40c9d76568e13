// framework: FILE, a framework profile's path.
#include <fstream>

#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

// Writes a framework profile into the test's directory, under a name that no other test has, and returns its
// path.
std::string Write(const std::string& text) {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string path = testing::TempDir() + test + ".json";
  std::ofstream(path) << text;
  return path;
}

TEST(FrameworkFile, IsReadForWhatItIsBasedOn) {
  for (const auto& [base, framework] :
       std::map<std::string, Framework>{{"megatron", Framework::kMegatron},
                                        {"megatron_core", Framework::kMegatronCore},
                                        {"pytorch", Framework::kPytorch},
                                        {"pytorch_fsdp1", Framework::kPytorch},
                                        {"pytorch_compile", Framework::kPytorchCompile}}) {
    const std::string path = Write(
        "{\"schema\": \"windtunnel/framework/1\",\n  \"name\": \"mine\", \"base\": \"" + base + "\"}\n");
    const Scenario scenario = Parsed(std::string(kGpt) + "framework: " + path + "\n");
    EXPECT_EQ(scenario.framework, framework) << base;
    EXPECT_EQ(scenario.framework_file, path);
    EXPECT_EQ(scenario.allocator, AllocatorKind::kPytorch) << "the default of a framework that is not ours";
  }
}

TEST(FrameworkFile, WithoutABaseThePredictedProgramsAreWindtunnels) {
  const std::string path = Write("{\"schema\": \"windtunnel/framework/1\", \"name\": \"mine\"}");
  EXPECT_EQ(Parsed(std::string(kGpt) + "framework: " + path + "\n").framework, Framework::kWindtunnel);
}

TEST(FrameworkFile, IsRelativeToTheScenarioAndPrintedInFull) {
  const std::string path = Write("{\"base\": \"deepspeed\"}");
  const std::string text = std::string(kGpt) + "framework: " + path.substr(path.rfind('/') + 1) + "\n";
  const auto scenario = ParseScenario(text, "s.yaml", testing::TempDir(), {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const std::string resolved = ResolvedYaml(*scenario);
  EXPECT_NE(resolved.find("framework: "), std::string::npos);
  const Scenario again = Parsed(resolved);
  EXPECT_EQ(again.framework, Framework::kDeepspeed);
  EXPECT_EQ(again.framework_file, scenario->framework_file);
}

TEST(FrameworkFile, MayBeSetFromTheCommandLine) {
  const std::string path = Write("{\"base\": \"megatron\"}");
  EXPECT_EQ(Parsed(kGpt, {"framework=" + path}).framework, Framework::kMegatron);
}

TEST(FrameworkFile, ErrorsNameTheKeyAndTheFile) {
  EXPECT_EQ(MessageOf(std::string(kGpt) + "framework: mine.json\n"),
            "s.yaml:2:12: framework: /somewhere/mine.json: cannot be read (No such file or directory), "
            "expected a framework profile");
  const std::string path = Write("{\"base\": \"jax\"}");
  EXPECT_EQ(
      MessageOf(std::string(kGpt) + "framework: " + path + "\n"),
      "s.yaml:2:12: framework: " + path + ":1:10: base is 'jax', expected the name of a known framework");
  EXPECT_EQ(MessageOf(std::string(kGpt) + "framework: jax\n"),
            "s.yaml:2:12: framework is 'jax', expected windtunnel, pytorch, pytorch_compile, megatron, "
            "megatron_core, deepspeed or a path that ends with .json");
}

}  // namespace
}  // namespace windtunnel
