#include "scenarios/importers/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "scenarios/characters.h"
#include "scenarios/printer.h"

namespace windtunnel {
namespace {

// The order of the blocks in a file. Keys within a block stay as they were given.
constexpr std::string_view kOrder[] = {"name",
                                       "description",
                                       "model",
                                       "batch",
                                       "precision",
                                       "optimizer",
                                       "lr_scheduler",
                                       "recompute",
                                       "activation_offload",
                                       "activation_offload_layers",
                                       "cross_entropy",
                                       "cross_entropy_chunks",
                                       "parallel",
                                       "cluster",
                                       "framework",
                                       "allocator",
                                       "run"};

std::string_view FirstPart(std::string_view path) { return path.substr(0, path.find('.')); }

size_t Rank(std::string_view path) {
  const auto* found = std::find(std::begin(kOrder), std::end(kOrder), FirstPart(path));
  return static_cast<size_t>(found - std::begin(kOrder));
}

std::vector<std::string> Parts(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1))
    parts.emplace_back(path.substr(0, dot));
  parts.emplace_back(path);
  return parts;
}

// `text` as lines of comments of at most 100 columns.
std::string Commented(std::string_view text) {
  constexpr size_t kWidth = 98;
  std::string lines;
  while (!text.empty()) {
    size_t end = text.size();
    if (end > kWidth) {
      const size_t space = text.rfind(' ', kWidth);
      end = space == std::string_view::npos ? std::min(text.find(' '), text.size()) : space;
    }
    lines += fmt::format("# {}\n", text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

}  // namespace

void Draft::Set(std::string_view path, std::string_view value, std::string_view remark) {
  if (Has(path)) return;
  keys_.push_back({std::string(path), std::string(value), std::string(remark)});
}

void Draft::SetText(std::string_view path, const std::string& text, std::string_view remark) {
  Set(path, std::string_view(YamlText(text)), remark);
}

const std::string* Draft::Find(std::string_view path) const {
  for (const Key& key : keys_)
    if (key.path == path) return &key.value;
  return nullptr;
}

std::optional<int64_t> Draft::FindInteger(std::string_view path) const {
  const std::string* text = Find(path);
  int64_t value = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

bool Draft::HasBelow(std::string_view path) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) {
    return key.path == path || key.path.starts_with(std::string(path) + ".");
  });
}

std::string Draft::Yaml() const {
  std::vector<Key> keys = keys_;
  // A block's keys come together, in the order in which the block was first mentioned.
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Key& a, const Key& b) { return Rank(a.path) < Rank(b.path); });
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string block = keys[i].path.substr(0, keys[i].path.rfind('.') + 1);
    if (block.empty()) continue;
    std::stable_partition(keys.begin() + static_cast<std::ptrdiff_t>(i) + 1, keys.end(),
                          [&](const Key& key) { return key.path.starts_with(block); });
  }
  std::string text;
  for (const std::string& note : notes_) text += Commented(Printable(note));
  std::vector<std::string> open;
  for (const Key& key : keys) {
    const std::vector<std::string> parts = Parts(key.path);
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common]) ++common;
    open.assign(parts.begin(), parts.end() - 1);
    for (size_t i = common; i + 1 < parts.size(); ++i) text += fmt::format("{:{}}{}:\n", "", 2 * i, parts[i]);
    const std::string line = fmt::format("{:{}}{}: {}", "", 2 * (parts.size() - 1), parts.back(), key.value);
    text += key.remark.empty() ? line + "\n" : fmt::format("{:<40}  # {}\n", line, Printable(key.remark));
  }
  return text;
}

}  // namespace windtunnel
