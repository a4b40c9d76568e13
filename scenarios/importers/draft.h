// A scenario file in the making: keys with their values, each with a remark on where it comes from.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace windtunnel {

class Draft {
 public:
  // Gives the key at a dotted path a value, as YAML text ("8", "bf16", "[1, 2]"), unless it has one: whoever
  // comes first wins. `remark` is printed behind it.
  void Set(std::string_view path, std::string_view value, std::string_view remark = "");
  // Text of another program's file, which may have any characters.
  void SetText(std::string_view path, const std::string& text, std::string_view remark = "");
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Set(std::string_view path, T value, std::string_view remark = "") {
    Set(path, std::string_view(fmt::format("{}", value)), remark);
  }
  void Set(std::string_view path, const char* value, std::string_view remark = "") {
    Set(path, std::string_view(value), remark);
  }

  // The value of the key; null if it has none.
  const std::string* Find(std::string_view path) const;
  bool Has(std::string_view path) const { return Find(path) != nullptr; }
  // Nothing if the key has no value, or no whole number.
  std::optional<int64_t> FindInteger(std::string_view path) const;
  // Whether the key or one below it has a value.
  bool HasBelow(std::string_view path) const;

  // A sentence for the top of the file.
  void Note(std::string sentence) { notes_.push_back(std::move(sentence)); }
  void NoteFirst(std::string sentence) { notes_.insert(notes_.begin(), std::move(sentence)); }
  const std::vector<std::string>& notes() const { return notes_; }

  // The file: the notes as comments, then the keys in the order of docs/contract.md.
  std::string Yaml() const;

 private:
  struct Key {
    std::string path, value, remark;
  };
  std::vector<Key> keys_;
  std::vector<std::string> notes_;
};

}  // namespace windtunnel
