// Hugging Face's configurations of models with an encoder and a decoder. Not modelled: the scaling of
// embeddings, and of T5's logits.
#include "scenarios/hugging_face_models.h"
#include "scenarios/rules.h"

namespace windtunnel::hugging_face {
namespace {

// Both halves have the same width, and here the same heads and feed-forward width.
Result<int64_t> SizeOfBoth(const Config& config, std::string_view of_encoder, std::string_view of_decoder) {
  WT_ASSIGN_OR_RETURN(const int64_t size, config.Size(of_encoder));
  WT_ASSIGN_OR_RETURN(const int64_t other, config.Size(of_decoder, size));
  if (other != size)
    return config.NotModelled(of_decoder,
                              "is {}, expected {} ({}): encoder and decoder have blocks of one size", other,
                              of_encoder, size);
  return size;
}

}  // namespace

// BartConfig and MBartConfig. `has_pre_norm`: mBART's norms stand before attention and the MLP; that of the
// embeddings is left out.
Result<ModelSpec> ReadBart(const Config& config, bool has_pre_norm) {
  ModelSpec model;
  EncoderSpec encoder;
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("d_model"));
  WT_ASSIGN_OR_RETURN(encoder.layers, config.Size("encoder_layers"));
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("decoder_layers"));
  WT_ASSIGN_OR_RETURN(model.heads, SizeOfBoth(config, "encoder_attention_heads", "decoder_attention_heads"));
  WT_ASSIGN_OR_RETURN(model.ffn, SizeOfBoth(config, "encoder_ffn_dim", "decoder_ffn_dim"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.seq_len, config.Size("max_position_embeddings"));
  WT_ASSIGN_OR_RETURN(model.activation, ReadUngated(config, "activation_function"));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", true));
  encoder.seq_len = model.seq_len;
  model.encoder = encoder;
  model.residual_from_norm = !has_pre_norm;
  return model;
}

// T5Config and MT5Config, whose names and defaults differ. They say no length: what T5 was trained with.
Result<ModelSpec> ReadT5(const Config& config, bool is_multilingual) {
  constexpr int64_t kSource = 512, kTarget = 128;
  WT_ASSIGN_OR_RETURN(const bool has_both, config.Flag("is_encoder_decoder", true));
  if (!has_both) return config.NotModelled("is_encoder_decoder", "is false, expected true");
  ModelSpec model;
  EncoderSpec encoder;
  WT_ASSIGN_OR_RETURN(model.hidden, config.Size("d_model"));
  WT_ASSIGN_OR_RETURN(encoder.layers, config.Size("num_layers"));
  WT_ASSIGN_OR_RETURN(model.layers, config.Size("num_decoder_layers", encoder.layers));
  WT_ASSIGN_OR_RETURN(model.heads, config.Size("num_heads"));
  WT_ASSIGN_OR_RETURN(model.head_dim, config.Size("d_kv"));
  WT_ASSIGN_OR_RETURN(model.ffn, config.Size("d_ff"));
  WT_ASSIGN_OR_RETURN(model.vocab, config.Size("vocab_size"));
  WT_ASSIGN_OR_RETURN(model.norm_epsilon, config.Number("layer_norm_epsilon", 1e-6, FromToBelow(0, 1)));
  WT_ASSIGN_OR_RETURN(model.tie_embeddings, config.Flag("tie_word_embeddings", !is_multilingual));
  WT_ASSIGN_OR_RETURN(
      model.activation,
      config.Activation("feed_forward_proj", is_multilingual ? ActivationKind::kGeglu : ActivationKind::kRelu,
                        {{"relu", ActivationKind::kRelu},
                         {"gated-gelu", ActivationKind::kGeglu},
                         {"gelu", ActivationKind::kGelu},
                         {"gated-silu", ActivationKind::kSwiglu}}));
  for (const auto& [key, expected] :
       {std::pair<std::string_view, int64_t>{"relative_attention_num_buckets", 32},
        {"relative_attention_max_distance", 128}}) {
    WT_ASSIGN_OR_RETURN(const int64_t found, config.Size(key, expected));
    if (found != expected) return config.NotModelled(key, "is {}, expected {}", found, expected);
  }
  encoder.seq_len = kSource;
  model.seq_len = kTarget;
  model.encoder = encoder;
  model.norm = NormKind::kRmsNorm;
  model.position = PositionKind::kRelative;
  model.attention = AttentionKind::kEager;
  model.bias = model.qkv_bias = false;
  return model;
}

}  // namespace windtunnel::hugging_face
