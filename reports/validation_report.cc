#include "reports/validation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"
#include "base/units.h"
#include "reports/version.h"
#include "scenarios/characters.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of docs/contract.md

std::string ValueText(const std::string& quantity, double value) {
  if (quantity == kStepTime) return FormatDuration(Seconds(value));
  return FormatBytes(Bytes(static_cast<int64_t>(value)));
}

std::string QuantityText(const ValidatedValue& value) {
  const std::string name = value.quantity == kStepTime         ? "step time"
                           : value.quantity == kPeakMemory     ? "peak memory"
                           : value.quantity == kReservedMemory ? "reserved memory"
                                                               : "device memory";
  return value.counts ? name : "(" + name + ")";
}

// Long ids lose their middle, not the number at their end.
std::string Shortened(const std::string& id, size_t columns) {
  if (id.size() <= columns) return id;
  const size_t tail = columns / 2;
  return id.substr(0, columns - tail - 3) + "..." + id.substr(id.size() - tail);
}

// The columns of a source's ids: 34, or as many as keep ids apart that would be shortened to the same text.
size_t IdColumns(const Validation& validation, const std::string& source) {
  constexpr size_t kLeast = 34;
  std::set<std::string> ids;
  for (const ValidatedValue& value : validation.values)
    if (value.source == source) ids.insert(Printable(value.id));
  for (const RefusedRow& row : validation.refused)
    if (row.source == source) ids.insert(Printable(row.id));
  for (size_t columns = kLeast;; ++columns) {
    std::set<std::string> shown;
    for (const std::string& id : ids) shown.insert(Shortened(id, columns));
    if (shown.size() == ids.size()) return columns;
  }
}

std::string RowsOf(const Validation& validation, const std::string& source, Ink ink) {
  const size_t columns = IdColumns(validation, source);
  std::string text = ink.Bold(fmt::format("{:<{}}  {:<18}{:>12}{:>12}{:>12}", source, columns, "quantity",
                                          "predicted", "measured", "error")) +
                     "\n";
  for (const ValidatedValue& value : validation.values) {
    if (value.source != source) continue;
    text += fmt::format("{:<{}}  {:<18}{:>12} {:>11} {:>11}\n", Shortened(Printable(value.id), columns),
                        columns, QuantityText(value), ValueText(value.quantity, value.predicted),
                        ValueText(value.quantity, value.measured), FormatSignedPercent(value.error()));
  }
  for (const RefusedRow& row : validation.refused) {
    if (row.source == source)
      text += fmt::format("{:<{}}  {}\n", Shortened(Printable(row.id), columns), columns,
                          ink.Red("refused: ") + row.reason);
  }
  return text + "\n";
}

std::string SummaryLine(const std::string& name, const ErrorStatistics& statistics) {
  std::string line =
      fmt::format("{:<18}{:>6}{:>9}", Shortened(name, 18), statistics.rows, statistics.refused);
  if (statistics.rows == 0) return line + "\n";
  return line + fmt::format(" {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>11}\n", FormatPercent(statistics.mape),
                            FormatSignedPercent(statistics.mean), FormatPercent(statistics.median),
                            FormatPercent(statistics.p90), FormatPercent(statistics.worst),
                            fmt::format("{} of {}", statistics.within_tolerance, statistics.rows),
                            statistics.pair_order ? FormatPercent(*statistics.pair_order) : "-");
}

Json StatisticsJson(const ErrorStatistics& statistics) {
  Json json;
  json["rows"] = statistics.rows;
  const bool any = statistics.rows > 0;
  auto number = [any](double value) { return any ? Json(value) : Json(nullptr); };
  json["mape"] = number(statistics.mape);
  json["median"] = number(statistics.median);
  json["p90"] = number(statistics.p90);
  json["worst"] = number(statistics.worst);
  json["pair_order"] = statistics.pair_order ? Json(*statistics.pair_order) : Json(nullptr);
  json["mean"] = number(statistics.mean);
  json["within_tolerance"] = statistics.within_tolerance;
  json["refused"] = statistics.refused;
  return json;
}

}  // namespace

std::string ValidationSummary(const Validation& validation, Ink ink) {
  std::string text =
      ink.Bold(fmt::format("{:<18}{:>6}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>11}{:>12}", "source", "rows",
                           "refused", "MAPE", "mean", "median", "p90", "worst", "tolerated", "pair order")) +
      "\n";
  for (const std::string& source : validation.sources)
    text += SummaryLine(source, StatisticsOf(validation, source));
  if (validation.sources.size() > 1) text += SummaryLine("all", StatisticsOf(validation, ""));
  return text;
}

std::string ValidationTable(const Validation& validation, Ink ink) {
  std::string text;
  for (const std::string& source : validation.sources) text += RowsOf(validation, source, ink);
  return text + ValidationSummary(validation, ink);
}

std::string ValidationJson(const Validation& validation) {
  Json json;
  json["schema"] = kValidationSchema;
  json["context"] = {{"version", kVersion}};
  json["rows"] = Json::array();
  for (const ValidatedValue& value : validation.values) {
    json["rows"].push_back({{"id", value.id},
                            {"source", value.source},
                            {"quantity", value.quantity},
                            {"predicted", value.predicted},
                            {"measured", value.measured},
                            {"error", value.error()},
                            {"counts", value.counts}});
  }
  json["refused"] = Json::array();
  for (const RefusedRow& row : validation.refused)
    json["refused"].push_back({{"id", row.id}, {"source", row.source}, {"reason", row.reason}});
  json["by_source"] = Json::object();
  for (const std::string& source : validation.sources)
    json["by_source"][source] = StatisticsJson(StatisticsOf(validation, source));
  json["overall"] = StatisticsJson(StatisticsOf(validation, ""));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace windtunnel
