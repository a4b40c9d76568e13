#include "scenarios/keys.h"

#include <initializer_list>
#include <optional>
#include <string_view>

#include "scenarios/describe.h"
#include "scenarios/suggest.h"

namespace windtunnel {
namespace {

// The visitor of describe.h that only writes down names.
class KeyLister {
 public:
  KeyLister(std::string prefix, std::vector<std::string>& keys) : prefix_(std::move(prefix)), keys_(keys) {}

  template <typename... Anything>
  void Integer(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Number(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Flag(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Path(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Integers(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Flags(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Paths(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void WordOrPath(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void WordOrNumber(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Words(std::string_view key, Anything&&...) {
    Add(key);
  }
  template <typename... Anything>
  void Wrap(std::string_view key, Anything&&...) {
    Add(key);
  }
  void Text(std::string_view key, std::string&, const TextRule&, std::string_view) { Add(key); }
  void InputOnly(std::string_view key, std::string_view) { Add(key); }
  template <typename E>
  void Word(std::string_view key, E&, std::initializer_list<E>, std::string_view) {
    Add(key);
  }
  template <typename E>
  void Word(std::string_view key, E&, std::string_view) {
    Add(key);
  }

  template <typename T>
  void Block(std::string_view key, T& spec, std::string_view) {
    AddBlock(key, spec);
  }
  template <typename T>
  void OptionalBlock(std::string_view key, std::optional<T>&, std::string_view) {
    T spec;
    AddBlock(key, spec);
  }
  template <typename T>
  void Blocks(std::string_view key, std::vector<T>&, std::string_view) {
    T spec;
    AddBlock(key, spec);
  }
  template <typename T>
  void TextOrBlock(std::string_view key, std::string_view, std::string&, const TextRule&, T& spec,
                   std::string_view) {
    AddBlock(key, spec);
  }
  void Require(std::string_view) {}
  bool Covers(bool) const { return true; }

 private:
  void Add(std::string_view key) { keys_.push_back(prefix_ + std::string(key)); }
  template <typename T>
  void AddBlock(std::string_view key, T& spec) {
    Add(key);
    KeyLister inner(prefix_ + std::string(key) + ".", keys_);
    Describe(inner, spec);
  }

  std::string prefix_;
  std::vector<std::string>& keys_;
};

}  // namespace

std::vector<std::string> ScenarioKeys() {
  std::vector<std::string> keys;
  Scenario scenario;
  KeyLister lister("", keys);
  Describe(lister, scenario);
  return keys;
}

std::string SuggestKey(const std::string& path, const std::string& unknown,
                       const std::vector<std::string>& known) {
  std::string nearest = Nearest(unknown, known);
  if (EditDistance(unknown, nearest) <= 1) return JoinPath(path, nearest);
  for (const std::string& key : ScenarioKeys()) {
    if (key == unknown || key.ends_with("." + unknown)) return key;
  }
  return JoinPath(path, nearest);
}

std::string JoinPath(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

}  // namespace windtunnel
