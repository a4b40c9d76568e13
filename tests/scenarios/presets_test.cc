// Presets, checked against published parameter counts.
#include "scenarios/presets.h"

#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

// Parameters by formula. A block has the attention's four matrices (keys and values kv_heads / heads as wide;
// latent attention has matrices of latents), two feed-forward matrices (three if gated) for each expert,
// their biases, two or four norms (LayerNorm has a bias, RMSNorm has none), and perhaps those of heads.
int64_t CountParameters(const ModelSpec& m) {
  if (m.kind == ModelKind::kMlp) {
    int64_t count = 0;
    for (size_t i = 1; i < m.widths.size(); ++i)
      count += m.widths[i - 1] * m.widths[i] + (m.bias ? m.widths[i] : 0);
    return count;
  }
  int64_t kv = m.kv_heads * m.head_dim;
  bool gated = IsGated(m.activation);
  int64_t queries = m.heads * m.head_dim, attention = 2 * m.hidden * (queries + kv);
  if (m.latent_attention) {
    const LatentAttentionSpec& l = *m.latent_attention;
    const int64_t of_queries = l.q_rank > 0 ? l.q_rank * (m.hidden + queries + 1) : m.hidden * queries;
    attention = of_queries + m.hidden * (l.kv_rank + l.rope_dim) +
                l.kv_rank * (m.heads * (m.head_dim - l.rope_dim + m.ValueDim()) + 1) +
                m.heads * m.ValueDim() * m.hidden;
  }
  int64_t with_attention = m.layers, without_mlp = 0, mixers = 0;
  if (const auto& mamba = m.mamba) {
    // Two projections, a convolution with biases, three numbers for each head, a norm, and that before it.
    const int64_t inner = mamba->heads * mamba->head_dim, shared = 2 * mamba->groups * mamba->state;
    mixers = m.RecurrentLayers() * (m.hidden * (3 * inner + shared + mamba->heads) +
                                    (inner + shared) * (mamba->conv + 1) + 3 * mamba->heads + inner);
    with_attention -= m.RecurrentLayers();
    without_mlp = m.CountLayers([](const LayerKind& kind) { return !kind.has_mlp; });
  }
  if (m.attention_gate) attention += m.hidden * queries;
  if (const auto& net = m.delta_net) {
    // Two projections, a convolution, two numbers for each head, and a norm of one head.
    const int64_t keys = 2 * net->key_heads * net->key_dim, values = net->value_heads * net->value_dim;
    mixers = m.RecurrentLayers() * (m.hidden * (keys + 3 * values + 2 * net->value_heads) +
                                    (keys + values) * net->conv + 2 * net->value_heads + net->value_dim);
    with_attention -= m.RecurrentLayers();
  }
  const int64_t with_experts = m.LayersWithExperts(), mlp = (gated ? 3 : 2) * m.hidden;
  int64_t feed_forward = (m.layers - without_mlp - with_experts) * mlp * m.DenseFfn();
  if (m.experts)  // and the router, and the projections to latents and from them
    feed_forward += with_experts * (m.experts->count * (mlp / m.hidden * m.ExpertWidth() * m.ffn + m.hidden) +
                                    mlp * m.experts->shared_ffn + 2 * m.hidden * m.experts->latent +
                                    (m.experts->shared_gate ? m.hidden : 0));
  if (m.experts && m.experts->bias)
    feed_forward += with_experts * m.experts->count * ((gated ? 2 : 1) * m.ffn + m.hidden);
  int64_t biases = 0;
  if (m.bias) biases = m.hidden + (m.experts ? 0 : (gated ? 2 : 1) * m.ffn + m.hidden);
  if (m.qkv_bias) biases += queries + 2 * kv;
  if (m.qk_norm) biases += m.qk_norm_over == QkNormSpan::kAllHeads ? queries + kv : 2 * m.head_dim;
  int64_t norm = (m.norm == NormKind::kLayerNorm ? 2 : 1) * m.hidden;
  const int64_t norms = !m.pre_norm                                         ? 2
                        : m.post_norm                                       ? 4
                        : m.parallel_residual == ParallelResidual::kOneNorm ? 1
                                                                            : 2;
  int64_t embeddings = (m.tie_embeddings ? 1 : 2) * m.vocab * m.hidden;
  int64_t positions = m.position == PositionKind::kLearned    ? m.SampleTokens() * m.hidden
                      : m.position == PositionKind::kRelative ? (m.encoder ? 2 : 1) * 32 * m.heads
                                                              : 0;
  int64_t encoder = 0;  // and cross-attention
  if (m.encoder)
    encoder = m.encoder->layers * (attention + biases + 2 * norm + mlp * m.ffn) + norm +
              m.layers * (attention + norm + (m.bias ? m.hidden : 0) + (m.qkv_bias ? queries + 2 * kv : 0));
  const int64_t head_norms =
      m.delta_net ? (m.layers - with_attention) * 2 * m.head_dim : 0;  // that are not there
  return m.layers * (biases + norms * norm) - without_mlp * norm + with_attention * attention + mixers -
         head_norms + feed_forward + norm + embeddings + positions + encoder;
}

int64_t CountOf(const std::string& preset) {
  return CountParameters(Parsed("model: {preset: " + preset + "}\n").model);
}

// The sums of the published checkpoints' tensor sizes.
TEST(Presets, HaveThePublishedNumberOfParameters) {
  // Of the 109,514,298 and 335,174,458 of BertForMaskedLM: without token types (two rows and the bias of the
  // head, vocab) and the transformation before the head (hidden^2 + 3 hidden).
  EXPECT_EQ(CountOf("bert-base"), 109'514'298 - 2 * 768 - 30'522 - 768 * 768 - 3 * 768);
  EXPECT_EQ(CountOf("bert-large"), 335'174'458 - 2 * 1024 - 30'522 - 1024 * 1024 - 3 * 1024);
  // BART's tables have two more positions each.
  EXPECT_EQ(CountOf("bart-base"), 139'420'416 - 4 * 768);
  EXPECT_EQ(CountOf("bart-large"), 406'291'456 - 4 * 1024);
  EXPECT_EQ(CountOf("t5-small"), 60'506'624);
  EXPECT_EQ(CountOf("t5-base"), 222'903'552);
  EXPECT_EQ(CountOf("t5-large"), 737'668'096);
  EXPECT_EQ(CountOf("t5-3b"), 2'851'598'336);
  EXPECT_EQ(CountOf("t5-11b"), 11'307'321'344);
  EXPECT_EQ(CountOf("flan-t5-small"), 76'961'152);
  EXPECT_EQ(CountOf("flan-t5-base"), 247'577'856);
  EXPECT_EQ(CountOf("flan-t5-large"), 783'150'080);
  EXPECT_EQ(CountOf("flan-t5-xl"), 2'849'757'184);
  EXPECT_EQ(CountOf("flan-t5-xxl"), 11'135'332'352);
  EXPECT_EQ(CountOf("gpt2-124m"), 124'439'808);
  EXPECT_EQ(CountOf("gpt2-355m"), 354'823'168);
  EXPECT_EQ(CountOf("gpt2-774m"), 774'030'080);
  EXPECT_EQ(CountOf("gpt2-1.5b"), 1'557'611'200);
  EXPECT_EQ(CountOf("olmo2-7b"), 7'298'617'344);
  EXPECT_EQ(CountOf("pythia-160m"), 162'322'944);
  EXPECT_EQ(CountOf("pythia-410m"), 405'334'016);
  EXPECT_EQ(CountOf("pythia-1b"), 1'011'781'632);
  EXPECT_EQ(CountOf("pythia-1.4b"), 1'414'647'808);
  EXPECT_EQ(CountOf("pythia-2.8b"), 2'775'208'960);
  EXPECT_EQ(CountOf("pythia-6.9b"), 6'857'302'016);
  EXPECT_EQ(CountOf("pythia-12b"), 11'846'072'320);
  EXPECT_EQ(CountOf("gpt-neox-20b"), 20'554'567'680);
  EXPECT_EQ(CountOf("llama-7b"), 6'738'415'616);
  EXPECT_EQ(CountOf("llama2-7b"), 6'738'415'616);
  EXPECT_EQ(CountOf("llama2-13b"), 13'015'864'320);
  EXPECT_EQ(CountOf("llama2-70b"), 68'976'648'192);
  EXPECT_EQ(CountOf("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(CountOf("llama3-70b"), 70'553'706'496);
  EXPECT_EQ(CountOf("llama3-405b"), 405'853'388'800);
  EXPECT_EQ(CountOf("llama4-scout"), 107'769'861'120);  // of text
  EXPECT_EQ(CountOf("mixtral-8x7b"), 46'702'792'704);
  EXPECT_EQ(CountOf("qwen2.5-0.5b"), 494'032'768);
  EXPECT_EQ(CountOf("qwen2.5-7b"), 7'615'616'512);
  EXPECT_EQ(CountOf("qwen2.5-72b"), 72'706'203'648);
  EXPECT_EQ(CountOf("mixtral-8x22b"), 140'620'634'112) << "mistralai/Mixtral-8x22B-v0.1";
  EXPECT_EQ(CountOf("qwen3-0.6b"), 596'049'920);
  EXPECT_EQ(CountOf("qwen3-8b"), 8'190'735'360);
  EXPECT_EQ(CountOf("qwen3-32b"), 32'762'123'264);
  EXPECT_EQ(CountOf("qwen3-30b-a3b"), 30'532'122'624);
  EXPECT_EQ(CountOf("qwen3-235b-a22b"), 235'093'634'560);
  EXPECT_EQ(CountOf("deepseek-v2-lite"), 15'706'484'224);
  EXPECT_EQ(CountOf("deepseek-v3"), 671'026'404'352);  // without 58 x 256 numbers that balance routing
  // Their authors state a trillion and 400 billion.
  EXPECT_NEAR(static_cast<double>(CountOf("kimi-k2")), 1e12, 0.05e12);
  EXPECT_NEAR(static_cast<double>(CountOf("llama4-maverick")), 400e9, 1e9);
  EXPECT_EQ(CountOf("mistral-7b-v0.1"), 7'241'732'096);
  EXPECT_EQ(CountOf("gemma3-1b"), 999'885'952);
  // arXiv:2503.19786, table 1, in millions: those of embeddings and all others.
  EXPECT_NEAR(static_cast<double>(CountOf("gemma3-4b")), (675 + 3209) * 1e6, 1e7);
  EXPECT_NEAR(static_cast<double>(CountOf("gemma3-12b")), (1012 + 10759) * 1e6, 1e7);
  EXPECT_NEAR(static_cast<double>(CountOf("gemma3-27b")), (1416 + 25600) * 1e6, 1e7);
  // arXiv:2508.10925, table 1; ours are without a number for each head and each logit of a router.
  EXPECT_NEAR(static_cast<double>(CountOf("gpt-oss-20b")), 20.91e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(CountOf("gpt-oss-120b")), 116.83e9, 0.005e9);
  // Their authors state 8.1, 56.3 and 31.6 billion, and 2.7.
  EXPECT_NEAR(static_cast<double>(CountOf("nemotron-h-8b")), 8.10e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(CountOf("nemotron-h-56b")), 56.3e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(CountOf("nemotron3-nano-30b")), 31.6e9, 0.05e9);
  // 123.61 billion with the module that predicts two tokens further.
  EXPECT_NEAR(static_cast<double>(CountOf("nemotron3-super-120b")), 120.7e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(CountOf("mamba2-2.7b")), 2.70e9, 0.005e9);
  // Sums of the checkpoints' tensors, without the modules that predict a token further and the image tower.
  EXPECT_EQ(CountOf("qwen3-next-80b-a3b"), 79'674'391'296);
  EXPECT_EQ(CountOf("qwen3.5-9b"), 8'953'803'264);
  EXPECT_EQ(CountOf("qwen3.5-397b-a17b"), 396'346'350'336);
  EXPECT_EQ(CountOf("mlp-10-100-10"), 2'110);  // 10 x 100 + 100 + 100 x 10 + 10
}

// A block that is given overrides single keys of the preset's, from the file or from the command line.
TEST(Presets, KeepTheKeysOfABlockThatAreNotGiven) {
  const ModelSpec mixtral = Parsed("model: {preset: mixtral-8x7b}\n").model;
  ModelSpec imbalanced = mixtral;
  imbalanced.experts->imbalance = 1.2;
  EXPECT_EQ(Parsed("model: {preset: mixtral-8x7b, experts: {imbalance: 1.2}}\n").model, imbalanced);
  ModelSpec longer = Parsed("model: {preset: gemma3-4b}\n").model;
  ASSERT_GT(longer.sliding_window->full_every, 0);
  longer.sliding_window->tokens = 2048;
  EXPECT_EQ(Parsed("model: {preset: gemma3-4b, sliding_window: {tokens: 2048}}\n").model, longer);
  EXPECT_FALSE(Parsed("model: {preset: gemma3-4b, sliding_window: null}\n").model.sliding_window);
  EXPECT_EQ(MessageOf("model: {preset: gpt2-124m, experts: {top_k: 2}}\n"),
            "s.yaml:1:37: model.experts.count is missing, expected a value");
}

TEST(Presets, Gpt3HasThe174600MillionParametersOfItsPaper) {  // arXiv:2005.14165, table D.1
  EXPECT_NEAR(static_cast<double>(CountOf("gpt3-175b")), 174'600e6, 50e6);
}

TEST(Presets, HaveTheirModelsContext) {
  EXPECT_EQ(ModelPreset("gpt2-1.5b").seq_len, 1024);
  EXPECT_EQ(ModelPreset("gpt3-175b").seq_len, 2048);
  EXPECT_EQ(ModelPreset("llama2-70b").seq_len, 4096);
  EXPECT_EQ(ModelPreset("llama3-405b").seq_len, 8192);
}

TEST(Presets, AreAllCompleteAndValid) {
  for (const std::string& name : ModelPresetNames())
    EXPECT_EQ(Parsed("model: {preset: " + name + "}\n").model.preset, name);
}

}  // namespace
}  // namespace windtunnel
