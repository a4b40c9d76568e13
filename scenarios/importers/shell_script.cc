#include "scenarios/importers/shell_script.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_arithmetic.h"
#include "scenarios/importers/shell_condition.h"
#include "scenarios/importers/shell_words.h"
#include "scenarios/importers/slurm_options.h"

namespace windtunnel {
namespace {

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string Unknown(std::string_view name) { return kUnknown + std::string(name) + kUnknownEnd; }

class Shell {
 public:
  Shell(const std::string& text, const std::map<std::string, std::string>& definitions)
      : text_(text), definitions_(definitions) {
    for (const auto& [name, value] : definitions) variables_[name] = {value};
  }

  ShellScript Read() {
    while (at_ < text_.size()) ReadCommand();
    return std::move(script_);
  }

  // `text` with its expansions, as between double quotes.
  std::string Expanded(const std::string& text) const {
    constexpr int kDeepest = 20;
    if (depth_ == kDeepest) return Unknown(text);
    Shell inner(text, definitions_);
    inner.variables_ = variables_;
    inner.depth_ = depth_ + 1;
    WordBuilder builder;
    inner.splits_ = false;
    while (inner.at_ < text.size()) inner.ReadPart(builder);
    return builder.word();
  }

 private:
  // An `if`, or a loop or `case`, of which nothing is decided.
  struct Branch {
    bool in_condition = false;
    Truth taken = false;       // whether the branch that is being read runs
    Truth any_before = false;  // whether one of the branches before it did
  };

  bool Runs() const {
    return std::none_of(branches_.begin(), branches_.end(),
                        [](const Branch& branch) { return branch.taken == Truth(false); });
  }
  bool IsCertain() const {
    return certain_ && std::all_of(branches_.begin(), branches_.end(),
                                   [](const Branch& branch) { return branch.taken == Truth(true); });
  }

  // One command, up to what separates it from the next.
  void ReadCommand() {
    std::vector<std::string> words;
    WordBuilder builder;
    bool is_first = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && text_.compare(at_, 3, "\\\r\n") == 0) {
        at_ += 3;
      } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
        at_ += 2;
      } else if (c == '#' && !builder.exists()) {
        Comment();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        builder.End();
        ++at_;
      } else if (is_first && !builder.exists() && IsAssignment()) {
        Assign();
      } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
        break;
      } else if (c == '(' || c == ')' || ((c == '{' || c == '}') && IsAlone())) {
        ++at_;  // groups and functions: as if they stood there without
        if (is_first && builder.exists()) builder = {};
      } else if (c == '<' || c == '>') {
        Redirect(builder);
      } else {
        ReadPart(builder);
        if (!is_first || !EndsWord()) continue;
        is_first = IsKeyword(builder.word());
        if (is_first) {
          Keyword(builder.word());
          builder = {};
        }
      }
    }
    words = builder.Take();
    Finish(words);
    Separator();
  }

  void Separator() {
    if (at_ >= text_.size()) return;
    const char c = text_[at_];
    const bool twice = at_ + 1 < text_.size() && text_[at_ + 1] == c;
    at_ += (c == '&' || c == '|' || c == ';') && twice ? 2 : 1;
    if (c == '\n') SkipHereDocuments();
    if (InCondition() && c != '\n') joined_by_ = twice && (c == '&' || c == '|') ? c : ' ';
    // `[ … ] && command` and `[ … ] || command` are an if of one command.
    skips_ = false;
    certain_ = true;
    if (!twice || (c != '&' && c != '|') || InCondition()) return;
    if (last_test_) skips_ = *last_test_ != (c == '&');
    else certain_ = !is_test_ && c == '&';  // commands are taken to succeed
  }

  bool InCondition() const { return !branches_.empty() && branches_.back().in_condition; }

  void Finish(const std::vector<std::string>& words) {
    last_test_ = std::nullopt;
    is_test_ = false;
    const bool is_header = std::exchange(is_header_, false);
    if (words.empty() || is_header) return;
    const bool is_negated = words[0] == "!" && words.size() > 1;
    const std::vector<std::string> rest(words.begin() + (is_negated ? 1 : 0), words.end());
    is_test_ = rest.size() >= 2 && (rest[0] == "[" || rest[0] == "[[" || rest[0] == "test");
    if (is_test_) {
      const size_t end = rest[0] == "test" ? rest.size() : rest.size() - 1;
      const bool ends =
          rest[0] == "test" || rest.back() == (rest[0] == "[" ? "]" : "]]");  // not [[ … && … ]]
      if (ends) last_test_ = DecideTest({rest.begin() + 1, rest.begin() + static_cast<std::ptrdiff_t>(end)});
      if (last_test_ && is_negated) last_test_ = !*last_test_;
    }
    if (InCondition()) {
      Branch& branch = branches_.back();
      branch.taken = Combined(branch.taken, std::exchange(joined_by_, ' '), last_test_);
      return;
    }
    if (Runs() && !skips_ && !is_test_) script_.commands.push_back(words);
  }

  // What two commands of a condition are together: the second one's truth, unless they are joined by && or
  // ||.
  static Truth Combined(Truth first, char by, Truth second) {
    if (by == ' ') return second;
    const Truth decides = by == '|';
    if (first == decides || second == decides) return decides;
    return first && second ? second : std::nullopt;
  }

  static bool IsKeyword(std::string_view word) {
    constexpr std::string_view kKeywords[] = {"if",     "then",  "elif",    "else",     "fi",       "for",
                                              "while",  "until", "do",      "done",     "case",     "esac",
                                              "export", "local", "declare", "readonly", "function", "time",
                                              "exec",   "eval",  "nohup"};
    return std::find(std::begin(kKeywords), std::end(kKeywords), word) != std::end(kKeywords);
  }

  // Whether the text goes on with something that cannot belong to a word.
  bool EndsWord() const {
    return at_ >= text_.size() || std::isspace(static_cast<unsigned char>(text_[at_])) != 0 ||
           text_[at_] == ';';
  }
  // As EndsWord(), where another redirection or command may follow at once: <<EOF>hosts, >log|tee.
  bool EndsTarget() const {
    return EndsWord() || std::string_view("<>&|").find(text_[at_]) != std::string_view::npos;
  }
  bool IsAlone() const {
    return (at_ == 0 || std::isspace(static_cast<unsigned char>(text_[at_ - 1])) != 0 ||
            text_[at_ - 1] == ')') &&
           (at_ + 1 >= text_.size() || std::isspace(static_cast<unsigned char>(text_[at_ + 1])) != 0 ||
            text_[at_ + 1] == ';');
  }

  void Keyword(std::string_view word) {
    if (word == "if") {
      branches_.push_back({.in_condition = true, .taken = true});
      joined_by_ = ' ';
    } else if (word == "for" || word == "while" || word == "until" || word == "case") {
      branches_.push_back({.taken = std::nullopt});
      is_header_ = true;
    } else if (branches_.empty()) {
      return;
    } else if (word == "then") {
      Enter(branches_.back().taken);
    } else if (word == "elif") {
      Leave();
      branches_.back().in_condition = true;
      branches_.back().taken = true;
      joined_by_ = ' ';
    } else if (word == "else") {
      Leave();
      Enter(true);
    } else if (word == "fi" || word == "done" || word == "esac") {
      branches_.pop_back();
    }
  }

  // Begins a branch under a condition: it runs if that holds and no branch before it ran.
  void Enter(Truth condition) {
    Branch& branch = branches_.back();
    branch.in_condition = false;
    if (branch.any_before == Truth(true) || condition == Truth(false)) branch.taken = false;
    else if (condition == Truth(true) && branch.any_before == Truth(false)) branch.taken = true;
    else branch.taken = std::nullopt;
  }
  void Leave() {
    Branch& branch = branches_.back();
    if (branch.taken == Truth(true)) branch.any_before = true;
    else if (!branch.taken && branch.any_before == Truth(false)) branch.any_before = std::nullopt;
  }

  void Comment() {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    constexpr std::string_view kSlurm = "#SBATCH";
    if (text_.compare(at_, kSlurm.size(), kSlurm) == 0) {
      const std::string options = text_.substr(at_ + kSlurm.size(), end - at_ - kSlurm.size());
      TakeSlurmOptions(SplitWords(options.substr(0, options.find(" #"))));
    }
    at_ = end;
  }

  // Slurm gives some options to the script as variables.
  void TakeSlurmOptions(std::span<const std::string> words) {
    constexpr std::pair<std::string_view, std::string_view> kVariables[] = {
        {"nodes", "SLURM_NNODES"},
        {"nodes", "SLURM_JOB_NUM_NODES"},
        {"ntasks", "SLURM_NTASKS"},
        {"ntasks_per_node", "SLURM_NTASKS_PER_NODE"},
        {"gpus_per_node", "SLURM_GPUS_PER_NODE"},
        {"gpus_per_node", "SLURM_GPUS_ON_NODE"}};
    while (!words.empty()) {
      SlurmOptions options = ReadSlurmOptions(words);
      for (Setting& option : options.settings) {
        for (const auto& [name, variable] : kVariables)
          if (option.name == name && !option.values.empty() && !definitions_.contains(std::string(variable)))
            variables_[std::string(variable)] = option.values;
        script_.slurm_options.push_back(std::move(option));
      }
      // What follows that is none may be the rest of a quoted text: --job-name="my job" --nodes=2
      words = words.subspan(std::min(options.words + 1, words.size()));
    }
  }

  void Redirect(WordBuilder& builder) {
    // The number of a stream is no word.
    if (builder.exists() && std::all_of(builder.word().begin(), builder.word().end(), ::isdigit))
      builder.Drop();
    if (text_.compare(at_, 2, "<<") == 0 && text_.compare(at_, 3, "<<<") != 0) {
      at_ += 2;
      if (at_ < text_.size() && text_[at_] == '-') ++at_;
      WordBuilder delimiter;
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      while (!EndsTarget()) ReadPart(delimiter);
      here_documents_.push_back(delimiter.word());
      return;
    }
    while (at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>' || text_[at_] == '&')) ++at_;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    WordBuilder target;
    while (!EndsTarget()) ReadPart(target);
  }

  void SkipHereDocuments() {
    for (const std::string& delimiter : here_documents_) {
      while (at_ < text_.size()) {
        const size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string line = text_.substr(at_, end - at_);
        at_ = std::min(end + 1, text_.size());
        line.erase(0, line.find_first_not_of('\t') == std::string::npos ? 0 : line.find_first_not_of('\t'));
        if (line == delimiter) break;
      }
    }
    here_documents_.clear();
  }

  // Whether NAME=, NAME+= or their like stands here.
  bool IsAssignment() const {
    size_t end = at_;
    while (end < text_.size() && IsNameChar(text_[end])) ++end;
    if (end == at_ || std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return false;
    if (at_ > 0 && (IsNameChar(text_[at_ - 1]) || text_[at_ - 1] == '-')) return false;
    if (end < text_.size() && text_[end] == '+') ++end;
    return end < text_.size() && text_[end] == '=' && (end + 1 >= text_.size() || text_[end + 1] != '=');
  }

  void Assign() {
    const size_t equals = text_.find('=', at_);
    const bool appends = text_[equals - 1] == '+';
    const std::string name = text_.substr(at_, equals - at_ - (appends ? 1 : 0));
    at_ = equals + 1;
    std::vector<std::string> value;
    const bool is_array = at_ < text_.size() && text_[at_] == '(';
    if (is_array) {
      ++at_;
      value = ReadArray();
    } else {
      WordBuilder builder;
      splits_ = false;
      while (at_ < text_.size() && !EndsWord() && text_[at_] != '&' && text_[at_] != '|' && text_[at_] != ')')
        ReadPart(builder);
      splits_ = true;
      value = {builder.word()};
    }
    if (Runs() && !skips_ && !InCondition()) Store(name, std::move(value), appends, is_array);
  }

  void Store(const std::string& name, std::vector<std::string> value, bool appends, bool is_array) {
    if (definitions_.contains(name)) return;
    const auto found = variables_.find(name);
    if (appends && found != variables_.end()) {
      std::vector<std::string> longer = found->second;
      if (is_array) longer.insert(longer.end(), value.begin(), value.end());
      else if (longer.empty()) longer = value;
      else longer.back() += value.empty() ? "" : value[0];
      value = std::move(longer);
    }
    const bool is_same = found != variables_.end() && found->second == value;
    if (!IsCertain() && !is_same) {
      if (found != variables_.end() && NoteAddition(Joined(found->second), Joined(value))) return;
      value = {Unknown(name)};
    }
    variables_[name] = std::move(value);
  }

  static std::string Joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  }

  // Whether `after` is `before` with more behind it, or before it: what a condition adds that is not known.
  bool NoteAddition(const std::string& before, const std::string& after) {
    const size_t at = after.find(before);
    if (at == std::string::npos) return false;
    std::string added = after.substr(0, at) + " " + after.substr(at + before.size());
    std::string note;
    for (const std::string& word : SplitWords(added)) note += (note.empty() ? "" : " ") + word;
    if (!note.empty()) script_.conditional.push_back(note);
    return true;
  }

  std::vector<std::string> ReadArray() {
    WordBuilder builder;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        builder.End();
        ++at_;
      } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
        builder.End();
        at_ += 2;
      } else if (c == '#' && !builder.exists()) {
        Comment();
      } else {
        ReadPart(builder);
      }
    }
    if (at_ < text_.size()) ++at_;
    return builder.Take();
  }

  // One part of a word: a quoted text, an expansion, or a character.
  void ReadPart(WordBuilder& builder) {
    const char c = text_[at_];
    if (c == '\'') {
      const size_t end = std::min(text_.find('\'', at_ + 1), text_.size());
      builder.AddQuoted(text_.substr(at_ + 1, end - at_ - 1));
      at_ = std::min(end + 1, text_.size());
    } else if (c == '"') {
      ReadQuoted(builder);
    } else if (c == '$') {
      Expand(builder, /*in_quotes=*/!splits_);
    } else if (c == '`') {
      const size_t end = std::min(text_.find('`', at_ + 1), text_.size());
      builder.AddQuoted(Unknown(text_.substr(at_, end + 1 - at_)));
      at_ = std::min(end + 1, text_.size());
    } else if (c == '\\' && at_ + 1 < text_.size()) {
      builder.AddQuoted(std::string_view(text_).substr(at_ + 1, 1));
      at_ += 2;
    } else {
      builder.AddQuoted(std::string_view(text_).substr(at_++, 1));
    }
  }

  void ReadQuoted(WordBuilder& builder) {
    builder.AddQuoted("");
    for (++at_; at_ < text_.size() && text_[at_] != '"';) {
      const char c = text_[at_];
      if (c == '$') {
        Expand(builder, /*in_quotes=*/true);
      } else if (c == '\\' && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] != '\n') builder.AddQuoted(std::string_view(text_).substr(at_ + 1, 1));
        at_ += 2;
      } else {
        builder.AddQuoted(std::string_view(text_).substr(at_++, 1));
      }
    }
    if (at_ < text_.size()) ++at_;
  }

  // The end of what `open` opens, which stands at `at_`; nested pairs are skipped.
  size_t Closing(char open, char close) const {
    int depth = 0;
    for (size_t i = at_; i < text_.size(); ++i) {
      if (text_[i] == open) ++depth;
      if (text_[i] == close && --depth == 0) return i;
    }
    return text_.size();
  }

  void Expand(WordBuilder& builder, bool in_quotes) {
    const size_t begin = at_++;
    const auto add = [&](const std::string& text) {
      if (in_quotes) builder.AddQuoted(text);
      else builder.AddSplit(text);
    };
    if (at_ >= text_.size()) return builder.AddQuoted("$");
    const char c = text_[at_];
    if (c == '{') {
      const size_t end = Closing('{', '}');
      const std::string inside = text_.substr(at_ + 1, end - at_ - 1);
      at_ = std::min(end + 1, text_.size());
      return Braces(inside, builder, in_quotes, add);
    }
    if (text_.compare(at_, 2, "((") == 0) {
      const size_t end = Closing('(', ')');
      const std::string inside = text_.substr(at_ + 2, end - at_ - 3);
      at_ = std::min(end + 1, text_.size());
      const std::optional<int64_t> value = EvaluateShellArithmetic(Expanded(inside), Lookup());
      if (!value) return builder.AddQuoted(Unknown("((" + inside + "))"));
      return add(std::to_string(*value));
    }
    if (c == '(') {
      const size_t end = Closing('(', ')');
      at_ = std::min(end + 1, text_.size());
      return builder.AddQuoted(Unknown(text_.substr(begin + 1, at_ - begin - 1)));
    }
    if (c == '@' || c == '*') {  // the script is taken to have no arguments
      ++at_;
      return;
    }
    if (IsNameChar(c)) {
      size_t end = at_ + 1;
      if (std::isdigit(static_cast<unsigned char>(c)) == 0)
        while (end < text_.size() && IsNameChar(text_[end])) ++end;
      const std::string name = text_.substr(at_, end - at_);
      at_ = end;
      return add(ValueOf(name));
    }
    builder.AddQuoted("$");
  }

  std::function<std::optional<std::string>(const std::string&)> Lookup() const {
    return [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end() || found->second.empty()) return std::nullopt;
      return found->second[0];
    };
  }

  std::string ValueOf(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return Unknown(name);
    return found->second.empty() ? "" : found->second[0];
  }

  // What stands between the braces of ${…}.
  template <typename Add>
  void Braces(const std::string& inside, WordBuilder& builder, bool in_quotes, const Add& add) {
    size_t end = 0;
    while (end < inside.size() && IsNameChar(inside[end])) ++end;
    const std::string name = inside.substr(0, end), rest = inside.substr(end);
    const auto found = variables_.find(name);
    const bool is_set = found != variables_.end();
    if (name.empty()) return builder.AddQuoted(Unknown(inside));
    if (rest.empty()) return add(ValueOf(name));
    if (rest == "[@]" || rest == "[*]") {
      if (!is_set) return builder.AddQuoted(Unknown(name));
      if (in_quotes && splits_) return builder.AddElements(found->second);
      for (size_t i = 0; i < found->second.size(); ++i) add((i > 0 ? " " : "") + found->second[i]);
      return;
    }
    const bool with_colon = rest[0] == ':';
    const char operation = rest[with_colon && rest.size() > 1 ? 1 : 0];
    const std::string word = Expanded(rest.substr(std::min<size_t>(with_colon ? 2 : 1, rest.size())));
    const bool has_value = is_set && !(with_colon && ValueOf(name).empty());
    if (operation == '-' || operation == '=') return add(has_value ? ValueOf(name) : word);
    if (operation == '+') return add(has_value ? word : "");
    if (operation == '?') return add(ValueOf(name));
    builder.AddQuoted(Unknown(inside));
  }

  const std::string& text_;
  const std::map<std::string, std::string>& definitions_;
  size_t at_ = 0;
  int depth_ = 0;       // of ${…} within each other
  bool splits_ = true;  // whether expansions outside of quotes split words; not in assignments
  bool skips_ = false;  // the command behind a test that failed
  bool certain_ = true;
  bool is_test_ = false;  // the last command
  Truth last_test_;       // what it says
  char joined_by_ = ' ';  // what joins the next command of a condition to those before: "&", "|", or nothing
  bool is_header_ = false;  // of a loop or a `case`: its words are no command
  std::map<std::string, std::vector<std::string>> variables_;
  std::vector<Branch> branches_;
  std::vector<std::string> here_documents_;
  ShellScript script_;
};

}  // namespace

std::vector<std::string> SplitWords(const std::string& text) {
  WordBuilder builder;
  builder.AddSplit(text);
  return builder.Take();
}

std::string ExpandShellText(const std::string& text, const std::map<std::string, std::string>& definitions) {
  return Shell(text, definitions).Expanded(text);
}

ShellScript ReadShellScript(const std::string& text, const std::map<std::string, std::string>& definitions) {
  return Shell(text, definitions).Read();
}

}  // namespace windtunnel
