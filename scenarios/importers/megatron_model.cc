// The model that Megatron-LM's flags describe.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/importers/cluster_size.h"
#include "scenarios/importers/megatron_flags.h"
#include "scenarios/layer_pattern.h"

namespace windtunnel {
namespace {

// Numbers in a text, and the text with an N for each of them, without spaces and parentheses: "[N]*N" and 1,
// 58 of "([1]*58)".
struct Pattern {
  std::string shape;
  std::vector<int64_t> numbers;
};
Pattern PatternOf(const std::string& text) {
  constexpr int64_t kMost = 1'000'000'000;
  Pattern pattern;
  bool in_number = false;
  for (const char c : text) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (is_digit && !in_number) {
      pattern.shape += 'N';
      pattern.numbers.push_back(0);
    }
    in_number = is_digit;
    if (is_digit) pattern.numbers.back() = std::min(10 * pattern.numbers.back() + (c - '0'), kMost);
    else if (c != '(' && c != ')' && std::isspace(static_cast<unsigned char>(c)) == 0) pattern.shape += c;
  }
  return pattern;
}

class ModelImporter : MegatronFlags {
 public:
  using MegatronFlags::MegatronFlags;

  void Import() {
    Model();
    Attention();
    Experts();
  }

 private:
  void Model() {
    const bool has_encoder = program_.find("_t5") != std::string::npos;
    if (has_encoder) Encoder();
    else if (flags_.Has("encoder_seq_length") && !flags_.Has("seq_length"))
      Integer("model.seq_len", "encoder_seq_length");
    if (hybrid_) Hybrid();
    else if (!has_encoder) Required("model.layers", "num_layers");
    if (!hybrid_ && has_delta_nets_) DeltaNets();
    Sets("model.attention_gate", "attention_output_gate", "true");
    Required("model.hidden", "hidden_size");
    if (!has_attention_) flags_.Ignore({"num_attention_heads", "group_query_attention", "num_query_groups"});
    else Required("model.heads", "num_attention_heads");
    const bool has_positions_only = flags_.Has("max_position_embeddings") && !flags_.Has("seq_length");
    Required("model.seq_len", has_positions_only ? "max_position_embeddings" : "seq_length");
    const bool groups = has_attention_ && flags_.Flag("group_query_attention");
    if (groups) Integer("model.kv_heads", "num_query_groups", 1);
    else flags_.Ignore({"num_query_groups"});
    // With latents, heads are what --qk-head-dim and --qk-pos-emb-head-dim say.
    if (has_attention_ && !flags_.Flag("multi_latent_attention")) Integer("model.head_dim", "kv_channels");
    else flags_.Ignore({"kv_channels"});
    Vocabulary();
    ActivationAndFfn();
    const std::string norm = flags_.Text("normalization").value_or("LayerNorm");
    draft_.Set("model.norm", norm == "RMSNorm" ? "rmsnorm" : "layernorm",
               flags_.ShownOr("normalization", kDefault));
    Number("model.norm_epsilon", flags_.Has("layernorm_epsilon") ? "layernorm_epsilon" : "norm_epsilon");
    Positions();
    const bool disables = flags_.Flag("disable_bias_linear"), adds = flags_.Flag("add_bias_linear", true);
    draft_.Set("model.bias", adds && !disables,
               disables ? flags_.Shown("disable_bias_linear") : flags_.ShownOr("add_bias_linear", kDefault));
    Sets("model.qkv_bias", "add_qkv_bias", "true");
    // With latents, the flag is of their norms, which there always are.
    if (flags_.Flag("qk_layernorm") && !flags_.Flag("multi_latent_attention"))
      draft_.Set("model.qk_norm", "true", flags_.Shown("qk_layernorm"));
    const bool untied = flags_.Flag("untie_embeddings_and_output_weights");
    draft_.Set("model.tie_embeddings", !untied,
               flags_.ShownOr("untie_embeddings_and_output_weights", kDefault));
    if (program_.find("bert") != std::string::npos) {
      draft_.Set("model.causal", "false", program_);
      Number("model.masked_share", "mask_prob");
      flags_.Ignore({"bert_no_binary_head"});
    }
    Sets("model.residual_from_norm", "apply_residual_connection_post_layernorm", "true");
    Dropout();
    TokenPrediction();
  }

  void TokenPrediction() {
    const bool has_letters = hybrid_ && hybrid_->depths > 0;
    if (!has_letters && flags_.Integer("mtp_num_layers").value_or(0) <= 0) return;
    if (has_letters) {
      draft_.Set("model.mtp.layers", hybrid_->depths, hybrid_->remark);
      draft_.SetText("model.mtp.pattern", hybrid_->modules, hybrid_->remark);
      if (flags_.Integer("mtp_num_layers").value_or(hybrid_->depths) != hybrid_->depths)
        flags_.Refuse("mtp_num_layers",
                      fmt::format("{}, as {} has modules", hybrid_->depths, hybrid_->remark));
      flags_.Ignore({"mtp_hybrid_override_pattern"});
    } else {
      Integer("model.mtp.layers", "mtp_num_layers");
      if (hybrid_ && flags_.Has("mtp_hybrid_override_pattern"))
        draft_.SetText("model.mtp.pattern", flags_.Text("mtp_hybrid_override_pattern").value_or(""),
                       flags_.Shown("mtp_hybrid_override_pattern"));
    }
    Number("model.mtp.loss_weight", "mtp_loss_scaling_factor");
    Sets("model.mtp.repeated", "mtp_use_repeated_layer", "true");
    Sets("model.mtp.fp8", "keep_mtp_spec_in_bf16", "false");
  }

  // Mamba-2's, gated delta networks, and those of hybrids.
  void Hybrid() {
    if (hybrid_->is_pure) Required("model.layers", "num_layers");
    else flags_.Ignore({"num_layers"});
    if (hybrid_->Has('G')) {
      draft_.SetText("model.delta_net.pattern", hybrid_->letters, hybrid_->remark);
      return DeltaNetSizes();
    }
    draft_.SetText("model.mamba.pattern", hybrid_->letters, hybrid_->remark);
    Integer("model.mamba.state", "mamba_state_dim", 128);
    Integer("model.mamba.head_dim", "mamba_head_dim", 64);
    Integer("model.mamba.heads", "mamba_num_heads");
    Integer("model.mamba.groups", "mamba_num_groups", 8);
    draft_.Set("model.mamba.chunk", int64_t{128}, kDefault);  // MambaMixer's
    const std::vector<std::string> spec = flags_.List("spec");
    if (!spec.empty() && !spec.back().ends_with("_stack_spec"))
      draft_.Note(fmt::format("Not known, and left out: --spec {}.", fmt::join(spec, " ")));
  }

  void DeltaNetSizes() {
    Integer("model.delta_net.key_heads", "linear_num_key_heads", 16);
    Integer("model.delta_net.value_heads", "linear_num_value_heads", 32);
    Integer("model.delta_net.key_dim", "linear_key_head_dim", 128);
    Integer("model.delta_net.value_dim", "linear_value_head_dim", 128);
    Integer("model.delta_net.conv", "linear_conv_kernel_dim", 4);
  }

  // --linear-attention-freq: every so many layers one has attention; or a list of ones (a gated delta
  // network) and zeros such as [1,1,1,0]*12 or ([1]*3+[0]*1)*12. Returns what repeats.
  std::vector<int64_t> LayersWithDeltaNets() {
    const std::string text = flags_.Text("linear_attention_freq").value_or("");
    const auto [shape, numbers] = PatternOf(text);
    std::vector<int64_t> unit;
    if (shape == "N" && numbers[0] >= 1 && numbers[0] <= kMostLayers) {
      unit.assign(static_cast<size_t>(numbers[0]), 1);
      unit.back() = 0;
      return unit;
    }
    const bool is_list = shape.starts_with("[N") && shape.find_first_not_of("[N,]*") == std::string::npos;
    const bool is_sum = shape.starts_with("[N]*N+[N]*N") && numbers[1] + numbers[3] <= kMostLayers;
    if (is_sum) {
      unit.assign(static_cast<size_t>(numbers[1]), numbers[0]);
      unit.insert(unit.end(), static_cast<size_t>(numbers[3]), numbers[2]);
    } else if (is_list) {
      const bool repeats = shape.ends_with("]*N");
      unit.assign(numbers.begin(), numbers.end() - (repeats ? 1 : 0));
    }
    const bool is_fine =
        !unit.empty() && std::all_of(unit.begin(), unit.end(), [](int64_t n) { return n == 0 || n == 1; });
    if (!is_fine) flags_.Refuse("linear_attention_freq", "a number, or a list such as [1,1,1,0]*12");
    return is_fine ? unit : std::vector<int64_t>{1};
  }

  // Of pretrain_gpt.py. Here letters also say which layers have experts.
  void DeltaNets() {
    const std::vector<int64_t> mixers = LayersWithDeltaNets();
    DeltaNetSizes();
    const int64_t layers = Effective("model.layers", "num_layers", 0);
    if (layers < 1 || layers > kMostLayers) return;
    const bool has_experts = flags_.Integer("num_experts").value_or(0) > 0;
    const ExpertLayers& experts = expert_layers();
    std::string letters;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const bool is_net = mixers[static_cast<size_t>(layer) % mixers.size()] == 1;
      letters.append({is_net ? 'G' : '*', has_experts && experts.Has(layer) ? 'E' : '-'});
    }
    draft_.SetText("model.delta_net.pattern", ShortestPattern(letters),
                   flags_.Shown("linear_attention_freq"));
  }

  // T5's. arguments.py: --num-layers and --seq-length are what encoder and decoder share.
  void Encoder() {
    const auto first_of = [&](const char* own, const char* shared) {
      return flags_.Has(own) || !flags_.Has(shared) ? own : shared;
    };
    Required("model.encoder.layers", first_of("encoder_num_layers", "num_layers"));
    Required("model.layers", first_of("decoder_num_layers", "num_layers"));
    Required("model.encoder.seq_len", first_of("encoder_seq_length", "seq_length"));
    Required("model.seq_len", first_of("decoder_seq_length", "seq_length"));
    flags_.Ignore(
        {"num_layers", "encoder_num_layers", "seq_length", "encoder_seq_length", "max_position_embeddings"});
  }

  // The vocabulary is padded to a multiple of a number times the tensor ranks.
  void Vocabulary() {
    const int64_t multiple =
        Product({flags_.Integer("make_vocab_size_divisible_by").value_or(128), tensor_ranks()});
    const std::string tokenizer = flags_.Text("tokenizer_type").value_or("");
    if (draft_.Has("model.vocab")) return;
    if (flags_.Has("padded_vocab_size")) return Integer("model.vocab", "padded_vocab_size");
    std::optional<int64_t> words = flags_.Integer("vocab_size");
    std::string source = flags_.Shown("vocab_size");
    if (!words && tokenizer == "GPT2BPETokenizer") words = 50257, source = tokenizer;
    if (!words && program_.find("bert") != std::string::npos) words = 30522, source = "BERT's, uncased";
    if (!words && tokenizer == "BertWordPieceLowerCase") words = 30522, source = tokenizer;
    if (tokenizer == "BertWordPieceCase") words = 28996, source = tokenizer;
    if (!words && tokenizer == "Llama2Tokenizer") words = 32000, source = tokenizer;
    if (!words && tokenizer.empty() && flags_.Has("merge_file"))
      words = 50257, source = "GPT-2's (--merge-file)";
    if (!words) return flags_.Fail("the size of the vocabulary is not said, expected --set model.vocab=N");
    const bool has_extra_ids =
        tokenizer.starts_with("BertWordPiece") || tokenizer.starts_with("SentencePiece");
    if (has_extra_ids) *words += flags_.Integer("vocab_extra_ids").value_or(0);
    // NullTokenizer counts the end of a document beyond --vocab-size.
    if (tokenizer == "NullTokenizer") ++*words;
    if (*words < 1 || multiple < 1 || multiple > INT32_MAX) return flags_.Refuse("vocab_size", "at least 1");
    draft_.Set("model.vocab", (*words + multiple - 1) / multiple * multiple,
               fmt::format("{}, {}, to a multiple of {}", source, *words, multiple));
  }

  void ActivationAndFfn() {
    const bool gated = Sets("model.activation", "swiglu", "swiglu");
    Sets("model.activation", "squared_relu", "squared_relu");
    draft_.Set("model.activation", "gelu", kDefault);
    flags_.Ignore({"openai_gelu"});
    if (hybrid_ && !hybrid_->Has('-') && !hybrid_->Has('E')) return flags_.Ignore({"ffn_hidden_size"});
    const bool has_experts = flags_.Integer("num_experts").value_or(0) > 0;
    const char* ffn = has_experts ? "model.experts.dense_ffn" : "model.ffn";
    if (flags_.Has("moe_ffn_hidden_size")) {
      Integer("model.ffn", "moe_ffn_hidden_size");
      const bool has_mlp = hybrid_ ? hybrid_->Has('-') : !has_experts || !expert_layers().has_all();
      if (!has_mlp) flags_.Ignore({"ffn_hidden_size"});
      else if (flags_.Has("ffn_hidden_size")) Integer(ffn, "ffn_hidden_size");
    } else if (flags_.Has("ffn_hidden_size")) {
      Integer("model.ffn", "ffn_hidden_size");
    } else if (const int64_t hidden = Effective("model.hidden", "hidden_size", 0); hidden > 0) {
      // arguments.py: two thirds of 4 x hidden if gated, in multiples of 64.
      draft_.Set("model.ffn", gated ? Product({8, hidden}) / 3 / 64 * 64 : Product({4, hidden}), kDefault);
    }
  }

  void Positions() {
    constexpr char kType[] = "position_embedding_type", kRotary[] = "use_rotary_position_embeddings";
    std::string kind = flags_.Text(kType).value_or("learned_absolute");
    const bool is_rotary = flags_.Flag(kRotary);
    if (is_rotary) kind = "rope";
    if (kind == "yarn") kind = "rope";
    if (kind == "absolute") kind = "learned_absolute";  // Megatron-DeepSpeed
    if (kind != "learned_absolute" && kind != "rope" && kind != "relative" && kind != "none")
      return flags_.Refuse(kType, "learned_absolute, rope, relative or none, since others are not modelled");
    draft_.Set("model.position", kind == "learned_absolute" ? "learned" : kind.c_str(),
               flags_.ShownOr(is_rotary ? kRotary : kType, kDefault));
    if (kind == "relative") draft_.Set("model.attention", "eager", flags_.Shown(kType));
    if (kind != "rope") return;
    Number("model.rope_theta", "rotary_base");
    const double share = flags_.Number("rotary_percent").value_or(1);
    const int64_t heads = Effective("model.heads", "num_attention_heads", 0);
    const int64_t head_dim = Effective("model.head_dim", "kv_channels",
                                       heads > 0 ? Effective("model.hidden", "hidden_size", 0) / heads : 0);
    if (share > 0 && share < 1)
      draft_.Set("model.rope_dim", static_cast<int64_t>(share * static_cast<double>(head_dim)),
                 flags_.Shown("rotary_percent"));
  }

  void Dropout() {
    const double hidden = flags_.Number("hidden_dropout").value_or(0.1);
    const double attention = flags_.Number("attention_dropout").value_or(0.1);
    const std::string of_hidden = flags_.ShownOr("hidden_dropout", kDefault);
    const std::string of_attention = flags_.ShownOr("attention_dropout", kDefault);
    draft_.Set("model.dropout", std::max(hidden, attention),
               of_hidden == of_attention ? of_hidden : of_hidden + ", " + of_attention);
    if (hidden != attention)
      draft_.Note(fmt::format(
          "model.dropout is one for all: {} for the hidden state, and {} in attention, become {}.", hidden,
          attention, std::max(hidden, attention)));
  }

  void Attention() {
    const std::string backend = flags_.Text("attention_backend").value_or("auto");
    const bool local = flags_.Text("transformer_impl").value_or("transformer_engine") == "local";
    const bool flash = flags_.Flag("use_flash_attn");
    if ((local && !flash && backend == "auto") || backend == "unfused" || backend == "local")
      draft_.Set("model.attention", "eager",
                 backend == "auto" ? flags_.Shown("transformer_impl") + " local"
                                   : flags_.Shown("attention_backend"));
    if (backend == "flash")
      draft_.Set("model.flash_kernels", "flash_attention_2", flags_.Shown("attention_backend"));
    if (flags_.Flag("multi_latent_attention")) LatentAttention();
    const std::vector<std::string> window = flags_.List("window_size");
    if (!window.empty()) Window(window);
  }

  void LatentAttention() {
    if (flags_.Has("q_lora_rank") && flags_.Text("q_lora_rank") != "None")
      Integer("model.latent_attention.q_rank", "q_lora_rank");
    Integer("model.latent_attention.kv_rank", "kv_lora_rank", 32);
    Integer("model.latent_attention.rope_dim", "qk_pos_emb_head_dim", 64);
    Integer("model.latent_attention.value_dim", "v_head_dim", 128);
    const int64_t plain = flags_.Integer("qk_head_dim").value_or(128);
    const int64_t rotated = flags_.Integer("qk_pos_emb_head_dim").value_or(64);
    draft_.Set("model.head_dim", plain + rotated, "--qk-head-dim plus --qk-pos-emb-head-dim");
  }

  void Window(std::vector<std::string> window) {
    std::string text;  // "127,0", "(127, 0)", or two words
    for (const std::string& word : window) text += (text.empty() ? "" : ",") + word;
    const Pattern pattern = PatternOf(text);
    if (pattern.shape.substr(0, 3) != "N,N" || pattern.numbers.back() != 0)
      return flags_.Refuse("window_size", "a window to the left, as in 127,0");
    draft_.Set("model.sliding_window.tokens", pattern.numbers[0] + 1, flags_.Shown("window_size"));
    Integer("model.sliding_window.full_every", "window_attn_skip_freq");
  }

  // --- Experts ---

  void Experts() {
    const int64_t count = flags_.Integer("num_experts").value_or(0);
    if (count == 0) return;
    Integer("model.experts.count", "num_experts");
    Integer("model.experts.top_k", "moe_router_topk", 2);
    if (flags_.Has("moe_expert_capacity_factor"))
      Number("model.experts.capacity_factor", "moe_expert_capacity_factor");
    else
      draft_.Set("model.experts.capacity_factor", int64_t{0},
                 "no --moe-expert-capacity-factor: no token is dropped");
    Integer("model.experts.shared_ffn", "moe_shared_expert_intermediate_size");
    Sets("model.experts.shared_gate", "moe_shared_expert_gate", "true");
    Integer("model.experts.latent", "moe_latent_size");
    Integer("model.experts.groups", "moe_router_num_groups");
    Integer("model.experts.top_k_groups", "moe_router_group_topk");
    LayersWithExperts();
  }

  // As in ExpertsSpec.
  struct ExpertLayers {
    int64_t every = 1, first_dense = 0;
    // (Megatron's number counts from the first layer on, and a scenario's from the m-th: alike where it is
    // 1.)
    bool Has(int64_t layer) const { return layer >= first_dense && (layer + 1) % every == 0; }
    bool has_all() const { return every == 1 && first_dense == 0; }
  };

  // --moe-layer-freq: a number, or a list such as ([0]*3+[1]*58).
  ExpertLayers ReadExpertLayers() {
    const std::optional<std::string> text =
        flags_.Has("moe_layer_freq") ? flags_.Text("moe_layer_freq") : std::nullopt;
    if (!text) return {};
    const auto [shape, numbers] = PatternOf(*text);
    if (shape == "N" && numbers[0] >= 1) return {.every = numbers[0]};
    if (shape == "[N]*N+[N]*N" && numbers[0] == 0 && numbers[2] == 1) return {.first_dense = numbers[1]};
    if (shape != "[N]*N" || numbers[0] != 1)
      flags_.Refuse("moe_layer_freq",
                    "a number, ([0]*A+[1]*B) or ([1]*B), since other orders are not modelled");
    return {};
  }

  // Read once, since mistakes are noted once.
  const ExpertLayers& expert_layers() {
    if (!expert_layers_) expert_layers_ = ReadExpertLayers();
    return *expert_layers_;
  }

  void LayersWithExperts() {
    if (hybrid_ || has_delta_nets_) return flags_.Ignore({"moe_layer_freq"});  // their letters say it
    const ExpertLayers& layers = expert_layers();
    if (layers.every > 1) draft_.Set("model.experts.every", layers.every, flags_.Shown("moe_layer_freq"));
    if (layers.first_dense > 0)
      draft_.Set("model.experts.first_dense", layers.first_dense, flags_.Shown("moe_layer_freq"));
  }

  // --experimental-attention-variant; older versions have another flag for it.
  bool has_delta_nets() {
    for (const char* flag : {"experimental_attention_variant", "linear_attention_type"}) {
      if (!flags_.Has(flag)) continue;
      const std::string variant = flags_.Text(flag).value_or("");
      if (variant == "gated_delta_net" || variant == "gdn") return true;
      if (variant != "None") flags_.Refuse(flag, "gated_delta_net, since others are not modelled");
    }
    return false;
  }

  static constexpr int64_t kMostLayers = 1000;
  std::optional<ExpertLayers> expert_layers_;
  const std::optional<HybridLayers> hybrid_ = hybrid_layers();
  const bool has_delta_nets_ = has_delta_nets();
  const bool has_attention_ = !hybrid_ || hybrid_->Has('*');
};

}  // namespace

void ImportMegatronModel(LaunchCommand& command, Draft& draft) { ModelImporter(command, draft).Import(); }

}  // namespace windtunnel
