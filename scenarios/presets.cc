#include "scenarios/presets.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/check.h"

namespace windtunnel {
namespace {

// GPT-2's block: GELU, LayerNorm, learned positions, biases, tied head. Llama's: SwiGLU, RMSNorm, rotary
// positions, no biases, an untied head. Qwen2's is Llama's with biases of queries, keys and values. Qwen3's
// is Llama's with norms of the heads of queries and keys. DeepSeek's is Llama's with latent attention: 64
// columns of a head are rotated, 128 are not, and a head of values has 128. GPT-OSS's has biases of all of
// attention's projections and of experts, and its own activation. Gemma 3's is Qwen3's with GEGLU and with
// norms behind attention and the MLP. GPT-NeoX's is GPT-2's with rotary positions of a quarter of each head,
// an untied head, and the MLP beside attention. BERT's and BART's are GPT-2's with norms behind attention and
// the MLP; BART's is a decoder's, with an encoder. T5's has RMS norms, ReLU, relative positions, no biases
// and a tied head; Flan-T5's (T5 1.1) GEGLU and an untied one. Nemotron-H's is Llama's without positions,
// with a squared ReLU, and in most layers with Mamba-2 instead of attention. Mamba-2's has nothing else.
// Qwen3-Next's is Qwen3's with gated delta networks instead of attention in three layers of four, gates of
// attention and of a shared expert, and rotary positions of a quarter of each head.
enum class Family {
  kGpt,
  kLlama,
  kQwen2,
  kQwen3,
  kDeepseek,
  kGptOss,
  kGemma3,
  kNeox,
  kOlmo2,
  kBert,
  kBart,
  kT5,
  kFlanT5,
  kNemotronH,
  kMamba2,
  kQwen3Next
};

ActivationKind ActivationOf(Family family) {
  switch (family) {
    case Family::kBart:
    case Family::kBert:
    case Family::kGpt:
    case Family::kMamba2:
    case Family::kNeox:
      return ActivationKind::kGelu;
    case Family::kGptOss:
      return ActivationKind::kClampedSwiglu;
    case Family::kT5:
      return ActivationKind::kRelu;
    case Family::kNemotronH:
      return ActivationKind::kSquaredRelu;
    case Family::kFlanT5:
    case Family::kGemma3:
      return ActivationKind::kGeglu;
    default:
      return ActivationKind::kSwiglu;
  }
}

// As in MambaSpec. If heads is 0, no layer has Mamba-2.
struct Mamba {
  std::string_view pattern = {};
  int64_t heads = 0, groups = 8, state = 128, chunk = 128;
};

// What only some models have.
struct Others {
  int64_t head_dim = 0;         // 0: hidden / heads
  int experts = 0, top_k = 0;   // each of width ffn; no token is dropped
  bool tie_embeddings = false;  // GPT-2's are tied in any case
  int64_t shared_ffn = 0;       // width of the expert that all tokens go to
  int64_t latent = 0;           // of experts, as in ExpertsSpec
  // As in ExpertsSpec and LatentAttentionSpec. If kv_rank is 0, attention has no latents.
  int64_t first_dense = 0, every = 1, dense_ffn = 0, q_rank = 0, kv_rank = 0;
  int groups = 0, top_k_groups = 0;
  int64_t window = 0, full_every = 0;  // as in SlidingWindowSpec; window 0: none
  int64_t source = 0;  // tokens of a source sequence: there is an encoder, of as many layers; 0: none
  Mamba mamba = {};
  std::string_view delta_net = {};  // the pattern; empty: no layer has a gated delta network
  int64_t value_heads = 32;         // of those; 16 of keys
};

struct Row {
  std::string_view name;
  Family family;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq_len;  // kv_heads 0: heads; ffn 0: 4 x hidden
  double rope_theta = 10'000, norm_epsilon = 1e-5;
  Others others = {};
};

constexpr std::string_view kNemotronH8b = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
constexpr std::string_view kNemotronH56b =
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-"
    "M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
constexpr std::string_view kNemotron3Super =
    "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME";
constexpr std::string_view kNemotron3Nano = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";

// Sources of the rows, from top to bottom:
//   GPT-2    openai/gpt-2 (hparams.json of the released checkpoints 124M, 355M, 774M, 1558M)
//   GPT-3    Brown et al., arXiv:2005.14165, table 2.1; vocabulary of GPT-2, context 2048 (section 2.1)
//   BERT     Devlin et al., arXiv:1810.04805, section 3; google-bert/bert-{base,large}-uncased config.json. Not
//            modelled: token types, the pooler and its loss, the transformation before the head.
//   BART     Lewis et al., arXiv:1910.13461; facebook/bart-{base,large} config.json
//   T5       Raffel et al., arXiv:1910.10683, section 3.7; google-t5/t5-{small to 11b} config.json; 512 tokens of
//            a source in pre-training (section 3.1.2) and up to 128 of a target, as in Megatron-LM's example.
//            T5 1.1 and Flan-T5: google/flan-t5-{small to xxl} config.json
//   Pythia   Biderman et al., arXiv:2304.01373, table 1; EleutherAI/pythia-{160m to 12b} config.json
//   GPT-NeoX Black et al., arXiv:2204.06745, section 3; EleutherAI/gpt-neox-20b config.json
//   Llama 2  Touvron et al., arXiv:2307.09288, table 1; meta-llama/Llama-2-{7b,13b,70b}-hf config.json.
//            Llama 1 7B (arXiv:2302.13971, table 2) has the same blocks, and a context of 2048.
//   Llama 3  Grattafiori et al., arXiv:2407.21783, table 3; its context in pre-training (section 3.4.1)
//   Llama 4  meta-llama/Llama-4-Scout-17B-16E text_config. The context here is attention_chunk_size, which is
//            as far as three layers of four see. Not modelled: the fourth layer's lack of positions and its
//            view of all tokens, norms of heads without weights, routing by sigmoid.
//            Maverick: meta-llama/Llama-4-Maverick-17B-128E text_config; experts in every second layer.
//   Mixtral  Jiang et al., arXiv:2401.04088, table 1; mistralai/Mixtral-8x7B-v0.1 config.json; context 32768
//            mistralai/Mixtral-8x22B-v0.1 config.json; context 65536
//   Qwen2.5  arXiv:2412.15115, table 1; Qwen/Qwen2.5-{0.5B,7B,72B} config.json; its context in pre-training
//            (section 3.3)
//   Qwen3    arXiv:2505.09388, tables 1 and 2; Qwen/Qwen3-{0.6B,8B,32B,30B-A3B,235B-A22B} config.json; its
//            context in pre-training (section 3.2)
//   DeepSeek arXiv:2405.04434, section 3.1.2 and deepseek-ai/DeepSeek-V2-Lite config.json; arXiv:2412.19437,
//            section 4.2 and deepseek-ai/DeepSeek-V3 config.json; context in pre-training. Not modelled:
//            routing by sigmoid, the multi-token prediction modules.
//   Kimi K2  arXiv:2507.20534, table 2; moonshotai/Kimi-K2-Base config.json; context in pre-training
//   Mistral  Jiang et al., arXiv:2310.06825, table 1; mistralai/Mistral-7B-v0.1 config.json
//   OLMo     arXiv:2501.00656, table 3, and allenai/OLMo-2-{0425-1B,1124-7B,1124-13B,0325-32B} config.json;
//            OLMo 3: allenai/Olmo-3-{1025-7B,1125-32B} config.json, with its context in pre-training
//   GPT-OSS  OpenAI, arXiv:2508.10925, section 2; openai/gpt-oss-{20b,120b} config.json; its context before
//            it was extended. Not modelled: attention sinks (a logit per head without a token), the
//            router's bias.
//   Gemma 3  arXiv:2503.19786, table 1; google/gemma-3-{1b,4b,12b,27b}-pt config.json; its context in
//            pre-training (section 2.2). Not modelled: embeddings times the root of their width, another base
//            of rotary positions in layers with a window, the image tower.
//   Nemotron-H  arXiv:2504.03624; these and Nemotron 3: NVIDIA-NeMo/Megatron-Bridge,
//            models/nemotronh/nemotron_h_provider.py, with its context. Its layers are mixers, MLPs
//            and experts; here a layer is a mixer with what follows it. Not modelled: routing by sigmoid.
//   Mamba-2  Dao and Gu, arXiv:2405.21060; state-spaces/mamba2-2.7b config.json, with the padded vocabulary.
//            Its heads are Mamba-2's, since no layer has attention.
//   Qwen3-Next, Qwen3.5  Qwen/Qwen3-Next-80B-A3B-Instruct and Qwen/Qwen3.5-{9B,27B,35B-A3B,122B-A10B,397B-A17B}
//            config.json, of the latter text_config; the context of NVIDIA-NeMo/Megatron-Bridge's recipes. Not
//            modelled: the multi-token prediction modules, the image tower.
constexpr Row kRows[] = {
    // name, family, layers, hidden, heads, kv_heads, ffn, vocab, seq_len, rope_theta, norm_epsilon, {others}
    // clang-format off
    {"gpt2-124m",        Family::kGpt,       12,   768,  12,  0,     0,  50257,  1024},
    {"gpt2-355m",        Family::kGpt,       24,  1024,  16,  0,     0,  50257,  1024},
    {"gpt2-774m",        Family::kGpt,       36,  1280,  20,  0,     0,  50257,  1024},
    {"gpt2-1.5b",        Family::kGpt,       48,  1600,  25,  0,     0,  50257,  1024},
    {"gpt3-175b",        Family::kGpt,       96, 12288,  96,  0,     0,  50257,  2048},
    {"bert-base",        Family::kBert,      12,   768,  12,  0,     0,  30522,   512,   1e4, 1e-12},
    {"bert-large",       Family::kBert,      24,  1024,  16,  0,     0,  30522,   512,   1e4, 1e-12},
    {"bart-base",        Family::kBart,       6,   768,  12,  0,     0,  50265,  1024,   1e4,  1e-5,
     {.source = 1024}},
    {"bart-large",       Family::kBart,      12,  1024,  16,  0,     0,  50265,  1024,   1e4,  1e-5,
     {.source = 1024}},
    {"t5-small",         Family::kT5,         6,   512,   8,  0,  2048,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"t5-base",          Family::kT5,        12,   768,  12,  0,  3072,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"t5-large",         Family::kT5,        24,  1024,  16,  0,  4096,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"t5-3b",            Family::kT5,        24,  1024,  32,  0, 16384,  32128,   128,   1e4,  1e-6,
     {.head_dim = 128, .source = 512}},
    {"t5-11b",           Family::kT5,        24,  1024, 128,  0, 65536,  32128,   128,   1e4,  1e-6,
     {.head_dim = 128, .source = 512}},
    {"flan-t5-small",    Family::kFlanT5,     8,   512,   6,  0,  1024,  32128,   128,   1e4,  1e-6,
     {.head_dim = 64, .source = 512}},
    {"flan-t5-base",     Family::kFlanT5,    12,   768,  12,  0,  2048,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"flan-t5-large",    Family::kFlanT5,    24,  1024,  16,  0,  2816,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"flan-t5-xl",       Family::kFlanT5,    24,  2048,  32,  0,  5120,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"flan-t5-xxl",      Family::kFlanT5,    24,  4096,  64,  0, 10240,  32128,   128,   1e4,  1e-6,
     {.source = 512}},
    {"pythia-160m",      Family::kNeox,      12,   768,  12,  0,     0,  50304,  2048},
    {"pythia-410m",      Family::kNeox,      24,  1024,  16,  0,     0,  50304,  2048},
    {"pythia-1b",        Family::kNeox,      16,  2048,   8,  0,     0,  50304,  2048},
    {"pythia-1.4b",      Family::kNeox,      24,  2048,  16,  0,     0,  50304,  2048},
    {"pythia-2.8b",      Family::kNeox,      32,  2560,  32,  0,     0,  50304,  2048},
    {"pythia-6.9b",      Family::kNeox,      32,  4096,  32,  0,     0,  50432,  2048},
    {"pythia-12b",       Family::kNeox,      36,  5120,  40,  0,     0,  50688,  2048},
    {"gpt-neox-20b",     Family::kNeox,      44,  6144,  64,  0,     0,  50432,  2048},
    {"llama-7b",         Family::kLlama,     32,  4096,  32,  0, 11008,  32000,  4096,   1e4,  1e-6},
    {"llama2-7b",        Family::kLlama,     32,  4096,  32,  0, 11008,  32000,  4096},
    {"llama2-13b",       Family::kLlama,     40,  5120,  40,  0, 13824,  32000,  4096},
    {"llama2-70b",       Family::kLlama,     80,  8192,  64,  8, 28672,  32000,  4096},
    {"llama3-8b",        Family::kLlama,     32,  4096,  32,  8, 14336, 128256,  8192,   5e5},
    {"llama3-70b",       Family::kLlama,     80,  8192,  64,  8, 28672, 128256,  8192,   5e5},
    {"llama3-405b",      Family::kLlama,    126, 16384, 128,  8, 53248, 128256,  8192,   5e5},
    {"llama4-scout",     Family::kLlama,     48,  5120,  40,  8,  8192, 202048,  8192,   5e5,  1e-5,
     {.head_dim = 128, .experts = 16, .top_k = 1, .shared_ffn = 8192}},
    {"llama4-maverick",  Family::kLlama,     48,  5120,  40,  8,  8192, 202048,  8192,   5e5,  1e-5,
     {.head_dim = 128, .experts = 128, .top_k = 1, .shared_ffn = 8192, .every = 2, .dense_ffn = 16384}},
    {"mixtral-8x7b",     Family::kLlama,     32,  4096,  32,  8, 14336,  32000, 32768,   1e6,  1e-5,
     {.head_dim = 128, .experts = 8, .top_k = 2}},
    {"mixtral-8x22b",    Family::kLlama,     56,  6144,  48,  8, 16384,  32000, 65536,   1e6,  1e-5,
     {.head_dim = 128, .experts = 8, .top_k = 2}},
    {"qwen2.5-0.5b",     Family::kQwen2,     24,   896,  14,  2,  4864, 151936,  4096,   1e6,  1e-6,
     {.head_dim = 64, .tie_embeddings = true}},
    {"qwen2.5-7b",       Family::kQwen2,     28,  3584,  28,  4, 18944, 152064,  4096,   1e6,  1e-6},
    {"qwen2.5-72b",      Family::kQwen2,     80,  8192,  64,  8, 29568, 152064,  4096,   1e6},
    {"qwen3-0.6b",       Family::kQwen3,     28,  1024,  16,  8,  3072, 151936,  4096,   1e6,  1e-6,
     {.head_dim = 128, .tie_embeddings = true}},
    {"qwen3-8b",         Family::kQwen3,     36,  4096,  32,  8, 12288, 151936,  4096,   1e6,  1e-6,
     {.head_dim = 128}},
    {"qwen3-32b",        Family::kQwen3,     64,  5120,  64,  8, 25600, 151936,  4096,   1e6,  1e-6,
     {.head_dim = 128}},
    {"qwen3-30b-a3b",    Family::kQwen3,     48,  2048,  32,  4,   768, 151936,  4096,   1e6,  1e-6,
     {.head_dim = 128, .experts = 128, .top_k = 8}},
    {"qwen3-235b-a22b",  Family::kQwen3,     94,  4096,  64,  4,  1536, 151936,  4096,   1e6,  1e-6,
     {.head_dim = 128, .experts = 128, .top_k = 8}},
    {"deepseek-v2-lite", Family::kDeepseek,  27,  2048,  16,  0,  1408, 102400,  4096,   1e4,  1e-6,
     {.head_dim = 192, .experts = 64, .top_k = 6, .shared_ffn = 2816, .first_dense = 1, .dense_ffn = 10944,
      .kv_rank = 512}},
    {"deepseek-v3",      Family::kDeepseek,  61,  7168, 128,  0,  2048, 129280,  4096,   1e4,  1e-6,
     {.head_dim = 192, .experts = 256, .top_k = 8, .shared_ffn = 2048, .first_dense = 3, .dense_ffn = 18432,
      .q_rank = 1536, .kv_rank = 512, .groups = 8, .top_k_groups = 4}},
    {"kimi-k2",          Family::kDeepseek,  61,  7168,  64,  0,  2048, 163840,  4096,   5e4,  1e-6,
     {.head_dim = 192, .experts = 384, .top_k = 8, .shared_ffn = 2048, .first_dense = 1, .dense_ffn = 18432,
      .q_rank = 1536, .kv_rank = 512}},
    {"mistral-7b-v0.1",  Family::kLlama,     32,  4096,  32,  8, 14336,  32000,  8192,   1e4,  1e-5,
     {.head_dim = 128, .window = 4096}},
    {"olmo2-1b",         Family::kOlmo2,     16,  2048,  16,  0,  8192, 100352,  4096,   5e5,  1e-6},
    {"olmo2-7b",         Family::kOlmo2,     32,  4096,  32,  0, 11008, 100352,  4096,   5e5,  1e-6},
    {"olmo2-13b",        Family::kOlmo2,     40,  5120,  40,  0, 13824, 100352,  4096,   5e5,  1e-6},
    {"olmo2-32b",        Family::kOlmo2,     64,  5120,  40,  8, 27648, 100352,  4096,   5e5,  1e-6},
    {"olmo3-7b",         Family::kOlmo2,     32,  4096,  32,  0, 11008, 100278,  8192,   5e5,  1e-6,
     {.window = 4096, .full_every = 4}},
    {"olmo3-32b",        Family::kOlmo2,     64,  5120,  40,  8, 27648, 100278,  8192,   5e5,  1e-6,
     {.window = 4096, .full_every = 4}},
    {"gpt-oss-20b",      Family::kGptOss,    24,  2880,  64,  8,  2880, 201088,  4096, 1.5e5,  1e-5,
     {.head_dim = 64, .experts = 32, .top_k = 4, .window = 128, .full_every = 2}},
    {"gpt-oss-120b",     Family::kGptOss,    36,  2880,  64,  8,  2880, 201088,  4096, 1.5e5,  1e-5,
     {.head_dim = 64, .experts = 128, .top_k = 4, .window = 128, .full_every = 2}},
    {"gemma3-1b",        Family::kGemma3,    26,  1152,   4,  1,  6912, 262144, 32768,   1e6,  1e-6,
     {.head_dim = 256, .tie_embeddings = true, .window = 512, .full_every = 6}},
    {"gemma3-4b",        Family::kGemma3,    34,  2560,   8,  4, 10240, 262208, 32768,   1e6,  1e-6,
     {.head_dim = 256, .tie_embeddings = true, .window = 1024, .full_every = 6}},
    {"gemma3-12b",       Family::kGemma3,    48,  3840,  16,  8, 15360, 262208, 32768,   1e6,  1e-6,
     {.head_dim = 256, .tie_embeddings = true, .window = 1024, .full_every = 6}},
    {"gemma3-27b",       Family::kGemma3,    62,  5376,  32, 16, 21504, 262208, 32768,   1e6,  1e-6,
     {.head_dim = 128, .tie_embeddings = true, .window = 1024, .full_every = 6}},
    {"nemotron-h-8b",    Family::kNemotronH, 28,  4096,  32,  8, 21504, 131072,  8192,   1e4,  1e-5,
     {.head_dim = 128, .mamba = {.pattern = kNemotronH8b, .heads = 128}}},
    {"nemotron-h-56b",   Family::kNemotronH, 64,  8192,  64,  8, 32768, 131072,  8192,   1e4,  1e-5,
     {.head_dim = 128, .mamba = {.pattern = kNemotronH56b, .heads = 256, .state = 256}}},
    {"nemotron3-nano-30b", Family::kNemotronH, 29, 2688, 32,  2,  1856, 131072,  8192,   1e4,  1e-5,
     {.head_dim = 128, .experts = 128, .top_k = 6, .shared_ffn = 3712,
      .mamba = {.pattern = kNemotron3Nano, .heads = 64}}},
    {"nemotron3-super-120b", Family::kNemotronH, 48, 4096, 32, 2,  2688, 131072,  8192,   1e4,  1e-5,
     {.head_dim = 128, .experts = 512, .top_k = 22, .shared_ffn = 5376, .latent = 1024,
      .mamba = {.pattern = kNemotron3Super, .heads = 128}}},
    {"mamba2-2.7b",      Family::kMamba2,    64,  2560,  80,  0,     0,  50288,  2048,   1e4,  1e-5,
     {.head_dim = 64, .tie_embeddings = true,
      .mamba = {.pattern = "M", .heads = 80, .groups = 1, .chunk = 256}}},
    {"qwen3-next-80b-a3b", Family::kQwen3Next, 48, 2048, 16,  2,   512, 151936,  4096,   1e7,  1e-6,
     {.head_dim = 256, .experts = 512, .top_k = 10, .shared_ffn = 512, .delta_net = "GEGEGE*E"}},
    {"qwen3.5-9b",       Family::kQwen3Next, 32,  4096,  16,  4, 12288, 248320,  4096,   1e7,  1e-6,
     {.head_dim = 256, .delta_net = "G-G-G-*-"}},
    {"qwen3.5-27b",      Family::kQwen3Next, 64,  5120,  24,  4, 17408, 248320,  4096,   1e7,  1e-6,
     {.head_dim = 256, .delta_net = "G-G-G-*-", .value_heads = 48}},
    {"qwen3.5-35b-a3b",  Family::kQwen3Next, 40,  2048,  16,  2,   512, 248320,  4096,   1e7,  1e-6,
     {.head_dim = 256, .experts = 256, .top_k = 8, .shared_ffn = 512, .delta_net = "GEGEGE*E"}},
    {"qwen3.5-122b-a10b", Family::kQwen3Next, 48, 3072,  32,  2,  1024, 248320,  4096,   1e7,  1e-6,
     {.head_dim = 256, .experts = 256, .top_k = 8, .shared_ffn = 1024, .delta_net = "GEGEGE*E",
      .value_heads = 64}},
    {"qwen3.5-397b-a17b", Family::kQwen3Next, 60, 4096,  32,  2,  1024, 248320,  4096,   1e7,  1e-6,
     {.head_dim = 256, .experts = 512, .top_k = 10, .shared_ffn = 1024, .delta_net = "GEGEGE*E",
      .value_heads = 64}},
    // clang-format on
};

// The tutorials' perceptron: 10 inputs, 100 hidden units, 10 outputs, ReLU between.
constexpr std::string_view kMlpName = "mlp-10-100-10";

ModelSpec MlpPreset() {
  ModelSpec model;
  model.preset = kMlpName;
  model.kind = ModelKind::kMlp;
  model.activation = ActivationKind::kRelu;
  model.widths = {10, 100, 10};
  return model;
}

ModelSpec Expand(const Row& row) {
  const bool bert = row.family == Family::kBert, bart = row.family == Family::kBart;
  const bool t5 = row.family == Family::kT5 || row.family == Family::kFlanT5;
  const bool neox = row.family == Family::kNeox, gpt = row.family == Family::kGpt || bert || bart;
  const Others& others = row.others;
  ModelSpec model;
  model.preset = row.name;
  model.layers = row.layers;
  model.hidden = row.hidden;
  model.heads = row.heads;
  model.kv_heads = row.kv_heads;
  model.head_dim = others.head_dim;
  model.ffn = row.ffn;
  model.vocab = row.vocab;
  model.seq_len = row.seq_len;
  model.activation = ActivationOf(row.family);
  model.norm = gpt || neox ? NormKind::kLayerNorm : NormKind::kRmsNorm;
  model.norm_epsilon = row.norm_epsilon;
  model.position = gpt                      ? PositionKind::kLearned
                   : t5                     ? PositionKind::kRelative
                   : others.mamba.heads > 0 ? PositionKind::kNone
                                            : PositionKind::kRope;
  if (t5) model.attention = AttentionKind::kEager;
  model.rope_theta = row.rope_theta;
  model.bias = gpt || neox || row.family == Family::kGptOss;
  model.qkv_bias = model.bias || row.family == Family::kQwen2;
  model.post_norm = row.family == Family::kGemma3 || row.family == Family::kOlmo2;
  const bool is_next = row.family == Family::kQwen3Next;
  model.qk_norm = row.family == Family::kQwen3 || is_next || model.post_norm;
  model.attention_gate = is_next;
  if (is_next) {
    model.rope_dim = others.head_dim / 4;
    model.delta_net =
        DeltaNetSpec{.pattern = std::string(others.delta_net), .value_heads = others.value_heads};
  }
  if (row.family == Family::kOlmo2) {
    model.pre_norm = false;
    model.qk_norm_over = QkNormSpan::kAllHeads;
  }
  model.tie_embeddings = gpt || row.family == Family::kT5 || others.tie_embeddings;
  model.residual_from_norm = bert || bart;
  model.causal = !bert;
  if (neox) {
    model.rope_dim = row.hidden / row.heads / 4;
    model.parallel_residual = ParallelResidual::kTwoNorms;
  }
  if (others.source > 0) model.encoder = EncoderSpec{.layers = row.layers, .seq_len = others.source};
  if (others.mamba.heads > 0)
    model.mamba = MambaSpec{.pattern = std::string(others.mamba.pattern),
                            .state = others.mamba.state,
                            .heads = others.mamba.heads,
                            .groups = others.mamba.groups,
                            .chunk = others.mamba.chunk};
  if (others.experts > 0)
    model.experts = ExpertsSpec{.count = others.experts,
                                .top_k = others.top_k,
                                .capacity_factor = 0,
                                .bias = row.family == Family::kGptOss,
                                .shared_ffn = others.shared_ffn,
                                .shared_gate = is_next,
                                .latent = others.latent,
                                .first_dense = others.first_dense,
                                .every = others.every,
                                .dense_ffn = others.dense_ffn,
                                .groups = others.groups,
                                .top_k_groups = others.top_k_groups};
  if (others.window > 0)
    model.sliding_window = SlidingWindowSpec{.tokens = others.window, .full_every = others.full_every};
  if (others.kv_rank > 0)
    model.latent_attention = LatentAttentionSpec{
        .q_rank = others.q_rank, .kv_rank = others.kv_rank, .rope_dim = 64, .value_dim = 128};
  return model;
}

}  // namespace

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  names.emplace_back(kMlpName);
  return names;
}

bool IsModelPreset(std::string_view name) {
  return name == kMlpName ||
         std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; });
}

ModelSpec ModelPreset(const std::string& name) {
  if (name == kMlpName) return MlpPreset();
  auto row = std::find_if(std::begin(kRows), std::end(kRows),
                          [&](const Row& candidate) { return candidate.name == name; });
  WT_CHECK(row != std::end(kRows));
  return Expand(*row);
}

}  // namespace windtunnel
