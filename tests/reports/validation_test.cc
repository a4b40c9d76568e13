#include "reports/validation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/validation_report.h"

namespace windtunnel {
namespace {

ValidatedValue Step(const std::string& id, double predicted, double measured,
                    const std::string& source = "a") {
  return {.id = id,
          .source = source,
          .quantity = kStepTime,
          .predicted = predicted,
          .measured = measured,
          .counts = true,
          .tolerance = 0.2,
          .comparable_to = "same"};
}

// Errors -10 %, +20 %, -30 % and +40 %: mean 5 %, MAPE 25 %, median (20 + 30) / 2, p90 at 2.7 of three
// intervals: 37 %.
Validation FourRows() {
  Validation validation;
  validation.sources = {"a"};
  validation.values = {Step("1", 0.9, 1), Step("2", 2.4, 2), Step("3", 2.1, 3), Step("4", 5.6, 4)};
  return validation;
}

TEST(Validation, StatisticsAreOfTheErrorsMagnitudes) {
  const ErrorStatistics s = StatisticsOf(FourRows(), "a");
  EXPECT_EQ(s.rows, 4);
  EXPECT_NEAR(s.mape, 0.25, 1e-12);
  EXPECT_NEAR(s.mean, 0.05, 1e-12);
  EXPECT_NEAR(s.median, 0.25, 1e-12);
  EXPECT_NEAR(s.p90, 0.37, 1e-12);
  EXPECT_NEAR(s.worst, 0.40, 1e-12);
  EXPECT_EQ(s.within_tolerance, 2);
}

// Of the six pairs one is predicted the wrong way round: 2 takes 2.4 and 3 takes 2.1, measured 2 and 3.
TEST(Validation, PairOrderIsTheShareOfPairsPredictedInTheMeasuredOrder) {
  EXPECT_NEAR(*StatisticsOf(FourRows(), "a").pair_order, 5.0 / 6, 1e-12);
}

TEST(Validation, RowsThatAreMeasuredAlikeOrAreNotComparableHaveNoOrder) {
  Validation validation;
  validation.sources = {"a"};
  validation.values = {Step("1", 1, 1), Step("2", 2, 1.02)};
  EXPECT_FALSE(StatisticsOf(validation, "a").pair_order);
  validation.values[1].measured = 1.04;
  EXPECT_EQ(StatisticsOf(validation, "a").pair_order, 1);
  validation.values[1].comparable_to = "another model";
  EXPECT_FALSE(StatisticsOf(validation, "a").pair_order);
}

// Sources count alike, however many pairs they have.
TEST(Validation, PairOrderOverAllIsTheMeanOfTheSources) {
  Validation validation = FourRows();
  validation.sources = {"a", "b"};
  validation.values.push_back(Step("5", 2, 1, "b"));
  validation.values.push_back(Step("6", 1, 2, "b"));
  EXPECT_EQ(StatisticsOf(validation, "b").pair_order, 0);
  EXPECT_NEAR(*StatisticsOf(validation, "").pair_order, 5.0 / 12, 1e-12);
  EXPECT_EQ(StatisticsOf(validation, "").rows, 6);
}

// The memory of row 1, off by half, is shown, but the row counts by its step time.
Validation WithMemoryAndARefusal() {
  Validation validation = FourRows();
  validation.values.push_back({.id = "1",
                               .source = "a",
                               .quantity = kPeakMemory,
                               .predicted = 1 << 30,
                               .measured = 2.0 * (1 << 30),
                               .counts = false});
  validation.refused = {{"5", "a", "tensor parallelism is not supported yet"}};
  return validation;
}

TEST(Validation, ARowCountsOnceAndARefusedOneIsCountedApart) {
  const ErrorStatistics s = StatisticsOf(WithMemoryAndARefusal(), "a");
  EXPECT_EQ(s.rows, 4);
  EXPECT_EQ(s.refused, 1);
  EXPECT_NEAR(s.mape, 0.25, 1e-12);
}

TEST(ValidationTable, ShowsEveryRowWithItsErrorOrItsReason) {
  const std::string table = ValidationTable(WithMemoryAndARefusal(), Ink(false));
  EXPECT_NE(table.find("step time               900 ms      1.00 s     -10.0 %"), std::string::npos) << table;
  EXPECT_NE(table.find("(peak memory)         1.00 GiB    2.00 GiB     -50.0 %"), std::string::npos) << table;
  EXPECT_NE(table.find("refused: tensor parallelism is not supported yet"), std::string::npos) << table;
  EXPECT_NE(table.find("25.0 %    +5.0 %    25.0 %    37.0 %    40.0 %     2 of 4      83.3 %"),
            std::string::npos)
      << table;
}

TEST(ValidationJson, HasEveryKeyOfTheContract) {
  const auto json = nlohmann::json::parse(ValidationJson(WithMemoryAndARefusal()));
  EXPECT_EQ(json["schema"], "windtunnel/validation/1");
  EXPECT_EQ(json["rows"].size(), 5u);
  for (const char* key : {"id", "source", "quantity", "predicted", "measured", "error"})
    EXPECT_TRUE(json["rows"][0].contains(key)) << key;
  for (const char* key : {"rows", "mape", "median", "p90", "worst", "pair_order"}) {
    EXPECT_TRUE(json["overall"].contains(key)) << key;
    EXPECT_TRUE(json["by_source"]["a"].contains(key)) << key;
  }
  EXPECT_NEAR(json["rows"][0]["error"].get<double>(), -0.1, 1e-12);
  EXPECT_EQ(json["refused"][0]["reason"], "tensor parallelism is not supported yet");
}

TEST(ValidationJson, OfNoRowsHasNoNumbers) {
  Validation validation;
  validation.sources = {"a"};
  const auto json = nlohmann::json::parse(ValidationJson(validation));
  EXPECT_EQ(json["overall"]["rows"], 0);
  EXPECT_TRUE(json["overall"]["mape"].is_null());
}

}  // namespace
}  // namespace windtunnel
