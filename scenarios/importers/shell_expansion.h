// The expansion of a shell's text: quotes, variables, arithmetic.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/importers/shell_arithmetic.h"
#include "scenarios/importers/shell_words.h"

namespace windtunnel {

// The elements of arrays; other variables have one.
using ShellVariables = std::map<std::string, std::vector<std::string>>;

// What the shell calls a blank, and the end of a line.
inline bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
inline bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Text that stands for a value that is not known (settings.h).
std::string Unknown(std::string_view name);

// Reads a text part by part, from `at_` on. `text` and `variables` must outlive it.
class ShellExpansion {
 public:
  ShellExpansion(const std::string& text, const ShellVariables& variables)
      : text_(text), variables_(variables) {}
  virtual ~ShellExpansion() = default;

  // `text` with its expansions, as between double quotes; and as a pattern (shell_pattern.h).
  std::string Expanded(const std::string& text) const;
  std::string ExpandedPattern(const std::string& text) const;

 protected:
  // What ${NAME=word} does to a variable without a value.
  virtual void AssignDefault(const std::string& /*name*/, const std::string& /*value*/) {}
  // The value of $((…)), which may assign.
  virtual std::optional<int64_t> Evaluate(const std::string& expression) { return Arithmetic(expression); }

  bool AtEnd() const { return at_ >= text_.size(); }
  // Whether `word` stands at `at_`.
  bool IsAt(std::string_view word) const { return text_.compare(at_, word.size(), word) == 0; }

  // One part of a word: a quoted text, an expansion, or a character.
  void ReadPart(WordBuilder& builder);
  // The same, and what it is in a pattern, in which what is quoted stands for itself.
  void ReadPatternPart(std::string& text, std::string& pattern);
  // The end of what `open` opens, which stands at `at_`; nested pairs are skipped. The text's end if there is
  // none before `end`.
  size_t Closing(char open, char close, size_t end = std::string::npos) const;
  // The value of an expression, "N / 2"; nothing if it is not known.
  std::optional<int64_t> Arithmetic(const std::string& expression) const;

  const std::string& text_;
  size_t at_ = 0;
  bool splits_ = true;  // whether expansions outside of quotes split words; not in assignments

 private:
  void ReadQuoted(WordBuilder& builder);
  void Expand(WordBuilder& builder, bool in_quotes);
  void ExpandBraces(const std::string& inside, WordBuilder& builder, bool in_quotes);
  std::string ValueOf(const std::string& name) const;
  // ${NAME OPERATION}, of a variable that may have no value.
  std::string Operated(const std::string& name, const std::string& operation);
  std::string WithDefault(const std::string& name, const std::string& operation);

  const ShellVariables& variables_;
  int depth_ = 0;  // of ${…} within each other
};

}  // namespace windtunnel
