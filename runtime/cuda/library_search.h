// Finds CUDA's libraries on machines that have only a driver: they come with a toolkit or with pip's
// packages.
//
//   const std::vector<std::string> found = FindLibraries({"libnccl.so.2"}, SearchPlaces::OfThisProcess());
#pragma once

#include <map>
#include <string>
#include <vector>

namespace windtunnel::cuda {

struct SearchPlaces {
  std::map<std::string, std::string> environment;
  // Prefix of the absolute directories of the search itself, but not of those that variables name.
  std::string root = "/";

  static SearchPlaces OfThisProcess();
};

// Existing directories, in the order of the search: LD_LIBRARY_PATH; the toolkit's (CUDA_HOME,
// /usr/local/cuda); the folders nvidia/*/lib beside every python3 (VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH,
// those on PATH, pyenv's, the user's); the system's.
std::vector<std::string> LibraryDirectories(const SearchPlaces& places);

// Files with one of these names, best first: by directory, then by name.
std::vector<std::string> FindLibraries(const std::vector<std::string>& names, const SearchPlaces& places);

// A library's version from its number: "2.28.9" for NCCL's 22809 (its format up to 2.8 differs), "13.0.2" for
// cuBLASLt's 130002, "9.10.2" for cuDNN's 91002.
std::string NcclVersionText(int number);
std::string CublasVersionText(int number);
std::string CudnnVersionText(int number);

}  // namespace windtunnel::cuda
