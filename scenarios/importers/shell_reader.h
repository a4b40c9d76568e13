// What a script has beside words: assignments, tests, the patterns of a case, redirections, comments.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/importers/shell_condition.h"
#include "scenarios/importers/shell_expansion.h"
#include "scenarios/importers/shell_words.h"

namespace windtunnel {

// NAME=VALUE, NAME+=VALUE, NAME[SUBSCRIPT]=VALUE.
struct WrittenAssignment {
  std::string name;
  std::optional<std::string> subscript;
  bool appends = false;
  bool is_array = false;           // (…)
  std::vector<std::string> value;  // after expansion: an array's elements; else one
};

// Reads it from `at_` on, and does not ask whether it runs.
class ShellReader : protected ShellExpansion {
 protected:
  using ShellExpansion::ShellExpansion;

  // What a comment says, from '#' on.
  virtual void TakeComment(std::string_view /*comment*/) {}

  // Whether the text goes on with something that cannot belong to a word.
  bool EndsWord() const;
  // Whether the brace here is a word.
  bool IsAlone() const;
  // Whether `c` stands at `at` or behind blanks there.
  bool IsBehindBlanks(size_t at, char c) const;

  // Blanks, ends of lines and comments.
  void SkipSpace();
  void SkipComment();
  // A redirection, and the number before it that `builder` holds.
  void SkipRedirection(WordBuilder& builder);
  // The here-documents of the redirections in the line that has ended.
  void SkipHereDocuments();

  bool IsAssignment() const;
  WrittenAssignment ReadAssignment();

  bool IsDoubleBrackets() const { return IsAt("[[") && at_ + 2 < text_.size() && IsSpace(text_[at_ + 2]); }
  Truth ReadDoubleBrackets();
  bool IsArithmetic() const { return EndOfArithmetic() < text_.size(); }
  // The expression of ((…)).
  std::string ReadArithmetic();

  // What follows the word `case`, up to `in`.
  std::string ReadCaseSubject();
  bool IsAtEsac() const;
  // "7b | 13b)": whether `subject` matches one of them. REQUIRES: the text goes on.
  Truth ReadCasePatterns(const std::string& subject);

 private:
  bool EndsTarget() const;
  size_t BehindSubscript(size_t at) const;
  std::vector<std::string> ReadArray();
  size_t EndOfArithmetic() const;

  std::vector<std::string> here_documents_;  // their delimiters
};

}  // namespace windtunnel
