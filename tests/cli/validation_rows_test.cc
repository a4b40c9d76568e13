#include "cli/validation_rows.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto rows = ParseValidationRows(text, "rows.jsonl");
  return rows ? "" : rows.error().message;
}

TEST(ValidationRows, AreOneObjectALine) {
  const auto rows = ParseValidationRows(
                        "{\"id\": \"a\", \"source\": \"x\", \"scenario\": {\"name\": \"s\"}, \"measured\": "
                        "{\"step_time_s\": 2}}\n\n"
                        "{\"id\": \"b\", \"scenario\": {}, \"measured\": {\"mfu\": 0.5, \"runs\": 3, "
                        "\"flops_convention\": \"megatron\"}, \"notes\": \"\"}\n",
                        "rows.jsonl")
                        .value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].id, "a");
  EXPECT_EQ(rows[0].measured.step_time_s, 2);
  EXPECT_EQ(rows[1].place, "rows.jsonl:3:1");
  EXPECT_EQ(rows[1].measured.mfu, 0.5);
  EXPECT_EQ(rows[1].measured.flops_convention, FlopsConvention::kMegatron);
}

TEST(ValidationRows, NameTheLineThatIsWrong) {
  EXPECT_EQ(ErrorOf(""), "rows.jsonl:1:1: has no rows, expected validation rows, one JSON object a line");
  EXPECT_EQ(ErrorOf("\n{\"id\": "), "rows.jsonl:2:8: is not JSON in UTF-8, expected a validation row");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", 5}"),
            "rows.jsonl:1:13: is not JSON in UTF-8, expected a validation row");
  EXPECT_EQ(ErrorOf("{\"id\": 1e400}"),
            "rows.jsonl:1:1: has a number out of range, expected a validation row");
  EXPECT_EQ(ErrorOf("[1]"), "rows.jsonl:1:1: is not a JSON object, expected a validation row");
  EXPECT_EQ(ErrorOf("{\"id\": 5, \"scenario\": {}, \"measured\": {}}"),
            "rows.jsonl:1:1: 'id' is 5, expected a text");
  EXPECT_EQ(ErrorOf("{\"id\": \"\", \"scenario\": {}, \"measured\": {}}"),
            "rows.jsonl:1:1: 'id' is \"\", expected a text");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", \"scenario\": {\"x\": " + std::string(300'000, '[') +
                    std::string(300'000, ']') + "}, \"measured\": {}}"),
            "rows.jsonl:1:1: nests deeper than 64, expected a validation row");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\"}"),
            "rows.jsonl:1:1: has no object 'scenario', expected id, source, scenario and measured");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"stp_time_s\": 1}}"),
            "rows.jsonl:1:1: unknown key 'measured.stp_time_s', did you mean 'measured.step_time_s'?");
  // Keys that are far from all known ones are notes for people.
  EXPECT_TRUE(ParseValidationRows(
      R"({"id": "a", "scenario": {}, "measured": {"step_time_s": 1, "tokens_per_s": 5, "loss": 2, "runs": 3}})",
      "rows.jsonl"));
  EXPECT_TRUE(ParseValidationRows(
      R"({"id": "a", "scenario": {}, "measured": {"step_time_s": 1, "loss": 2, "gpus": 8, "seed": 1, "unit": "s"}})",
      "rows.jsonl"));
  EXPECT_EQ(
      ErrorOf("{\"id\": \"a\", \"scenario\": {\"batch\": {\"micro\": 1, \"micro\": 2}}, \"measured\": {}}"),
      "rows.jsonl:1:1: duplicate key 'micro', expected it once");
  EXPECT_TRUE(ParseValidationRows(
      R"({"id": "a", "scenario": {"batch": {"micro": 1}, "run": {"seed": 1}}, "measured": {"seed": 1, "mfu": 1}})",
      "rows.jsonl"));
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"step_time_s\": 1e308}}"),
            "rows.jsonl:1:1: measured.step_time_s is 1e+308, expected 1e-9 to 1e15");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"peak_memory_bytes\": 18.4}}"),
            "rows.jsonl:1:1: measured.peak_memory_bytes is 18.4, expected bytes, at least 1048576: are these "
            "GiB or "
            "MiB?");
  const std::string row = "{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"step_time_s\": 1}}\n";
  EXPECT_EQ(ErrorOf(row + "\n" + row),
            "rows.jsonl:3:1: id 'a' is that of line 1, too, expected one row of it");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"mfu\": -1}}"),
            "rows.jsonl:1:1: measured.mfu is -1, expected a positive number");
  EXPECT_EQ(
      ErrorOf(
          "{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"mfu\": 1, \"flops_convention\": \"ours\"}}"),
      "rows.jsonl:1:1: measured.flops_convention is \"ours\", expected palm, megatron, "
      "megatron-causal or megatron-hardware");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\", \"scenario\": {}, \"measured\": {\"mfu\": 1, \"memory_rank\": -1}}"),
            "rows.jsonl:1:1: measured.memory_rank is -1, expected a rank, from 0 on");
}

// 2 layers of hidden 8, ffn 32, vocabulary 100, length 16, on 4 devices with 640 tokens a step.
Plan SmallPlan() {
  Plan plan;
  plan.world_size = 4;
  ModelSpec& model = plan.scenario.model;
  model.layers = model.heads = model.kv_heads = 2;
  model.hidden = 8;
  model.head_dim = model.hidden / model.heads;
  model.ffn = 32;
  model.vocab = 100;
  model.seq_len = 16;
  plan.model.tokens_per_step = 640;
  plan.model.flops_per_token = Flops(1e12);
  return plan;
}

// Megatron's closed form with ffn = 4 h: 72 L h^2 (1 + s / 6h + V / 12 h L) = 72 x 128 x (1 + 1/3 + 100/192)
// = 17088.
TEST(FlopsPerToken, AgreesWithMegatronsClosedForm) {
  EXPECT_NEAR(FlopsPerToken(SmallPlan(), FlopsConvention::kMegatron).count(), 17088, 1e-6);
  EXPECT_EQ(FlopsPerToken(SmallPlan(), FlopsConvention::kPalm).count(), 1e12);
}

// A module that predicts a token further on adds 6 x (768 + 2 h^2) for the weights of its layer and
// projection, 1536 for its attention, and 6 h V for the head.
TEST(FlopsPerToken, CountModulesForTokensFurtherOn) {
  Plan plan = SmallPlan();
  plan.scenario.model.mtp.emplace();
  EXPECT_NEAR(FlopsPerToken(plan, FlopsConvention::kMegatron).count(), 17088 + 6 * (768 + 128) + 1536 + 4800,
              1e-6);
}

// Megatron-LM's training.py, moe_layer_flops: of each layer's 8 x 4 weights of the MLP, here 64, routed
// experts have so many of their latents' width; and two projections are there.
TEST(FlopsPerToken, CountExpertsInTheirLatentsWidth) {
  Plan plan = SmallPlan();
  ModelSpec& model = plan.scenario.model;
  model.experts = ExpertsSpec{.count = 8, .top_k = 2};
  const double wide = FlopsPerToken(plan, FlopsConvention::kMegatron).count();
  model.experts->latent = model.hidden / 4;
  const double layers = static_cast<double>(model.layers), h = static_cast<double>(model.hidden);
  const double routed = 2 * 2 * h * static_cast<double>(model.ffn);
  EXPECT_NEAR(wide - FlopsPerToken(plan, FlopsConvention::kMegatron).count(),
              6 * layers * (routed * 3 / 4 - 2 * h * h / 4), 1e-6);
}

// Since 2025 Megatron counts half of causal attention: of 17,088, 6 L s h = 1,536 of 3,072 are left out.
TEST(FlopsPerToken, CountHalfOfCausalAttentionIfAsked) {
  Plan plan = SmallPlan();
  const double whole = FlopsPerToken(plan, FlopsConvention::kMegatron).count();
  const double causal = FlopsPerToken(plan, FlopsConvention::kMegatronCausal).count();
  plan.scenario.model.causal = false;
  EXPECT_EQ(FlopsPerToken(plan, FlopsConvention::kMegatronCausal).count(), whole);
  EXPECT_NEAR(whole - causal, 1536, 1e-6);
}

// With full recomputation: 96 L h^2 (1 + s / 6h + V / 16 h L) = 96 x 128 x (1 + 1/3 + 100/256) = 21184.
// Recomputing only the attention core adds its forward, 4 L s h = 1024.
TEST(FlopsPerToken, HardwareFlopsCountRecomputation) {
  Plan plan = SmallPlan();
  plan.scenario.recompute = Recompute::kFull;
  EXPECT_NEAR(FlopsPerToken(plan, FlopsConvention::kMegatronHardware).count(), 21184, 1e-6);
  EXPECT_NEAR(FlopsPerToken(plan, FlopsConvention::kMegatron).count(), 17088, 1e-6);
  plan.scenario.recompute = Recompute::kSelective;
  EXPECT_NEAR(FlopsPerToken(plan, FlopsConvention::kMegatronHardware).count(), 17088 + 1024, 1e-6);
}

// 160 tokens a device and step take 2 s: at 80 tokens/s, at 80 TFLOP/s with 1e12 FLOPs a token, and at an MFU
// of 0.25 over 320 TFLOP/s.
TEST(StepTimeOf, IsDerivedFromWhateverIsGiven) {
  auto seconds = [](PublishedMeasurement measured, FlopRate peak = Tflops(320)) {
    auto time = StepTimeOf(measured, SmallPlan(), peak);
    return time ? ToSeconds(*time) : -1;
  };
  EXPECT_NEAR(seconds({.step_time_s = 3, .tokens_per_s_per_device = 80}), 3, 1e-9);
  EXPECT_NEAR(seconds({.tokens_per_s_per_device = 80}), 2, 1e-9);
  EXPECT_NEAR(seconds({.tflops_per_device = 80}), 2, 1e-9);
  EXPECT_NEAR(seconds({.mfu = 0.25}), 2, 1e-9);
  EXPECT_EQ(seconds({.mfu = 0.25}, FlopRate()), -1);
  EXPECT_EQ(seconds({.peak_memory_bytes = 1}), -1);
}

}  // namespace
}  // namespace windtunnel
