// Multi-token prediction after a transformer's last layer: forward, losses and backward of its modules
// (TokenPredictor). The order in the last stage is Megatron-Core's: the modules, then their heads and losses,
// then the model's own; backward begins with the heads, the model's first. Modules in the stage before send
// all outputs on to the heads in one message, and get their gradients in one.
#include <fmt/format.h>

#include "plan/transformer.h"

namespace windtunnel {

void Transformer::PredictFurther(const LayerContext& c, TransformerPass& pass) {
  if (predictors_.empty()) return;
  Slice hidden = pass.final_norm.y;
  for (size_t i = 0; i < pass.predictors.size(); ++i) {
    TokenPredictorPass& own = pass.predictors[i];
    const TokenPredictor& predictor = PredictorAt(i);
    own.hidden = c.InType(types_.stream, hidden, predictor.hidden_norm.name + ".x");
    c.b.AtTurn(ProgramBuilder::kLastTurn + 1 + static_cast<int>(i));
    PredictorForward(ContextOfVisit(c, i), predictor, own);
    hidden = own.final_norm.y;
  }
  c.b.AtTurn(ProgramBuilder::kLastTurn + 1 + static_cast<int>(pass.predictors.size()));
}

// Combines hidden states and embeddings into the block's input.
void Transformer::JoinInputs(const LayerContext& c, const TokenPredictor& predictor,
                             TokenPredictorPass& pass) {
  pass.embedding_norm = predictor.embedding_norm.Forward(c, pass.embedding, kNoSlice, stream_.rows);
  pass.hidden_norm = predictor.hidden_norm.Forward(c, pass.hidden, kNoSlice, stream_.rows);
  const int64_t hidden = spec_.hidden;
  const std::string& name = predictor.projection.name;
  const Slice joined = c.Activation(name + ".x", stream_.rows * 2 * hidden);
  const auto put = [&](Slice part, int64_t first) {
    c.b.Add(CopyColumns{stream_.rows, hidden, 0, hidden, first, 2 * hidden, types_.activations}, name + ".x",
            {part}, {joined});
  };
  put(pass.embedding_norm.y, 0);
  put(pass.hidden_norm.y, hidden);
  pass.joined = predictor.projection.InputToKeep(c, joined);
  const Slice x = predictor.projection.Forward(c, pass.joined, stream_.rows);
  InputNormOf(predictor.block, pass.block).x = c.InType(types_.stream, x, name);
}

Transformer::Embedded Transformer::FurtherTokens(const TokenPredictor& predictor,
                                                 const TokenPredictorPass& pass) const {
  return {.ids = pass.ids, .name = predictor.name + ".embedding", .stream = stream_, .ends = true};
}

void Transformer::PredictorForward(const LayerContext& c, const TokenPredictor& predictor,
                                   TokenPredictorPass& pass) {
  pass.embedding = Embed(c, FurtherTokens(predictor, pass), pass.embedding_mask);
  ForwardScope scope(c.hooks, predictor.module);
  JoinInputs(c, predictor, pass);
  Slice& input = InputNormOf(predictor.block, pass.block).x;
  const Slice branch = BlockForward(c, predictor.block, input, kNoSlice, pass.block);
  const Slice x = StreamBehind(predictor.block, pass.block);
  DropActivations(predictor.block, pass.block);
  if (predictor.block.recompute == Recompute::kFull) {
    input = pass.joined = kNoSlice;
    for (Norm::Saved* norm : {&pass.embedding_norm, &pass.hidden_norm}) norm->y = norm->statistics = kNoSlice;
  }
  pass.final_norm = predictor.final_norm.Forward(c, x, branch, stream_.rows);
}

// The mean of the modules' losses is used, each over the tokens that have a target so far ahead.
void Transformer::AddFurtherLosses(const LayerContext& c, TransformerPass& pass,
                                   const std::vector<Slice>& outputs, const LossTerm& loss) {
  const auto count = static_cast<int64_t>(pass.predictors.size());
  const double seq = static_cast<double>(spec_.seq_len);
  for (int64_t i = 0; i < count; ++i) {
    TokenPredictorPass& own = pass.predictors[static_cast<size_t>(i)];
    own.head_input = head_.Enter(c, outputs[static_cast<size_t>(1 + i)]);
    own.dlogits = head_.Forward(c, own.head_input, stream_.tokens);
    LossTerm term{.loss = {loss.loss.buffer, loss.loss.offset + 1 + i, 1},
                  .gradient_scale = loss.gradient_scale * spec_.mtp->loss_weight / static_cast<double>(count),
                  .counted = (seq - static_cast<double>(1 + i)) / seq,
                  .skips = true,
                  .rows = stream_.tokens,
                  .name = fmt::format("mtp.{}.cross_entropy", i)};
    AddLoss(c, own.dlogits, own.targets, term);
    c.b.SetPhase(Phase::kForward);
  }
}

std::vector<Slice> Transformer::OutputsOf(const TransformerPass& pass) const {
  std::vector<Slice> outputs = {pass.final_norm.y};
  if (predictors_.empty()) return outputs;
  for (const TokenPredictorPass& predictor : pass.predictors) outputs.push_back(predictor.final_norm.y);
  return outputs;
}

// One behind the other, as torch.cat along the sequences.
Slice Transformer::JoinOutputs(const LayerContext& c, const std::vector<Slice>& outputs,
                               const std::string& name) const {
  const int64_t each = stream_.rows * spec_.hidden;
  const Slice joined = c.StreamActivation(name, std::ssize(outputs) * each);
  int64_t offset = joined.offset;
  for (const Slice& output : outputs) {
    c.b.Add(CopyColumns{stream_.rows, spec_.hidden, 0, spec_.hidden, 0, spec_.hidden, types_.stream}, name,
            {c.InType(types_.stream, output, name)}, {Slice{joined.buffer, offset, each}});
    offset += each;
  }
  return joined;
}

std::vector<Slice> Transformer::SplitOutputs(const LayerContext& c, Slice joined,
                                             const std::string& name) const {
  const int64_t each = stream_.rows * spec_.hidden;
  std::vector<Slice> outputs;
  for (int64_t first = 0; first < joined.elements; first += each)
    outputs.push_back(c.InType(types_.activations, {joined.buffer, joined.offset + first, each}, name));
  return outputs;
}

Slice Transformer::PredictorsBackward(const LayerContext& c, TransformerPass& pass,
                                      const std::vector<Slice>& dys) {
  Slice dhidden = kNoSlice;
  for (size_t i = pass.predictors.size(); i-- > 0;) {
    c.b.AtTurn(-1 - static_cast<int>(i));
    Slice dy = dys[1 + i];
    if (dhidden.buffer >= 0) {
      c.AddTo(dhidden, dy, PredictorAt(i).final_norm.name + ".dy.sum");
      dy = dhidden;
    }
    dhidden = PredictorBackward(ContextOfVisit(c, i), i, pass.predictors[i], dy);
    c.AddDelayed(LayerSlot::kAttentionWeights);
  }
  return dhidden;
}

// Returns the gradient of the previous module's output.
Slice Transformer::PredictorBackward(const LayerContext& c, size_t index, TokenPredictorPass& pass,
                                     Slice dy) {
  const TokenPredictor& predictor = PredictorAt(index);
  Slice dembedding, dhidden;
  {
    BackwardScope scope(c.hooks, predictor.module);
    Slice dx = predictor.final_norm.Backward(c, dy, pass.final_norm, kNoSlice, stream_.rows);
    if (predictor.block.recompute == Recompute::kFull) {
      c.b.SetPhase(Phase::kRecompute);
      JoinInputs(c, predictor, pass);
      c.b.SetPhase(Phase::kBackward);
    }
    dx = BlockBackward(c, predictor.block, pass.block, dx);
    const Linear& projection = predictor.projection;
    const Slice dx_product = c.InType(types_.activations, dx, projection.name + ".dy");
    const Slice djoined = projection.Backward(c, dx_product, pass.joined, stream_.rows);
    const int64_t hidden = spec_.hidden;
    const auto take = [&](const Norm& norm, int64_t first) {
      const Slice part = c.Activation(norm.name + ".dy", stream_.rows * hidden);
      c.b.Add(CopyColumns{stream_.rows, hidden, first, 2 * hidden, 0, hidden, types_.activations},
              norm.name + ".dy", {djoined}, {part});
      return part;
    };
    const Norm &of_hidden = predictor.hidden_norm, &of_embedding = predictor.embedding_norm;
    dhidden = of_hidden.Backward(c, take(of_hidden, hidden), pass.hidden_norm, kNoSlice, stream_.rows);
    dembedding = of_embedding.Backward(c, take(of_embedding, 0), pass.embedding_norm, kNoSlice, stream_.rows);
  }
  EmbedBackward(c, FurtherTokens(predictor, pass), pass.embedding_mask, dembedding,
                /*table_ready=*/index == 0 && !stage_.is_first);
  return dhidden;
}

}  // namespace windtunnel
