#include "scenarios/checks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "scenarios/checker.h"
#include "scenarios/defaults.h"
#include "scenarios/derived.h"
#include "scenarios/describe.h"
#include "scenarios/encoder_checks.h"
#include "scenarios/graph_checks.h"
#include "scenarios/lora_checks.h"
#include "scenarios/model_checks.h"
#include "scenarios/optimizer_checks.h"
#include "scenarios/pattern_checks.h"
#include "scenarios/powersgd_checks.h"
#include "scenarios/precision_checks.h"
#include "scenarios/recompute_checks.h"
#include "scenarios/split_checks.h"
#include "scenarios/zero3_checks.h"

namespace windtunnel {
namespace {

constexpr double kLeastRate = 1e-6;  // of a link, in GB/s or Gbit/s

int64_t LongestSequence(const ModelSpec& model) {
  return std::max(model.seq_len, model.encoder ? model.encoder->seq_len : 0);
}

// Bounds on products, computed in double since they may not fit 64 bits. They are far above any real model,
// and low enough for 64-bit arithmetic on bytes.
void CheckSizes(const Scenario& scenario, Checker& check) {
  constexpr double kMostParameters = 1e15;
  constexpr double kMostElements = 1e15;  // of one tensor
  const ModelSpec& model = scenario.model;
  auto product = [](auto... factors) { return (1.0 * ... * static_cast<double>(factors)); };
  int64_t experts = model.experts ? model.experts->count : 1;
  int64_t matrices = IsGated(model.activation) ? 3 : 2;
  // Columns of the projections to the heads and from them.
  const double heads = product(2, model.heads + model.kv_heads, model.head_dim);
  const int64_t shared = model.experts ? model.experts->shared_ffn : 0;
  const LatentAttentionSpec latent = model.latent_attention.value_or(LatentAttentionSpec{});
  const double ranks = product(latent.q_rank) + product(latent.kv_rank);
  const double values = product(model.heads, model.ValueDim());
  const double of_latents = model.latent_attention ? ranks * (product(model.hidden) + heads + values) +
                                                         product(model.hidden) * values
                                                   : 0;
  const int64_t layers = model.AllLayers() + model.MtpLayers();
  const MambaSpec mamba = model.mamba.value_or(MambaSpec{.state = 0});
  const double of_mamba =  // columns of its two projections
      product(3, mamba.heads, mamba.head_dim) + product(2, mamba.groups, mamba.state) + product(mamba.heads);
  const double of_net =
      model.delta_net ? product(model.delta_net->packed()) + product(model.delta_net->inner()) : 0;
  double parameters = product(layers, model.hidden) * (of_mamba + of_net) + product(layers) * of_latents +
                      product(layers, model.hidden) *
                          (heads + product(matrices, model.ffn, experts) + product(matrices, shared) +
                           product(matrices, model.MixesExperts() ? model.DenseFfn() : 0)) +
                      product(model.encoder ? model.layers : 0, model.hidden) * heads +  // cross-attention
                      product(2, model.vocab, model.hidden) + product(model.SampleTokens(), model.hidden) +
                      product(2, model.MtpLayers(), model.hidden, model.hidden);
  double widest = std::max({product(4, model.hidden), heads, product(2, model.ffn), product(2, shared),
                            product(2, model.DenseFfn()), ranks, heads + values, product(model.vocab),
                            product(4) * (of_mamba + of_net), product(model.heads, LongestSequence(model))});
  for (size_t i = 1; i < model.widths.size(); ++i)
    parameters += product(model.widths[i - 1], model.widths[i]);
  for (int64_t width : model.widths) widest = std::max(widest, product(width));
  check.Expect(parameters <= kMostParameters, {"model.layers", "model.widths"},
               "the model has {:.1e} parameters, expected at most {:.0e}", parameters, kMostParameters);
  double elements = product(scenario.batch.micro, std::max<int64_t>(LongestSequence(model), 1)) * widest;
  check.Expect(elements <= kMostElements, {"batch.micro", "model.seq_len"},
               "a micro-batch has a tensor of {:.1e} elements, expected at most {:.0e}", elements,
               kMostElements);
  const double tokens = product(scenario.batch.micro, scenario.batch.accumulate, scenario.parallel.data.size,
                                std::max<int64_t>(model.SampleTokens(), 1));
  check.Expect(tokens <= kMostTokens, {"batch.accumulate", "batch.micro", "parallel.data.size"},
               "a step has {:.1e} tokens (micro x accumulate x data x seq_len), expected at most {:.0e}",
               tokens, kMostTokens);
}

void CheckScheduler(const Scenario& scenario, Checker& check) {
  const LearningRateScheduler& scheduler = scenario.lr_scheduler;
  const bool ends =
      scheduler.decay != LearningRateDecay::kNone && scheduler.decay != LearningRateDecay::kStep;
  check.Expect(ends || scheduler.decay_steps == 0, {"lr_scheduler.decay_steps", "lr_scheduler.decay"},
               "lr_scheduler.decay_steps is {}, expected 0 with decay: {}, which has no end",
               scheduler.decay_steps, WordOf(scheduler.decay));
  if (!ends) return;
  const int64_t total =
      scheduler.total_steps > 0 ? scheduler.total_steps : scenario.run.warmup + scenario.run.steps;
  check.Expect(
      scheduler.warmup_steps + std::max<int64_t>(scheduler.decay_steps, 1) <= total,
      {"lr_scheduler.warmup_steps", "lr_scheduler.decay_steps", "lr_scheduler.total_steps"},
      "lr_scheduler has {} steps of warm-up and at least {} of decay, expected no more than the {} of "
      "the schedule (total_steps, else run.warmup + run.steps)",
      scheduler.warmup_steps, std::max<int64_t>(scheduler.decay_steps, 1), total);
}

// framework megatron is Megatron-LM from before Megatron-Core; deepspeed is DeepSpeed's fork of it.
void CheckActivation(const Scenario& scenario, Checker& check) {
  const bool is_before_core =
      scenario.framework == Framework::kMegatron || scenario.framework == Framework::kDeepspeed;
  const ActivationKind kind = scenario.model.activation;
  check.Expect(
      !is_before_core || (kind != ActivationKind::kGeglu && kind != ActivationKind::kClampedSwiglu),
      {"model.activation", "framework"},
      "model.activation is '{}', expected gelu, relu, squared_relu or swiglu with framework: {}, which "
      "has no other",
      WordOf(kind), WordOf(scenario.framework));
}

// Offloading is allowed only for what is sharded, since only that is worth the transfers to the host and
// back. Only FSDP and ZeRO-3 gather parameters when they are needed.
void CheckOffload(const DataParallelSpec& data, Checker& check) {
  const bool sharded = IsSharded(data.kind);
  check.Expect(data.offload != Offload::kParam || ShardsParameters(data.kind), {"parallel.data.offload"},
               "parallel.data.offload is 'param', expected {} unless kind is zero3 or fsdp",
               sharded ? "none or optimizer" : "none");
  check.Expect(
      data.offload != Offload::kOptimizer || sharded, {"parallel.data.offload"},
      "parallel.data.offload is 'optimizer', expected none unless kind is zero1, zero2, zero3 or fsdp");
}

// Gradients that are views of the buckets have the buckets' type.
void CheckBucketView(const Scenario& scenario, Checker& check) {
  const DataParallelSpec& data = scenario.parallel.data;
  bool view = data.kind == DataParallelKind::kDdp && data.gradient_as_bucket_view;
  check.Expect(!view || scenario.precision.reduce == scenario.precision.param,
               {"parallel.data.gradient_as_bucket_view", "precision.reduce"},
               "parallel.data.gradient_as_bucket_view is true, expected precision.reduce ({}) to be "
               "precision.param ({})",
               WordOf(scenario.precision.reduce), WordOf(scenario.precision.param));
}

// FSDP 2's reshard_after_forward as a number. `copies`: the number of copies of the weights in all.
void CheckReshardRanks(const ParallelSpec& parallel, int64_t copies, Checker& check) {
  const DataParallelSpec& data = parallel.data;
  const int64_t ranks = data.reshard_ranks;
  if (ranks == 0) return;
  const char* key = "parallel.data.reshard_after_forward";
  check.Expect(data.version == 2, {key, "parallel.data.version"},
               "{} is {}, expected true or false for version: 1, which has no numbers", key, ranks);
  const int64_t sharing = data.sharding == Sharding::kNoShard ? 1
                          : IsHybrid(data.sharding)           ? data.shard_size
                                                              : copies;
  check.Expect(Divides(ranks, sharing), {key, "parallel.data.shard_size", "parallel.data.size"},
               "{} is {}, expected a divisor of the {} ranks that share a unit", key, ranks, sharing);
  check.Expect(parallel.expert.size == 1, {key, "parallel.expert.size"},
               "{} is {}, expected true or false where ranks share experts, which are sharded over others",
               key, ranks);
}

void CheckData(const ParallelSpec& parallel, Checker& check) {
  const DataParallelSpec& data = parallel.data;
  const int64_t copies = data.size * parallel.context.size;  // of the weights, which reduce gradients
  const char* of_copies =
      parallel.context.size > 1 ? "parallel.data.size x context.size" : "parallel.data.size";
  check.Expect(data.kind != DataParallelKind::kNone || data.size == 1,
               {"parallel.data.size", "parallel.data.kind"},
               "parallel.data.size is {}, expected 1 for kind: none", data.size);
  check.Expect(
      data.kind != DataParallelKind::kNone || data.size > 1 || copies == 1,
      {"parallel.context.size", "parallel.data.kind"},
      "parallel.context.size is {}, expected 1 for parallel.data.kind: none: context-parallel ranks reduce "
      "gradients as data-parallel ones do",
      parallel.context.size);
  CheckOffload(data, check);
  const bool zero = IsZero(data.kind);
  const bool in_groups = (zero || data.kind == DataParallelKind::kZero3) && data.shard_size > 0;
  check.Expect(
      !in_groups || Divides(data.shard_size, copies), {"parallel.data.shard_size", "parallel.data.size"},
      "parallel.data.shard_size is {}, expected a divisor of {} ({})", data.shard_size, of_copies, copies);
  check.Expect(
      !data.overlap_param_gather || (zero && data.overlap), {"parallel.data.overlap_param_gather"},
      "parallel.data.overlap_param_gather is true, expected false unless kind is zero1 or zero2 with "
      "overlap: true");
  if (data.kind != DataParallelKind::kFsdp) return;
  check.Expect(!IsHybrid(data.sharding) || Divides(data.shard_size, copies),
               {"parallel.data.shard_size", "parallel.data.size"},
               "parallel.data.shard_size is {}, expected a divisor of {} ({})", data.shard_size, of_copies,
               copies);
  check.Expect(!KeepsParameters(data.sharding) || !data.reshard_after_forward,
               {"parallel.data.reshard_after_forward"},
               "parallel.data.reshard_after_forward is {}, expected false for sharding: {}",
               data.reshard_ranks > 0 ? fmt::to_string(data.reshard_ranks) : "true", WordOf(data.sharding));
  CheckReshardRanks(parallel, copies, check);
}

// DataParallel runs threads of one process around one model; nothing is sharded.
void CheckOneProcess(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  if (parallel.data.kind != DataParallelKind::kDp) return;
  const std::pair<const char*, int64_t> others[] = {{"parallel.pipeline.size", parallel.pipeline.size},
                                                    {"parallel.tensor.size", parallel.tensor.size},
                                                    {"parallel.context.size", parallel.context.size},
                                                    {"parallel.expert.size", parallel.expert.size}};
  for (const auto& [path, size] : others) {
    check.Expect(size == 1, {path},
                 "{} is {}, expected 1 for parallel.data.kind: dp, which goes with nothing else", path, size);
  }
  check.Expect(parallel.data.shard_size == 0, {"parallel.data.shard_size"},
               "parallel.data.shard_size is {}, expected none for kind: dp, which shards nothing",
               parallel.data.shard_size);
  check.Expect(scenario.cluster.nodes == 1, {"cluster.nodes"},
               "cluster.nodes is {}, expected 1 for parallel.data.kind: dp, which is one process",
               scenario.cluster.nodes);
  check.Expect(!scenario.model.mtp, {"model.mtp", "parallel.data.kind"},
               "model.mtp is given, expected parallel.data.kind other than dp, which takes one loss of one "
               "gathered output");
}

// Without layers, the first stage has only the embedding, and the last one only the head.
void CheckStagesWithoutLayers(const Scenario& scenario, Checker& check) {
  const std::vector<int64_t>& balance = scenario.parallel.pipeline.balance;
  if (std::find(balance.begin(), balance.end(), 0) == balance.end()) return;
  // Only these, or with the heads apart the last two, may have none.
  const std::ptrdiff_t at_end = PredictsBeforeLastStage(scenario) ? 2 : 1;
  const bool ends_only = std::ssize(balance) > 1 && (std::ssize(balance) <= at_end + 1 ||
                                                     std::find(balance.begin() + 1, balance.end() - at_end,
                                                               0) == balance.end() - at_end);
  check.Expect(
      ends_only && scenario.model.kind == ModelKind::kTransformer, {"parallel.pipeline.balance"},
      "parallel.pipeline.balance has a stage without layers, expected at least one in all but the first "
      "stage (which may have the embedding alone) and the last {} of a transformer",
      at_end == 2 ? "two (the modules of model.mtp, the heads)" : "(the head)");
  check.Expect(!scenario.parallel.expert.overlap, {"parallel.pipeline.balance", "parallel.expert.overlap"},
               "parallel.pipeline.balance has a stage without layers, expected at least one in each with "
               "parallel.expert.overlap");
}

// A unit of FSDP or ZeRO-3 is gathered, and its gradients are reduced, once in a backward.
void CheckRepeatedModules(const Scenario& scenario, Checker& check) {
  const DataParallelKind kind = scenario.parallel.data.kind;
  check.Expect(!RepeatsModule(scenario.model) || !ShardsParameters(kind),
               {"model.mtp.repeated", "parallel.data.kind"},
               "model.mtp.repeated is true, expected false with parallel.data.kind: {}, which would gather "
               "the module for each depth",
               WordOf(kind));
}

void CheckStageOfPredictions(const Scenario& scenario, Checker& check) {
  if (!PredictsBeforeLastStage(scenario)) return;
  const std::string key = "parallel.pipeline.mtp";
  const std::vector<int64_t>& balance = scenario.parallel.pipeline.balance;
  check.Expect(!scenario.model.tie_embeddings, {key, "model.tie_embeddings"},
               "parallel.pipeline.mtp is before_last, expected last with model.tie_embeddings, since three "
               "stages would have the table");
  check.Expect(
      !scenario.parallel.expert.overlap, {key, "parallel.expert.overlap"},
      "parallel.pipeline.mtp is before_last, expected last with parallel.expert.overlap, which pairs "
      "stages that have layers");
  check.Expect(balance.empty() || balance.back() == 0, {"parallel.pipeline.balance", key},
               "parallel.pipeline.balance ends with {}, expected 0 with parallel.pipeline.mtp: before_last, "
               "where the last stage has the heads alone",
               balance.empty() ? 0 : balance.back());
}

void CheckBalance(const Scenario& scenario, int64_t layers, Checker& check) {
  const PipelineSpec& pipeline = scenario.parallel.pipeline;
  int64_t stages = pipeline.size * pipeline.virtual_stages;
  CheckStagesWithoutLayers(scenario, check);
  CheckStageOfPredictions(scenario, check);
  if (pipeline.balance.empty()) {
    const int64_t without_layers = PredictsBeforeLastStage(scenario) ? 1 : 0;
    check.Expect(
        stages <= layers + without_layers || EndsAreStages(scenario, stages, layers),
        {"parallel.pipeline.size", "parallel.pipeline.virtual_stages"},
        "the pipeline has {} stages (size {} x virtual_stages {}), expected at most the model's {} layers{}",
        stages, pipeline.size, pipeline.virtual_stages, layers, without_layers > 0 ? " plus 1" : "");
    return;
  }
  if (!pipeline.schedule.ends_with(".csv")) {  // a schedule file says itself how many stages there are
    check.Expect(static_cast<int64_t>(pipeline.balance.size()) == stages, {"parallel.pipeline.balance"},
                 "parallel.pipeline.balance has {} entries, expected {} (size {} x virtual_stages {})",
                 pipeline.balance.size(), stages, pipeline.size, pipeline.virtual_stages);
  }
  int64_t sum = std::accumulate(pipeline.balance.begin(), pipeline.balance.end(), int64_t{0});
  check.Expect(sum == layers, {"parallel.pipeline.balance"},
               "parallel.pipeline.balance adds up to {}, expected the model's {} layers", sum, layers);
}

void CheckCrossEntropy(const Scenario& scenario, Checker& check) {
  if (scenario.cross_entropy == CrossEntropyKind::kFramework) return;
  check.Expect(
      scenario.model.kind == ModelKind::kTransformer, {"cross_entropy", "model.kind"},
      "cross_entropy is fused, expected it left out for kind: mlp, whose loss is a mean squared error");
  check.Expect(
      HasFusedLosses(scenario.framework), {"cross_entropy", "framework"},
      "cross_entropy is fused, expected framework windtunnel, pytorch, pytorch_compile or megatron_core, "
      "which have it, not {}",
      WordOf(scenario.framework));
}

void CheckLossChunks(const Scenario& scenario, Checker& check) {
  const int64_t chunks = scenario.cross_entropy_chunks;
  if (chunks == 1) return;
  const char* key = "cross_entropy_chunks";
  check.Expect(scenario.model.kind == ModelKind::kTransformer, {key, "model.kind"},
               "cross_entropy_chunks is {}, expected 1 for kind: mlp, whose loss is a mean squared error",
               chunks);
  check.Expect(scenario.framework == Framework::kWindtunnel || IsPytorch(scenario.framework),
               {key, "framework"},
               "cross_entropy_chunks is {}, expected 1 for framework {}, which has no such loss", chunks,
               WordOf(scenario.framework));
  check.Expect(!scenario.model.mtp, {key, "model.mtp"},
               "cross_entropy_chunks is {}, expected 1 with model.mtp", chunks);
  check.Expect(scenario.parallel.data.kind != DataParallelKind::kDp, {key, "parallel.data.kind"},
               "cross_entropy_chunks is {}, expected 1 with parallel.data.kind: dp, whose first device has "
               "the loss of all",
               chunks);
  const double tokens = static_cast<double>(scenario.batch.micro) *
                        static_cast<double>(scenario.model.seq_len) /
                        static_cast<double>(scenario.parallel.context.size);
  check.Expect(std::fmod(tokens, static_cast<double>(chunks)) == 0, {key, "batch.micro", "model.seq_len"},
               "cross_entropy_chunks is {}, expected a divisor of the {} tokens of a rank's micro-batch",
               chunks, tokens);
}

void CheckFlashKernels(const Scenario& scenario, Checker& check) {
  const ModelSpec& model = scenario.model;
  if (model.flash_kernels == FlashChoice::kFramework) return;
  const std::string_view chosen = WordOf(model.flash_kernels);
  check.Expect(model.attention == AttentionKind::kFlash, {"model.flash_kernels", "model.attention"},
               "model.flash_kernels is {}, expected it left out for attention: eager, which is not fused",
               chosen);
  check.Expect(
      scenario.framework != Framework::kWindtunnel, {"model.flash_kernels", "framework"},
      "model.flash_kernels is {}, expected it left out for framework: windtunnel, which has cuDNN's where "
      "they are and its own elsewhere",
      chosen);
}

// A reduction in every backward does not go with a pipeline, which has the gradients of several micro-batches
// in flight.
void CheckPipelineWithData(const ParallelSpec& parallel, Checker& check) {
  const DataParallelSpec& data = parallel.data;
  const bool reduces = IsSharded(data.kind) || data.size * parallel.context.size > 1;
  if (parallel.pipeline.size == 1 || !reduces) return;
  check.Expect(data.kind != DataParallelKind::kZero2, {"parallel.data.kind", "parallel.pipeline.size"},
               "parallel.data.kind is zero2, which keeps no gradients between micro-batches, expected zero1, "
               "ddp or fsdp in a "
               "pipeline");
  check.Expect(data.sync == GradientSync::kLastMicroBatch || data.kind == DataParallelKind::kZero3,
               {"parallel.data.sync", "parallel.pipeline.size"},
               "parallel.data.sync is every_micro_batch, expected last_micro_batch in a pipeline");
}

void CheckPipeline(const Scenario& scenario, Checker& check) {
  const PipelineSpec& pipeline = scenario.parallel.pipeline;
  const ModelSpec& model = scenario.model;
  bool mlp = model.kind == ModelKind::kMlp;
  CheckBalance(scenario, mlp ? static_cast<int64_t>(model.widths.size()) - 1 : model.AllLayers(), check);
  const std::string& schedule = pipeline.schedule;
  check.Expect(!HasOneStagePerRank(schedule) || pipeline.virtual_stages == 1,
               {"parallel.pipeline.virtual_stages", "parallel.pipeline.schedule"},
               "parallel.pipeline.virtual_stages is {}, expected 1 for schedule: {}", pipeline.virtual_stages,
               schedule);
  check.Expect(!IsVSchedule(schedule) || pipeline.virtual_stages == 2,
               {"parallel.pipeline.virtual_stages", "parallel.pipeline.schedule"},
               "parallel.pipeline.virtual_stages is {}, expected 2 for schedule: {}", pipeline.virtual_stages,
               schedule);
}

void CheckLink(const LinkSpec& link, const std::string& path, const TextRule& kinds, Checker& check) {
  const bool is_known = link.kind.empty() || kinds.Accepts(link.kind);
  check.Expect(is_known, {path + ".kind", path}, "{} is '{}', expected {}", path, link.kind,
               is_known ? "" : kinds.Expected());
  bool named = !link.kind.empty() || link.gbytes_per_s > 0 || link.gbits_per_nic > 0;
  for (const auto& [key, rate] :
       {std::pair("gbytes_per_s", link.gbytes_per_s), std::pair("gbits_per_nic", link.gbits_per_nic)}) {
    check.Expect(rate == 0 || rate >= kLeastRate, {path + "." + key}, "{}.{} is {}, expected at least {}",
                 path, key, rate, kLeastRate);
  }
  check.Expect(named || !link.latency_us, {path},
               "{} has a latency, but neither a kind nor a rate above 0, expected kind, gbytes_per_s or "
               "gbits_per_nic",
               path);
}

void CheckTopology(const TopologySpec& topology, Checker& check) {
  const bool is_spelled_out = !topology.nodes.empty() || !topology.links.empty();
  check.Expect(topology.preset.empty() || !is_spelled_out,
               {"cluster.topology.nodes", "cluster.topology.links"},
               "cluster.topology has nodes and links beside preset '{}', expected either", topology.preset);
  const bool has_preset_keys = topology.oversubscription != 1 || topology.nodes_per_leaf != 0;
  check.Expect(
      is_spelled_out || !topology.preset.empty() || !has_preset_keys,
      {"cluster.topology.oversubscription", "cluster.topology.nodes_per_leaf"},
      "cluster.topology has oversubscription or nodes_per_leaf alone, expected a preset beside them");
  check.Expect(!is_spelled_out || !has_preset_keys,
               {"cluster.topology.oversubscription", "cluster.topology.nodes_per_leaf"},
               "cluster.topology.oversubscription and nodes_per_leaf are for presets, expected links' own "
               "gbytes_per_s");
  std::set<std::string> names;
  for (const TopologyNode& node : topology.nodes) {
    check.Expect(names.insert(node.name).second, {"cluster.topology.nodes"},
                 "cluster.topology.nodes has '{}' twice, expected distinct names", node.name);
  }
  for (const TopologyLink& link : topology.links) {
    check.Expect(link.gbytes_per_s >= kLeastRate, {"cluster.topology.links"},
                 "cluster.topology.links has a gbytes_per_s of {}, expected at least {}", link.gbytes_per_s,
                 kLeastRate);
    for (const std::string& end : {link.from, link.to}) {
      check.Expect(
          names.count(end) == 1, {"cluster.topology.links"},
          "cluster.topology.links has an end '{}', expected the name of one of cluster.topology.nodes", end);
    }
  }
}

void CheckDeterminism(const Scenario& scenario, Checker& check) {
  check.Expect(
      !scenario.run.deterministic || scenario.framework == Framework::kWindtunnel, {"run.deterministic"},
      "run.deterministic is true, expected false for framework: {}: only Windtunnel's own kernels are known",
      WordOf(scenario.framework));
}

// What would make the two equal: the key of the cluster that was not given ("as with cluster.nodes: 2"), else
// ": parallel.data.size: 8 would use all of them". Nothing if no number does.
std::string WorldThatFits(const Checker& check, const ClusterSpec& cluster, double world, double devices,
                          int64_t data) {
  const double nodes = static_cast<double>(cluster.nodes),
               of_node = static_cast<double>(cluster.devices_per_node);
  const bool gives_nodes = check.Gives("cluster.nodes"),
             gives_of_node = check.Gives("cluster.devices_per_node");
  if (gives_nodes && !gives_of_node && std::fmod(world, nodes) == 0)
    return fmt::format(", as with cluster.devices_per_node: {}", world / nodes);
  if (gives_of_node && !gives_nodes && world > of_node && std::fmod(world, of_node) == 0)
    return fmt::format(", as with cluster.nodes: {}", world / of_node);
  const double of_replica = world / static_cast<double>(data);
  if (devices < of_replica || std::fmod(devices, of_replica) != 0) return "";
  return fmt::format(": parallel.data.size: {} would use all of them", devices / of_replica);
}

void CheckWorld(const Scenario& scenario, Checker& check) {
  const ParallelSpec& parallel = scenario.parallel;
  const ClusterSpec& cluster = scenario.cluster;
  const double world = UncheckedWorldSize(parallel);
  const double devices = static_cast<double>(cluster.nodes) * static_cast<double>(cluster.devices_per_node);
  check.Expect(
      world == devices,
      {"cluster.devices_per_node", "cluster.nodes", "parallel.data.size", "parallel.pipeline.size",
       "parallel.tensor.size", "parallel.context.size"},
      "the world size is {} (data {} x pipeline {} x tensor {} x context {}) but the cluster has {} devices "
      "(nodes {} x devices_per_node {}), expected the same number{}",
      world, parallel.data.size, parallel.pipeline.size, parallel.tensor.size, parallel.context.size, devices,
      cluster.nodes, cluster.devices_per_node,
      WorldThatFits(check, cluster, world, devices, parallel.data.size));
  check.Expect(world <= kRanks.max, {"parallel.data.size", "parallel.tensor.size"},
               "the world size is {}, expected at most {}", world, kRanks.max);
  if (!cluster.straggler) return;
  check.Expect(static_cast<double>(cluster.straggler->rank) < world, {"cluster.straggler.rank"},
               "cluster.straggler.rank is {}, expected less than the world size ({})",
               cluster.straggler->rank, world);
}

}  // namespace

void CheckScenario(const Scenario& scenario, const YamlNode& root, Problems& problems) {
  Checker check(root, problems);
  bool transformer = scenario.model.kind == ModelKind::kTransformer;
  if (transformer) CheckTransformer(scenario.model, check);
  else CheckMlp(scenario.model, check);
  if (!problems.empty()) return;  // the checks below divide by the model's dimensions
  CheckSizes(scenario, check);
  CheckActivation(scenario, check);
  CheckPrecision(scenario, check);
  CheckOptimizer(scenario, check);
  CheckScheduler(scenario, check);
  CheckData(scenario.parallel, check);
  CheckBucketView(scenario, check);
  check.Expect(transformer || scenario.recompute == Recompute::kNone, {"recompute"},
               "recompute is '{}', expected none for kind: mlp, which has no blocks",
               WordOf(scenario.recompute));
  CheckRecomputation(scenario, check);
  CheckCrossEntropy(scenario, check);
  CheckLossChunks(scenario, check);
  CheckFlashKernels(scenario, check);
  CheckPipeline(scenario, check);
  CheckPipelineWithData(scenario.parallel, check);
  CheckOneProcess(scenario, check);
  CheckLora(scenario, check);
  CheckEncoder(scenario, check);
  CheckPatterns(scenario, check);
  CheckRepeatedModules(scenario, check);
  CheckRelativePositions(scenario, check);
  CheckZero3(scenario, check);
  CheckPowerSgd(scenario, check);
  CheckSplits(scenario, check);
  const NetworkSpec& network = scenario.cluster.network;
  check.Expect(network.preset.empty() || scenario.cluster.device != "cpu",
               {"cluster.network.preset", "cluster.network"},
               "cluster.network is '{}', expected a network's parts for cluster.device: cpu", network.preset);
  const LinkSpec& within = network.intra_node;
  check.Expect(
      within.gbits_per_nic == 0 || within.gbytes_per_s > 0 || !within.kind.empty(),
      {"cluster.network.intra_node.gbits_per_nic"},
      "cluster.network.intra_node.gbits_per_nic is {}, expected kind or gbytes_per_s: no NICs are within "
      "a node",
      within.gbits_per_nic);
  CheckLink(scenario.cluster.network.intra_node, "cluster.network.intra_node", IntraNodeKinds(), check);
  CheckLink(scenario.cluster.network.inter_node, "cluster.network.inter_node", InterNodeKinds(), check);
  CheckTopology(scenario.cluster.topology, check);
  CheckGraphs(scenario, check);
  CheckDeterminism(scenario, check);
  CheckWorld(scenario, check);
}

namespace {

Status FirstOf(const Problems& problems) {
  if (problems.empty()) return Ok();
  return InvalidInput("{}", problems.InOrder().front().message);
}

const YamlNode& Nothing() {
  static const YamlNode nothing;
  return nothing;
}

}  // namespace

Status CheckScenario(const Scenario& scenario) {
  Problems problems;
  CheckScenario(scenario, Nothing(), problems);
  return FirstOf(problems);
}

Status CheckSplits(const Scenario& scenario) {
  Problems problems;
  Checker check(Nothing(), problems);
  CheckSplits(scenario, check);
  return FirstOf(problems);
}

}  // namespace windtunnel
