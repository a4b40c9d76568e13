#include "scenarios/reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <tuple>

#include "scenarios/keys.h"

namespace windtunnel {

std::vector<Problem> Problems::InOrder() const {
  std::vector<Problem> ordered = all_;
  std::stable_sort(ordered.begin(), ordered.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.is_missing, a.place) < std::tie(b.is_missing, b.place);
  });
  const auto missing =
      std::find_if(ordered.begin(), ordered.end(), [](const Problem& p) { return p.is_missing; });
  if (missing != ordered.begin()) ordered.erase(missing, ordered.end());
  const auto same = std::unique(ordered.begin(), ordered.end(), [](const Problem& a, const Problem& b) {
    return a.place == b.place && a.message == b.message;
  });
  ordered.erase(same, ordered.end());
  return ordered;
}

std::string ResolvedPath(const std::string& path, const std::string& directory, const Place& place) {
  std::error_code error;
  std::filesystem::path joined = std::filesystem::path(place.source > 0 ? "" : directory) / path;
  std::filesystem::path absolute = std::filesystem::absolute(joined, error);
  return (error ? joined : absolute).lexically_normal().string();
}

const YamlNode* Reader::Take(std::string_view key) {
  known_.emplace_back(key);
  return block_.Find(key);
}

const YamlNode* Reader::TakeList(std::string_view key) {
  const YamlNode* node = Take(key);
  if (node == nullptr || node->is_list()) return node;
  Fail(*node, PathOf(key), "a list");
  return nullptr;
}

std::string Reader::PathOf(std::string_view key) const { return JoinPath(path_, key); }

void Reader::Fail(const YamlNode& node, const std::string& path, const std::string& expected) {
  problems_.Add(node.place, fmt::format("{} is {}, expected {}", path, Found(node), expected));
}

bool Reader::ExpectBlock(const YamlNode& node, std::string_view key, const std::string& expected) {
  if (node.is_block()) return true;
  const bool is_number = ReadInteger(node).has_value();
  const std::string_view main = MainKeyOf(PathOf(key), is_number);
  const bool has_example = node.is_scalar() && !main.empty();
  Fail(node, PathOf(key),
       has_example ? fmt::format("{} such as {{{}: {}}}", expected, main, node.text) : expected);
  return false;
}

void Reader::RequireWithoutPreset(std::string_view key) {
  if (!is_of_preset_) Require(key);
}

void Reader::Require(std::string_view key) {
  if (block_.Find(key) != nullptr) return;
  problems_.AddMissing(block_.place, fmt::format("{} is missing, expected a value", PathOf(key)));
}

namespace {

// "tensor_parallel_degree is 'parallel.tensor.size'", for each key in an unknown block that is another
// program's name for one of ours, or for what is not modelled; with `or_same`, also for one that is a key of
// ours in another block.
void AddOtherNames(const YamlNode& block, bool or_same, std::vector<std::string>& names) {
  for (size_t i = 0; i < block.keys.size(); ++i) {
    const std::string& name = block.keys[i].name;
    const KeySuggestion meant = SuggestForOtherName(name, or_same);
    if (!meant.not_modelled.empty()) names.push_back(fmt::format("of {}, {}", name, meant.not_modelled));
    else if (!meant.words.empty()) names.push_back(fmt::format("{} is {}", name, meant.words));
    AddOtherNames(block.items[i], or_same, names);
  }
}

}  // namespace

void Reader::ReportUnknownKeys() {
  for (const YamlKey& key : block_.keys) {
    if (std::find(known_.begin(), known_.end(), key.name) != known_.end()) continue;
    if (key.name == "<<") {
      problems_.Add(key.place,
                    "found a merge key ('<<'), expected the keys themselves (a whole block may be an alias)");
      continue;
    }
    KeySuggestion meant = SuggestKey(path_, key.name, known_);
    // The meaning of "bf16: true" is "precision.param: bf16"; that of "bf16: false" is not.
    const YamlNode* value = block_.Find(key.name);
    // A misspelt block has our keys; another program's has theirs, some of which have our names.
    const bool is_misspelt = std::any_of(
        known_.begin(), known_.end(), [&](const std::string& known) { return meant.key == PathOf(known); });
    if (std::vector<std::string> names; value != nullptr && value->is_block()) {
      AddOtherNames(*value, !is_misspelt, names);
      if (!names.empty()) {
        const std::string theirs = is_misspelt ? "" : SuggestForOtherName(key.name, /*or_same=*/false).words;
        problems_.Add(key.place, fmt::format("unknown key {}, {}whose keys are elsewhere here: {}",
                                             Quoted(PathOf(key.name)),
                                             theirs.empty() ? "" : fmt::format("which is {}, and ", theirs),
                                             fmt::join(names, "; ")));
        continue;
      }
    }
    // "{rank:5}" has one key, "rank:5", and no value.
    const size_t colon = key.name.find(':');
    if (colon != std::string::npos && (value == nullptr || value->is_null())) {
      problems_.Add(
          key.place,
          fmt::format("unknown key {}: a value begins with a space behind the colon, as in '{}: {}'",
                      Quoted(PathOf(key.name)), key.name.substr(0, colon), key.name.substr(colon + 1)));
      continue;
    }
    const bool is_off = value != nullptr && ReadBoolean(*value) == Reading<bool>(false);
    if (is_off) meant.words = fmt::format("'{}'", meant.key);
    const std::string hint = !meant.not_modelled.empty() ? meant.not_modelled
                             : meant.key.empty()         ? "expected " + JoinWithOr(known_)
                             : meant.key == PathOf(key.name)
                                 ? "expected the blocks that it names, one in the other"
                                 : fmt::format("did you mean {}?", meant.words);
    problems_.Add(key.place, fmt::format("unknown key {}, {}", Quoted(PathOf(key.name)), hint));
  }
}

void Reader::Number(std::string_view key, double& value, const Bounds& bounds, std::string_view) {
  if (const YamlNode* node = Take(key)) ReadInto(*node, PathOf(key), value, bounds);
}

void Reader::Number(std::string_view key, std::optional<double>& value, const Bounds& bounds,
                    std::string_view) {
  const YamlNode* node = Take(key);
  if (node == nullptr) return;
  value.reset();
  if (!node->is_null()) ReadInto(*node, PathOf(key), value.emplace(), bounds);
}

void Reader::Flag(std::string_view key, bool& value, std::string_view) {
  const YamlNode* node = Take(key);
  if (node == nullptr) return;
  Reading<bool> flag = ReadBoolean(*node);
  if (!flag) return Fail(*node, PathOf(key), flag.error());
  value = *flag;
}

void Reader::FlagOrInteger(std::string_view key, bool& value, int64_t& number, const Bounds& bounds,
                           std::string_view) {
  const YamlNode* node = Take(key);
  if (node == nullptr) return;
  number = 0;
  if (Reading<bool> flag = ReadBoolean(*node)) {
    value = *flag;
    return;
  }
  const Reading<int64_t> integer = ReadInteger(*node);
  const std::string out = integer ? bounds.Violation(static_cast<double>(*integer)) : "";
  if (!integer || !out.empty())
    return Fail(*node, PathOf(key), "true, false or an integer" + (out.empty() ? "" : ", " + out));
  value = true;
  number = *integer;
}

void Reader::Flags(std::string_view key, std::vector<bool>& values, std::string_view) {
  const YamlNode* list = TakeList(key);
  if (list == nullptr) return;
  values.assign(list->items.size(), false);
  for (size_t i = 0; i < values.size(); ++i) {
    Reading<bool> flag = ReadBoolean(list->items[i]);
    if (!flag) return Fail(list->items[i], PathOf(key), flag.error());
    values[i] = *flag;
  }
}

void Reader::Text(std::string_view key, std::string& value, const TextRule& rule, std::string_view) {
  if (const YamlNode* node = Take(key)) ReadInto(*node, PathOf(key), value, rule);
}

void Reader::Path(std::string_view key, std::string& value, const TextRule& rule, std::string_view) {
  if (const YamlNode* node = Take(key)) ReadPath(*node, PathOf(key), value, rule);
}

void Reader::Paths(std::string_view key, std::vector<std::string>& values, const TextRule& rule,
                   std::string_view) {
  const YamlNode* list = TakeList(key);
  if (list == nullptr) return;
  values.resize(list->items.size());
  for (size_t i = 0; i < values.size(); ++i) ReadPath(list->items[i], PathOf(key), values[i], rule);
}

void Reader::Integers(std::string_view key, std::vector<int64_t>& values, const Bounds& bounds,
                      std::string_view) {
  const YamlNode* list = TakeList(key);
  if (list == nullptr) return;
  values.resize(list->items.size());
  for (size_t i = 0; i < values.size(); ++i) ReadInto(list->items[i], PathOf(key), values[i], bounds);
}

void Reader::Wrap(std::string_view key, WrapPolicy& wrap, std::string_view) {
  const YamlNode* node = Take(key);
  if (node == nullptr) return;
  const std::string prefix = "size:";
  if (node->is_list() && !node->items.empty()) {
    wrap.kind = WrapPolicy::Kind::kModules;
    wrap.modules.resize(node->items.size());
    for (size_t i = 0; i < wrap.modules.size(); ++i)
      ReadInto(node->items[i], PathOf(key), wrap.modules[i], TextRule{});
    return;
  }
  const std::string others = "block, root, size:BYTES or a list of module names";
  if (node->is_list())
    return problems_.Add(node->place, fmt::format("{} is an empty list, expected {}", PathOf(key), others));
  YamlNode size;  // the number after "size:", read under the same rules as any other number
  size.kind = YamlNode::Kind::kScalar;
  size.text = node->is_scalar() && node->text.starts_with(prefix) ? node->text.substr(prefix.size()) : "";
  Reading<int64_t> bytes = ReadInteger(size);
  if (bytes && *bytes > 0) {
    wrap = {.kind = WrapPolicy::Kind::kSize, .size_bytes = *bytes, .modules = {}};
  } else if (node->is_scalar() && (node->text == "block" || node->text == "root")) {
    wrap = {.kind = node->text == "root" ? WrapPolicy::Kind::kRoot : WrapPolicy::Kind::kBlock,
            .size_bytes = 0,
            .modules = {}};
  } else {
    const bool is_size = node->is_scalar() && node->text.starts_with(prefix);
    Fail(*node, PathOf(key),
         is_size ? "a positive number of bytes without a unit after size:, such as size:1000000" : others);
  }
}

std::optional<int64_t> Reader::IntegerWithin(const YamlNode& node, const std::string& path,
                                             const Bounds& bounds) {
  Reading<int64_t> value = ReadInteger(node);
  std::string expected = value ? bounds.Violation(static_cast<double>(*value)) : value.error();
  if (expected.empty()) return *value;
  Fail(node, path, expected);
  return std::nullopt;
}

void Reader::ReadInto(const YamlNode& node, const std::string& path, double& value, const Bounds& bounds) {
  Reading<double> number = ReadNumber(node);
  std::string expected = number ? bounds.Violation(*number) : number.error();
  // PyTorch's own name of the unit is MB, and it counts in MiB.
  if (!number && path.ends_with("_mb")) expected += ", which counts MiB";
  if (!expected.empty()) return Fail(node, path, expected);
  value = *number;
}

void Reader::ReadInto(const YamlNode& node, const std::string& path, std::string& value,
                      const TextRule& rule) {
  Reading<std::string> text = ReadText(node);
  // A closed list of words is the better hint, even if the value is not text at all.
  const bool has_words = rule.other != TextRule::Other::kAnything;
  if (has_words && !(text && rule.Accepts(*text)))
    return FailWords(node, path, rule.words, rule.Expected());
  if (!text) return Fail(node, path, rule.summary.empty() ? text.error() : rule.Expected());
  if (!rule.Accepts(*text)) return Fail(node, path, rule.Expected());
  if (!rule.is_prose && text->find_first_of("\n\t") != std::string::npos)
    return Fail(node, path, "text on one line, without tabs");
  value = *text;
}

void Reader::ReadPath(const YamlNode& node, const std::string& path, std::string& value,
                      const TextRule& rule) {
  std::string text;
  ReadInto(node, path, text, rule);
  if (text.empty()) return;
  bool is_word = std::find(rule.words.begin(), rule.words.end(), text) != rule.words.end();
  value = is_word ? text : ResolvedPath(text, directory_, node.place);
}

void Reader::FailWords(const YamlNode& node, const std::string& path, const std::vector<std::string>& words,
                       const std::string& expected) {
  const std::string_view answer = node.is_scalar() ? AnswerTo(path, node.text) : "";
  if (!answer.empty()) return Fail(node, path, fmt::format("{} ({})", expected, answer));
  const std::string meant = node.is_scalar() ? MeantWord(node.text, words) : "";
  Fail(node, path, expected + (meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant)));
}

}  // namespace windtunnel
