// What a JSON parser is asked to notice beside what it reads.
//
//   ParsingNotes notes;
//   const nlohmann::json json = nlohmann::json::parse(text, std::ref(notes));
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace windtunnel {

// Of objects and lists in what is read from files: far above what any of them has.
inline constexpr int kMostJsonDepth = 64;

// nlohmann keeps the last of two equal keys silently, and writes what it read by recursion; this hears of every key and of what nests how
// deep while it parses.
class ParsingNotes {
 public:
  using Json = nlohmann::json;

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    const bool begins =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    nests_too_deep_ |= begins && depth >= kMostJsonDepth;
    if (nests_too_deep_) return false;  // keys of what is left out come all the same
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(static_cast<size_t>(depth) + 1);
      keys_.back().clear();
    } else if (event == Json::parse_event_t::key) {
      keys_.resize(static_cast<size_t>(depth));
      std::string key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second && duplicate_.empty()) duplicate_ = key;
    }
    return true;
  }
  // The first key that an object has twice; empty: none has.
  const std::string& duplicate() const { return duplicate_; }
  bool nests_too_deep() const { return nests_too_deep_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, outermost first
  std::string duplicate_;
  bool nests_too_deep_ = false;
};

}  // namespace windtunnel
