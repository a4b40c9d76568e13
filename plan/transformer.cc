// GPT- and Llama-style decoder: embedding, blocks of (norm, attention, norm, MLP) with residuals, final norm, head.
// The residual additions are fused into the norm that follows them.
#include <cmath>

#include "plan/layers.h"
#include "plan/model.h"

namespace windtunnel {
namespace {

using Distribution = InitializeParameter::Distribution;
constexpr double kInitDeviation = 0.02;  // GPT-2 and Llama: weights from N(0, 0.02^2)

struct Block {
  Norm norm1, norm2;
  Linear qkv, projection, up, down;  // up is gate and up side by side for SwiGLU
};

// What one block's forward leaves for its backward.
struct BlockActivations {
  Norm::Saved norm1, norm2;
  Slice qkv, attention, attention_saved, up, activated;
};

class Transformer : public Model {
 public:
  explicit Transformer(const Scenario& scenario)
      : spec_(scenario.model), batch_(scenario.batch.micro), tokens_(batch_ * spec_.seq_len) {}

  std::vector<ParameterInit> Register(Role& role) override;
  void ForwardBackward(ProgramBuilder& b, GradientSink& sink, int micro_batch, Slice loss,
                       double gradient_scale) override;
  ModelStatistics Statistics(const Role& role) const override;

 private:
  Slice Embed(ProgramBuilder& b, Slice ids);
  Slice BlockForward(ProgramBuilder& b, const Block& block, Slice x, Slice branch, BlockActivations& saved);
  Slice AttentionForwardOps(ProgramBuilder& b, const Block& block, BlockActivations& saved);
  Slice BlockBackward(ProgramBuilder& b, GradientSink& sink, const Block& block, const BlockActivations& saved, Slice dx);
  Slice AttentionBackwardOps(ProgramBuilder& b, const Block& block, const BlockActivations& saved, Slice dout);
  Slice HeadForwardBackward(ProgramBuilder& b, GradientSink& sink, const Norm::Saved& norm, Slice targets, Slice loss,
                            double gradient_scale);
  void EmbedBackward(ProgramBuilder& b, GradientSink& sink, Slice ids, Slice dx);

  bool learned_positions() const { return spec_.position == PositionKind::kLearned; }
  int64_t qkv_columns() const { return (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim(); }
  Rope RopeOp(bool backward) const {
    return Rope{batch_, spec_.seq_len, spec_.heads, spec_.kv_heads, spec_.head_dim(), backward};
  }

  ModelSpec spec_;
  int64_t batch_, tokens_;
  int table_ = -1, positions_ = -1;
  std::vector<Block> blocks_;
  Norm final_norm_;
  Linear head_;
};

std::vector<ParameterInit> Transformer::Register(Role& role) {
  std::vector<ParameterInit> inits;
  const ParameterInit weight{Distribution::kNormal, kInitDeviation};
  // GPT-2: the projections into the residual stream are scaled down by the number of residual layers.
  const ParameterInit residual{Distribution::kNormal, kInitDeviation / std::sqrt(2.0 * static_cast<double>(spec_.layers))};
  table_ = RegisterParameter(role, inits, "wte.weight", {spec_.vocab, spec_.hidden}, weight);
  if (learned_positions()) {
    positions_ = RegisterParameter(role, inits, "wpe.weight", {spec_.seq_len, spec_.hidden}, weight);
  }
  const bool gated = spec_.activation == ActivationKind::kSwiglu;
  for (int64_t layer = 0; layer < spec_.layers; ++layer) {
    const std::string prefix = fmt::format("blocks.{}.", layer);
    Block block;
    block.norm1 = Norm::Register(role, inits, prefix + "norm1", spec_.norm, spec_.hidden, spec_.bias);
    block.qkv = Linear::Register(role, inits, prefix + "attn.qkv", spec_.hidden, qkv_columns(), spec_.bias, weight);
    block.projection = Linear::Register(role, inits, prefix + "attn.proj", spec_.heads * spec_.head_dim(), spec_.hidden,
                                        spec_.bias, residual);
    block.norm2 = Norm::Register(role, inits, prefix + "norm2", spec_.norm, spec_.hidden, spec_.bias);
    block.up = Linear::Register(role, inits, prefix + (gated ? "mlp.gate_up" : "mlp.up"), spec_.hidden,
                                spec_.ffn * (gated ? 2 : 1), spec_.bias, weight);
    block.down = Linear::Register(role, inits, prefix + "mlp.down", spec_.ffn, spec_.hidden, spec_.bias, residual);
    blocks_.push_back(std::move(block));
  }
  final_norm_ = Norm::Register(role, inits, "norm_f", spec_.norm, spec_.hidden, spec_.bias);
  if (spec_.tie_embeddings) {
    head_ = Linear{"head", spec_.hidden, spec_.vocab, table_, -1};
  } else {
    head_ = Linear::Register(role, inits, "head", spec_.hidden, spec_.vocab, false, weight);
  }
  return inits;
}

Slice Transformer::Embed(ProgramBuilder& b, Slice ids) {
  Slice x = b.Temporary("embedding", tokens_ * spec_.hidden, Category::kActivations);
  std::vector<Slice> reads = {ids, Values(b.role(), table_)};
  if (learned_positions()) reads.push_back(Values(b.role(), positions_));
  b.Add(EmbeddingForward{tokens_, spec_.seq_len, spec_.vocab, spec_.hidden, learned_positions()}, "embedding", reads, {x});
  return x;
}

Slice Transformer::AttentionForwardOps(ProgramBuilder& b, const Block& block, BlockActivations& saved) {
  const std::string name = block.qkv.name.substr(0, block.qkv.name.size() - 4);  // "blocks.0.attn"
  saved.qkv = block.qkv.Forward(b, saved.norm1.y, tokens_);
  if (!learned_positions()) b.Add(RopeOp(false), name + ".rope", {saved.qkv}, {saved.qkv});
  const int64_t rows = batch_ * spec_.heads * spec_.seq_len;
  saved.attention = b.Temporary(name + ".out", tokens_ * spec_.heads * spec_.head_dim(), Category::kActivations);
  saved.attention_saved = spec_.attention == AttentionKind::kEager
                              ? b.Temporary(name + ".probabilities", rows * spec_.seq_len, Category::kActivations)
                              : b.Temporary(name + ".log_sum_exp", rows, Category::kActivations);
  Slice workspace = b.Temporary(name + ".workspace", AttentionWorkspaceElements(spec_.seq_len, false), Category::kWorkspace);
  b.Add(AttentionForward{batch_, spec_.seq_len, spec_.heads, spec_.kv_heads, spec_.head_dim(), spec_.attention}, name,
        {saved.qkv}, {saved.attention, saved.attention_saved, workspace});
  return block.projection.Forward(b, saved.attention, tokens_);
}

// Takes the residual stream as x + branch and returns the MLP's branch; the stream after attention is saved.norm2.x.
Slice Transformer::BlockForward(ProgramBuilder& b, const Block& block, Slice x, Slice branch, BlockActivations& saved) {
  saved.norm1 = block.norm1.Forward(b, x, branch, tokens_);
  Slice attention = AttentionForwardOps(b, block, saved);
  saved.norm2 = block.norm2.Forward(b, saved.norm1.x, attention, tokens_);
  saved.up = block.up.Forward(b, saved.norm2.y, tokens_);
  const std::string name = block.down.name.substr(0, block.down.name.size() - 5) + ".activation";
  saved.activated = b.Temporary(name, tokens_ * spec_.ffn, Category::kActivations);
  b.Add(ActivationForward{spec_.activation, tokens_, spec_.ffn}, name, {saved.up}, {saved.activated});
  return block.down.Forward(b, saved.activated, tokens_);
}

Slice Transformer::AttentionBackwardOps(ProgramBuilder& b, const Block& block, const BlockActivations& saved, Slice dout) {
  const std::string name = block.qkv.name.substr(0, block.qkv.name.size() - 4);
  Slice dqkv = b.Temporary(name + ".dqkv", tokens_ * qkv_columns(), Category::kActivations);
  Slice workspace = b.Temporary(name + ".workspace", AttentionWorkspaceElements(spec_.seq_len, true), Category::kWorkspace);
  b.Add(AttentionBackward{batch_, spec_.seq_len, spec_.heads, spec_.kv_heads, spec_.head_dim(), spec_.attention}, name,
        {dout, saved.qkv, saved.attention, saved.attention_saved}, {dqkv, workspace});
  if (!learned_positions()) b.Add(RopeOp(true), name + ".rope", {dqkv}, {dqkv});
  return dqkv;
}

// dx is the gradient of the stream after the block; it becomes, in place, that of the stream before it.
Slice Transformer::BlockBackward(ProgramBuilder& b, GradientSink& sink, const Block& block, const BlockActivations& saved,
                                 Slice dx) {
  Slice dactivated = block.down.Backward(b, sink, dx, saved.activated, tokens_);
  const bool gated = spec_.activation == ActivationKind::kSwiglu;
  const std::string name = block.down.name.substr(0, block.down.name.size() - 5) + ".activation";
  Slice dup = gated ? b.Temporary(name + ".dx", 2 * tokens_ * spec_.ffn, Category::kActivations) : dactivated;
  b.Add(ActivationBackward{spec_.activation, tokens_, spec_.ffn}, name, {dactivated, saved.up}, {dup});
  Slice dnorm2 = block.up.Backward(b, sink, dup, saved.norm2.y, tokens_);
  dx = block.norm2.Backward(b, sink, dnorm2, saved.norm2, dx, tokens_);
  Slice dattention = block.projection.Backward(b, sink, dx, saved.attention, tokens_);
  Slice dqkv = AttentionBackwardOps(b, block, saved, dattention);
  Slice dnorm1 = block.qkv.Backward(b, sink, dqkv, saved.norm1.y, tokens_);
  return block.norm1.Backward(b, sink, dnorm1, saved.norm1, dx, tokens_);
}

// Logits, loss, and back to the gradient of the residual stream's end.
Slice Transformer::HeadForwardBackward(ProgramBuilder& b, GradientSink& sink, const Norm::Saved& norm, Slice targets,
                                       Slice loss, double gradient_scale) {
  Slice logits = head_.Forward(b, norm.y, tokens_);
  b.SetPhase(Phase::kLoss);
  b.Add(CrossEntropy{tokens_, spec_.vocab, gradient_scale}, "cross_entropy", {logits, targets}, {loss, logits});
  b.SetPhase(Phase::kBackward);
  // A tied weight is ready only once the embedding has added its part.
  Slice dy = head_.Backward(b, sink, logits, norm.y, tokens_, /*needs_dx=*/true, /*weight_ready=*/!spec_.tie_embeddings);
  return final_norm_.Backward(b, sink, dy, norm, kNoSlice, tokens_);
}

void Transformer::EmbedBackward(ProgramBuilder& b, GradientSink& sink, Slice ids, Slice dx) {
  EmbeddingBackward op{tokens_, spec_.seq_len, spec_.vocab, spec_.hidden, learned_positions()};
  op.accumulate_table = spec_.tie_embeddings || sink.HoldsValue(table_);
  std::vector<Slice> writes = {sink.Gradient(table_)};
  if (learned_positions()) {
    op.accumulate_positions = sink.HoldsValue(positions_);
    writes.push_back(sink.Gradient(positions_));
  }
  b.Add(op, "embedding", {ids, dx}, writes);
  if (learned_positions()) sink.Ready(positions_);
  sink.Ready(table_);
}

void Transformer::ForwardBackward(ProgramBuilder& b, GradientSink& sink, int micro_batch, Slice loss,
                                  double gradient_scale) {
  b.SetMicroBatch(micro_batch);
  b.SetPhase(Phase::kForward);
  Slice ids = b.Temporary("ids", tokens_, Category::kActivations, DType::kInt32);
  Slice targets = b.Temporary("targets", tokens_, Category::kActivations, DType::kInt32);
  b.Add(LoadBatch{micro_batch, batch_, spec_.seq_len, 0}, "load_batch", {}, {ids, targets});

  std::vector<BlockActivations> saved(blocks_.size());
  Slice x = Embed(b, ids), branch = kNoSlice;
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    b.SetLayer(static_cast<int>(layer));
    branch = BlockForward(b, blocks_[layer], x, branch, saved[layer]);
    x = saved[layer].norm2.x;
  }
  b.SetLayer(-1);
  Norm::Saved final_saved = final_norm_.Forward(b, x, branch, tokens_);
  Slice dx = HeadForwardBackward(b, sink, final_saved, targets, loss, gradient_scale);
  for (size_t layer = blocks_.size(); layer-- > 0;) {
    b.SetLayer(static_cast<int>(layer));
    dx = BlockBackward(b, sink, blocks_[layer], saved[layer], dx);
  }
  b.SetLayer(-1);
  EmbedBackward(b, sink, ids, dx);
  b.SetMicroBatch(-1);
}

ModelStatistics Transformer::Statistics(const Role& role) const {
  ModelStatistics statistics;
  for (const Parameter& parameter : role.parameters) statistics.parameters += parameter.elements;
  statistics.parameters_without_positions =
      statistics.parameters - (learned_positions() ? spec_.seq_len * spec_.hidden : 0);
  // PaLM (Chowdhery et al. 2022, appendix B): 6N + 12 L H Q T a token.
  statistics.flops_per_token =
      Flops(6.0 * static_cast<double>(statistics.parameters_without_positions) +
            12.0 * static_cast<double>(spec_.layers * spec_.heads * spec_.head_dim() * spec_.seq_len));
  return statistics;
}

}  // namespace

std::unique_ptr<Model> MakeTransformer(const Scenario& scenario) { return std::make_unique<Transformer>(scenario); }

}  // namespace windtunnel
