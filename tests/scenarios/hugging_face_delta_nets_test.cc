// model.config: models with gated delta networks.
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

// Qwen/Qwen3-Next-80B-A3B-Instruct, without the keys that no scenario has.
constexpr char kQwen3Next[] = R"({
  "model_type": "qwen3_next", "attention_bias": false, "decoder_sparse_step": 1, "full_attention_interval": 4,
  "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5120,
  "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
  "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
  "mlp_only_layers": [], "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16,
  "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
  "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_theta": 10000000,
  "shared_expert_intermediate_size": 512, "tie_word_embeddings": false, "vocab_size": 151936})";

TEST(HuggingFaceDeltaNets, Qwen3NextIsThePreset) {
  ModelSpec next = PresetModel("qwen3-next-80b-a3b");
  next.seq_len = 262'144;
  EXPECT_EQ(ModelOf(kQwen3Next), next);
  EXPECT_EQ(next.delta_net->pattern, "GEGEGE*E");
  EXPECT_EQ(next.RecurrentLayers(), 36);
  EXPECT_EQ(next.rope_dim, 64);
  // What transformers takes where the file does not say.
  ModelSpec defaults = next;
  for (const char* key : {"\"linear_num_key_heads\": 16,", "\"linear_value_head_dim\": 128,",
                          "\"shared_expert_intermediate_size\": 512,", "\"full_attention_interval\": 4,",
                          "\"num_experts_per_tok\": 10,"})
    EXPECT_EQ(ModelOf(Replaced(kQwen3Next, key, "")), defaults) << key;
}

TEST(HuggingFaceDeltaNets, LayersAreListedOrCounted) {
  const std::string few = Replaced(kQwen3Next, "\"num_hidden_layers\": 48", "\"num_hidden_layers\": 3");
  const auto listed = [&](const char* types) {
    return Replaced(few, "\"full_attention_interval\": 4", std::string("\"layer_types\": ") + types);
  };
  EXPECT_EQ(ModelOf(few).delta_net->pattern, "GE");
  EXPECT_EQ(
      ModelOf(listed(R"(["full_attention", "linear_attention", "linear_attention"])")).delta_net->pattern,
      "*EGEGE");
  // Layers without experts have an MLP of the other width.
  const ModelSpec mixed = ModelOf(Replaced(few, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [1]"));
  EXPECT_EQ(mixed.delta_net->pattern, "GEG-GE");
  EXPECT_EQ(mixed.experts->dense_ffn, 5120);
  EXPECT_EQ(mixed.ffn, 512);
  EXPECT_NE(ErrorOf(listed(R"(["full_attention"])")).find("layer_types is"), std::string::npos);
  EXPECT_NE(ErrorOf(listed(R"(["full_attention", "linear_attention", "sliding_attention"])"))
                .find("layer_types has 'sliding_attention', expected linear_attention or full_attention"),
            std::string::npos);
  EXPECT_NE(ErrorOf(listed(R"(["full_attention", "full_attention", "full_attention"])"))
                .find("layer_types has no linear_attention, expected one at least"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Replaced(few, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]"))
                .find("mlp_only_layers has '3', expected layers from 0 to 2"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Replaced(kQwen3Next, "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"))
                .find("norm_topk_prob is false, expected true"),
            std::string::npos);
}

// Qwen/Qwen3.5-9B: a model of text and images, whose text model is a part of the configuration.
TEST(HuggingFaceDeltaNets, Qwen3Point5HasATextModel) {
  const std::string text = R"("attn_output_gate": true, "full_attention_interval": 4, "head_dim": 256,
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "max_position_embeddings": 262144, "num_attention_heads": 16,
    "num_hidden_layers": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000}, "vocab_size": 248320})";
  ModelSpec expected = PresetModel("qwen3.5-9b");
  expected.seq_len = 262'144;
  EXPECT_EQ(ModelOf("{\"model_type\": \"qwen3_5\", \"text_config\": {\"model_type\": \"qwen3_5_text\", " +
                    text + "}"),
            expected);
  EXPECT_EQ(ModelOf("{\"model_type\": \"qwen3_5_text\", " + text), expected);
  EXPECT_FALSE(ModelOf(Replaced("{\"model_type\": \"qwen3_5_text\", " + text, "\"attn_output_gate\": true",
                                "\"attn_output_gate\": false"))
                   .attention_gate);
}

// Qwen/Qwen3.5-35B-A3B, which has no MLP and no width of one.
TEST(HuggingFaceDeltaNets, Qwen3Point5sExpertsHaveAGatedSharedOne) {
  const char* const config = R"({"model_type": "qwen3_5_moe", "text_config": {
    "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "linear_num_value_heads": 32,
    "max_position_embeddings": 4096, "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 256,
    "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000},
    "shared_expert_intermediate_size": 512, "vocab_size": 248320}})";
  EXPECT_EQ(ModelOf(config), PresetModel("qwen3.5-35b-a3b"));
  EXPECT_TRUE(ModelOf(config).experts->shared_gate);
}

}  // namespace
}  // namespace windtunnel
