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
#include "scenarios/importers/shell_condition.h"
#include "scenarios/importers/shell_expansion.h"
#include "scenarios/importers/shell_flow.h"
#include "scenarios/importers/shell_pattern.h"
#include "scenarios/importers/shell_reader.h"
#include "scenarios/importers/shell_variables.h"
#include "scenarios/importers/shell_words.h"
#include "scenarios/importers/slurm_options.h"

namespace windtunnel {
namespace {

bool IsAny(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Shell : ShellReader {
 public:
  // `text` and `variables` must outlive it.
  Shell(const std::string& text, ScriptVariables& variables)
      : ShellReader(text, variables.values()), variables_(variables) {}

  ShellScript Read() {
    while (!AtEnd()) ReadCommand();
    script_.conditional = variables_.additions();
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
      if (may_begin && flow_.AtPatterns()) {
        BeginCaseBranch();
      } else if (IsAt("\\\r\n")) {
        at_ += 3;
      } else if (IsAt("\\\n")) {
        at_ += 2;
      } else if (c == '#' && !builder.exists()) {
        SkipComment();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        builder.End();
        ++at_;
      } else if (may_begin && IsAssignment()) {
        Assign();
        command.assigns = true;
      } else if (may_begin && !in_declaration_ && IsArithmetic()) {
        command.truth = TruthOf(Evaluate(ReadArithmetic()));
        command.is_test = true;
      } else if (may_begin && IsDoubleBrackets()) {
        command.truth = ReadDoubleBrackets();
        command.is_test = true;
      } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
        break;
      } else if (c == '(' || c == ')' || ((c == '{' || c == '}') && IsAlone())) {
        const bool is_definition = c == '(' && IsBehindBlanks(at_ + 1, ')');
        ++at_;  // subshells and functions: as if they stood there without
        if (may_begin && c == '{') flow_.OpenGroup();
        if (may_begin && c == '}') flow_.CloseGroup();
        if (c == '(' && (is_first || is_definition)) builder = {};  // a function's name
        if (is_definition) {
          is_first = true;
          names_function_ = false;
        }
      } else if (c == '<' || c == '>') {
        SkipRedirection(builder);
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
    const bool ends_branch = c == ';' && flow_.InCase() && (twice || IsAt(";&"));
    at_ += (c == '&' || c == '|' || c == ';') && twice ? 2 : 1;
    if (c == '\n') SkipHereDocuments();
    if (ends_branch) EndCaseBranch();
    // A line may end behind && and ||.
    if (c == '\n' && is_behind_nothing) return;
    flow_.Join(twice && (c == '&' || c == '|') ? c : ' ');
  }

  void Finish(const Command& command) {
    const std::vector<std::string>& words = command.words;
    if (std::exchange(is_header_, false)) return LoopHeader(words);
    const bool is_assignment = words.empty() && command.assigns && !command.is_test;
    if (!flow_.MayEnter() || (words.empty() && !is_assignment && !command.is_test)) return;
    auto [is_test, truth] = command.is_test ? std::pair(true, command.truth) : OfWords(words);
    if (is_assignment) truth = true;
    if (!words.empty() && words[0] == "let") std::tie(is_test, truth) = std::pair(true, Let(words));
    else AssignByBuiltin(words);
    if (command.is_negated && truth) truth = !*truth;
    if (!is_test && !flow_.skips() && !flow_.InCondition() && !is_assignment)
      script_.commands.push_back(words);
    flow_.EndCommand(truth, /*mostly_succeeds=*/!is_test && !command.is_negated);
  }

  // One value makes the body of a loop a part of the script. Else it is not known how often it runs.
  void LoopHeader(const std::vector<std::string>& words) {
    if (!flow_.HasOpen() || words.empty() || !flow_.MayEnter()) return;
    AssignByBuiltin(words);
    // The script is taken to have no arguments.
    if (words[0] == "getopts" && !variables_.IsDefined("1")) flow_.DecideLoop(false);
    if (words.size() < 2 || words[1] != "in" || variables_.IsDefined(words[0])) return;
    const bool has_one = words.size() == 3 && words[2].find_first_of("*?[{") == std::string::npos &&
                         words[2].find(kUnknown) == std::string::npos;
    if (has_one) flow_.DecideLoop(true);
    variables_.Set(words[0], {has_one ? words[2] : Unknown(words[0])}, {.is_certain = flow_.IsCertain()});
  }

  // let A=1 "B *= 2"; it holds as the last one does.
  Truth Let(const std::vector<std::string>& words) {
    std::optional<int64_t> value;
    for (size_t i = 1; i < words.size(); ++i) value = Evaluate(words[i]);
    return TruthOf(value);
  }

  static Truth TruthOf(std::optional<int64_t> value) { return value ? Truth(*value != 0) : std::nullopt; }

  // What a command of these names gives to variables is not known.
  void AssignByBuiltin(const std::vector<std::string>& words) {
    if (words.empty() || !IsAny(words[0], {"read", "mapfile", "readarray", "printf", "unset"})) return;
    const bool is_printf = words[0] == "printf", is_unset = words[0] == "unset";
    if (is_unset && words.size() > 1 && words[1] == "-f") return;  // functions
    for (size_t i = 1; i < words.size(); ++i) {
      if (is_printf && words[i - 1] != "-v") continue;
      const std::string name = words[i].substr(0, words[i].find('['));
      if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameChar) || IsDigit(name[0])) continue;
      if (!flow_.MayRun()) continue;
      if (is_unset && name == words[i] && flow_.IsCertain()) variables_.Unset(name);
      else variables_.Forget(name, flow_.IsCertain());
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

  void Keyword(std::string_view word) {
    if (word == "if") {
      flow_.OpenIf();
    } else if (IsAny(word, {"for", "while", "until", "select"})) {
      flow_.OpenLoop();
      is_header_ = true;
    } else if (word == "case") {
      BeginCase();
    } else if (word == "then") {
      flow_.Then();
    } else if (word == "elif") {
      flow_.ElseIf();
    } else if (word == "else") {
      flow_.Else();
    } else if (IsAny(word, {"fi", "done", "esac"})) {
      flow_.Close();
    }
  }

  void BeginCase() {
    std::string subject = ReadCaseSubject();
    const bool has_branches = IsAt("in");
    if (has_branches) at_ += 2;
    flow_.OpenCase(std::move(subject), has_branches);
  }

  void BeginCaseBranch() {
    const std::string subject = flow_.BeginPatterns();
    SkipSpace();
    if (!AtEnd() && !IsAtEsac()) flow_.EnterCaseBranch(ReadCasePatterns(subject));
  }

  // Behind ;; or ;, where & may follow.
  void EndCaseBranch() {
    const bool goes_on = IsAt("&");
    if (goes_on) ++at_;
    flow_.LeaveCaseBranch(goes_on);
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
    for (const std::string& name : names) Store(name, value ? std::to_string(*value) : Unknown(name));
    return old;
  }

  void TakeComment(std::string_view comment) override {
    constexpr std::string_view kSlurm = "#SBATCH";
    if (!comment.starts_with(kSlurm)) return;
    const std::string_view options = comment.substr(kSlurm.size());
    TakeSlurmOptions(SplitWords(std::string(options.substr(0, options.find(" #")))));
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
          if (option.name == name && !option.values.empty())
            variables_.Set(std::string(variable), option.values, {});
        script_.slurm_options.push_back(std::move(option));
      }
      // What follows that is none may be the rest of a quoted text: --job-name="my job" --nodes=2
      words = words.subspan(std::min(options.words + 1, words.size()));
    }
  }

  void Assign() {
    WrittenAssignment assignment = ReadAssignment();
    const auto& [name, subscript, appends, is_array, value] = assignment;
    if (is_integer_ && !is_array)
      if (const std::optional<int64_t> number = Arithmetic(value[0]))
        assignment.value = {std::to_string(*number)};
    if (!flow_.MayRun()) return;
    const AssignmentManner how{.is_certain = flow_.IsCertain(), .is_array = is_array, .appends = appends};
    if (subscript && is_array) variables_.Forget(name, how.is_certain);
    else if (subscript) variables_.SetElement(name, Arithmetic(*subscript), value[0], how);
    else variables_.Set(name, std::move(assignment.value), how);
  }

  void AssignDefault(const std::string& name, const std::string& value) override { Store(name, value); }

  void Store(const std::string& name, const std::string& value) {
    if (flow_.MayRun()) variables_.Set(name, {value}, {.is_certain = flow_.IsCertain()});
  }

  ScriptVariables& variables_;
  ShellFlow flow_;
  bool is_header_ = false;  // of a loop: its words are no command
  bool in_declaration_ = false, is_integer_ = false;  // behind `declare`, `declare -i`
  bool names_function_ = false;                       // behind `function`
  ShellScript script_;
};

}  // namespace

std::vector<std::string> SplitWords(const std::string& text) {
  WordBuilder builder;
  builder.AddSplit(text);
  return builder.Take();
}

std::string ExpandShellText(const std::string& text, const std::map<std::string, std::string>& definitions) {
  const ScriptVariables variables(definitions);
  return ShellExpansion(text, variables.values()).Expanded(text);
}

ShellScript ReadShellScript(const std::string& text, const std::map<std::string, std::string>& definitions) {
  ScriptVariables variables(definitions);
  return Shell(text, variables).Read();
}

}  // namespace windtunnel
