#include "cost_models/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parsing_notes.h"
#include "scenarios/yaml_tree.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostRanks = 1 << 24;  // an int with room to multiply

std::string Describe(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return fmt::format("{} {}", value.type_name(), text);
}

bool IsTime(const Json& v) { return v.is_number() && v.get<double>() >= 0.0 && v.get<double>() <= 9000.0; }
bool IsObject(const Json& v) { return v.is_object(); }

std::string LineAndColumn(const std::string& text, size_t byte) {
  size_t end = std::min(byte > 0 ? byte - 1 : 0, text.size());
  size_t line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  return fmt::format("{}:{}", line, before == std::string::npos ? end + 1 : end - before);
}

// The place of what `path` ("$.kernels[3].ranks") leads to, or of the deepest part of it that exists.
Place PlaceOf(const YamlNode& document, std::string_view path) {
  const YamlNode* node = &document;
  Place place = document.place;
  path.remove_prefix(std::min<size_t>(1, path.size()));  // $
  while (!path.empty()) {
    size_t taken = 0;
    for (size_t i = 0; i < node->items.size(); ++i) {
      const std::string part = node->is_list() ? fmt::format("[{}]", i)
                               : i < node->keys.size() ? "." + node->keys[i].name
                                                       : "";
      const bool ends = path.size() == part.size() || path[part.size()] == '.' || path[part.size()] == '[';
      if (part.empty() || !path.starts_with(part) || !ends) continue;
      taken = part.size();
      node = &node->items[i];
      break;
    }
    if (taken == 0) break;
    place = node->place;
    path.remove_prefix(taken);
  }
  return place;
}

}  // namespace

tl::unexpected<Error> InvalidField(const std::string& name, const std::string& text,
                                   const std::string& error) {
  const auto document = ParseYaml(text, name);  // JSON is YAML
  if (!document) return InvalidInput("{}: {}", name, error);
  const Place place = PlaceOf(*document, std::string_view(error).substr(0, error.find(' ')));
  return InvalidInput("{}: {}", At(name, place), error);
}

Result<Json> ParseJson(const std::string& text, const std::string& name, std::string_view expected) {
  ParsingNotes notes;
  try {
    Json json = Json::parse(text, std::ref(notes));
    if (notes.nests_too_deep())
      return InvalidInput("{}: nests deeper than {}, expected {}", name, kMostJsonDepth, expected);
    if (!notes.duplicate().empty()) {
      if (const auto with_place = ParseYaml(text, name); !with_place)
        return tl::unexpected(with_place.error());
      return InvalidInput("{}: the key \"{}\" appears twice in one object", name, notes.duplicate());
    }
    return json;
  } catch (const Json::parse_error& e) {
    return InvalidInput("{}:{}: is not JSON, expected {}", name, LineAndColumn(text, e.byte), expected);
  } catch (const Json::exception&) {
    return InvalidInput("{}: has a number out of range, expected {}", name, expected);
  }
}

Fields::Fields(const Json& object, std::string path, std::string& error)
    : object_(object), path_(std::move(path)), error_(error) {
  if (!object_.is_object()) Fail(path_, fmt::format("is {}, expected an object", Describe(object_)));
}

std::string Fields::String(const std::string& key) {
  const Json* value = Require(key, "a string", [](const Json& v) { return v.is_string(); });
  return value ? value->get<std::string>() : "";
}

std::string Fields::StringOr(const std::string& key, const std::string& otherwise) {
  return Has(key) ? String(key) : otherwise;
}

double Fields::NumberOr(const std::string& key, double otherwise, double least, double most) {
  return Has(key) ? Number(key, least, most) : otherwise;
}

bool Fields::Has(const std::string& key) const { return object_.is_object() && object_.contains(key); }

std::vector<std::string> Fields::AllKeys() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items()) keys.push_back(item.key());
  return keys;
}

int64_t Fields::Integer(const std::string& key, int64_t least, int64_t most) {
  const std::string expected = most == INT64_MAX ? fmt::format("a whole number of at least {}", least)
                                                 : fmt::format("a whole number in [{}, {}]", least, most);
  const Json* value = Require(key, expected, [&](const Json& v) {
    return v.is_number_integer() && !(v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{INT64_MAX}) &&
           v.get<int64_t>() >= least && v.get<int64_t>() <= most;
  });
  return value ? value->get<int64_t>() : least;
}

int Fields::Ranks() {
  int64_t ranks = Integer("ranks", 1);
  if (ranks > kMostRanks)
    Fail(path_ + ".ranks", fmt::format("is {}, expected at most {}", ranks, kMostRanks));
  return static_cast<int>(std::min(ranks, kMostRanks));
}

double Fields::Number(const std::string& key, double least, double most) {
  const Json* value = Require(key, fmt::format("a number in [{}, {}]", least, most), [&](const Json& v) {
    return v.is_number() && v.get<double>() >= least && v.get<double>() <= most;
  });
  return value ? value->get<double>() : least;
}

double Fields::NumberOrNull(const std::string& key, double least, double most) {
  if (object_.is_object() && object_.contains(key) && object_.at(key).is_null()) {
    read_.insert(key);
    return 0;
  }
  return Number(key, least, most);
}

Duration Fields::Time(const std::string& key) {
  const Json* value = Require(key, "seconds in [0, 9000]", IsTime);
  return value ? Seconds(value->get<double>()) : Duration();
}

std::optional<double> Fields::OptionalRate(const std::string& key) {
  if (!object_.is_object() || !object_.contains(key)) return std::nullopt;
  const Json* value = Require(key, "a number in (0, 1]", [](const Json& v) {
    return v.is_number() && v.get<double>() > 0.0 && v.get<double>() <= 1.0;
  });
  return value ? std::optional(value->get<double>()) : std::nullopt;
}

std::map<std::string, std::string> Fields::Strings(const std::string& key) {
  const Json* value = Require(key, "an object of strings", [](const Json& v) {
    return v.is_object() && std::all_of(v.begin(), v.end(), [](const Json& s) { return s.is_string(); });
  });
  return value ? value->get<std::map<std::string, std::string>>() : std::map<std::string, std::string>();
}

std::array<double, Distribution::kCount> Fields::Factors(const std::string& key) {
  const Json* value = Require(key, "12 ascending positive numbers", [](const Json& v) {
    return v.is_array() && v.size() == Distribution::kCount && std::is_sorted(v.begin(), v.end()) &&
           std::all_of(v.begin(), v.end(),
                       [](const Json& x) { return x.is_number() && x.get<double>() > 0.0; });
  });
  return value ? value->get<std::array<double, Distribution::kCount>>()
               : std::array<double, Distribution::kCount>{};
}

Distribution Fields::Times(const std::string& key) {
  Distribution result;
  Object(key, [&](Fields& fields) {
    result = fields.Quantiles();
    fields.MustRepeat("p10", result.p10());
    fields.MustRepeat("p50", result.p50());
    fields.MustRepeat("p90", result.p90());
  });
  return result;
}

void Fields::Object(const std::string& key, const std::function<void(Fields&)>& read) {
  const Json* value = Require(key, "an object", IsObject);
  if (value == nullptr) return;
  Fields fields(*value, path_ + "." + key, error_);
  read(fields);
  fields.RejectOthers();
}

void Fields::List(const std::string& key, const std::function<void(Fields&)>& read) {
  const Json* value = Require(key, "an array", [](const Json& v) { return v.is_array(); });
  if (value == nullptr) return;
  for (size_t i = 0; i < value->size() && error_.empty(); ++i) {
    Fields entry((*value)[i], fmt::format("{}.{}[{}]", path_, key, i), error_);
    read(entry);
    entry.RejectOthers();
  }
}

void Fields::RejectOthers() {
  if (!object_.is_object()) return;
  for (const auto& item : object_.items()) {
    if (!read_.contains(item.key())) Fail(path_ + "." + item.key(), "is not a field of this schema");
  }
}

void Fields::Fail(const std::string& path, const std::string& what) {
  if (error_.empty()) error_ = path + " " + what;
}

const Json* Fields::Require(const std::string& key, const std::string& expected,
                            const std::function<bool(const Json&)>& is_valid) {
  if (!error_.empty()) return nullptr;
  read_.insert(key);
  auto found = object_.find(key);
  if (found == object_.end()) {
    Fail(path_ + "." + key, "is missing, expected " + expected);
  } else if (!is_valid(*found)) {
    Fail(path_ + "." + key, fmt::format("is {}, expected {}", Describe(*found), expected));
  } else {
    return &*found;
  }
  return nullptr;
}

Distribution Fields::Quantiles() {
  const Json* value = Require("quantiles", "12 ascending times in seconds in [0, 9000]", [](const Json& v) {
    return v.is_array() && v.size() == Distribution::kCount && std::all_of(v.begin(), v.end(), IsTime) &&
           std::is_sorted(v.begin(), v.end());
  });
  if (value == nullptr) return {};
  std::array<Duration, Distribution::kCount> times;
  for (size_t i = 0; i < times.size(); ++i) times[i] = Seconds((*value)[i].get<double>());
  return Distribution::FromQuantiles(times);
}

// p10, p50 and p90 are shown for people; one that disagrees with the quantiles was edited by hand.
void Fields::MustRepeat(const std::string& key, Duration expected) {
  Duration found = Time(key);
  if (error_.empty() && found != expected) {
    Fail(path_ + "." + key,
         fmt::format("is {}, but the quantiles say {}", ToSeconds(found), ToSeconds(expected)));
  }
}

}  // namespace windtunnel
