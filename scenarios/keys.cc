#include "scenarios/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "scenarios/describe.h"
#include "scenarios/other_names.h"
#include "scenarios/suggest.h"

namespace windtunnel {
namespace {

// The visitor of describe.h that only lists names.
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
  void FlagOrInteger(std::string_view key, Anything&&...) {
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
  void RequireWithoutPreset(std::string_view) {}
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

namespace {

// A key called `name`: one below the block at `path`, or else the only one anywhere, or the one in the
// outermost block ("model.layers", not "model.mtp.layers"). Ranges of a search have the names of the keys
// that they are of.
std::string SameName(const std::string& path, const std::string& name) {
  std::map<std::ptrdiff_t, std::vector<std::string>> elsewhere;  // by the number of blocks around it
  for (const std::string& key : ScenarioKeys()) {
    if (key != name && !key.ends_with("." + name)) continue;
    if (!path.empty() && key.starts_with(path + ".")) return key;
    if (!key.starts_with("search.")) elsewhere[std::count(key.begin(), key.end(), '.')].push_back(key);
  }
  if (elsewhere.empty()) return "";
  const std::vector<std::string>& outermost = elsewhere.begin()->second;
  return outermost.size() == 1 ? outermost.front() : "";
}

// "--Tensor-Parallel-Size", an option of a command, as "tensor_parallel_size".
std::string AsAliasesAre(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string plain(name);
  for (char& c : plain) {
    if (c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return plain;
}

KeySuggestion OfKey(std::string key) { return {.key = key, .words = fmt::format("'{}'", key)}; }

// The key of `search` whose ranges are of `key`: "search.tensor" of "parallel.tensor.size". Empty: none.
std::string RangesOf(std::string key) {
  if (key.ends_with(".size")) key.resize(key.size() - 5);
  const std::string name = "search." + key.substr(key.rfind('.') + 1);
  const std::vector<std::string> keys = ScenarioKeys();
  return std::find(keys.begin(), keys.end(), name) == keys.end() ? "" : name;
}

// Of the name as it is, or of the one that counts only in the block at `path`.
KeySuggestion OfOtherName(const std::string& path, const std::string& name) {
  for (const NotModelled& theirs : kNotModelled)
    if (theirs.name == name || theirs.name == JoinPath(path, name))
      return {.not_modelled = std::string(theirs.what)};
  for (const Alias& alias : kAliases) {
    if (alias.name != name && alias.name != JoinPath(path, name)) continue;
    if (const std::string ranges = RangesOf(std::string(alias.key)); path == "search" && !ranges.empty())
      return OfKey(ranges);
    KeySuggestion meant = OfKey(std::string(alias.key));
    if (!alias.value.empty()) meant.words = fmt::format("'{}: {}'", alias.key, alias.value);
    if (!alias.note.empty()) meant.words += fmt::format(" ({})", alias.note);
    return meant;
  }
  return {};
}

}  // namespace

KeySuggestion SuggestForOtherName(const std::string& name, bool or_same) {
  KeySuggestion meant = OfOtherName("", AsAliasesAre(name));
  if (!or_same || !meant.words.empty() || !meant.not_modelled.empty()) return meant;
  const std::string same = SameName("", AsAliasesAre(name));
  return same.empty() ? KeySuggestion() : OfKey(same);
}

KeySuggestion SuggestKey(const std::string& path, const std::string& unknown,
                         const std::vector<std::string>& known) {
  const std::string nearest = Nearest(unknown, known);
  if (EditDistance(unknown, nearest) <= 1) return OfKey(JoinPath(path, nearest));
  const std::string name = AsAliasesAre(unknown);
  if (KeySuggestion other = OfOtherName(path, name); !other.words.empty() || !other.not_modelled.empty())
    return other;
  if (std::string same = SameName(path, name); !same.empty()) {
    const std::string ranges = path == "search" ? RangesOf(same) : "";
    return OfKey(ranges.empty() ? same : ranges);
  }
  const std::string meant = MeantWord(name, known);
  return meant.empty() ? KeySuggestion() : OfKey(JoinPath(path, meant));
}

std::string_view MainKeyOf(std::string_view block, bool is_number) {
  struct MainKeys {
    std::string_view block, number, word;
  };
  constexpr MainKeys kMainKeys[] = {{"model", "", "preset"},
                                    {"model.sliding_window", "tokens", ""},
                                    {"model.experts", "count", ""},
                                    {"model.encoder", "layers", ""},
                                    {"model.mamba", "state", "pattern"},
                                    {"model.delta_net", "value_heads", "pattern"},
                                    {"model.mtp", "layers", ""},
                                    {"batch", "micro", ""},
                                    {"precision", "", "param"},
                                    {"optimizer", "", "kind"},
                                    {"parallel.data", "size", "kind"},
                                    {"parallel.tensor", "size", ""},
                                    {"parallel.pipeline", "size", "schedule"},
                                    {"parallel.context", "size", "kind"},
                                    {"parallel.expert", "size", "dispatcher"},
                                    {"cluster", "devices_per_node", "device"},
                                    {"cluster.network.inter_node", "", "kind"},
                                    {"run", "steps", "backend"}};
  const auto* found = std::find_if(std::begin(kMainKeys), std::end(kMainKeys),
                                   [&](const MainKeys& main) { return main.block == block; });
  if (found == std::end(kMainKeys)) return {};
  return is_number ? found->number : found->word;
}

std::string JoinPath(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

}  // namespace windtunnel
