// Schedule files: what is read, and the place that an error names.
#include "plan/schedule_csv.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

std::string ErrorOf(const std::string& text, int ranks = 2, int64_t micro_batches = 2) {
  const auto schedule = ParseScheduleCsv("own.csv", text, ranks, micro_batches);
  return schedule ? "no error" : schedule.error().message;
}

// It would compile to a rank without a stage.
TEST(ScheduleCsv, EveryRankHasAnAction) {
  for (const char* empty : {",", "", " , ,"}) {
    const std::string text = "0F0,0F1,0B0,0B1\n" + std::string(empty) + "\n1F0,1F1,1B0,1B1\n";
    const auto schedule = ParseScheduleCsv("own.csv", text, 3, 2);
    ASSERT_FALSE(schedule);
    EXPECT_EQ(schedule.error().message,
              "own.csv:2:1: the row has no action; every rank of the pipeline needs a stage");
  }
}

TEST(ScheduleCsv, ReadsTorchsFilesWithIdleCells) {
  // torch writes idle cells and ends rows with carriage return and line feed.
  const auto schedule = ParseScheduleCsv("own.csv", "0F0,0F1,,,0B0,0B1\r\n,1F0, 1B0 ,1F1,1I1,1W1\r\n", 2, 2);
  ASSERT_TRUE(schedule) << schedule.error().message;
  EXPECT_EQ(PrintScheduleCsv(*schedule), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1,1W1\n");
  EXPECT_EQ(schedule->rank_of_stage, (std::vector<int>{0, 1}));
}

TEST(ScheduleCsv, ReadsWhatSpreadsheetsWrite) {
  const auto schedule = ParseScheduleCsv("own.csv",
                                         "\xef\xbb\xbf"
                                         "0F0,0B0\r\n1F0,1B0\r\n",
                                         2, 1);
  ASSERT_TRUE(schedule) << schedule.error().message;
  EXPECT_EQ(PrintScheduleCsv(*schedule), "0F0,0B0\n1F0,1B0\n");
}

TEST(ScheduleCsv, ReadsAnOverlappedPairAsItsActions) {
  const auto schedule = ParseScheduleCsv("own.csv", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n", 2, 2);
  ASSERT_TRUE(schedule) << schedule.error().message;
  EXPECT_EQ(PrintScheduleCsv(*schedule), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(ScheduleCsv, RoundTripsEveryGeneratedSchedule) {
  for (const std::string& name : ScheduleNames()) {
    for (int ranks = 2; ranks <= 6; ++ranks) {
      for (int64_t micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        auto schedule = MakeSchedule(name, ranks, 1, micro_batches);
        if (!schedule) schedule = MakeSchedule(name, ranks, 2, micro_batches);
        if (!schedule) continue;
        const auto read = ParseScheduleCsv(name, PrintScheduleCsv(*schedule), ranks, micro_batches);
        ASSERT_TRUE(read) << read.error().message;
        ASSERT_EQ(*read, *schedule);
      }
    }
  }
}

// As torch's "compute_comms" writes them, for a schedule of stages that are sharded.
TEST(ScheduleCsv, ReadsPastCommunication) {
  const auto with =
      ParseScheduleCsv("own.csv",
                       "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
                       "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n",
                       2, 2);
  ASSERT_TRUE(with) << with.error().message;
  const auto without = ParseScheduleCsv("own.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", 2, 2);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(with->ranks, without->ranks);
}

TEST(ScheduleCsv, PointsAtTheOffendingCell) {
  EXPECT_EQ(
      ErrorOf("0F0,0X1\n1F0\n"),
      "own.csv:1:5: '0X1' is not an action; expected stage, F, B, I or W, and micro-batch, such as 2F0");
  for (const char* cell : {"F0", "0F", "0F0x", "-1F0", "0F-1", "0SEND_F", "0SEND_G0", "99999999999F0",
                           "(0F0;)OVERLAP_F_B", "(0F0;0B0)"}) {
    EXPECT_NE(ErrorOf(std::string("0F0\n,, ") + cell + "\n").find("own.csv:2:4: '"), std::string::npos)
        << cell;
  }
  EXPECT_EQ(ErrorOf("0F0,0B0\n1F0,7B0\n"), "own.csv:2:5: stage 7 in a file of 4 actions");
  EXPECT_EQ(ErrorOf("0F0,0F2\n1F0\n"),
            "own.csv:1:5: 0F2 (stage 0, forward of micro-batch 2): the micro-batches are 0 to 1");
  EXPECT_EQ(
      ErrorOf("0F0,0B0\n1F0,0F1\n"),
      "own.csv:2:5: 0F1 (stage 0, forward of micro-batch 1) stands on rank 1, but rank 0 holds stage 0");
}

TEST(ScheduleCsv, QuotesOnlyTheBeginningOfWhatIsNoText) {
  const auto message = [](const std::string& cell) { return ErrorOf(cell + "\n1F0\n"); };
  constexpr char kExpected[] =
      " is not an action; expected stage, F, B, I or W, and micro-batch, such as 2F0";
  EXPECT_EQ(message("\x01"
                    "a\xff"
                    "b"),
            std::string("own.csv:1:1: '\\x01a...'") + kExpected);
  EXPECT_EQ(message(std::string(50, 'x')), "own.csv:1:1: '" + std::string(40, 'x') + "...'" + kExpected);
}

TEST(ScheduleCsv, WantsARowForEachRankAndEveryStage) {
  EXPECT_EQ(ErrorOf("0F0\n"),
            "own.csv:2:1: 1 rows, but a row for each of the pipeline's 2 ranks is expected");
  EXPECT_EQ(ErrorOf("0F0,0B0\n2F0,2B0\n"), "own.csv:1:1: no row has an action of stage 1");
  EXPECT_EQ(ErrorOf(",\n,\n"),
            "own.csv:1:1: the row has no action; every rank of the pipeline needs a stage");
  EXPECT_EQ(ErrorOf(""), "own.csv:1:1: 0 rows, but a row for each of the pipeline's 2 ranks is expected");
}

TEST(ScheduleCsv, RefusesASkippedMicroBatch) {
  EXPECT_EQ(ErrorOf("0F0,0F1,0B0,0B1\n1F0,1B0\n"),
            "own.csv:2:1: 1F1 (stage 1, forward of micro-batch 1) is missing on rank 1");
}

// Rank 0 needs the gradient of micro-batch 0 first, which rank 1 computes only after it has the input of
// micro-batch 1.
TEST(ScheduleCsv, RefusesADeadlock) {
  EXPECT_EQ(ErrorOf("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
            "own.csv:1:5: deadlock: rank 0 cannot run 0B0 (stage 0, backward of micro-batch 0) before 1B0, "
            "which rank 1 has not "
            "come to; rank 1 cannot run 1F1 (stage 1, forward of micro-batch 1) before 0F1, which rank 0 has "
            "not come to");
}

}  // namespace
}  // namespace windtunnel
