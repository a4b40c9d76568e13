#include "reports/html/timeline_bars.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

Op Of(OpKind kind, std::string name) {
  Op op;
  op.kind = std::move(kind);
  op.name = std::move(name);
  return op;
}

// Products of 3 us and copies of 1 us in turns, on the compute stream.
struct Alternating {
  explicit Alternating(int pairs) {
    for (int i = 0; i < pairs; ++i) {
      program.ops.push_back(Of(Gemm{}, "product"));
      program.ops.push_back(Of(Copy{}, "copy"));
      const auto begin = Microseconds(4.0 * i);
      timeline.spans.push_back({2 * i, 0, begin, begin + Microseconds(3)});
      timeline.spans.push_back({2 * i + 1, 0, begin + Microseconds(3), begin + Microseconds(4)});
    }
    timeline.end = Microseconds(4.0 * pairs);
  }
  Program program;
  Timeline timeline;
};

TEST(TimelineBars, AreOperatorsWhereThereIsRoom) {
  const Alternating few(3);
  const auto bars = TimelineBars(few.timeline, few.program, 6);
  ASSERT_EQ(bars.size(), 6u);
  EXPECT_EQ(bars[0].name, "product");
  EXPECT_EQ(bars[0].end, Microseconds(3));
  EXPECT_EQ(bars[0].busy, Microseconds(3));
}

TEST(TimelineBars, JoinNeighboursOfAKindThatTouch) {
  Alternating few(1);
  few.program.ops[1].kind = Gemm{};
  const auto bars = TimelineBars(few.timeline, few.program, 6);
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0].name, "product and 1 more");
  EXPECT_EQ(bars[0].end, Microseconds(4));
}

// Where there is no room, the kind that takes most of the time is shown for all of it.
TEST(TimelineBars, AreOfWhatRunsMostWhereThereIsNoRoom) {
  const Alternating many(1000);
  const auto bars = TimelineBars(many.timeline, many.program, 100);
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0].group, &OperatorGroupOf(Gemm{}));
  EXPECT_EQ(bars[0].name, "product and 1999 more");
  EXPECT_EQ(bars[0].start, Duration());
  EXPECT_EQ(bars[0].end, many.timeline.end);
  EXPECT_EQ(bars[0].busy, many.timeline.end);
}

// A stream that is idle three quarters of the time is three quarters empty.
TEST(TimelineBars, SayHowMuchOfThemIsFilled) {
  Alternating many(1000);
  std::erase_if(many.timeline.spans, [](const Span& span) { return span.op % 2 == 0; });
  const auto bars = TimelineBars(many.timeline, many.program, 100);
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0].busy, Milliseconds(1));
  EXPECT_EQ(bars[0].end - bars[0].start, Milliseconds(4));
}

TEST(TimelineBars, LeaveAGapWhereNothingRuns) {
  Alternating many(1000);
  std::erase_if(many.timeline.spans, [](const Span& span) { return span.op >= 800 && span.op < 1200; });
  const auto bars = TimelineBars(many.timeline, many.program, 100);
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_NEAR(bars[0].end / Microseconds(1), 1600, 40);
  EXPECT_NEAR(bars[1].start / Microseconds(1), 2400, 40);
}

}  // namespace
}  // namespace windtunnel
