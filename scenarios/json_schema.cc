#include "scenarios/json_schema.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "scenarios/describe.h"
#include "scenarios/words.h"

namespace windtunnel {
namespace {

using Json = nlohmann::ordered_json;

// A bound as a whole number if it is one, so that the schema has "1" and not "1.0".
Json Limit(double limit) {
  if (limit == std::floor(limit) && std::abs(limit) < 1e15) return static_cast<int64_t>(limit);
  return limit;
}

Json NumberSchema(const char* type, const Bounds& bounds) {
  Json schema = {{"type", type}};
  if (std::isfinite(bounds.min))
    schema[bounds.above_min ? "exclusiveMinimum" : "minimum"] = Limit(bounds.min);
  if (std::isfinite(bounds.max))
    schema[bounds.below_max ? "exclusiveMaximum" : "maximum"] = Limit(bounds.max);
  return schema;
}

Json TextSchema(const TextRule& rule) {
  Json any = {{"type", "string"}, {"minLength", 1}};
  switch (rule.other) {
    case TextRule::Other::kNothing:
      return {{"enum", rule.words}};
    case TextRule::Other::kCsvFile:
      return {{"anyOf", {{{"enum", rule.words}}, {{"type", "string"}, {"pattern", ".\\.csv$"}}}}};
    case TextRule::Other::kAnything:
      break;
  }
  if (!rule.words.empty()) any["examples"] = rule.words;
  return any;
}

template <typename E>
Json WordSchema(const std::vector<E>& allowed) {
  Json words = Json::array();
  for (E value : allowed) words.push_back(WordOf(value));
  return {{"enum", words}};
}

template <typename E>
std::vector<E> AllOf() {
  std::vector<E> values;
  for (const auto& entry : Words<E>::table) values.push_back(entry.value);
  return values;
}

Json ListOf(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }
Json OrNull(Json schema) { return {{"anyOf", {std::move(schema), {{"type", "null"}}}}}; }

// The visitor of describe.h that writes one object's schema.
class SchemaWriter {
 public:
  template <typename T>
  static Json Of(T& spec) {
    SchemaWriter writer;
    Describe(writer, spec);
    Json schema = {{"type", "object"}, {"additionalProperties", false}};
    if (!writer.required_.empty()) schema["required"] = writer.required_;
    schema["properties"] = writer.properties_;
    return schema;
  }

  template <typename I>
  void Integer(std::string_view key, I&, const Bounds& bounds, std::string_view doc) {
    Add(key, doc, NumberSchema("integer", bounds));
  }
  void Number(std::string_view key, double&, const Bounds& bounds, std::string_view doc) {
    Add(key, doc, NumberSchema("number", bounds));
  }
  void Number(std::string_view key, std::optional<double>&, const Bounds& bounds, std::string_view doc) {
    Add(key, doc, OrNull(NumberSchema("number", bounds)));
  }
  void Flag(std::string_view key, bool&, std::string_view doc) { Add(key, doc, {{"type", "boolean"}}); }
  void FlagOrInteger(std::string_view key, bool&, int64_t&, const Bounds& bounds, std::string_view doc) {
    Add(key, doc, {{"anyOf", {{{"type", "boolean"}}, NumberSchema("integer", bounds)}}});
  }
  void Text(std::string_view key, std::string&, const TextRule& rule, std::string_view doc) {
    Add(key, doc, TextSchema(rule));
  }
  void Path(std::string_view key, std::string&, const TextRule& rule, std::string_view doc) {
    Add(key, doc, TextSchema(rule));
  }
  void Paths(std::string_view key, std::vector<std::string>&, const TextRule& rule, std::string_view doc) {
    Add(key, doc, ListOf(TextSchema(rule)));
  }
  void Integers(std::string_view key, std::vector<int64_t>&, const Bounds& bounds, std::string_view doc) {
    Add(key, doc, ListOf(NumberSchema("integer", bounds)));
  }
  void Flags(std::string_view key, std::vector<bool>&, std::string_view doc) {
    Add(key, doc, ListOf({{"type", "boolean"}}));
  }
  void Wrap(std::string_view key, WrapPolicy&, std::string_view doc) {
    Json modules = ListOf(TextSchema({}));
    modules["minItems"] = 1;
    Json size = {{"type", "string"}, {"pattern", "^size:[1-9][0-9]*$"}};
    Add(key, doc, {{"anyOf", {{{"enum", {"block", "root"}}}, size, modules}}});
  }
  void InputOnly(std::string_view key, std::string_view doc) { Add(key, doc, TextSchema({})); }
  void Require(std::string_view key) { required_.push_back(key); }
  void RequireWithoutPreset(std::string_view) {}
  bool Covers(bool) const { return true; }

  template <typename E>
  void Word(std::string_view key, E&, std::initializer_list<E> allowed, std::string_view doc) {
    Add(key, doc, WordSchema(std::vector<E>(allowed)));
  }
  template <typename E>
  void Word(std::string_view key, E&, std::string_view doc) {
    Add(key, doc, WordSchema(AllOf<E>()));
  }
  template <typename E>
  void WordOrPath(std::string_view key, E&, std::string&, std::string_view suffix, std::string_view doc) {
    std::string pattern;
    for (char c : suffix) pattern += c == '.' ? "\\." : std::string(1, c);
    const Json path = {{"type", "string"}, {"pattern", pattern + "$"}};
    Add(key, doc, {{"anyOf", {WordSchema(AllOf<E>()), path}}});
  }
  template <typename E>
  void WordOrNumber(std::string_view key, E&, double&, const Bounds& bounds, std::string_view doc) {
    Add(key, doc, {{"anyOf", {WordSchema(AllOf<E>()), NumberSchema("number", bounds)}}});
  }
  template <typename E>
  void Words(std::string_view key, std::vector<E>&, std::string_view doc) {
    Add(key, doc, ListOf(WordSchema(AllOf<E>())));
  }

  template <typename T>
  void Block(std::string_view key, T& spec, std::string_view doc) {
    Add(key, doc, Of(spec));
  }
  template <typename T>
  void OptionalBlock(std::string_view key, std::optional<T>&, std::string_view doc) {
    T spec;
    Add(key, doc, OrNull(Of(spec)));
  }
  template <typename T>
  void Blocks(std::string_view key, std::vector<T>&, std::string_view doc) {
    T spec;
    Add(key, doc, ListOf(Of(spec)));
  }
  template <typename T>
  void TextOrBlock(std::string_view key, std::string_view short_key, std::string&, const TextRule& rule,
                   T& spec, std::string_view doc) {
    // Here the key's schema is that of the short form.
    Json block = Of(spec);
    block["properties"][std::string(short_key)].update(TextSchema(rule));
    Add(key, doc, {{"anyOf", {TextSchema(rule), block, {{"type", "null"}}}}});
  }

 private:
  void Add(std::string_view key, std::string_view doc, const Json& schema) {
    Json property = {{"description", doc}};
    property.update(schema);
    properties_[std::string(key)] = property;
  }

  Json properties_ = Json::object();
  Json required_ = Json::array();
};

}  // namespace

std::string ScenarioJsonSchema() {
  Scenario scenario;
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Windtunnel scenario"}};
  schema.update(SchemaWriter::Of(scenario));
  return schema.dump(2) + "\n";
}

}  // namespace windtunnel
