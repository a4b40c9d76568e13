// What another program was told to do: its flags, or the keys of its configuration file, by name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace windtunnel {

struct Setting {
  std::string name;                 // as importers look it up: "num_layers", "zero_optimization.stage"
  std::string shown;                // as the user wrote it: "--num-layers"
  std::vector<std::string> values;  // none: a flag
};

// Text in a value for which the file has none, since it is a variable's of the shell: kUnknown NAME
// kUnknownEnd.
inline constexpr char kUnknown = '\x01', kUnknownEnd = '\x02';
// `text` with each such variable as "$NAME", and what is longer on one line.
std::string WithUnknownShown(std::string_view text);

// The settings of one file or command. Readers remember what they were asked for, so that Unread() is what an
// importer does not know. A value that cannot be read counts as missing, and status() says what is wrong with
// it.
class Settings {
 public:
  // `source` begins messages: a file's name, or "the command".
  explicit Settings(std::string source) : source_(std::move(source)) {}

  void Add(Setting setting) { settings_.push_back({std::move(setting), false}); }
  bool empty() const { return settings_.empty(); }
  const std::string& source() const { return source_; }

  // As Find(), but this is not reading it.
  const Setting* Peek(std::string_view name) const;
  bool Holds(std::string_view name) const { return Peek(name) != nullptr; }
  std::vector<Setting> All() const;

  // The last one of that name, as programs take it; null if there is none.
  const Setting* Find(std::string_view name);
  bool Has(std::string_view name) { return Find(name) != nullptr; }
  // Counts them as read: their values do not matter.
  void Ignore(std::initializer_list<std::string_view> names);
  // How the user wrote it; `name`, or `otherwise`, if it is missing.
  std::string Shown(std::string_view name) { return ShownOr(name, name); }
  std::string ShownOr(std::string_view name, std::string_view otherwise);

  // Up to 1e15 in magnitude, so that sums and small multiples are within 64 bits.
  std::optional<int64_t> Integer(std::string_view name);
  std::optional<double> Number(std::string_view name);
  std::optional<std::string> Text(std::string_view name);
  // In lower case, whatever it is; empty if there is no such setting, or not one value.
  std::string Word(std::string_view name);
  // A flag without a value is true; `missing` if there is none.
  bool Flag(std::string_view name, bool missing = false);
  // All values, in their order; empty if there is none.
  std::vector<std::string> List(std::string_view name);

  // Notes that the setting of that name is wrong: "SOURCE: --num-layers is 'x', expected …".
  void Refuse(std::string_view name, std::string_view expected);
  // Notes another mistake.
  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    mistakes_.push_back(source_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  Status status() const;

  std::vector<const Setting*> Unread() const;

 private:
  struct Entry {
    Setting setting;
    bool read;
  };
  // The only value; null if there is no such setting, or not one value.
  const std::string* Value(std::string_view name, std::string_view expected);

  std::string source_;
  std::vector<Entry> settings_;
  std::vector<std::string> mistakes_;
};

}  // namespace windtunnel
