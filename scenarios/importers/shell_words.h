// The words of a command of the shell, as they are put together from quoted texts, expansions and characters.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/importers/settings.h"

namespace windtunnel {

// A word as it is put together: quoting decides whether it exists when empty, and where expansions split.
class WordBuilder {
 public:
  void AddQuoted(std::string_view text) {
    word_ += text;
    exists_ = true;
  }
  // The result of an expansion outside of quotes. What is not known stays in one piece.
  void AddSplit(std::string_view text) {
    bool is_unknown = false;
    for (const char c : text) {
      is_unknown = c == kUnknown || (is_unknown && c != kUnknownEnd);
      if (!is_unknown && std::isspace(static_cast<unsigned char>(c)) != 0) {
        End();
      } else {
        word_ += c;
        exists_ = true;
      }
    }
  }
  // The elements of an array: the first belongs to what stands before it, the last to what follows. Of none
  // there is no word.
  void AddElements(const std::vector<std::string>& elements) {
    for (size_t i = 0; i < elements.size(); ++i) {
      if (i > 0) End();
      AddQuoted(elements[i]);
    }
  }
  void End() {
    if (exists_) words_.push_back(std::move(word_));
    word_.clear();
    exists_ = false;
  }
  // Forgets the word that has not ended.
  void Drop() {
    word_.clear();
    exists_ = false;
  }
  bool exists() const { return exists_; }
  const std::string& word() const { return word_; }
  std::vector<std::string> Take() {
    End();
    return std::move(words_);
  }

 private:
  std::string word_;
  bool exists_ = false;
  std::vector<std::string> words_;
};

}  // namespace windtunnel
