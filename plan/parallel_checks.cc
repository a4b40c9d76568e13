// What a model cannot be split by.
#include "plan/model.h"

namespace windtunnel {

namespace {

// Ranks share what is between the two layers of a pair.
Status CheckTensorParallelMlp(const Scenario& scenario) {
  const TensorParallelSpec& tensor = scenario.parallel.tensor;
  const std::vector<int64_t>& widths = scenario.model.widths;
  if (widths.size() < 3) {
    return InvalidInput(
        "parallel.tensor.size is {}, expected 1 for model.widths with {} entries: ranks share what is "
        "between two layers",
        tensor.size, widths.size());
  }
  for (size_t i = 1; i + 1 < widths.size(); i += 2) {
    if (widths[i] % tensor.size == 0) continue;
    return InvalidInput(
        "model.widths has {} behind layer {}, expected a multiple of parallel.tensor.size ({}), whose ranks "
        "share it",
        widths[i], i - 1, tensor.size);
  }
  if (!tensor.sequence) return Ok();
  return InvalidInput(
      "parallel.tensor.sequence is true, expected false for kind: mlp, which has no sequence");
}

}  // namespace

Status CheckTensorParallel(const Scenario& scenario) {
  const TensorParallelSpec& tensor = scenario.parallel.tensor;
  const ModelSpec& model = scenario.model;
  if (tensor.size == 1) return Ok();
  if (model.kind == ModelKind::kMlp) return CheckTensorParallelMlp(scenario);
  const struct {
    const char* key;
    int64_t value;
  } split[] = {{"model.heads", model.heads},
               {"model.kv_heads", model.kv_heads},
               {"model.ffn", model.experts && scenario.parallel.TensorRanksHaveExperts() ? 0 : model.ffn},
               {"model.experts.shared_ffn", model.experts ? model.experts->shared_ffn : 0},
               {"model.experts.dense_ffn", model.MixesExperts() ? model.DenseFfn() : 0},
               {"model.vocab", model.vocab}};
  for (const auto& [key, value] : split) {
    if (value % tensor.size == 0) continue;
    return InvalidInput("{} is {}, expected a multiple of parallel.tensor.size ({}), whose ranks share it",
                        key, value, tensor.size);
  }
  if (tensor.overlap && !tensor.sequence) {
    return InvalidInput(
        "parallel.tensor.overlap is true, expected false without parallel.tensor.sequence: sums of whole "
        "activations do not go around in parts");
  }
  if (!tensor.sequence) return Ok();
  constexpr int64_t kMostParts = 1024;
  if (tensor.overlap && tensor.size > kMostParts) {
    return InvalidInput("parallel.tensor.overlap is true, expected false for more than {} tensor ranks ({})",
                        kMostParts, tensor.size);
  }
  const int64_t tokens = scenario.batch.micro * model.seq_len / scenario.parallel.context.size;
  if (tokens % tensor.size != 0) {
    return InvalidInput(
        "parallel.tensor.sequence is true, expected parallel.tensor.size ({}) to divide a rank's tokens of a "
        "micro-batch (batch.micro x model.seq_len / parallel.context.size: {})",
        tensor.size, tokens);
  }
  return Ok();
}

namespace {

// What cannot be put in turns, whoever asks.
Status CheckTurns(const Scenario& scenario) {
  const ExpertParallelSpec& expert = scenario.parallel.expert;
  if (!expert.overlap && !expert.delay_wgrad) return Ok();
  if (!scenario.model.experts)
    return InvalidInput("parallel.expert.overlap and delay_wgrad want a model with model.experts");
  if (scenario.parallel.data.kind == DataParallelKind::kFsdp)
    return InvalidInput("parallel.data.kind is fsdp, expected another with parallel.expert.overlap");
  if (scenario.recompute == Recompute::kFull)
    return InvalidInput("recompute is full, expected another with parallel.expert.overlap");
  if (scenario.Recomputes(RecomputeModule::kMoe))
    return InvalidInput("recompute_modules has moe, expected others with parallel.expert.overlap");
  return Ok();
}

}  // namespace

Status CheckExperts(const Scenario& scenario) {
  WT_RETURN_IF_ERROR(CheckTurns(scenario));
  const int64_t ranks = scenario.parallel.expert.size;
  if (!scenario.model.experts) {
    if (ranks == 1) return Ok();
    return InvalidInput("parallel.expert.size is {}, expected 1 for a model without model.experts", ranks);
  }
  const ParallelSpec& parallel = scenario.parallel;
  const bool of_tensor = parallel.TensorRanksHaveExperts();
  const bool is_deepep = parallel.expert.dispatcher == ExpertDispatcher::kDeepEp;
  if (is_deepep && scenario.model.experts->capacity_factor != 0)
    return InvalidInput("parallel.expert.dispatcher is deepep, expected model.experts.capacity_factor 0");
  if (is_deepep && parallel.tensor.size > 1 && !of_tensor)
    return InvalidInput(
        "parallel.expert.dispatcher is deepep, expected parallel.expert.tensor: 1 with several tensor ranks");
  if (of_tensor && !parallel.tensor.sequence)
    return InvalidInput("parallel.expert.tensor is 1, expected parallel.tensor.sequence: true");
  if (of_tensor && ranks % parallel.tensor.size != 0)
    return InvalidInput(
        "parallel.expert.size is {}, expected a multiple of parallel.tensor.size ({}) with "
        "parallel.expert.tensor: 1",
        ranks, parallel.tensor.size);
  const int64_t copies = parallel.data.size * parallel.context.size * (of_tensor ? parallel.tensor.size : 1);
  const int count = scenario.model.experts->count;
  if (count % ranks == 0 && copies % ranks == 0) return Ok();
  return InvalidInput(
      "parallel.expert.size is {}, expected a divisor of model.experts.count ({}) and of {}data x context "
      "({})",
      ranks, count, of_tensor ? "tensor x " : "", copies);
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
        "context x tensor ({}), and model.seq_len ({}) one of context",
        model.kv_heads, ranks, model.seq_len);
  }
  if (model.seq_len % (2 * context.size) != 0) {
    return InvalidInput(
        "parallel.context.size is {}, expected twice that to divide model.seq_len ({}): each rank has a "
        "chunk from either end",
        context.size, model.seq_len);
  }
  if (model.attention != AttentionKind::kFlash) {
    return InvalidInput(
        "model.attention is eager, expected flash for parallel.context.kind: ring and all_gather, which "
        "merge log-sum-exps");
  }
  return Ok();
}

}  // namespace windtunnel
