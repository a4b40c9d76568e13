#include "runtime/cuda/library_search.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

extern char** environ;

namespace windtunnel::cuda {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> SplitAtColons(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Sorted names in a directory that begin with `prefix`; none if it is no directory.
std::vector<std::string> Entries(const fs::path& directory, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Collects directories that exist, each once.
class Directories {
 public:
  explicit Directories(const SearchPlaces& places) : places_(places) {}

  std::string Variable(const std::string& name) const {
    const auto found = places_.environment.find(name);
    return found == places_.environment.end() ? std::string() : found->second;
  }
  fs::path Rooted(const std::string& path) const {
    return fs::path(places_.root) / fs::path(path).relative_path();
  }

  void Add(const fs::path& directory) {
    std::error_code error;
    if (!fs::is_directory(directory, error)) return;
    std::string text = directory.lexically_normal().string();
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    if (std::find(found_.begin(), found_.end(), text) == found_.end()) found_.push_back(text);
  }
  void AddToolkit(const fs::path& home) {
    for (const char* folder : {"lib64", "lib"}) Add(home / folder);
  }
  // Adds pip's packages of NVIDIA's libraries in one of Python's package folders.
  void AddPackages(const fs::path& packages) {
    for (const std::string& name : Entries(packages / "nvidia", "")) Add(packages / "nvidia" / name / "lib");
  }
  void AddPrefix(const fs::path& prefix) {
    for (const char* folder : {"lib", "lib64"}) {
      for (const std::string& python : Entries(prefix / folder, "python3"))
        for (const char* packages : {"site-packages", "dist-packages"})
          AddPackages(prefix / folder / python / packages);
    }
  }
  // A python3 in a folder "bin" belongs to the prefix above it. If it is a link, its target belongs to a
  // prefix likewise.
  void AddPythonIn(const fs::path& bin) {
    for (const std::string& python : Entries(bin, "python3")) {
      AddPrefix(bin.parent_path());
      std::error_code error;
      const fs::path real = fs::canonical(bin / python, error);
      if (!error) AddPrefix(real.parent_path().parent_path());
    }
  }

  std::vector<std::string> Take() { return std::move(found_); }

 private:
  const SearchPlaces& places_;
  std::vector<std::string> found_;
};

}  // namespace

SearchPlaces SearchPlaces::OfThisProcess() {
  SearchPlaces places;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) places.environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return places;
}

std::vector<std::string> LibraryDirectories(const SearchPlaces& places) {
  Directories directories(places);
  for (const std::string& path : SplitAtColons(directories.Variable("LD_LIBRARY_PATH")))
    directories.Add(path);
  if (const std::string home = directories.Variable("CUDA_HOME"); !home.empty()) directories.AddToolkit(home);
  directories.AddToolkit(directories.Rooted("/usr/local/cuda"));
  for (const char* prefix : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string path = directories.Variable(prefix); !path.empty()) directories.AddPrefix(path);
  for (const std::string& path : SplitAtColons(directories.Variable("PYTHONPATH")))
    directories.AddPackages(path);
  for (const std::string& path : SplitAtColons(directories.Variable("PATH"))) directories.AddPythonIn(path);
  if (const std::string home = directories.Variable("HOME"); !home.empty()) {
    directories.AddPrefix(fs::path(home) / ".local");
    const fs::path versions = fs::path(home) / ".pyenv/versions";
    for (const std::string& version : Entries(versions, "")) directories.AddPrefix(versions / version);
  }
  for (const char* prefix : {"/usr/local", "/usr"}) directories.AddPrefix(directories.Rooted(prefix));
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"})
    directories.Add(directories.Rooted(folder));
  return directories.Take();
}

std::vector<std::string> FindLibraries(const std::vector<std::string>& names, const SearchPlaces& places) {
  std::vector<std::string> found;
  for (const std::string& directory : LibraryDirectories(places)) {
    for (const std::string& name : names) {
      std::error_code error;
      if (fs::path path = fs::path(directory) / name; fs::is_regular_file(path, error))
        found.push_back(path.string());
    }
  }
  return found;
}

std::string NcclVersionText(int number) {
  if (number < 10000) return fmt::format("{}.{}.{}", number / 1000, number / 100 % 10, number % 100);
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string CublasVersionText(int number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string CudnnVersionText(int number) {
  if (number < 90000) return fmt::format("{}.{}.{}", number / 1000, number / 100 % 10, number % 100);
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace windtunnel::cuda
