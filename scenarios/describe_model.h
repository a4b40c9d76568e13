// The scenario file's format (scenarios/describe.h): the block `model`.
#pragma once

#include "scenarios/model_spec.h"
#include "scenarios/presets.h"
#include "scenarios/rules.h"

namespace windtunnel {

template <typename V>
void Describe(V& v, ExpertsSpec& experts) {
  v.Integer("count", experts.count, From(2, 65536), "experts per layer");
  v.Integer("top_k", experts.top_k, From(1, 65536), "experts per token (default 1)");
  v.Number("capacity_factor", experts.capacity_factor, From(0, 1e6),
           "room of an expert over its even share, padded (default 1; megatron_core: 0); 0: no limit and no "
           "padding, predicted only");
  v.Number("imbalance", experts.imbalance, AtLeast(1),
           "capacity_factor 0: the busiest expert's load over the mean (default 1)");
  v.Flag("bias", experts.bias, "biases of experts (default false)");
  v.Integer("shared_ffn", experts.shared_ffn, From(0, 2147483647),
            "width of an expert that every token goes to, or of several together (default 0: none)");
  v.Flag("shared_gate", experts.shared_gate,
         "the shared expert's output is multiplied by the sigmoid of a projection of the token (Qwen3-Next; "
         "default false)");
  v.Integer("latent", experts.latent, From(0, kWidth.max),
            "width of what experts take and return, between two projections that they share (LatentMoE; "
            "default 0: model.hidden)");
  v.Integer("first_dense", experts.first_dense, From(0, 2147483647),
            "layers from the first on that have a plain MLP instead of experts (default 0)");
  v.Integer(
      "every", experts.every, kSize,
      "with every: m, only every m-th layer has experts, from the m-th on (default 1); the others have a "
      "plain MLP");
  v.Integer("dense_ffn", experts.dense_ffn, From(0, 2147483647),
            "feed-forward width of layers without experts (default 0: ffn)");
  v.Integer("groups", experts.groups, From(0, kMostExpertGroups),
            "groups of equally many experts, of which a token's are in few (default 0: none)");
  v.Integer("top_k_groups", experts.top_k_groups, From(0, kMostExpertGroups),
            "groups that a token's experts are in at most: those of the largest logits (default 0: all)");
  v.RequireWithoutPreset("count");
}

template <typename V>
void Describe(V& v, LatentAttentionSpec& latent) {
  v.Integer("q_rank", latent.q_rank, From(0, kWidth.max),
            "width of queries' latent (default 0: queries come from the hidden state)");
  v.Integer("kv_rank", latent.kv_rank, kWidth, "width of keys' and values' latent");
  v.Integer("rope_dim", latent.rope_dim, kSize,
            "columns of a head of queries and keys that are rotated, the last ones (default 64)");
  v.Integer("value_dim", latent.value_dim, From(0, kWidth.max),
            "width of a head of values (default 0: head_dim - rope_dim)");
  v.RequireWithoutPreset("kv_rank");
}

template <typename V>
void Describe(V& v, SlidingWindowSpec& window) {
  v.Integer("tokens", window.tokens, kSize, "tokens that a token sees: itself, and those right before it");
  v.Integer(
      "full_every", window.full_every, From(0, 2147483647),
      "with full_every: m, every m-th layer sees all tokens before, from the m-th on (default 0: none)");
  v.RequireWithoutPreset("tokens");
}

template <typename V>
void Describe(V& v, TokenPredictionSpec& mtp) {
  v.Integer("layers", mtp.layers, From(1, 16),
            "depths, at each of which a module predicts one token further (default 1)");
  v.Number("loss_weight", mtp.loss_weight, MoreThan(0),
           "what the mean of their losses counts beside the model's (default 0.1)");
  v.Text("pattern", mtp.pattern,
         {.words = {"*E", "*-", "ME"}, .summary = "the letters of one layer, such as *E"},
         "with model.mamba or model.delta_net: the layer in a module, in the letters of their patterns "
         "(default: that of the model's last layer)");
  v.Flag("repeated", mtp.repeated,
         "one module for all depths, as Megatron's mtp_use_repeated_layer (default false)");
  v.Flag("fp8", mtp.fp8,
         "whether the modules' products take fp8 as the model's do (default true; NVFP4: never)");
}

template <typename V>
void Describe(V& v, EncoderSpec& encoder) {
  v.Integer("layers", encoder.layers, kSize, "the encoder's blocks");
  v.Integer("seq_len", encoder.seq_len, kSize, "tokens of a source sequence (default model.seq_len)");
  v.RequireWithoutPreset("layers");
}

template <typename V>
void Describe(V& v, MambaSpec& mamba) {
  v.Text(
      "pattern", mamba.pattern,
      {.words = {"M", "M-M*-", "ME*E"},
       .summary = "letters such as M-M*-: M (Mamba-2), * (attention), - (an MLP) and E (experts)"},
      "the letters of Megatron's --hybrid-override-pattern, repeated: M (Mamba-2), * (attention), - (an MLP) "
      "and E (experts); a layer is M or * with the - or E behind it, or a further - or E (default M)");
  v.Integer("state", mamba.state, From(1, 1024), "columns of a head's state (default 128)");
  v.Integer("head_dim", mamba.head_dim, From(1, 1024), "width of a head (default 64)");
  v.Integer("heads", mamba.heads, kSize, "heads (default 2 x model.hidden / head_dim)");
  v.Integer("groups", mamba.groups, kSize,
            "groups of heads that share the matrices B and C, and have a norm together (default 1; divides "
            "heads)");
  v.Integer("conv", mamba.conv, From(1, 16),
            "tokens that the convolution sees, the own included (default 4)");
  v.Integer("chunk", mamba.chunk, From(1, 65536),
            "predicted: tokens of the chunks that kernels work on (default 256)");
}

template <typename V>
void Describe(V& v, DeltaNetSpec& net) {
  v.Text(
      "pattern", net.pattern,
      {.words = {"G", "G-G-G-*-", "GEGEGE*E"},
       .summary = "letters such as G-G-G-*-: G (a gated delta network), * (attention), - (an MLP) and E "
                  "(experts)"},
      "the letters of Megatron's --hybrid-layer-pattern, repeated: G (a gated delta network), * (attention), "
      "- (an MLP) and E (experts); a layer is G or * with the - or E behind it, or a further - or E (default "
      "G)");
  v.Integer("key_heads", net.key_heads, kSize,
            "heads of queries and of keys (default 16; divides value_heads)");
  v.Integer("value_heads", net.value_heads, kSize, "heads of values, each with a state (default 32)");
  v.Integer("key_dim", net.key_dim, From(1, 1024), "width of a head of queries or keys (default 128)");
  v.Integer("value_dim", net.value_dim, From(1, 1024), "width of a head of values (default 128)");
  v.Integer("conv", net.conv, From(1, 16), "tokens that the convolution sees, the own included (default 4)");
}

template <typename V>
void Describe(V& v, LoraSpec& lora) {
  v.Integer("rank", lora.rank, kWidth, "columns between an adapter's two matrices (default 8)");
  v.Number("alpha", lora.alpha, From(0, 1e6),
           "adapters' outputs are multiplied by alpha / rank (default 0: rank, a factor of 1)");
  v.Number("dropout", lora.dropout, FromToBelow(0, 1),
           "share of an adapter's input that is dropped (default 0)");
  v.Words("targets", lora.targets,
          "layers with adapters (default: all linear layers of blocks; with experts, those of attention)");
  v.Word("quantize", lora.quantize,
         "store frozen weights of blocks' linear layers in 4 bits (QLoRA), nf4_double with 8-bit scales "
         "(default none)");
}

template <typename V>
void Describe(V& v, ModelSpec& model) {
  TextRule presets = {.other = TextRule::Other::kNothing,
                      .words = ModelPresetNames(),
                      .summary =
                          "one of `windtunnel list models`; of other models, model.config takes the "
                          "Hugging Face config.json"};
  v.Text("preset", model.preset, presets, "a published model; single keys override it");
  v.InputOnly("config",
              "instead of the dimensions: a Hugging Face config.json (docs/contract.md has the types)");
  v.Word("kind", model.kind, "default transformer");
  if (v.Covers(model.kind == ModelKind::kTransformer)) {
    v.Integer("layers", model.layers, kSize, "transformer blocks");
    v.Integer("hidden", model.hidden, kWidth, "width of the residual stream");
    v.Integer("heads", model.heads, kSize, "attention heads; divides hidden, unless head_dim is given");
    v.Integer("kv_heads", model.kv_heads, kSize, "key and value heads; divides heads (default heads)");
    v.Integer("head_dim", model.head_dim, kSize, "width of a head (default hidden / heads)");
    v.Integer("ffn", model.ffn, kSize,
              "feed-forward width (default 4 x hidden; swiglu: 8/3 x hidden rounded up to 256)");
    v.Integer("vocab", model.vocab, kSize, "vocabulary size");
    v.Integer("seq_len", model.seq_len, kSize, "tokens per sequence");
  }
  v.Word("activation", model.activation, "default gelu; mlp: relu");
  if (v.Covers(model.kind == ModelKind::kTransformer)) {
    v.Word("norm", model.norm, "default layernorm");
    v.Number("norm_epsilon", model.norm_epsilon, FromToBelow(0, 1), "added to the variance (default 1e-5)");
    v.Word(
        "position", model.position,
        "default learned (with mamba: none, with delta_net: rope); relative: biases of attention's scores by "
        "distance (T5), with attention: eager");
    v.Number("rope_theta", model.rope_theta, AtLeast(1),
             "position rope: the base of its frequencies (default 10000)");
    v.Integer("rope_dim", model.rope_dim, From(0, kSize.max),
              "position rope: columns of a head that are rotated, the first ones; 0 (default): all");
  }
  v.Flag("bias", model.bias,
         "biases in linear layers (default true for layernorm and mlp, false for rmsnorm)");
  if (v.Covers(model.kind == ModelKind::kTransformer)) {
    v.Flag("qkv_bias", model.qkv_bias, "biases of queries, keys and values (default bias)");
    v.Flag("qk_norm", model.qk_norm, "RMS norms of queries and keys (default false)");
    v.Word("qk_norm_over", model.qk_norm_over,
           "qk_norm: true: each head is normalised by itself (default), or all heads of a token together "
           "(OLMo 2)");
    v.Flag("attention_gate", model.attention_gate,
           "attention's output is multiplied by the sigmoid of a further output of its first projection, as "
           "wide "
           "(Qwen3-Next; default false)");
    v.Flag("pre_norm", model.pre_norm,
           "norms of what attention and the MLP take from the residual stream (default true; false: OLMo 2, "
           "with post_norm: true)");
    v.Flag("post_norm", model.post_norm,
           "norms of what attention and the MLP give, before it is added to the residual stream (default "
           "false)");
    v.Flag("residual_from_norm", model.residual_from_norm,
           "the residual stream goes on from what norms return, as in BERT (default false: from what they "
           "take)");
    v.Word("parallel_residual", model.parallel_residual,
           "attention and MLP take the same input, with one norm (GPT-J, Falcon 7B, Phi-2) or two (GPT-NeoX, "
           "Pythia); default none: one behind the other");
    v.Flag("tie_embeddings", model.tie_embeddings,
           "the head is the token embedding (default: position is learned)");
    v.Word("attention", model.attention, "default flash");
    v.Word("flash_kernels", model.flash_kernels,
           "attention: flash, predicted: the framework's own (default), FlashAttention-2's, or cuDNN's where "
           "the device has rates of them (as PyTorch 2.11 picks on Hopper)");
    v.OptionalBlock("latent_attention", model.latent_attention,
                    "multi-head latent attention: queries, keys and values are made of latents");
    v.OptionalBlock("sliding_window", model.sliding_window, "attention to the latest tokens only");
    v.Flag("causal", model.causal,
           "tokens see those before them, and the next one is predicted (default); false: tokens see all of "
           "their sequence, and masked ones are predicted (BERT)");
    v.Number("masked_share", model.masked_share, MoreThanUpTo(0, 1),
             "causal: false, live: the share of tokens that are masked and predicted (default 0.15)");
    v.Integer(
        "document_tokens", model.document_tokens, From(0, kSize.max),
        "each sequence consists of documents of so many tokens, and attention stays within them (default "
        "0: one document)");
    v.OptionalBlock("encoder", model.encoder,
                    "an encoder of source sequences, whose output the layers attend to: they are a decoder's "
                    "(BART, T5)");
    v.OptionalBlock("mamba", model.mamba,
                    "layers with Mamba-2 instead of attention: all, or some (hybrid models)");
    v.OptionalBlock("delta_net", model.delta_net,
                    "layers with gated delta networks instead of attention: all, or some (Qwen3-Next)");
    v.OptionalBlock("experts", model.experts, "mixture of experts");
    v.OptionalBlock("mtp", model.mtp,
                    "multi-token prediction: modules behind the last layer for tokens further on");
    v.OptionalBlock("lora", model.lora,
                    "low-rank adapters are trained, and the model's own weights are frozen");
  }
  v.Number("dropout", model.dropout, FromToBelow(0, 1), "share of elements dropped (default 0)");
  if (v.Covers(model.kind == ModelKind::kMlp)) {
    v.Integers("widths", model.widths, kSize, "kind mlp: input, hidden..., output");
  }
}

}  // namespace windtunnel
