// Encoders with decoders (ModelSpec::encoder): the encoder's forward and backward around its blocks, and
// cross-attention in the decoder's. Forward runs all of the encoder before the decoder. Backward sums the
// gradients that the decoder's blocks return for the encoder's output, the last block's first, before it goes
// on into the encoder. Both embed tokens with one table.
#include <fmt/format.h>

#include "plan/transformer.h"

namespace windtunnel {

CrossAttention Transformer::RegisterCrossAttention(Role& role, const std::string& prefix, ModuleId block,
                                                   ModuleId module) {
  const int64_t queries = spec_.heads * spec_.head_dim, keys = spec_.kv_heads * spec_.head_dim;
  CrossAttention cross;
  cross.name = prefix + "cross";
  cross.norm = RegisterNorm(role, block, prefix + "norm_cross", spec_.hidden);
  cross.module = module;
  const std::string own = cross.name + ".";
  cross.queries = RegisterProjections(role, cross.module, own, {"q"}, {{"q", queries}}, spec_.qkv_bias);
  cross.keys =
      RegisterProjections(role, cross.module, own, {"kv"}, {{"k", keys}, {"v", keys}}, spec_.qkv_bias);
  cross.projection = RegisterRowParallel(role, cross.module, own + "proj", queries, spec_.bias);
  for (std::vector<Linear>* layers : {&cross.queries.layers, &cross.keys.layers})
    for (Linear& layer : *layers) layer.is_fp8 = types_.fp8 != Fp8Recipe::kNone;
  cross.projection.is_fp8 = types_.fp8 != Fp8Recipe::kNone;
  return cross;
}

void Transformer::RegisterEncoder(Role& role) {
  if (!spec_.encoder) return;
  encoder_.stream = StreamOf(spec_.encoder->seq_len);
  encoder_.relative = RegisterRelative(role, "encoder.relative", encoder_.stream, /*causal=*/false);
  is_hidden_ = true;
  for (int64_t layer = 0; layer < spec_.encoder->layers; ++layer) {
    layer_ = static_cast<int>(layer);
    TransformerBlock block = RegisterBlock(role, fmt::format("encoder.{}", layer), kRootModule, {});
    block.stream = encoder_.stream;
    block.causal = false;
    block.recompute = recompute_of_layer_[static_cast<size_t>(layer)];
    encoder_.blocks.push_back(std::move(block));
  }
  layer_ = -1;
  is_hidden_ = false;
  encoder_.norm_module = AddModule("encoder.norm_f", kRootModule);
  encoder_.final_norm = RegisterNorm(role, encoder_.norm_module, "encoder.norm_f", spec_.hidden);
}

Transformer::Embedded Transformer::SourceOf(const TransformerPass& pass) const {
  return {.ids = pass.encoder.ids,
          .name = "encoder.embedding",
          .stream = encoder_.stream,
          .positions = encoder_.positions};
}

void Transformer::EncoderForward(const LayerContext& c, TransformerPass& pass) {
  EncoderPass& own = pass.encoder;
  own.saved.resize(encoder_.blocks.size());
  ResidualStream stream = {Embed(c, SourceOf(pass), own.embedding_mask)};
  const Slice bias = encoder_.relative ? encoder_.relative->Forward(c) : kNoSlice;
  for (size_t i = 0; i < encoder_.blocks.size(); ++i) {
    own.saved[i].bias = bias;
    c.b.SetLayer(static_cast<int>(i));
    c.b.AtTurn(static_cast<int>(i));
    stream = RunBlock(c, encoder_.blocks[i], stream, own.saved[i]);
  }
  c.b.SetLayer(-1);
  ForwardScope norm(c.hooks, encoder_.norm_module);
  own.final_norm = encoder_.final_norm.Forward(c, stream.x, stream.branch, encoder_.stream.rows);
}

// Under autocast each block converts the encoder's output for itself, and gradients are summed in the
// stream's type.
void Transformer::AddToSource(const LayerContext& c, TransformerPass& pass, Slice dsource) const {
  dsource = c.InType(types_.stream, dsource, "encoder.norm_f.dy");
  Slice& sum = pass.encoder.doutput;
  if (sum.buffer < 0) sum = dsource;
  else c.AddTo(sum, dsource, "encoder.norm_f.dy.sum");
}

void Transformer::EncoderBackward(const LayerContext& c, TransformerPass& pass) {
  EncoderPass& own = pass.encoder;
  Slice dx;
  {
    BackwardScope scope(c.hooks, encoder_.norm_module);
    dx = encoder_.final_norm.Backward(c, own.doutput, own.final_norm, kNoSlice, encoder_.stream.rows);
  }
  for (size_t i = encoder_.blocks.size(); i-- > 0;) {
    c.b.SetLayer(static_cast<int>(i));
    c.b.AtTurn(static_cast<int>(blocks_.size() + encoder_.blocks.size() - 1 - i));
    dx = BlockBackward(c, encoder_.blocks[i], own.saved[i], dx);
    if (encoder_.relative) encoder_.relative->AddScores(c, own.saved[i].dscores, own.dbias);
  }
  c.b.SetLayer(-1);
  c.b.AtTurn(ProgramBuilder::kLastTurn);
  if (encoder_.relative) encoder_.relative->Backward(c, own.dbias);
  EmbedBackward(c, SourceOf(pass), own.embedding_mask, dx, /*table_ready=*/true);
}

ContextAttention Transformer::CrossAttentionOf(const LayerContext& c, const TransformerBlock& block) const {
  AttentionDims dims = DimsOf(block);
  dims.causal = dims.biased = false;
  dims.key_seq = encoder_.stream.seq;
  return ContextAttention(c, dims, context_, block.cross->name);
}

Slice Transformer::CrossForward(const LayerContext& c, const TransformerBlock& block, Slice x, Slice branch,
                                CrossActivations& saved) {
  const CrossAttention& cross = *block.cross;
  saved.norm = cross.norm.Forward(c, x, branch, block.stream.rows);
  ForwardScope scope(c.hooks, cross.module);
  saved.queries_input = cross.queries.InputToKeep(c, saved.norm.y);
  saved.queries = cross.queries.Forward(c, saved.queries_input, block.stream.tokens);
  const Slice source = c.InType(types_.activations, saved.source, cross.name + ".source");
  saved.keys_input = cross.keys.InputToKeep(c, source);
  saved.keys = cross.keys.Forward(c, saved.keys_input, encoder_.stream.tokens);
  saved.core = CrossAttentionOf(c, block).ForwardCross(saved.queries, saved.keys);
  saved.attention = cross.projection.InputToKeep(c, saved.core.out);
  const Slice out = cross.projection.Forward(c, saved.attention, block.stream.tokens);
  saved.mask = Drop(c, block.stream, out, cross.name);
  return out;
}

Slice Transformer::CrossBackward(const LayerContext& c, const TransformerBlock& block,
                                 CrossActivations& saved, Slice dx) {
  const CrossAttention& cross = *block.cross;
  Slice dnorm;
  {
    BackwardScope scope(c.hooks, cross.module);
    Slice dout = c.InType(types_.activations, dx, cross.name + ".dy");
    dout = DropGradient(c, block.stream, dout, saved.mask, cross.name);
    dout = cross.projection.Backward(c, dout, saved.attention, block.stream.tokens);
    const ContextAttention attention = CrossAttentionOf(c, block);
    if (block.recompute == Recompute::kSelective && RunsAgain(RecomputeModule::kCoreAttention)) {
      c.b.SetPhase(Phase::kRecompute);
      saved.core = attention.ForwardCross(saved.queries, saved.keys);
      c.b.SetPhase(Phase::kBackward);
    }
    const auto [dqueries, dkeys] = attention.BackwardCross(dout, saved.queries, saved.keys, saved.core);
    saved.dsource = cross.keys.Backward(c, cross.keys.PartsOf(dkeys, encoder_.stream.tokens),
                                        saved.keys_input, encoder_.stream.tokens);
    dnorm = cross.queries.Backward(c, {dqueries}, saved.queries_input, block.stream.tokens);
  }
  return spec_.residual_from_norm ? cross.norm.BackwardOfStream(c, dnorm, saved.norm, dx, block.stream.rows)
                                  : cross.norm.Backward(c, dnorm, saved.norm, dx, block.stream.rows);
}

}  // namespace windtunnel
