#include "plan/schedule_csv.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "plan/schedule_check.h"
#include "scenarios/characters.h"

namespace windtunnel {
namespace {

struct Place {
  size_t line, column;  // from 1
};

std::string_view Trim(std::string_view text) {
  const char* blanks = " \t\r";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::optional<ActionKind> KindOf(char letter) {
  switch (letter) {
    case 'F':
      return ActionKind::kForward;
    case 'B':
      return ActionKind::kBackward;
    case 'I':
      return ActionKind::kInputGradient;
    case 'W':
      return ActionKind::kWeightGradient;
    default:
      return std::nullopt;
  }
}

std::optional<Action> ParseAction(std::string_view cell) {
  Action action;
  const char* end = cell.data() + cell.size();
  const auto stage = std::from_chars(cell.data(), end, action.stage);
  if (stage.ec != std::errc() || action.stage < 0 || stage.ptr == end) return std::nullopt;
  const auto kind = KindOf(*stage.ptr);
  const auto micro_batch = std::from_chars(stage.ptr + 1, end, action.micro_batch);
  if (!kind || micro_batch.ec != std::errc() || micro_batch.ptr != end || action.micro_batch < 0)
    return std::nullopt;
  action.kind = *kind;
  return action;
}

// Whether the cell is one of torch's "compute_comms": stage, name, and (for messages) micro-batch.
bool IsCommunicationOfTorch(std::string_view cell) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t name_begin = cell.find_first_not_of(kDigits);
  if (name_begin == 0 || name_begin == std::string_view::npos) return false;
  const size_t name_end = cell.find_last_not_of(kDigits) + 1;
  const std::string_view name = cell.substr(name_begin, name_end - name_begin);
  const bool has_micro_batch = name_end < cell.size();
  if (name == "UNSHARD" || name == "RESHARD" || name == "REDUCE_GRAD") return !has_micro_batch;
  return has_micro_batch && (name == "SEND_F" || name == "RECV_F" || name == "SEND_B" || name == "RECV_B");
}

// The actions of a cell: none if it is empty or communication, several for a pair, nullopt if malformed.
std::optional<std::vector<Action>> ParseCell(std::string_view cell) {
  constexpr std::string_view kPairEnd = ")OVERLAP_F_B";
  cell = Trim(cell);
  if (cell.empty()) return std::vector<Action>();
  std::vector<std::string_view> parts = {cell};
  if (cell.front() == '(' && cell.ends_with(kPairEnd)) {
    parts = Split(cell.substr(1, cell.size() - 1 - kPairEnd.size()), ';');
  }
  std::vector<Action> actions;
  for (std::string_view part : parts) {
    if (IsCommunicationOfTorch(Trim(part))) continue;
    const auto action = ParseAction(Trim(part));
    if (!action) return std::nullopt;
    actions.push_back(*action);
  }
  return actions;
}

// A cell's beginning, for a message: a file that is no text may have anything in it.
std::string Quotable(std::string_view cell) {
  constexpr size_t kMost = 40;
  const std::string_view text = cell.substr(0, Utf8Prefix(cell.substr(0, kMost)));
  return Printable(text) + (text.size() < cell.size() ? "..." : "");
}

class Reader {
 public:
  Reader(const std::string& name, int64_t micro_batches) : name_(name) {
    schedule_.name = name;
    schedule_.micro_batches = micro_batches;
  }

  Result<Schedule> Read(std::string_view text, int ranks) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    std::vector<std::string_view> rows = Split(text, '\n');
    while (!rows.empty() && Trim(rows.back()).empty()) rows.pop_back();
    if (static_cast<int>(rows.size()) != ranks) {
      const size_t first = std::min(rows.size(), static_cast<size_t>(ranks));  // missing, or too many
      return InvalidInput("{}: {} rows, but a row for each of the pipeline's {} ranks is expected",
                          At(Place{first + 1, 1}), rows.size(), ranks);
    }
    for (size_t row = 0; row < rows.size(); ++row) WT_RETURN_IF_ERROR(ReadRow(rows[row], row));
    WT_RETURN_IF_ERROR(PlaceStages());
    if (const auto fault = FindScheduleFault(schedule_)) {
      const auto row = static_cast<size_t>(std::max(fault->rank, 0));
      if (fault->index < 0) return InvalidInput("{}: {}", At(Place{row + 1, 1}), fault->what);
      return InvalidInput("{}: {}", At(fault->rank, fault->index), fault->what);
    }
    return std::move(schedule_);
  }

 private:
  std::string At(Place place) const { return fmt::format("{}:{}:{}", name_, place.line, place.column); }
  std::string At(size_t rank, size_t index) const { return At(places_[rank][index]); }

  Status ReadRow(std::string_view row, size_t rank) {
    std::vector<Action>& actions = schedule_.ranks.emplace_back();
    std::vector<Place>& places = places_.emplace_back();
    for (std::string_view cell : Split(row, ',')) {
      const std::string_view trimmed = Trim(cell);
      const Place place{rank + 1,
                        static_cast<size_t>((trimmed.empty() ? cell : trimmed).data() - row.data()) + 1};
      const auto parsed = ParseCell(cell);
      if (!parsed) {
        return InvalidInput(
            "{}: '{}' is not an action; expected stage, F, B, I or W, and micro-batch, such as 2F0",
            At(place), Quotable(trimmed));
      }
      actions.insert(actions.end(), parsed->begin(), parsed->end());
      places.resize(actions.size(), place);
    }
    if (actions.empty())
      return InvalidInput("{}: the row has no action; every rank of the pipeline needs a stage",
                          At(Place{rank + 1, 1}));
    return Ok();
  }

  // Places each stage on the rank in whose row it first stands.
  Status PlaceStages() {
    size_t count = 0;
    for (const auto& actions : schedule_.ranks) count += actions.size();
    std::vector<int>& rank_of_stage = schedule_.rank_of_stage;
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (size_t i = 0; i < schedule_.ranks[rank].size(); ++i) {
        const size_t stage = static_cast<size_t>(schedule_.ranks[rank][i].stage);
        if (stage >= count) {  // then some lower stage has no action
          return InvalidInput("{}: stage {} in a file of {} actions", At(rank, i), stage, count);
        }
        if (stage >= rank_of_stage.size()) rank_of_stage.resize(stage + 1, -1);
        if (rank_of_stage[stage] < 0) rank_of_stage[stage] = static_cast<int>(rank);
      }
    }
    const auto hole = std::find(rank_of_stage.begin(), rank_of_stage.end(), -1);
    if (hole == rank_of_stage.end() && !rank_of_stage.empty()) return Ok();
    return InvalidInput("{}:1:1: no row has an action of stage {}", name_, hole - rank_of_stage.begin());
  }

  const std::string& name_;
  Schedule schedule_;
  std::vector<std::vector<Place>> places_;
};

}  // namespace

Result<Schedule> ParseScheduleCsv(const std::string& name, const std::string& text, int ranks,
                                  int64_t micro_batches) {
  return Reader(name, micro_batches).Read(text, ranks);
}

std::string PrintScheduleCsv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& actions : schedule.ranks) {
    const char* separator = "";
    for (const Action& action : actions) {
      text += separator + FormatAction(action);
      separator = ",";
    }
    text += '\n';
  }
  return text;
}

}  // namespace windtunnel
