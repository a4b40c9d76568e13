#include "scenarios/importers/slurm_options.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

namespace windtunnel {
namespace {

// Options without a value. Some take one behind "=" only, or in the same word (-K1).
constexpr std::string_view kShortWithoutValue = "EHIKOQXZhklsuv";
constexpr std::string_view kWithoutValue[] = {
    "contiguous", "exact",      "exclusive",     "kill_on_bad_exit", "label",         "no_kill", "no_requeue",
    "overcommit", "overlap",    "oversubscribe", "parsable",         "preserve_env",  "pty",     "quiet",
    "requeue",    "unbuffered", "use_min_nodes", "verbose",          "wait_all_nodes"};

bool TakesNone(char letter) { return kShortWithoutValue.find(letter) != std::string_view::npos; }

// Where the last short option of a word is, the only one that may have a value: 2 in "-lN2".
size_t LetterIn(std::string_view word) {
  size_t letter = 1;
  while (letter + 1 < word.size() && TakesNone(word[letter]) &&
         std::isalpha(static_cast<unsigned char>(word[letter + 1])) != 0)
    ++letter;
  return letter;
}

std::string NameOf(std::string_view option) {
  std::string name(option.substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "8" of "8" and of "h100:8"; empty if there is no number at the end.
std::string CountIn(std::string_view devices) {
  const std::string_view count = devices.substr(devices.rfind(':') + 1);
  return count.find_first_not_of("0123456789") == std::string_view::npos ? std::string(count) : "";
}

// Gives the devices of a node their name and number.
void CountDevices(Setting& setting) {
  const bool is_resource = setting.name == "gres";
  if (setting.values.size() != 1 || (!is_resource && setting.name != "gpus_per_node")) return;
  const std::string& value = setting.values[0];
  if (is_resource && !value.starts_with("gpu:")) return;
  const std::string count = CountIn(value);
  if (count.empty()) return;
  setting.name = "gpus_per_node";
  setting.values = {count};
}

}  // namespace

SlurmOptions ReadSlurmOptions(std::span<const std::string> words) {
  SlurmOptions options;
  size_t& at = options.words;
  while (at < words.size() && words[at].size() > 1 && words[at][0] == '-') {
    const std::string_view word = words[at++];
    if (word == "--") break;
    const bool is_long = word[1] == '-';
    const size_t letter = is_long ? 1 : LetterIn(word);
    const size_t end = is_long ? std::min(word.find('='), word.size()) : letter + 1;
    Setting setting{is_long ? NameOf(word.substr(0, end)) : "", std::string(word.substr(0, end)), {}};
    if (word[letter] == 'N') setting.name = "nodes";
    if (word[letter] == 'n') setting.name = "ntasks";
    const bool takes_none = is_long ? std::find(std::begin(kWithoutValue), std::end(kWithoutValue),
                                                setting.name) != std::end(kWithoutValue)
                                    : TakesNone(word[letter]);
    if (end < word.size()) setting.values.emplace_back(word.substr(end + (is_long ? 1 : 0)));
    else if (!takes_none && at < words.size() && !words[at].starts_with('-'))
      setting.values.push_back(words[at++]);
    CountDevices(setting);
    if (!setting.name.empty()) options.settings.push_back(std::move(setting));
  }
  return options;
}

}  // namespace windtunnel
