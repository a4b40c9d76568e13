#include "reports/progress.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

std::string Written(bool enabled) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(enabled, file);
    progress.Show("measuring", 0.5);
    progress.Log("step 1");
  }
  std::string text(1024, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Progress, LeavesOnlyLogLinesWhenDisabled) { EXPECT_EQ(Written(false), "step 1\n"); }

TEST(Progress, ClearsItsLineBeforeALogLine) {
  EXPECT_EQ(Written(true), "\r\033[K[##########..........]  50 %  measuring\r\033[Kstep 1\n");
}

TEST(ProgressLine, IsCutToTheWidth) { EXPECT_EQ(ProgressLine(std::string(200, 'x'), 2.0, 40).size(), 40u); }

TEST(ProgressLine, OfNothingOfNothingIsAtItsBeginning) {
  EXPECT_EQ(ProgressLine("x", 0.0 / 0.0, 40), ProgressLine("x", 0, 40));
}

}  // namespace
}  // namespace windtunnel
