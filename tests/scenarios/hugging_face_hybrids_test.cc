// model.config: models with Mamba-2 layers.
#include <gtest/gtest.h>

#include "tests/scenarios/hugging_face_testing.h"

namespace windtunnel {
namespace {

std::string ErrorOf(const std::string& config) {
  const auto model = ReadHuggingFaceConfig(Write(config));
  if (model) return "(no error)";
  const std::string& message = model.error().message;  // without the path
  return message.substr(message.find("config.json:") + 12);
}
bool IsRefused(const std::string& config) {
  const auto model = ReadHuggingFaceConfig(Write(config));
  return !model && model.error().kind == ErrorKind::kUnsupported;
}

// nvidia/Nemotron-H-8B-Base-8K, without the keys that no scenario has.
constexpr char kNemotronH[] = R"({
  "model_type": "nemotron_h", "attention_bias": false, "chunk_size": 128, "conv_kernel": 4, "expand": 2,
  "head_dim": 128, "hidden_size": 4096,
  "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
  "intermediate_size": 21504, "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64, "mamba_hidden_act": "silu",
  "mamba_num_heads": 128, "mamba_proj_bias": false, "max_position_embeddings": 8192, "mlp_bias": false,
  "mlp_hidden_act": "relu2", "n_groups": 8, "num_attention_heads": 32, "num_hidden_layers": 52,
  "num_key_value_heads": 8, "residual_in_fp32": false, "sliding_window": null, "ssm_state_size": 128,
  "tie_word_embeddings": false, "time_step_limit": [0.0, Infinity], "use_bias": false, "use_conv_bias": true,
  "vocab_size": 131072})";

TEST(HuggingFaceHybrids, NemotronHIsThePreset) {
  const ModelSpec model = ModelOf(kNemotronH);
  EXPECT_EQ(model, PresetModel("nemotron-h-8b"));
  EXPECT_EQ(model.layers, 28) << "24 with Mamba-2 and 4 with attention, of its 52 layers";
  EXPECT_EQ(model.RecurrentLayers(), 24);
  EXPECT_EQ(model.position, PositionKind::kNone);
}

// nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.
TEST(HuggingFaceHybrids, NemotronsExpertsStandBehindMixers) {
  const char* const config = R"({
    "model_type": "nemotron_h", "chunk_size": 128, "conv_kernel": 4, "expand": 2, "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856, "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64, "mamba_num_heads": 64,
    "max_position_embeddings": 262144, "mlp_hidden_act": "relu2", "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "n_group": 1, "n_groups": 8, "n_routed_experts": 128,
    "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 6,
    "num_hidden_layers": 52, "num_key_value_heads": 2, "routed_scaling_factor": 2.5, "ssm_state_size": 128,
    "topk_group": 1, "vocab_size": 131072})";
  ModelSpec nano = PresetModel("nemotron3-nano-30b");
  nano.seq_len = 262'144;
  EXPECT_EQ(ModelOf(config), nano);
  EXPECT_EQ(nano.LayersWithExperts(), 23);
  // Nemotron 3 Super's experts take latents.
  EXPECT_EQ(ModelOf(Replaced(config, "\"topk_group\": 1", "\"moe_latent_size\": 1024")).experts->latent,
            1024);
  EXPECT_EQ(ModelOf(Replaced(config, "\"topk_group\": 1", "\"moe_latent_size\": null")), nano);
  EXPECT_TRUE(IsRefused(Replaced(config, "\"norm_topk_prob\": true", "\"norm_topk_prob\": false")));
  // Where some layers have a plain MLP, the two widths differ.
  const ModelSpec mixed = ModelOf(Replaced(Replaced(config, "\"MEMEM*", "\"M-MEM*"),
                                           "\"intermediate_size\": 1856", "\"intermediate_size\": 4096"));
  EXPECT_EQ(mixed.ffn, 1856);
  EXPECT_EQ(mixed.DenseFfn(), 4096);
}

TEST(HuggingFaceHybrids, NemotronsLayersMayBeAList) {
  const std::string pattern =
      R"("hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-")";
  const std::string listed = Replaced(
      Replaced(kNemotronH, pattern,
               R"("layers_block_type": [)" + std::string(R"("mamba", "mlp", "mamba", "attention", "moe"])")),
      "\"num_hidden_layers\": 52,", "");
  EXPECT_EQ(ModelOf(listed).mamba->pattern, "M-M*E");
  EXPECT_EQ(ModelOf(listed).layers, 3);
  const std::string newer =
      Replaced(Replaced(listed, "\"attention\"", "\"full_attention\""), "\"mamba\"", "\"linear_attention\"");
  EXPECT_EQ(ModelOf(newer), ModelOf(listed));
  EXPECT_EQ(ErrorOf(Replaced(listed, "\"moe\"", "\"conv\"")),
            "4:24: layers_block_type has 'conv', expected mamba, attention, mlp or moe");
}

TEST(HuggingFaceHybrids, NemotronsOtherThanThatAreRefused) {
  const auto with = [](const char* from, const char* to) { return ErrorOf(Replaced(kNemotronH, from, to)); };
  const ModelSpec two_mlps = ModelOf(Replaced(kNemotronH, "\"M-M-M-M*", "\"M--MM-M*"));
  EXPECT_EQ(two_mlps.layers, ModelOf(kNemotronH).layers + 1);
  EXPECT_FALSE(two_mlps.KindOf(1).has_mixer());
  EXPECT_EQ(with("\"M-M-M-M*", "\"G-M-M-M*").substr(0, 38), "4:30: hybrid_override_pattern is 'G-M-");
  EXPECT_EQ(with("_layers\": 52", "_layers\": 51"),
            "7:93: num_hidden_layers is 51, expected the number of layers in hybrid_override_pattern (52)");
  EXPECT_EQ(with("use_conv_bias\": true", "use_conv_bias\": false"),
            "9:105: use_conv_bias is false, expected true: convolutions have biases");
  for (const char* key : {"attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"}) {
    const std::string name = "\"" + std::string(key) + "\": ";
    EXPECT_TRUE(IsRefused(Replaced(kNemotronH, name + "false", name + "true"))) << key;
  }
  EXPECT_TRUE(IsRefused(Replaced(kNemotronH, "\"silu\"", "\"gelu\"")));
  EXPECT_TRUE(IsRefused(Replaced(kNemotronH, "\"sliding_window\": null", "\"sliding_window\": 4096")));
  EXPECT_EQ(with("\"ssm_state_size\": 128", "\"ssm_state_size\": 4096").substr(6),
            "ssm_state_size is '4096', expected at most 1024");
}

// ibm-ai-platform/Bamba-9B.
TEST(HuggingFaceHybrids, BambasAttentionIsWhereItsIndicesAre) {
  constexpr char kBamba[] = R"({
  "model_type": "bamba", "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "mamba_chunk_size": 256, "mamba_conv_bias": true,
  "mamba_d_conv": 4, "mamba_d_head": "auto", "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
  "mamba_n_heads": 128, "mamba_proj_bias": false, "max_position_embeddings": 262144, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
  "vocab_size": 128256})";
  const ModelSpec model = ModelOf(kBamba);
  ASSERT_TRUE(model.mamba);
  EXPECT_EQ(*model.mamba,
            (MambaSpec{.pattern = "M-M-M-M-M-M-M-M-M-*-M-M-M-M-M-M-M-M-*-M-M-M-M-M-M-M-M-*-M-M-M-M-",
                       .heads = 128}));
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.RecurrentLayers(), 29);
  EXPECT_EQ(model.rope_dim, 64);
  EXPECT_EQ(model.position, PositionKind::kRope);
  EXPECT_EQ(model.activation, ActivationKind::kSwiglu);
  EXPECT_EQ(ModelOf(Replaced(kBamba, "\"attn_rotary_emb\": 64, ", "")), model)
      << "transformers: half of a head";
  EXPECT_EQ(ModelOf(Replaced(kBamba, "\"attn_rotary_emb\": 64", "\"attn_rotary_emb\": 128")).rope_dim, 0);
  EXPECT_EQ(ModelOf(Replaced(kBamba, "\"auto\"", "64")), model);
  EXPECT_EQ(ModelOf(Replaced(kBamba, "[9, 18, 27]", "null")).mamba->pattern, "M-");
  EXPECT_EQ(ErrorOf(Replaced(kBamba, "27]", "32]")),
            "2:48: attn_layer_indices has '32', expected layers from 0 to 31");
  EXPECT_EQ(
      ErrorOf(Replaced(kBamba, "\"auto\"", "32")),
      "5:20: mamba_n_heads is 128 and mamba_d_head 32, expected mamba_expand (2) x hidden_size (4096) as "
      "their product");
}

// ibm-granite/granite-4.0-h-small and granite-4.0-h-micro, with eight layers.
TEST(HuggingFaceHybrids, GranitesLayersAllHaveAnMlpOrExperts) {
  constexpr char kGranite[] = R"({
  "model_type": "granitemoehybrid", "attention_bias": false, "attention_multiplier": 0.0078125,
  "embedding_multiplier": 12, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 768,
  "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba"],
  "logits_scaling": 16, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
  "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_proj_bias": false,
  "max_position_embeddings": 131072, "num_attention_heads": 32, "num_experts_per_tok": 10,
  "num_hidden_layers": 8, "num_key_value_heads": 8, "num_local_experts": 72, "position_embedding_type": "nope",
  "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "shared_intermediate_size": 1536,
  "tie_word_embeddings": true, "vocab_size": 100352})";
  const ModelSpec small = ModelOf(kGranite);
  ASSERT_TRUE(small.mamba && small.experts);
  EXPECT_EQ(*small.mamba, (MambaSpec{.pattern = "MEMEMEMEME*EMEME", .heads = 128}));
  EXPECT_EQ(*small.experts,
            (ExpertsSpec{.count = 72, .top_k = 10, .capacity_factor = 0, .shared_ffn = 1536}));
  EXPECT_EQ(small.ffn, 768);
  EXPECT_EQ(small.position, PositionKind::kNone);
  EXPECT_TRUE(small.tie_embeddings);
  // Without experts, what would be the shared one is the MLP.
  const std::string micro = Replaced(kGranite, "\"num_local_experts\": 72", "\"num_local_experts\": 0");
  EXPECT_EQ(ModelOf(micro).ffn, 1536);
  EXPECT_FALSE(ModelOf(micro).experts);
  EXPECT_EQ(ModelOf(micro).mamba->pattern, "M-M-M-M-M-*-M-M-");
  EXPECT_EQ(ModelOf(Replaced(micro, "\"nope\"", "\"rope\"")).position, PositionKind::kRope);
  EXPECT_TRUE(IsRefused(Replaced(micro, "\"nope\"", "\"alibi\"")));
  EXPECT_NE(
      ErrorOf(Replaced(micro, "_layers\": 8", "_layers\": 9")).find("layer_types has 8 entries, expected"),
      std::string::npos);
  // Granite 4.0 Micro has the same type, and attention alone.
  const std::string types = R"(["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba"])";
  const ModelSpec dense = ModelOf(
      Replaced(Replaced(micro, types, R"(["attention", "attention"])"), "_layers\": 8", "_layers\": 2"));
  EXPECT_FALSE(dense.mamba);
  EXPECT_EQ(dense.layers, 2);
}

// state-spaces/mamba2-2.7b, as transformers converts it, and its defaults, Mamba-Codestral 7B's.
TEST(HuggingFaceHybrids, Mamba2HasNothingElse) {
  constexpr char kMamba2[] = R"({
  "model_type": "mamba2", "chunk_size": 256, "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2560, "layer_norm_epsilon": 1e-05, "n_groups": 1, "num_heads": 80, "num_hidden_layers": 64,
  "residual_in_fp32": true, "rms_norm": true, "state_size": 128, "tie_word_embeddings": true, "use_bias": false,
  "use_conv_bias": true, "vocab_size": 50288})";
  EXPECT_EQ(ModelOf(kMamba2), PresetModel("mamba2-2.7b"));
  const ModelSpec codestral = ModelOf(
      R"({"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768})");
  EXPECT_EQ(*codestral.mamba, (MambaSpec{.pattern = "M", .heads = 128, .groups = 8}));
  EXPECT_FALSE(codestral.tie_embeddings);
  EXPECT_EQ(
      ErrorOf(Replaced(kMamba2, "_heads\": 80", "_heads\": 64")),
      "3:81: num_heads is 64 and head_dim 64, expected expand (2) x hidden_size (2560) as their product");
  EXPECT_TRUE(IsRefused(Replaced(kMamba2, "\"use_bias\": false", "\"use_bias\": true")));
  EXPECT_TRUE(IsRefused(Replaced(kMamba2, "\"rms_norm\": true", "\"rms_norm\": false")));
}

}  // namespace
}  // namespace windtunnel
