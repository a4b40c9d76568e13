// The profile's canonical JSON (cost_models/README.md documents it).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cost_models/profile.h"
#include "cost_models/profile_entries.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

// Any JSON value on one line. Doubles get the fewest digits that read back as the same double, so that equal
// values are equal text.
std::string Text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A whole number of picoseconds below 2^53 (2.5 hours) survives the conversion to seconds and back.
Json SecondsOf(Duration duration) { return ToSeconds(duration); }

std::string DistributionText(const Distribution& d) {
  Json quantiles = Json::array();
  for (Duration value : d.values()) quantiles.push_back(SecondsOf(value));
  return fmt::format(R"({{"p10": {}, "p50": {}, "p90": {}, "quantiles": {}}})", Text(SecondsOf(d.p10())),
                     Text(SecondsOf(d.p50())), Text(SecondsOf(d.p90())), Text(quantiles));
}

}  // namespace

std::string EntryText(const KernelEntry& e) {
  return fmt::format(R"({{"key": {}, "ranks": {}, "count": {}, "time_s": {}}})", Text(e.key), e.ranks,
                     e.count, DistributionText(e.time));
}

std::string EntryText(const CollectiveEntry& e) {
  std::string rates;
  if (e.collective_rate_under_compute) {
    rates += fmt::format(R"(, "collective_rate_under_compute": {})", Text(*e.collective_rate_under_compute));
  }
  if (e.compute_rate_under_collective) {
    rates += fmt::format(R"(, "compute_rate_under_collective": {})", Text(*e.compute_rate_under_collective));
  }
  return fmt::format(
      R"({{"op": {}, "backend": {}, "ranks": {}, "bytes": {}, "count": {}, "time_s": {}, "core_time_s": {}{}}})",
      Text(e.op), Text(e.backend), e.ranks, e.bytes.count(), e.count, DistributionText(e.time),
      Text(SecondsOf(e.core_time)), rates);
}

std::string EntryText(const OutsideAllocatorEntry& e) {
  return fmt::format(R"({{"backend": {}, "ranks": {}, "bytes": {}}})", Text(e.backend), e.ranks,
                     e.bytes.count());
}

namespace {

std::string EntryText(const std::pair<const int, Distribution>& e) {
  return fmt::format(R"({{"ranks": {}, "time_s": {}}})", e.first, DistributionText(e.second));
}

// One entry per line, so that a profile's history reads well as a diff.
template <typename Entries>
std::string ListText(const Entries& entries) {
  std::string text;
  for (const auto& entry : entries)
    text += fmt::format("{}\n    {}", text.empty() ? "" : ",", EntryText(entry));
  return text.empty() ? "[]" : "[" + text + "\n  ]";
}

template <typename Entry>
std::string SortedListText(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), Before<Entry>);
  return ListText(entries);
}

}  // namespace

std::string ProfileJson(const Profile& profile) {
  if (profile.hardware) return profile.hardware->json;
  std::string text = "{\n";
  auto add = [&](const char* key, const std::string& value, const char* end = ",\n") {
    text += fmt::format("  \"{}\": {}{}", key, value, end);
  };
  add("schema", Text(kProfileSchema));
  add("name", Text(profile.name));
  add("device", Text(profile.device));
  add("fingerprint", Text(profile.fingerprint));
  add("created", Text(profile.created));
  add("machine", Text(profile.machine));
  add("libraries", Text(profile.libraries));
  add("cores", Text(profile.cores));
  add("common_mode", Text(profile.common_mode));
  add("dispatch", ListText(profile.dispatch));
  add("kernels", SortedListText(profile.kernels));
  add("collectives", SortedListText(profile.collectives));
  add("outside_allocator", SortedListText(profile.outside_allocator), "\n");
  return text + "}\n";
}

}  // namespace windtunnel
