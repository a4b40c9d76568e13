#include "scenarios/yaml_tree.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "scenarios/characters.h"

namespace windtunnel {
namespace {

// yaml-cpp counts from 0, and uses -1 for an unknown place.
Place AsPlace(const YAML::Mark& mark, int source) {
  return {source, std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
}

constexpr int kMaxNodes = 100'000;

// `text` for a message: control characters escaped, cut after 80 bytes (between UTF-8 characters).
std::string OneLine(std::string_view text) {
  constexpr size_t kLongest = 80;
  size_t end = std::min(kLongest, text.size());
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return Printable(text.substr(0, end)) + (end < text.size() ? "..." : "");
}

// Whether the scalar at `begin` has an opening quote but no closing one. yaml-cpp then takes the rest of the
// file for the scalar.
bool IsUnterminated(std::string_view text, size_t begin) {
  if (begin < text.size() && text[begin] == '&')  // its anchor
    begin = text.find_first_not_of(" \t\r\n", text.find_first_of(" \t\r\n", begin));
  if (begin >= text.size() || (text[begin] != '"' && text[begin] != '\'')) return false;
  const char quote = text[begin];
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') ++i;
    else if (quote == '\'' && text.substr(i).starts_with("''")) ++i;
    else if (text[i] == quote) return false;
  }
  return true;
}

// The place of byte `offset` of `text`.
Place PlaceOfByte(std::string_view text, size_t offset, int source) {
  const std::string_view before = text.substr(0, offset);
  const size_t line = before.rfind('\n');
  return {source, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(offset - (line == std::string_view::npos ? 0 : line + 1)) + 1};
}

struct Problem {
  Place place;
  std::string what;
};

// Turns yaml-cpp's events into a tree. The parser cannot be stopped half-way, so the first error is kept and
// reported at the end.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, int source) : text_(text), source_(source) {}

  const std::optional<Problem>& problem() const { return problem_; }
  // The start of the document, if there is one.
  const std::optional<Place>& document() const { return document_; }
  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override { document_ = PlaceOf(mark); }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Begin(mark, "", anchor, YamlNode::Kind::kNull);
    End();
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Begin(mark, tag, anchor, YamlNode::Kind::kScalar);
    open_.back().node.text = value;
    open_.back().node.quoted = tag == "!";
    if (tag == "!" && mark.pos >= 0 && IsUnterminated(text_, static_cast<size_t>(mark.pos)))
      Fail(PlaceOf(mark), "a quote is opened and not closed, expected it at the end of the text");
    End();
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Begin(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { End(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Begin(mark, tag, anchor, YamlNode::Kind::kBlock);
  }
  void OnMapEnd() override { End(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      return Fail(PlaceOf(mark), "an alias inside its own anchor, expected a value");
    node_count_ = std::min(node_count_ + found->second.size, 2 * kMaxNodes);  // far more may follow
    if (node_count_ > kMaxNodes)
      return Fail(PlaceOf(mark), "the aliases unfold into too many values, expected at most 100000");
    Begin(mark, "", YAML::NullAnchor, YamlNode::Kind::kNull);
    Place place = open_.back().node.place;
    open_.back().node = found->second.node;
    open_.back().node.place = place;
    End();
  }

 private:
  // A node that is not complete yet. `has_key`: the node is a block, and its last key waits for a value.
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor;
    int first_count;  // node_count_ when the node was opened
    bool has_key = false;
    std::unordered_map<std::string, int> lines = {};  // of the block's keys
  };
  struct Anchored {
    YamlNode node;
    int size = 0;  // number of nodes in it
  };

  Place PlaceOf(const YAML::Mark& mark) const { return AsPlace(mark, source_); }

  void Fail(Place place, std::string what) {
    if (!problem_) problem_ = Problem{place, std::move(what)};
  }

  void Begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    Place place = PlaceOf(mark);
    // yaml-cpp reports "?" for plain and "!" for quoted scalars. Any other tag was written in the file.
    if (!tag.empty() && tag != "?" && tag != "!")
      Fail(place, fmt::format("the tag {}, expected a plain value", Quoted(tag)));
    if (++node_count_ > kMaxNodes) Fail(place, "too many values, expected at most 100000");
    YamlNode node;
    node.kind = kind;
    node.place = place;
    open_.push_back({std::move(node), anchor, node_count_});
  }

  void End() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != YAML::NullAnchor)
      anchors_[done.anchor] = {done.node, node_count_ - done.first_count + 1};
    if (problem_) return;  // events after an error may be nonsense
    if (open_.empty()) {
      root_ = std::move(done.node);
    } else if (open_.back().node.is_list()) {
      open_.back().node.items.push_back(std::move(done.node));
    } else if (!open_.back().has_key) {
      AddKey(std::move(done.node));
    } else {
      AddValue(std::move(done.node));
    }
  }

  void AddKey(YamlNode key) {
    Open& block = open_.back();
    if (!key.is_scalar()) return Fail(key.place, fmt::format("a key is {}, expected text", Found(key)));
    const auto [earlier, is_new] = block.lines.try_emplace(key.text, key.place.line);
    if (!is_new)
      return Fail(key.place, fmt::format("duplicate key {}, expected it once (it is already in line {})",
                                         Quoted(key.text), earlier->second));
    block.node.keys.push_back({std::move(key.text), key.place});
    block.has_key = true;
  }

  void AddValue(YamlNode value) {
    Open& block = open_.back();
    // A key without a value: yaml-cpp reports the place of the next token, which may be lines further down.
    if (value.is_null()) value.place = block.node.keys.back().place;
    block.node.items.push_back(std::move(value));
    block.has_key = false;
  }

  std::string_view text_;
  int source_;
  int node_count_ = 0;
  std::optional<Place> document_;
  std::optional<Problem> problem_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  YamlNode root_;
};

// The first tab that indents a line, up to line `last`.
std::optional<Place> IndentingTab(std::string_view text, const Place& last) {
  Place place = {last.source, 1, 1};
  for (size_t begin = 0; place.line <= last.line && begin < text.size(); ++place.line) {
    const size_t indent = text.find_first_not_of(' ', begin);
    if (indent == std::string_view::npos) return std::nullopt;
    place.column = static_cast<int>(indent - begin) + 1;
    if (text[indent] == '\t') return place;
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  return std::nullopt;
}

// yaml-cpp's own message and place, except for tabs, of which its message says nothing.
Problem SyntaxProblem(std::string_view text, const std::string& words, Place place) {
  if (const auto tab = IndentingTab(text, place)) return {*tab, "a tab indents the line, expected spaces"};
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  return {place, fmt::format("not valid {} ({}), expected {}", is_json ? "JSON" : "YAML", OneLine(words),
                             is_json ? "one object" : "\"key: value\" lines")};
}

struct Parsed {
  YamlNode root;
  std::optional<Problem> problem;
};

Parsed ParseOneDocument(std::string_view text, int source) {
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(text, source);
    parser.HandleNextDocument(builder);
    if (builder.problem()) return {{}, builder.problem()};
    TreeBuilder second(text, source);
    if (parser.HandleNextDocument(second)) {
      return {{},
              Problem{second.document().value_or(Place{source, 1, 1}),
                      "a second YAML document, expected only one"}};
    }
    return {builder.TakeRoot(), std::nullopt};
  } catch (const YAML::DeepRecursion& error) {
    return {{},
            Problem{AsPlace(error.mark, source),
                    "values nested too deeply, expected at most a few hundred levels"}};
  } catch (const YAML::Exception& error) {
    return {{}, SyntaxProblem(text, error.msg, AsPlace(error.mark, source))};
  } catch (const std::exception& error) {
    return {{}, SyntaxProblem(text, error.what(), {source, 1, 1})};
  }
}

}  // namespace

const YamlNode* YamlNode::Find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].name == key) return &items[i];
  }
  return nullptr;
}

YamlNode* YamlNode::Find(std::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->Find(key));
}

const YamlNode* YamlNode::FindPath(std::string_view dotted) const {
  const YamlNode* node = this;
  while (node != nullptr && !dotted.empty()) {
    size_t dot = dotted.find('.');
    node = node->Find(dotted.substr(0, dot));
    dotted = dot == std::string_view::npos ? std::string_view() : dotted.substr(dot + 1);
  }
  return node;
}

std::string Quoted(std::string_view text) { return fmt::format("'{}'", OneLine(text)); }

std::string Found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "empty";
    case YamlNode::Kind::kScalar:
      return Quoted(node.text);
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kBlock:
      return "a block";
  }
  return "";
}

std::string At(std::string_view name, const Place& place) {
  if (place.source > 0) return std::string(name);
  return fmt::format("{}:{}:{}", name, place.line, place.column);
}

namespace {

// JSON writes a character beyond U+FFFF as two escapes, "\\ud83d\\ude00", which YAML does not know. Replaces
// them by UTF-8; columns behind them become smaller.
std::string WithoutSurrogates(std::string text) {
  const auto unit_at = [&](size_t at) -> unsigned {
    if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return 0;
    const std::string digits = text.substr(at + 2, 4);
    const bool is_hex = digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    return is_hex ? static_cast<unsigned>(std::stoul(digits, nullptr, 16)) : 0;
  };
  for (size_t at = text.find("\\u"); at != std::string::npos; at = text.find("\\u", at + 1)) {
    const size_t run = text.find_last_not_of('\\', at);  // an escaped backslash begins no escape
    const size_t before = at - (run == std::string::npos ? 0 : run + 1);
    const unsigned high = unit_at(at), low = unit_at(at + 6);
    if (before % 2 != 0 || high < 0xD800 || high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) continue;
    const unsigned code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    const char utf8[] = {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3F)),
                         static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                         static_cast<char>(0x80 | (code & 0x3F))};
    text.replace(at, 12, utf8, 4);
  }
  return text;
}

}  // namespace

Result<YamlNode> ParseYaml(const std::string& given, const std::string& name, int source) {
  const size_t first = given.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  const bool is_json = first != std::string::npos && given[first] == '{';
  const std::string text = is_json ? WithoutSurrogates(given) : given;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (const size_t end = Utf8Prefix(text); end < text.size())
    return InvalidInput("{}: not UTF-8, expected text in UTF-8", At(name, PlaceOfByte(text, end, source)));
  Parsed parsed = ParseOneDocument(
      std::string_view(text).substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0), source);
  if (parsed.problem) return InvalidInput("{}: {}", At(name, parsed.problem->place), parsed.problem->what);
  return std::move(parsed.root);
}

}  // namespace windtunnel
