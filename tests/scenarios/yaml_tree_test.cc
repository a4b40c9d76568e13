#include "scenarios/yaml_tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "scenarios/scalars.h"
#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

YamlNode Tree(const std::string& text) { return ParseYaml(text, "s").value(); }

TEST(YamlTree, KnowsWhereKeysAndValuesStand) {
  YamlNode root = Tree("a:\n  b: [1,\n      22]\n  c:\n");
  EXPECT_EQ(root.FindPath("a.b")->place, (Place{0, 2, 6}));
  EXPECT_EQ(root.FindPath("a.b")->items[1].place, (Place{0, 3, 7}));
  EXPECT_EQ(root.FindPath("a")->keys[0].place, (Place{0, 2, 3}));
  EXPECT_EQ(root.FindPath("a.c")->place, (Place{0, 4, 3}));  // a null has its key's place
  EXPECT_EQ(root.FindPath("a.b.c"), nullptr);
  EXPECT_EQ(root.FindPath("x"), nullptr);
}

TEST(YamlTree, KeepsScalarsAsWritten) {
  YamlNode root = Tree("a: 010\nb: \"no\"\nc: no\nd: ~\ne: |\n  two\n  lines\n");
  EXPECT_EQ(root.Find("a")->text, "010");
  EXPECT_TRUE(root.Find("b")->quoted);
  EXPECT_TRUE(root.Find("c")->is_plain());
  EXPECT_TRUE(root.Find("d")->is_null());
  EXPECT_EQ(root.Find("e")->text, "two\nlines\n");
}

TEST(YamlTree, ReadsJson) {
  YamlNode root = Tree(R"({"a":{"b":[1,2.5,true,null,"x\ny"]}})");
  const YamlNode& list = *root.FindPath("a.b");
  ASSERT_EQ(list.items.size(), 5u);
  EXPECT_EQ(ReadNumber(list.items[1]).value(), 2.5);
  EXPECT_TRUE(list.items[3].is_null());
  EXPECT_EQ(list.items[4].text, "x\ny");
}

YamlNode Plain(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  return node;
}

TEST(YamlTree, ReadsWhatJsonEscapesInTwo) {
  const auto name = [](const std::string& text) { return ParseYaml(text, "x")->Find("name")->text; };
  EXPECT_EQ(name("{\"name\": \"a\\ud83d\\ude00b\"}"),
            "a\xF0\x9F\x98\x80"
            "b");
  EXPECT_EQ(name("{\"name\": \"\\\\ud83d\\\\ude00\"}"), "\\ud83d\\ude00");
}

TEST(Scalars, NumbersAreDecimalAndExact) {
  EXPECT_EQ(ReadNumber(Plain("3e-4")).value(), 0.0003);
  EXPECT_EQ(ReadNumber(Plain("0.1")).value(), 0.1);
  EXPECT_EQ(ReadNumber(Plain("-.5")).value(), -0.5);
  EXPECT_EQ(ReadNumber(Plain("+7.")).value(), 7);
  EXPECT_EQ(ReadInteger(Plain("9223372036854775807")).value(), INT64_MAX);
  EXPECT_EQ(ReadInteger(Plain("-3")).value(), -3);
  EXPECT_EQ(ReadInteger(Plain("+3")).value(), 3);
  for (const char* text :
       {"", ".", "e5", "1e", "1e+", "1_000", "0x1p3", "inf", ".inf", "nan", ".nan", "1:30", "1 2", "--1"}) {
    EXPECT_FALSE(ReadNumber(Plain(text))) << text;
    EXPECT_FALSE(ReadInteger(Plain(text))) << text;
  }
}

RC_GTEST_PROP(Scalars, WholeNumbersAreReadBack, (int64_t value)) {
  RC_ASSERT(ReadInteger(Plain(std::to_string(value))).value() == value);
}

// Whatever the bytes, the loader answers with a scenario or with an error that has a place; it never crashes
// or throws.
RC_GTEST_PROP(Loader, SurvivesDamagedFiles, ()) {
  const std::string fragments[] = {"model: {preset: gpt2-124m}\n", "batch:\n  micro: 4\n",
                                   "run: {steps: 3, pin: true}\n", "parallel: {data: {size: 2}}\n",
                                   "search: {tensor: [1, 2]}\n"};
  std::string text;
  for (const std::string& fragment : fragments) text += fragment;
  const std::string alphabet = "{}[]:,&*!?|>-#\"' \n\t0a~%@`\\";
  int damages = *rc::gen::inRange(1, 8);
  for (int i = 0; i < damages; ++i) {
    size_t at = *rc::gen::inRange<size_t>(0, text.size());
    char c = alphabet[*rc::gen::inRange<size_t>(0, alphabet.size())];
    if (*rc::gen::arbitrary<bool>()) text[at] = c;
    else text.insert(at, 1, c);
  }
  Result<Scenario> scenario = Parse(text);
  if (!scenario) RC_ASSERT(scenario.error().message.starts_with("s.yaml:"));
}

}  // namespace
}  // namespace windtunnel
