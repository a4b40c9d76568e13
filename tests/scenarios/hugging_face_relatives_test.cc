// model.config: the relatives of GPT-2 and Llama that differ in their norms, biases, positions and residuals.
#include <gtest/gtest.h>

#include "tests/scenarios/hugging_face_testing.h"

namespace windtunnel {
namespace {

// As on the hub, with four layers, and without the keys that no scenario has.
constexpr char kOlmo3Config[] = R"({
  "model_type": "olmo3", "attention_bias": false, "hidden_act": "silu", "hidden_size": 4096,
  "intermediate_size": 11008, "max_position_embeddings": 8192, "num_attention_heads": 32,
  "num_hidden_layers": 4, "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "rope_theta": 500000,
  "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
  "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 100278})";

TEST(HuggingFace, OlmoNormalisesBehindBothHalvesAloneAndAllHeadsTogether) {
  ModelSpec olmo3 = PresetModel("olmo3-7b");
  olmo3.layers = 4;
  EXPECT_EQ(ModelOf(kOlmo3Config), olmo3);
  // Where the kinds of layers are not listed, every fourth sees all tokens.
  const std::string listed =
      R"("layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],)";
  EXPECT_EQ(ModelOf(Replaced(kOlmo3Config, listed, "")), olmo3);
  ModelSpec olmo2 = olmo3;
  olmo2.sliding_window.reset();
  EXPECT_EQ(ModelOf(Replaced(kOlmo3Config, "olmo3", "olmo2")), olmo2);
}

TEST(HuggingFace, OlmoeNormalisesAllHeadsTogether) {
  const char* const olmoe = R"({
    "model_type": "olmoe", "clip_qkv": null, "hidden_size": 2048, "intermediate_size": 1024,
    "max_position_embeddings": 4096, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
    "num_hidden_layers": 16, "num_key_value_heads": 16, "rope_theta": 10000.0, "vocab_size": 50304})";
  const ModelSpec model = ModelOf(olmoe);
  EXPECT_EQ(model.qk_norm_over, QkNormSpan::kAllHeads);
  EXPECT_TRUE(model.pre_norm && model.qk_norm && !model.post_norm);
  ASSERT_TRUE(model.experts);
  EXPECT_EQ(std::pair(model.experts->count, model.experts->top_k), std::pair(64, 8));
  const auto refused =
      ReadHuggingFaceConfig(Write(Replaced(olmoe, "\"clip_qkv\": null", "\"clip_qkv\": 8.0")));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("clip_qkv is 8.0, expected null"), std::string::npos)
      << refused.error().message;
}

// Sizes of a Llama that is small enough to look at.
std::string LlamaLike(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type +
         R"(", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8,
  "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 512)" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

TEST(HuggingFace, LlamasRelativesDifferInWhatTheirConfigurationsSay) {
  const ModelSpec llama = ModelOf(LlamaLike("llama", ""));
  EXPECT_EQ(ModelOf(LlamaLike("granite", "\"residual_multiplier\": 0.22")), llama);

  ModelSpec smollm3 = llama;
  smollm3.kv_heads = 4;
  smollm3.rope_theta = 2e6;
  smollm3.tie_embeddings = true;
  EXPECT_EQ(ModelOf(LlamaLike("smollm3", "\"no_rope_layer_interval\": 4")), smollm3);

  ModelSpec seed = llama;
  seed.kv_heads = 8;
  seed.head_dim = 128;
  seed.qkv_bias = true;
  EXPECT_EQ(ModelOf(LlamaLike("seed_oss", "")), seed);

  ModelSpec ernie = llama;
  ernie.kv_heads = 2;
  ernie.head_dim = 128;
  ernie.norm_epsilon = 1e-5;
  ernie.rope_theta = 500'000;
  ernie.tie_embeddings = true;
  EXPECT_EQ(ModelOf(LlamaLike("ernie4_5", "")), ernie);

  ModelSpec arcee = llama;
  arcee.activation = ActivationKind::kSquaredRelu;
  arcee.norm_epsilon = 1e-5;
  EXPECT_EQ(ModelOf(LlamaLike("arcee", "")), arcee);
}

// zai-org/GLM-4-9B-0414 and its predecessor.
TEST(HuggingFace, GlmRotatesHalfOfAHead) {
  const std::string more = R"("num_key_value_heads": 2, "head_dim": 64, "partial_rotary_factor": 0.5,
  "attention_bias": true, "rms_norm_eps": 1e-05)";
  ModelSpec glm = ModelOf(LlamaLike("glm", more));
  EXPECT_EQ(glm.rope_dim, 32);
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_FALSE(glm.bias);
  EXPECT_FALSE(glm.post_norm);
  glm.post_norm = true;
  EXPECT_EQ(ModelOf(LlamaLike("glm4", more)), glm);
}

// zai-org/GLM-4.5.
TEST(HuggingFace, Glm4sMixturesHaveExpertsBehindTheFirstLayers) {
  const ModelSpec model = ModelOf(R"({"model_type": "glm4_moe", "attention_bias": true, "head_dim": 128,
  "hidden_size": 5120, "partial_rotary_factor": 0.5, "intermediate_size": 12288, "max_position_embeddings": 131072,
  "moe_intermediate_size": 1536, "norm_topk_prob": true, "num_attention_heads": 96, "n_group": 1, "topk_group": 1,
  "n_routed_experts": 160, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "num_experts_per_tok": 8,
  "first_k_dense_replace": 3, "num_hidden_layers": 92, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000, "num_nextn_predict_layers": 1, "tie_word_embeddings": false, "use_qk_norm": true,
  "vocab_size": 151552})");
  EXPECT_EQ(model.rope_dim, 64);
  EXPECT_TRUE(model.qkv_bias && model.qk_norm);
  ASSERT_TRUE(model.experts);
  EXPECT_EQ(model.experts->count, 160);
  EXPECT_EQ(model.experts->top_k, 8);
  EXPECT_EQ(model.experts->shared_ffn, 1536);
  EXPECT_EQ(model.experts->first_dense, 3);
  EXPECT_EQ(model.DenseFfn(), 12288);
  EXPECT_EQ(model.experts->groups, 0);
}

// facebook/opt-1.3b.
TEST(HuggingFace, OptHasGpt2sBlocks) {
  constexpr char kOptConfig[] =
      R"({"model_type": "opt", "activation_function": "relu", "do_layer_norm_before": true,
  "ffn_dim": 8192, "hidden_size": 2048, "max_position_embeddings": 2048, "num_attention_heads": 32,
  "num_hidden_layers": 24, "vocab_size": 50272, "word_embed_proj_dim": 2048})";
  const ModelSpec model = ModelOf(kOptConfig);
  EXPECT_EQ(model.activation, ActivationKind::kRelu);
  EXPECT_EQ(model.position, PositionKind::kLearned);
  EXPECT_TRUE(model.bias && model.tie_embeddings);
  EXPECT_EQ(model.ffn, 8192);
  const auto error_of = [&](const char* from, const char* to) {
    const auto other = ReadHuggingFaceConfig(Write(Replaced(kOptConfig, from, to)));
    return other ? "" : other.error().message;
  };
  EXPECT_NE(error_of("before\": true", "before\": false").find("do_layer_norm_before is false"),
            std::string::npos);
  EXPECT_NE(error_of("_dim\": 2048", "_dim\": 512").find("embeddings are not projected"), std::string::npos);
}

// google-bert/bert-base-uncased.
TEST(HuggingFace, BertSeesAllTokensAndGoesOnFromNorms) {
  constexpr char kBert[] = R"({"model_type": "bert", "hidden_act": "gelu", "hidden_size": 768,
  "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "num_attention_heads": 12,
  "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522})";
  ModelSpec bert = Parsed("model: {preset: bert-base}\n").model;
  bert.preset.clear();
  EXPECT_EQ(ModelOf(kBert), bert);
  EXPECT_FALSE(bert.causal);
  EXPECT_TRUE(bert.residual_from_norm);
  const std::string decoder = Replaced(kBert, "\"type_vocab_size\": 2", "\"is_decoder\": true");
  bert.causal = true;
  EXPECT_EQ(ModelOf(decoder), bert);
  const auto relative = ReadHuggingFaceConfig(
      Write(Replaced(kBert, "\"type_vocab_size\": 2", "\"position_embedding_type\": \"relative_key\"")));
  ASSERT_FALSE(relative);
  EXPECT_NE(relative.error().message.find("position_embedding_type is 'relative_key', expected absolute"),
            std::string::npos);
}

// facebook/bart-base, and what mBART does otherwise.
TEST(HuggingFace, BartHasAnEncoder) {
  constexpr char kBart[] = R"({"model_type": "bart", "activation_function": "gelu", "d_model": 768,
  "decoder_attention_heads": 12, "decoder_ffn_dim": 3072, "decoder_layers": 6, "encoder_attention_heads": 12,
  "encoder_ffn_dim": 3072, "encoder_layers": 6, "max_position_embeddings": 1024, "vocab_size": 50265})";
  ModelSpec bart = Parsed("model: {preset: bart-base}\n").model;
  bart.preset.clear();
  EXPECT_EQ(ModelOf(kBart), bart);
  EXPECT_EQ(bart.encoder, (EncoderSpec{.layers = 6, .seq_len = 1024}));
  bart.residual_from_norm = false;
  EXPECT_EQ(ModelOf(Replaced(kBart, "\"bart\"", "\"mbart\"")), bart);
  const auto uneven =
      ReadHuggingFaceConfig(Write(Replaced(kBart, "\"decoder_ffn_dim\": 3072", "\"decoder_ffn_dim\": 2048")));
  ASSERT_FALSE(uneven);
  EXPECT_NE(uneven.error().message.find("decoder_ffn_dim is 2048, expected encoder_ffn_dim (3072)"),
            std::string::npos);
}

// google-t5/t5-base and google/flan-t5-xl; google/mt5-small leaves the rest to its defaults.
TEST(HuggingFace, T5HasRelativePositions) {
  constexpr char kT5[] = R"({"model_type": "t5", "d_ff": 3072, "d_kv": 64, "d_model": 768, "num_heads": 12,
  "num_layers": 12, "relative_attention_num_buckets": 32, "vocab_size": 32128})";
  const auto preset = [](const char* name) {
    ModelSpec model = Parsed(fmt::format("model: {{preset: {}}}\n", name)).model;
    model.preset.clear();
    return model;
  };
  EXPECT_EQ(ModelOf(kT5), preset("t5-base"));
  EXPECT_EQ(ModelOf(R"({"model_type": "t5", "d_ff": 5120, "d_kv": 64, "d_model": 2048, "num_heads": 32,
  "num_layers": 24, "num_decoder_layers": 24, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false,
  "relative_attention_max_distance": 128, "vocab_size": 32128})"),
            preset("flan-t5-xl"));
  const ModelSpec multilingual = ModelOf(Replaced(kT5, "\"t5\"", "\"mt5\""));
  EXPECT_EQ(multilingual.activation, ActivationKind::kGeglu);
  EXPECT_FALSE(multilingual.tie_embeddings);
  const auto half = ReadHuggingFaceConfig(
      Write(Replaced(kT5, "\"num_heads\"", "\"is_encoder_decoder\": false, \"num_heads\"")));
  ASSERT_FALSE(half);
  EXPECT_NE(half.error().message.find("is_encoder_decoder is false, expected true"), std::string::npos);
  const auto others = ReadHuggingFaceConfig(Write(Replaced(kT5, "buckets\": 32", "buckets\": 64")));
  ASSERT_FALSE(others);
  EXPECT_NE(others.error().message.find("relative_attention_num_buckets is 64, expected 32"),
            std::string::npos);
}

// FacebookAI/roberta-base: the first position is that behind padding's.
TEST(HuggingFace, RobertasSequencesAreShorterThanItsPositions) {
  const ModelSpec model = ModelOf(R"({"model_type": "roberta", "hidden_act": "gelu", "hidden_size": 768,
  "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "num_attention_heads": 12,
  "num_hidden_layers": 12, "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265})");
  EXPECT_EQ(model.seq_len, 512);
  EXPECT_FALSE(model.causal);
}

// EleutherAI/pythia-1.4b.
TEST(HuggingFace, GptNeoxHasTheMlpBesideAttention) {
  constexpr char kPythia[] = R"({"model_type": "gpt_neox", "hidden_act": "gelu", "hidden_size": 2048,
  "intermediate_size": 8192, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "num_attention_heads": 16,
  "num_hidden_layers": 24, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
  "use_parallel_residual": true, "vocab_size": 50304})";
  ModelSpec pythia = Parsed("model: {preset: pythia-1.4b}\n").model;
  pythia.preset.clear();
  EXPECT_EQ(ModelOf(kPythia), pythia);
  pythia.parallel_residual = ParallelResidual::kNone;
  EXPECT_EQ(ModelOf(Replaced(kPythia, "residual\": true", "residual\": false")), pythia);
}

// microsoft/phi-2.
TEST(HuggingFace, PhiHasOneNormForBoth) {
  const ModelSpec model = ModelOf(R"({"model_type": "phi", "hidden_act": "gelu_new", "hidden_size": 2560,
  "intermediate_size": 10240, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": false,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 51200})");
  EXPECT_EQ(model.parallel_residual, ParallelResidual::kOneNorm);
  EXPECT_EQ(model.rope_dim, 32);
  EXPECT_TRUE(model.bias && model.qkv_bias);
}

// tiiuae/falcon-7b and falcon-40b.
TEST(HuggingFace, FalconsNewArchitectureHasTwoNorms) {
  const ModelSpec seven =
      ModelOf(R"({"model_type": "falcon", "alibi": false, "bias": false, "hidden_size": 4544,
  "layer_norm_epsilon": 1e-05, "multi_query": true, "new_decoder_architecture": false, "num_attention_heads": 71,
  "num_hidden_layers": 32, "parallel_attn": true, "vocab_size": 65024})");
  EXPECT_EQ(seven.parallel_residual, ParallelResidual::kOneNorm);
  EXPECT_EQ(seven.kv_heads, 1);
  EXPECT_EQ(seven.ffn, 18176);
  EXPECT_TRUE(seven.tie_embeddings);
  constexpr char kForty[] = R"({"model_type": "falcon", "alibi": false, "bias": false, "hidden_size": 8192,
  "layer_norm_epsilon": 1e-05, "new_decoder_architecture": true, "num_attention_heads": 128, "num_hidden_layers": 60,
  "num_kv_heads": 8, "parallel_attn": true, "vocab_size": 65024})";
  const ModelSpec forty = ModelOf(kForty);
  EXPECT_EQ(forty.parallel_residual, ParallelResidual::kTwoNorms);
  EXPECT_EQ(forty.kv_heads, 8);
  const auto with_alibi = ReadHuggingFaceConfig(Write(Replaced(kForty, "alibi\": false", "alibi\": true")));
  ASSERT_FALSE(with_alibi);
  EXPECT_NE(with_alibi.error().message.find("alibi is true, expected false"), std::string::npos);
}

// CohereForAI/c4ai-command-r-v01.
TEST(HuggingFace, CommandRIsALlamaWithOneLayerNorm) {
  const ModelSpec model = ModelOf(R"({"model_type": "cohere", "attention_bias": false, "hidden_act": "silu",
  "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "max_position_embeddings": 8192,
  "num_attention_heads": 64, "num_hidden_layers": 40, "num_key_value_heads": 64, "rope_theta": 8000000.0,
  "use_qk_norm": false, "vocab_size": 256000})");
  EXPECT_EQ(model.parallel_residual, ParallelResidual::kOneNorm);
  EXPECT_EQ(model.norm, NormKind::kLayerNorm);
  EXPECT_FALSE(model.bias);
  EXPECT_TRUE(model.tie_embeddings);
}

TEST(HuggingFace, Mistral3IsItsTextModel) {
  const ModelSpec model = ModelOf(R"({"model_type": "mistral3", "vision_config": {"hidden_size": 1024},
  "text_config": {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768,
    "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 131072}})");
  EXPECT_EQ(model.hidden, 5120);
  EXPECT_FALSE(model.sliding_window);
}

}  // namespace
}  // namespace windtunnel
