#include "tests/scenarios/importers/importing.h"

namespace windtunnel {
namespace {

using Sets = std::vector<std::string>;
const Sets kA100 = {"cluster.device=a100-sxm-80g"};
const Sets kFourA100s = {"cluster.device=a100-sxm-80g", "cluster.nodes=1", "cluster.devices_per_node=4"};

// Files that the settings of a test name.
class ImportHuggingFace : public testing::Test {
 protected:
  Result<std::string> Yaml(const std::string& name, const std::string& text, const Sets& sets) const {
    ImportRequest request;
    request.source = name;
    request.text = text;
    request.read = [this](const std::string& path) -> Result<NamedFile> {
      if (const auto found = files_.find(path); found != files_.end())
        return NamedFile{"/at/" + path, found->second};
      return InvalidInput("{}: cannot be read", path);
    };
    for (const std::string& set : sets) request.sets.push_back(ParseOverride(set).value());
    return ImportScenario(request);
  }
  Scenario Imported(const std::string& name, const std::string& text, const Sets& sets) const {
    const Result<std::string> yaml = Yaml(name, text, sets);
    if (!yaml) {
      ADD_FAILURE() << yaml.error().message;
      return {};
    }
    return ParseScenario(*yaml, "s.yaml", "/somewhere", {}).value();
  }
  std::string MistakesOf(const std::string& name, const std::string& text, const Sets& sets) const {
    const Result<std::string> yaml = Yaml(name, text, sets);
    if (yaml) return "(no error)";
    std::string lines = yaml.error().message;
    for (const std::string& other : yaml.error().others) lines += "\n" + other;
    return lines;
  }

  std::map<std::string, std::string> files_;
};

// run_summarization.py of transformers: sources and targets, T5's attention, and the dropout of its
// configuration.
TEST_F(ImportHuggingFace, EncodersHaveSourcesAndTargets) {
  const std::string script =
      "torchrun --nproc_per_node 4 run_summarization.py --model_name_or_path google-t5/t5-base --do_train "
      "--per_device_train_batch_size 4 --bf16";
  const Scenario t5 =
      Imported("train.sh", script + " --max_source_length 512 --max_target_length 64\n", kFourA100s);
  EXPECT_EQ(t5.model.encoder, (EncoderSpec{.layers = 12, .seq_len = 512}));
  EXPECT_EQ(t5.model.seq_len, 64);
  EXPECT_EQ(t5.model.attention, AttentionKind::kEager);
  EXPECT_EQ(t5.model.dropout, 0.1);
  const Scenario shorter = Imported("train.sh", script + "\n", kFourA100s);
  EXPECT_EQ(shorter.model.encoder->seq_len, 1024) << "the script's default";
  EXPECT_EQ(shorter.model.seq_len, 128);
  std::string of_bart = script;
  of_bart.replace(of_bart.find("google-t5/t5-base"), 17, "facebook/bart-large");
  const Scenario bart = Imported("train.sh", of_bart + "\n", kFourA100s);
  EXPECT_EQ(bart.model.preset, "bart-large");
  EXPECT_EQ(bart.model.attention, AttentionKind::kFlash);
}

TEST_F(ImportHuggingFace, KnowsTheHubsNamesOfHybrids) {
  const auto preset = [&](const std::string& name) {
    return Imported("r.yaml", "model_name_or_path: " + name + "\nmax_length: 1024\npacking: true\n",
                    kFourA100s)
        .model.preset;
  };
  EXPECT_EQ(preset("nvidia/Nemotron-H-8B-Base-8K"), "nemotron-h-8b");
  EXPECT_EQ(preset("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), "nemotron3-nano-30b");
  EXPECT_EQ(preset("state-spaces/mamba2-2.7b"), "mamba2-2.7b");
}

TEST_F(ImportHuggingFace, ReadsATorchrunOfFsdp) {
  const Scenario s = Imported("train.sh", R"(
torchrun --nproc_per_node=8 --nnodes 2 fastchat/train/train_mem.py \
    --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 --learning_rate 2e-5 --weight_decay 0. --tf32 True \
    --fsdp "full_shard auto_wrap offload" --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' \
    --model_max_length 2048 --gradient_checkpointing True --lr_scheduler_type "cosine")",
                              {"cluster.device=a100-sxm-80g", "cluster.network=dgx-a100"});
  EXPECT_EQ(s.model.layers, 32);
  EXPECT_EQ(s.model.seq_len, 2048);
  EXPECT_EQ(s.batch.micro, 2);
  EXPECT_EQ(s.batch.accumulate, 4);
  EXPECT_EQ(s.parallel.data.kind, DataParallelKind::kFsdp);
  EXPECT_EQ(s.parallel.data.size, 16);
  EXPECT_EQ(s.parallel.data.version, 1) << "accelerate's default";
  EXPECT_EQ(s.parallel.data.prefetch, Prefetch::kNone) << "accelerate's default";
  EXPECT_EQ(s.parallel.data.offload, Offload::kParam);
  EXPECT_EQ(s.precision.param, Precision::kBf16);
  EXPECT_EQ(s.precision.reduce, Precision::kBf16) << "accelerate's policy";
  EXPECT_EQ(s.recompute, Recompute::kFull);
  EXPECT_EQ(s.optimizer.clip_norm, 1.0) << "the Trainer's default";
  EXPECT_TRUE(s.optimizer.fused);
  EXPECT_EQ(s.framework, Framework::kPytorch);
}

TEST_F(ImportHuggingFace, ReadsTheFilesThatACommandNames) {
  files_["fsdp.yaml"] = R"(
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: false
  fsdp_version: 2
mixed_precision: 'no'
num_machines: 2
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 2
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
)";
  files_["recipe.yaml"] = R"(
model_name_or_path: Qwen/Qwen3-8B
bf16: true
max_length: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
gradient_checkpointing_kwargs:
  use_reentrant: false
)";
  const Scenario s = Imported(
      "train.sh",
      "accelerate launch --config_file fsdp.yaml sft.py --config recipe.yaml --gradient_accumulation_steps=8",
      {"cluster.device=a100-sxm-80g", "cluster.network=dgx-a100"});
  EXPECT_EQ(s.model.layers, 36);
  EXPECT_EQ(s.batch.accumulate, 8) << "flags come before the recipe";
  EXPECT_EQ(s.cluster.nodes, 2);
  EXPECT_EQ(s.cluster.devices_per_node, 4) << "accelerate counts the processes of all machines";
  EXPECT_EQ(s.parallel.tensor.size, 2);
  EXPECT_EQ(s.parallel.context.size, 2);
  EXPECT_EQ(s.parallel.context.kind, ContextKind::kAllGather);
  EXPECT_EQ(s.parallel.data.size, 2);
  EXPECT_EQ(s.parallel.data.version, 2);
  EXPECT_EQ(s.parallel.data.reshard_after_forward, 0) << "never";
  EXPECT_EQ(s.precision.param, Precision::kBf16) << "the Trainer's flag comes before accelerate's";
  EXPECT_EQ(MistakesOf("train.sh", "accelerate launch --config_file other.yaml sft.py --config recipe.yaml",
                       kFourA100s),
            "train.sh: --config_file is 'other.yaml': other.yaml: cannot be read");
}

TEST_F(ImportHuggingFace, FillsInWhatDeepSpeedsFileLeavesToTheTrainer) {
  files_["ds.json"] =
      R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"},
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})";
  const std::string command =
      "deepspeed --num_gpus 4 --num_nodes 1 run_clm.py --model_name_or_path meta-llama/Llama-3.1-8B "
      "--block_size 2048 "
      "--deepspeed ds.json";
  const Scenario s = Imported("run.sh", command + " --bf16 --gradient_accumulation_steps 2", kA100);
  EXPECT_EQ(s.parallel.data.kind, DataParallelKind::kZero3);
  EXPECT_EQ(s.precision.param, Precision::kBf16);
  EXPECT_EQ(s.batch.micro, 8) << "the Trainer's default";
  EXPECT_EQ(s.batch.accumulate, 2);
  EXPECT_EQ(s.parallel.data.bucket_cap_mb, 32) << "hidden x hidden elements of two bytes";
  EXPECT_EQ(s.parallel.data.zero3.prefetch_bucket_size, 4096 * 4096 * 9 / 10);
  EXPECT_EQ(s.parallel.data.zero3.param_persistence_threshold, 40960);
  EXPECT_EQ(Imported("run.sh", command, kA100).precision.param, Precision::kFp32) << "auto without --bf16";

  files_["zero.yaml"] =
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\ndeepspeed_config:\n  "
      "zero_stage: 2\n";
  const Scenario plugin = Imported(
      "a.sh", "accelerate launch --config_file zero.yaml sft.py --model_name_or_path gpt2 --max_length 512",
      kA100);
  EXPECT_EQ(plugin.parallel.data.kind, DataParallelKind::kZero2);
  EXPECT_EQ(plugin.precision.param, Precision::kBf16);
  EXPECT_EQ(plugin.model.dropout, 0.1) << "GPT-2's own";
}

// What DDP computes in, and in which types parameters and adapters are, depends on how a model is loaded.
TEST_F(ImportHuggingFace, KnowsWhatIsInWhichType) {
  const auto precision = [&](const std::string& more) {
    return Imported("r.yaml",
                    "model_name_or_path: meta-llama/Llama-2-7b-hf\nmax_length: 1024\npacking: true\n" + more,
                    kFourA100s)
        .precision;
  };
  const PrecisionSpec autocast = precision("bf16: true\n");
  EXPECT_EQ(autocast.param, Precision::kFp32);
  EXPECT_EQ(autocast.compute, Precision::kBf16);
  const PrecisionSpec loaded = precision("bf16: true\ntorch_dtype: bfloat16\n");
  EXPECT_EQ(loaded.param, Precision::kBf16);
  EXPECT_EQ(loaded.optimizer, Precision::kBf16) << "no masters";
  const PrecisionSpec qlora = precision("bf16: true\nuse_peft: true\nload_in_4bit: true\n");
  EXPECT_EQ(qlora.param, Precision::kBf16);
  EXPECT_EQ(qlora.optimizer, Precision::kFp32) << "peft's adapters are in fp32";
  EXPECT_EQ(precision("fp16: true\n").loss_scale, LossScale::kDynamic);
}

TEST_F(ImportHuggingFace, ReadsMomentsIn8BitsWhereTheyAreModelled) {
  const auto recipe = [](const std::string& more) {
    return "model_name_or_path: meta-llama/Llama-2-7b-hf\nmax_length: 1024\npacking: true\n" + more;
  };
  for (const char* optim : {"adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adamw_torch_8bit"}) {
    const std::string text = recipe(std::string("optim: ") + optim + "\n");
    const OptimizerSpec alone = Imported("r.yaml", text, kFourA100s).optimizer;
    EXPECT_EQ(alone.kind, OptimizerKind::kAdamW);
    EXPECT_EQ(alone.moments, MomentsType::kInt8) << optim;
  }
  const auto text = [&](const std::string& more) {
    return Yaml("r.yaml", recipe(more), kFourA100s).value_or("");
  };
  EXPECT_NE(text("optim: paged_adamw_8bit\n").find("Paged moments"), std::string::npos);
  EXPECT_NE(text("optim: adamw_bnb_8bit\n").find("embeddings in fp32"), std::string::npos);
  EXPECT_EQ(text("optim: adamw_torch_8bit\n").find("embeddings in fp32"), std::string::npos) << "torchao's";
  const std::string first = "fsdp: full_shard auto_wrap\noptim: adamw_bnb_8bit\n";
  EXPECT_EQ(Imported("r.yaml", recipe(first), kFourA100s).optimizer.moments, MomentsType::kFp32);
  EXPECT_NE(text(first).find("not modelled with FSDP 1 or ZeRO"), std::string::npos);
  EXPECT_NE(text("optim: adamw_torch_4bit\n").find("Moments in 4 bits"), std::string::npos);
}

TEST_F(ImportHuggingFace, ReadsAdaptersOfEachProgram) {
  const Scenario trl = Imported("r.yaml", R"(
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
max_length: 1024
use_peft: true
load_in_4bit: true
lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
)",
                                kFourA100s);
  ASSERT_TRUE(trl.model.lora);
  EXPECT_EQ(trl.model.lora->rank, 16) << "TRL's default";
  EXPECT_EQ(trl.model.lora->targets.size(), 4u);
  EXPECT_EQ(trl.model.lora->quantize, Quantization::kNf4);

  const Scenario factory = Imported("r.yaml", R"(
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: lora
lora_target: q_proj,v_proj
quantization_bit: 4
cutoff_len: 1024
fp16: true
)",
                                    kFourA100s);
  ASSERT_TRUE(factory.model.lora);
  EXPECT_EQ(factory.model.lora->rank, 8);
  EXPECT_EQ(factory.model.lora->alpha, 16) << "twice the rank";
  EXPECT_EQ(factory.model.lora->quantize, Quantization::kNf4Double) << "LLaMA-Factory's default";
  EXPECT_EQ(factory.recompute, Recompute::kFull) << "LLaMA-Factory's default";

  const Scenario axolotl = Imported("r.yml", R"(
base_model: NousResearch/Meta-Llama-3-70B
adapter: lora
lora_r: 32
lora_model_dir:
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
bf16: auto
fp16:
fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_offload_params: true
)",
                                    kFourA100s);
  EXPECT_EQ(axolotl.model.layers, 80);
  EXPECT_EQ(axolotl.batch.micro, 2);
  EXPECT_EQ(axolotl.model.lora->rank, 32);
  EXPECT_TRUE(axolotl.model.lora->targets.empty()) << "all of them";
  EXPECT_EQ(axolotl.parallel.data.version, 2) << "FSDP 1 has no adapters here";
  EXPECT_EQ(axolotl.parallel.data.offload, Offload::kParam);
}

// fused_linear_cross_entropy_forward(): 128,256 / 4,096 makes 32, so 2 x 4,096 tokens come 256 at a time, 32
// times. Of 3 x 1,000 tokens 94, or 128, would be 24 parts; 3,000 / 24 = 125 are equal ones.
TEST_F(ImportHuggingFace, TakesLigersLossInItsParts) {
  const auto recipe = [&](const std::string& rest) {
    return Imported("r.yaml", "model_name_or_path: meta-llama/Meta-Llama-3-8B\nbf16: true\n" + rest,
                    kFourA100s);
  };
  const Scenario trainer =
      recipe("use_liger_kernel: true\nmax_length: 4096\nper_device_train_batch_size: 2\n");
  EXPECT_EQ(trainer.cross_entropy, CrossEntropyKind::kFused);
  EXPECT_EQ(trainer.cross_entropy_chunks, 32);
  EXPECT_EQ(recipe("enable_liger_kernel: true\ncutoff_len: 1000\nper_device_train_batch_size: 3\n")
                .cross_entropy_chunks,
            24);
  EXPECT_EQ(
      recipe("liger_fused_linear_cross_entropy: true\nmax_length: 4099\nper_device_train_batch_size: 1\n")
          .cross_entropy_chunks,
      1)
      << "a prime number";
  const Scenario without = recipe("use_liger_kernel: false\nmax_length: 4096\n");
  EXPECT_EQ(without.cross_entropy, CrossEntropyKind::kFramework);
  EXPECT_EQ(without.cross_entropy_chunks, 1);
}

TEST_F(ImportHuggingFace, TakesAxolotlsDefaultsOfAdaptersAndDdp) {
  const std::string recipe =
      "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nsequence_len: 1024\n"
      "bf16: true\n";
  const Scenario s = Imported("r.yml", recipe, kFourA100s);
  EXPECT_EQ(s.model.lora->dropout, 0);
  EXPECT_EQ(s.parallel.data.kind, DataParallelKind::kDdp);
  EXPECT_FALSE(s.parallel.data.find_unused_parameters);
  EXPECT_EQ(RemarkOf("dropout:", Yaml("r.yml", recipe, kFourA100s).value_or("")), "Axolotl's default");
  const Scenario other =
      Imported("r.yml", recipe + "lora_dropout: 0.1\nddp_find_unused_parameters: true\n", kFourA100s);
  EXPECT_EQ(other.model.lora->dropout, 0.1);
  EXPECT_TRUE(other.parallel.data.find_unused_parameters);
}

TEST_F(ImportHuggingFace, KnowsTheLayersOfEachModel) {
  const auto targets = [&](const std::string& model, const std::string& layers) {
    return Imported("r.yaml",
                    "model_name_or_path: " + model +
                        "\nmax_length: 512\nuse_peft: true\nlora_target_modules: [" + layers + "]\n",
                    kFourA100s)
        .model.lora->targets;
  };
  EXPECT_EQ(targets("gpt2", "c_attn, c_proj, c_fc"),
            (std::vector<LoraTarget>{LoraTarget::kQkv, LoraTarget::kProjection, LoraTarget::kDown,
                                     LoraTarget::kUp}));
  EXPECT_EQ(targets("gpt2", "query_key_value, dense_h_to_4h"),
            (std::vector<LoraTarget>{LoraTarget::kQkv, LoraTarget::kUp}));
}

TEST_F(ImportHuggingFace, KnowsBothNamesOfAShardingStrategy) {
  files_["fsdp1.yaml"] = R"(
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: SHARD_GRAD_OP
  fsdp_version: 1
mixed_precision: bf16
num_processes: 4
)";
  const std::string command =
      "accelerate launch --config_file fsdp1.yaml sft.py --model_name_or_path Qwen/Qwen3-8B ";
  const Scenario s = Imported("a.sh", command, kA100);
  EXPECT_EQ(s.parallel.data.sharding, Sharding::kShardGradOp);
  const Scenario with_adapters = Imported("a.sh", command + "--use_peft", kA100);
  EXPECT_EQ(with_adapters.parallel.data.version, 2);
  EXPECT_FALSE(with_adapters.parallel.data.reshard_after_forward);
  const Scenario hybrid =
      Imported("a.sh",
               "torchrun --nnodes 2 --nproc_per_node 4 t.py --model_name_or_path Qwen/Qwen3-8B --block_size "
               "512 --fsdp 'hybrid_shard auto_wrap' --use_peft --bf16",
               {"cluster.device=a100-sxm-80g", "cluster.network=dgx-a100"});
  EXPECT_EQ(hybrid.parallel.data.sharding, Sharding::kHybridShard);
  EXPECT_EQ(hybrid.parallel.data.shard_size, 4);
}

TEST_F(ImportHuggingFace, ReadsTheConfigurationOfFsdpWhereverItIs) {
  files_["f.json"] =
      R"({"activation_checkpointing": true, "backward_prefetch": "backward_pre", "min_num_params": 1000000})";
  const std::string command =
      "torchrun --nnodes 1 --nproc_per_node 4 t.py --model_name_or_path gpt2 --block_size 512 --bf16 --fsdp "
      "'full_shard "
      "auto_wrap' --fsdp_config ";
  const Scenario s = Imported("a.sh", command + "f.json", kA100);
  EXPECT_EQ(s.recompute, Recompute::kFull);
  EXPECT_EQ(s.parallel.data.prefetch, Prefetch::kBackwardPre);
  EXPECT_EQ(s.parallel.data.wrap.size_bytes, 4000000) << "the Trainer's rule for min_num_params";
  EXPECT_EQ(Imported("a.sh", command + "'{\"activation_checkpointing\": true}'", kA100).recompute,
            Recompute::kFull);
  EXPECT_EQ(Imported("a.sh",
                     "torchrun --nnodes 1 --nproc_per_node 4 t.py --model_name_or_path gpt2 --block_size 512 "
                     "--fsdp False",
                     kA100)
                .parallel.data.kind,
            DataParallelKind::kDdp);
}

TEST_F(ImportHuggingFace, ReadsRecipesThatFollowTheirProgram) {
  files_["rec.yaml"] = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 3\n";
  for (const char* command :
       {"accelerate launch --num_processes 4 scripts/run_sft.py rec.yaml --seed 1",
        "torchrun --nnodes 1 --nproc_per_node 4 -m trl.sft rec.yaml", "trl sft rec.yaml"}) {
    Sets sets = kFourA100s;
    const Scenario s = Imported("a.sh", command, sets);
    EXPECT_EQ(s.batch.micro, 3) << command;
    EXPECT_EQ(s.model.layers, 36) << command;
  }
  files_["lf.yaml"] =
      "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ncutoff_len: "
      "512\ndisable_gradient_checkpointing: true\n";
  EXPECT_EQ(Imported("a.sh", "llamafactory-cli train lf.yaml", kFourA100s).recompute, Recompute::kNone);
}

TEST_F(ImportHuggingFace, SaysWhichFileIsNotKnown) {
  EXPECT_EQ(
      MistakesOf("a.sh",
                 "accelerate launch --config_file $CONF t.py --model_name_or_path gpt2 --block_size 512",
                 kFourA100s),
      "a.sh: --config_file is '$CONF', expected a file that is known here (--define gives variables)");
}

TEST_F(ImportHuggingFace, SaysWhichValuesAreDefaults) {
  const auto remark = [&](const std::string& line, const std::string& more) {
    return RemarkOf(
        line, Yaml("r.yaml", "model_name_or_path: gpt2\nblock_size: 512\n" + more, kFourA100s).value_or(""));
  };
  EXPECT_EQ(remark("attention: eager", "eager_attention: true\n"), "eager_attention");
  EXPECT_EQ(remark("attention: flash", "flash_attention: true\n"), "flash_attention");
  EXPECT_EQ(remark("attention: flash", ""), "the default (sdpa)");
  EXPECT_EQ(remark("sharding:", "fsdp: full_shard auto_wrap\n"), "fsdp");
  EXPECT_EQ(remark("sharding:", "distributed_type: FSDP\n"), "accelerate's default");
}

// SFTConfig's, since TRL 0.20.
TEST_F(ImportHuggingFace, HasTrlsDefaults) {
  const Scenario s = Imported("a.sh", "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B", kFourA100s);
  EXPECT_EQ(s.precision.compute, Precision::kBf16);
  EXPECT_EQ(s.recompute, Recompute::kFull);
  EXPECT_EQ(s.model.seq_len, 1024);
  EXPECT_EQ(s.optimizer.lr, 2e-5);
}

TEST_F(ImportHuggingFace, TakesProductsInTf32) {
  const std::string command = "run_clm.py --config_name gpt2-xl --block_size 1024 --tf32 True";
  EXPECT_EQ(Imported("a.sh", command, kFourA100s).precision.compute, Precision::kTf32);
  EXPECT_EQ(Imported("a.sh", command + " --bf16", kFourA100s).precision.compute, Precision::kBf16);
  EXPECT_EQ(Imported("a.sh", command + " --torch_compile_mode default", kFourA100s).framework,
            Framework::kPytorchCompile);
}

// The Trainer passes find_unused_parameters to DDP unless activations are recomputed.
TEST_F(ImportHuggingFace, LooksForUnusedParametersAsTheTrainerDoes) {
  const std::string recipe = "model_name_or_path: gpt2\nblock_size: 512\n";
  EXPECT_TRUE(Imported("r.yaml", recipe, kFourA100s).parallel.data.find_unused_parameters);
  EXPECT_FALSE(Imported("r.yaml", recipe + "gradient_checkpointing: true\n", kFourA100s)
                   .parallel.data.find_unused_parameters);
  EXPECT_FALSE(Imported("r.yaml", recipe + "ddp_find_unused_parameters: false\n", kFourA100s)
                   .parallel.data.find_unused_parameters);
}

TEST_F(ImportHuggingFace, FindsModelsByTheirNamesOnTheHub) {
  const auto layers = [&](const std::string& name) {
    return Imported("r.yaml", "model_name_or_path: " + name + "\nblock_size: 512\n", kFourA100s).model.layers;
  };
  EXPECT_EQ(layers("gpt2-xl"), 48);
  EXPECT_EQ(layers("meta-llama/Llama-3.3-70B-Instruct"), 80);
  EXPECT_EQ(layers("/models/Qwen2.5-7B-Instruct/"), 28);
  EXPECT_EQ(layers("mistralai/Mixtral-8x7B-Instruct-v0.1"), 32);
  EXPECT_EQ(layers("unsloth/Qwen3-30B-A3B-Instruct-2507"), 48);
  EXPECT_EQ(layers("allenai/OLMo-2-1124-7B"), 32);
  files_["/models/mine/config.json"] = "{}";
  EXPECT_EQ(
      MistakesOf("r.yaml", "model_name_or_path: meta-llama/Llama-3.2-1B\nblock_size: 512\n", kFourA100s),
      "r.yaml: model_name_or_path is 'meta-llama/Llama-3.2-1B', which has no preset, expected --set "
      "model.preset=NAME or --set model.config=CONFIG.json (the model's, from the hub)");
  EXPECT_NE(MistakesOf("r.yaml", "model_name_or_path: /models/mine\nblock_size: 512\n", kFourA100s)
                .find("config.json"),
            std::string::npos)
      << "a model's folder is read";
}

TEST_F(ImportHuggingFace, NamesAllThatIsMissingOrCannotBe) {
  EXPECT_EQ(
      MistakesOf("r.yaml", "per_device_train_batch_size: x\noptim: adafactor\nstage: dpo\n", {}),
      "r.yaml: stage is 'dpo', expected sft or pt: steps with several models are not modelled\n"
      "r.yaml: the model is not said, expected --set model.preset=NAME or --set model.config=CONFIG.json\n"
      "r.yaml: the tokens of a sequence are not said, expected --set model.seq_len=N\n"
      "r.yaml: per_device_train_batch_size is 'x', expected a whole number\n"
      "r.yaml: optim is 'adafactor', expected one of adamw's kinds, or sgd\n"
      "r.yaml: how many nodes there are is not said, expected --set cluster.nodes=N\n"
      "r.yaml: how many devices a node has is not said, expected --set cluster.devices_per_node=N\n"
      "r.yaml: the device is not said, expected --set cluster.device=NAME (see `windtunnel list devices`)");
  EXPECT_EQ(
      MistakesOf("r.yaml", "model_name_or_path: gpt2\nblock_size: 512\nnum_processes: 6\nnum_machines: 4\n",
                 {"cluster.device=a100-sxm-80g", "cluster.network=dgx-a100"})
          .substr(0, 66),
      "r.yaml: num_processes is '6', expected a multiple of the 4 nodes\nr");
}

TEST_F(ImportHuggingFace, RefusesPreferenceAndReinforcementLearning) {
  const std::string flags = " --model_name_or_path Qwen/Qwen3-8B --max_length 512";
  for (const char* program : {"trl dpo", "trl grpo", "trl reward", "trl rloo"})
    EXPECT_EQ(MistakesOf("a.sh", program + flags, kFourA100s),
              std::string("a.sh: ") + program +
                  " is of preference or reinforcement learning, whose steps are not modelled");
  EXPECT_EQ(MistakesOf("a.sh", "accelerate launch scripts/run_orpo.py" + flags, kFourA100s),
            "a.sh: run_orpo.py is of preference or reinforcement learning, whose steps are not modelled");
  EXPECT_EQ(MistakesOf("a.sh", "python -m trl.scripts.kto" + flags, kFourA100s),
            "a.sh: trl.scripts.kto is of preference or reinforcement learning, whose steps are not modelled");
  EXPECT_EQ(Imported("a.sh", "trl sft" + flags, kFourA100s).model.layers, 36);
}

// transformers' examples with a loop of their own.
TEST_F(ImportHuggingFace, HasNoTrainersDefaultsWithoutATrainer) {
  const std::string command =
      "run_clm_no_trainer.py --model_name_or_path gpt2 --block_size 512 --num_warmup_steps 10 "
      "--with_tracking";
  const Scenario s = Imported("a.sh", command, kFourA100s);
  EXPECT_EQ(s.optimizer.clip_norm, 0);
  EXPECT_FALSE(s.optimizer.fused);
  EXPECT_FALSE(s.parallel.data.find_unused_parameters);
  const std::string yaml = Yaml("a.sh", command, kFourA100s).value_or("");
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("Trainer's"), std::string::npos) << yaml;
}

TEST_F(ImportHuggingFace, KnowsArgumentsWithoutEffect) {
  const std::string yaml = Yaml("a.sh",
                                "run_clm.py --model_name_or_path gpt2 --block_size 512 "
                                "--per_gpu_train_batch_size 3 --ddp_backend nccl "
                                "--ddp_broadcast_buffers False --fp16_backend auto --no_cuda False "
                                "--auto_find_batch_size True --bf16 "
                                "--tf32 True --gradient_checkpointing --fsdp_activation_checkpointing true",
                                kFourA100s)
                               .value_or("");
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("  micro: 3 "), std::string::npos) << yaml;
  const std::string axolotl =
      Yaml("a.yml", "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 512\ntf32: false\nbf16: auto\n",
           {"cluster.device=a100-sxm-80g", "cluster.nodes=1", "cluster.devices_per_node=4",
            "model.preset=llama3-8b"})
          .value_or("");
  EXPECT_NE(axolotl, "");
  EXPECT_EQ(axolotl.find("Not known"), std::string::npos) << axolotl;
}

}  // namespace
}  // namespace windtunnel
