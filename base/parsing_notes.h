// What a JSON parser notices in addition to the values that it reads.
//
//   ParsingNotes notes;
//   const nlohmann::json json = nlohmann::json::parse(text, std::ref(notes));
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace windtunnel {

// The deepest nesting of objects and lists in files: far more than any of them has.
inline constexpr int kMostJsonDepth = 64;

// nlohmann silently keeps the last of two equal keys, and writes values by recursion. This callback sees
// every key, and how deep values nest, while the parser runs.
class ParsingNotes {
 public:
  using Json = nlohmann::json;

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    const bool begins =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    nests_too_deep_ |= begins && depth >= kMostJsonDepth;
    if (nests_too_deep_) return false;  // the parser still reports the keys of what is left out
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
  // The first key that appears twice in one object; empty if there is none.
  const std::string& duplicate() const { return duplicate_; }
  bool nests_too_deep() const { return nests_too_deep_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the open objects, outermost first
  std::string duplicate_;
  bool nests_too_deep_ = false;
};

// The document; a discarded value if the text is not JSON, or nests too deep to be copied or written.
inline nlohmann::json ParseOrDiscard(const std::string& text) {
  using Json = nlohmann::json;
  ParsingNotes notes;
  Json json = Json::parse(text, std::ref(notes), /*allow_exceptions=*/false);
  return notes.nests_too_deep() ? Json(Json::value_t::discarded) : json;
}

}  // namespace windtunnel
