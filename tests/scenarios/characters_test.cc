#include "scenarios/characters.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(Utf8Prefix, EndsAtTheFirstByteThatIsNoUtf8) {
  for (const std::string text : {"", "abc", "µ × → 𝛼", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(Utf8Prefix(text), text.size()) << text;
  // A lone tail, Latin-1, a longer form than needed, a surrogate, above U+10FFFF, cut short.
  for (const char* wrong : {"\x80", "\xE9t", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                            "\xE2\x86", "\xF0\x9D\x9B", "\xFF"})
    EXPECT_EQ(Utf8Prefix(std::string("ab") + wrong), 2u) << wrong;
}

TEST(ControlCharacters, AreThoseOfAsciiAndTheOnesAfterIt) {
  EXPECT_FALSE(HasControlCharacters("two\n\tlines, µ × \xC2\xA0"));
  for (const std::string text : {"\x1b[31m", "a\r", "\x7f", "\xC2\x9B"})
    EXPECT_TRUE(HasControlCharacters(text)) << Printable(text);
  EXPECT_EQ(Printable("a\n\x1b[31m µ \xC2\x9B"), "a\\n\\x1b[31m µ \\x9b");
}

TEST(ShellWord, IsQuotedWhereAShellWouldInterpretIt) {
  EXPECT_EQ(ShellWord("dir/s.yaml"), "dir/s.yaml");
  EXPECT_EQ(ShellWord("batch.micro=8"), "batch.micro=8");
  EXPECT_EQ(ShellWord("parallel.pipeline.balance=[1, 2]"), "'parallel.pipeline.balance=[1, 2]'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace
}  // namespace windtunnel
