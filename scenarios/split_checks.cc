#include "scenarios/split_checks.h"

#include <string>

#include "scenarios/derived.h"
#include "scenarios/model_spec.h"

namespace windtunnel {
namespace {

// Tensor ranks of an MLP split the width between the two layers of each pair.
void CheckMlpSplits(const Scenario& scenario, Checker& check) {
  const std::vector<int64_t>& widths = scenario.model.widths;
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t tensor = parallel.tensor.size;
  check.Expect(
      tensor == 1 || widths.size() > 2, {"parallel.tensor.size"},
      "parallel.tensor.size is {}, expected 1 for an MLP of one layer: ranks share what is between two",
      tensor);
  for (size_t i = 1; i + 1 < widths.size(); i += 2) {
    check.Expect(Divides(tensor, widths[i]), {"parallel.tensor.size", "model.widths"},
                 "parallel.tensor.size is {}, expected a divisor of entry {} of model.widths ({})", tensor,
                 i + 1, widths[i]);
  }
  check.Expect(parallel.context.size == 1, {"parallel.context.size"},
               "parallel.context.size is {}, expected 1 for kind: mlp, which has no sequence",
               parallel.context.size);
  check.Expect(parallel.expert.size == 1, {"parallel.expert.size"},
               "parallel.expert.size is {}, expected 1 for kind: mlp, which has no experts",
               parallel.expert.size);
  struct Switch {
    const char* path;
    bool is_on;
    const char* lacks;
  };
  for (const auto& [path, is_on, lacks] :
       {Switch{"parallel.tensor.sequence", parallel.tensor.sequence, "sequence"},
        Switch{"parallel.tensor.overlap", parallel.tensor.overlap, "sequence"},
        Switch{"parallel.expert.overlap", parallel.expert.overlap, "experts"},
        Switch{"parallel.expert.delay_wgrad", parallel.expert.delay_wgrad, "experts"}}) {
    check.Expect(!is_on, {path}, "{} is true, expected false for kind: mlp, which has no {}", path, lacks);
  }
}

// Tensor ranks split heads, the width of MLPs and, with tensor.sequence, tokens.
void CheckTensorRanks(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t tensor = parallel.tensor.size;
  const bool splits_ffn = !model.experts || !parallel.TensorRanksHaveExperts();
  check.Expect(Divides(tensor, model.heads) && (!splits_ffn || Divides(tensor, model.ffn)),
               {"parallel.tensor.size"},
               "parallel.tensor.size is {}, expected a divisor of model.heads ({}){}", tensor, model.heads,
               splits_ffn ? fmt::format(" and model.ffn ({})", model.ffn) : "");
  check.Expect(
      !model.experts || !model.experts->bias || tensor == 1 || parallel.TensorRanksHaveExperts(),
      {"model.experts.bias", "parallel.tensor.size"},
      "model.experts.bias is true, expected parallel.expert.tensor: 1 with parallel.tensor.size ({}): "
      "tensor ranks that share an expert would each add its biases",
      tensor);
  const int64_t shared = model.experts ? model.experts->shared_ffn : 0;
  check.Expect(Divides(tensor, shared), {"parallel.tensor.size"},
               "parallel.tensor.size is {}, expected a divisor of model.experts.shared_ffn ({})", tensor,
               shared);
  check.Expect(!model.MixesExperts() || Divides(tensor, model.DenseFfn()), {"parallel.tensor.size"},
               "parallel.tensor.size is {}, expected a divisor of model.experts.dense_ffn ({})", tensor,
               model.DenseFfn());
  check.Expect(tensor == 1 || model.qk_norm_over == QkNormSpan::kHead,
               {"parallel.tensor.size", "model.qk_norm_over", "model.preset", "model.config"},
               "parallel.tensor.size is {}, expected 1 with model.qk_norm_over: all_heads, which a rank "
               "with some of the heads cannot normalise",
               tensor);
  check.Expect(Divides(tensor, model.kv_heads), {"parallel.tensor.size"},
               "parallel.tensor.size is {}, expected a divisor of model.kv_heads ({}), which its ranks share",
               tensor, model.kv_heads);
  check.Expect(
      Divides(tensor, model.vocab), {"parallel.tensor.size", "model.vocab"},
      "parallel.tensor.size is {}, expected a divisor of model.vocab ({}), whose rows its ranks share; "
      "Megatron would pad it to {}",
      tensor, model.vocab, (model.vocab + 128 * tensor - 1) / (128 * tensor) * (128 * tensor));
  // The tokens of a rank's micro-batch.
  const int64_t tokens = scenario.batch.micro * model.seq_len / parallel.context.size;
  check.Expect(
      !parallel.tensor.sequence || Divides(tensor, tokens), {"parallel.tensor.sequence"},
      "parallel.tensor.sequence is true, expected tensor.size ({}) to divide the {} tokens that a rank "
      "has of a micro-batch (batch.micro {} x model.seq_len {} / context.size {})",
      tensor, tokens, scenario.batch.micro, model.seq_len, parallel.context.size);
  check.Expect(
      !parallel.tensor.overlap || parallel.tensor.sequence, {"parallel.tensor.overlap"},
      "parallel.tensor.overlap is true, expected false without parallel.tensor.sequence: sums of whole "
      "activations do not go around in parts");
  constexpr int64_t kMostParts = 1024;
  check.Expect(!parallel.tensor.overlap || tensor <= kMostParts,
               {"parallel.tensor.overlap", "parallel.tensor.size"},
               "parallel.tensor.overlap is true, expected false for more than {} tensor ranks ({})",
               kMostParts, tensor);
}

// Context ranks split the sequence and, with Ulysses, heads.
void CheckContextRanks(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t tensor = parallel.tensor.size, context = parallel.context.size;
  check.Expect(Divides(context, model.seq_len), {"parallel.context.size"},
               "parallel.context.size is {}, expected a divisor of model.seq_len ({})", context,
               model.seq_len);
  if (context == 1) return;
  const bool ulysses = parallel.context.kind == ContextKind::kUlysses;
  check.Expect(!ulysses || Divides(context * tensor, model.heads),
               {"parallel.context.size", "parallel.context.kind"},
               "parallel.context.size is {}, expected context x tensor ({}) to divide model.heads ({}) for "
               "kind: ulysses",
               context, context * tensor, model.heads);
  check.Expect(
      !ulysses || !Divides(context * tensor, model.heads) || Divides(context * tensor, model.kv_heads),
      {"parallel.context.size", "parallel.context.kind"},
      "parallel.context.size is {}, expected context x tensor ({}) to divide model.kv_heads ({}) for "
      "kind: ulysses",
      context, context * tensor, model.kv_heads);
  check.Expect(
      ulysses || Divides(2 * context, model.seq_len), {"parallel.context.size"},
      "parallel.context.size is {}, expected twice that to divide model.seq_len ({}): each rank has a chunk "
      "from either end",
      context, model.seq_len);
  check.Expect(parallel.context.kind != ContextKind::kRing || !model.HasWindows(),
               {"parallel.context.kind", "parallel.context.size", "model.sliding_window"},
               "parallel.context.kind is {}, expected all_gather or ulysses with model.sliding_window",
               WordOf(parallel.context.kind));
  check.Expect(ulysses || model.DocumentTokens() == model.seq_len,
               {"parallel.context.kind", "parallel.context.size", "model.document_tokens"},
               "parallel.context.kind is {}, expected ulysses with model.document_tokens",
               WordOf(parallel.context.kind));
  check.Expect(ulysses || model.attention == AttentionKind::kFlash,
               {"model.attention", "parallel.context.kind", "parallel.context.size"},
               "model.attention is eager, expected flash for parallel.context.kind: {}",
               WordOf(parallel.context.kind));
}

// Tensor and context ranks split dimensions of the model.
void CheckTransformerSplits(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  CheckTensorRanks(scenario, check);
  check.Expect(!model.latent_attention || !scenario.parallel.tensor.overlap,
               {"parallel.tensor.overlap", "model.latent_attention"},
               "parallel.tensor.overlap is true, expected false with model.latent_attention");
  CheckContextRanks(scenario, check);
}

// With expert.tensor: 1, data, context and tensor ranks share the experts among them.
void CheckExpertsOfTensorRanks(const ParallelSpec& parallel, Checker& check) {
  const int64_t size = parallel.expert.size, tensor = parallel.tensor.size;
  const int64_t ranks = tensor * parallel.data.size * parallel.context.size;
  check.Expect(
      Divides(tensor, size) && Divides(size, ranks), {"parallel.expert.size", "parallel.expert.tensor"},
      "parallel.expert.size is {}, expected a multiple of tensor.size ({}) and a divisor of tensor x "
      "data x context ({}) with parallel.expert.tensor: 1",
      size, tensor, ranks);
  check.Expect(
      parallel.tensor.sequence, {"parallel.expert.tensor", "parallel.tensor.sequence"},
      "parallel.expert.tensor is 1, expected tensor.sequence: true, so that tensor ranks have tokens "
      "of their own to send");
}

// DeepEP needs whole experts, no capacity limit, and links that its kernels can write to.
void CheckDispatcher(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  if (parallel.expert.dispatcher == ExpertDispatcher::kAllToAll) return;
  const std::string_view name = WordOf(parallel.expert.dispatcher);
  const int64_t sharing = parallel.TensorRanksHaveExperts() ? 1 : parallel.tensor.size;
  check.Expect(
      sharing == 1, {"parallel.expert.dispatcher", "parallel.expert.tensor"},
      "parallel.expert.dispatcher is {}, expected parallel.expert.tensor: 1 with several tensor ranks", name);
  const std::string& network = scenario.cluster.network.inter_node.kind;
  const bool leaves_node = parallel.expert.size * sharing > scenario.cluster.devices_per_node;
  check.Expect(
      !leaves_node || (network != "ethernet" && network != "efa" && network != "omnipath"),
      {"parallel.expert.dispatcher", "cluster.network.inter_node.kind"},
      "parallel.expert.dispatcher is {}, expected infiniband or roce between the nodes of its ranks, not {}",
      name, network);
  check.Expect(parallel.expert.size > 1, {"parallel.expert.dispatcher", "parallel.expert.size"},
               "parallel.expert.dispatcher is {}, expected parallel.expert.size above 1, between whose ranks "
               "tokens go",
               name);
  check.Expect(
      !scenario.model.experts || scenario.model.experts->capacity_factor == 0,
      {"parallel.expert.dispatcher", "model.experts.capacity_factor"},
      "parallel.expert.dispatcher is {}, expected model.experts.capacity_factor 0: it pads no experts", name);
}

// Exchanges during another micro-batch's computation, as in Megatron's schedules and in DualPipeV.
void CheckExpertOverlap(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  check.Expect(!parallel.expert.delay_wgrad || parallel.expert.overlap,
               {"parallel.expert.delay_wgrad", "parallel.expert.overlap"},
               "parallel.expert.delay_wgrad is true, expected parallel.expert.overlap: true");
  if (!parallel.expert.overlap) return;
  check.Expect(parallel.expert.size > 1, {"parallel.expert.overlap", "parallel.expert.size"},
               "parallel.expert.overlap is true, expected parallel.expert.size above 1, between whose ranks "
               "tokens go");
  check.Expect(scenario.batch.accumulate > 1, {"parallel.expert.overlap", "batch.accumulate"},
               "parallel.expert.overlap is true, expected batch.accumulate above 1: one micro-batch computes "
               "while another's tokens are exchanged");
  const std::string& schedule = parallel.pipeline.schedule;
  check.Expect(
      parallel.pipeline.size == 1 || schedule == "interleaved" || schedule == "dualpipe_v",
      {"parallel.expert.overlap", "parallel.pipeline.schedule"},
      "parallel.expert.overlap is true, expected parallel.pipeline.schedule interleaved or dualpipe_v, not "
      "{}: others have no pairs of a forward and a backward of two micro-batches",
      schedule);
  check.Expect(!ShardsParameters(parallel.data.kind), {"parallel.expert.overlap", "parallel.data.kind"},
               "parallel.expert.overlap is true, expected another parallel.data.kind than {}, which gathers "
               "parameters in the order of one pass",
               WordOf(parallel.data.kind));
  check.Expect(scenario.recompute != Recompute::kFull, {"parallel.expert.overlap", "recompute"},
               "parallel.expert.overlap is true, expected another recompute than full, which would exchange "
               "tokens again");
  check.Expect(!scenario.Recomputes(RecomputeModule::kMoe), {"recompute_modules", "parallel.expert.overlap"},
               "recompute_modules has moe, which exchanges tokens again, expected it without "
               "parallel.expert.overlap");
}

void CheckExpertRanks(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  const int64_t size = parallel.expert.size;
  const int64_t copies = parallel.data.size * parallel.context.size;
  check.Expect(parallel.expert.tensor == 0 || scenario.model.experts.has_value(), {"parallel.expert.tensor"},
               "parallel.expert.tensor is {}, expected 0 for a model without model.experts",
               parallel.expert.tensor);
  if (!scenario.model.experts && parallel.expert.tensor != 0) return;
  check.Expect(parallel.expert.tensor <= 1 || parallel.expert.tensor == parallel.tensor.size,
               {"parallel.expert.tensor", "parallel.tensor.size"},
               "parallel.expert.tensor is {}, expected 1 or tensor.size ({})", parallel.expert.tensor,
               parallel.tensor.size);
  if (parallel.TensorRanksHaveExperts()) CheckExpertsOfTensorRanks(parallel, check);
  else
    check.Expect(Divides(size, copies), {"parallel.expert.size"},
                 "parallel.expert.size is {}, expected a divisor of data x context ({})", size, copies);
  check.Expect(size == 1 || scenario.model.experts.has_value(), {"parallel.expert.size"},
               "parallel.expert.size is {}, expected 1 for a model without model.experts", size);
  CheckDispatcher(scenario, check);
  CheckExpertOverlap(scenario, check);
  const int64_t shard = parallel.data.shard_size, ranks = parallel.ExpertDataRanks();
  check.Expect(shard == 0 || Divides(ranks, shard) || Divides(shard, ranks),
               {"parallel.data.shard_size", "parallel.expert.size"},
               "parallel.data.shard_size is {}, expected a divisor or a multiple of the {} ranks of the data "
               "axis that share the experts, so that a shard group has every expert equally often",
               shard, ranks);
  if (!scenario.model.experts) return;
  check.Expect(!parallel.expert.overlap || scenario.model.experts->latent == 0,
               {"parallel.expert.overlap", "model.experts.latent"},
               "parallel.expert.overlap is true, expected false with model.experts.latent, whose projections "
               "have no place in the turns of micro-batches");
  check.Expect(Divides(size, scenario.model.experts->count), {"parallel.expert.size"},
               "parallel.expert.size is {}, expected a divisor of model.experts.count ({})", size,
               scenario.model.experts->count);
}

}  // namespace

void CheckSplits(const Scenario& scenario, Checker& check) {
  if (scenario.model.kind == ModelKind::kMlp) return CheckMlpSplits(scenario, check);
  CheckTransformerSplits(scenario, check);
  CheckExpertRanks(scenario, check);
}

}  // namespace windtunnel
