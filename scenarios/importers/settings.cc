#include "scenarios/importers/settings.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.h"
#include "scenarios/scalars.h"

namespace windtunnel {
namespace {

YamlNode Plain(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  return node;
}

constexpr char kNameCharacters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

bool IsUnknown(const std::string& value) { return value.find(kUnknown) != std::string::npos; }

}  // namespace

std::string WithUnknownShown(std::string_view text) {
  std::string shown;
  bool is_unknown = false;
  for (const char c : text) {
    is_unknown = c == kUnknown || (is_unknown && c != kUnknownEnd);
    const bool is_space = is_unknown && std::isspace(static_cast<unsigned char>(c)) != 0;
    if (c == kUnknown) shown += '$';
    else if (is_space && !shown.ends_with(' ')) shown += ' ';
    else if (!is_space && c != kUnknownEnd) shown += c;
  }
  return shown;
}

const Setting* Settings::Peek(std::string_view name) const {
  const auto found = std::find_if(settings_.rbegin(), settings_.rend(),
                                  [&](const Entry& entry) { return entry.setting.name == name; });
  return found == settings_.rend() ? nullptr : &found->setting;
}

std::vector<Setting> Settings::All() const {
  std::vector<Setting> all;
  for (const Entry& entry : settings_) all.push_back(entry.setting);
  return all;
}

const Setting* Settings::Find(std::string_view name) {
  const Setting* found = nullptr;
  for (Entry& entry : settings_) {
    if (entry.setting.name != name) continue;
    entry.read = true;
    found = &entry.setting;
  }
  return found;
}

void Settings::Ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) Find(name);
}

std::string Settings::ShownOr(std::string_view name, std::string_view otherwise) {
  const Setting* setting = Find(name);
  return setting == nullptr ? std::string(otherwise) : setting->shown;
}

const std::string* Settings::Value(std::string_view name, std::string_view expected) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return nullptr;
  if (setting->values.size() == 1 && !IsUnknown(setting->values[0])) return &setting->values[0];
  Refuse(name, expected);
  return nullptr;
}

std::optional<int64_t> Settings::Integer(std::string_view name) {
  const std::string* value = Value(name, "a whole number");
  if (value == nullptr) return std::nullopt;
  std::string digits = *value;
  std::erase(digits, '_');  // as Python writes them
  constexpr double kMost = 1e15;
  const Reading<double> number = ReadNumber(Plain(digits));  // also 5e8
  if (!number || std::abs(*number) > kMost || *number != std::floor(*number)) {
    Refuse(name, number && std::abs(*number) > kMost ? "at most 1e15" : "a whole number");
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

std::optional<double> Settings::Number(std::string_view name) {
  const std::string* value = Value(name, "a number");
  if (value == nullptr) return std::nullopt;
  std::string digits = *value;
  if (digits.starts_with('.')) digits.insert(0, "0");  // as in --clip-grad .5
  if (digits.ends_with('.')) digits += '0';
  if (const Reading<double> read = ReadNumber(Plain(digits))) return *read;
  Refuse(name, "a number");
  return std::nullopt;
}

std::optional<std::string> Settings::Text(std::string_view name) {
  const std::string* value = Value(name, "one word");
  if (value == nullptr) return std::nullopt;
  return *value;
}

std::string Settings::Word(std::string_view name) {
  const Setting* setting = Find(name);
  return setting != nullptr && setting->values.size() == 1 ? LowerCase(setting->values[0]) : "";
}

bool Settings::Flag(std::string_view name, bool missing) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return missing;
  // A variable behind a flag that takes no value stands for further flags.
  if (std::all_of(setting->values.begin(), setting->values.end(), IsUnknown)) return true;
  const std::string* value = Value(name, "true or false");
  if (value == nullptr) return missing;
  const std::string word = LowerCase(*value);
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  Refuse(name, "true or false");
  return missing;
}

std::vector<std::string> Settings::List(std::string_view name) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return {};
  if (!std::any_of(setting->values.begin(), setting->values.end(), IsUnknown)) return setting->values;
  Refuse(name, "a list of words");
  return {};
}

void Settings::Refuse(std::string_view name, std::string_view expected) {
  const Setting* setting = Find(name);
  if (setting == nullptr) return Fail("{} is missing, expected {}", name, expected);
  if (setting->values.empty()) return Fail("{} has no value, expected {}", setting->shown, expected);
  std::string found;
  for (const std::string& value : setting->values) found += (found.empty() ? "" : " ") + value;
  const size_t begin = found.find(kUnknown);
  if (begin == std::string::npos) return Fail("{} is '{}', expected {}", setting->shown, found, expected);
  const std::string variable = found.substr(begin + 1, found.find(kUnknownEnd, begin) - begin - 1);
  const bool is_name = variable.find_first_not_of(kNameCharacters) == std::string::npos;
  Fail("{} is '{}', which is not known here{}", setting->shown, WithUnknownShown(found),
       is_name ? fmt::format(", expected --define {}=VALUE", variable) : "");
}

Status Settings::status() const {
  if (mistakes_.empty()) return Ok();
  Error error{ErrorKind::kInvalidInput, mistakes_.front()};
  for (size_t i = 1; i < mistakes_.size(); ++i)
    if (std::find(mistakes_.begin(), mistakes_.begin() + i, mistakes_[i]) == mistakes_.begin() + i)
      error.others.push_back(mistakes_[i]);
  return tl::unexpected(error);
}

std::vector<const Setting*> Settings::Unread() const {
  std::vector<const Setting*> unread;
  for (const Entry& entry : settings_)
    if (!entry.read) unread.push_back(&entry.setting);
  return unread;
}

}  // namespace windtunnel
