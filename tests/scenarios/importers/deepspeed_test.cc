#include "tests/scenarios/importers/importing.h"

namespace windtunnel {
namespace {

const std::vector<std::string> kTwoNodes = {"model.preset=llama3-8b", "cluster.device=h100-sxm-80g",
                                            "cluster.nodes=2", "cluster.devices_per_node=8",
                                            "cluster.network=dgx-h100"};

std::vector<std::string> With(std::vector<std::string> sets, const std::string& more) {
  sets.push_back(more);
  return sets;
}

TEST(ImportDeepSpeed, ReadsZeRO3) {
  const Scenario scenario = Imported("ds_config.json", R"({
    "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": 16777216,
      "stage3_prefetch_bucket_size": 15099494, "stage3_param_persistence_threshold": 40960,
      "offload_param": {"device": "cpu", "pin_memory": true}, "offload_optimizer": {"device": "cpu"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "gradient_clipping": 1.0, "train_micro_batch_size_per_gpu": 2, "train_batch_size": 64})",
                                     kTwoNodes);
  EXPECT_EQ(scenario.parallel.data.kind, DataParallelKind::kZero3);
  EXPECT_EQ(scenario.parallel.data.size, 16);
  EXPECT_EQ(scenario.batch.micro, 2);
  EXPECT_EQ(scenario.batch.accumulate, 2) << "64 / (16 x 2)";
  EXPECT_EQ(scenario.parallel.data.bucket_cap_mb, 32) << "16 Mi elements of two bytes";
  EXPECT_EQ(scenario.parallel.data.zero3.prefetch_bucket_size, 15099494);
  EXPECT_EQ(scenario.parallel.data.offload, Offload::kParam);
  EXPECT_EQ(scenario.optimizer.beta2, 0.95);
  EXPECT_EQ(scenario.optimizer.clip_norm, 1.0);
  EXPECT_EQ(scenario.framework, Framework::kPytorch);
}

TEST(ImportDeepSpeed, HasDeepSpeedsDefaults) {
  const Scenario scenario = Imported(
      "ds.json",
      R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1})",
      kTwoNodes);
  EXPECT_FALSE(scenario.parallel.data.overlap);
  EXPECT_EQ(scenario.precision.reduce, Precision::kFp16);
  EXPECT_EQ(scenario.precision.init_scale, 65536);
  EXPECT_EQ(scenario.optimizer.clip_norm, 0);
  EXPECT_NEAR(*scenario.parallel.data.bucket_cap_mb, 953.67, 0.01) << "5e8 elements of two bytes";
}

// FusedAdam's and DeepSpeedCPUAdam's; without an optimizer in the file it is the script's.
TEST(ImportDeepSpeed, HasDeepSpeedsWeightDecay) {
  const auto decay = [](const std::string& optimizer) {
    return Imported("ds.json", R"({"train_micro_batch_size_per_gpu": 1)" + optimizer + "}", kTwoNodes)
        .optimizer.weight_decay;
  };
  EXPECT_EQ(decay(R"(, "optimizer": {"type": "Adam", "params": {"lr": 1e-4}})"), 0);
  EXPECT_EQ(decay(R"(, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}})"), 0.1);
  EXPECT_EQ(decay(R"(, "optimizer": {"type": "AdamW", "params": {"torch_adam": true}})"), 0.01);
  EXPECT_EQ(decay(""), 0.01);
}

TEST(ImportDeepSpeed, SaysThatASecondShardIsNotModelled) {
  const auto yaml = [](const std::string& ranks) {
    return Import(
               "ds.json",
               R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
                  "zero_hpz_partition_size": )" +
                   ranks + "}}",
               kTwoNodes)
        .value_or("");
  };
  EXPECT_NE(yaml("8").find("# ZeRO++'s second shard within a node (zero_hpz_partition_size)"),
            std::string::npos);
  EXPECT_EQ(yaml("8").find("Not known"), std::string::npos);
  EXPECT_EQ(yaml("1").find("second shard"), std::string::npos);
}

TEST(ImportDeepSpeed, TakesAutoFromTheSets) {
  const std::string config =
      R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})";
  EXPECT_EQ(MistakesOf("ds.json", config, kTwoNodes),
            "ds.json: the micro-batch is not said (or auto), expected --set batch.micro=N");
  const std::string yaml = Import("ds.json", config, With(kTwoNodes, "batch.micro=4")).value_or("");
  EXPECT_EQ(RemarkOf("bucket_cap_mb:", yaml), "DeepSpeed's default") << "not what the file says: auto";
  const Scenario scenario = Imported("ds.json", config, With(kTwoNodes, "batch.micro=4"));
  EXPECT_EQ(scenario.batch.micro, 4);
  EXPECT_EQ(scenario.precision.param, Precision::kBf16);
}

// DeepSpeed asserts it: 16 data ranks x micro-batches of 2 x 4 of them are 128 sequences.
TEST(ImportDeepSpeed, ExpectsTheWholeBatchToBeTheProductOfItsParts) {
  const auto config = [](int whole) {
    return R"({"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 2,
      "gradient_accumulation_steps": 4, "train_batch_size": )" +
           std::to_string(whole) + "}";
  };
  EXPECT_EQ(Imported("ds.json", config(128), kTwoNodes).batch.accumulate, 4);
  EXPECT_EQ(MistakesOf("ds.json", config(64), kTwoNodes),
            "ds.json: train_batch_size is '64', expected 128 (16 data ranks x micro-batches of 2 x 4 of them "
            "accumulated)");
  EXPECT_EQ(Imported("ds.json", config(128), With(kTwoNodes, "batch.accumulate=8")).batch.accumulate, 8)
      << "--set comes first";
}

TEST(ImportDeepSpeed, NamesWhatIsMissingOrWrong) {
  EXPECT_EQ(
      MistakesOf("ds.json", R"({"zero_optimization": {"stage": 4}})", {}),
      "ds.json: the model is not said, expected --set model.preset=NAME or --set model.config=CONFIG.json\n"
      "ds.json: zero_optimization.stage is '4', expected 0 to 3\n"
      "ds.json: how many nodes there are is not said, expected --set cluster.nodes=N\n"
      "ds.json: how many devices a node has is not said, expected --set cluster.devices_per_node=N\n"
      "ds.json: the device is not said, expected --set cluster.device=NAME (see `windtunnel list devices`)");
  EXPECT_EQ(MistakesOf("ds.json", R"({"optimizer": {"type": "Lamb"}, "train_micro_batch_size_per_gpu": 1})",
                       kTwoNodes),
            "ds.json: optimizer.type is 'Lamb', expected Adam, AdamW, SGD or Muon");
  EXPECT_EQ(MistakesOf("ds.json", "{\"a\": ", {}).substr(0, 8), "ds.json:");
}

TEST(ImportDeepSpeed, SaysWhatActivationCheckpointingIs) {
  const std::string yaml =
      Import("ds.json",
             R"({"train_micro_batch_size_per_gpu": 1, "activation_checkpointing": {"cpu_checkpointing": true,
             "partition_activations": true, "number_checkpoints": 4, "profile": false}})",
             kTwoNodes)
          .value_or("");
  EXPECT_NE(yaml.find("# activation_checkpointing.cpu_checkpointing is of models that call"),
            std::string::npos)
      << yaml;
  EXPECT_NE(yaml.find("# Not modelled: activation_checkpointing.partition_activations true"),
            std::string::npos)
      << yaml;
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
}

}  // namespace
}  // namespace windtunnel
