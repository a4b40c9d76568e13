// What is left of another program's settings after an importer has read those that it knows.
#pragma once

#include <algorithm>
#include <string_view>

#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// "data_*" stands for all names that begin with "data_", other patterns for themselves.
constexpr bool MatchesPattern(std::string_view name, std::string_view pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

// Whether the words of `patterns` are patterns in alphabetical order of which none covers another, as
// "data_*" does "data_path". What a pattern covers would come right behind it or, without "*", before it.
constexpr bool ArePatterns(std::string_view patterns) {
  for (std::string_view previous; !patterns.empty();) {
    const size_t end = std::min(patterns.find(' '), patterns.size());
    const std::string_view word = patterns.substr(0, end);
    if (word <= previous || word.find('*') < word.size() - 1) return false;
    if (MatchesPattern(word, previous) || MatchesPattern(previous, word)) return false;
    previous = word;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return true;
}

// Notes the settings that were not read, in up to three sentences: those that change nothing in a step here
// (what a word of `without_effect` matches, for which ArePatterns() holds), those that are not modelled
// (scenarios/other_names.h says why), and those that are not known.
void NoteRest(const Settings& settings, std::string_view without_effect, Draft& draft);

}  // namespace windtunnel
