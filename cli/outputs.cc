#include "cli/outputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "scenarios/known_names.h"

namespace windtunnel {
namespace fs = std::filesystem;

bool IsOneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  // A file that does not exist yet has no canonical path of its own.
  const auto whole = [&error](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, error), error);
  };
  const fs::path whole_a = whole(a);
  if (error) return false;
  const fs::path whole_b = whole(b);
  if (error) return false;
  if (!fs::exists(whole_a, error)) return !error && whole_a == whole_b;
  return fs::is_regular_file(whole_a, error) && fs::equivalent(whole_a, whole_b, error) && !error;
}

namespace {

struct NamedPath {
  std::string option, path;
};

std::vector<NamedPath> OutputsOf(const Options& options) {
  const NamedPath all[] = {{"--json", options.json},   {"--html", options.html},
                           {"--trace", options.trace}, {"--svg", options.svg},
                           {"--state", options.state}, {"--flight-record", options.flight_record}};
  std::vector<NamedPath> outputs;
  for (const NamedPath& output : all)
    if (!output.path.empty() && output.path != "-") outputs.push_back(output);
  // Without --steps, calibrate adds to an existing profile.
  const bool writes_anew = !options.steps.empty() || options.command == Command::kProfileMerge ||
                           options.command == Command::kImport;
  if (writes_anew && !options.out.empty() && options.out != "-") outputs.push_back({"--out", options.out});
  return outputs;
}

std::vector<NamedPath> InputsOf(const Options& options) {
  std::vector<NamedPath> inputs = {{"--profile", options.profile},
                                   {"--framework-profile", options.framework_profile},
                                   {"--import", options.import_weights},
                                   {"--resume-from", options.resume_from}};
  for (const std::string& file : options.files) inputs.push_back({"the command", file});
  for (const std::string& file : options.steps) inputs.push_back({"--steps", file});
  return inputs;
}

tl::unexpected<Error> CannotWrite(const NamedPath& output, int error) {
  return InvalidInput("{}: {}: cannot be written ({})", output.option, output.path, std::strerror(error));
}

std::vector<NamedPath> FilesOf(const Scenario& scenario) {
  std::vector<NamedPath> files = {{"model.config", scenario.model_config.path},
                                  {"framework", scenario.framework_file}};
  if (scenario.data != "synthetic") files.push_back({"data", scenario.data});
  if (NamesProfileFile(scenario.cluster.device)) files.push_back({"cluster.device", scenario.cluster.device});
  const auto add_schedule = [&](const std::string& schedule) {
    if (schedule.ends_with(".csv")) files.push_back({"schedule", schedule});
  };
  add_schedule(scenario.parallel.pipeline.schedule);
  if (scenario.search)
    std::for_each(scenario.search->schedule.begin(), scenario.search->schedule.end(), add_schedule);
  return files;
}

Status CheckApart(const NamedPath& output, const std::vector<NamedPath>& inputs) {
  for (const NamedPath& input : inputs) {
    if (!input.path.empty() && IsOneFile(output.path, input.path))
      return InvalidInput("{} is {}, which {} reads, expected another file", output.option, output.path,
                          input.option);
  }
  return Ok();
}

// What the link at `path` points to, through other links, if that does not exist yet; else `path`.
std::string EndOfLinks(std::string path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i)
    path = (fs::path(path).parent_path() / fs::read_symlink(path, error)).string();
  return path;
}

// Pipes and devices are not opened: their readers would see an end of file.
Status CheckWritable(const NamedPath& named) {
  std::error_code ignored;
  const bool is_dangling = fs::is_symlink(named.path, ignored) && !fs::exists(named.path, ignored);
  const NamedPath output{named.option, is_dangling ? EndOfLinks(named.path) : named.path};
  const fs::file_status status = fs::status(output.path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) return Ok();
  const int added = open(output.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (added >= 0) {
    close(added);
    unlink(output.path.c_str());
    return Ok();
  }
  const int there = errno == EEXIST ? open(output.path.c_str(), O_WRONLY | O_CLOEXEC) : -1;
  if (there < 0) return CannotWrite(output, errno);
  close(there);
  return Ok();
}

}  // namespace

Status CheckOutputFiles(const Options& options) {
  const std::vector<NamedPath> outputs = OutputsOf(options), inputs = InputsOf(options);
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (IsOneFile(outputs[i].path, outputs[j].path))
        return InvalidInput("{} and {} are both {}, expected different files", outputs[j].option,
                            outputs[i].option, outputs[i].path);
    }
    WT_RETURN_IF_ERROR(CheckApart(outputs[i], inputs));
    WT_RETURN_IF_ERROR(CheckWritable(outputs[i]));
  }
  return Ok();
}

Status CheckOutputsAgainst(const Scenario& scenario, const Options& options) {
  const std::vector<NamedPath> files = FilesOf(scenario);
  for (const NamedPath& output : OutputsOf(options)) WT_RETURN_IF_ERROR(CheckApart(output, files));
  return Ok();
}

Status CheckOutputDirectory(const std::string& option, const std::string& path) {
  if (path.empty()) return Ok();
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return CannotWrite({option, path}, error.value());
  std::string probe = path + "/.windtunnel-XXXXXX";
  const int file = mkstemp(probe.data());
  if (file < 0) return CannotWrite({option, path}, errno);
  close(file);
  unlink(probe.c_str());
  return Ok();
}

}  // namespace windtunnel
