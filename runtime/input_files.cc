#include "runtime/input_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/digest.h"

namespace windtunnel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEnd = int64_t{1} << 20;
constexpr size_t kDigits = 12;

// What a digest of the file is of; empty if it cannot be read.
std::string Sample(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return "";
  std::string sample = fmt::format("{} bytes\n", bytes);
  const auto add = [&](int64_t begin, int64_t end) {
    std::string part(static_cast<size_t>(end - begin), '\0');
    file.seekg(begin);
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    sample += part;
  };
  const int64_t begins_end = std::max(bytes - kEnd, std::min(bytes, kEnd));
  add(0, std::min(bytes, kEnd));
  add(begins_end, bytes);
  return sample;
}

// Of a file, or of the files in a directory; empty if none can be read.
std::string Digest(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(path, error)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.emplace_back(path);
  }
  std::string samples;
  for (const fs::path& file : files) {
    if (const std::string sample = Sample(file); !sample.empty())
      samples += file.filename().string() + "\n" + Sha256Hex(sample) + "\n";
  }
  return samples.empty() ? "" : Sha256Hex(samples).substr(0, kDigits);
}

std::string Describe(const char* what, const std::string& path) {
  const std::string digest = Digest(path);
  return fmt::format("contents of {}: {}\n", what, digest.empty() ? "cannot be read" : digest);
}

}  // namespace

std::string DescribeInputFiles(const Scenario& scenario, const std::string& import_weights) {
  std::string text;
  const std::string& schedule = scenario.parallel.pipeline.schedule;
  if (scenario.data != "synthetic") text += Describe("data", scenario.data);
  if (schedule.ends_with(".csv")) text += Describe("parallel.pipeline.schedule", schedule);
  if (!import_weights.empty()) text += Describe("--import", import_weights);
  return text;
}

std::string DigestOfData(const Scenario& scenario) {
  const std::string sample = scenario.data == "synthetic" ? "" : Sample(scenario.data);
  return sample.empty() ? "" : Sha256Hex(sample).substr(0, kDigits);
}

}  // namespace windtunnel
