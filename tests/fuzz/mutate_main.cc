// Runs LLVMFuzzerTestOneInput on every seed, then on mutations of them: for builds without libFuzzer.
//
//   NAME_fuzz [--runs=N] [--seconds=S] [--seed=K] FILE_OR_DIRECTORY…
//
// The mutations are a function of the seeds and K. An input that crashes is left in a file whose name is
// printed. Run the program on that file alone (--runs=0) to see the crash again.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace windtunnel {
namespace {

constexpr size_t kMostBytes = 1 << 14;

std::string current, crash_file;  // for the signal handler

// Makes only calls that a signal handler may make.
void OnCrash(int signal) {
  const int file = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && write(file, current.data(), current.size()) >= 0) {
    constexpr std::string_view text = "the input that crashed is in ";
    if (write(2, text.data(), text.size()) > 0 && write(2, crash_file.data(), crash_file.size()) > 0)
      (void)!write(2, "\n", 1);
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

// The handler runs on a stack of its own, since the program's may be what ran out.
void CatchCrashes() {
  const char* directory = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  crash_file = std::string(directory != nullptr ? directory : "/tmp") + "/crash-" + std::to_string(getpid());
  static char stack[1 << 16];
  const stack_t alternative{stack, 0, sizeof stack};
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_handler = OnCrash;
  action.sa_flags = SA_ONSTACK;
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
}

void Run(std::string input) {
  current = std::move(input);
  // A copy of exactly its size, so that AddressSanitizer sees reads beyond the end.
  const std::vector<uint8_t> bytes(current.begin(), current.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::vector<std::string> ReadSeeds(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const std::string& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t seed) : seeds_(seeds), random_(seed, 0) {}

  std::string Next() {
    std::string input = Pick(seeds_);
    for (uint64_t changes = 1 + random_.Below(6); changes > 0; --changes) Change(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[random_.Below(from.size())];
  }
  size_t Place(const std::string& input) { return random_.Below(input.size() + 1); }
  // Up to 32 bytes, mostly few.
  size_t Length(const std::string& input, size_t at) {
    return std::min<size_t>(input.size() - at, 1 + random_.Below(uint64_t{1} << random_.Below(6)));
  }

  void Change(std::string& input) {
    static const std::vector<std::string> kTokens = {"0",
                                                     "-1",
                                                     "1",
                                                     "2147483647",
                                                     "2147483648",
                                                     "-9223372036854775808",
                                                     "9223372036854775807",
                                                     "18446744073709551616",
                                                     "1e308",
                                                     "1e-400",
                                                     "NaN",
                                                     "null",
                                                     "true",
                                                     "{}",
                                                     "[]",
                                                     "\"\"",
                                                     "{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ":",
                                                     ",",
                                                     "\n",
                                                     "- ",
                                                     "&a ",
                                                     "*a",
                                                     "<<: ",
                                                     "!!",
                                                     "'",
                                                     "\"",
                                                     std::string(1, '\0'),
                                                     "\xff\xff\xff\xff",
                                                     std::string("\0\0\0\x80", 4),
                                                     "\xc3\x28",
                                                     "\\u0000",
                                                     std::string(64, '['),
                                                     std::string(64, '{')};
    const size_t at = Place(input);
    switch (random_.Below(7)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random_.Below(8)));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(random_.Below(256));
        break;
      case 2:
        input.erase(at, Length(input, at));
        break;
      case 3:
        input.insert(at, Pick(kTokens));
        break;
      case 4:
        input.replace(at, Length(input, at), Pick(kTokens));
        break;
      case 5: {  // a part of it once more, elsewhere
        const std::string part = input.substr(at, Length(input, at));
        input.insert(Place(input), part);
        break;
      }
      case 6: {  // the end of another one
        const std::string& other = Pick(seeds_);
        input = input.substr(0, at) + other.substr(Place(other));
        break;
      }
    }
  }

  const std::vector<std::string>& seeds_;
  RandomStream random_;
};

int Main(int argc, char** argv) {
  int64_t runs = 1000, seed = 0;
  double seconds = 3600;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--runs=")) {
      runs = std::atoll(argv[i] + 7);
    } else if (word.starts_with("--seconds=")) {
      seconds = std::atof(argv[i] + 10);
    } else if (word.starts_with("--seed=")) {
      seed = std::atoll(argv[i] + 7);
    } else {
      paths.emplace_back(word);
    }
  }
  const std::vector<std::string> seeds = ReadSeeds(paths);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds: expected files or directories\n");
    return 1;
  }
  CatchCrashes();
  for (const std::string& input : seeds) Run(input);
  Mutator mutator(seeds, static_cast<uint64_t>(seed));
  const auto begin = std::chrono::steady_clock::now();
  int64_t done = 0;
  while (done < runs && std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds)) {
    Run(mutator.Next());
    ++done;
  }
  std::printf("%zu seeds and %lld mutations of them: none crashed\n", seeds.size(),
              static_cast<long long>(done));
  return 0;
}

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) { return windtunnel::Main(argc, argv); }
