#include "cost_models/device_spec.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost_models/profile.h"
#include "scenarios/json_schema.h"
#include "tests/cost_models/without_place.h"

namespace windtunnel {
namespace {

// Editors complete the names of devices from the schema (scenarios/known_names.h).
TEST(EmbeddedProfiles, AreThoseThatTheSchemaNames) {
  const std::string schema = ScenarioJsonSchema();
  for (const std::string& name : EmbeddedProfileNames())
    EXPECT_NE(schema.find('"' + name + '"'), std::string::npos) << name;
}

TEST(DeviceSpec, EveryEmbeddedProfileIsWellFormedAndNamesASourceForEveryFigure) {
  const std::vector<std::string> names = EmbeddedProfileNames();
  EXPECT_EQ(names.size(), 27u);
  for (const std::string& name : names) {
    const auto device = ParseDeviceSpec(*EmbeddedProfile(name), name);
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_EQ(device->name, name);
    EXPECT_GT(device->PeakFor(DType::kFloat16), device->PeakFor(DType::kFloat32));
  }
}

TEST(DeviceSpec, HasNoPeakForArithmeticThatItLacks) {
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("v100-sxm2-32g"), "x")->PeakFor(DType::kBFloat16), FlopRate());
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "x")->PeakFor(DType::kFloat8), FlopRate());
  EXPECT_GT(ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "x")->PeakFor(DType::kFloat8), FlopRate());
}

std::string Edited(const std::string& from, const std::string& to) {
  std::string json = *EmbeddedProfile("a100-sxm-80g");
  json.replace(json.find(from), from.size(), to);
  return json;
}

std::string ErrorOf(const std::string& json) {
  const auto device = ParseDeviceSpec(json, "x.json");
  return device ? "" : WithoutPlace(device.error().message);
}

TEST(DeviceSpec, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(ErrorOf(Edited("\"multiprocessors\": 108", "\"multiprocessors\": 0")),
            "x.json: $.multiprocessors is number 0, expected a whole number of at least 1");
  EXPECT_EQ(ErrorOf(Edited("\"hbm_efficiency\": 0.88", "\"hbm_efficiency\": 88")),
            "x.json: $.hbm_efficiency is number 88, expected a number in [0.001, 1]");
  EXPECT_EQ(ErrorOf(Edited("\"kernel_launch_us\": 3.0,", "")),
            "x.json: $.kernel_launch_us is missing, expected a number in [0, 1000000]");
  EXPECT_EQ(ErrorOf(Edited("\"fp8_share\": 1", "\"fp8_share\": 1.2")),
            "x.json: $.gemm.fp8_share is 1.2, at which products in fp8 beat their peak: expected at most "
            "1.196, one over the "
            "ceiling");
  EXPECT_EQ(ErrorOf(Edited("\"fp8_share\": 1", "\"fp8_share\": 1, \"fp8_precise_share\": 1.1")),
            "x.json: $.gemm.fp8_precise_share is number 1.1, expected a number in [0.001, 1]");
  EXPECT_EQ(ErrorOf(Edited("\"speed_spread\": 0.015", "\"speed_spread\": -1")),
            "x.json: $.speed_spread is number -1, expected a number in [0, 1]");
}

// What would be clamped, dropped or divided by zero.
TEST(DeviceSpec, RefusesWhatCannotBeMeant) {
  EXPECT_EQ(ErrorOf(Edited("\"channels_intra\": 24", "\"channels_intra\": 100000")),
            "x.json: $.collectives.channels_intra is number 100000, expected a whole number in [1, 1024]");
  EXPECT_EQ(ErrorOf(Edited("\"peer_channels\": 32", "\"peer_channels\": 1.5")),
            "x.json: $.outside.peer_channels is number 1.5, expected a whole number in [0, 1024]");
  EXPECT_EQ(ErrorOf(Edited("\"op\": \"all_reduce\"", "\"op\": \"allreduce\"")),
            "x.json: $.measured_collectives[0].op is \"allreduce\", expected a collective such as all_reduce");
  EXPECT_EQ(ErrorOf(Edited("\"nodes\": 1", "\"nodes\": 2")),
            "x.json: $.measured_collectives[0].node_gbytes_per_s is missing, expected a number in [0.001, "
            "1000000000]");
  const std::string rate = R"("flash": [)";
  EXPECT_EQ(ErrorOf(Edited(rate, rate + R"({"head_dim": 3, "seq": 9, "tflops": 1}, )" +
                                     R"({"head_dim": 3, "seq": 9, "tflops": 2}, )")),
            "x.json: $.attention.flash has two rates for head_dim 3 and seq 9, expected one");
}

TEST(DeviceSpec, NothingDrawsMoreThanTheLimit) {
  std::string json = *EmbeddedProfile("h100-sxm-80g");
  const DeviceSpec device = ParseDeviceSpec(json, "x").value();
  EXPECT_EQ(device.power.limit_watts, 700);
  EXPECT_EQ(device.gemm.tiles.size(), 3u);
  const std::string attention = "\"attention_watts\": 660";
  json.replace(json.find(attention), attention.size(), "\"attention_watts\": 800");
  EXPECT_EQ(ErrorOf(json), "x.json: $.power.attention_watts is number 800, expected a number in [1, 700]");
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "x")->power.limit_watts, 0) << "not known";
}

TEST(DeviceSpec, GraceTakesLongerThanOtherHosts) {
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "x")->host_slowdown, 1);
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("gb200-nvl72-186g"), "x")->host_slowdown, 1.4);
  EXPECT_EQ(ErrorOf(Edited("\"speed_spread\": 0.015", "\"host_slowdown\": 0")),
            "x.json: $.host_slowdown is number 0, expected a number in [0.1, 10]");
}

TEST(DeviceSpec, OnlySomeHaveRatesOfTheirOwnForRowsOfTokens) {
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "x")->token_rows.sum_ps_per_element, 0);
  const TokenRowsSpec rows = ParseDeviceSpec(*EmbeddedProfile("gb300-nvl72-279g"), "x")->token_rows;
  EXPECT_EQ(rows.sum_ps_per_element, 4.4);
  EXPECT_NEAR(rows.permute.bytes_per_second(), 2.2e12, 1);
}

TEST(DeviceSpec, DevicesAreAlikeWhereTheirSpreadIsNotGiven) {
  EXPECT_EQ(ParseDeviceSpec(Edited("\"speed_spread\": 0.015,", ""), "x")->speed_spread, 0);
  EXPECT_EQ(ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "x")->speed_spread, 0.015);
}

// A B200 has rates for `flash` only. PyTorch versions as old as FlashAttention 1 do not run on it.
TEST(DeviceSpec, AttentionIsAsTheFirstKindWhereAnotherIsNotGiven) {
  const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile("b200-sxm-180g"), "x").value();
  ASSERT_EQ(device.flash_1.size(), device.flash.size());
  ASSERT_EQ(device.flash_cudnn.size(), device.flash.size());
  EXPECT_EQ(device.flash_1.back().backward, device.flash.back().backward);
  EXPECT_EQ(device.flash_cudnn.front().forward, device.flash.front().forward);
}

TEST(DeviceSpec, AFigureWithoutASourceIsAnError) {
  EXPECT_EQ(ErrorOf(Edited("\"hbm_efficiency\": \"1,800", "\"hbm_share\": \"1,800")),
            "x.json: $.sources.hbm_efficiency is missing: every figure names its source");
}

// An H20 as a file of one's own might have it.
std::string OverH100(const std::string& changes, const std::string& sources) {
  return R"({"schema": "windtunnel/device/1", "base": "h100-sxm-80g", "name": "h20", )" +
         (R"("description": "NVIDIA H20", )" + changes + R"("sources": {)" + sources + "}}");
}

double TflopsOf(const AttentionRate& rate) { return rate.forward.flops_per_second() * 1e-12; }

TEST(DeviceSpec, ADeviceCanBeChangesOfAnother) {
  const DeviceSpec h100 = ParseDeviceSpec(*EmbeddedProfile("h100-sxm-80g"), "h100").value();
  const DeviceSpec h20 =
      ParseDeviceSpec(OverH100(R"("peak_tflops": {"bf16": 148, "fp8": 296}, "multiprocessors": 78,
                                 "hbm_gbytes_per_s": 4000, "gemm": {"ceiling": 0.8}, )",
                               R"("peak_tflops": "x", "multiprocessors": "x", "hbm_gbytes_per_s": "x",
                                  "gemm.ceiling": "x")"),
                      "x.json")
          .value();
  EXPECT_EQ(h20.name, "h20");
  EXPECT_EQ(h20.PeakFor(DType::kBFloat16), Tflops(148));
  EXPECT_EQ(h20.PeakFor(DType::kFloat32), h100.PeakFor(DType::kFloat32)) << "not changed";
  EXPECT_EQ(h20.gemm.ceiling, 0.8);
  EXPECT_EQ(h20.gemm.tiles.size(), h100.gemm.tiles.size());
  EXPECT_NEAR(TflopsOf(h20.flash[3]) / TflopsOf(h100.flash[3]), 148 / 989.4, 1e-9) << "its share of the peak";
  EXPECT_NEAR(TflopsOf(h20.eager[3]) / TflopsOf(h100.eager[3]), 4000.0 / 3350, 1e-9) << "its share of memory";
  EXPECT_EQ(h20.sources.at("gemm.ceiling"), "x");
  EXPECT_EQ(h20.sources.at("gemm"), h100.sources.at("gemm"));
  const DeviceSpec again = ParseDeviceSpec(h20.json, "whole").value();
  EXPECT_EQ(again.flash[3].forward, h20.flash[3].forward) << "what results store is whole";
}

TEST(DeviceSpec, ChangesOfAnotherKindAreNamed) {
  EXPECT_EQ(ErrorOf(OverH100(R"("intra_node": {"gbytes_per_s": 100}, )", R"("intra_node": "x")")),
            "x.json: $.intra_node is object {\"gbytes_per_s\":100}, expected a string");
  EXPECT_THAT(ErrorOf(OverH100(R"("intra_node": "nvlink9", )", R"("intra_node": "x")")),
              testing::StartsWith("x.json: $.intra_node is \"nvlink9\", expected one of nvlink2, "));
}

// Nobody knows how much slower a device is under a lower limit.
TEST(DeviceSpec, ALowerLimitNeedsWhatProductsReachUnderIt) {
  EXPECT_EQ(ErrorOf(OverH100(R"("power": {"limit_watts": 350}, )", R"("power.limit_watts": "x")")),
            "x.json: $.power.limit_watts is 350, less than the 700 of h100-sxm-80g: expected gemm.ceiling, "
            "which is measured under that limit, and power.attention_watts and power.memory_watts of at most "
            "the limit");
  EXPECT_EQ(ErrorOf(OverH100(R"("power": {"limit_watts": 350, "attention_watts": 350, "memory_watts": 350},
                                "gemm": {"ceiling": 0.5}, )",
                             R"("power": "x", "gemm.ceiling": "x")")),
            "");
}

TEST(DeviceSpec, AMachinesOwnCeilingReplacesThatOfTheSlowest) {
  const DeviceSpec b200 = ParseDeviceSpec(*EmbeddedProfile("b200-sxm-180g"), "b200").value();
  EXPECT_LT(b200.gemm.slowest_ceiling, b200.gemm.ceiling);
  const auto over_b200 = [](const std::string& gemm) {
    return ParseDeviceSpec(R"({"schema": "windtunnel/device/1", "base": "b200-sxm-180g", "name": "mine", )"
                           R"("description": "mine", "gemm": {)" +
                               gemm + R"(}, "sources": {"gemm": "x"}})",
                           "x.json")
        ->gemm;
  };
  EXPECT_EQ(over_b200(R"("ceiling": 0.45)").slowest_ceiling, 0);
  EXPECT_EQ(over_b200(R"("ceiling": 0.6, "slowest_ceiling": 0.5)").slowest_ceiling, 0.5);
  EXPECT_EQ(over_b200(R"("fp8_share": 0.9)").slowest_ceiling, b200.gemm.slowest_ceiling);
}

TEST(DeviceSpec, CollectivesThatWereMeasuredAreNotThoseOfOtherLinks) {
  const auto rows = [](const std::string& changes, const std::string& sources) {
    const std::string json = R"({"schema": "windtunnel/device/1", "base": "a100-sxm-80g", "name": "mine", )" +
                             (R"("description": "mine", )" + changes + R"("sources": {)" + sources + "}}");
    return ParseDeviceSpec(json, "x.json")->measured_collectives.size();
  };
  EXPECT_GT(rows(R"("multiprocessors": 100, )", R"("multiprocessors": "x")"), 0u);
  EXPECT_EQ(rows(R"("intra_node": "pcie4", )", R"("intra_node": "x")"), 0u);
}

TEST(DeviceSpec, ChangesNeedABaseANameAndSourcesOfTheirOwn) {
  EXPECT_EQ(ErrorOf(OverH100(R"("multiprocessors": 78, )", "")),
            "x.json: $.sources.multiprocessors is missing: every figure names its source");
  EXPECT_EQ(ErrorOf(OverH100(R"("gemm": {"ceiling": 2}, )", R"("gemm": "x")")),
            "x.json: $.gemm.ceiling is number 2, expected a number in [0.001, 1]");
  EXPECT_EQ(
      ErrorOf(OverH100(R"("peak_tflops": 148, "attention": 3, )", R"("peak_tflops": "x", "attention": "x")")),
      "x.json: $.peak_tflops is number 148, expected an object");
  EXPECT_EQ(ErrorOf(OverH100(R"("sms": 78, )", R"("sms": "x")")),
            "x.json: $.sms is not a field of this schema");
  EXPECT_EQ(
      ErrorOf(R"({"schema": "windtunnel/device/1", "base": "h20", "name": "mine", "description": "",)"
              R"("sources": {}})"),
      fmt::format("x.json: $.base is \"h20\", expected one of {}", fmt::join(EmbeddedProfileNames(), ", ")));
  EXPECT_EQ(ErrorOf(R"({"schema": "windtunnel/device/1", "base": "h100-sxm-80g", "sources": {}})"),
            "x.json: $.name is missing, expected a string");
  EXPECT_EQ(ErrorOf(R"({"schema": "windtunnel/device/1", "base": "h100-sxm-80g", "name": "h200-sxm-141g", )"
                    R"("description": "", "sources": {}})"),
            "x.json: $.name is \"h200-sxm-141g\", expected a name that is not a known device's");
}

// An H800 is an H100 with 8 of its 18 links, and an A800 an A100 with 8 of its 12.
TEST(DeviceSpec, AKnownDeviceIsChangesOfAnother) {
  for (const auto& [name, of, links] : {std::tuple("h800-sxm-80g", "h100-sxm-80g", "nvlink4x8"),
                                        std::tuple("a800-sxm-80g", "a100-sxm-80g", "nvlink3x8")}) {
    const DeviceSpec device = ParseDeviceSpec(*EmbeddedProfile(name), name).value();
    const DeviceSpec base = ParseDeviceSpec(*EmbeddedProfile(of), of).value();
    EXPECT_EQ(device.intra_node, links);
    EXPECT_EQ(device.collectives.channels_intra, 16);
    EXPECT_EQ(device.memory, base.memory);
    EXPECT_EQ(device.PeakFor(DType::kBFloat16), base.PeakFor(DType::kBFloat16));
    EXPECT_EQ(device.measured_collectives.size(), 0u);
    // The whole device is one, too; so are changes of it.
    EXPECT_EQ(ParseDeviceSpec(device.json, name)->intra_node, links);
    const std::string changes =
        fmt::format(R"({{"schema": "windtunnel/device/1", "base": "{}", "name": "mine", "description": "", )"
                    R"("host_gbytes_per_s": 20, "sources": {{"host_gbytes_per_s": "x"}}}})",
                    name);
    EXPECT_EQ(ParseDeviceSpec(changes, "x")->intra_node, links);
  }
}

TEST(DeviceSpec, StandsInAProfilesPlace) {
  const std::string json = *EmbeddedProfile("a100-sxm-40g");
  const Profile profile = ParseProfile(json, "x").value();
  ASSERT_TRUE(profile.hardware);
  EXPECT_EQ(profile.name, "a100-sxm-40g");
  EXPECT_EQ(ProfileJson(profile), json);
}

}  // namespace
}  // namespace windtunnel
