// model.config: dimensions from a Hugging Face config.json.
#include <gtest/gtest.h>

#include "scenarios/presets.h"
#include "tests/scenarios/hugging_face_testing.h"

namespace windtunnel {
namespace {

constexpr char kGpt2Config[] = R"({
  "activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_embd": 768,
  "n_head": 12,
  "n_inner": null,
  "n_layer": 12,
  "n_positions": 1024,
  "vocab_size": 50257
}
)";

constexpr char kLlamaConfig[] = R"({
  "model_type": "llama",
  "attention_bias": false,
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "max_position_embeddings": 8192,
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0,
  "tie_word_embeddings": false,
  "vocab_size": 128256
}
)";

TEST(HuggingFace, Gpt2IsThePreset) { EXPECT_EQ(ModelOf(kGpt2Config), PresetModel("gpt2-124m")); }

// transformers' LlamaConfig has no biases in its MLPs unless told so.
TEST(HuggingFace, BiasesOfAttentionAloneAreUnsupported) {
  const std::string path =
      Write(Replaced(kLlamaConfig, "\"attention_bias\": false", "\"attention_bias\": true"));
  const auto model = ReadHuggingFaceConfig(path);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kUnsupported);
}

TEST(HuggingFace, LlamaIsThePreset) { EXPECT_EQ(ModelOf(kLlamaConfig), PresetModel("llama3-8b")); }

TEST(HuggingFace, SingleKeysOverrideTheConfiguration) {
  Write(kLlamaConfig);
  Result<Scenario> scenario = ParseScenario("model: {config: config.json, seq_len: 512, layers: 2}\n",
                                            "s.yaml", testing::TempDir(), {});
  ASSERT_TRUE(scenario);
  EXPECT_EQ(scenario->model.seq_len, 512);
  EXPECT_EQ(scenario->model.layers, 2);
  EXPECT_EQ(scenario->model.kv_heads, 8);
}

// What the configuration leaves to other sizes follows those that override it, as with a preset.
TEST(HuggingFace, SizesThatFollowFromOthersFollowTheOverrides) {
  const auto overridden = [](const std::string& config, const std::string& keys) {
    Write(config);
    return ParseScenario("model: {config: config.json, " + keys + "}\n", "s.yaml", testing::TempDir(), {})
        .value()
        .model;
  };
  EXPECT_EQ(overridden(kLlamaConfig, "hidden: 5120").head_dim, 160);
  EXPECT_EQ(overridden(kLlamaConfig, "heads: 64").head_dim, 64);
  EXPECT_EQ(overridden(Replaced(kLlamaConfig, "\"num_key_value_heads\": 8,", ""), "heads: 4").kv_heads, 4);
  EXPECT_EQ(overridden(kGpt2Config, "hidden: 1536").ffn, 6144);
}

TEST(HuggingFace, MistakesHaveTheConfigurationsPlace) {
  std::string path = Write(Replaced(kGpt2Config, "\"n_layer\": 12", "\"n_layer\": -12"));
  EXPECT_EQ(ReadHuggingFaceConfig(path).error().message,
            path + ":10:14: n_layer is '-12', expected at least 1");
  Write(Replaced(kGpt2Config, "\"n_layer\"", "\"layers\""));
  EXPECT_EQ(ReadHuggingFaceConfig(path).error().message,
            path + ":1:1: n_layer is missing, expected a whole number");
  Write("[1]");
  EXPECT_EQ(ReadHuggingFaceConfig(path).error().message,
            path + ":1:1: the file is a list, expected a JSON object");
}

TEST(HuggingFace, OtherModelsAreUnsupported) {
  std::string path = Write(Replaced(kGpt2Config, "\"gpt2\"", "\"mamba\""));
  EXPECT_EQ(ReadHuggingFaceConfig(path).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(
      ReadHuggingFaceConfig(path).error().message,
      path +
          ":6:17: model_type is 'mamba', expected arcee, bamba, bart, bert, cohere, ernie4_5, falcon, gemma, "
          "gemma3, "
          "glm, glm4, glm4_moe, gpt2, gpt_neox, gpt_oss, granite, granitemoehybrid, llama, llama4, mamba2, "
          "mbart, mistral, mistral3, "
          "mixtral, mt5, nemotron_h, olmo2, olmo3, olmoe, opt, phi, phi3, qwen2, qwen3, qwen3_5, "
          "qwen3_5_moe, qwen3_moe, qwen3_next, "
          "roberta, seed_oss, smollm3, starcoder2, t5, deepseek_v2, deepseek_v3 or kimi_k2");
}

TEST(HuggingFace, HeadsHaveTheWidthThatTheConfigurationSays) {
  const std::string path =
      Write(Replaced(kLlamaConfig, "\"vocab_size\"", "\"head_dim\": 256, \"vocab_size\""));
  EXPECT_EQ(ReadHuggingFaceConfig(path)->head_dim, 256);
  Write(Replaced(kLlamaConfig, "\"hidden_size\": 4096", "\"hidden_size\": 4095"));
  EXPECT_EQ(
      ReadHuggingFaceConfig(path).error().message,
      path + ":5:18: hidden_size is 4095, expected a multiple of num_attention_heads (32), or head_dim");
}

TEST(HuggingFace, Phi3IsALlamaWithAWindow) {
  constexpr char kPhi3Config[] = R"({
  "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "max_position_embeddings": 4096,
  "sliding_window": 2047, "rms_norm_eps": 1e-05, "rope_scaling": null, "partial_rotary_factor": 1.0
})";
  const ModelSpec model = ModelOf(kPhi3Config);
  EXPECT_EQ(model.sliding_window, (SlidingWindowSpec{.tokens = 2047, .full_every = 0}));
  EXPECT_EQ(model.activation, ActivationKind::kSwiglu);
  EXPECT_FALSE(model.tie_embeddings);
  EXPECT_EQ(model.rope_dim, 0);
  // Phi-4-mini's.
  EXPECT_EQ(ModelOf(Replaced(kPhi3Config, "_factor\": 1.0", "_factor\": 0.75")).rope_dim, 72);
  EXPECT_EQ(ModelOf(Replaced(kPhi3Config, "\"partial_rotary_factor\": 1.0",
                             "\"rope_parameters\": {\"partial_rotary_factor\": 0.75}"))
                .rope_dim,
            72);
  const std::string path = Write(Replaced(kPhi3Config, "_factor\": 1.0", "_factor\": 1.5"));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("partial_rotary_factor is '1.5', expected"),
            std::string::npos);
}

// bigcode/starcoder2-3b.
TEST(HuggingFace, Starcoder2HasGpt2sBlocksAndLlamasAttention) {
  constexpr char kStarcoder2Config[] = R"({
  "model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "intermediate_size": 12288,
  "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2, "vocab_size": 49152,
  "max_position_embeddings": 16384, "norm_epsilon": 1e-05, "rope_theta": 999999.4420358813,
  "sliding_window": 4096, "use_bias": true
})";
  const ModelSpec model = ModelOf(kStarcoder2Config);
  EXPECT_EQ(model.norm, NormKind::kLayerNorm);
  EXPECT_EQ(model.position, PositionKind::kRope);
  EXPECT_EQ(model.activation, ActivationKind::kGelu);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_TRUE(model.bias && model.qkv_bias && model.tie_embeddings);
  EXPECT_EQ(model.sliding_window, (SlidingWindowSpec{.tokens = 4096, .full_every = 0}));
  const std::string path = Write(Replaced(kStarcoder2Config, "\"use_bias\": true", "\"use_bias\": false"));
  EXPECT_EQ(ReadHuggingFaceConfig(path).error().message,
            path + ":5:39: use_bias is false, expected true: norms have biases without it, too");
  Write(Replaced(kStarcoder2Config, "\"use_bias\"", "\"partial_rotary_factor\": 0.5, \"use_bias\""));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("partial_rotary_factor is 0.5"),
            std::string::npos);
}

TEST(HuggingFace, TheBaseOfRotaryPositionsIsWhereEitherVersionHasIt) {
  const std::string path =
      Write(Replaced(kLlamaConfig, "\"rope_theta\": 500000.0", "\"rope_parameters\": {\"rope_theta\": 2e6}"));
  EXPECT_EQ(ReadHuggingFaceConfig(path)->rope_theta, 2e6);
  Write(Replaced(kLlamaConfig, "\"rope_theta\": 500000.0", "\"rope_theta\": 0.5"));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("rope_theta is '0.5', expected at least 1"),
            std::string::npos);
}

constexpr char kMixtralConfig[] = R"({
  "model_type": "mixtral",
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "max_position_embeddings": 32768,
  "num_attention_heads": 32,
  "num_experts_per_tok": 2,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "num_local_experts": 8,
  "rope_theta": 1000000.0,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "vocab_size": 32000
}
)";

TEST(HuggingFace, MixtralIsALlamaWithExpertsThatDropNothing) {
  const ModelSpec model = ModelOf(kMixtralConfig);
  EXPECT_EQ(model.norm, NormKind::kRmsNorm);
  EXPECT_EQ(model.position, PositionKind::kRope);
  EXPECT_EQ(model.activation, ActivationKind::kSwiglu);
  EXPECT_FALSE(model.bias);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.ffn, 14336);
  EXPECT_EQ(model.experts, (ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 0}));
  Result<Scenario> scenario =
      ParseScenario("model: {config: config.json, experts: {count: 8, top_k: 2, capacity_factor: 4}}\n",
                    "s.yaml", testing::TempDir(), {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->model.experts, (ExpertsSpec{.count = 8, .top_k = 2, .capacity_factor = 4}));
}

TEST(HuggingFace, MixtralsThatRouteOtherwiseAreRefused) {
  std::string path =
      Write(Replaced(kMixtralConfig, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 1"));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("num_experts_per_tok is 1, expected at least 2"),
            std::string::npos);
  Write(Replaced(kMixtralConfig, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9"));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("expected at most num_local_experts (8)"),
            std::string::npos);
  Write(Replaced(kMixtralConfig, "\"num_local_experts\": 8", "\"num_local_experts\": 1"));
  EXPECT_EQ(ReadHuggingFaceConfig(path).error().message,
            path + ":11:24: num_local_experts is '1', expected at least 2");
}

TEST(HuggingFace, MistralIsALlamaWithAWindowWhereSequencesAreLonger) {
  const std::string mistral = Replaced(kMixtralConfig, "\"mixtral\"", "\"mistral\"");
  EXPECT_FALSE(ModelOf(mistral).experts);
  const std::string path = Write(Replaced(mistral, "\"sliding_window\": null", "\"sliding_window\": 4096"));
  const auto long_ones = ReadHuggingFaceConfig(path), short_ones = ReadHuggingFaceConfig(path, 4096);
  ASSERT_TRUE(long_ones && short_ones);
  EXPECT_EQ(long_ones->sliding_window, (SlidingWindowSpec{.tokens = 4096}));
  EXPECT_FALSE(short_ones->sliding_window);
  Result<Scenario> scenario =
      ParseScenario("model: {config: config.json, seq_len: 2048}\n", "s.yaml", testing::TempDir(), {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->model.seq_len, 2048);
  // If the key is missing, transformers uses 4096.
  EXPECT_EQ(ModelOf(Replaced(mistral, "\"sliding_window\": null,", "")).sliding_window,
            (SlidingWindowSpec{.tokens = 4096}));
}

// As on the hub, without the keys that no scenario has.
constexpr char kQwen2Config[] = R"({
  "model_type": "qwen2",
  "hidden_act": "silu",
  "hidden_size": 896,
  "intermediate_size": 4864,
  "max_position_embeddings": 4096,
  "max_window_layers": 24,
  "num_attention_heads": 14,
  "num_hidden_layers": 24,
  "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "sliding_window": 1024,
  "tie_word_embeddings": true,
  "use_sliding_window": false,
  "vocab_size": 151936
}
)";
constexpr char kQwen3MoeConfig[] = R"({
  "model_type": "qwen3_moe",
  "attention_bias": false,
  "decoder_sparse_step": 1,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "intermediate_size": 6144,
  "max_position_embeddings": 4096,
  "mlp_only_layers": [],
  "moe_intermediate_size": 768,
  "norm_topk_prob": true,
  "num_attention_heads": 32,
  "num_experts": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 48,
  "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 1000000.0,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "use_sliding_window": false,
  "vocab_size": 151936
}
)";

TEST(HuggingFace, Qwen2IsALlamaWithBiasesOfQueriesKeysAndValues) {
  const ModelSpec model = ModelOf(kQwen2Config);
  EXPECT_EQ(model, PresetModel("qwen2.5-0.5b"));
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_FALSE(model.bias);
}

// The window is for layers behind the first max_window_layers, which here are all layers.
TEST(HuggingFace, Qwen2HasAWindowWhereItIsUsed) {
  const std::string used =
      Replaced(kQwen2Config, "\"use_sliding_window\": false", "\"use_sliding_window\": true");
  EXPECT_FALSE(ModelOf(used).sliding_window);
  const std::string of_all = Replaced(used, "\"max_window_layers\": 24", "\"max_window_layers\": 0");
  EXPECT_EQ(ModelOf(of_all).sliding_window, (SlidingWindowSpec{.tokens = 1024}));
  const std::string path = Write(Replaced(used, "\"max_window_layers\": 24", "\"max_window_layers\": 20"));
  const auto refused = ReadHuggingFaceConfig(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(refused.error().message.find("max_window_layers is 20, expected 0, or num_hidden_layers (24)"),
            std::string::npos);
}

// As on the hub, without the keys that no scenario has.
constexpr char kGemma3Config[] = R"({
  "model_type": "gemma3_text",
  "attn_logit_softcapping": null,
  "final_logit_softcapping": null,
  "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 1152,
  "intermediate_size": 6912,
  "max_position_embeddings": 32768,
  "num_attention_heads": 4,
  "num_hidden_layers": 26,
  "num_key_value_heads": 1,
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000,
  "sliding_window": 512,
  "sliding_window_pattern": 6,
  "vocab_size": 262144
}
)";

TEST(HuggingFace, Gemma3NormalisesBehindBothHalvesOfABlock) {
  EXPECT_EQ(ModelOf(kGemma3Config), PresetModel("gemma3-1b"));
  EXPECT_EQ(ModelOf(Replaced(kGemma3Config, "\"rope_theta\": 1000000,", "")).rope_theta, 1e6) << "the default";
  const char* const as_part = R"("rope_parameters": {"rope_theta": 500000},)";
  EXPECT_EQ(ModelOf(Replaced(kGemma3Config, "\"rope_theta\": 1000000,", as_part)).rope_theta, 5e5);
  const auto refused = ReadHuggingFaceConfig(Write(
      Replaced(kGemma3Config, "\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0")));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("final_logit_softcapping is 30.0, expected null"), std::string::npos)
      << refused.error().message;
}

TEST(HuggingFace, GemmaIsALlamaOfGeglu) {
  const ModelSpec model = ModelOf(R"({
    "model_type": "gemma", "hidden_act": "gelu", "hidden_size": 2048, "intermediate_size": 16384,
    "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 18,
    "num_key_value_heads": 1, "vocab_size": 256000})");
  EXPECT_EQ(model.activation, ActivationKind::kGeglu);
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_FALSE(model.post_norm);
}

// As on the hub, with four layers, and without the keys that no scenario has.
constexpr char kGptOssConfig[] = R"({
  "model_type": "gpt_oss",
  "attention_bias": true,
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2880,
  "intermediate_size": 2880,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
  "max_position_embeddings": 4096,
  "num_attention_heads": 64,
  "num_experts_per_tok": 4,
  "num_hidden_layers": 4,
  "num_key_value_heads": 8,
  "num_local_experts": 32,
  "rms_norm_eps": 1e-05,
  "rope_theta": 150000,
  "sliding_window": 128,
  "swiglu_limit": 7.0,
  "tie_word_embeddings": false,
  "vocab_size": 201088
}
)";

TEST(HuggingFace, GptOssSeesAllTokensInEverySecondLayer) {
  ModelSpec of_preset = PresetModel("gpt-oss-20b");
  of_preset.layers = 4;
  EXPECT_EQ(ModelOf(kGptOssConfig), of_preset);
  const std::string third = Replaced(
      kGptOssConfig, "\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"",
      "\"sliding_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\"");
  EXPECT_EQ(ModelOf(third).sliding_window, (SlidingWindowSpec{.tokens = 128, .full_every = 3}));
  const std::string path = Write(Replaced(kGptOssConfig, "[\"sliding_attention\", \"full_attention\"",
                                          "[\"full_attention\", \"sliding_attention\""));
  const auto refused = ReadHuggingFaceConfig(path);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layer_types has sliding_attention for layer 1, expected one of "
                                         "full_attention after every 0 of sliding_attention"),
            std::string::npos)
      << refused.error().message;
}

TEST(HuggingFace, Qwen3HasNormsOfHeadsAndExpertsOfAWidthOfTheirOwn) {
  EXPECT_EQ(ModelOf(kQwen3MoeConfig), PresetModel("qwen3-30b-a3b"));
  const ModelSpec dense = ModelOf(Replaced(kQwen3MoeConfig, "\"qwen3_moe\"", "\"qwen3\""));
  EXPECT_TRUE(dense.qk_norm);
  EXPECT_EQ(dense.head_dim, 128);
  EXPECT_EQ(dense.ffn, 6144);
  EXPECT_FALSE(dense.experts);
}

// As transformers' classes have it. The number of experts has two names, which stand for each other there.
TEST(HuggingFace, WhatAConfigurationLeavesOutIsItsClasssDefault) {
  const std::string dense = Replaced(kQwen3MoeConfig, "\"qwen3_moe\"", "\"qwen3\"");
  const std::string width = "\"head_dim\": 128,";
  EXPECT_EQ(ModelOf(Replaced(dense, width, "")).head_dim, 128);
  EXPECT_EQ(ModelOf(Replaced(kQwen3MoeConfig, width, "")).head_dim, 2048 / 32);
  std::string gpt_oss = kGptOssConfig;
  for (const char* key : {"head_dim", "rope_theta", "rms_norm_eps"}) {
    const size_t begin = gpt_oss.find(std::string("  \"") + key);
    gpt_oss.erase(begin, gpt_oss.find('\n', begin) + 1 - begin);
  }
  EXPECT_EQ(ModelOf(gpt_oss), ModelOf(kGptOssConfig));
  EXPECT_EQ(ModelOf(Replaced(kQwen3MoeConfig, "\"num_experts\"", "\"num_local_experts\"")).experts->count,
            128);
  const std::string path =
      Write(Replaced(kGptOssConfig, "\"swiglu_limit\"", "\"swiglu_alpha\": 1.5,\n  \"swiglu_limit\""));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("swiglu_alpha is 1.5, expected 1.702"),
            std::string::npos);
}

constexpr char kLlama4Config[] = R"({
  "model_type": "llama4",
  "text_config": {
    "model_type": "llama4_text",
    "attention_bias": false,
    "attention_chunk_size": 8192,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "interleave_moe_layer_step": 1,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "max_position_embeddings": 10485760,
    "no_rope_layers": [],
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": false,
    "use_qk_norm": true,
    "vocab_size": 202048
  },
  "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 1408}
}
)";

TEST(HuggingFace, Llama4IsItsTextModel) {
  EXPECT_EQ(ModelOf(kLlama4Config), PresetModel("llama4-scout"));
  const std::string maverick =
      Replaced(Replaced(kLlama4Config, "\"num_local_experts\": 16", "\"num_local_experts\": 128"),
               "\"interleave_moe_layer_step\": 1", "\"interleave_moe_layer_step\": 2");
  EXPECT_EQ(ModelOf(maverick), PresetModel("llama4-maverick"));
  const auto error_of = [&](const char* layers) {
    const std::string listed = fmt::format("\"moe_layers\": {}, \"no_rope_layers\"", layers);
    const auto model = ReadHuggingFaceConfig(Write(Replaced(maverick, "\"no_rope_layers\"", listed)));
    return model ? "" : model.error().message;
  };
  EXPECT_NE(error_of("[1, 4]").find("moe_layers has '4' where interleave_moe_layer_step (2) has 3"),
            std::string::npos)
      << error_of("[1, 4]");
  EXPECT_NE(error_of("[1, 3]").find("moe_layers ends before layer 5"), std::string::npos)
      << error_of("[1, 3]");
}

TEST(HuggingFace, Llama4sSequencesAreNoLongerThanItsChunks) {
  const std::string path = Write(kLlama4Config);
  // The model's length is the chunk's. The caller's own length only must not exceed it.
  EXPECT_EQ(ReadHuggingFaceConfig(path, 4096)->seq_len, 8192);
  EXPECT_NE(ReadHuggingFaceConfig(path, 16384).error().message.find("attention_chunk_size is 8192"),
            std::string::npos);
}

constexpr char kDeepseekV3Config[] = R"({
  "model_type": "deepseek_v3",
  "attention_bias": false,
  "first_k_dense_replace": 3,
  "hidden_act": "silu",
  "hidden_size": 7168,
  "intermediate_size": 18432,
  "kv_lora_rank": 512,
  "max_position_embeddings": 4096,
  "moe_intermediate_size": 2048,
  "moe_layer_freq": 1,
  "n_group": 8,
  "n_routed_experts": 256,
  "n_shared_experts": 1,
  "num_attention_heads": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 61,
  "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536,
  "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64,
  "rms_norm_eps": 1e-06,
  "rope_theta": 10000,
  "scoring_func": "sigmoid",
  "tie_word_embeddings": false,
  "topk_group": 4,
  "v_head_dim": 128,
  "vocab_size": 129280
}
)";

TEST(HuggingFace, DeepseekHasLatentsAndExpertsBehindTheFirstLayers) {
  EXPECT_EQ(ModelOf(kDeepseekV3Config), PresetModel("deepseek-v3"));
  const ModelSpec direct =
      ModelOf(Replaced(kDeepseekV3Config, "\"q_lora_rank\": 1536", "\"q_lora_rank\": null"));
  EXPECT_EQ(direct.latent_attention->q_rank, 0);
  const ModelSpec one_group = ModelOf(Replaced(kDeepseekV3Config, "\"n_group\": 8", "\"n_group\": 1"));
  EXPECT_EQ(one_group.experts->groups, 0);
  EXPECT_EQ(one_group.experts->top_k_groups, 0);
  // DeepseekV3Config's defaults for keys that a file lacks.
  EXPECT_EQ(ModelOf(Replaced(Replaced(kDeepseekV3Config, "\"n_group\": 8,", ""), "\"topk_group\": 4,", "")),
            PresetModel("deepseek-v3"));
  // Without these it would be another model, silently.
  for (const std::string key : {"first_k_dense_replace\": 3", "n_routed_experts\": 256",
                                "n_shared_experts\": 1", "q_lora_rank\": 1536"}) {
    const auto model = ReadHuggingFaceConfig(Write(Replaced(kDeepseekV3Config, "\"" + key + ",", "")));
    ASSERT_FALSE(model) << key;
    EXPECT_NE(
        model.error().message.find(key.substr(0, key.find('"')) + " is missing, expected a whole number"),
        std::string::npos)
        << model.error().message;
  }
  const std::string path =
      Write(Replaced(kDeepseekV3Config, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2"));
  EXPECT_NE(ReadHuggingFaceConfig(path).error().message.find("moe_layer_freq is 2, expected 1"),
            std::string::npos);
}

TEST(HuggingFace, Qwen3sMayHaveLayersWithoutExperts) {
  const ModelSpec model = ModelOf(Replaced(
      Replaced(kQwen3MoeConfig, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2"), "[]", "[0, 1]"));
  EXPECT_EQ(model.experts->first_dense, 2);
  EXPECT_EQ(model.experts->every, 2);
  EXPECT_EQ(model.DenseFfn(), 6144);
  EXPECT_EQ(model.LayersWithExperts(), 23);
  EXPECT_FALSE(model.HasExperts(1));
  EXPECT_TRUE(model.HasExperts(3));
}

TEST(HuggingFace, Qwen3sThatComputeOtherwiseAreRefused) {
  const auto error_of = [](const char* from, const char* to) {
    const auto model = ReadHuggingFaceConfig(Write(Replaced(kQwen3MoeConfig, from, to)));
    return model ? "" : model.error().message;
  };
  EXPECT_NE(error_of("\"norm_topk_prob\": true", "\"norm_topk_prob\": false").find("norm_topk_prob is false"),
            std::string::npos);
  EXPECT_NE(error_of("\"mlp_only_layers\": []", "\"mlp_only_layers\": [0, 2]")
                .find("mlp_only_layers is not a list of the first layers"),
            std::string::npos);
  EXPECT_NE(error_of("\"attention_bias\": false", "\"attention_bias\": true").find("attention_bias is true"),
            std::string::npos);
}

TEST(HuggingFace, AMissingFileIsReportedWithThePlaceOfTheKey) {
  EXPECT_EQ(MessageOf("model: {config: nowhere.json}\n"),
            "s.yaml:1:17: model.config: /somewhere/nowhere.json: cannot be read (No such file or directory), "
            "expected a Hugging Face "
            "config.json");
}

}  // namespace
}  // namespace windtunnel
