// A strict reader of JSON objects: a field that is missing, wrong, unknown or duplicate is an error that
// names it by its path.
//
//   WT_ASSIGN_OR_RETURN(nlohmann::json document, ParseJson(text, name, "a hardware profile"));
//   std::string error;
//   Fields fields(document, "$", error);
//   profile.name = fields.String("name");
//   fields.RejectOthers();
//   if (!error.empty()) return InvalidField(name, text, error);
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/distribution.h"

namespace windtunnel {

// `name` stands for the file in errors, `expected` says what it should hold ("a hardware profile"). Errors:
// InvalidInput for text that is not JSON (with the place), a key that appears twice, or values nested deeper
// than kMostJsonDepth.
Result<nlohmann::json> ParseJson(const std::string& text, const std::string& name, std::string_view expected);

// InvalidInput "NAME:LINE:COLUMN: ERROR". `error` begins with a JSON path; the line and column in `text` are
// those of the value at that path, or of the object that lacks it.
tl::unexpected<Error> InvalidField(const std::string& name, const std::string& text,
                                   const std::string& error);

// Reads the fields of one object. The first error is kept in `error` with the field's JSON path
// ("$.kernels[3].ranks"). After it every read returns a default, so that a reader checks once, at its end.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string path, std::string& error);

  // Whether the field exists. Does not count as reading it.
  bool Has(const std::string& key) const;
  std::string String(const std::string& key);
  // `otherwise` is the value if the field is absent.
  std::string StringOr(const std::string& key, const std::string& otherwise);
  double NumberOr(const std::string& key, double otherwise, double least, double most);
  std::vector<std::string> AllKeys() const;
  int64_t Integer(const std::string& key, int64_t least, int64_t most = INT64_MAX);
  int Ranks();
  double Number(const std::string& key, double least, double most);
  // 0 if the field is null.
  double NumberOrNull(const std::string& key, double least, double most);
  Duration Time(const std::string& key);
  std::optional<double> OptionalRate(const std::string& key);
  std::map<std::string, std::string> Strings(const std::string& key);
  std::array<double, Distribution::kCount> Factors(const std::string& key);
  Distribution Times(const std::string& key);
  // Calls read(fields of the object), or read for every entry of a list.
  void Object(const std::string& key, const std::function<void(Fields&)>& read);
  void List(const std::string& key, const std::function<void(Fields&)>& read);

  void RejectOthers();
  void Fail(const std::string& path, const std::string& what);
  // At the object's field `key`.
  void FailAt(const std::string& key, const std::string& what) { Fail(path_ + "." + key, what); }
  // The keys read so far.
  const std::set<std::string>& keys() const { return read_; }

 private:
  const nlohmann::json* Require(const std::string& key, const std::string& expected,
                                const std::function<bool(const nlohmann::json&)>& is_valid);
  Distribution Quantiles();
  void MustRepeat(const std::string& key, Duration expected);

  const nlohmann::json& object_;
  std::string path_;
  std::string& error_;
  std::set<std::string> read_;
};

}  // namespace windtunnel
