// A transformer's stage around its blocks: embedding, head, losses, and forward and backward of the whole.
#include "plan/transformer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "plan/loss_scaling.h"

namespace windtunnel {

Slice Transformer::Embed(const LayerContext& c, const Embedded& in, Slice& mask) {
  ForwardScope scope(c.hooks, embedding_module_);
  Slice x = c.StreamActivation(in.name, in.stream.tokens * spec_.hidden);
  std::vector<Slice> reads = {in.ids, c.hooks.Values(table_)};
  if (in.positions >= 0) reads.push_back(c.hooks.Values(in.positions));
  c.b.Add(EmbeddingForward{in.stream.tokens, in.stream.seq, vocab_, spec_.hidden, in.positions >= 0,
                           types_.stream, tensor_.splits(), context_.tokens(), in.ends},
          in.name, reads, {x});
  x = c.SumOverRanks(x, in.name, LayerContext::Neighbor::kElementwise);
  mask = Drop(c, in.stream, x, in.name);
  return x;
}

Slice Transformer::MakeInputs(ProgramBuilder& b, int64_t micro_batches) const {
  return b.Temporary("ids", micro_batches * stream_.tokens, Category::kActivations, DType::kInt32);
}

Slice Transformer::Load(ProgramBuilder& b, int micro_batch, int64_t micro_batches, Slice inputs) const {
  const Slice targets = b.Temporary("targets", inputs.elements, Category::kActivations, DType::kInt32);
  b.Add(LoadBatch{micro_batch, micro_batches * batch_, stream_.seq, 0, context_.tokens()}, "load_batch", {},
        {inputs, targets});
  return targets;
}

// Loads ids and targets, including those of multi-token prediction.
void Transformer::LoadPass(ProgramBuilder& b, int micro_batch, TransformerPass& pass) const {
  pass.ids = MakeInputs(b, 1);
  if (spec_.encoder) {
    const TokenStream& source = encoder_.stream;
    pass.targets = b.Temporary("targets", stream_.tokens, Category::kActivations, DType::kInt32);
    pass.encoder.ids = b.Temporary("encoder.ids", source.tokens, Category::kActivations, DType::kInt32);
    b.Add(LoadBatch{.micro_batch = micro_batch, .rows = batch_, .columns = stream_.seq, .source = source.seq},
          "load_batch", {}, {pass.ids, pass.targets, pass.encoder.ids});
    return;
  }
  const int64_t further = stage_.is_last || ends_model() ? spec_.MtpLayers() : 0;
  if (further == 0) {
    pass.targets = Load(b, micro_batch, 1, pass.ids);
    return;
  }
  const auto targets = [&](const std::string& name) {
    return b.Temporary(name, stream_.tokens, Category::kActivations, DType::kInt32);
  };
  pass.targets = targets("targets");
  std::vector<Slice> writes = {pass.ids, pass.targets};
  pass.predictors.resize(static_cast<size_t>(further));
  for (size_t i = 0; i < pass.predictors.size(); ++i) {
    pass.predictors[i].ids = writes.back();
    writes.push_back(pass.predictors[i].targets = targets(fmt::format("mtp.{}.targets", i)));
  }
  b.Add(LoadBatch{micro_batch, batch_, stream_.seq, 0, context_.tokens(), further}, "load_batch", {},
        std::move(writes));
}

Slice Transformer::Loss(ProgramBuilder& b, int64_t micro_batches, Slice output, Slice targets, Slice loss,
                        double gradient_scale) const {
  b.SetPhase(Phase::kLoss);
  AddWholeLoss(b, output, targets,
               {.loss = loss,
                .gradient_scale = gradient_scale,
                .counted = spec_.LossShare(),
                .skips = !spec_.causal,
                .rows = micro_batches * stream_.tokens});
  return output;
}

void Transformer::AddWholeLoss(ProgramBuilder& b, Slice logits, Slice targets, const LossTerm& term) const {
  std::vector<Slice> writes = {term.loss, logits};
  AddLossWorkspace(b, term.name, logits.elements, writes);
  CrossEntropy op{term.rows, spec_.vocab, term.gradient_scale, types_.activations};
  op.counted = term.counted;
  op.skips = term.skips;
  op.fused = has_fused_loss();
  std::vector<Slice> reads = {logits, targets};
  op.scaled = ReadLossScale(b, reads);
  b.Add(op, term.name, std::move(reads), std::move(writes));
}

// The memory of a loss besides the logits. In fp32: for Megatron a copy, which becomes the exponentials and
// then the gradient; for PyTorch the log-softmax, its gradient and the gradient of its input (the fp32 copy
// is freed by then). For PyTorch's fused losses: the gradient, in the logits' type.
void Transformer::AddLossWorkspace(ProgramBuilder& b, const std::string& name, int64_t logits,
                                   std::vector<Slice>& writes) const {
  if (has_fused_loss()) {
    if (is_pytorch())
      writes.push_back(b.Temporary(name + ".gradient", logits, Category::kActivations, types_.activations));
    return;
  }
  const int copies = framework_ == Framework::kWindtunnel ? 0 : is_pytorch() ? 3 : 1;
  for (int copy = 0; copy < copies; ++copy)
    writes.push_back(b.Temporary(fmt::format("{}.fp32.{}", name, copy), logits, Category::kActivations));
}

// A stage passes a single tensor to the next, so the addition that the next norm would have fused is done
// first. The sum overwrites the branch, which no backward needs; or, if the branch is kept even so, the
// residual stream, which is recomputed.
Slice Transformer::SumAtBoundary(const LayerContext& c, Slice x, Slice branch) {
  if (branch.buffer < 0) return x;
  branch = c.InType(types_.stream, branch, "stage.output");
  const auto [sum, addend] = KeepsDown(blocks_.back()) ? std::pair(x, branch) : std::pair(branch, x);
  c.AddTo(sum, addend, "stage.output");
  return sum;
}

// Returns the logits, or the stage's output: its residual stream.
Slice Transformer::ForwardLayers(const LayerContext& c, Slice input, TransformerPass& pass,
                                 const LossTerm& loss) {
  ForwardScope scope(c.hooks, kRootModule);
  if (spec_.encoder) EncoderForward(c, pass);
  ResidualStream stream = {input};
  if (stage_.is_first)
    stream.x = Embed(c, {.ids = pass.ids, .stream = stream_, .positions = positions_}, pass.embedding_mask);
  const Slice bias = relative_ ? relative_->Forward(c) : kNoSlice;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    c.b.SetLayer(LayerOf(i));
    c.b.AtTurn(static_cast<int>(encoder_.blocks.size() + i));
    pass.saved[i].bias = bias;
    pass.saved[i].cross.source = pass.encoder.final_norm.normalised;
    stream = RunBlock(c, blocks_[i], stream, pass.saved[i]);
  }
  c.b.SetLayer(-1);
  c.b.AtTurn(ProgramBuilder::kLastTurn);
  if (!stage_.is_last && !ends_model()) return SumAtBoundary(c, stream.x, stream.branch);
  std::vector<Slice> outputs;
  if (ends_model()) {
    {
      ForwardScope norm(c.hooks, norm_module_);
      pass.final_norm = final_norm_.Forward(c, stream.x, stream.branch, stream_.rows);
    }
    if (has_chunks()) {
      pass.loss = {loss.loss, loss.gradient_scale};
      if (c.b.evaluates()) HeadInChunks(c, pass);
      return pass.final_norm.y;
    }
    PredictFurther(c, pass);
    outputs = OutputsOf(pass);
    if (!stage_.is_last) return JoinOutputs(c, outputs, "stage.output");
  } else {
    outputs = SplitOutputs(c, input, "stage.input");
  }
  ForwardScope head(c.hooks, head_module_);
  AddFurtherLosses(c, pass, outputs, loss);
  pass.head_input = head_.Enter(c, outputs.front());
  return head_.Forward(c, pass.head_input, stream_.tokens);
}

// The gradient overwrites the logits.
void Transformer::AddLoss(const LayerContext& c, Slice logits, Slice targets, const LossTerm& term) {
  c.b.SetPhase(Phase::kLoss);
  if (tensor_.splits()) return AddVocabParallelLoss(c, logits, targets, term);
  AddWholeLoss(c.b, logits, targets, term);
}

void Transformer::AddVocabParallelLoss(const LayerContext& c, Slice logits, Slice targets,
                                       const LossTerm& term) {
  const std::string& name = term.name;
  const auto of_rows = [&](const char* what) {
    return c.b.Temporary(name + what, term.rows, Category::kActivations);
  };
  const auto reduce = [&](Slice x, Reduction reduction) {
    c.b.WaitBeforeUse(x, tensor_.stream->AllReduce(c.b, x, name, c.b.BeforeNextCompute(), reduction));
  };
  const Slice maximum = of_rows(".maximum"), target = of_rows(".target"), sum = of_rows(".sum");
  c.b.Add(VocabParallelMaximum{term.rows, vocab_, types_.activations, has_fused_loss()}, name, {logits},
          {maximum});
  reduce(maximum, Reduction::kMax);
  c.b.Add(VocabParallelSums{term.rows, vocab_, types_.activations, has_fused_loss(), term.skips}, name,
          {logits, targets, maximum}, {target, sum});
  reduce(target, Reduction::kSum);
  reduce(sum, Reduction::kSum);
  std::vector<Slice> writes = {term.loss, logits};
  AddLossWorkspace(c.b, name, logits.elements, writes);
  VocabParallelLoss op{term.rows, vocab_, term.gradient_scale, types_.activations};
  op.counted = term.counted;
  op.fused = has_fused_loss();
  std::vector<Slice> reads = {logits, targets, maximum, target, sum};
  op.scaled = ReadLossScale(c.b, reads);
  c.b.Add(op, name, std::move(reads), std::move(writes));
}

// One part of the tokens: its logits, loss, and the gradients of the head's weight and of x, the part's
// input. Writes the latter over x, which nothing else needs, and returns it.
Slice Transformer::AddChunk(const LayerContext& c, const Linear& head, TransformerPass& pass, Slice x,
                            Slice losses, int64_t chunk) {
  const int64_t rows = stream_.tokens / loss_chunks_;
  const Slice logits = head.ForwardProduct(c, x, rows);
  const Slice targets{pass.targets.buffer, pass.targets.offset + chunk * rows, rows};
  // The mean over all parts' tokens.
  AddLoss(c, logits, targets,
          {.loss = {losses.buffer, chunk, 1},
           .gradient_scale = pass.loss.gradient_scale,
           .counted = spec_.LossShare() * static_cast<double>(loss_chunks_),
           .skips = !spec_.causal,
           .rows = rows});
  if (c.b.evaluates()) return kNoSlice;
  c.b.SetPhase(Phase::kBackward);
  if (!head.is_frozen) {
    head.AddWeightGradient(c, logits, x, rows);
    c.hooks.Wrote(head.weight);
  }
  head.AddInputGradient(c, logits, rows, x, /*accumulate=*/false);
  return x;
}

// The head and its loss, part by part, so that the logits of one part exist at a time. Returns the gradient
// of the final norm's output; nothing if the program only evaluates.
Slice Transformer::HeadInChunks(const LayerContext& outer, TransformerPass& pass) {
  LayerContext c = outer;
  c.deferred = nullptr;  // the logits are gone after each part
  c.delays_weights = false;
  Linear head = head_.layers[0];
  Slice x = c.GatherTokens(pass.final_norm.y, head.name, LayerContext::Neighbor::kProduct);
  head.input_is_gathered = true;
  const Slice losses = c.b.Temporary("cross_entropy.parts", loss_chunks_, Category::kActivations);
  const int64_t elements = x.elements / loss_chunks_;
  for (int64_t chunk = 0; chunk < loss_chunks_; ++chunk)
    AddChunk(c, head, pass, {x.buffer, x.offset + chunk * elements, elements}, losses, chunk);
  c.b.SetPhase(Phase::kLoss);
  c.b.Add(SumParts{loss_chunks_, 1}, "cross_entropy", {losses}, {pass.loss.place});
  if (c.b.evaluates()) return kNoSlice;
  c.b.SetPhase(Phase::kBackward);
  // A tied weight is ready only after the embeddings have added their part.
  const bool is_last = !spec_.tie_embeddings || !stage_.is_first;
  if (!head.is_frozen && is_last) c.Ready(head.weight);
  return c.tensor.splits() ? c.SumOverRanks(x, head.name + ".dx", head.MakerOfInputGradient(c)) : x;
}

// Returns the gradients of what the heads took. All predictions contribute to the head's weight gradient.
std::vector<Slice> Transformer::HeadsBackward(const LayerContext& c, TransformerPass& pass, Slice dlogits) {
  const size_t further = pass.predictors.size();
  if (further > 0) c.b.AtTurn(-1 - static_cast<int>(further));
  BackwardScope head(c.hooks, head_module_);
  if (has_chunks()) return {HeadInChunks(c, pass)};
  // A tied weight is ready only after the embeddings have added their part.
  const bool is_last = !spec_.tie_embeddings || (!stage_.is_first && further == 0);
  std::vector<Slice> dys(1 + further);
  dys[0] =
      head_.Backward(c, {dlogits}, pass.head_input, stream_.tokens, /*weight_ready=*/is_last && further == 0);
  for (size_t i = further; i-- > 0;)
    dys[1 + i] =
        head_.Backward(c, {pass.predictors[i].dlogits}, pass.predictors[i].head_input, stream_.tokens,
                       /*weight_ready=*/is_last && i == 0);
  // All arrive before the backward of the modules begins, which uses the last one first.
  if (ends_model())
    for (size_t i = 0; i < further; ++i) c.b.AwaitWith(dys[i], dys.back());
  return dys;
}

// Of the final norm and the modules behind it. `dys`: the gradients of their outputs. Returns the gradient of
// the last block's output.
Slice Transformer::EndBackward(const LayerContext& c, TransformerPass& pass, const std::vector<Slice>& dys) {
  Slice dy = dys.front();
  if (!predictors_.empty()) {
    const Slice from_predictors = PredictorsBackward(c, pass, dys);
    c.AddTo(from_predictors, dy, "norm_f.dy.sum");
    dy = from_predictors;
    c.b.AtTurn(0);
  }
  BackwardScope scope(c.hooks, norm_module_);
  return final_norm_.Backward(c, dy, pass.final_norm, kNoSlice, stream_.rows);
}

void Transformer::EmbedBackward(const LayerContext& c, const Embedded& in, Slice mask, Slice dx,
                                bool table_ready) {
  BackwardScope scope(c.hooks, embedding_module_);
  dx = DropGradient(c, in.stream, dx, mask, in.name);
  c.AddOrDefer([this, in, table_ready, own_dx = dx](const LayerContext& c) {
    const Slice dx = c.GatherTokens(own_dx, in.name + ".dx", LayerContext::Neighbor::kElementwise);
    EmbeddingBackward op{in.stream.tokens, in.stream.seq, vocab_, spec_.hidden, in.positions >= 0};
    op.dtype = types_.stream;
    op.vocab_parallel = tensor_.splits();
    op.context = context_.tokens();
    op.ends = in.ends;
    op.accumulate_table = c.hooks.HoldsValue(table_);
    std::vector<Slice> writes = {c.hooks.Gradient(table_)};
    if (in.positions >= 0) {
      op.accumulate_positions = c.hooks.HoldsValue(in.positions);
      writes.push_back(c.hooks.Gradient(in.positions));
    }
    c.b.Add(op, in.name, {in.ids, dx}, writes);
    if (in.positions >= 0) c.Ready(in.positions);
    if (table_ready) c.Ready(table_);
    else c.hooks.Wrote(table_);
  });
}

Slice Transformer::Forward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                           double gradient_scale) {
  TransformerPass& pass = passes_[micro_batch] = {};
  const LayerContext c = Context(b, hooks, pass);
  b.SetMicroBatch(micro_batch);
  b.SetPhase(Phase::kForward);
  pass.saved.resize(blocks_.size());
  if (stage_.is_replica) {
    pass.ids = input;
  } else if (stage_.is_first || stage_.is_last || ends_model()) {
    LoadPass(b, micro_batch, pass);
  }
  if (stage_.is_last && !stage_.is_replica) WT_CHECK_EQ(loss.elements, LossElements());
  const LossTerm term{.loss = {loss.buffer, loss.offset, 1},
                      .gradient_scale = gradient_scale,
                      .counted = spec_.LossShare(),
                      .skips = !spec_.causal,
                      .rows = stream_.tokens};
  const Slice output = ForwardLayers(c, input, pass, term);
  if (stage_.is_last && !stage_.is_replica && !has_chunks()) AddLoss(c, output, pass.targets, term);
  pass.copies.EndForward(b);
  b.SetMicroBatch(-1);
  return output;
}

Slice Transformer::AddBackward(ProgramBuilder& b, ModelHooks& hooks, int micro_batch, Slice doutput,
                               DeferredOps* deferred, bool delays) {
  TransformerPass& pass = passes_.at(micro_batch);
  const LayerContext c = Context(b, hooks, pass, deferred, delays);
  b.SetMicroBatch(micro_batch);
  b.SetPhase(Phase::kBackward);
  Slice dx = doutput;
  {
    BackwardScope scope(c.hooks, kRootModule);
    std::vector<Slice> dys;
    if (stage_.is_last) dys = HeadsBackward(c, pass, doutput);
    else if (ends_model()) dys = SplitOutputs(c, doutput, "stage.output.grad");
    if (ends_model()) dx = EndBackward(c, pass, dys);
    else if (stage_.is_last) dx = JoinOutputs(c, dys, "stage.input.grad");
    c.AddDelayed(LayerSlot::kAttentionWeights);
    for (size_t i = blocks_.size(); i-- > 0;) {
      b.SetLayer(LayerOf(i));
      b.AtTurn(static_cast<int>(blocks_.size() - 1 - i));
      dx = BlockBackward(c, blocks_[i], pass.saved[i], dx);
      if (relative_) relative_->AddScores(c, pass.saved[i].dscores, pass.dbias);
      if (blocks_[i].cross) AddToSource(c, pass, pass.saved[i].cross.dsource);
    }
    b.SetLayer(-1);
    b.AtTurn(ProgramBuilder::kLastTurn);
    if (relative_) relative_->Backward(c, pass.dbias);
    if (stage_.is_first && !freezes_)
      EmbedBackward(c, {.ids = pass.ids, .stream = stream_, .positions = positions_}, pass.embedding_mask, dx,
                    /*table_ready=*/!spec_.encoder);
    if (spec_.encoder) EncoderBackward(c, pass);
    c.AddDelayed(LayerSlot::kAttentionWeights);
  }
  b.SetMicroBatch(-1);
  passes_.erase(micro_batch);
  return stage_.is_first ? kNoSlice : dx;
}

// With an encoder, tokens of one kind do not go through the parameters of the other. Returns how many
// parameters the mean token does not go through: those of the decoder and the head (of a tied table, too) are
// for tokens of the sequence, except for cross-attention's keys and values, which like the encoder's are for
// those of the source.
double Transformer::UnseenByMean() const {
  if (!spec_.encoder) return 0;
  const auto number = [](auto x) { return static_cast<double>(x); };
  const double queries = number(spec_.hidden * spec_.heads * spec_.head_dim);
  const double keys = number(2 * spec_.hidden * spec_.kv_heads * spec_.head_dim);
  const double mlp = number((gated() ? 3 : 2) * spec_.hidden * spec_.DenseFfn());
  const double attention = 2 * queries + keys;
  const double of_source = number(spec_.encoder->layers) * (attention + mlp) + number(spec_.layers) * keys;
  const double of_sequence =
      number(spec_.layers) * (attention + 2 * queries + mlp) + number(spec_.vocab * spec_.hidden);
  const double share = number(spec_.seq_len) / number(spec_.SampleTokens());
  return of_source * share + of_sequence * (1 - share);
}

namespace {

// Of one layer with states, a token's forward and backward, beside its projections (training.py of
// Megatron-LM, mamba_layer_flops and gdn_layer_flops); backward is twice forward. Mamba-2: a multiply-add
// each that makes a state and that reads it, and three more operations. A gated delta network: two that make
// a state and two that read it.
double ScanFlops(const ModelSpec& spec) {
  if (spec.mamba) return 21.0 * static_cast<double>(spec.mamba->inner() * spec.mamba->state);
  return spec.delta_net ? 24.0 * static_cast<double>(spec.delta_net->inner() * spec.delta_net->key_dim) : 0;
}

}  // namespace

ModelStatistics Transformer::Statistics(int64_t parameters, int64_t frozen) const {
  ModelStatistics statistics;
  statistics.parameters = parameters;
  statistics.frozen_parameters = frozen;
  statistics.parameters_without_positions =
      statistics.parameters - (learned_positions() ? spec_.SampleTokens() * spec_.hidden : 0);
  const int64_t matrices = gated() ? 3 : 2;
  const bool predicts = spec_.mtp.has_value(), have_experts = predicts && spec_.KindOfModules().has_experts;
  double unseen = 0, unseen_by_predictor = 0;  // parameters of experts that a token is not routed to
  if (const auto& experts = spec_.experts) {
    // With a capacity factor below 1, tokens beyond the capacity are dropped.
    const double room = experts->capacity_factor > 0 ? std::min(experts->capacity_factor, 1.0) : 1;
    const double seen = static_cast<double>(experts->top_k) * room;
    const double unseen_in_layer = (static_cast<double>(experts->count) - seen) *
                                   static_cast<double>(matrices * spec_.ExpertWidth() * spec_.ffn);
    unseen_by_predictor = have_experts ? unseen_in_layer : 0;
    unseen = static_cast<double>(spec_.LayersWithExperts()) * unseen_in_layer +
             static_cast<double>(predicts ? spec_.mtp->Modules() : 0) * unseen_by_predictor;
  }
  // Multi-token prediction uses the head once more per module, and a repeated module once per depth.
  const double heads_again = static_cast<double>(spec_.MtpLayers() * spec_.vocab * spec_.hidden);
  const double uses_again = static_cast<double>(predicts ? spec_.mtp->layers - spec_.mtp->Modules() : 0);
  const double again =
      heads_again + uses_again * (static_cast<double>(predictor_elements_) - unseen_by_predictor);
  // PaLM (Chowdhery et al. 2022, appendix B): 6N + 12 L H Q T a token. Value heads may have another
  // width, and layers a window.
  const double seen =
      static_cast<double>(statistics.parameters_without_positions) - unseen + again - UnseenByMean();
  // Of the parameters that are seen; those that are not seen are frozen as well, or none are.
  const double seen_frozen = frozen > 0 ? seen - static_cast<double>(parameters - frozen) : 0;
  const int64_t scans_of_predictors =
      predicts && spec_.KindOfModules().is_recurrent() ? spec_.mtp->layers : 0;
  const double scans = ScanFlops(spec_) * static_cast<double>(spec_.RecurrentLayers() + scans_of_predictors);
  statistics.flops_per_token = Flops(
      scans + 6.0 * seen - 2.0 * seen_frozen +
      6.0 * static_cast<double>(spec_.heads * (spec_.head_dim + spec_.ValueDim())) * spec_.AttentionTokens());
  return statistics;
}

std::unique_ptr<Model> MakeTransformer(const Scenario& scenario, const StageRange& stage,
                                       const ModelParallel& parallel) {
  return std::make_unique<Transformer>(scenario, stage, parallel);
}

}  // namespace windtunnel
