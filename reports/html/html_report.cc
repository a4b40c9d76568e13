#include "reports/html/html_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "reports/html/assets.h"
#include "reports/html/html_data.h"
#include "reports/version.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;

// JSON for a script element, in which no end tag and no comment may begin.
std::string ForScript(const Json& json) {
  std::string escaped;
  for (char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') escaped += "\\u003c";
    else escaped += c;
  }
  return escaped;
}

std::string ForText(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// The page with each {{NAME}} replaced by its text. REQUIRES: `texts` has every name of the page.
std::string FillIn(std::string_view page,
                   const std::vector<std::pair<std::string_view, std::string_view>>& texts) {
  std::string result;
  while (true) {
    const size_t open = page.find("{{");
    result += page.substr(0, open);
    if (open == std::string_view::npos) return result;
    const size_t close = page.find("}}", open);
    WT_CHECK(close != std::string_view::npos);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    const auto text =
        std::find_if(texts.begin(), texts.end(), [&](const auto& pair) { return pair.first == name; });
    WT_CHECK(text != texts.end());
    result += text->second;
    page.remove_prefix(close + 2);
  }
}

std::string Page(Json data, const std::vector<Outcome>& outcomes, const std::vector<Scaling>& scalings,
                 const std::string& name) {
  WT_CHECK_EQ(outcomes.size(), scalings.size());
  data["version"] = kVersion;
  data["outcomes"] = Json::array();
  for (size_t i = 0; i < outcomes.size(); ++i) data["outcomes"].push_back(HtmlData(outcomes[i], scalings[i]));
  const std::string json = ForScript(data), heading = ForText(name);
  return FillIn(kReportPage, {{"TITLE", heading},
                              {"STYLE", kReportStyle},
                              {"DATA", json},
                              {"VEGA", kVega},
                              {"VEGA_LITE", kVegaLite},
                              {"VEGA_EMBED", kVegaEmbed},
                              {"SCRIPT", kReportScript}});
}

}  // namespace

std::string HtmlReport(const std::vector<Outcome>& outcomes, const std::vector<Scaling>& scalings) {
  std::string title;
  for (const Outcome& outcome : outcomes) title += (title.empty() ? "" : ", ") + outcome.plan.scenario.name;
  return Page(Json::object(), outcomes, scalings, title);
}

std::string SearchHtmlReport(const std::string& search, const std::vector<Outcome>& best,
                             const std::vector<Scaling>& scalings) {
  Json data = {{"search", Json::parse(search)}};
  const std::string name = data["search"]["scenario"].get<std::string>();
  return Page(std::move(data), best, scalings, name + ": search");
}

}  // namespace windtunnel
