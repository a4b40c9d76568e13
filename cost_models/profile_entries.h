// Shared by the profile's reader and writer: the identity of an entry, and its text.
#pragma once

#include <string>
#include <tuple>

#include "cost_models/profile.h"

namespace windtunnel {

inline auto Identity(const KernelEntry& e) { return std::tie(e.key, e.ranks); }
inline auto Identity(const CollectiveEntry& e) { return std::tie(e.op, e.backend, e.ranks, e.bytes); }
inline auto Identity(const OutsideAllocatorEntry& e) { return std::tie(e.backend, e.ranks); }

// The canonical order.
template <typename Entry>
bool Before(const Entry& a, const Entry& b) {
  return Identity(a) < Identity(b);
}

// An entry's JSON, on one line.
std::string EntryText(const KernelEntry& e);
std::string EntryText(const CollectiveEntry& e);
std::string EntryText(const OutsideAllocatorEntry& e);

}  // namespace windtunnel
