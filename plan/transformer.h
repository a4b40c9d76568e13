// Transformers in the style of GPT, Llama, BERT and T5: embedding, blocks of (norm, attention, norm, MLP)
// with residuals, final norm, head; and before them an encoder, if there is one
// (plan/transformer_encoder.cc). The residual additions are fused into the norm that follows them. In blocks
// with a parallel residual (ModelSpec::parallel_residual), attention and MLP take the block's input, and
// their sum joins it. With ModelSpec::residual_from_norm the stream goes on from each norm's output; it is
// the same operators. With ModelSpec::mamba or delta_net, some blocks have a state space model or a gated
// delta network instead of attention, and some no MLP.
//
// Recomputation drops activations after a block's forward and makes them again at the beginning of its
// backward (single modules: later):
//   full          keeps the block's input (the sum that its first norm makes) and runs everything after it again
//   selective     runs modules again (Scenario::recompute_modules): each right before its own backward, or
//                 before the backward of its output's consumer if Megatron discards that output. By default
//                 the attention core, only for the probabilities (eager) or log-sum-exps (flash)
//   selective_op  keeps the output of every second matmul, and attention's output; runs the other matmuls and
//                 what is between again. Which matmuls these are depends on whether projections are separate
//                 modules (plan/projections.h), as torchtitan counts them. PyTorch also keeps what is
//                 reduce-scattered over tensor ranks, and what experts exchange, but none of their products
// The collectives of what is run again are run again, too. Where only some layers recompute
// (Scenario::RecomputesLayer), the others keep everything.
// What backward does not need is not run again, as with torch.utils.checkpoint's early stop; `framework`
// values other than windtunnel run the whole block, or module, again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/context_attention.h"
#include "plan/experts.h"
#include "plan/latent_attention.h"
#include "plan/layers.h"
#include "plan/model.h"
#include "plan/norms.h"
#include "plan/projections.h"
#include "plan/relative_positions.h"
#include "plan/transformer_blocks.h"
#include "scenarios/derived.h"

namespace windtunnel {

class Transformer : public Model {
 public:
  Transformer(const Scenario& scenario, const StageRange& stage, const ModelParallel& parallel)
      : Model(parallel),
        context_(parallel.context),
        spec_(scenario.model),
        stage_(stage),
        types_(TypesOf(scenario.precision)),
        recompute_(scenario.recompute),
        recompute_of_layer_(RecomputeOfLayers(scenario, stage)),
        recompute_of_predictors_(RecomputeOfPredictors(scenario)),
        again_(ModulesAgain(scenario)),
        cross_entropy_(scenario.cross_entropy),
        loss_chunks_(scenario.cross_entropy_chunks),
        framework_(scenario.framework),
        deterministic_(scenario.run.deterministic && OthersWouldBeFaster(scenario)),
        batch_(scenario.batch.micro),
        stream_(StreamOf(spec_.seq_len / context_.ranks())),
        heads_(spec_.heads / tensor_.ranks()),
        kv_heads_(spec_.kv_heads / tensor_.ranks()),
        vocab_(spec_.vocab / tensor_.ranks()) {
    has_muon_ = scenario.optimizer.kind == OptimizerKind::kMuon;
    if (framework_ == Framework::kPytorch) {
      tensor_.reorder = TensorParallel::Reorder::kByCopy;
      types_.norms_keep_fp32 = SizeOf(types_.stream) == Bytes(2);
    }
    if (framework_ == Framework::kMegatronCore) {
      // FSDP gathers units again, and so their weights are converted again.
      types_.keeps_weights_in_fp8 = !ShardsParameters(scenario.parallel.data.kind);
      types_.fp8_weights_shared_by = types_.keeps_weights_in_fp8 ? scenario.batch.accumulate : 1;
      types_.keeps_inputs_in_fp8 = types_.gathers_factors() && recompute_ != Recompute::kSelectiveOp;
    }
    if (framework_ == Framework::kPytorchCompile)
      tensor_.reorder = TensorParallel::Reorder::kByCopyOrNeighbor;
  }

  void Register(Role& role) override;
  Slice Forward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                double gradient_scale) override;
  Slice MakeInputs(ProgramBuilder& b, int64_t micro_batches) const override;
  Slice Load(ProgramBuilder& b, int micro_batch, int64_t micro_batches, Slice inputs) const override;
  Slice Loss(ProgramBuilder& b, int64_t micro_batches, Slice output, Slice targets, Slice loss,
             double gradient_scale) const override;
  int64_t InputElements() const override {
    return stream_.rows * spec_.hidden * (stage_.is_last && !ends_model() ? LossElements() : 1);
  }
  int64_t OutputElements() const override {
    return stream_.rows * spec_.hidden * (ends_model() && !stage_.is_last ? LossElements() : 1);
  }
  DType BoundaryType() const override { return types_.stream; }
  int64_t LossElements() const override { return 1 + spec_.MtpLayers(); }
  ModelStatistics Statistics(int64_t parameters, int64_t frozen) const override;

 private:
  double UnseenByMean() const;
  Slice AddBackward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice doutput,
                    DeferredOps* deferred, bool delays) override;
  // An output of a projection: its layer's name in frameworks that have one, and columns of all tensor ranks.
  struct Output {
    const char* name;
    int64_t columns;
    std::optional<LoraTarget> target = std::nullopt;
  };
  // The layer of all outputs, in frameworks that have one.
  struct Stacked {
    const char* name;
    std::optional<LoraTarget> target = std::nullopt;
  };
  Projections RegisterProjections(Role& role, ModuleId module, const std::string& prefix,
                                  const Stacked& stacked, const std::vector<Output>& outputs, bool bias);
  Adapter::Scales ScalesOfAdapters() const;
  // Gives the layer an adapter if the scenario says so. `outputs`: of a column-parallel layer, the columns of
  // each, of all tensor ranks; empty for a row-parallel layer.
  void RegisterAdapter(Role& role, ModuleId module, LoraTarget target, Linear& linear,
                       const std::vector<int64_t>& outputs);
  Projections ProjectionsOf(std::vector<Linear> layers) const;
  Linear RegisterColumnParallel(Role& role, ModuleId module, const std::string& name, int64_t in,
                                const std::vector<int64_t>& outputs, bool bias);
  Linear RegisterWhole(Role& role, ModuleId module, const std::string& name, int64_t in, int64_t out,
                       const ParameterSplit& split, std::optional<ParameterInit> init = std::nullopt);
  LatentProjections RegisterLatents(Role& role, ModuleId module, const std::string& prefix);
  Linear RegisterRowParallel(Role& role, ModuleId module, const std::string& name, int64_t in, bool bias);
  void NoteShape(Role& role, const Linear& linear) const;
  void Pack(Role& role, const Linear& linear) const;
  Norm RegisterNorm(Role& role, ModuleId module, const std::string& name, int64_t columns);
  HeadNorm RegisterHeadNorm(Role& role, ModuleId module, const std::string& prefix);
  void RegisterMlp(Role& role, const std::string& prefix, bool has_experts, TransformerBlock& block);
  void RegisterDense(Role& role, const std::string& prefix, TransformerBlock& block, int64_t ffn, bool bias);
  ExpertMlp RegisterExperts(Role& role, const std::string& prefix, ModuleId mlp);
  TransformerBlock RegisterBlock(Role& role, const std::string& name, ModuleId parent, const LayerKind& kind);
  void RegisterAttention(Role& role, const std::string& prefix, TransformerBlock& block);
  void RegisterStateSpace(Role& role, const std::string& prefix, TransformerBlock& block);
  void RegisterDeltaNet(Role& role, const std::string& prefix, TransformerBlock& block);
  StateSpace BeginStateSpace(const std::string& prefix) const;
  void AddStateParameter(Role& role, ModuleId module, StateSpace& model, const char* suffix,
                         std::vector<int64_t> shape, ParameterInit init, std::vector<int64_t> blocks);
  // Nothing if positions are of another kind.
  std::optional<RelativePositions> RegisterRelative(Role& role, const std::string& name,
                                                    const TokenStream& stream, bool causal);
  void RegisterEncoder(Role& role);
  CrossAttention RegisterCrossAttention(Role& role, const std::string& prefix, ModuleId block,
                                        ModuleId module);
  TokenPredictor RegisterPredictor(Role& role, int64_t index);
  void RegisterPredictors(Role& role, int64_t table_ordinal);

  LayerContext Context(ProgramBuilder& b, ModelHooks& hooks, TransformerPass& pass,
                       DeferredOps* deferred = nullptr, bool delays = false) const {
    return LayerContext{b, hooks, types_, deferred, tensor_, &pass.copies, delays};
  }
  void LoadPass(ProgramBuilder& b, int micro_batch, TransformerPass& pass) const;
  // What an embedding takes: the ids of a stream's tokens, which may be kNoToken if it `ends`.
  struct Embedded {
    Slice ids;
    std::string name = "embedding";
    const TokenStream& stream;
    int positions = -1;  // the parameter; -1: none
    bool ends = false;
  };
  // `mask` receives the dropout mask.
  Slice Embed(const LayerContext& c, const Embedded& in, Slice& mask);
  // The residual stream is x + branch; the norm that follows adds them. buffer -1: there is no branch.
  struct ResidualStream {
    Slice x, branch = kNoSlice;
  };
  // A block's forward, and what is not kept for its backward is dropped.
  ResidualStream RunBlock(const LayerContext& c, const TransformerBlock& block, const ResidualStream& stream,
                          BlockActivations& saved);
  Slice BlockForward(const LayerContext& c, const TransformerBlock& block, Slice x, Slice branch,
                     BlockActivations& saved);
  void ProjectQkv(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void PrepareHeads(const LayerContext& c, const TransformerBlock& block, Slice qkv, BlockActivations& saved);
  // Gates (plan/transformer_gates.cc). With ModelSpec::attention_gate: splits the first projection's output,
  // multiplies attention's output by the gate, and joins the gradients, one part for each layer.
  Slice TakeGateApart(const LayerContext& c, const TransformerBlock& block, Slice outputs,
                      BlockActivations& saved);
  void GateAttention(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice GateAttentionBackward(const LayerContext& c, const TransformerBlock& block, Slice dout,
                              BlockActivations& saved);
  std::vector<Slice> WithGate(const LayerContext& c, const TransformerBlock& block, Slice dqkv,
                              const BlockActivations& saved) const;
  Slice ProjectDense(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice SharedBackward(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved,
                       Slice dx);
  void Attend(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice ForwardToMlp(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice AttentionForwardOps(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  // Attention, or what the block has instead, without the projection behind it.
  void Mix(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice Project(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice ForwardDown(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice ProjectDown(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void Activate(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void ProjectUp(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void ForwardDenseToDown(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice MlpForwardOps(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  // The modules that kSelective runs again, as bits by RecomputeModule.
  static uint32_t ModulesAgain(const Scenario& scenario);
  static std::vector<Recompute> RecomputeOfLayers(const Scenario& scenario, const StageRange& stage);
  // (Megatron's block method skips the modules that predict further tokens.)
  static Recompute RecomputeOfPredictors(const Scenario& scenario) {
    const bool is_some = scenario.recompute == Recompute::kFull && scenario.RecomputesSomeLayers();
    return is_some ? Recompute::kNone : scenario.recompute;
  }
  bool RunsAgain(RecomputeModule module) const { return (again_ >> static_cast<int>(module) & 1) != 0; }
  // Whether the dense MLP, or the shared expert, is run again, with only its input kept.
  bool RunsDenseAgain(const TransformerBlock& block) const;
  void DropActivations(const TransformerBlock& block, BlockActivations& saved) const;
  void DropModules(const TransformerBlock& block, BlockActivations& saved) const;
  void RunMlpAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void RunAttentionNormAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void RunAttentionAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void RunAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void RecomputeBlock(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void RecomputeWithoutMlp(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  void RecomputeEverySecondMatmul(const LayerContext& c, const TransformerBlock& block,
                                  BlockActivations& saved);
  void MakeHeadsAgain(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved);
  Slice BlockBackward(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved,
                      Slice dx);
  Slice ParallelBackward(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved,
                         Slice dx);
  Slice MlpBackwardOps(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved,
                       Slice dx);
  Slice DenseBackward(const LayerContext& c, const TransformerBlock& block, const BlockActivations& saved,
                      Slice dx);
  Slice AttentionBackwardOps(const LayerContext& c, const TransformerBlock& block, BlockActivations& saved,
                             Slice dout);
  // A loss: where it goes, its gradient's factor, the share of rows in its mean, and whether other rows have
  // no targets (CrossEntropy).
  struct LossTerm {
    Slice loss;
    double gradient_scale = 1, counted = 1;
    bool skips = false;
    int64_t rows = 0;
    std::string name = "cross_entropy";
  };
  // The number of the stage's block `i` among all layers.
  int LayerOf(size_t i) const {
    return static_cast<int>(stage_.first + spec_.EncoderLayers() + static_cast<int64_t>(i));
  }
  // Whether the final norm is in the stage, and behind it the modules that predict further tokens.
  bool ends_model() const { return spec_.mtp ? stage_.has_mtp : stage_.is_last; }
  // What frameworks do otherwise with a state space model (StateSpace::Style). In Megatron-Core the norm
  // before it is part of the first projection, and is not recomputed; and the MLP behind it is a layer of its
  // own, the input of which full recomputation keeps.
  static bool MakesOutputAgain(const TransformerBlock& block) {
    return block.state_space && block.state_space->style == StateSpace::Style::kOutputAgain;
  }
  // The parts of a layer that its mixer, the norm before its MLP, the MLP or experts as a branch, and the
  // dense MLP or shared expert are.
  LayerPart MixerPart(const TransformerBlock& block) const;
  static LayerPart MlpPart(const TransformerBlock& block);
  static LayerPart MlpBranchPart(const TransformerBlock& block);
  static LayerPart DensePart(const TransformerBlock& block);
  static bool HasNormInProjection(const TransformerBlock& block) {
    return block.state_space && block.state_space->style == StateSpace::Style::kNormApart;
  }
  bool KeepsBetween(const TransformerBlock& block) const {
    return spec_.mamba && IsMegatronOrDeepspeed(framework_) && block.has_mixer && block.has_mlp;
  }
  // The residual stream behind a block, which the block's branch still has to join.
  Slice StreamBehind(const TransformerBlock& block, const BlockActivations& saved) const {
    return Stream(block.has_mlp ? saved.norm2 : saved.norm1);
  }
  // The residual stream behind a norm.
  Slice Stream(const Norm::Saved& norm) const { return spec_.residual_from_norm ? norm.normalised : norm.x; }
  bool has_chunks() const { return loss_chunks_ > 1 && stage_.is_last && !stage_.is_replica; }
  Slice HeadInChunks(const LayerContext& c, TransformerPass& pass);
  Slice AddChunk(const LayerContext& c, const Linear& head, TransformerPass& pass, Slice x, Slice losses,
                 int64_t chunk);
  Slice ForwardLayers(const LayerContext& c, Slice input, TransformerPass& pass, const LossTerm& loss);
  Slice SumAtBoundary(const LayerContext& c, Slice x, Slice branch);
  void KeepWeightsInFp8(Role& role);
  void AddLoss(const LayerContext& c, Slice logits, Slice targets, const LossTerm& term);
  void AddWholeLoss(ProgramBuilder& b, Slice logits, Slice targets, const LossTerm& term) const;
  void AddVocabParallelLoss(const LayerContext& c, Slice logits, Slice targets, const LossTerm& term);
  void AddLossWorkspace(ProgramBuilder& b, const std::string& name, int64_t logits,
                        std::vector<Slice>& writes) const;
  std::vector<Slice> HeadsBackward(const LayerContext& c, TransformerPass& pass, Slice dlogits);
  Slice EndBackward(const LayerContext& c, TransformerPass& pass, const std::vector<Slice>& dys);
  void EmbedBackward(const LayerContext& c, const Embedded& in, Slice mask, Slice dx, bool table_ready);

  // Encoders with decoders: plan/transformer_encoder.cc.
  TokenStream StreamOf(int64_t seq) const {
    const int64_t tokens = batch_ * seq;
    return {seq, tokens, tensor_.splits_tokens() ? tokens / tensor_.ranks() : tokens};
  }
  Embedded SourceOf(const TransformerPass& pass) const;
  void EncoderForward(const LayerContext& c, TransformerPass& pass);
  void AddToSource(const LayerContext& c, TransformerPass& pass, Slice dsource) const;
  void EncoderBackward(const LayerContext& c, TransformerPass& pass);
  ContextAttention CrossAttentionOf(const LayerContext& c, const TransformerBlock& block) const;
  // Takes the residual stream as x + branch. Returns cross-attention's branch; the stream behind it is
  // Stream(saved.norm).
  Slice CrossForward(const LayerContext& c, const TransformerBlock& block, Slice x, Slice branch,
                     CrossActivations& saved);
  // dx: as BlockBackward's.
  Slice CrossBackward(const LayerContext& c, const TransformerBlock& block, CrossActivations& saved,
                      Slice dx);

  // Multi-token prediction: plan/transformer_mtp.cc.
  void PredictFurther(const LayerContext& c, TransformerPass& pass);
  Embedded FurtherTokens(const TokenPredictor& predictor, const TokenPredictorPass& pass) const;
  void JoinInputs(const LayerContext& c, const TokenPredictor& predictor, TokenPredictorPass& pass);
  void PredictorForward(const LayerContext& c, const TokenPredictor& predictor, TokenPredictorPass& pass);
  void AddFurtherLosses(const LayerContext& c, TransformerPass& pass, const std::vector<Slice>& outputs,
                        const LossTerm& loss);
  // What the heads take: the output of the final norm, and of each module's.
  std::vector<Slice> OutputsOf(const TransformerPass& pass) const;
  // The same as one tensor, or its gradient, for messages between the stage that has them and the heads'.
  Slice JoinOutputs(const LayerContext& c, const std::vector<Slice>& outputs, const std::string& name) const;
  std::vector<Slice> SplitOutputs(const LayerContext& c, Slice joined, const std::string& name) const;
  // `dys`: the gradients of OutputsOf. Returns that of the final norm's output by the modules alone.
  Slice PredictorsBackward(const LayerContext& c, TransformerPass& pass, const std::vector<Slice>& dys);
  const TokenPredictor& PredictorAt(size_t index) const {
    return predictors_[spec_.mtp->repeated ? 0 : index];
  }
  LayerContext ContextOfVisit(const LayerContext& c, size_t index) const {
    return c.InVisit(spec_.mtp->repeated ? static_cast<int>(index) : 0);
  }
  Slice PredictorBackward(const LayerContext& c, size_t index, TokenPredictorPass& pass, Slice dy);

  bool learned_positions() const { return spec_.position == PositionKind::kLearned; }
  bool rotates() const { return spec_.position == PositionKind::kRope; }
  // Whether a framework other than windtunnel computes the loss by fused kernels, which is not its default.
  bool has_fused_loss() const {
    return cross_entropy_ == CrossEntropyKind::kFused && framework_ != Framework::kWindtunnel;
  }
  // Under autocast PyTorch's softmax returns fp32, whatever it takes. (A compiler makes one kernel of it and
  // the conversion behind.)
  bool has_fp32_softmax() const {
    return framework_ == Framework::kPytorch && types_.autocasts() &&
           spec_.attention == AttentionKind::kEager && SizeOf(types_.activations) == Bytes(2);
  }
  bool is_pytorch() const { return IsPytorch(framework_); }
  // torchtitan also keeps sums over tensor ranks, so that their collectives are not run again.
  bool keeps_sums() const { return is_pytorch() && tensor_.splits_tokens(); }
  // With kSelectiveOp: whether attention's output projection is an odd matmul: the fifth, after two for
  // queries and two for keys and values. Else it is the fourth.
  static bool IsProjectionOdd(const TransformerBlock& block) { return block.latent && block.latent->q_down; }
  bool KeepsProjected(const TransformerBlock& block) const {
    return recompute_ == Recompute::kSelectiveOp && (keeps_sums() || IsProjectionOdd(block));
  }
  // Whether recomputation includes the GEMMs of a block, and so converts their weights again.
  static bool RunsProductsAgain(const TransformerBlock& block) {
    return block.recompute == Recompute::kFull || block.recompute == Recompute::kSelectiveOp;
  }
  // Whether non-deterministic kernels would be faster: for flash attention in 16 bits on a GPU.
  bool OthersWouldBeFaster(const Scenario& scenario) const {
    const bool is_16_bit = SizeOf(types_.activations) == Bytes(2);
    return scenario.cluster.device != "cpu" && spec_.attention == AttentionKind::kFlash && is_16_bit;
  }
  // With kSelectiveOp: eager attention is run again, since flash attention keeps only its log-sum-exps.
  bool runs_attention_again() const { return spec_.attention == AttentionKind::kEager; }
  // torchtitan's policy counts a block's matmuls (mm): queries, keys, values (of latent attention down- and
  // up-projections), the attention's projection, gate, up, down, and keeps the odd ones. (Those with a bias
  // are another operator, addmm. Of gate and up the first is kept here in any case: they are alike.)
  bool KeepsDown(const TransformerBlock& block) const {
    return recompute_ == Recompute::kSelectiveOp && framework_ == Framework::kPytorch && gated() &&
           !block.experts && !IsProjectionOdd(block) && !spec_.bias && !spec_.qkv_bias;
  }
  bool stops_early() const { return framework_ == Framework::kWindtunnel; }
  int kept_between() const {
    return framework_ == Framework::kPytorch ? KeptBetweenOperators(spec_.activation) : 0;
  }
  bool gated() const { return IsGated(spec_.activation); }
  Rope RopeOp(const TransformerBlock& block, bool backward) const {
    return Rope{batch_,
                block.stream.seq,
                heads_,
                kv_heads_,
                spec_.head_dim,
                backward,
                types_.activations,
                context_.tokens(),
                spec_.rope_theta,
                spec_.rope_dim};
  }
  AttentionDims DimsOf(const TransformerBlock& block) const {
    return AttentionDims{batch_,
                         block.stream.seq,
                         heads_,
                         kv_heads_,
                         spec_.head_dim,
                         spec_.attention,
                         types_.activations,
                         spec_.dropout,
                         framework_ == Framework::kWindtunnel,
                         deterministic_,
                         spec_.latent_attention ? spec_.ValueDim() : 0,
                         block.window,
                         spec_.document_tokens,
                         block.causal,
                         has_fp32_softmax(),
                         0,
                         spec_.position == PositionKind::kRelative};
  }
  ContextAttention AttentionOf(const LayerContext& c, const TransformerBlock& block) const {
    return ContextAttention(c, DimsOf(block), context_, AttentionName(block));
  }
  // The dropout of what `place` returns, in rows of the residual stream.
  Dropout DropoutAfter(const LayerContext& c, const TokenStream& stream, const std::string& place) const {
    return {.site = DropoutSiteOf(spec_.dropout, place, c.b.micro_batch(), c.visit),
            .columns = spec_.hidden,
            .seq = stream.seq,
            .context = context_.tokens(),
            .splits_rows = tensor_.splits_tokens()};
  }
  Slice Drop(const LayerContext& c, const TokenStream& stream, Slice x, const std::string& place) const {
    return c.Drop(x, DropoutAfter(c, stream, place), place + ".dropout");
  }
  Slice DropGradient(const LayerContext& c, const TokenStream& stream, Slice dy, Slice mask,
                     const std::string& place) const {
    return c.DropGradient(dy, mask, DropoutAfter(c, stream, place), place + ".dropout");
  }

  ContextParallel context_;
  ModelSpec spec_;
  StageRange stage_;
  ModelTypes types_;
  Recompute recompute_;
  std::vector<Recompute> recompute_of_layer_;  // of the stage
  Recompute recompute_of_predictors_;
  uint32_t again_;
  CrossEntropyKind cross_entropy_;
  int64_t loss_chunks_;  // Scenario::cross_entropy_chunks
  Framework framework_;
  bool deterministic_;
  int64_t batch_;  // sequences
  TokenStream stream_;
  int64_t heads_, kv_heads_, vocab_;  // of the rank's part
  ModuleId embedding_module_ = 0, norm_module_ = 0, head_module_ = 0;
  int table_ = -1, positions_ = -1;
  std::optional<RelativePositions> relative_;
  std::vector<TransformerBlock> blocks_;
  struct {
    TokenStream stream;
    int positions = -1;
    std::optional<RelativePositions> relative;
    std::vector<TransformerBlock> blocks;
    Norm final_norm;
    ModuleId norm_module = 0;
  } encoder_;                               // if the model has one
  std::vector<TokenPredictor> predictors_;  // if the stage has them; one, if it is repeated
  int64_t predictor_elements_ = 0;          // of all parameters of one
  Norm final_norm_;
  Projections head_;
  std::map<int, TransformerPass> passes_;  // by micro-batch, from its forward to its backward
};

}  // namespace windtunnel
