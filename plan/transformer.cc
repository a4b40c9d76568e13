// GPT- and Llama-style decoder: embedding, blocks of (norm, attention, norm, MLP) with residuals, final norm, head.
// The residual additions are fused into the norm that follows them.
//
// Recomputation drops activations after a block's forward and makes them again at the start of its backward:
//   full          keeps the block's input (the sum that its first norm makes) and runs everything after it again
//   selective     runs the attention core again, for the probabilities (eager) or log-sum-exps (flash) alone
//   selective_op  keeps what every second matmul made, and attention's output; runs the others again, and what is between
// Its collectives come with what is run again.
// What backward does not need is not run again, as torch.utils.checkpoint's early stop; frameworks of another name than
// windtunnel are taken to run the whole block again.
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "plan/context_attention.h"
#include "plan/experts.h"
#include "plan/layers.h"
#include "plan/model.h"

namespace windtunnel {
namespace {

using Distribution = InitializeParameter::Distribution;
constexpr double kInitDeviation = 0.02;  // GPT-2 and Llama: weights from N(0, 0.02^2)

// Whole on every tensor rank, with gradients from the tokens that it has.
const ParameterSplit kOfOwnTokens{ParameterSplit::By::kNothing, {}, true};

struct Block {
  ModuleId module, attention_module, mlp_module;
  Norm norm1, norm2;
  Linear qkv, projection, up, down;  // up is gate and up side by side for SwiGLU
  std::optional<ExpertMlp> experts;  // instead of up and down
};

// What one block's forward leaves for its backward; what is dropped has no buffer.
struct BlockActivations {
  Norm::Saved norm1, norm2;
  Slice qkv;                       // as attention's core takes it
  ContextAttention::Core core;     // and what that made
  Slice attention;                 // its output as the projection takes it
  Slice attention_mask, mlp_mask;  // of dropout, behind either half
  Slice up, activated;
  ExpertMlp::Saved experts;
};

std::string AttentionName(const Block& block) { return block.qkv.name.substr(0, block.qkv.name.size() - 4); }
std::string MlpName(const Block& block) {
  return block.experts ? block.experts->name : block.down.name.substr(0, block.down.name.size() - 5);
}
std::string ActivationName(const Block& block) { return MlpName(block) + ".activation"; }

// A micro-batch on its way.
struct Pass {
  Slice ids, targets;
  Slice embedding_mask;
  std::vector<BlockActivations> saved;
  Norm::Saved final_norm;
};

class Transformer : public Model {
 public:
  Transformer(const Scenario& scenario, const StageRange& stage, const ModelParallel& parallel)
      : Model(parallel),
        context_(parallel.context),
        spec_(scenario.model),
        stage_(stage),
        types_(TypesOf(scenario.precision)),
        recompute_(scenario.recompute),
        stops_early_(scenario.framework == Framework::kWindtunnel),
        batch_(scenario.batch.micro),
        seq_(spec_.seq_len / context_.ranks()),
        tokens_(batch_ * seq_),
        rows_(tensor_.splits_tokens() ? tokens_ / tensor_.ranks() : tokens_),
        heads_(spec_.heads / tensor_.ranks()),
        kv_heads_(spec_.kv_heads / tensor_.ranks()),
        ffn_(spec_.ffn / tensor_.ranks()),
        vocab_(spec_.vocab / tensor_.ranks()) {}

  void Register(Role& role) override;
  Slice Forward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                double gradient_scale) override;
  Slice MakeInputs(ProgramBuilder& b, int64_t micro_batches) const override;
  Slice Load(ProgramBuilder& b, int micro_batch, int64_t micro_batches, Slice inputs) const override;
  Slice Loss(ProgramBuilder& b, int64_t micro_batches, Slice output, Slice targets, Slice loss,
             double gradient_scale) const override;
  int64_t InputElements() const override { return rows_ * spec_.hidden; }
  int64_t OutputElements() const override { return rows_ * spec_.hidden; }
  ModelStatistics Statistics(int64_t parameters) const override;

 private:
  Slice AddBackward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice doutput,
                    DeferredOps* deferred) override;
  Linear RegisterColumnParallel(Role& role, ModuleId module, const std::string& name,
                                const std::vector<int64_t>& outputs, bool bias);
  Linear RegisterRowParallel(Role& role, ModuleId module, const std::string& name, int64_t in);
  Norm RegisterNorm(Role& role, ModuleId module, const std::string& name);
  void RegisterMlp(Role& role, const std::string& prefix, Block& block);
  ExpertMlp RegisterExperts(Role& role, const std::string& prefix, ModuleId mlp);
  Block RegisterBlock(Role& role, int64_t layer);

  LayerContext Context(ProgramBuilder& b, ModelHooks& hooks, DeferredOps* deferred = nullptr) const {
    return LayerContext{b, hooks, types_, deferred, tensor_};
  }
  Slice Embed(const LayerContext& c, Pass& pass);
  Slice BlockForward(const LayerContext& c, const Block& block, Slice x, Slice branch,
                     BlockActivations& saved);
  void ProjectQkv(const LayerContext& c, const Block& block, BlockActivations& saved);
  void Attend(const LayerContext& c, const Block& block, BlockActivations& saved);
  Slice AttentionForwardOps(const LayerContext& c, const Block& block, BlockActivations& saved);
  Slice Project(const LayerContext& c, const Block& block, BlockActivations& saved);
  Slice ProjectDown(const LayerContext& c, const Block& block, BlockActivations& saved);
  void Activate(const LayerContext& c, const Block& block, BlockActivations& saved);
  Slice MlpForwardOps(const LayerContext& c, const Block& block, BlockActivations& saved);
  void DropActivations(BlockActivations& saved) const;
  void RunAgain(const LayerContext& c, const Block& block, BlockActivations& saved);
  void RecomputeBlock(const LayerContext& c, const Block& block, BlockActivations& saved);
  void RecomputeEverySecondMatmul(const LayerContext& c, const Block& block, BlockActivations& saved);
  Slice BlockBackward(const LayerContext& c, const Block& block, BlockActivations& saved, Slice dx);
  Slice MlpBackwardOps(const LayerContext& c, const Block& block, const BlockActivations& saved, Slice dx);
  Slice AttentionBackwardOps(const LayerContext& c, const Block& block, const BlockActivations& saved,
                             Slice dout);
  Slice ForwardLayers(const LayerContext& c, Slice input, Pass& pass);
  Slice SumAtBoundary(const LayerContext& c, Slice x, Slice branch);
  void AddLoss(const LayerContext& c, Slice logits, Slice targets, Slice loss, double gradient_scale);
  void AddVocabParallelLoss(const LayerContext& c, Slice logits, Slice targets, Slice loss,
                            double gradient_scale);
  Slice HeadBackward(const LayerContext& c, const Norm::Saved& norm, Slice dlogits);
  void EmbedBackward(const LayerContext& c, const Pass& pass, Slice dx);

  bool learned_positions() const { return spec_.position == PositionKind::kLearned; }
  bool gated() const { return spec_.activation == ActivationKind::kSwiglu; }
  Rope RopeOp(bool backward) const {
    return Rope{batch_,           seq_, heads_, kv_heads_, spec_.head_dim(), backward, types_.activations,
                context_.tokens()};
  }
  ContextAttention AttentionOf(const LayerContext& c, const Block& block) const {
    const AttentionDims dims{
        batch_,       seq_, heads_, kv_heads_, spec_.head_dim(), spec_.attention, types_.activations,
        spec_.dropout};
    return ContextAttention(c, dims, context_, AttentionName(block));
  }

  ContextParallel context_;
  ModelSpec spec_;
  StageRange stage_;
  ModelTypes types_;
  Recompute recompute_;
  bool stops_early_;
  int64_t batch_, seq_, tokens_;  // of the rank: sequences, its tokens of each, all its tokens
  int64_t rows_;  // tokens of the residual stream that the rank has: all, or its own where tokens are split
  int64_t heads_, kv_heads_, ffn_, vocab_;  // of the rank's part
  ModuleId embedding_module_ = 0, norm_module_ = 0, head_module_ = 0;
  int table_ = -1, positions_ = -1;
  std::vector<Block> blocks_;
  Norm final_norm_;
  Linear head_;
  std::map<int, Pass> passes_;  // by micro-batch, from its forward to its backward
};

// From the residual stream to `outputs` side by side, of each of which tensor ranks have equal parts.
Linear Transformer::RegisterColumnParallel(Role& role, ModuleId module, const std::string& name,
                                           const std::vector<int64_t>& outputs, bool bias) {
  const int64_t out = std::accumulate(outputs.begin(), outputs.end(), int64_t{0});
  const ParameterSplit split{ParameterSplit::By::kRows, outputs};
  Linear linear{name, spec_.hidden, out / tensor_.ranks()};
  linear.weight = AddParameter(role, module, name + ".weight", {out, spec_.hidden},
                               {Distribution::kNormal, kInitDeviation}, split);
  if (bias) linear.bias = AddParameter(role, module, name + ".bias", {out}, {}, split);
  if (tensor_.splits()) linear.split = LinearSplit::kColumnParallel;
  return linear;
}

// Back into the residual stream. GPT-2: these projections are scaled down by the number of residual layers.
Linear Transformer::RegisterRowParallel(Role& role, ModuleId module, const std::string& name, int64_t in) {
  const double deviation = kInitDeviation / std::sqrt(2.0 * static_cast<double>(spec_.layers));
  Linear linear{name, in / tensor_.ranks(), spec_.hidden};
  linear.weight = AddParameter(role, module, name + ".weight", {spec_.hidden, in},
                               {Distribution::kNormal, deviation}, {ParameterSplit::By::kColumns});
  if (spec_.bias) linear.bias = AddParameter(role, module, name + ".bias", {spec_.hidden}, {}, kOfOwnTokens);
  if (tensor_.splits()) linear.split = LinearSplit::kRowParallel;
  return linear;
}

Norm Transformer::RegisterNorm(Role& role, ModuleId module, const std::string& name) {
  Norm norm{name, spec_.norm, spec_.hidden};
  norm.gamma =
      AddParameter(role, module, name + ".weight", {spec_.hidden}, {Distribution::kOnes, 0}, kOfOwnTokens);
  if (spec_.bias && spec_.norm == NormKind::kLayerNorm) {
    norm.beta = AddParameter(role, module, name + ".bias", {spec_.hidden}, {}, kOfOwnTokens);
  }
  return norm;
}

Block Transformer::RegisterBlock(Role& role, int64_t layer) {
  const int64_t queries = spec_.heads * spec_.head_dim(), keys = spec_.kv_heads * spec_.head_dim();
  const std::string name = fmt::format("blocks.{}", layer), prefix = name + ".";
  Block block;
  block.module = AddModule(name, kRootModule);
  block.attention_module = AddModule(prefix + "attn", block.module);
  block.mlp_module = AddModule(prefix + "mlp", block.module);
  block.norm1 = RegisterNorm(role, block.module, prefix + "norm1");
  block.qkv = RegisterColumnParallel(role, block.attention_module, prefix + "attn.qkv", {queries, keys, keys},
                                     spec_.bias);
  block.projection = RegisterRowParallel(role, block.attention_module, prefix + "attn.proj", queries);
  block.norm2 = RegisterNorm(role, block.module, prefix + "norm2");
  RegisterMlp(role, prefix, block);
  // (Products of experts stay in 16 bits.)
  for (Linear* linear : {&block.qkv, &block.projection, &block.up, &block.down})
    linear->is_fp8 = types_.fp8 != Fp8Recipe::kNone;
  return block;
}

void Transformer::RegisterMlp(Role& role, const std::string& prefix, Block& block) {
  if (spec_.experts) {
    block.experts = RegisterExperts(role, prefix, block.mlp_module);
    return;
  }
  block.up = gated()
                 ? RegisterColumnParallel(role, block.mlp_module, prefix + "mlp.gate_up",
                                          {spec_.ffn, spec_.ffn}, spec_.bias)
                 : RegisterColumnParallel(role, block.mlp_module, prefix + "mlp.up", {spec_.ffn}, spec_.bias);
  block.down = RegisterRowParallel(role, block.mlp_module, prefix + "mlp.down", spec_.ffn);
}

ExpertMlp Transformer::RegisterExperts(Role& role, const std::string& prefix, ModuleId mlp) {
  const ExpertsSpec& spec = *spec_.experts;
  const int count = spec.count;
  const int64_t columns = gated() ? 2 * spec_.ffn : spec_.ffn, own = count / expert_.ranks();
  const ParameterInit into{Distribution::kNormal, kInitDeviation};
  const ParameterInit out_of{Distribution::kNormal,
                             kInitDeviation / std::sqrt(2.0 * static_cast<double>(spec_.layers))};
  ExpertMlp experts{
      .name = prefix + "mlp", .activation = spec_.activation, .spec = spec, .parallel = expert_};
  experts.router = Linear{prefix + "mlp.router", spec_.hidden, count};
  ParameterSplit whole;
  whole.sees_partial_sums = true;
  experts.router.weight =
      AddParameter(role, mlp, prefix + "mlp.router.weight", {count, spec_.hidden}, into, whole);
  experts.module = AddModule(prefix + "mlp.experts", mlp);
  ParameterSplit by_rows{ParameterSplit::By::kRows, {spec_.ffn}};
  if (gated()) by_rows.blocks.push_back(spec_.ffn);
  by_rows.experts = count;
  experts.up = ExpertLinear{prefix + "mlp.experts.up", own, spec_.hidden, columns / tensor_.ranks()};
  experts.up.weight = AddParameter(role, experts.module, experts.up.name + ".weight",
                                   {count * columns, spec_.hidden}, into, by_rows);
  ParameterSplit by_columns{ParameterSplit::By::kColumns};
  by_columns.experts = count;
  experts.down = ExpertLinear{prefix + "mlp.experts.down", own, ffn_, spec_.hidden};
  experts.down.weight = AddParameter(role, experts.module, experts.down.name + ".weight",
                                     {count * spec_.hidden, spec_.ffn}, out_of, by_columns);
  experts.load = ExpertLoad::Of(spec, tokens_, expert_.ranks());
  return experts;
}

void Transformer::Register(Role& role) {
  AddModule("", -1);
  is_in_stage_ = stage_.is_first;
  embedding_module_ = AddModule("embedding", kRootModule);
  const ParameterInit weight{Distribution::kNormal, kInitDeviation};
  const ParameterSplit by_vocabulary{ParameterSplit::By::kRows, {spec_.vocab}};
  table_ =
      AddParameter(role, embedding_module_, "wte.weight", {spec_.vocab, spec_.hidden}, weight, by_vocabulary);
  const int64_t table_ordinal = next_ordinal_ - 1;
  if (learned_positions()) {
    positions_ = AddParameter(role, embedding_module_, "wpe.weight", {spec_.seq_len, spec_.hidden}, weight);
  }
  for (int64_t layer = 0; layer < spec_.layers; ++layer) {
    is_in_stage_ = stage_.first <= layer && layer < stage_.end;
    Block block = RegisterBlock(role, layer);
    if (is_in_stage_) blocks_.push_back(std::move(block));
  }
  is_in_stage_ = stage_.is_last;
  norm_module_ = AddModule("norm_f", kRootModule);
  final_norm_ = RegisterNorm(role, norm_module_, "norm_f");
  head_module_ = AddModule("head", kRootModule);
  if (spec_.tie_embeddings) {
    if (stage_.is_last && !stage_.is_first)
      table_ = AddTied(role, head_module_, "wte.weight", {spec_.vocab, spec_.hidden}, weight, table_ordinal,
                       by_vocabulary);
    head_ = Linear{"head", spec_.hidden, vocab_, table_, -1};
    if (tensor_.splits()) head_.split = LinearSplit::kColumnParallel;
  } else {
    head_ = RegisterColumnParallel(role, head_module_, "head", {spec_.vocab}, false);
  }
}

Slice Transformer::Embed(const LayerContext& c, Pass& pass) {
  ForwardScope scope(c.hooks, embedding_module_);
  Slice x = c.Activation("embedding", tokens_ * spec_.hidden);
  std::vector<Slice> reads = {pass.ids, c.hooks.Values(table_)};
  if (learned_positions()) reads.push_back(c.hooks.Values(positions_));
  c.b.Add(EmbeddingForward{tokens_, seq_, vocab_, spec_.hidden, learned_positions(), types_.activations,
                           tensor_.splits(), context_.tokens()},
          "embedding", reads, {x});
  x = c.SumOverRanks(x, "embedding");
  pass.embedding_mask = c.Drop(x, spec_.dropout, "embedding.dropout");
  return x;
}

void Transformer::ProjectQkv(const LayerContext& c, const Block& block, BlockActivations& saved) {
  const Slice qkv = block.qkv.Forward(c, saved.norm1.y, tokens_);
  if (!learned_positions()) c.b.Add(RopeOp(false), AttentionName(block) + ".rope", {qkv}, {qkv});
  saved.qkv = AttentionOf(c, block).Enter(qkv);
}

void Transformer::Attend(const LayerContext& c, const Block& block, BlockActivations& saved) {
  saved.core = AttentionOf(c, block).Forward(saved.qkv);
}

Slice Transformer::AttentionForwardOps(const LayerContext& c, const Block& block, BlockActivations& saved) {
  ForwardScope scope(c.hooks, block.attention_module);
  ProjectQkv(c, block, saved);
  Attend(c, block, saved);
  saved.attention = AttentionOf(c, block).Leave(saved.core.out);
  return Project(c, block, saved);
}

Slice Transformer::Project(const LayerContext& c, const Block& block, BlockActivations& saved) {
  const Slice out = block.projection.Forward(c, saved.attention, tokens_);
  saved.attention_mask = c.Drop(out, spec_.dropout, AttentionName(block) + ".dropout");
  return out;
}

void Transformer::Activate(const LayerContext& c, const Block& block, BlockActivations& saved) {
  if (block.experts) return block.experts->Activate(c, saved.experts);
  const std::string name = ActivationName(block);
  saved.activated = c.Activation(name, tokens_ * ffn_);
  c.b.Add(ActivationForward{spec_.activation, tokens_, ffn_, types_.activations}, name, {saved.up},
          {saved.activated});
}

Slice Transformer::MlpForwardOps(const LayerContext& c, const Block& block, BlockActivations& saved) {
  ForwardScope scope(c.hooks, block.mlp_module);
  if (!block.experts) {
    saved.up = block.up.Forward(c, saved.norm2.y, tokens_);
    Activate(c, block, saved);
  }
  return ProjectDown(c, block, saved);
}

// All of it, with experts.
Slice Transformer::ProjectDown(const LayerContext& c, const Block& block, BlockActivations& saved) {
  const Slice out = block.experts ? block.experts->Forward(c, saved.norm2.y, saved.experts)
                                  : block.down.Forward(c, saved.activated, tokens_);
  saved.mlp_mask = c.Drop(out, spec_.dropout, MlpName(block) + ".dropout");
  return out;
}

// Takes the residual stream as x + branch and returns the MLP's branch; the stream after attention is saved.norm2.x.
Slice Transformer::BlockForward(const LayerContext& c, const Block& block, Slice x, Slice branch,
                                BlockActivations& saved) {
  ForwardScope scope(c.hooks, block.module);
  saved.norm1 = block.norm1.Forward(c, x, branch, rows_);
  Slice attention = AttentionForwardOps(c, block, saved);
  saved.norm2 = block.norm2.Forward(c, saved.norm1.x, attention, rows_);
  return MlpForwardOps(c, block, saved);
}

// A slice that backward does not name lives no longer than its last use in forward.
void Transformer::DropActivations(BlockActivations& saved) const {
  switch (recompute_) {
    case Recompute::kNone:
      return;
    case Recompute::kSelective:
      saved.core.saved = saved.core.dropped = saved.core.mask = kNoSlice;
      return;
    case Recompute::kSelectiveOp:
      saved.norm1.y = saved.norm1.statistics = saved.activated = saved.experts.activated = kNoSlice;
      saved.norm2 = {};
      return;
    case Recompute::kFull: {
      const Slice input = saved.norm1.x;
      saved = {};
      saved.norm1.x = input;
      return;
    }
  }
}

void Transformer::RunAgain(const LayerContext& c, const Block& block, BlockActivations& saved) {
  if (recompute_ == Recompute::kNone) return;
  c.b.SetPhase(Phase::kRecompute);
  switch (recompute_) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      Attend(c, block, saved);
      break;
    case Recompute::kSelectiveOp:
      RecomputeEverySecondMatmul(c, block, saved);
      break;
    case Recompute::kFull:
      RecomputeBlock(c, block, saved);
      break;
  }
  c.b.SetPhase(Phase::kBackward);
}

void Transformer::RecomputeBlock(const LayerContext& c, const Block& block, BlockActivations& saved) {
  saved.norm1 = block.norm1.Forward(c, saved.norm1.x, kNoSlice, rows_);
  Slice attention = AttentionForwardOps(c, block, saved);
  saved.norm2 = block.norm2.Forward(c, saved.norm1.x, attention, rows_);
  ForwardScope scope(c.hooks, block.mlp_module);
  if (!block.experts) {
    saved.up = block.up.Forward(c, saved.norm2.y, tokens_);
    Activate(c, block, saved);
  }
  // What comes back from experts is needed for their weights, and the mask of what comes out.
  if (!stops_early_ || block.experts || spec_.dropout > 0) ProjectDown(c, block, saved);
}

// Kept: qkv, attention and up. Run again: the projection, and the norms and the activation, which are no matmuls; not the down
// projection, whose output nobody needs.
void Transformer::RecomputeEverySecondMatmul(const LayerContext& c, const Block& block,
                                             BlockActivations& saved) {
  saved.norm1 = block.norm1.Forward(c, saved.norm1.x, kNoSlice, rows_);
  Slice attention;
  {
    ForwardScope scope(c.hooks, block.attention_module);
    attention = Project(c, block, saved);
  }
  saved.norm2 = block.norm2.Forward(c, saved.norm1.x, attention, rows_);
  Activate(c, block, saved);
}

Slice Transformer::MlpBackwardOps(const LayerContext& c, const Block& block, const BlockActivations& saved,
                                  Slice dx) {
  BackwardScope scope(c.hooks, block.mlp_module);
  dx = c.DropGradient(dx, saved.mlp_mask, MlpName(block) + ".dropout");
  if (block.experts) return block.experts->Backward(c, dx, saved.norm2.y, saved.experts);
  Slice dactivated = block.down.Backward(c, dx, saved.activated, tokens_);
  const std::string name = ActivationName(block);
  Slice dup = gated() ? c.Activation(name + ".dx", 2 * tokens_ * ffn_) : dactivated;
  c.b.Add(ActivationBackward{spec_.activation, tokens_, ffn_, types_.activations}, name,
          {dactivated, saved.up}, {dup});
  return block.up.Backward(c, dup, saved.norm2.y, tokens_);
}

Slice Transformer::AttentionBackwardOps(const LayerContext& c, const Block& block,
                                        const BlockActivations& saved, Slice dx) {
  BackwardScope scope(c.hooks, block.attention_module);
  const std::string name = AttentionName(block);
  dx = c.DropGradient(dx, saved.attention_mask, name + ".dropout");
  Slice dout = block.projection.Backward(c, dx, saved.attention, tokens_);
  Slice dqkv = AttentionOf(c, block).Backward(dout, saved.qkv, saved.core);
  if (!learned_positions()) c.b.Add(RopeOp(true), name + ".rope", {dqkv}, {dqkv});
  return block.qkv.Backward(c, dqkv, saved.norm1.y, tokens_);
}

// dx is the gradient of the stream after the block; it becomes, in place, that of the stream before it.
Slice Transformer::BlockBackward(const LayerContext& c, const Block& block, BlockActivations& saved,
                                 Slice dx) {
  BackwardScope scope(c.hooks, block.module);
  RunAgain(c, block, saved);
  Slice dnorm2 = MlpBackwardOps(c, block, saved, dx);
  dx = block.norm2.Backward(c, dnorm2, saved.norm2, dx, rows_);
  Slice dnorm1 = AttentionBackwardOps(c, block, saved, dx);
  return block.norm1.Backward(c, dnorm1, saved.norm1, dx, rows_);
}

Slice Transformer::MakeInputs(ProgramBuilder& b, int64_t micro_batches) const {
  return b.Temporary("ids", micro_batches * tokens_, Category::kActivations, DType::kInt32);
}

Slice Transformer::Load(ProgramBuilder& b, int micro_batch, int64_t micro_batches, Slice inputs) const {
  const Slice targets = b.Temporary("targets", inputs.elements, Category::kActivations, DType::kInt32);
  b.Add(LoadBatch{micro_batch, micro_batches * batch_, seq_, 0, context_.tokens()}, "load_batch", {},
        {inputs, targets});
  return targets;
}

Slice Transformer::Loss(ProgramBuilder& b, int64_t micro_batches, Slice output, Slice targets, Slice loss,
                        double gradient_scale) const {
  b.SetPhase(Phase::kLoss);
  b.Add(CrossEntropy{micro_batches * tokens_, spec_.vocab, gradient_scale, types_.activations},
        "cross_entropy", {output, targets}, {loss, output});
  return output;
}

// What one stage hands to the next is one tensor: the addition that the next norm would have done comes first. The sum takes the
// branch's place, which no backward needs.
Slice Transformer::SumAtBoundary(const LayerContext& c, Slice x, Slice branch) {
  if (branch.buffer < 0) return x;
  c.b.Add(
      Copy{.elements = x.elements, .from = types_.activations, .to = types_.activations, .accumulate = true},
      "stage.output", {x}, {branch});
  return branch;
}

// The logits, or the end of the stage's residual stream.
Slice Transformer::ForwardLayers(const LayerContext& c, Slice input, Pass& pass) {
  ForwardScope scope(c.hooks, kRootModule);
  Slice x = stage_.is_first ? Embed(c, pass) : input, branch = kNoSlice;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    c.b.SetLayer(static_cast<int>(stage_.first + static_cast<int64_t>(i)));
    branch = BlockForward(c, blocks_[i], x, branch, pass.saved[i]);
    x = pass.saved[i].norm2.x;
    DropActivations(pass.saved[i]);
  }
  c.b.SetLayer(-1);
  if (!stage_.is_last) return SumAtBoundary(c, x, branch);
  {
    ForwardScope norm(c.hooks, norm_module_);
    pass.final_norm = final_norm_.Forward(c, x, branch, rows_);
  }
  ForwardScope head(c.hooks, head_module_);
  return head_.Forward(c, pass.final_norm.y, tokens_);
}

// The gradient takes the logits' place.
void Transformer::AddLoss(const LayerContext& c, Slice logits, Slice targets, Slice loss,
                          double gradient_scale) {
  if (tensor_.splits()) return AddVocabParallelLoss(c, logits, targets, loss, gradient_scale);
  Loss(c.b, 1, logits, targets, loss, gradient_scale);
}

void Transformer::AddVocabParallelLoss(const LayerContext& c, Slice logits, Slice targets, Slice loss,
                                       double gradient_scale) {
  const std::string name = "cross_entropy";
  const auto of_rows = [&](const char* what) {
    return c.b.Temporary(name + what, tokens_, Category::kActivations);
  };
  const auto reduce = [&](Slice x, Reduction reduction) {
    c.b.WaitBeforeUse(x, tensor_.stream->AllReduce(c.b, x, name, c.b.BeforeNextCompute(), reduction));
  };
  const Slice maximum = of_rows(".maximum"), target = of_rows(".target"), sum = of_rows(".sum");
  c.b.Add(VocabParallelMaximum{tokens_, vocab_, types_.activations}, name, {logits}, {maximum});
  reduce(maximum, Reduction::kMax);
  c.b.Add(VocabParallelSums{tokens_, vocab_, types_.activations}, name, {logits, targets, maximum},
          {target, sum});
  reduce(target, Reduction::kSum);
  reduce(sum, Reduction::kSum);
  c.b.Add(VocabParallelLoss{tokens_, vocab_, gradient_scale, types_.activations}, name,
          {logits, targets, maximum, target, sum}, {loss, logits});
}

// Back to the gradient of the residual stream's end.
Slice Transformer::HeadBackward(const LayerContext& c, const Norm::Saved& norm, Slice dlogits) {
  Slice dy;
  {
    BackwardScope head(c.hooks, head_module_);
    // A tied weight is ready only once the embedding has added its part.
    dy = head_.Backward(c, dlogits, norm.y, tokens_, /*needs_dx=*/true,
                        /*weight_ready=*/!spec_.tie_embeddings || !stage_.is_first);
  }
  BackwardScope scope(c.hooks, norm_module_);
  return final_norm_.Backward(c, dy, norm, kNoSlice, rows_);
}

void Transformer::EmbedBackward(const LayerContext& c, const Pass& pass, Slice dx) {
  BackwardScope scope(c.hooks, embedding_module_);
  const Slice ids = pass.ids;
  dx = c.DropGradient(dx, pass.embedding_mask, "embedding.dropout");
  c.AddOrDefer([this, ids, own_dx = dx](const LayerContext& c) {
    const Slice dx = c.GatherTokens(own_dx, "embedding.dx");
    EmbeddingBackward op{tokens_, seq_, vocab_, spec_.hidden, learned_positions()};
    op.dtype = types_.activations;
    op.vocab_parallel = tensor_.splits();
    op.context = context_.tokens();
    op.accumulate_table = c.hooks.HoldsValue(table_);
    std::vector<Slice> writes = {c.hooks.Gradient(table_)};
    if (learned_positions()) {
      op.accumulate_positions = c.hooks.HoldsValue(positions_);
      writes.push_back(c.hooks.Gradient(positions_));
    }
    c.b.Add(op, "embedding", {ids, dx}, writes);
    if (learned_positions()) c.hooks.Ready(positions_);
    c.hooks.Ready(table_);
  });
}

Slice Transformer::Forward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                           double gradient_scale) {
  const LayerContext c = Context(b, hooks);
  b.SetMicroBatch(micro_batch);
  b.SetPhase(Phase::kForward);
  Pass& pass = passes_[micro_batch] = {};
  pass.saved.resize(blocks_.size());
  if (stage_.is_replica) {
    pass.ids = input;
  } else if (stage_.is_first || stage_.is_last) {
    pass.ids = MakeInputs(b, 1);
    pass.targets = Load(b, micro_batch, 1, pass.ids);
  }
  const Slice output = ForwardLayers(c, input, pass);
  if (stage_.is_last && !stage_.is_replica) {
    b.SetPhase(Phase::kLoss);
    AddLoss(c, output, pass.targets, loss, gradient_scale);
  }
  b.SetMicroBatch(-1);
  return output;
}

Slice Transformer::AddBackward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice doutput,
                               DeferredOps* deferred) {
  const LayerContext c = Context(b, hooks, deferred);
  b.SetMicroBatch(micro_batch);
  b.SetPhase(Phase::kBackward);
  Pass& pass = passes_.at(micro_batch);
  Slice dx = doutput;
  {
    BackwardScope scope(c.hooks, kRootModule);
    if (stage_.is_last) dx = HeadBackward(c, pass.final_norm, doutput);
    for (size_t i = blocks_.size(); i-- > 0;) {
      b.SetLayer(static_cast<int>(stage_.first + static_cast<int64_t>(i)));
      dx = BlockBackward(c, blocks_[i], pass.saved[i], dx);
    }
    b.SetLayer(-1);
    if (stage_.is_first) EmbedBackward(c, pass, dx);
  }
  b.SetMicroBatch(-1);
  passes_.erase(micro_batch);
  return stage_.is_first ? kNoSlice : dx;
}

ModelStatistics Transformer::Statistics(int64_t parameters) const {
  ModelStatistics statistics;
  statistics.parameters = parameters;
  statistics.parameters_without_positions =
      statistics.parameters - (learned_positions() ? spec_.seq_len * spec_.hidden : 0);
  const int64_t matrices = gated() ? 3 : 2;
  const int64_t unseen =  // parameters of experts that a token does not go to
      spec_.experts
          ? spec_.layers * (spec_.experts->count - spec_.experts->top_k) * matrices * spec_.hidden * spec_.ffn
          : 0;
  // PaLM (Chowdhery et al. 2022, appendix B): 6N + 12 L H Q T a token.
  statistics.flops_per_token =
      Flops(6.0 * static_cast<double>(statistics.parameters_without_positions - unseen) +
            12.0 * static_cast<double>(spec_.layers * spec_.heads * spec_.head_dim() * spec_.seq_len));
  return statistics;
}

}  // namespace

Status CheckTensorParallel(const Scenario& scenario) {
  const TensorParallelSpec& tensor = scenario.parallel.tensor;
  const ModelSpec& model = scenario.model;
  if (tensor.size == 1) return Ok();
  if (model.kind == ModelKind::kMlp) {
    return Unsupported("parallel.tensor.size: tensor parallelism of kind: mlp is not supported yet");
  }
  const struct {
    const char* key;
    int64_t value;
  } split[] = {{"model.heads", model.heads},
               {"model.kv_heads", model.kv_heads},
               {"model.ffn", model.ffn},
               {"model.vocab", model.vocab}};
  for (const auto& [key, value] : split) {
    if (value % tensor.size == 0) continue;
    return InvalidInput("{} is {}, expected a multiple of parallel.tensor.size ({}), whose ranks share it",
                        key, value, tensor.size);
  }
  if (!tensor.sequence) return Ok();
  const int64_t tokens = scenario.batch.micro * model.seq_len;
  if (tokens % tensor.size != 0) {
    return InvalidInput(
        "parallel.tensor.sequence is true, expected parallel.tensor.size ({}) to divide the tokens of a "
        "micro-batch "
        "(batch.micro x model.seq_len: {})",
        tensor.size, tokens);
  }
  if (scenario.parallel.data.offload != Offload::kNone) {
    return Unsupported("parallel.data.offload: with parallel.tensor.sequence it is not supported yet");
  }
  return Ok();
}

Status CheckExperts(const Scenario& scenario) {
  const int64_t ranks = scenario.parallel.expert.size;
  if (!scenario.model.experts) {
    if (ranks == 1) return Ok();
    return InvalidInput("parallel.expert.size is {}, expected 1 for a model without model.experts", ranks);
  }
  const int64_t copies = scenario.parallel.data.size * scenario.parallel.context.size;
  const int count = scenario.model.experts->count;
  if (count % ranks == 0 && copies % ranks == 0) return Ok();
  return InvalidInput(
      "parallel.expert.size is {}, expected a divisor of model.experts.count ({}) and of data x context ({})",
      ranks, count, copies);
}

Status CheckContextParallel(const Scenario& scenario) {
  const ContextParallelSpec& context = scenario.parallel.context;
  const ModelSpec& model = scenario.model;
  if (context.size == 1) return Ok();
  if (model.kind == ModelKind::kMlp)
    return InvalidInput("parallel.context.size is {}, expected 1 for kind: mlp, which has no sequence",
                        context.size);
  if (context.kind == ContextKind::kUlysses) {
    const int64_t ranks = context.size * scenario.parallel.tensor.size;
    if (model.kv_heads % ranks == 0 && model.seq_len % context.size == 0) return Ok();
    return InvalidInput(
        "parallel.context: ulysses gives each rank some heads; model.kv_heads is {}, expected a multiple of "
        "context "
        "x tensor ({}), and model.seq_len ({}) one of context",
        model.kv_heads, ranks, model.seq_len);
  }
  if (model.seq_len % (2 * context.size) != 0) {
    return InvalidInput(
        "parallel.context.size is {}, expected twice that to divide model.seq_len ({}): each rank has a "
        "chunk from "
        "either end",
        context.size, model.seq_len);
  }
  if (model.attention != AttentionKind::kFlash) {
    return InvalidInput(
        "model.attention is eager, expected flash for parallel.context.kind: ring and all_gather, which "
        "merge "
        "log-sum-exps");
  }
  return Ok();
}

std::unique_ptr<Model> MakeTransformer(const Scenario& scenario, const StageRange& stage,
                                       const ModelParallel& parallel) {
  return std::make_unique<Transformer>(scenario, stage, parallel);
}

}  // namespace windtunnel
