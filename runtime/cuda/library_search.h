// Where CUDA's libraries may be: with a driver alone on the machine, they come with a toolkit or with pip's packages.
//
//   const std::vector<std::string> found = FindLibraries({"libnccl.so.2"}, SearchPlaces::OfThisProcess());
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace windtunnel::cuda {

struct SearchPlaces {
  std::map<std::string, std::string> environment;
  std::string root =
      "/";  // before every absolute directory that is looked in by itself, not those that variables name

  static SearchPlaces OfThisProcess();
};

// Existing directories in the order in which they are looked in: LD_LIBRARY_PATH, the toolkit's (CUDA_HOME, /usr/local/cuda), the
// folders nvidia/*/lib beside every python3 (VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH, those on PATH, of pyenv, of the user), the system's.
std::vector<std::string> LibraryDirectories(const SearchPlaces& places);

// Files of one of these names, best first: by directory, then by name.
std::vector<std::string> FindLibraries(const std::vector<std::string>& names, const SearchPlaces& places);

// A library's version from its number: 22809 of NCCL from 2.9 on, or 21305; cuBLASLt's 130002; cuDNN's 91002. "2.28.9", "13.0.2", "9.10.2".
std::string NcclVersionText(int number);
std::string CublasVersionText(int number);
std::string CudnnVersionText(int number);

}  // namespace windtunnel::cuda
