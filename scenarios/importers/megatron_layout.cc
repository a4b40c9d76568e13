#include "scenarios/importers/megatron_layout.h"

#include <cctype>
#include <string>

namespace windtunnel {
namespace {

class LayoutReader {
 public:
  explicit LayoutReader(std::string_view text) : text_(text) {}

  // All letters and separators, repetitions written out.
  std::optional<std::string> Read() {
    std::optional<std::string> letters = Sequence(0);
    if (at_ != text_.size()) return std::nullopt;
    return letters;
  }

 private:
  static constexpr size_t kMost = 10'000;
  static constexpr int kDeepest = 10;

  std::optional<std::string> Sequence(int depth) {
    std::string letters;
    if (depth > kDeepest) return std::nullopt;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_++];
      if (c == ',' || c == ' ') continue;
      std::string part(1, c);
      if (c == '(') {
        const std::optional<std::string> group = Sequence(depth + 1);
        if (!group || at_ == text_.size()) return std::nullopt;
        ++at_;  // ")"
        part = *group;
      } else if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
        return std::nullopt;
      }
      const std::optional<size_t> times = Times();
      if (!times || letters.size() + part.size() * *times > kMost) return std::nullopt;
      for (size_t i = 0; i < *times; ++i) letters += part;
    }
    return letters;
  }

  // "*29", else 1.
  std::optional<size_t> Times() {
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    size_t times = 0;
    const size_t begin = ++at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
      times = times * 10 + static_cast<size_t>(text_[at_] - '0');
      if (times > kMost) return std::nullopt;
    }
    if (at_ == begin) return std::nullopt;
    return times;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<LayoutStage>> ReadMegatronLayout(std::string_view text) {
  const std::optional<std::string> letters = LayoutReader(text).Read();
  if (!letters) return std::nullopt;
  std::vector<LayoutStage> stages(1);
  for (const char c : *letters) {
    LayoutStage& stage = stages.back();
    if (c == '|') stages.emplace_back();
    else if (c == 't') ++stage.layers;
    else if (c == 'm') ++stage.predictions;
    else if (c == 'E') stage.has_embedding = true;
    else stage.has_loss = true;
  }
  return stages;
}

}  // namespace windtunnel
