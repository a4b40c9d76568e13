// The pipeline schedules that have names (plan/schedules makes them). All others are files.
#pragma once

#include <optional>
#include <string_view>

namespace windtunnel {

enum class StagesPerRank { kOne, kTwo, kTwoOrMore };

struct KnownSchedule {
  std::string_view name;
  StagesPerRank stages;
  bool is_v = false;  // folds the pipeline into a V, with two stages on each rank
};

inline constexpr KnownSchedule kKnownSchedules[] = {
    {"none", StagesPerRank::kOne},
    {"gpipe", StagesPerRank::kOne},
    {"1f1b", StagesPerRank::kOne},
    {"interleaved", StagesPerRank::kTwoOrMore},
    {"looped_bfs", StagesPerRank::kTwoOrMore},
    {"zb_h1", StagesPerRank::kOne},
    {"zb_v", StagesPerRank::kTwo, true},
    {"dualpipe_v", StagesPerRank::kTwo, true},
};

// Null for a file.
constexpr const KnownSchedule* FindSchedule(std::string_view name) {
  for (const KnownSchedule& known : kKnownSchedules)
    if (known.name == name) return &known;
  return nullptr;
}
constexpr bool HasOneStagePerRank(std::string_view schedule) {
  const KnownSchedule* known = FindSchedule(schedule);
  return known != nullptr && known->stages == StagesPerRank::kOne;
}
constexpr bool IsVSchedule(std::string_view schedule) {
  const KnownSchedule* known = FindSchedule(schedule);
  return known != nullptr && known->is_v;
}

}  // namespace windtunnel
