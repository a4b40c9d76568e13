// Under `bazel test`, libFuzzer writes where a test may write: new inputs into the temporary directory, which
// lasts for the run, and crashing inputs among the test's outputs.
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::vector<std::string> added;
  static std::vector<char*> all;
  if (const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR"))
    added.push_back("-artifact_prefix=" + std::string(outputs) + "/");
  if (const char* scratch = std::getenv("TEST_TMPDIR")) added.emplace_back(scratch);
  all.assign(*argv, *argv + 1);
  for (std::string& argument : added) all.push_back(argument.data());
  all.insert(all.end(), *argv + 1, *argv + *argc);
  *argc = static_cast<int>(all.size());
  all.push_back(nullptr);
  *argv = all.data();
  return 0;
}
