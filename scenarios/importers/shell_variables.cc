#include "scenarios/importers/shell_variables.h"

#include <cstddef>
#include <utility>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_words.h"

namespace windtunnel {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Where `words` are in `text` with a blank or an end of it on both sides, outside of what is not known.
size_t FindWords(const std::string& words, const std::string& text) {
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    const size_t end = at + words.size();
    const size_t opened = at == 0 ? std::string::npos : text.rfind(kUnknown, at - 1);
    const bool is_outside = opened == std::string::npos || text.find(kUnknownEnd, opened) < at;
    const bool begins = at == 0 || words.empty() || IsSpace(text[at - 1]) || IsSpace(words.front());
    const bool ends = end == text.size() || words.empty() || IsSpace(text[end]) || IsSpace(words.back());
    if (is_outside && begins && ends) return at;
  }
  return std::string::npos;
}

// A value with more behind it: of an array more elements, else a longer text.
std::vector<std::string> Longer(std::vector<std::string> value, const std::vector<std::string>& more,
                                bool is_array) {
  if (is_array) value.insert(value.end(), more.begin(), more.end());
  else if (value.empty()) value = more;
  else value.back() += more.empty() ? "" : more[0];
  return value;
}

}  // namespace

ScriptVariables::ScriptVariables(const std::map<std::string, std::string>& definitions)
    : definitions_(definitions) {
  for (const auto& [name, value] : definitions) values_[name] = {value};
}

void ScriptVariables::Set(const std::string& name, std::vector<std::string> value, AssignmentManner how) {
  if (IsDefined(name)) return;
  const auto found = values_.find(name);
  if (how.appends && found != values_.end()) value = Longer(found->second, value, how.is_array);
  constexpr size_t kLongest = 64 << 10;  // in bytes: texts may double from line to line
  size_t length = 0;
  for (const std::string& element : value) length += element.size() + 1;
  if (length > kLongest) value = {Unknown(name)};
  const bool is_same = found != values_.end() && found->second == value;
  if (!how.is_certain && !is_same) {
    const bool are_words = how.is_array || (found != values_.end() && found->second.empty());
    if (found != values_.end() && NoteAddition(Joined(found->second), Joined(value), are_words)) return;
    value = {Unknown(name)};
  }
  values_[name] = std::move(value);
}

void ScriptVariables::SetElement(const std::string& name, std::optional<int64_t> index,
                                 const std::string& value, AssignmentManner how) {
  const auto found = values_.find(name);
  std::vector<std::string> elements = found == values_.end() ? std::vector<std::string>{} : found->second;
  const bool is_known = index && *index >= 0 && static_cast<size_t>(*index) <= elements.size() &&
                        Joined(elements).find(kUnknown) == std::string::npos;
  if (!is_known) return Forget(name, how.is_certain);
  const auto at = static_cast<size_t>(*index);
  if (at == elements.size()) elements.emplace_back();
  elements[at] = how.appends ? elements[at] + value : value;
  Set(name, std::move(elements), {.is_certain = how.is_certain, .is_array = true});
}

void ScriptVariables::Forget(const std::string& name, bool is_certain) {
  Set(name, {Unknown(name)}, {.is_certain = is_certain});
}

void ScriptVariables::Unset(const std::string& name) {
  if (!IsDefined(name)) values_.erase(name);
}

// Whether `after` is `before` with more words behind it, or before it: what a condition adds that is not
// known. To an empty text that is flags, if they are not an array's `are_words`: another value is no
// addition.
bool ScriptVariables::NoteAddition(const std::string& before, const std::string& after, bool are_words) {
  const size_t first = after.find_first_not_of(" \t\n");
  if (before.empty() && !are_words && first != std::string::npos && after.compare(first, 2, "--") != 0)
    return false;
  const size_t at = FindWords(before, after);
  if (at == std::string::npos) return false;
  WordBuilder added;
  added.AddSplit(after.substr(0, at) + " " + after.substr(at + before.size()));
  const std::string note = Joined(added.Take());
  if (!note.empty()) additions_.push_back(note);
  return true;
}

}  // namespace windtunnel
