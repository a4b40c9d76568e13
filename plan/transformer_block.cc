// One block of a transformer: its forward, recomputation and backward.
#include "plan/transformer.h"

#include "scenarios/words.h"

namespace windtunnel {

void Transformer::ProjectQkv(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  if (block.latent) {
    saved.qkv_input = block.latent->InputToKeep(c, saved.norm1.y);
    const Slice qkv = block.latent->Forward(c, saved.qkv_input, block.stream.rows, saved.latents);
    saved.qkv = AttentionOf(c, block).Enter(qkv);
    return;
  }
  saved.qkv_input = block.qkv.InputToKeep(c, saved.norm1.y);
  Slice qkv = block.qkv.Forward(c, saved.qkv_input, block.stream.tokens);
  if (spec_.attention_gate) qkv = TakeGateApart(c, block, qkv, saved);
  PrepareHeads(c, block, qkv, saved);
}

// The operators between the projections and the attention core.
void Transformer::PrepareHeads(const LayerContext& c, const TransformerBlock& block, Slice qkv,
                               BlockActivations& saved) {
  if (block.head_norm) qkv = block.head_norm->Forward(c, qkv, block.stream.tokens, saved.head_norm);
  if (rotates()) c.b.Add(RopeOp(block, false), AttentionName(block) + ".rope", {qkv}, {qkv});
  saved.qkv = AttentionOf(c, block).Enter(qkv);
}

void Transformer::Attend(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  saved.core = AttentionOf(c, block).Forward(saved.qkv, saved.bias);
}

Slice Transformer::AttentionForwardOps(const LayerContext& c, const TransformerBlock& block,
                                       BlockActivations& saved) {
  ForwardScope scope(c.hooks, block.attention_module);
  Mix(c, block, saved);
  return Project(c, block, saved);
}

void Transformer::Mix(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  if (block.state_space) {
    saved.qkv_input = block.qkv.InputToKeep(c, saved.norm1.y);
    saved.qkv = block.state_space->Enter(c, block.qkv.Forward(c, saved.qkv_input, block.stream.tokens));
    saved.attention = block.state_space->Forward(c, saved.qkv, saved.state_space);
    return;
  }
  ProjectQkv(c, block, saved);
  Attend(c, block, saved);
  saved.attention = AttentionOf(c, block).Leave(saved.core.out);
  GateAttention(c, block, saved);
}

Slice Transformer::Project(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  saved.attention = block.projection.InputToKeep(c, saved.attention);
  const Slice out = block.projection.Forward(c, saved.attention, block.stream.tokens);
  if (MakesOutputAgain(block)) saved.attention = kNoSlice;
  saved.attention_mask = Drop(c, block.stream, out, AttentionName(block));
  if (KeepsProjected(block)) saved.projected = out;
  return out;
}

void Transformer::Activate(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  const std::string name = ActivationName(block);
  const int64_t ffn = block.down.in;
  saved.activated = c.Activation(name, block.stream.tokens * ffn);
  std::vector<Slice> writes = {saved.activated};
  if (kept_between() > 0)
    writes.push_back(saved.between =
                         c.Activation(name + ".between", kept_between() * block.stream.tokens * ffn));
  c.b.Add(ActivationForward{spec_.activation, block.stream.tokens, ffn, types_.activations}, name, saved.up,
          std::move(writes));
}

void Transformer::ProjectUp(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  saved.up_input = block.up.InputToKeep(c, saved.norm2.y);
  saved.up = block.up.ForwardApart(c, saved.up_input, block.stream.tokens);
}

// The dense MLP, or the shared expert, up to the input of its last GEMM.
void Transformer::ForwardDenseToDown(const LayerContext& c, const TransformerBlock& block,
                                     BlockActivations& saved) {
  if (!block.has_dense) return;
  const InPart part(c.b, DensePart(block));
  ProjectUp(c, block, saved);
  Activate(c, block, saved);
}

Slice Transformer::MlpForwardOps(const LayerContext& c, const TransformerBlock& block,
                                 BlockActivations& saved) {
  ForwardScope scope(c.hooks, block.mlp_module);
  const InPart part(c.b, MlpBranchPart(block));
  if (!block.experts) AtSlot(c.b, LayerSlot::kExperts);
  ForwardDenseToDown(c, block, saved);
  return ProjectDown(c, block, saved);
}

// The last GEMM of the dense MLP or the shared expert, and all of the routed experts.
Slice Transformer::ForwardDown(const LayerContext& c, const TransformerBlock& block,
                               BlockActivations& saved) {
  Slice out = kNoSlice, dense = kNoSlice;
  if (block.has_dense) {
    const InPart part(c.b, DensePart(block));
    saved.activated = block.down.InputToKeep(c, saved.activated);
    out = dense = ProjectDense(c, block, saved);
  }
  if (block.experts) out = block.experts->Forward(c, saved.norm2.y, saved.experts);
  if (block.experts && block.has_dense) c.AddTo(out, dense, MlpName(block) + ".sum");
  return out;
}

Slice Transformer::ProjectDown(const LayerContext& c, const TransformerBlock& block,
                               BlockActivations& saved) {
  const Slice out = ForwardDown(c, block, saved);
  saved.mlp_mask = Drop(c, block.stream, out, MlpName(block));
  return out;
}

namespace {

// What attention or the MLP takes: the residual stream x + branch, normalised if there is a norm. The stream
// is saved as x, what they take as y.
Norm::Saved PreNorm(const LayerContext& c, const std::optional<Norm>& norm, const std::string& name, Slice x,
                    Slice branch, int64_t rows) {
  if (norm) return norm->Forward(c, x, branch, rows);
  Norm::Saved saved;
  saved.x = x;
  if (branch.buffer >= 0) c.AddTo(saved.x = c.InType(c.types.stream, branch, name), x, name + ".sum");
  saved.y = c.InType(c.types.activations, saved.x, name);
  return saved;
}

// Given the gradients dy of what attention or the MLP takes and dx of the residual stream behind it, returns
// that of the stream before, which may be in dx's place.
Slice PreNormBackward(const LayerContext& c, const std::optional<Norm>& norm, const std::string& name,
                      Slice dy, Slice dx, int64_t rows, const Norm::Saved& saved, bool residual_from_norm) {
  if (residual_from_norm) return norm->BackwardOfStream(c, dy, saved, dx, rows);
  if (norm) return norm->Backward(c, dy, saved, dx, rows);
  c.AddTo(dx, c.InType(c.types.stream, dy, name + ".dy"), name + ".dx.sum");
  return dx;
}

// Returns the branch that joins the residual stream, normalised if there is a post-norm.
Slice PostNorm(const LayerContext& c, const std::optional<Norm>& norm, Slice branch, int64_t rows,
               Norm::Saved& saved) {
  return norm ? norm->ForwardBranch(c, branch, rows, saved) : branch;
}

// Returns the branch's gradient, given that of the residual stream, which it does not overwrite.
Slice PostNormBackward(const LayerContext& c, const std::optional<Norm>& norm, Slice dx, int64_t rows,
                       const Norm::Saved& saved) {
  return norm ? norm->BackwardBranch(c, dx, saved, rows) : dx;
}

}  // namespace

// Takes the residual stream as x + branch and returns the MLP's branch; the stream after attention is
// Stream(saved.norm2).
Slice Transformer::BlockForward(const LayerContext& c, const TransformerBlock& block, Slice x, Slice branch,
                                BlockActivations& saved) {
  ForwardScope scope(c.hooks, block.module);
  AtSlot(c.b, LayerSlot::kAttention);
  Slice attention = kNoSlice;
  if (block.has_mixer) {
    const InPart part(c.b, MixerPart(block));
    saved.norm1 = PreNorm(c, block.norm1, AttentionName(block) + ".x", x, branch, block.stream.rows);
    attention = ForwardToMlp(c, block, saved);
    if (!block.has_mlp) return attention;
  } else {
    const InPart part(c.b, MlpPart(block));
    saved.norm2 = PreNorm(c, block.norm2, MlpName(block) + ".x", x, branch, block.stream.rows);
  }
  const Slice mlp = MlpForwardOps(c, block, saved);
  const InPart part(c.b, MlpBranchPart(block));
  if (block.is_parallel()) c.AddTo(mlp, attention, MlpName(block) + ".sum");
  return PostNorm(c, block.mlp_post_norm, mlp, block.stream.rows, saved.mlp_post_norm);
}

LayerPart Transformer::MixerPart(const TransformerBlock& block) const {
  return block.state_space && spec_.mamba ? LayerPart::kMamba : LayerPart::kAttention;
}

LayerPart Transformer::MlpPart(const TransformerBlock& block) {
  return block.experts ? LayerPart::kRouter : LayerPart::kMlp;
}

LayerPart Transformer::MlpBranchPart(const TransformerBlock& block) {
  return block.experts ? LayerPart::kExperts : LayerPart::kMlp;
}

LayerPart Transformer::DensePart(const TransformerBlock& block) {
  return block.experts ? LayerPart::kShared : LayerPart::kMlp;
}

// The operators from the first norm's output to the second's. Returns what attention gives: without an MLP,
// the block's branch.
Slice Transformer::ForwardToMlp(const LayerContext& c, const TransformerBlock& block,
                                BlockActivations& saved) {
  const Slice attention = AttentionForwardOps(c, block, saved);
  if (block.is_parallel()) {
    const InPart part(c.b, MlpPart(block));
    if (block.parallel == ParallelResidual::kOneNorm) saved.norm2 = saved.norm1;
    else saved.norm2 = block.norm2->Forward(c, saved.norm1.x, kNoSlice, block.stream.rows);
    return attention;
  }
  Slice branch =
      PostNorm(c, block.attention_post_norm, attention, block.stream.rows, saved.attention_post_norm);
  if (!block.has_mlp) return branch;
  Slice stream = Stream(saved.norm1);
  if (block.cross) {
    branch = CrossForward(c, block, stream, branch, saved.cross);
    stream = Stream(saved.cross.norm);
  }
  const InPart part(c.b, MlpPart(block));
  saved.norm2 = PreNorm(c, block.norm2, MlpName(block) + ".x", stream, branch, block.stream.rows);
  return attention;
}

Transformer::ResidualStream Transformer::RunBlock(const LayerContext& c, const TransformerBlock& block,
                                                  const ResidualStream& stream, BlockActivations& saved) {
  std::map<int, Slice> converted = c.copies->current;
  const Slice branch = BlockForward(c, block, stream.x, stream.branch, saved);
  const Slice x = StreamBehind(block, saved);
  DropActivations(block, saved);
  if (RunsProductsAgain(block)) c.copies->ForgetAllBut(std::move(converted));
  return {x, branch};
}

std::vector<Recompute> Transformer::RecomputeOfLayers(const Scenario& scenario, const StageRange& stage) {
  std::vector<Recompute> of_layers;
  for (int64_t layer = stage.first; layer < stage.end; ++layer) {
    const bool is_left_out =
        scenario.recompute == Recompute::kFull && !scenario.RecomputesLayer(layer, stage.first);
    of_layers.push_back(is_left_out ? Recompute::kNone : scenario.recompute);
  }
  return of_layers;
}

uint32_t Transformer::ModulesAgain(const Scenario& scenario) {
  uint32_t bits = 0;
  for (const auto& [word, module] : Words<RecomputeModule>::table)
    bits |= scenario.Recomputes(module) ? 1u << static_cast<int>(module) : 0;
  return bits;
}

bool Transformer::RunsDenseAgain(const TransformerBlock& block) const {
  if (!block.has_mlp) return false;
  if (!block.experts) return RunsAgain(RecomputeModule::kMlp);
  return block.has_dense && (RunsAgain(RecomputeModule::kMoe) || RunsAgain(RecomputeModule::kSharedExperts));
}

// Drops what the modules that run again have made, except for their inputs.
void Transformer::DropModules(const TransformerBlock& block, BlockActivations& saved) const {
  if (RunsAgain(RecomputeModule::kCoreAttention))
    for (ContextAttention::Core* core : {&saved.core, &saved.cross.core})
      core->saved = core->dropped = core->mask = core->rounded = kNoSlice;
  if (RunsAgain(RecomputeModule::kLayerNorm)) {
    for (Norm::Saved* norm : {&saved.norm1, &saved.norm2})
      if (norm != &saved.norm1 || !HasNormInProjection(block)) norm->y = norm->statistics = kNoSlice;
    if (!HasNormInProjection(block)) saved.qkv_input = kNoSlice;
    saved.up_input = kNoSlice;
  }
  if (RunsAgain(RecomputeModule::kLatentUp)) {
    saved.qkv = kNoSlice;
    for (Norm::Saved* norm : {&saved.latents.queries, &saved.latents.keys})
      norm->y = norm->statistics = kNoSlice;
  }
  if (RunsDenseAgain(block)) {
    saved.up_input = saved.activated = saved.between = saved.shared = saved.shared_gate = kNoSlice;
    saved.up.clear();
  }
  if (block.experts && RunsAgain(RecomputeModule::kMoe)) saved.experts = {};
  if (block.experts && RunsAgain(RecomputeModule::kMoeActivation)) saved.experts.activated = kNoSlice;
}

namespace {

// With every second matmul's output kept: of the queries' two and the keys' and values' two the latents, or,
// where queries take one, that and the second one of keys and values.
void DropLatents(const LatentProjections& latent, BlockActivations& saved) {
  LatentProjections::Saved& latents = saved.latents;
  saved.qkv = kNoSlice;
  for (Norm::Saved* norm : {&latents.queries, &latents.keys})
    norm->y = norm->statistics = norm->fp32 = kNoSlice;
  if (latent.q_down) latents.q = latents.kv = kNoSlice;
  else latents.keys.x = latents.key = kNoSlice;
}

}  // namespace

// Drops slices from `saved`: a slice that backward does not use lives only until its last use in forward.
void Transformer::DropActivations(const TransformerBlock& block, BlockActivations& saved) const {
  switch (block.recompute) {
    case Recompute::kNone:
      return;
    case Recompute::kSelective:
      DropModules(block, saved);
      return;
    case Recompute::kSelectiveOp:
      saved.norm1.y = saved.norm1.statistics = saved.norm1.fp32 = saved.activated = saved.experts.activated =
          kNoSlice;
      saved.between = saved.experts.between = kNoSlice;
      if (is_pytorch()) saved.experts.up = kNoSlice;  // grouped products (_grouped_mm) are not kept
      saved.norm2 = {};
      saved.qkv_input = saved.up_input = kNoSlice;
      saved.head_norm.statistics = saved.head_norm.fp32 = kNoSlice;
      if (saved.head_norm.x.buffer >= 0) saved.qkv = kNoSlice;
      if (block.latent) DropLatents(*block.latent, saved);
      if (runs_attention_again())
        saved.core.saved = saved.core.dropped = saved.core.mask = saved.core.rounded = kNoSlice;
      if (saved.up.size() > 1) saved.up[1] = kNoSlice;
      return;
    case Recompute::kFull: {
      const Slice input = InputNormOf(block, saved).x, bias = saved.bias, source = saved.cross.source;
      const Slice between = KeepsBetween(block) ? saved.norm2.x : kNoSlice;
      saved = {};
      if (between.buffer >= 0) saved.unneeded = {between};
      InputNormOf(block, saved).x = input;
      saved.bias = bias;
      saved.cross.source = source;
      return;
    }
  }
}

void Transformer::RunAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  if (block.recompute == Recompute::kNone) return;
  c.b.SetPhase(Phase::kRecompute);
  switch (block.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      RunMlpAgain(c, block, saved);
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

// Runs before the MLP's backward. Megatron runs modules to the end; others stop when backward has its inputs.
void Transformer::RunMlpAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved) {
  if (!block.has_mlp || !block.mlp_has_gradient()) return;
  const InPart part(c.b, MlpBranchPart(block));  // (a router's graph begins only behind the experts)
  const bool runs_dense = RunsDenseAgain(block);
  const bool runs_experts = block.experts && RunsAgain(RecomputeModule::kMoe);
  if (RunsAgain(RecomputeModule::kLayerNorm)) {
    saved.norm2 = block.norm2->Forward(c, saved.norm2.x, kNoSlice, block.stream.rows);
    if (block.has_dense && !runs_dense) saved.up_input = block.up.InputToKeep(c, saved.norm2.y);
  }
  if (!runs_dense && !runs_experts) return;
  ForwardScope scope(c.hooks, block.mlp_module);
  ForwardDenseToDown(c, block, saved);
  if (runs_experts) {
    ForwardDown(c, block, saved);
    return;
  }
  saved.activated = block.down.InputToKeep(c, saved.activated);
  if (!stops_early() || block.shared_gate) ProjectDense(c, block, saved);
  else if (block.down.adapter) block.down.AdapterHidden(c, saved.activated, block.stream.tokens);
}

// Runs before the backward of the attention's output projection.
void Transformer::RunAttentionNormAgain(const LayerContext& c, const TransformerBlock& block,
                                        BlockActivations& saved) {
  if (!RunsAgain(RecomputeModule::kLayerNorm) || HasNormInProjection(block)) return;
  c.b.SetPhase(Phase::kRecompute);
  saved.norm1 = block.norm1->Forward(c, saved.norm1.x, kNoSlice, block.stream.rows);
  saved.qkv_input =
      block.latent ? block.latent->InputToKeep(c, saved.norm1.y) : block.qkv.InputToKeep(c, saved.norm1.y);
  c.b.SetPhase(Phase::kBackward);
}

// Runs after the backward of the attention's output projection.
void Transformer::RunAttentionAgain(const LayerContext& c, const TransformerBlock& block,
                                    BlockActivations& saved) {
  if (block.state_space) return;
  c.b.SetPhase(Phase::kRecompute);
  if (RunsAgain(RecomputeModule::kLatentUp))
    saved.qkv = AttentionOf(c, block).Enter(
        block.latent->UpAgain(c, saved.qkv_input, block.stream.rows, saved.latents));
  if (RunsAgain(RecomputeModule::kCoreAttention)) Attend(c, block, saved);
  c.b.SetPhase(Phase::kBackward);
}

// Needed behind the projection: the dropout mask, and what a post-norm saves.
void Transformer::RecomputeWithoutMlp(const LayerContext& c, const TransformerBlock& block,
                                      BlockActivations& saved) {
  if (!stops_early() || spec_.dropout > 0 || block.attention_post_norm) {
    ForwardToMlp(c, block, saved);
    return;
  }
  ForwardScope scope(c.hooks, block.attention_module);
  Mix(c, block, saved);
  saved.attention = block.projection.InputToKeep(c, saved.attention);
}

void Transformer::RecomputeBlock(const LayerContext& c, const TransformerBlock& block,
                                 BlockActivations& saved) {
  if (block.has_mixer) {
    saved.norm1 =
        PreNorm(c, block.norm1, AttentionName(block) + ".x", saved.norm1.x, kNoSlice, block.stream.rows);
    if (!block.has_mlp) return RecomputeWithoutMlp(c, block, saved);
    ForwardToMlp(c, block, saved);
  } else {
    saved.norm2 =
        PreNorm(c, block.norm2, MlpName(block) + ".x", saved.norm2.x, kNoSlice, block.stream.rows);
  }
  Slice out = kNoSlice;
  {
    ForwardScope scope(c.hooks, block.mlp_module);
    ForwardDenseToDown(c, block, saved);
    // Needed for the routing weights (what experts returned), the dropout mask and the post-norm.
    if (!stops_early() || block.experts || spec_.dropout > 0 || block.mlp_post_norm)
      out = ProjectDown(c, block, saved);
    else if (block.down.adapter) block.down.AdapterHidden(c, saved.activated, block.stream.tokens);
  }
  PostNorm(c, block.mlp_post_norm, out, block.stream.rows, saved.mlp_post_norm);
}

// With separate modules, the second layer of queries, keys and values is run again; the keys' place in the
// common buffer has been kept. Head norms are no matmuls: their input is kept.
void Transformer::MakeHeadsAgain(const LayerContext& c, const TransformerBlock& block,
                                 BlockActivations& saved) {
  if (const auto& latent = block.latent) {
    saved.qkv_input = latent->InputToKeep(c, saved.norm1.y);
    saved.qkv = AttentionOf(c, block).Enter(
        latent->q_down ? latent->UpAgain(c, saved.qkv_input, block.stream.rows, saved.latents)
                       : latent->DownAgain(c, saved.qkv_input, block.stream.rows, saved.latents));
    return;
  }
  saved.qkv_input = block.qkv.Enter(c, saved.norm1.y);
  const bool are_modules = block.qkv.layers.size() > 1;
  if (are_modules) block.qkv.ForwardLayer(c, 1, saved.qkv_input, block.stream.tokens);
  if (block.head_norm) PrepareHeads(c, block, saved.head_norm.x, saved);
  else if (are_modules && rotates())
    c.b.Add(RopeOp(block, false), AttentionName(block) + ".rope", {saved.qkv}, {saved.qkv});
}

// Kept: qkv (of latent attention: DropLatents), attention (except the parts of eager attention: batched
// matmuls are not kept) and up. Run again: the output projection if it is even, the second of gate and up if
// they are separate modules, and the norms and the activation, which are no matmuls; but not the down
// projection, whose output nothing needs. PyTorch's grouped products of experts are run again, too.
void Transformer::RecomputeEverySecondMatmul(const LayerContext& c, const TransformerBlock& block,
                                             BlockActivations& saved) {
  saved.norm1 = block.norm1->Forward(c, saved.norm1.x, kNoSlice, block.stream.rows);
  Slice attention;
  {
    ForwardScope scope(c.hooks, block.attention_module);
    MakeHeadsAgain(c, block, saved);
    if (runs_attention_again()) Attend(c, block, saved);
    attention = KeepsProjected(block) ? saved.projected : Project(c, block, saved);
    // (Eager PyTorch makes the partial sums again, though nobody needs them.)
    if (keeps_sums() && framework_ == Framework::kPytorch && !IsProjectionOdd(block))
      block.projection.ForwardProduct(c, saved.attention, block.stream.tokens, /*adds_bias=*/false);
  }
  saved.norm2 = block.norm2->Forward(c, Stream(saved.norm1), attention, block.stream.rows);
  if (block.has_dense) {
    saved.up_input = block.up.Enter(c, saved.norm2.y);
    if (saved.up.size() > 1) saved.up[1] = block.up.ForwardLayer(c, 1, saved.up_input, block.stream.tokens);
    Activate(c, block, saved);
  }
  // The shared expert comes after the others in PyTorch, so theirs are run to the end before it.
  if (block.experts) block.experts->ComputeAgain(c, saved.experts, is_pytorch() && block.has_dense);
}

Slice Transformer::MlpBackwardOps(const LayerContext& c, const TransformerBlock& block,
                                  BlockActivations& saved, Slice dx) {
  BackwardScope scope(c.hooks, block.mlp_module);
  const InPart part(c.b, MlpBranchPart(block));
  dx = c.InType(types_.activations, dx, MlpName(block) + ".dy");
  dx = DropGradient(c, block.stream, dx, saved.mlp_mask, MlpName(block));
  if (!block.experts) {
    AtSlot(c.b, LayerSlot::kExpertsBackward);
    const Slice dinput = DenseBackward(c, block, saved, dx);
    c.AddDelayed(LayerSlot::kExpertWeights);
    AtSlot(c.b, LayerSlot::kAttentionBackward);
    return dinput;
  }
  const Slice routed = block.experts->Backward(c, dx, saved.norm2.y, saved.experts);
  const InPart shared(c.b, LayerPart::kShared);
  if (block.has_dense) c.AddTo(routed, SharedBackward(c, block, saved, dx), MlpName(block) + ".dx.sum");
  return routed;
}

Slice Transformer::DenseBackward(const LayerContext& c, const TransformerBlock& block,
                                 const BlockActivations& saved, Slice dx) {
  const InPart part(c.b, DensePart(block));
  Slice dactivated =
      block.down.Backward(c, dx, saved.activated, block.stream.tokens, block.up_has_gradient());
  if (!block.up_has_gradient()) return kNoSlice;
  const std::string name = ActivationName(block);
  std::vector<Slice> dup = {dactivated}, reads = {dactivated};
  if (gated()) {
    dup.clear();
    for (const Slice& x : saved.up) dup.push_back(c.Activation(name + ".dx", x.elements));
  }
  reads.insert(reads.end(), saved.up.begin(), saved.up.end());
  if (saved.between.buffer >= 0) reads.push_back(saved.between);
  c.b.Add(ActivationBackward{spec_.activation, block.stream.tokens, block.down.in, types_.activations}, name,
          std::move(reads), dup);
  return block.up.Backward(c, dup, saved.up_input, block.stream.tokens, /*weight_ready=*/true,
                           block.mlp_input_has_gradient());
}

Slice Transformer::AttentionBackwardOps(const LayerContext& c, const TransformerBlock& block,
                                        BlockActivations& saved, Slice dx) {
  BackwardScope scope(c.hooks, block.attention_module);
  RunAttentionNormAgain(c, block, saved);
  const std::string name = AttentionName(block);
  dx = c.InType(types_.activations, dx, name + ".dy");
  dx = DropGradient(c, block.stream, dx, saved.attention_mask, name);
  if (MakesOutputAgain(block)) saved.attention = block.state_space->OutputAgain(c, saved.state_space);
  Slice dout =
      block.projection.Backward(c, dx, saved.attention, block.stream.tokens, block.qkv_has_gradient());
  if (!block.qkv_has_gradient()) return kNoSlice;
  RunAttentionAgain(c, block, saved);
  if (block.state_space) {
    const Slice dpacked = block.state_space->Backward(c, dout, saved.qkv, saved.state_space);
    return block.qkv.Backward(c, block.qkv.PartsOf(dpacked, block.stream.tokens), saved.qkv_input,
                              block.stream.tokens, /*weight_ready=*/true, block.input_has_gradient);
  }
  dout = GateAttentionBackward(c, block, dout, saved);
  Slice dqkv = AttentionOf(c, block).Backward(dout, saved.qkv, saved.core, &saved.dscores);
  if (block.latent) return block.latent->Backward(c, dqkv, saved.qkv_input, block.stream.rows, saved.latents);
  if (rotates()) c.b.Add(RopeOp(block, true), name + ".rope", {dqkv}, {dqkv});
  if (block.head_norm) block.head_norm->Backward(c, dqkv, saved.head_norm, block.stream.tokens);
  return block.qkv.Backward(c, WithGate(c, block, dqkv, saved), saved.qkv_input, block.stream.tokens,
                            /*weight_ready=*/true, block.input_has_gradient);
}

// The backward of attention and MLP that take the same stream. Returns the gradient of the block's input, if
// that has one.
Slice Transformer::ParallelBackward(const LayerContext& c, const TransformerBlock& block,
                                    BlockActivations& saved, Slice dx) {
  const InPart part(c.b, MixerPart(block));
  // Of both branches: the gradient of their sum.
  const Slice dbranch = c.InType(types_.activations, dx, MlpName(block) + ".dy");
  const Slice dmlp = block.mlp_has_gradient() ? MlpBackwardOps(c, block, saved, dbranch) : kNoSlice;
  const Slice dattention =
      block.attention_has_gradient() ? AttentionBackwardOps(c, block, saved, dbranch) : kNoSlice;
  if (!block.input_has_gradient) return kNoSlice;
  if (block.parallel == ParallelResidual::kOneNorm) c.AddTo(dattention, dmlp, MlpName(block) + ".dx.sum");
  else dx = block.norm2->Backward(c, dmlp, saved.norm2, dx, block.stream.rows);
  return block.norm1->Backward(c, dattention, saved.norm1, dx, block.stream.rows);
}

// dx is the gradient of the residual stream after the block; it becomes, in place, that of the stream before,
// if that has one.
Slice Transformer::BlockBackward(const LayerContext& c, const TransformerBlock& block,
                                 BlockActivations& saved, Slice dx) {
  BackwardScope scope(c.hooks, block.module);
  AtSlot(c.b, LayerSlot::kCombineBackward);
  RunAgain(c, block, saved);
  if (block.is_parallel()) {
    const Slice dinput = ParallelBackward(c, block, saved, dx);
    c.AddDelayed(LayerSlot::kAttentionWeights);
    return dinput;
  }
  Slice dbranch;
  if (block.has_mlp) {
    const InPart behind(c.b, MlpBranchPart(block));
    dbranch = PostNormBackward(c, block.mlp_post_norm, dx, block.stream.rows, saved.mlp_post_norm);
    Slice dnorm2 = MlpBackwardOps(c, block, saved, dbranch);
    if (!block.attention_has_gradient()) return kNoSlice;
    const InPart part(c.b, MlpPart(block));
    dx = PreNormBackward(c, block.norm2, MlpName(block) + ".x", dnorm2, dx, block.stream.rows, saved.norm2,
                         spec_.residual_from_norm);
  }
  if (!block.has_mixer) {
    c.AddDelayed(LayerSlot::kAttentionWeights);
    return dx;
  }
  const InPart part(c.b, MixerPart(block));
  if (block.cross) dx = CrossBackward(c, block, saved.cross, dx);
  dbranch = PostNormBackward(c, block.attention_post_norm, dx, block.stream.rows, saved.attention_post_norm);
  Slice dnorm1 = AttentionBackwardOps(c, block, saved, dbranch);
  for (const Slice& kept : saved.unneeded)
    if (kept.buffer >= 0) c.b.KeepUntilHere(kept);
  Slice dinput = kNoSlice;
  if (block.input_has_gradient)
    dinput = PreNormBackward(c, block.norm1, AttentionName(block) + ".x", dnorm1, dx, block.stream.rows,
                             saved.norm1, spec_.residual_from_norm);
  c.AddDelayed(LayerSlot::kAttentionWeights);
  return dinput;
}

}  // namespace windtunnel
