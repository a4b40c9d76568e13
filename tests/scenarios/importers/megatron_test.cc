#include "tests/scenarios/importers/importing.h"

namespace windtunnel {
namespace {

// A small run on one node, with flags behind it.
std::string Script(const std::string& flags, const std::string& program = "pretrain_gpt.py") {
  return "torchrun --nproc_per_node 8 --nnodes 1 " + program +
         " --num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 "
         "--max-position-embeddings 512"
         " --micro-batch-size 2 --vocab-size 50257 " +
         flags;
}
const std::vector<std::string> kOneNode = {"cluster.device=a100-sxm-80g"};

Scenario ImportedScript(const std::string& flags, std::vector<std::string> sets = kOneNode) {
  return Imported("train.sh", Script(flags), sets);
}
std::string MistakesOfScript(const std::string& flags, const std::string& program = "pretrain_gpt.py") {
  return MistakesOf("train.sh", Script(flags, program), kOneNode);
}

// GPT-3 as Megatron's authors ran it, by their flags: the scenario that this project ships.
TEST(ImportMegatron, MakesOfAScriptTheScenarioThatOneWouldWrite) {
  const std::string script = R"(#!/bin/bash
#SBATCH --nodes=128
GPUS_PER_NODE=8
TP=8; PP=16
GPT_ARGS=(
    --num-layers 96
    --hidden-size 12288 --num-attention-heads 96  # d_model
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-dropout 0.0 --hidden-dropout 0.0
)
TRAINING_ARGS="
    --micro-batch-size 1
    --global-batch-size $((8 * 192))
    --lr 6e-5 --clip-grad 1.0 --weight-decay 0.0 \
    --bf16 --checkpoint-activations --optimizer adam"
torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py \
    ${GPT_ARGS[@]} $TRAINING_ARGS \
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP --overlap-grad-reduce \
    --vocab-file v.json --merge-file m.txt --data-path $DATA > log 2>&1
)";
  const Scenario imported = Imported("train_gpt3.sh", script,
                                     {"cluster.device=a100-sxm-80g",
                                      "cluster.network={intra_node: nvlink3, inter_node: {kind: infiniband, "
                                      "gbits_per_nic: 200}, nics_per_node: 8}",
                                      "optimizer.kind=adam"});
  const auto shipped = LoadScenario("scenarios/gpt3_175b_1024xa100_3d.yaml", {});
  ASSERT_TRUE(shipped) << shipped.error().message;
  Scenario expected = *shipped;
  expected.name = imported.name;
  expected.description = imported.description;
  expected.model.preset = imported.model.preset;
  EXPECT_EQ(ResolvedYaml(imported), ResolvedYaml(expected));
}

TEST(ImportMegatron, SaysWhereEachKeyComesFromAndWhatItLeavesOut) {
  const auto yaml = Import("runs/tiny.sh",
                           Script("--bf16 --save ckpt --log-interval 10 --sharp --strange-flag 1"), kOneNode);
  ASSERT_TRUE(yaml) << yaml.error().message;
  EXPECT_NE(yaml->find("# Not known, and left out: --strange-flag 1.\n"), std::string::npos) << *yaml;
  EXPECT_NE(yaml->find("# Without effect here: --save, --log-interval.\n"), std::string::npos) << *yaml;
  EXPECT_NE(yaml->find("# Not modelled: --sharp (reductions in switches"), std::string::npos) << *yaml;
  EXPECT_NE(yaml->find("name: tiny\n"), std::string::npos) << *yaml;
  EXPECT_NE(yaml->find("  param: bf16                             # --bf16\n"), std::string::npos) << *yaml;
}

// 5 layers and the loss are 3 for each of 2 stages; 7 and the loss 2 for each of 4.
TEST(ImportMegatron, CountsEmbeddingAndLossAsLayersOfAPipeline) {
  const auto balance = [](const std::string& flags) {
    return ImportedScript("--bf16 --global-batch-size 32 --pipeline-model-parallel-size 2 " + flags)
        .parallel.pipeline.balance;
  };
  const std::string embedding = " --account-for-embedding-in-pipeline-split",
                    loss = " --account-for-loss-in-pipeline-split";
  EXPECT_EQ(balance("--num-layers 5" + loss), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(balance("--num-layers 5" + embedding), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(balance("--num-layers 6" + embedding + loss), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(balance("--num-layers 7 --num-layers-per-virtual-pipeline-stage 2" + loss),
            (std::vector<int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(
      MistakesOfScript("--pipeline-model-parallel-size 2" + loss),
      "train.sh: --account-for-loss-in-pipeline-split: 5 layers, with what it counts, are no multiple of 2 "
      "stages, expected other --num-layers");
}

TEST(ImportMegatron, TakesItsOwnFsdpForWhatShardsTheSame) {
  const std::string own = "--bf16 --use-distributed-optimizer --use-megatron-fsdp";
  const std::string strategy = " --data-parallel-sharding-strategy ";
  const auto kind = [](const std::string& flags) { return ImportedScript(flags).parallel.data.kind; };
  EXPECT_EQ(kind(own + strategy + "optim_grads_params"), DataParallelKind::kFsdp);
  EXPECT_EQ(kind(own + strategy + "optim_grads"), DataParallelKind::kZero2);
  EXPECT_EQ(kind("--bf16 --use-custom-fsdp" + strategy + "optim"), DataParallelKind::kZero1);
  EXPECT_EQ(kind(own), DataParallelKind::kDdp) << "Megatron's default is no_shard";
  const std::string yaml =
      Import("train.sh", Script(own + strategy + "optim_grads_params"), kOneNode).value_or("");
  EXPECT_NE(yaml.find("# Megatron's own FSDP (--use-megatron-fsdp) is not modelled"), std::string::npos)
      << yaml;
  const DataParallelSpec hybrid =
      ImportedScript(own + strategy + "optim_grads_params --num-distributed-optimizer-instances 2")
          .parallel.data;
  EXPECT_EQ(hybrid.sharding, Sharding::kHybridShard);
  EXPECT_EQ(hybrid.shard_size, 4);
}

TEST(ImportMegatron, OffloadsTheActivationsOfSoManyLayers) {
  const Scenario s = ImportedScript("--bf16 --cpu-offloading-num-layers 3");
  EXPECT_TRUE(s.activation_offload);
  EXPECT_EQ(s.activation_offload_layers, 3);
  EXPECT_FALSE(ImportedScript("--bf16 --cpu-offloading-num-layers 0").activation_offload);
}

TEST(ImportMegatron, AsksForTheSizeOfBucketsOfWhichItKnowsTheNumber) {
  const auto yaml = [](const std::string& flags) {
    return Import("train.sh", Script("--bf16 --ddp-num-buckets 8 " + flags), kOneNode).value_or("");
  };
  EXPECT_NE(yaml("--overlap-grad-reduce").find("# --ddp-num-buckets 8 is left out"), std::string::npos);
  EXPECT_NE(yaml("").find("# Without effect here: --ddp-num-buckets."), std::string::npos) << "one bucket";
}

TEST(ImportMegatron, KnowsFlagsThatSayWhatAnotherSays) {
  const std::string yaml =
      Import(
          "train.sh",
          Script("--bf16 --fp4-format e2m1 --fp4-recipe nvfp4 --num-experts 8 --expert-model-parallel-size 2 "
                 "--moe-token-dispatcher-type flex --moe-enable-deepep"),
          {"cluster.device=b200-sxm-180g"})
          .value_or("");
  EXPECT_NE(yaml.find("dispatcher: deepep"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
  EXPECT_EQ(MistakesOfScript("--bf16 --fp4-format e2m1 --fp4-recipe mxfp4"),
            "train.sh: --fp4-recipe is 'mxfp4', expected nvfp4");
}

TEST(ImportMegatron, SaysWhichValuesAreDefaults) {
  const auto remark = [](const std::string& line, const std::string& flags) {
    return RemarkOf(line, Import("train.sh", Script(flags), kOneNode).value_or(""));
  };
  EXPECT_EQ(remark("kind: zero2", "--zero-stage 2"), "--zero-stage");
  EXPECT_EQ(remark("kind: ddp", ""), "Megatron's default");
  EXPECT_EQ(remark("dropout:", "--hidden-dropout 0"), "--hidden-dropout, Megatron's default");
  EXPECT_EQ(remark("dropout:", ""), "Megatron's default");
  EXPECT_EQ(remark("position:", "--use-rotary-position-embeddings"), "--use-rotary-position-embeddings");
}

TEST(ImportMegatron, HasMegatronsDefaults) {
  const Scenario scenario = ImportedScript("");
  EXPECT_EQ(scenario.model.dropout, 0.1);
  EXPECT_EQ(scenario.model.ffn, 4096);
  EXPECT_EQ(scenario.model.vocab, 50304) << "to a multiple of 128";
  EXPECT_TRUE(scenario.model.bias && scenario.model.tie_embeddings);
  EXPECT_EQ(scenario.optimizer.clip_norm, 1.0);
  EXPECT_EQ(scenario.parallel.data.kind, DataParallelKind::kDdp);
  EXPECT_FALSE(scenario.parallel.data.overlap);
  EXPECT_EQ(scenario.framework, Framework::kMegatronCore);
  EXPECT_EQ(ImportedScript("--swiglu").model.ffn, 2688)
      << "two thirds of 4 x 1,024, 2,730, in multiples of 64";
}

TEST(ImportMegatron, DividesTheRanksAndTheBatch) {
  const Scenario scenario = ImportedScript(
      "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
      "--global-batch-size 32 "
      "--num-layers-per-virtual-pipeline-stage 1 --use-distributed-optimizer --overlap-grad-reduce "
      "--overlap-param-gather "
      "--bf16");
  EXPECT_EQ(scenario.parallel.data.size, 2);
  EXPECT_EQ(scenario.batch.accumulate, 8) << "32 / (2 x 2)";
  EXPECT_EQ(scenario.parallel.pipeline.virtual_stages, 2) << "4 / (2 x 1)";
  EXPECT_EQ(scenario.parallel.data.kind, DataParallelKind::kZero1);
  EXPECT_TRUE(scenario.parallel.data.overlap && scenario.parallel.data.overlap_param_gather);
  EXPECT_TRUE(scenario.parallel.tensor.sequence);
  EXPECT_EQ(scenario.model.vocab, 50432) << "to a multiple of 2 x 128";
}

TEST(ImportMegatron, ReadsExpertsAndLatentAttention) {
  const Scenario scenario = ImportedScript(
      "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512 --ffn-hidden-size 4096 --moe-layer-freq "
      "([0]*1+[1]*3) "
      "--expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall --multi-latent-attention "
      "--kv-lora-rank 128 "
      "--qk-head-dim 64 --qk-pos-emb-head-dim 32 --v-head-dim 64 --position-embedding-type rope --swiglu "
      "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --bf16");
  ASSERT_TRUE(scenario.model.experts && scenario.model.latent_attention);
  EXPECT_EQ(scenario.model.experts->count, 8);
  EXPECT_EQ(scenario.model.experts->first_dense, 1);
  EXPECT_EQ(scenario.model.experts->dense_ffn, 4096);
  EXPECT_EQ(scenario.model.experts->capacity_factor, 0);
  EXPECT_EQ(scenario.model.ffn, 512);
  EXPECT_EQ(scenario.parallel.expert.size, 4);
  EXPECT_EQ(scenario.model.latent_attention->kv_rank, 128);
  EXPECT_EQ(scenario.model.head_dim, 96);
  EXPECT_EQ(ImportedScript(
                "--multi-latent-attention --qk-head-dim 64 --qk-pos-emb-head-dim 32 --kv-channels 64 --bf16 "
                "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear")
                .model.head_dim,
            96)
      << "--kv-channels is of other heads";
}

TEST(ImportMegatron, NotesTypesOfMastersThatAreNotModelled) {
  const auto notes = [](const std::string& type) {
    return Import("train.sh", Script("--bf16 --main-params-dtype " + type), kOneNode).value();
  };
  EXPECT_NE(notes("fp16").find("Not modelled: --main-params-dtype fp16"), std::string::npos);
  EXPECT_EQ(notes("fp32").find("--main-params-dtype"), std::string::npos) << "as they always are";
}

TEST(ImportMegatron, ReadsTheLayoutOfAPipeline) {
  const std::string flags =
      "--num-layers 8 --pipeline-model-parallel-size 2 --bf16 --pipeline-model-parallel-layout ";
  const PipelineSpec pipeline =
      ImportedScript(flags + "'Et*3|(tt|)*2tL' --global-batch-size 32").parallel.pipeline;
  EXPECT_EQ(pipeline.balance, (std::vector<int64_t>{3, 2, 2, 1}));
  EXPECT_EQ(pipeline.virtual_stages, 2);
  EXPECT_EQ(pipeline.schedule, "interleaved");
  EXPECT_NE(MistakesOfScript(flags + "'Et*3|tt|tttL'").find("stages for 2 pipeline ranks"),
            std::string::npos);
  EXPECT_NE(MistakesOfScript(flags + "'Et*4|m|tttt|L'").find("which cannot be expressed"), std::string::npos);
  EXPECT_NE(MistakesOfScript(flags + "'E(t*4|x'").find("stages for 2"), std::string::npos);
}

TEST(ImportMegatron, ReadsTheStageOfMultiTokenPrediction) {
  const std::string flags =
      "--num-layers 8 --pipeline-model-parallel-size 2 --bf16 --mtp-num-layers 1 --position-embedding-type "
      "rope "
      "--untie-embeddings-and-output-weights --global-batch-size 32 --pipeline-model-parallel-layout ";
  const PipelineSpec before = ImportedScript(flags + "'Et*4|tttt|m|L'").parallel.pipeline;
  EXPECT_EQ(before.mtp, MtpStage::kBeforeLast);
  EXPECT_EQ(before.balance, (std::vector<int64_t>{4, 4, 0, 0}));
  const PipelineSpec of_two = ImportedScript(flags + "'Et*8m|L'").parallel.pipeline;
  EXPECT_EQ(of_two.mtp, MtpStage::kBeforeLast);
  EXPECT_EQ(of_two.balance, (std::vector<int64_t>{8, 0}));
  const std::vector<std::string> sets = {"cluster.device=a100-sxm-80g",
                                         "parallel.pipeline.balance=[3, 5, 0, 0]"};
  EXPECT_EQ(ImportedScript(flags + "'Et*4|tttt|m|L'", sets).parallel.pipeline.mtp, MtpStage::kBeforeLast);
  EXPECT_NE(MistakesOfScript(flags + "'Et*4m|ttttmL'").find("which cannot be expressed"), std::string::npos);
  const PipelineSpec with_loss = ImportedScript(flags + "'Et*4|(tt|)*2mL'").parallel.pipeline;
  EXPECT_EQ(with_loss.mtp, MtpStage::kLast);
  EXPECT_EQ(with_loss.balance, (std::vector<int64_t>{4, 2, 2, 0}));
}

TEST(ImportMegatron, ReadsWindowsAndOrdersOfExperts) {
  for (const char* window : {"127,0", "(127, 0)", "127 0"}) {
    const Scenario scenario = ImportedScript(std::string("--bf16 --window-attn-skip-freq 4 --window-size ") +
                                             (window[0] == '(' ? "'(127, 0)'" : window));
    ASSERT_TRUE(scenario.model.sliding_window) << window;
    EXPECT_EQ(scenario.model.sliding_window->tokens, 128) << window;
    EXPECT_EQ(scenario.model.sliding_window->full_every, 4) << window;
  }
  EXPECT_NE(MistakesOfScript("--window-size 127,127").find("expected a window to the left"),
            std::string::npos);
  const std::string experts = "--bf16 --num-experts 4 --moe-router-topk 1 --moe-layer-freq ";
  EXPECT_EQ(ImportedScript(experts + "2").model.experts->every, 2);
  EXPECT_EQ(ImportedScript(experts + "'([1]*4)'").model.experts->first_dense, 0);
  EXPECT_NE(MistakesOfScript(experts + "'([0,1]*2)'").find("other orders are not modelled"),
            std::string::npos);
}

TEST(ImportMegatron, ReadsUnequalStagesPrecisionAndRecomputation) {
  const Scenario scenario = ImportedScript(
      "--num-layers 10 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
      "--decoder-last-pipeline-num-layers 2 --bf16 --fp8-format hybrid --fp8-recipe tensorwise "
      "--grad-reduce-in-bf16 "
      "--recompute-granularity full --recompute-method block --recompute-num-layers 1 --global-batch-size "
      "64");
  EXPECT_EQ(scenario.parallel.pipeline.balance, (std::vector<int64_t>{2, 3, 3, 2}));
  EXPECT_EQ(scenario.precision.compute, Precision::kFp8);
  EXPECT_EQ(scenario.precision.reduce, Precision::kBf16);
  EXPECT_EQ(scenario.recompute_layers, 1);
}

TEST(ImportMegatron, LeavesOutVariablesThatStandForFlags) {
  const auto yaml = Import("train.sh", Script("--bf16 $MORE --lr 1e-4 $OTHERS"), kOneNode);
  ASSERT_TRUE(yaml) << yaml.error().message;
  EXPECT_NE(yaml->find("lr: 0.0001"), std::string::npos) << *yaml;
  EXPECT_NE(yaml->find("# Left out, since it is not known what they are or"), std::string::npos) << *yaml;
}

TEST(ImportMegatron, ReadsTheOptionsOfSlurm) {
  const std::vector<std::string> sets = {"cluster.device=a100-sxm-80g", "cluster.network=dgx-a100"};
  const std::string command =
      Script("--bf16").substr(std::string("torchrun --nproc_per_node 8 --nnodes 1").size());
  for (const char* launcher :
       {"#SBATCH -N 2\n#SBATCH --gres=gpu:h100:4\nsrun python",
        "#SBATCH --nodes 2 --ntasks-per-node 4\nsrun python", "srun -l -N 2 --gpus-per-node=4 python",
        "/usr/bin/srun --mpi pmix -N2 -n 8 --gres gpu:4 python", "srun -lN2 --gpus-per-node=4 python",
        "#SBATCH -N 8 --gres=gpu:8\nsrun -N 2 --gres=gpu:4 python",
        "#SBATCH --nodes=2\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node 4"}) {
    const auto yaml = Import("train.sh", launcher + command, sets);
    ASSERT_TRUE(yaml) << launcher << ": " << yaml.error().message;
    const ClusterSpec cluster = ParseScenario(*yaml, "s.yaml", "/somewhere", {}).value().cluster;
    EXPECT_EQ(cluster.nodes, 2) << launcher;
    EXPECT_EQ(cluster.devices_per_node, 4) << launcher;
    EXPECT_EQ(yaml->find("Not known"), std::string::npos) << *yaml;
  }
}

// What is derived follows --set, too: 32 sequences are 8 micro-batches of 2 on 2 data ranks, or 2 of 4 on 4.
TEST(ImportMegatron, DerivesFromWhatIsSet) {
  const std::string flags = "--tensor-model-parallel-size 4 --global-batch-size 32 --bf16";
  EXPECT_EQ(ImportedScript(flags).batch.accumulate, 8);
  const Scenario set =
      ImportedScript(flags, {"cluster.device=a100-sxm-80g", "parallel.tensor.size=2", "batch.micro=4"});
  EXPECT_EQ(set.parallel.tensor.size, 2);
  EXPECT_EQ(set.parallel.data.size, 4);
  EXPECT_EQ(set.batch.accumulate, 2);
  EXPECT_EQ(ImportedScript("--bf16", {"cluster.device=a100-sxm-80g", "model.hidden=2048"}).model.ffn, 8192);
}

TEST(ImportMegatron, RefusesSizesThatNobodyHas) {
  const std::string huge = "9000000000000000000";
  EXPECT_NE(
      MistakesOfScript("--tensor-model-parallel-size " + huge + " --pipeline-model-parallel-size " + huge),
      "");
  EXPECT_NE(MistakesOfScript("--micro-batch-size " + huge + " --global-batch-size " + huge), "");
}

TEST(ImportMegatron, AsksForWhatAScriptDoesNotSay) {
  EXPECT_EQ(
      MistakesOf("train.sh", "torchrun --nnodes $N pretrain_gpt.py --num-layers 4 --hidden-size $H", {}),
      "train.sh: --hidden-size is '$H', which is not known here, expected --define H=VALUE\n"
      "train.sh: --num-attention-heads is missing, expected it or --set model.heads=N\n"
      "train.sh: --seq-length is missing, expected it or --set model.seq_len=N\n"
      "train.sh: the size of the vocabulary is not said, expected --set model.vocab=N\n"
      "train.sh: --nnodes is '$N', which is not known here, expected --set cluster.nodes=N\n"
      "train.sh: how many devices a node has is not said, expected --set cluster.devices_per_node=N\n"
      "train.sh: the device is not said, expected --set cluster.device=NAME (see `windtunnel list devices`)");
  EXPECT_EQ(MistakesOf("train.sh", "echo hello", {}),
            "train.sh: no flags (--num-layers …) are there, expected the command of a training");
}

TEST(ImportMegatron, NamesWhatDoesNotFitOrCannotBeExpressed) {
  EXPECT_EQ(MistakesOfScript("--tensor-model-parallel-size 3"),
            "train.sh: 8 ranks cannot be divided among 3 tensor x 1 pipeline x 1 context ranks; expected a "
            "multiple of 3, "
            "as in --set cluster.nodes=N");
  EXPECT_EQ(
      MistakesOfScript("--global-batch-size 24"),
      "train.sh: --global-batch-size is '24', expected a multiple of 16 (8 data ranks x micro-batches of 2)");
  EXPECT_EQ(MistakesOfScript("--micro-batch-size two"),
            "train.sh: --micro-batch-size is 'two', expected a whole number");
  EXPECT_EQ(
      MistakesOfScript("--position-embedding-type alibi"),
      "train.sh: --position-embedding-type is 'alibi', expected learned_absolute, rope, relative or none, "
      "since others are not modelled");
  EXPECT_EQ(MistakesOfScript("--encoder-pipeline-model-parallel-size 1", "pretrain_t5.py"),
            "train.sh: --encoder-pipeline-model-parallel-size: an encoder with ranks of its own cannot be "
            "expressed");
  EXPECT_EQ(MistakesOfScript("", "pretrain_vlm.py"),
            "train.sh: models of pretrain_vlm.py cannot be expressed; GPT's, BERT's, T5's and Mamba-2's can");
  EXPECT_EQ(MistakesOfScript("--heterogeneous-layers-config-path layers.json"),
            "train.sh: --heterogeneous-layers-config-path: such models cannot be expressed");
  // What the loader refuses has its place in the scenario.
  EXPECT_EQ(MistakesOfScript("--num-attention-heads 7").substr(0, 29), "the scenario of train.sh:6:10");
}

// examples/t5/train_t5_220m_distributed.sh of Megatron-LM; and with what both halves share.
TEST(ImportMegatron, T5HasAnEncoder) {
  const std::vector<std::string> sets = {"cluster.device=a100-sxm-80g", "cluster.nodes=1",
                                         "cluster.devices_per_node=8"};
  const std::string rest =
      " --hidden-size 768 --num-attention-heads 12 --kv-channels 64 --ffn-hidden-size 3072 "
      "--max-position-embeddings 512 --micro-batch-size 64 --global-batch-size 512 --vocab-extra-ids 100 "
      "--tokenizer-type BertWordPieceCase --vocab-file v --bf16\n";
  const Scenario scenario =
      Imported("train.sh",
               "torchrun --nproc_per_node 8 pretrain_t5.py --encoder-num-layers 12 --decoder-num-layers 6 "
               "--encoder-seq-length 512 --decoder-seq-length 128" +
                   rest,
               sets);
  EXPECT_EQ(scenario.model.encoder, (EncoderSpec{.layers = 12, .seq_len = 512}));
  EXPECT_EQ(scenario.model.layers, 6);
  EXPECT_EQ(scenario.model.seq_len, 128);
  EXPECT_EQ(scenario.model.vocab, 29184);  // 28,996 + 100, to a multiple of 128
  EXPECT_EQ(scenario.batch.accumulate, 1);
  const Scenario shared = Imported(
      "train.sh", "torchrun --nproc_per_node 8 pretrain_t5.py --num-layers 4 --seq-length 256" + rest, sets);
  EXPECT_EQ(shared.model.encoder, (EncoderSpec{.layers = 4, .seq_len = 256}));
  EXPECT_EQ(shared.model.layers, 4);
  EXPECT_EQ(shared.model.seq_len, 256);
}

// A scope is given by words, or by one word that stands for whole layers in older versions.
TEST(ImportMegatron, ReadsCudaGraphs) {
  const std::vector<std::string> sets = {"cluster.device=h100-sxm-80g"};
  const auto run_of = [&](const std::string& flags) {
    return Imported("train.sh",
                    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 256 "
                    "--num-attention-heads 4 --seq-length 256 --micro-batch-size 1 --global-batch-size 8 "
                    "--vocab-size 1024 --transformer-impl transformer_engine " +
                        flags,
                    sets)
        .run;
  };
  using Scope = std::vector<CudaGraphScope>;
  const RunSpec none = run_of("--cuda-graph-scope attn");
  EXPECT_FALSE(none.cuda_graphs);
  EXPECT_EQ(none.cuda_graph_scope, Scope{});
  const RunSpec parts = run_of("--cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp");
  EXPECT_TRUE(parts.cuda_graphs);
  EXPECT_EQ(parts.cuda_graph_scope, (Scope{CudaGraphScope::kAttention, CudaGraphScope::kMlp}));
  EXPECT_EQ(run_of("--cuda-graph-impl local --cuda-graph-modules attn,mlp").cuda_graph_scope,
            parts.cuda_graph_scope);
  for (const char* whole :
       {"--enable-cuda-graph", "--external-cuda-graph --cuda-graph-scope full", "--cuda-graph-impl local"}) {
    const RunSpec layers = run_of(whole);
    EXPECT_TRUE(layers.cuda_graphs) << whole;
    EXPECT_EQ(layers.cuda_graph_scope, Scope{}) << whole;
  }
  EXPECT_EQ(run_of("--cuda-graph-impl full_iteration").cuda_graph_scope,
            Scope{CudaGraphScope::kFullIteration});
  EXPECT_EQ(run_of("--cuda-graph-impl local --cuda-graph-scope 'attn mlp' attn full_iteration_inference")
                .cuda_graph_scope,
            parts.cuda_graph_scope);
  // What cannot be modelled is left out.
  for (const char* without : {"--cuda-graph-impl local --num-experts 8",
                              "--cuda-graph-impl local --cuda-graph-scope full_iteration "
                              "--pipeline-model-parallel-size 2"})
    EXPECT_FALSE(run_of(without).cuda_graphs) << without;
}

TEST(ImportMegatron, ReadsTheArgumentsOfFunctionalTestsAndOfACommand) {
  const std::vector<std::string> sets = {"cluster.device=a100-sxm-80g", "cluster.nodes=1",
                                         "cluster.devices_per_node=4"};
  const Scenario scenario =
      Imported("model_config.yaml",
               "ENV_VARS: {A: 1}\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n"
               "  --num-attention-heads: 8\n  --seq-length: 1024\n  --micro-batch-size: 4\n"
               "  --global-batch-size: 32\n  --vocab-size: 1024\n  --bf16: true\n  --swiglu: false\n"
               "  --recompute-modules: [core_attn]\n  --recompute-granularity: selective\n",
               sets);
  EXPECT_EQ(scenario.model.layers, 12);
  EXPECT_EQ(scenario.batch.accumulate, 2);
  EXPECT_EQ(scenario.model.activation, ActivationKind::kGelu);
  ImportRequest request;
  request.source = "the command";
  request.command = {"torchrun",
                     "--nnodes=1",
                     "--nproc-per-node",
                     "2",
                     "pretrain_gpt.py",
                     "--num-layers",
                     "2",
                     "--hidden-size=256",
                     "--num-attention-heads",
                     "4",
                     "--seq-length",
                     "128",
                     "--micro-batch-size",
                     "1",
                     "--vocab-size",
                     "512"};
  request.sets = {{"cluster.device", "a100-sxm-80g"}};
  const auto yaml = ImportScenario(request);
  ASSERT_TRUE(yaml) << yaml.error().message;
  EXPECT_NE(yaml->find("devices_per_node: 2"), std::string::npos);
}

// What a newcomer may give: commands of programs that are none of those that are known.
TEST(ImportMegatron, SaysThatACommandIsAnotherPrograms) {
  const std::string neither =
      "has neither flags of Megatron-LM (--num-layers …) nor of Hugging Face's Trainer (--model_name_or_path "
      "…), expected a command of one of these; --from PROGRAM says that it is";
  EXPECT_EQ(
      MistakesOf("train.sh", "torchrun --standalone --nproc_per_node=8 train.py --n_layer=12", kOneNode),
      "train.sh: train.py " + neither);
  EXPECT_EQ(MistakesOf("train.sh", "tune run --nproc_per_node 8 lora --config llama3/8B", kOneNode),
            "train.sh: " + neither);
  EXPECT_EQ(
      MistakesOf("train.sh", "torchrun -m torchtitan.train --job.config_file ./llama3_8b.toml", kOneNode),
      "train.sh: --job.config_file is torchtitan's, expected its TOML file, ./llama3_8b.toml");
  EXPECT_NE(MistakesOf("train.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS", kOneNode)
                .find("--num-layers is missing"),
            std::string::npos)
      << "Megatron's, whose flags are not known";
}

TEST(ImportMegatron, SaysWhichOtherFilesItWasGiven) {
  EXPECT_EQ(MistakesOf("s.yaml", "model: {preset: llama3-8b}\ncluster: {device: h100-sxm-80g}\n", kOneNode),
            "s.yaml: this is a scenario already, expected what another program is told to train");
  EXPECT_EQ(
      MistakesOf("tune.yaml", "model: {_component_: torchtune.models.llama3.llama3_8b}\nseed: 1\n", kOneNode),
      "tune.yaml: has no MODEL_ARGS, expected a launch script or these")
      << "torchtune's";
  EXPECT_EQ(
      MistakesOf("nemo.yaml",
                 "trainer: {num_nodes: 8, devices: 8}\nmodel: {micro_batch_size: 1, "
                 "tensor_model_parallel_size: 4, num_layers: 80}\n",
                 kOneNode),
      "nemo.yaml: model.tensor_model_parallel_size is NeMo's, whose configurations are not read, expected a "
      "launch script with flags of Megatron-LM (--tensor-model-parallel-size …)");
  EXPECT_EQ(
      MistakesOf("config.json", R"({"model_type": "llama", "num_hidden_layers": 32})", kOneNode),
      "config.json: this is the configuration of a model, which --set model.config=FILE takes; expected what "
      "says how it is trained");
}

TEST(ImportMegatron, ReadsTheFormsOfLaunchers) {
  const std::string command = Script("--bf16");
  const std::string behind = command.substr(std::string("torchrun --nproc_per_node 8 --nnodes 1").size());
  const std::vector<std::string> sets = {"cluster.device=a100-sxm-80g", "cluster.network=dgx-a100"};
  const auto size = [&](const std::string& launcher) {
    const ClusterSpec cluster = Imported("train.sh", launcher + behind, sets).cluster;
    return std::to_string(cluster.nodes) + " x " + std::to_string(cluster.devices_per_node);
  };
  EXPECT_EQ(size("torchrun --nproc_per_node=8"), "1 x 8") << "torchrun's default";
  EXPECT_EQ(size("torchrun --nnodes=1:1 --nproc-per-node 8"), "1 x 8");
  EXPECT_EQ(size("torchrun --nnodes 1:4 --nproc-per-node 8"), "4 x 8") << "with all of them";
  EXPECT_EQ(size("deepspeed --include localhost:0,1,2,3"), "1 x 4");
  EXPECT_EQ(size("deepspeed --include=a:0,1@b:2,3"), "2 x 2");
  EXPECT_EQ(size("mpirun -np 16 -H a:8,b:8 python"), "2 x 8");
  EXPECT_EQ(size("mpirun -np 4 --host a,b python"), "2 x 2");
  EXPECT_EQ(Imported("train.sh", command + " --host 0.0.0.0 --include a@b --np 3", kOneNode).cluster.nodes,
            1);
  EXPECT_EQ(
      RemarkOf("nodes:",
               Import("train.sh", "torchrun --nproc_per_node 8" + behind + " --host 0.0.0.0,1.1.1.1", sets)
                   .value_or("")),
      "torchrun's default")
      << "the program's --host";
  EXPECT_EQ(
      RemarkOf("nodes:",
               Import("train.sh", "torchrun --nnodes 1:4 --nproc-per-node 8" + behind, sets).value_or("")),
      "--nnodes 1:4, with all of them");
  EXPECT_EQ(MistakesOf("train.sh", "torchrun --nnodes 1 --nproc-per-node gpu" + behind, kOneNode),
            "train.sh: --nproc-per-node is 'gpu', all devices of a node, expected --set "
            "cluster.devices_per_node=N");
}

TEST(ImportMegatron, HasDeepSpeedsOverlap) {
  const Scenario zero3 = ImportedScript("--deepspeed --zero-stage 3 --bf16");
  EXPECT_TRUE(zero3.parallel.data.overlap);
  EXPECT_FALSE(ImportedScript("--deepspeed --zero-stage 2 --bf16").parallel.data.overlap);
  EXPECT_EQ(
      RemarkOf("overlap:", Import("train.sh", Script("--deepspeed --zero-stage 3"), kOneNode).value_or("")),
      "DeepSpeed's default");
}

TEST(ImportMegatron, RefusesVirtualStagesThatDoNotDivideTheLayers) {
  EXPECT_EQ(
      MistakesOfScript("--num-layers 32 --pipeline-model-parallel-size 4 --global-batch-size 32 "
                       "--num-layers-per-virtual-pipeline-stage 3"),
      "train.sh: --num-layers-per-virtual-pipeline-stage is '3', expected a number whose product with 4 "
      "pipeline ranks divides 32 layers");
  const std::string huge = " --num-layers-per-virtual-pipeline-stage 900000000000000";
  EXPECT_NE(MistakesOfScript("--pipeline-model-parallel-size 900000000000000" + huge), "");
}

TEST(ImportMegatron, OffloadsTheOptimizerWhereItsFlagSaysSo) {
  const auto yaml = [](const std::string& flags) {
    return Import("train.sh", Script("--use-distributed-optimizer --optimizer-offload-fraction " + flags),
                  kOneNode)
        .value_or("");
  };
  EXPECT_EQ(yaml("0.5").find("on the host"), std::string::npos) << yaml("0.5");
  EXPECT_EQ(yaml("0.5").find("offload: optimizer"), std::string::npos) << yaml("0.5");
  const std::string none = yaml("0 --optimizer-cpu-offload"), all = yaml("1 --optimizer-cpu-offload");
  EXPECT_EQ(none.find("on the host"), std::string::npos) << none;
  EXPECT_EQ(none.find("offload: optimizer"), std::string::npos) << none;
  EXPECT_EQ(all.find("on the host"), std::string::npos) << all;
  EXPECT_NE(all.find("offload: optimizer"), std::string::npos) << all;
}

TEST(ImportMegatron, KnowsWhichFlagsAreNotModelled) {
  const std::string yaml =
      Import("train.sh",
             Script("--bf16 --cuda-graph-impl none --overlap-p2p-communication "
                    "--defer-embedding-wgrad-compute --microbatch-group-size-per-virtual-pipeline-stage 4 "
                    "--optimizer-cpu-offload --optimizer-offload-fraction 0.5 --use-distributed-optimizer"),
             kOneNode)
          .value_or("");
  EXPECT_NE(yaml.find("# Not modelled: --defer-embedding-wgrad-compute (weight"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("# Without effect here: --overlap-p2p-communication.\n"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("cuda_graphs"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("a share of them"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
  EXPECT_EQ(yaml.find("left out"), std::string::npos) << yaml;
}

}  // namespace
}  // namespace windtunnel
