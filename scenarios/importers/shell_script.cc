#include "scenarios/importers/shell_script.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_arithmetic.h"
#include "scenarios/importers/shell_branches.h"
#include "scenarios/importers/shell_condition.h"
#include "scenarios/importers/shell_expansion.h"
#include "scenarios/importers/shell_pattern.h"
#include "scenarios/importers/shell_words.h"
#include "scenarios/importers/slurm_options.h"

namespace windtunnel {
namespace {

bool IsAny(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Shell : ShellExpansion {
 public:
  Shell(const std::string& text, const std::map<std::string, std::string>& definitions,
        ShellVariables& variables)
      : ShellExpansion(text, variables), definitions_(definitions), variables_(variables) {}

  ShellScript Read() {
    while (!AtEnd()) ReadCommand();
    return std::move(script_);
  }

 private:
  // One command, as far as it is read.
  struct Command {
    std::vector<std::string> words;
    bool is_negated = false;
    bool assigns = false;
    bool is_test = false;  // [[ … ]] and ((…)), which `truth` is of
    Truth truth;
  };

  // One command, up to what separates it from the next.
  void ReadCommand() {
    Command command;
    WordBuilder builder;
    bool is_first = true;
    in_declaration_ = is_integer_ = names_function_ = false;
    while (!AtEnd()) {
      const char c = text_[at_];
      const bool may_begin = is_first && !builder.exists();
      if (may_begin && branches_.IsIn(BranchKind::kCase) && branches_.Innermost().at_pattern) {
        ReadCasePatterns();
      } else if (IsAt("\\\r\n")) {
        at_ += 3;
      } else if (IsAt("\\\n")) {
        at_ += 2;
      } else if (c == '#' && !builder.exists()) {
        Comment();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        builder.End();
        ++at_;
      } else if (may_begin && IsAssignment()) {
        Assign();
        command.assigns = true;
      } else if (may_begin && !in_declaration_ && EndOfArithmetic() < text_.size()) {
        command.truth = ReadArithmetic();
        command.is_test = true;
      } else if (may_begin && IsAt("[[") && at_ + 2 < text_.size() && IsSpace(text_[at_ + 2])) {
        command.truth = ReadDoubleBrackets();
        command.is_test = true;
      } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
        break;
      } else if (c == '(' || c == ')' || ((c == '{' || c == '}') && IsAlone())) {
        const bool is_definition = c == '(' && IsBehindBlanks(at_ + 1, ')');
        ++at_;  // subshells and functions: as if they stood there without
        if (may_begin && (c == '{' || c == '}')) Group(c);
        if (c == '(' && (is_first || is_definition)) builder = {};  // a function's name
        if (is_definition) {
          is_first = true;
          names_function_ = false;
        }
      } else if (c == '<' || c == '>') {
        Redirect(builder);
      } else {
        ReadPart(builder);
        if (!is_first || !EndsWord()) continue;
        is_first = BeginsAgain(builder.word(), command);
        if (is_first) builder = {};
      }
    }
    command.words = builder.Take();
    const bool is_empty = command.words.empty() && !command.assigns && !command.is_test;
    Finish(command);
    Separator(is_empty);
  }

  // Whether a command, or an assignment, begins behind `word`, which is the first one so far.
  bool BeginsAgain(const std::string& word, Command& command) {
    if (in_declaration_) {  // its options, and names without a value
      is_integer_ = is_integer_ || (word.starts_with('-') && word.find('i') != std::string::npos);
      return true;
    }
    if (std::exchange(names_function_, word == "function")) return true;
    if (word == "!") command.is_negated = !command.is_negated;
    else if (!IsKeyword(word)) return false;
    in_declaration_ = IsAny(word, {"export", "local", "declare", "readonly", "typeset"});
    Keyword(word);
    return true;
  }

  void Separator(bool is_behind_nothing) {
    if (AtEnd()) return;
    const char c = text_[at_];
    const bool twice = at_ + 1 < text_.size() && text_[at_ + 1] == c;
    const bool ends_branch = c == ';' && branches_.IsIn(BranchKind::kCase) && (twice || IsAt(";&"));
    at_ += (c == '&' || c == '|' || c == ';') && twice ? 2 : 1;
    if (c == '\n') SkipHereDocuments();
    if (ends_branch) EndCaseBranch();
    // A line may end behind && and ||.
    if (c == '\n' && is_behind_nothing) return;
    // `[ … ] && command` and `[ … ] || command` are an if of one command.
    joined_by_ = twice && (c == '&' || c == '|') ? c : ' ';
    const bool is_joined = joined_by_ != ' ' && !branches_.InCondition();
    skips_ = is_joined && status_ && *status_ != (c == '&');
    certain_ = !is_joined || status_ || (succeeds_ && c == '&');
  }

  void Finish(const Command& command) {
    const std::vector<std::string>& words = command.words;
    if (std::exchange(is_header_, false)) return LoopHeader(words);
    const bool is_assignment = words.empty() && command.assigns && !command.is_test;
    if (!branches_.MayRun() || (words.empty() && !is_assignment && !command.is_test)) return;
    auto [is_test, truth] = command.is_test ? std::pair(true, command.truth) : OfWords(words);
    if (is_assignment) truth = true;
    if (!words.empty() && words[0] == "let") std::tie(is_test, truth) = std::pair(true, Let(words));
    else AssignByBuiltin(words);
    if (command.is_negated && truth) truth = !*truth;
    if (!is_test && !skips_ && !branches_.InCondition() && !is_assignment) script_.commands.push_back(words);
    const Truth before = joined_by_ == '&' && succeeds_ ? Truth(true) : status_;
    if (!skips_) status_ = joined_by_ == ' ' ? truth : Combined(before, joined_by_, truth);
    succeeds_ = !status_ && !is_test && !command.is_negated && certain_ && !branches_.InCondition();
  }

  // One value makes the body of a loop a part of the script. Else it is not known how often it runs.
  void LoopHeader(const std::vector<std::string>& words) {
    if (branches_.empty() || words.empty() || !branches_.MayRun()) return;
    AssignByBuiltin(words);
    // The script is taken to have no arguments.
    if (words[0] == "getopts" && !definitions_.contains("1")) branches_.Innermost().taken = false;
    if (words.size() < 2 || words[1] != "in" || definitions_.contains(words[0])) return;
    const bool has_one = words.size() == 3 && words[2].find_first_of("*?[{") == std::string::npos &&
                         words[2].find(kUnknown) == std::string::npos;
    if (has_one) branches_.Innermost().taken = true;
    Store(words[0], {has_one ? words[2] : Unknown(words[0])}, /*appends=*/false, /*is_array=*/false);
  }

  // let A=1 "B *= 2"; it holds as the last one does.
  Truth Let(const std::vector<std::string>& words) {
    std::optional<int64_t> value;
    for (size_t i = 1; i < words.size(); ++i) value = Evaluate(words[i]);
    return value ? Truth(*value != 0) : std::nullopt;
  }

  // What a command of these names gives to variables is not known.
  void AssignByBuiltin(const std::vector<std::string>& words) {
    if (words.empty() || !IsAny(words[0], {"read", "mapfile", "readarray", "printf", "unset"})) return;
    const bool is_printf = words[0] == "printf", is_unset = words[0] == "unset";
    if (is_unset && words.size() > 1 && words[1] == "-f") return;  // functions
    for (size_t i = 1; i < words.size(); ++i) {
      if (is_printf && words[i - 1] != "-v") continue;
      const std::string name = words[i].substr(0, words[i].find('['));
      if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameChar) || IsDigit(name[0])) continue;
      if (is_unset && name == words[i] && IsCertain() && MayStore() && !definitions_.contains(name))
        variables_.erase(name);
      else Forget(name);
    }
  }

  static bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

  // Whether these words are a test, and what it says.
  static std::pair<bool, Truth> OfWords(const std::vector<std::string>& words) {
    if (words.empty()) return {false, std::nullopt};
    if (words[0] == "true" || words[0] == ":") return {true, true};
    if (words[0] == "false") return {true, false};
    const bool has_bracket = words[0] == "[";
    if (words.size() < 2 || !(has_bracket || words[0] == "test")) return {false, std::nullopt};
    if (has_bracket && words.back() != "]") return {true, std::nullopt};
    std::vector<TestWord> test;
    for (size_t i = 1; i + (has_bracket ? 1 : 0) < words.size(); ++i)
      test.push_back({words[i], LiteralShellPattern(words[i])});
    return {true, DecideTest(std::move(test))};
  }

  static bool IsKeyword(std::string_view word) {
    return IsAny(word, {"if",       "then", "elif", "else", "fi",     "for",     "while",   "until",
                        "do",       "done", "case", "esac", "export", "local",   "declare", "readonly",
                        "function", "time", "exec", "eval", "nohup",  "typeset", "select"});
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

  // Whether `c` stands at `at` or behind blanks there.
  bool IsBehindBlanks(size_t at, char c) const {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return at < text_.size() && text_[at] == c;
  }

  void Keyword(std::string_view word) {
    if (word == "if") {
      branches_.Open({.kind = BranchKind::kIf});
      BeginCondition();
    } else if (IsAny(word, {"for", "while", "until", "select"})) {
      branches_.Open({.kind = BranchKind::kLoop, .taken = std::nullopt});
      is_header_ = true;
    } else if (word == "case") {
      BeginCase();
    } else if (branches_.empty()) {
      return;
    } else if (word == "then") {
      branches_.Enter(status_);
    } else if (word == "elif") {
      branches_.Leave();
      BeginCondition();
    } else if (word == "else") {
      branches_.Leave();
      branches_.Enter(true);
    } else if (IsAny(word, {"fi", "done", "esac"})) {
      branches_.Close();
      status_ = std::nullopt;
      succeeds_ = true;
    }
  }

  void BeginCondition() {
    Branch& branch = branches_.Innermost();
    branch.in_condition = true;
    branch.taken = branch.any_before ? Truth(!*branch.any_before) : std::nullopt;
    status_ = true;
    BeginList();
  }
  // What comes next does not depend on what came before.
  void BeginList() {
    joined_by_ = ' ';
    skips_ = false;
    certain_ = true;
  }

  // { group; } behind && or || runs as a whole.
  void Group(char brace) {
    if (brace == '{') {
      const Truth taken = skips_ ? Truth(false) : certain_ ? Truth(true) : std::nullopt;
      branches_.Open({.kind = BranchKind::kGroup, .taken = taken});
      BeginList();
    } else if (branches_.IsIn(BranchKind::kGroup)) {
      if (!branches_.Innermost().taken) {
        status_ = std::nullopt;
        succeeds_ = false;
      }
      branches_.CloseGroup();
    }
  }

  // --- case ---

  void SkipSpace() {
    while (!AtEnd() && (IsSpace(text_[at_]) || text_[at_] == '#')) {
      if (text_[at_] == '#') Comment();
      else ++at_;
    }
  }

  // What follows the word `case`, up to `in`.
  void BeginCase() {
    while (!AtEnd() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    WordBuilder subject;
    splits_ = false;
    while (!EndsWord()) ReadPart(subject);
    splits_ = true;
    SkipSpace();
    branches_.Open({.kind = BranchKind::kCase, .subject = subject.word()});
    Branch& branch = branches_.Innermost();
    branch.at_pattern = IsAt("in");
    if (branch.at_pattern) at_ += 2;
    else branch.taken = std::nullopt;
  }

  // "7b | 13b)", or `esac`, which is left.
  void ReadCasePatterns() {
    branches_.Innermost().at_pattern = false;
    SkipSpace();
    if (AtEnd() || (IsAt("esac") && (at_ + 4 == text_.size() || !IsNameChar(text_[at_ + 4])))) return;
    if (text_[at_] == '(') ++at_;
    const std::string subject = branches_.Innermost().subject;
    Truth matches = false;
    std::string text, pattern;
    int depth = 0;  // of @(a|b) and its like
    while (!AtEnd()) {
      const char c = text_[at_];
      if (depth == 0 && (c == '|' || c == ')')) {
        const bool is_known = (subject + text).find(kUnknown) == std::string::npos;
        matches = Combined(matches, '|', is_known ? MatchesShellPattern(subject, pattern) : std::nullopt);
        text = pattern = "";
        ++at_;
        if (c == ')') break;
      } else if (IsSpace(c)) {
        ++at_;
      } else {
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        ReadPatternPart(text, pattern);
      }
    }
    branches_.Enter(matches);
    BeginList();
  }

  // Behind ;; and, where the next branch may run as well, ;& or ;;&.
  void EndCaseBranch() {
    branches_.Leave();
    const bool goes_on = IsAt("&");
    if (goes_on) ++at_;
    Branch& branch = branches_.Innermost();
    if (goes_on && branch.taken != Truth(false)) branch.any_before = std::nullopt;
    branch.at_pattern = true;
  }

  // --- [[ … ]] and ((…)) ---

  Truth ReadDoubleBrackets() {
    at_ += 2;
    std::vector<TestWord> words;
    bool in_word = false, has_groups = false;
    Truth any = false, all = true;  // of the tests so far that || and, more tightly, && join
    const auto end_test = [&] {
      all = Combined(all, '&', DecideTest(std::exchange(words, {})));
      in_word = false;
    };
    while (!AtEnd()) {
      const char c = text_[at_];
      const bool is_or = IsAt("||");
      if (!in_word && IsAt("]]")) break;
      if (IsSpace(c) || IsAt("\\\n")) {
        in_word = false;
        at_ += c == '\\' ? 2 : 1;
      } else if (is_or || IsAt("&&")) {
        end_test();
        if (is_or) any = Combined(any, '|', std::exchange(all, true));
        at_ += 2;
      } else if (!in_word && (c == '(' || c == ')')) {
        has_groups = true;
        ++at_;
      } else {
        if (!in_word) words.emplace_back();
        in_word = true;
        ReadPatternPart(words.back().text, words.back().pattern);
      }
    }
    at_ = std::min(at_ + 2, text_.size());
    end_test();
    return has_groups ? std::nullopt : Combined(any, '|', all);
  }

  // Where the ((…)) that stands here ends; the text's end if it does not.
  size_t EndOfArithmetic() const {
    constexpr size_t kMost = 2000;
    if (!IsAt("((")) return text_.size();
    const size_t end = Closing('(', ')', at_ + kMost);
    return end < text_.size() && end > at_ + 2 && text_[end - 1] == ')' ? end : text_.size();
  }

  Truth ReadArithmetic() {
    const size_t end = EndOfArithmetic();
    const std::string inside = text_.substr(at_ + 2, end - at_ - 3);
    at_ = std::min(end + 1, text_.size());
    const std::optional<int64_t> value = Evaluate(inside);
    return value ? Truth(*value != 0) : std::nullopt;
  }

  // Of several assignments, and of one that is not known, what the names get is not known.
  std::optional<int64_t> Evaluate(const std::string& expression) override {
    const std::string expanded = Expanded(expression);
    const std::vector<std::string> names = NamesAssignedIn(expanded);
    if (names.empty()) return Arithmetic(expanded);
    const std::optional<ShellAssignment> assignment =
        names.size() == 1 ? AsShellAssignment(expanded) : std::nullopt;
    const std::optional<int64_t> value = assignment ? Arithmetic(assignment->value) : std::nullopt;
    const std::optional<int64_t> old =
        assignment && assignment->yields_old ? Arithmetic(assignment->name) : value;
    for (const std::string& name : names)
      if (value) StoreText(name, std::to_string(*value));
      else Forget(name);
    return old;
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

  // Whether NAME=, NAME+=, NAME[I]= or their like stands here.
  bool IsAssignment() const {
    size_t end = at_;
    while (end < text_.size() && IsNameChar(text_[end])) ++end;
    if (end == at_ || IsDigit(text_[at_])) return false;
    if (at_ > 0 && (IsNameChar(text_[at_ - 1]) || text_[at_ - 1] == '-')) return false;
    end = BehindSubscript(end);
    if (end < text_.size() && text_[end] == '+') ++end;
    return end < text_.size() && text_[end] == '=' && (end + 1 >= text_.size() || text_[end + 1] != '=');
  }

  // The end of the "[…]" at `at`; `at` if there is none in the line.
  size_t BehindSubscript(size_t at) const {
    int depth = 0;
    for (size_t end = at; end < text_.size() && text_[at] == '[' && text_[end] != '\n'; ++end) {
      depth += text_[end] == '[' ? 1 : text_[end] == ']' ? -1 : 0;
      if (depth == 0) return end + 1;
    }
    return at;
  }

  void Assign() {
    const size_t begin = at_;
    while (IsNameChar(text_[at_])) ++at_;
    const std::string name = text_.substr(begin, at_ - begin);
    const size_t end = BehindSubscript(at_);
    const std::string subscript = end == at_ ? "" : text_.substr(at_ + 1, end - at_ - 2);
    const bool is_element = end != at_, appends = text_[end] == '+';
    at_ = end + (appends ? 2 : 1);
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
      const std::optional<int64_t> number = is_integer_ ? Arithmetic(builder.word()) : std::nullopt;
      value = {number ? std::to_string(*number) : builder.word()};
    }
    if (!MayStore()) return;
    if (is_element && is_array) Forget(name);
    else if (is_element) StoreElement(name, subscript, value[0], appends);
    else Store(name, std::move(value), appends, is_array);
  }

  void StoreElement(const std::string& name, const std::string& subscript, const std::string& value,
                    bool appends) {
    const auto found = variables_.find(name);
    std::vector<std::string> elements =
        found == variables_.end() ? std::vector<std::string>{} : found->second;
    const std::optional<int64_t> index = Arithmetic(subscript);
    const bool is_known = index && *index >= 0 && static_cast<size_t>(*index) <= elements.size() &&
                          Joined(elements).find(kUnknown) == std::string::npos;
    if (!is_known) return Forget(name);
    const auto at = static_cast<size_t>(*index);
    if (at == elements.size()) elements.emplace_back();
    elements[at] = appends ? elements[at] + value : value;
    Store(name, std::move(elements), /*appends=*/false, /*is_array=*/true);
  }

  void AssignDefault(const std::string& name, const std::string& value) override { StoreText(name, value); }

  void StoreText(const std::string& name, const std::string& value) {
    if (MayStore()) Store(name, {value}, /*appends=*/false, /*is_array=*/false);
  }
  // The variable gets a value that is not known.
  void Forget(const std::string& name) { StoreText(name, Unknown(name)); }

  bool MayStore() const { return branches_.MayRun() && !skips_; }
  // Whether it is known that the command runs. What && and || join in a condition is not told apart.
  bool IsCertain() const {
    return certain_ && branches_.SurelyRuns() && (joined_by_ == ' ' || !branches_.InCondition());
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
    constexpr size_t kLongest = 64 << 10;  // in bytes: texts may double from line to line
    size_t length = 0;
    for (const std::string& element : value) length += element.size() + 1;
    if (length > kLongest) value = {Unknown(name)};
    const bool is_same = found != variables_.end() && found->second == value;
    if (!IsCertain() && !is_same) {
      const bool are_words = is_array || (found != variables_.end() && found->second.empty());
      if (found != variables_.end() && NoteAddition(Joined(found->second), Joined(value), are_words)) return;
      value = {Unknown(name)};
    }
    variables_[name] = std::move(value);
  }

  static std::string Joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  }

  // Whether `after` is `before` with more words behind it, or before it: what a condition adds that is not
  // known. To an empty text that is flags, if they are not an array's `are_words`: another value is no addition.
  bool NoteAddition(const std::string& before, const std::string& after, bool are_words) {
    const size_t first = after.find_first_not_of(" \t\n");
    if (before.empty() && !are_words && first != std::string::npos && after.compare(first, 2, "--") != 0)
      return false;
    const size_t at = FindWords(before, after);
    if (at == std::string::npos) return false;
    std::string added = after.substr(0, at) + " " + after.substr(at + before.size());
    std::string note;
    for (const std::string& word : SplitWords(added)) note += (note.empty() ? "" : " ") + word;
    if (!note.empty()) script_.conditional.push_back(note);
    return true;
  }

  // Where `words` are in `text` with a blank or an end of it on both sides, outside of what is not known.
  static size_t FindWords(const std::string& words, const std::string& text) {
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

  const std::map<std::string, std::string>& definitions_;
  ShellVariables& variables_;
  Truth status_;            // what the list of commands so far has come to
  bool succeeds_ = true;    // whether it is taken to succeed where that is not known
  char joined_by_ = ' ';    // what joins the next command to those before: "&", "|", or nothing
  bool skips_ = false;      // the next command does not run
  bool certain_ = true;     // it is known whether it does
  bool is_header_ = false;  // of a loop: its words are no command
  bool in_declaration_ = false, is_integer_ = false;  // behind `declare`, `declare -i`
  bool names_function_ = false;                       // behind `function`
  ShellBranches branches_;
  std::vector<std::string> here_documents_;
  ShellScript script_;
};

ShellVariables VariablesOf(const std::map<std::string, std::string>& definitions) {
  ShellVariables variables;
  for (const auto& [name, value] : definitions) variables[name] = {value};
  return variables;
}

}  // namespace

std::vector<std::string> SplitWords(const std::string& text) {
  WordBuilder builder;
  builder.AddSplit(text);
  return builder.Take();
}

std::string ExpandShellText(const std::string& text, const std::map<std::string, std::string>& definitions) {
  const ShellVariables variables = VariablesOf(definitions);
  return ShellExpansion(text, variables).Expanded(text);
}

ShellScript ReadShellScript(const std::string& text, const std::map<std::string, std::string>& definitions) {
  ShellVariables variables = VariablesOf(definitions);
  return Shell(text, definitions, variables).Read();
}

}  // namespace windtunnel
