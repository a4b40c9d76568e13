// Megatron-LM's models with Mamba-2 layers, and with gated delta networks.
#include "tests/scenarios/importers/importing.h"

namespace windtunnel {
namespace {

const std::vector<std::string> kOneNode = {"cluster.device=h100-sxm-80g"};

// A small run on one node, with flags behind it.
std::string Script(const std::string& flags, const std::string& program = "pretrain_mamba.py") {
  return "torchrun --nproc_per_node 8 --nnodes 1 " + program +
         " --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --micro-batch-size 2 --vocab-size "
         "50257 "
         "--position-embedding-type none --normalization RMSNorm --disable-bias-linear --bf16 " +
         flags;
}
ModelSpec ModelOf(const std::string& flags) { return Imported("train.sh", Script(flags), kOneNode).model; }
std::string MistakesOfScript(const std::string& flags) {
  return MistakesOf("train.sh", Script(flags), kOneNode);
}
std::string YamlOf(const std::string& flags) {
  return Import("train.sh", Script(flags), kOneNode).value_or("");
}

// The flags of Nemotron 3 Nano's pre-training, as of Megatron-LM's recipes: the preset.
TEST(ImportMegatronHybrid, MakesOfNemotronsFlagsThePreset) {
  const std::string script = R"(
torchrun --nproc_per_node 8 --nnodes 4 pretrain_hybrid.py \
    --squared-relu --overlap-grad-reduce --overlap-param-gather --tensor-model-parallel-size 1 \
    --expert-model-parallel-size 32 --expert-tensor-parallel-size 1 --pipeline-model-parallel-size 1 \
    --use-distributed-optimizer --hybrid-layer-pattern MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME \
    --spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec --hidden-size 2688 \
    --num-attention-heads 32 --group-query-attention --num-query-groups 2 --mamba-num-heads 64 \
    --untie-embeddings-and-output-weights --init-method-std 0.0173 --position-embedding-type none \
    --ffn-hidden-size 1856 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192 \
    --micro-batch-size 1 --global-batch-size 64 --normalization RMSNorm --disable-bias-linear --bf16 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --num-experts 128 --moe-router-topk 6 \
    --moe-ffn-hidden-size 1856 --moe-shared-expert-intermediate-size 3712 --moe-grouped-gemm \
    --moe-router-score-function sigmoid --moe-token-dispatcher-type alltoall --padded-vocab-size 131072
)";
  const std::vector<std::string> sets = {"cluster.device=h100-sxm-80g", "cluster.network=dgx-h100"};
  const Scenario scenario = Imported("nano.sh", script, sets);
  ModelSpec nano = ParseScenario("model: {preset: nemotron3-nano-30b}\n", "s.yaml", "/somewhere", {})->model;
  nano.preset.clear();
  EXPECT_EQ(scenario.model, nano);
  EXPECT_EQ(scenario.parallel.expert.size, 32);
  const std::string yaml = Import("nano.sh", script, sets).value_or("");
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
  EXPECT_EQ(RemarkOf("pattern:", yaml), "--hybrid-layer-pattern");
}

TEST(ImportMegatronHybrid, HasMegatronsDefaults) {
  const ModelSpec model = ModelOf("--num-layers 6 --hybrid-override-pattern 'M-MM*-'");
  ASSERT_TRUE(model.mamba);
  EXPECT_EQ(*model.mamba, (MambaSpec{.pattern = "M-MM*-", .heads = 32, .groups = 8, .chunk = 128}))
      << "2 x 1,024 / 64 heads";
  EXPECT_EQ(model.layers, 4);
  EXPECT_EQ(model.position, PositionKind::kNone);
  EXPECT_EQ(model.heads, 16);
  const ModelSpec other = ModelOf(
      "--hybrid-override-pattern 'M-MM*-' --is-hybrid-model --mamba-state-dim 64 --mamba-head-dim 32 "
      "--mamba-num-groups 4 --mamba-num-heads 40");
  EXPECT_EQ(
      *other.mamba,
      (MambaSpec{.pattern = "M-MM*-", .state = 64, .head_dim = 32, .heads = 40, .groups = 4, .chunk = 128}));
}

TEST(ImportMegatronHybrid, IsMamba2AloneWithoutAPattern) {
  const ModelSpec model = ModelOf("--num-layers 48 --group-query-attention --num-query-groups 8");
  ASSERT_TRUE(model.mamba);
  EXPECT_EQ(model.mamba->pattern, "M");
  EXPECT_EQ(model.layers, 48);
  EXPECT_EQ(model.heads, 32) << "Mamba-2's, since no layer has attention";
  EXPECT_EQ(model.kv_heads, 32);
  EXPECT_NE(MistakesOfScript("").find("--num-layers is missing"), std::string::npos);
  // The same flag makes hybrids of other programs.
  EXPECT_TRUE(Imported("train.sh", Script("--num-layers 2 --is-hybrid-model", "pretrain_gpt.py"), kOneNode)
                  .model.mamba);
  EXPECT_FALSE(Imported("train.sh", Script("--num-layers 2", "pretrain_gpt.py"), kOneNode).model.mamba);
}

// By megatron/core/ssm/mamba_hybrid_layer_allocation.py.
TEST(ImportMegatronHybrid, DistributesLayersByTheirShares) {
  const auto pattern = [](const std::string& flags) { return ModelOf(flags).mamba->pattern; };
  EXPECT_EQ(pattern("--num-layers 24 --hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.25"),
            "MMM-MM-*MMM-MMM-*MM-MMM-");
  EXPECT_EQ(pattern("--num-layers 8 --hybrid-mlp-ratio 0.5"), "M-M-M-M-");
  EXPECT_EQ(pattern("--num-layers 6 --hybrid-attention-ratio 0.3 --hybrid-override-pattern 'MM*MM*'"),
            "MM*MM*");
  EXPECT_EQ(ModelOf("--num-layers 8 --hybrid-attention-ratio 0 --hybrid-mlp-ratio 0").mamba->pattern, "M");
  // Two MLPs follow one mixer: megatron's 8B hybrid.
  const ModelSpec two = ModelOf("--num-layers 56 --hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5");
  EXPECT_NE(two.mamba->pattern.find("M--"), std::string::npos);
  EXPECT_EQ(two.CountLayers([](const LayerKind& kind) { return kind.has_mlp; }), 28);
  EXPECT_EQ(two.CountLayers(ModelSpec::HasAttention), 4);
  EXPECT_NE(
      MistakesOfScript("--num-layers 8 --hybrid-attention-ratio 0.6 --hybrid-mlp-ratio 0.5")
          .find("--hybrid-mlp-ratio is '0.5', expected shares of attention and MLPs from 0 to 1 together"),
      std::string::npos);
  EXPECT_NE(MistakesOfScript("--num-layers 100000 --hybrid-mlp-ratio 0.5").find("expected from 1 to 1000"),
            std::string::npos);
}

TEST(ImportMegatronHybrid, DividesTheLettersAmongStages) {
  const std::string pipeline = "--pipeline-model-parallel-size 2 --global-batch-size 32 ";
  const auto of = [&](const std::string& flags) {
    return Imported("train.sh", Script(pipeline + flags), kOneNode).parallel.pipeline;
  };
  EXPECT_EQ(of("--hybrid-override-pattern 'M-M-MM*-'").balance, (std::vector<int64_t>{2, 3}))
      << "four letters each";
  const PipelineSpec marked = of("--hybrid-layer-pattern 'M-M-|M*-M|MM-|*-'");
  EXPECT_EQ(marked.balance, (std::vector<int64_t>{2, 3, 2, 1}));
  EXPECT_EQ(marked.virtual_stages, 2);
  EXPECT_EQ(marked.schedule, "interleaved");
  const std::string apart = YamlOf(pipeline + "--hybrid-override-pattern 'M-MM-M*-'");
  EXPECT_NE(apart.find("one of Megatron's stages begins with the MLP"), std::string::npos) << apart;
  EXPECT_EQ(apart.find("balance:"), std::string::npos) << apart;
  EXPECT_EQ(of("--hybrid-override-pattern M-M- --num-virtual-stages-per-pipeline-rank 0").balance,
            (std::vector<int64_t>{1, 1}));
  EXPECT_NE(MistakesOfScript(pipeline + "--hybrid-layer-pattern 'M-|M-|M-'")
                .find("--hybrid-layer-pattern has 3 stages, expected a multiple of 2 pipeline ranks"),
            std::string::npos);
}

TEST(ImportMegatronHybrid, CountsRecomputedLayersWithTheirMlps) {
  const std::string flags =
      "--hybrid-override-pattern 'M-M-M-M-' --recompute-granularity full --recompute-method ";
  const Scenario scenario = Imported("train.sh", Script(flags + "block --recompute-num-layers 4"), kOneNode);
  EXPECT_EQ(scenario.recompute_layers, 2);
  EXPECT_NE(YamlOf(flags + "uniform").find("in Megatron these are two"), std::string::npos);
}

// Letters behind a / are those of modules; older flags have them apart.
TEST(ImportMegatronHybrid, HasModulesThatPredictFurtherTokens) {
  const std::string experts = "--num-experts 16 --moe-router-topk 2 --moe-latent-size 64 ";
  const ModelSpec apart = ModelOf(
      experts + "--hybrid-layer-pattern 'MEM*E/*E/*E' --mtp-use-repeated-layer --keep-mtp-spec-in-bf16");
  ASSERT_TRUE(apart.mtp && apart.experts);
  EXPECT_EQ(*apart.mtp, (TokenPredictionSpec{.layers = 2, .pattern = "*E", .repeated = true, .fp8 = false}));
  EXPECT_EQ(apart.mamba->pattern, "MEM*E");
  EXPECT_EQ(apart.layers, 3);
  EXPECT_EQ(apart.experts->latent, 64);
  const ModelSpec flagged =
      ModelOf(experts +
              "--hybrid-override-pattern 'MEM*E' --mtp-num-layers 1 --mtp-hybrid-override-pattern '*E' "
              "--mtp-loss-scaling-factor 0.3");
  EXPECT_EQ(*flagged.mtp, (TokenPredictionSpec{.layers = 1, .loss_weight = 0.3, .pattern = "*E"}));
}

// Qwen3-Next's flags (Megatron-LM pull request 1989): the preset.
constexpr char kQwen3Next[] = R"(
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 48 --hidden-size 2048 \
    --num-attention-heads 16 --group-query-attention --num-query-groups 2 --kv-channels 256 --qk-layernorm \
    --ffn-hidden-size 5120 --num-experts 512 --moe-router-topk 10 --moe-ffn-hidden-size 512 \
    --moe-shared-expert-intermediate-size 512 --moe-shared-expert-gate --attention-output-gate \
    --experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-conv-kernel-dim 4 \
    --linear-key-head-dim 128 --linear-value-head-dim 128 --linear-num-key-heads 16 --linear-num-value-heads 32 \
    --position-embedding-type rope --rotary-percent 0.25 --rotary-base 10000000 --apply-layernorm-1p \
    --no-weight-decay-cond-type qwen3_next --norm-epsilon 1e-6 --swiglu --seq-length 4096 \
    --max-position-embeddings 262144 --untie-embeddings-and-output-weights --normalization RMSNorm \
    --disable-bias-linear --attention-dropout 0.0 --hidden-dropout 0.0 --padded-vocab-size 151936 --bf16 \
    --micro-batch-size 1 --global-batch-size 64
)";

TEST(ImportMegatronDeltaNets, MakesOfQwen3NextsFlagsThePreset) {
  ModelSpec next = ParseScenario("model: {preset: qwen3-next-80b-a3b}\n", "s.yaml", "/somewhere", {})->model;
  next.preset.clear();
  EXPECT_EQ(Imported("next.sh", kQwen3Next, kOneNode).model, next);
  const std::string yaml = Import("next.sh", kQwen3Next, kOneNode).value_or("");
  EXPECT_EQ(yaml.find("Not known"), std::string::npos) << yaml;
}

TEST(ImportMegatronDeltaNets, ReadsTheLayersThatHaveThem) {
  const auto pattern = [](const std::string& flags) {
    const std::string script =
        Script("--experimental-attention-variant gated_delta_net " + flags, "pretrain_gpt.py");
    return Imported("train.sh", script, kOneNode).model.delta_net->pattern;
  };
  EXPECT_EQ(pattern("--num-layers 6 --linear-attention-freq 3"), "G-G-*-");
  EXPECT_EQ(pattern("--num-layers 4 --linear-attention-freq '[1,0,1,1]'"), "G-*-G-G-");
  EXPECT_EQ(pattern("--num-layers 8 --linear-attention-freq '[1,1,1,0]*2'"), "G-G-G-*-");
  EXPECT_EQ(pattern("--num-layers 8 --linear-attention-freq '([1]*3+[0]*1)*2'"), "G-G-G-*-");
  EXPECT_EQ(
      pattern("--num-layers 4 --linear-attention-freq 2 --num-experts 4 --moe-layer-freq '([0]*1+[1]*3)'"),
      "G-*EGE*E");
  const auto mistakes = [](const std::string& flags) {
    return MistakesOf("train.sh", Script("--num-layers 4 " + flags, "pretrain_gpt.py"), kOneNode);
  };
  EXPECT_NE(
      mistakes("--experimental-attention-variant gated_delta_net --linear-attention-freq '[1,2]'")
          .find("--linear-attention-freq is '[1,2]', expected a number, or a list such as [1,1,1,0]*12"),
      std::string::npos);
  EXPECT_NE(mistakes("--experimental-attention-variant dsa")
                .find("--experimental-attention-variant is 'dsa', expected gated_delta_net"),
            std::string::npos);
  // Of hybrids' own program, letters say it.
  const ModelSpec hybrid = ModelOf("--hybrid-layer-pattern 'G-G-*-' --linear-num-value-heads 16");
  ASSERT_TRUE(hybrid.delta_net);
  EXPECT_EQ(*hybrid.delta_net, (DeltaNetSpec{.pattern = "G-G-*-", .value_heads = 16}));
}

TEST(ImportMegatronHybrid, NamesWhatCannotBeExpressed) {
  EXPECT_EQ(MistakesOfScript("--num-layers 7 --hybrid-override-pattern 'M-MM*-'"),
            "train.sh: --num-layers is '7', expected as many as --hybrid-override-pattern has letters (6)");
  EXPECT_EQ(MistakesOfScript("--hybrid-layer-pattern 'M-M*-/*-/M-'"),
            "train.sh: --hybrid-layer-pattern is 'M-M*-/*-/M-', expected the same letters behind each /");
  EXPECT_EQ(MistakesOfScript("--hybrid-layer-pattern 'M-M*-/'"),
            "train.sh: --hybrid-layer-pattern is 'M-M*-/', expected letters behind each /");
  EXPECT_EQ(MistakesOfScript("--hybrid-layer-pattern 'M-M*-/*-' --mtp-num-layers 2"),
            "train.sh: --mtp-num-layers is '2', expected 1, as --hybrid-layer-pattern has modules");
  EXPECT_NE(MistakesOfScript("--hybrid-layer-pattern 'M-M*-/*-M-'").find("the letters of one layer"),
            std::string::npos);
  EXPECT_NE(MistakesOfScript("--hybrid-override-pattern 'M-GM'")
                .find("model.delta_net.pattern is 'M-GM', expected"),
            std::string::npos);
  const std::string yaml = YamlOf("--num-layers 4 --spec my.module my_spec");
  EXPECT_NE(yaml.find("Not known, and left out: --spec my.module my_spec"), std::string::npos) << yaml;
}

}  // namespace
}  // namespace windtunnel
