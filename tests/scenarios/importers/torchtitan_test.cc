#include "tests/scenarios/importers/importing.h"

namespace windtunnel {
namespace {

const std::vector<std::string> kEightNodes = {"cluster.device=h100-sxm-80g", "cluster.nodes=8",
                                              "cluster.devices_per_node=8", "cluster.network=dgx-h100"};

TEST(ImportTorchtitan, ReadsFsdpWithTensorParallelism) {
  const Scenario scenario = Imported("llama3_70b.toml", R"([model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 1.5e-4
[training]
local_batch_size = 8
seq_len = 8_192
max_norm = 1.0
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[compile]
enable = true
components = ["model", "loss"]
[activation_checkpoint]
mode = "full"
[float8]
enable_fsdp_float8_all_gather = true
[metrics]
log_freq = 10
)",
                                     kEightNodes);
  EXPECT_EQ(scenario.model.preset, "llama3-70b");
  EXPECT_EQ(scenario.model.seq_len, 8192);
  EXPECT_EQ(scenario.parallel.data.kind, DataParallelKind::kFsdp);
  EXPECT_EQ(scenario.parallel.data.size, 8);
  EXPECT_TRUE(scenario.parallel.tensor.sequence && scenario.parallel.tensor.overlap);
  EXPECT_EQ(scenario.batch.micro, 8);
  EXPECT_EQ(scenario.precision.param, Precision::kBf16);
  EXPECT_EQ(scenario.precision.compute, Precision::kFp8);
  EXPECT_TRUE(scenario.precision.fp8_param_gather);
  EXPECT_EQ(scenario.recompute, Recompute::kFull);
  EXPECT_EQ(scenario.cross_entropy, CrossEntropyKind::kFused);
  EXPECT_EQ(scenario.framework, Framework::kPytorchCompile);
  EXPECT_TRUE(scenario.optimizer.fused);
}

TEST(ImportTorchtitan, ReadsReplicasAndPipelines) {
  const Scenario scenario = Imported("job.toml", R"([model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 16
[parallelism]
data_parallel_replicate_degree = 2
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "interleaved1F1B"
pipeline_parallel_microbatch_size = 2
)",
                                     kEightNodes);
  EXPECT_EQ(scenario.parallel.data.size, 16);
  EXPECT_EQ(scenario.parallel.data.sharding, Sharding::kHybridShard);
  EXPECT_EQ(scenario.parallel.data.shard_size, 8);
  EXPECT_EQ(scenario.parallel.pipeline.virtual_stages, 2);
  EXPECT_EQ(scenario.batch.micro, 2);
  EXPECT_EQ(scenario.batch.accumulate, 8) << "a local batch of 16 / 2";
  EXPECT_EQ(scenario.recompute, Recompute::kSelectiveOp) << "torchtitan's default";
  EXPECT_EQ(scenario.framework, Framework::kPytorch);
}

// pp_schedule.step() is of one local batch, of which 512 / (16 x 16 data ranks) = 2 are a global batch.
TEST(ImportTorchtitan, RunsThePipelineOfOneLocalBatchAndSaysHowManyThereAre) {
  const std::string job =
      "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 16\nglobal_batch_size = 512\n"
      "[parallelism]\n";
  const std::string stages = job + "pipeline_parallel_degree = 4\n";
  const std::string yaml = Import("j.toml", stages, kEightNodes).value_or("");
  EXPECT_NE(yaml.find("The step is of one local batch."), std::string::npos) << yaml;
  EXPECT_EQ(RemarkOf("accumulate:", yaml), "training.local_batch_size / micro-batch");
  EXPECT_EQ(Imported("j.toml", stages, kEightNodes).batch.accumulate, 16);
  const Scenario alone = Imported("j.toml", job + "tensor_parallel_degree = 4\n", kEightNodes);
  EXPECT_EQ(alone.batch.micro, 16);
  EXPECT_EQ(alone.batch.accumulate, 2) << "without a pipeline gradients are accumulated";
}

// generate_llm_fqn_per_model_part(): 80 layers and 2 for embedding and head are 10 for each of 8 stages and 1
// more for the first two. The first stage has 11 - 1, and the last one 10 - 1.
TEST(ImportTorchtitan, DividesLayersAsTorchtitanDoes) {
  const std::string job =
      "[model]\nname = 'llama3'\nflavor = '70B'\n[training]\nlocal_batch_size = 8\n[parallelism]\n"
      "tensor_parallel_degree = 8\npipeline_parallel_degree = 4\n";
  const std::string interleaved = job + "pipeline_parallel_schedule = 'Interleaved1F1B'\n";
  const auto balance = [](const std::string& text) {
    return Imported("j.toml", text, kEightNodes).parallel.pipeline.balance;
  };
  EXPECT_EQ(balance(interleaved), (std::vector<int64_t>{10, 11, 10, 10, 10, 10, 10, 9}));
  EXPECT_EQ(balance(job), (std::vector<int64_t>{20, 21, 20, 19}));
  EXPECT_EQ(balance(job + "pipeline_parallel_first_stage_less_layers = 0\n"),
            (std::vector<int64_t>{21, 20, 20, 19}));
  EXPECT_EQ(
      MistakesOf("j.toml", job + "pipeline_parallel_last_stage_less_layers = 40\n", kEightNodes),
      "j.toml: 4 stages of 80 layers, of which the first has 1 less and the last 40: torchtitan refuses "
      "them, expected fewer stages, or --set parallel.pipeline.balance=[…]");
  std::vector<std::string> sets = kEightNodes;
  sets.push_back("parallel.pipeline.balance=[19, 20, 21, 20]");
  EXPECT_EQ(Imported("j.toml", job, sets).parallel.pipeline.balance, (std::vector<int64_t>{19, 20, 21, 20}));
}

// 80 layers and 2 for embedding and head, 7 in a stage, are 12 stages, and 5 in a stage 17.
TEST(ImportTorchtitan, CountsVirtualStagesByTheirLayers) {
  const auto job = [](const std::string& layers, const std::string& schedule = "Interleaved1F1B") {
    return "[model]\nname = 'llama3'\nflavor = '70B'\n[parallelism]\ntensor_parallel_degree = 8\n"
           "pipeline_parallel_degree = 4\npipeline_parallel_schedule = '" +
           schedule + "'\npipeline_parallel_layers_per_stage = " + layers + "\n";
  };
  const PipelineSpec three = Imported("j.toml", job("7"), kEightNodes).parallel.pipeline;
  EXPECT_EQ(three.virtual_stages, 3);
  EXPECT_EQ(three.balance, (std::vector<int64_t>{6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 6, 5}));
  EXPECT_EQ(
      MistakesOf("j.toml", job("5"), kEightNodes),
      "j.toml: parallelism.pipeline_parallel_layers_per_stage is '5', expected a number that makes 2 or "
      "more stages for each of 4 pipeline ranks, not 17 in all (80 layers, 1 less in the first stage and "
      "1 in the last); or --set parallel.pipeline.virtual_stages=N");
  EXPECT_NE(MistakesOf("j.toml", job("7", "1F1B"), kEightNodes).find("makes 1 stage for"), std::string::npos);
  std::vector<std::string> sets = kEightNodes;
  sets.push_back("parallel.pipeline.virtual_stages=4");
  EXPECT_EQ(Imported("j.toml", job("5"), sets).parallel.pipeline.balance.size(), 16u);
}

// [experimental] and [training] had the degrees until 2025.
TEST(ImportTorchtitan, KnowsOlderNames) {
  const Scenario scenario = Imported("old.toml", R"([model]
name = "llama2"
flavor = "13B"
[training]
batch_size = 2
seq_len = 4096
tensor_parallel_degree = 4
compile = true
[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_microbatches = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
)",
                                     kEightNodes);
  EXPECT_EQ(scenario.parallel.tensor.size, 4);
  EXPECT_EQ(scenario.parallel.data.size, 8);
  EXPECT_EQ(scenario.batch.micro, 1);
  EXPECT_EQ(scenario.batch.accumulate, 2);
  EXPECT_EQ(scenario.recompute_every, 2);
  EXPECT_EQ(scenario.framework, Framework::kPytorchCompile);
}

TEST(ImportTorchtitan, CompilesOnlyTheComponentsThatAreNamed) {
  const std::string job = "[model]\nname = 'llama3'\nflavor = '8B'\n[compile]\nenable = true\ncomponents = ";
  const Scenario loss = Imported("j.toml", job + "['loss']\n", kEightNodes);
  EXPECT_EQ(loss.framework, Framework::kPytorch);
  EXPECT_EQ(loss.cross_entropy, CrossEntropyKind::kFused);
  const Scenario model = Imported("j.toml", job + "['model']\n", kEightNodes);
  EXPECT_EQ(model.framework, Framework::kPytorchCompile);
  EXPECT_EQ(model.cross_entropy, CrossEntropyKind::kFramework);
}

TEST(ImportTorchtitan, RecomputesEverySecondMatmulOfLatentAttention) {
  const Scenario s = Imported("j.toml", "[model]\nname = 'deepseek_v3'\nflavor = '16B'\n", kEightNodes);
  EXPECT_EQ(s.recompute, Recompute::kSelectiveOp);
}

// Until 2025 a pipeline had as many micro-batches as stages.
TEST(ImportTorchtitan, DividesTheBatchOfOlderPipelinesByTheirStages) {
  const std::string job = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nbatch_size = 32\n";
  const Scenario old =
      Imported("j.toml", job + "[experimental]\npipeline_parallel_degree = 8\n", kEightNodes);
  EXPECT_EQ(old.batch.micro, 4);
  EXPECT_EQ(old.batch.accumulate, 8);
  const Scenario now = Imported("j.toml", job + "[parallelism]\npipeline_parallel_degree = 8\n", kEightNodes);
  EXPECT_EQ(now.batch.micro, 1);
}

TEST(ImportTorchtitan, SaysWhichValuesAreDefaults) {
  const std::string model = "[model]\nname = 'llama3'\nflavor = '8B'\n";
  const std::string given =
      Import("j.toml",
             model +
                 "[optimizer]\nbeta2 = 0.9\nweight_decay = 0.2\nimplementation = 'fused'\n"
                 "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "
                 "'1F1B'\npipeline_parallel_microbatch_size = 2\ndata_parallel_shard_degree = -1\n",
             kEightNodes)
          .value_or("");
  EXPECT_EQ(RemarkOf("beta2:", given), "optimizer.beta2");
  EXPECT_EQ(RemarkOf("weight_decay:", given), "optimizer.weight_decay");
  EXPECT_EQ(RemarkOf("fused:", given), "optimizer.implementation");
  EXPECT_EQ(RemarkOf("schedule:", given), "parallelism.pipeline_parallel_schedule");
  EXPECT_EQ(RemarkOf("micro:", given), "parallelism.pipeline_parallel_microbatch_size");
  EXPECT_EQ(RemarkOf("kind: fsdp", given), "parallelism.data_parallel_shard_degree");

  const std::string missing =
      Import("j.toml", model + "[parallelism]\npipeline_parallel_degree = 2\n", kEightNodes).value_or("");
  for (const char* key :
       {"beta2:", "weight_decay:", "fused:", "schedule:", "micro:", "kind: fsdp", "reshard_after_forward:"})
    EXPECT_EQ(RemarkOf(key, missing), "torchtitan's default") << key;
}

TEST(ImportTorchtitan, NamesWhatIsMissingOrWrong) {
  EXPECT_EQ(MistakesOf("job.toml", "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n", kEightNodes),
            "job.toml: model.name llama3, model.flavor debugmodel has no preset, expected --set "
            "model.preset=NAME or --set "
            "model.config=CONFIG.json");
  EXPECT_EQ(
      MistakesOf("job.toml",
                 "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[activation_checkpoint]\nmode = \"some\"\n",
                 kEightNodes),
      "job.toml: activation_checkpoint.mode is 'some', expected none, selective or full");
  EXPECT_EQ(MistakesOf("job.toml", "[model\n", kEightNodes).substr(0, 13), "job.toml:1:7:");
  for (const char* text : {"[\nx", "[%]", "[[=", "[ .a]"})
    EXPECT_EQ(MistakesOf("job.toml", text, kEightNodes).substr(0, 9), "job.toml:") << text;
}

TEST(ImportTorchtitan, KeepsParametersInTheTypeThatIsSaid) {
  const std::string job = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\ndtype = ";
  const Scenario pure = Imported("j.toml", job + "'bfloat16'\n", kEightNodes);
  EXPECT_EQ(pure.precision.param, Precision::kBf16);
  EXPECT_EQ(pure.precision.optimizer, Precision::kBf16);
  EXPECT_EQ(pure.optimizer.moments, MomentsType::kBf16);
  const std::vector<std::string> one = {"cluster.device=h100-sxm-80g", "cluster.nodes=1",
                                        "cluster.devices_per_node=1"};
  const Scenario alone = Imported("j.toml", job + "'bfloat16'\n", one);
  EXPECT_EQ(alone.precision.param, Precision::kBf16) << "no autocast of fp32";
  EXPECT_EQ(alone.precision.optimizer, Precision::kBf16);
  EXPECT_EQ(Imported("j.toml", job + "'float32'\n", kEightNodes).precision.optimizer, Precision::kFp32);
  EXPECT_EQ(MistakesOf("j.toml", job + "'bfloat16'\nmixed_precision_param = 'float32'\n", kEightNodes),
            "j.toml: training.dtype is 'bfloat16', expected float32, or bfloat16 with "
            "training.mixed_precision_param bfloat16");
}

TEST(ImportTorchtitan, UpdatesInBackwardWhereThatIsModelled) {
  const auto job = [](const std::string& early, const std::string& rest = "") {
    return "[model]\nname = 'llama3'\nflavor = '8B'\n[optimizer]\nearly_step_in_backward = " + early + "\n" +
           rest;
  };
  const Scenario early = Imported("j.toml", job("true", "[training]\nmax_norm = 1.0\n"), kEightNodes);
  EXPECT_TRUE(early.optimizer.in_backward);
  EXPECT_EQ(early.optimizer.clip_norm, 0) << "no gradient is left to clip";
  EXPECT_FALSE(Imported("j.toml", job("false"), kEightNodes).optimizer.in_backward);
  for (const char* other :
       {"[parallelism]\ntensor_parallel_degree = 8\n",
        "[parallelism]\ndata_parallel_replicate_degree = 64\ndata_parallel_shard_degree = 1\n",
        "[training]\nlocal_batch_size = 1\nglobal_batch_size = 128\n",
        "[training]\nenable_cpu_offload = true\n"}) {
    const Scenario late = Imported("j.toml", job("true", other), kEightNodes);
    EXPECT_FALSE(late.optimizer.in_backward) << other;
    EXPECT_EQ(late.optimizer.clip_norm, 1.0) << other;
    EXPECT_NE(Import("j.toml", job("true", other), kEightNodes)
                  .value_or("")
                  .find("early_step_in_backward is not modelled"),
              std::string::npos)
        << other;
  }
}

}  // namespace
}  // namespace windtunnel
