#include "cli/search_state.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace windtunnel {

Result<SharedState> SharedState::Open(const std::string& path, const std::string& key,
                                      size_t configurations) {
  SharedState shared(path, key, ThisJobProcess(), configurations);
  if (path.empty()) {
    if (shared.process_.count == 1) return shared;
    return InvalidInput(
        "{} processes were started: --state FILE is missing, in a file system that all of them see, where "
        "they meet",
        shared.process_.count);
  }
  WT_ASSIGN_OR_RETURN(StateFile own, StateFile::Open(shared.PathOf(shared.process_.rank), key));
  shared.own_.emplace(std::move(own));
  WT_RETURN_IF_ERROR(shared.ReadAll());
  return shared;
}

Status SharedState::ReadAll() {
  read_.resize(static_cast<size_t>(process_.count));
  for (int rank = 0; rank < process_.count; ++rank) {
    std::error_code error;
    const std::uintmax_t bytes = std::filesystem::file_size(PathOf(rank), error);
    // Files only grow, and other processes look at them often.
    if (error || std::exchange(read_[static_cast<size_t>(rank)], bytes) == bytes) continue;
    WT_ASSIGN_OR_RETURN(const auto known, StateFile::Read(PathOf(rank), key_));
    known_.insert(known.begin(), known.end());
  }
  return Ok();
}

std::string SharedState::PathOf(int rank) const {
  return rank == 0 ? path_ : fmt::format("{}.{}", path_, rank);
}

}  // namespace windtunnel
