#include "scenarios/importers/shell_reader.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "scenarios/importers/settings.h"
#include "scenarios/importers/shell_pattern.h"

namespace windtunnel {

bool ShellReader::EndsWord() const {
  return at_ >= text_.size() || std::isspace(static_cast<unsigned char>(text_[at_])) != 0 ||
         text_[at_] == ';';
}

// As EndsWord(), where another redirection or command may follow at once: <<EOF>hosts, >log|tee.
bool ShellReader::EndsTarget() const {
  return EndsWord() || std::string_view("<>&|").find(text_[at_]) != std::string_view::npos;
}

bool ShellReader::IsAlone() const {
  return (at_ == 0 || std::isspace(static_cast<unsigned char>(text_[at_ - 1])) != 0 ||
          text_[at_ - 1] == ')') &&
         (at_ + 1 >= text_.size() || std::isspace(static_cast<unsigned char>(text_[at_ + 1])) != 0 ||
          text_[at_ + 1] == ';');
}

bool ShellReader::IsBehindBlanks(size_t at, char c) const {
  while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
  return at < text_.size() && text_[at] == c;
}

void ShellReader::SkipComment() {
  const size_t end = std::min(text_.find('\n', at_), text_.size());
  TakeComment(std::string_view(text_).substr(at_, end - at_));
  at_ = end;
}

void ShellReader::SkipRedirection(WordBuilder& builder) {
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

void ShellReader::SkipHereDocuments() {
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

bool ShellReader::IsAssignment() const {
  size_t end = at_;
  while (end < text_.size() && IsNameChar(text_[end])) ++end;
  if (end == at_ || std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return false;
  if (at_ > 0 && (IsNameChar(text_[at_ - 1]) || text_[at_ - 1] == '-')) return false;
  end = BehindSubscript(end);
  if (end < text_.size() && text_[end] == '+') ++end;
  return end < text_.size() && text_[end] == '=' && (end + 1 >= text_.size() || text_[end + 1] != '=');
}

// The end of the "[…]" at `at`; `at` if there is none in the line.
size_t ShellReader::BehindSubscript(size_t at) const {
  int depth = 0;
  for (size_t end = at; end < text_.size() && text_[at] == '[' && text_[end] != '\n'; ++end) {
    depth += text_[end] == '[' ? 1 : text_[end] == ']' ? -1 : 0;
    if (depth == 0) return end + 1;
  }
  return at;
}

WrittenAssignment ShellReader::ReadAssignment() {
  WrittenAssignment assignment;
  const size_t begin = at_;
  while (IsNameChar(text_[at_])) ++at_;
  assignment.name = text_.substr(begin, at_ - begin);
  const size_t end = BehindSubscript(at_);
  if (end != at_) assignment.subscript = text_.substr(at_ + 1, end - at_ - 2);
  assignment.appends = text_[end] == '+';
  at_ = end + (assignment.appends ? 2 : 1);
  assignment.is_array = !AtEnd() && text_[at_] == '(';
  if (assignment.is_array) {
    ++at_;
    assignment.value = ReadArray();
    return assignment;
  }
  WordBuilder builder;
  splits_ = false;
  while (!EndsWord() && text_[at_] != '&' && text_[at_] != '|' && text_[at_] != ')') ReadPart(builder);
  splits_ = true;
  assignment.value = {builder.word()};
  return assignment;
}

std::vector<std::string> ShellReader::ReadArray() {
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
      SkipComment();
    } else {
      ReadPart(builder);
    }
  }
  if (at_ < text_.size()) ++at_;
  return builder.Take();
}

Truth ShellReader::ReadDoubleBrackets() {
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
size_t ShellReader::EndOfArithmetic() const {
  constexpr size_t kMost = 2000;
  if (!IsAt("((")) return text_.size();
  const size_t end = Closing('(', ')', at_ + kMost);
  return end < text_.size() && end > at_ + 2 && text_[end - 1] == ')' ? end : text_.size();
}

std::string ShellReader::ReadArithmetic() {
  const size_t end = EndOfArithmetic();
  const std::string inside = text_.substr(at_ + 2, end - at_ - 3);
  at_ = std::min(end + 1, text_.size());
  return inside;
}

void ShellReader::SkipSpace() {
  while (!AtEnd() && (IsSpace(text_[at_]) || text_[at_] == '#')) {
    if (text_[at_] == '#') SkipComment();
    else ++at_;
  }
}

std::string ShellReader::ReadCaseSubject() {
  while (!AtEnd() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  WordBuilder subject;
  splits_ = false;
  while (!EndsWord()) ReadPart(subject);
  splits_ = true;
  SkipSpace();
  return subject.word();
}

bool ShellReader::IsAtEsac() const {
  return IsAt("esac") && (at_ + 4 == text_.size() || !IsNameChar(text_[at_ + 4]));
}

Truth ShellReader::ReadCasePatterns(const std::string& subject) {
  if (text_[at_] == '(') ++at_;
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
  return matches;
}

}  // namespace windtunnel
