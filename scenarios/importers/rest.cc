#include "scenarios/importers/rest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scenarios/importers/shell_script.h"
#include "scenarios/other_names.h"

namespace windtunnel {
namespace {

// Why there is no key for a setting; empty if that is not known.
std::string_view WhyNot(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const auto& [their_name, what] : kNotModelled)
    if (their_name == name || their_name == last) return what;
  return {};
}

// What is off is not missed.
bool IsOff(const Setting& setting) {
  return setting.values.size() == 1 && (setting.values[0] == "false" || setting.values[0] == "False" ||
                                        setting.values[0] == "no" || setting.values[0] == "none");
}

void AddOnce(const std::string& text, std::vector<std::string>& texts) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
}

std::string WithValues(const Setting& setting) {
  std::string text = setting.shown;
  for (const std::string& value : setting.values) text += " " + WithUnknownShown(value);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

}  // namespace

void NoteRest(const Settings& settings, std::string_view without_effect, Draft& draft) {
  const std::vector<std::string> patterns = SplitWords(std::string(without_effect));
  std::vector<std::string> ignored, not_modelled, unknown;
  for (const Setting* setting : settings.Unread()) {
    const bool has_no_effect = std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return MatchesPattern(setting->name, pattern);
    });
    const std::string_view why = WhyNot(setting->name);
    if (has_no_effect || (!why.empty() && IsOff(*setting))) AddOnce(setting->shown, ignored);
    else if (!why.empty()) AddOnce(fmt::format("{} ({})", WithValues(*setting), why), not_modelled);
    else AddOnce(WithValues(*setting), unknown);
  }
  if (!not_modelled.empty()) draft.Note(fmt::format("Not modelled: {}.", fmt::join(not_modelled, "; ")));
  if (!unknown.empty()) draft.Note(fmt::format("Not known, and left out: {}.", fmt::join(unknown, ", ")));
  if (!ignored.empty()) draft.Note(fmt::format("Without effect here: {}.", fmt::join(ignored, ", ")));
}

}  // namespace windtunnel
