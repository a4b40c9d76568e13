// The profile's strict reader (cost_models/README.md documents the JSON).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cost_models/profile.h"
#include "cost_models/profile_entries.h"

namespace windtunnel {
namespace {

using Json = nlohmann::json;

std::string Describe(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return fmt::format("{} {}", value.type_name(), text);
}

// Reads the fields of one object. The first error is kept in `error` with the field's JSON path ("$.kernels[3].ranks"); after
// it every read returns a default, so a reader checks once, at its end.
class Fields {
 public:
  Fields(const Json& object, std::string path, std::string& error)
      : object_(object), path_(std::move(path)), error_(error) {
    if (!object_.is_object()) Fail(path_, fmt::format("is {}, expected an object", Describe(object_)));
  }

  std::string String(const std::string& key) {
    const Json* value = Require(key, "a string", [](const Json& v) { return v.is_string(); });
    return value ? value->get<std::string>() : "";
  }

  int64_t Integer(const std::string& key, int64_t least) {
    const Json* value = Require(key, fmt::format("a whole number of at least {}", least), [&](const Json& v) {
      return v.is_number_integer() && v.get<int64_t>() >= least &&
             !(v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{INT64_MAX});
    });
    return value ? value->get<int64_t>() : least;
  }

  // Ranks fit an int with room to multiply.
  int Ranks() {
    int64_t ranks = Integer("ranks", 1);
    if (ranks > 1 << 24) Fail(path_ + ".ranks", fmt::format("is {}, expected at most {}", ranks, 1 << 24));
    return static_cast<int>(std::min<int64_t>(ranks, 1 << 24));
  }

  Duration Time(const std::string& key) {
    const Json* value = Require(key, "seconds in [0, 9000]", IsTime);
    return value ? Seconds(value->get<double>()) : Duration();
  }

  std::optional<double> OptionalRate(const std::string& key) {
    if (!object_.is_object() || !object_.contains(key)) return std::nullopt;
    const Json* value = Require(key, "a number in (0, 1]", [](const Json& v) {
      return v.is_number() && v.get<double>() > 0.0 && v.get<double>() <= 1.0;
    });
    return value ? std::optional(value->get<double>()) : std::nullopt;
  }

  std::map<std::string, std::string> Strings(const std::string& key) {
    std::map<std::string, std::string> result;
    const Json* value = Require(key, "an object of strings", [](const Json& v) {
      return v.is_object() && std::all_of(v.begin(), v.end(), [](const Json& s) { return s.is_string(); });
    });
    if (value) result = value->get<std::map<std::string, std::string>>();
    return result;
  }

  std::array<double, Distribution::kCount> Factors(const std::string& key) {
    std::array<double, Distribution::kCount> result{};
    const Json* value = Require(key, "12 ascending positive numbers", [](const Json& v) {
      return v.is_array() && v.size() == Distribution::kCount && std::is_sorted(v.begin(), v.end()) &&
             std::all_of(v.begin(), v.end(),
                         [](const Json& x) { return x.is_number() && x.get<double>() > 0.0; });
    });
    if (value) result = value->get<std::array<double, Distribution::kCount>>();
    return result;
  }

  Distribution Times(const std::string& key) {
    const Json* value = Require(key, "an object", [](const Json& v) { return v.is_object(); });
    if (value == nullptr) return {};
    Fields fields(*value, path_ + "." + key, error_);
    Distribution result = fields.Quantiles();
    fields.MustRepeat("p10", result.p10());
    fields.MustRepeat("p50", result.p50());
    fields.MustRepeat("p90", result.p90());
    fields.RejectOthers();
    return result;
  }

  // Calls read(fields of the entry) for every entry of a list.
  template <typename Read>
  void List(const std::string& key, Read read) {
    const Json* value = Require(key, "an array", [](const Json& v) { return v.is_array(); });
    if (value == nullptr) return;
    for (size_t i = 0; i < value->size() && error_.empty(); ++i) {
      Fields entry((*value)[i], fmt::format("{}.{}[{}]", path_, key, i), error_);
      read(entry);
      entry.RejectOthers();
    }
  }

  void RejectOthers() {
    if (!object_.is_object()) return;
    for (const auto& item : object_.items()) {
      if (!read_.contains(item.key())) Fail(path_ + "." + item.key(), "is not a field of this schema");
    }
  }

  void Fail(const std::string& path, const std::string& what) {
    if (error_.empty()) error_ = path + " " + what;
  }

 private:
  static bool IsTime(const Json& v) {
    return v.is_number() && v.get<double>() >= 0.0 && v.get<double>() <= 9000.0;
  }

  template <typename Predicate>
  const Json* Require(const std::string& key, const std::string& expected, Predicate is_valid) {
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

  Distribution Quantiles() {
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
  void MustRepeat(const std::string& key, Duration expected) {
    Duration found = Time(key);
    if (error_.empty() && found != expected) {
      Fail(path_ + "." + key,
           fmt::format("is {}, but the quantiles say {}", ToSeconds(found), ToSeconds(expected)));
    }
  }

  const Json& object_;
  std::string path_;
  std::string& error_;
  std::set<std::string> read_;
};

KernelEntry ReadKernel(Fields& fields) {
  return {.key = fields.String("key"),
          .ranks = fields.Ranks(),
          .count = fields.Integer("count", 1),
          .time = fields.Times("time_s")};
}

CollectiveEntry ReadCollective(Fields& fields) {
  return {.op = fields.String("op"),
          .backend = fields.String("backend"),
          .ranks = fields.Ranks(),
          .bytes = Bytes(fields.Integer("bytes", 0)),
          .count = fields.Integer("count", 1),
          .time = fields.Times("time_s"),
          .core_time = fields.Time("core_time_s"),
          .collective_rate_under_compute = fields.OptionalRate("collective_rate_under_compute"),
          .compute_rate_under_collective = fields.OptionalRate("compute_rate_under_collective")};
}

OutsideAllocatorEntry ReadOutsideAllocator(Fields& fields) {
  return {.backend = fields.String("backend"),
          .ranks = fields.Ranks(),
          .bytes = Bytes(fields.Integer("bytes", 0))};
}

// Two entries of one identity would leave it to chance which one counts.
template <typename Entry>
void RejectTwins(Fields& fields, const std::string& path, std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), Before<Entry>);
  auto same = [](const Entry& a, const Entry& b) { return Identity(a) == Identity(b); };
  auto twin = std::adjacent_find(entries.begin(), entries.end(), same);
  if (twin != entries.end()) fields.Fail(path, "has two entries like " + EntryText(*twin));
}

Profile ReadProfile(Fields& fields) {
  Profile profile{.name = fields.String("name"),
                  .device = fields.String("device"),
                  .fingerprint = fields.String("fingerprint"),
                  .machine = fields.Strings("machine"),
                  .libraries = fields.Strings("libraries"),
                  .created = fields.String("created"),
                  .cores = fields.Integer("cores", 1),
                  .kernels = {},
                  .collectives = {},
                  .dispatch = {},
                  .common_mode = fields.Factors("common_mode"),
                  .outside_allocator = {}};
  fields.List("dispatch", [&](Fields& f) {
    int ranks = f.Ranks();
    if (profile.dispatch.contains(ranks))
      f.Fail("$.dispatch", fmt::format("has two entries for {} ranks", ranks));
    profile.dispatch[ranks] = f.Times("time_s");
  });
  fields.List("kernels", [&](Fields& f) { profile.kernels.push_back(ReadKernel(f)); });
  fields.List("collectives", [&](Fields& f) { profile.collectives.push_back(ReadCollective(f)); });
  fields.List("outside_allocator",
              [&](Fields& f) { profile.outside_allocator.push_back(ReadOutsideAllocator(f)); });
  RejectTwins(fields, "$.kernels", profile.kernels);
  RejectTwins(fields, "$.collectives", profile.collectives);
  RejectTwins(fields, "$.outside_allocator", profile.outside_allocator);
  return profile;
}

std::string LineAndColumn(const std::string& text, size_t byte) {
  size_t end = std::min(byte > 0 ? byte - 1 : 0, text.size());
  size_t line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  return fmt::format("{}:{}", line, before == std::string::npos ? end + 1 : end - before);
}

// nlohmann keeps the last of two equal keys silently; this hears of every key while it parses.
class DuplicateKeys {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(static_cast<size_t>(depth) + 1);
      keys_.back().clear();
    } else if (event == Json::parse_event_t::key) {
      keys_.resize(static_cast<size_t>(depth));
      std::string key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second && duplicate_.empty()) duplicate_ = key;
    }
    return true;
  }
  const std::string& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, outermost first
  std::string duplicate_;
};

Result<Json> ParseJson(const std::string& text, const std::string& name) {
  DuplicateKeys keys;
  try {
    Json json = Json::parse(text, std::ref(keys));
    if (!keys.duplicate().empty())
      return InvalidInput("{}: the key \"{}\" appears twice in one object", name, keys.duplicate());
    return json;
  } catch (const Json::parse_error& e) {
    return InvalidInput("{}:{}: is not JSON ({}), expected a hardware profile", name,
                        LineAndColumn(text, e.byte), e.what());
  } catch (const Json::exception& e) {  // a number out of range
    return InvalidInput("{}: is not JSON ({}), expected a hardware profile", name, e.what());
  }
}

}  // namespace

Result<Profile> ParseProfile(const std::string& json, const std::string& name) {
  WT_ASSIGN_OR_RETURN(Json document, ParseJson(json, name));
  std::string error;
  Fields fields(document, "$", error);
  std::string schema = fields.String("schema");
  if (error.empty() && schema != kProfileSchema) {
    return InvalidInput(
        "{}: schema is \"{}\", expected \"{}\"; measure the profile again with `windtunnel calibrate`", name,
        schema, kProfileSchema);
  }
  Profile profile = ReadProfile(fields);
  fields.RejectOthers();
  if (!error.empty()) return InvalidInput("{}: {}", name, error);
  return profile;
}

}  // namespace windtunnel
