// The scenario file's format, written once: every key, its member, the values it may have, and one line of
// documentation. Visitors of this description read scenarios (reader.h), print them (printer.h) and generate
// the JSON Schema (json_schema.h), so the three cannot differ.
//
// A visitor has a function for each kind of key:
//   Integer, Number, Flag      a scalar
//   FlagOrInteger              true, false, or a number, which counts as true
//   Text                       a string under a TextRule
//   Path                       a file, relative to the scenario's directory
//   Word, Words                a word of an enumeration (of those listed, if any are); a list of words
//   Integers, Paths            lists
//   Block, OptionalBlock, Blocks  a block with its own description; one that may be missing; a list of them
//   TextOrBlock                a short form (text), or the block
//   Wrap                       an FSDP wrap policy
//   WordOrPath                 a word, or a path with the given suffix
//   InputOnly                  a key that is read elsewhere and never printed
//   Require                    a key that the block must have
//   RequireWithoutPreset       the same, unless a preset has the block
//   Covers(condition)          whether to visit keys that make sense only under `condition`
// Every size and count is bounded; checks.cc bounds their products, so that later code stays within 64 bits.
#pragma once

#include "scenarios/describe_model.h"
#include "scenarios/known_names.h"
#include "scenarios/known_schedules.h"
#include "scenarios/rules.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Links between devices of one node, and links between nodes.
inline TextRule IntraNodeKinds() {
  return {.other = TextRule::Other::kNothing,
          .words = {"nvlink2", "nvlink2_mesh", "nvlink3", "nvlink3x8", "nvlink4", "nvlink4x8", "nvlink5",
                    "pcie3", "pcie4", "pcie5", "loopback"}};
}
inline TextRule InterNodeKinds() {
  return {.other = TextRule::Other::kNothing, .words = {"infiniband", "roce", "ethernet", "omnipath", "efa"}};
}
// For a link's own block, which may be of either sort; checks.cc knows which sort it is.
inline TextRule LinkKinds() {
  TextRule rule = IntraNodeKinds();
  for (const std::string& kind : InterNodeKinds().words) rule.words.push_back(kind);
  return rule;
}

inline TextRule NetworkPresets() {
  TextRule rule{.other = TextRule::Other::kNothing, .words = {}};
  for (const KnownNetwork& known : kKnownNetworks) rule.words.emplace_back(known.name);
  return rule;
}

inline TextRule Devices() {
  TextRule rule{.words = {}};
  for (const std::string_view name : kKnownDevices) rule.words.emplace_back(name);
  return rule;
}

inline TextRule TopologyPresets() {
  TextRule rule{.other = TextRule::Other::kNothing, .words = {}};
  for (const KnownTopology& known : kKnownTopologies) rule.words.emplace_back(known.name);
  return rule;
}

inline TextRule Schedules() {
  TextRule rule{.other = TextRule::Other::kCsvFile, .words = {}};
  for (const KnownSchedule& known : kKnownSchedules) rule.words.emplace_back(known.name);
  return rule;
}

template <typename V>
void Describe(V& v, BatchSpec& batch) {
  v.Integer("micro", batch.micro, kSize,
            "sequences (mlp: samples) per micro-batch of one replica (default 1)");
  v.Integer("accumulate", batch.accumulate, kSize, "micro-batches per step (default 1)");
}

template <typename V>
void Describe(V& v, PrecisionSpec& precision) {
  using P = Precision;
  v.Word("param", precision.param, {P::kFp32, P::kBf16, P::kFp16},
         "gathered and stored for forward (default fp32)");
  v.Word("compute", precision.compute, "what kernels run in (default param)");
  v.Word("reduce", precision.reduce, {P::kFp32, P::kBf16, P::kFp16},
         "gradients on the wire (default fp32; zero3, unless Windtunnel's own: param)");
  v.Word("buffer", precision.buffer, {P::kFp32, P::kBf16, P::kFp16}, "module buffers (default fp32)");
  v.Word(
      "optimizer", precision.optimizer, {P::kFp32, P::kBf16},
      "what is updated, and moments: fp32 (default); bf16: the parameters themselves, with param: bf16 and "
      "framework pytorch or pytorch_compile");
  v.Word("fp8_recipe", precision.fp8_recipe,
         "scaling of compute: fp8 (default tensorwise) or fp4 (nvfp4, the only choice); without these none");
  v.Flag(
      "fp8_param_gather", precision.fp8_param_gather,
      "weights of fp8 products are stored and gathered in fp8: zero1 of megatron_core, or fsdp (version 2) "
      "with fp8_recipe: tensorwise (default false)");
  v.WordOrNumber("loss_scale", precision.loss_scale, precision.static_loss_scale, MoreThan(0),
                 "what the loss is multiplied by before backward (default dynamic where param or compute is "
                 "fp16, else none); a number is static");
  v.Number("init_scale", precision.init_scale, MoreThan(0),
           "of loss_scale: dynamic, in the first step (default 65536)");
  v.Integer("growth_interval", precision.growth_interval, kSize,
            "of loss_scale: dynamic, steps without overflow until the scale doubles (default 2000)");
}

template <typename V>
void Describe(V& v, OptimizerSpec& optimizer) {
  v.Word("kind", optimizer.kind, "default adamw");
  v.Number("lr", optimizer.lr, AtLeast(0), "learning rate (default 3e-4)");
  v.Number("beta1", optimizer.beta1, FromToBelow(0, 1), "adam, adamw, muon (default 0.9)");
  v.Number("beta2", optimizer.beta2, FromToBelow(0, 1), "adam, adamw, muon (default 0.999)");
  v.Number("eps", optimizer.eps, AtLeast(0), "adam, adamw, muon (default 1e-8)");
  v.Number("weight_decay", optimizer.weight_decay, AtLeast(0),
           "default 0.01 for adamw, 0.1 for muon, else 0");
  v.Number("momentum", optimizer.momentum, FromToBelow(0, 1), "sgd (default 0), muon (default 0.95)");
  v.Integer("ns_steps", optimizer.ns_steps, From(1, 20), "muon: Newton-Schulz iterations (default 5)");
  v.Word("adjust_lr", optimizer.adjust_lr,
         "muon: by what the rate of a matrix is multiplied (default match_rms_adamw)");
  v.Word("moments", optimizer.moments,
         "what adam's and adamw's moments, and the momentum of sgd and muon, are stored in between updates, "
         "which compute in fp32; int8, for adam and adamw: as bitsandbytes' and torchao's 8-bit optimizers "
         "(default precision.optimizer)");
  v.Number("clip_norm", optimizer.clip_norm, AtLeast(0), "largest gradient norm; 0 does not clip (default)");
  v.Flag("zero_redundancy", optimizer.zero_redundancy,
         "kind: ddp of windtunnel, pytorch and pytorch_compile: PyTorch's ZeroRedundancyOptimizer, each rank "
         "updates some of the parameters and broadcasts them (default false)");
  v.Flag("parameters_as_bucket_view", optimizer.parameters_as_bucket_view,
         "zero_redundancy: a rank's parameters lie in one buffer and are broadcast together (default false)");
  v.Flag("in_backward", optimizer.in_backward,
         "each parameter is updated in backward, once its gradient is complete, which is then dropped: one "
         "data-parallel rank, or fsdp (default false)");
  v.Flag("fused", optimizer.fused,
         "torch.optim's fused=True, for framework pytorch and pytorch_compile; default false (foreach)");
}

template <typename V>
void Describe(V& v, LearningRateScheduler& scheduler) {
  v.Integer("warmup_steps", scheduler.warmup_steps, kCount,
            "first steps, in which the rate rises linearly to optimizer.lr (default 0)");
  v.Word("decay", scheduler.decay, "how the rate falls in the last decay_steps steps (default none)");
  v.Integer("total_steps", scheduler.total_steps, kCount,
            "steps of the whole schedule; 0 (default): those of the run, with its warm-up");
  v.Integer("decay_steps", scheduler.decay_steps, kCount, "0 (default): all steps after the warm-up");
  v.Number("min_lr_factor", scheduler.min_lr_factor, From(0, 1),
           "what the rate falls to, over optimizer.lr (default 0)");
  v.Integer("step_size", scheduler.step_size, kSize, "of decay: step, the steps of one rate (default 1)");
  v.Number("gamma", scheduler.gamma, From(0, 1),
           "of decay: step, what the rate is multiplied by after these (default 0.1)");
}

template <typename V>
void Describe(V& v, Zero3Spec& zero3) {
  constexpr Bounds elements = From(0, 1e15);
  v.Integer("prefetch_bucket_size", zero3.prefetch_bucket_size, elements,
            "gathered ahead at every module, and what passes it (default 50 million; 0: nothing is)");
  v.Integer("param_persistence_threshold", zero3.param_persistence_threshold, elements,
            "parameters of up to so many are whole on every rank (default 100 thousand)");
  v.Integer("max_live_parameters", zero3.max_live_parameters, elements,
            "nothing is gathered ahead while so many are whole (default 1 billion)");
  v.Integer("max_reuse_distance", zero3.max_reuse_distance, elements,
            "parameters stay whole if they are used again within so many others (default 1 billion)");
}

template <typename V>
void Describe(V& v, PowerSgdSpec& powersgd) {
  v.Integer("rank", powersgd.rank, From(1, 65536),
            "columns of the two matrices that stand for a gradient (default 1)");
  v.Integer("start_step", powersgd.start_step, From(2, 1e9),
            "steps before it reduce whole gradients (default 2; PyTorch: 1000)");
  v.Number("min_compression_rate", powersgd.min_compression_rate, MoreThan(0),
           "gradients that would not become shorter by more than this are reduced whole (default 2)");
  v.Flag("error_feedback", powersgd.error_feedback,
         "what compression loses is added to the next step's gradients (default true)");
}

template <typename V>
void Describe(V& v, DataParallelSpec& data) {
  v.Word("kind", data.kind, "default none for one rank of data x context, else ddp");
  v.Integer("size", data.size, kRanks, "replicas (default 1)");
  v.Word("sharding", data.sharding, "fsdp (default full_shard)");
  v.Integer("version", data.version, From(1, 2), "fsdp (default 2)");
  v.FlagOrInteger(
      "reshard_after_forward", data.reshard_after_forward, data.reshard_ranks, kRanks,
      "fsdp (default true; false for the zero2 shardings); of version 2 a number, too: ranks that "
      "keep a part each from forward to backward");
  v.Integer("forward_prefetch", data.forward_prefetch, kCount,
            "fsdp: units gathered ahead in forward (default 0)");
  v.Integer(
      "shard_size", data.shard_size, From(0, kRanks.max),
      "ranks in one shard group; 0 (default): those of a node for hybrid_shard, all for zero1, zero2, zero3");
  v.Number(
      "bucket_cap_mb", data.bucket_cap_mb, MoreThanUpTo(0, 1e9),
      "ddp, zero1, zero2, zero3: MiB of gradients per bucket (default null, the framework's own: 25, ddp's "
      "first 1; deepspeed, and zero3 unless Windtunnel's own: 500 million parameters; megatron_core: the "
      "larger of 40 million and one million a rank of data x context)");
  v.Flag("find_unused_parameters", data.find_unused_parameters, "ddp (default false)");
  v.Flag("gradient_as_bucket_view", data.gradient_as_bucket_view, "ddp (default false)");
  v.Word("sync", data.sync,
         "when accumulated gradients are reduced (default last_micro_batch; zero3, fsdp: every_micro_batch)");
  v.Flag("overlap", data.overlap,
         "default true; false: gradients are reduced after backward; zero3: nothing is computed beside "
         "collectives");
  v.Flag(
      "overlap_param_gather", data.overlap_param_gather,
      "zero1, zero2 (default false): parameters are gathered in the next step's forward, bucket by bucket");
  v.Wrap("wrap", data.wrap, "fsdp unit: block (default), root, size:BYTES or a list of module names");
  v.Word("prefetch", data.prefetch, "fsdp (default backward_pre)");
  v.Flag("limit_all_gathers", data.limit_all_gathers, "fsdp (default true)");
  v.Block("zero3", data.zero3, "zero3, in elements, as DeepSpeed's stage3_ keys");
  v.OptionalBlock("powersgd", data.powersgd,
                  "ddp of windtunnel, pytorch and pytorch_compile: gradients are compressed, as by PyTorch's "
                  "powerSGD_hook");
  v.Word("offload", data.offload, "what lives in host memory (default none)");
}

template <typename V>
void Describe(V& v, PipelineSpec& pipeline) {
  v.Integer("size", pipeline.size, kRanks, "stages' ranks (default 1)");
  v.Path("schedule", pipeline.schedule, Schedules(),
         "a known schedule (default 1f1b) or a CSV file of actions");
  v.Integer("virtual_stages", pipeline.virtual_stages, kRanks,
            "stages per rank (default 1; zb_v, dualpipe_v: 2)");
  v.Integers("balance", pipeline.balance, From(0, kSize.max),
             "layers of each stage (0: embedding or head alone); [] (default): by cost, or as many in each "
             "where the framework counts layers");
  v.Word("mtp", pipeline.mtp,
         "the stage of the modules of model.mtp (default last); before_last: the last has the heads alone");
}

template <typename V>
void Describe(V& v, TensorParallelSpec& tensor) {
  v.Integer("size", tensor.size, kRanks, "ranks that share each layer (default 1)");
  v.Flag("sequence", tensor.sequence,
         "sequence parallelism between the tensor-parallel parts (default false)");
  v.Flag("overlap", tensor.overlap,
         "tokens go around the tensor ranks in parts, beside the products that take or make them; with "
         "sequence (default false)");
}

template <typename V>
void Describe(V& v, ContextParallelSpec& context) {
  v.Integer("size", context.size, kRanks, "ranks that share each sequence (default 1)");
  v.Word("kind", context.kind, "default ring");
}

template <typename V>
void Describe(V& v, ExpertParallelSpec& expert) {
  v.Integer("size", expert.size, kRanks,
            "ranks that share the experts; divides data x context, with tensor: 1 tensor x data x context "
            "(default 1)");
  v.Integer(
      "tensor", expert.tensor, From(0, 1048576),
      "ranks that share each expert's matrices: those of the tensor axis (its size, or 0, the default), or "
      "1: tensor ranks have experts of their own, whole; with tensor.sequence");
  v.Word("dispatcher", expert.dispatcher, "default all_to_all");
  v.Flag(
      "overlap", expert.overlap,
      "tokens of one micro-batch are exchanged beside the computation of another, whose backward runs "
      "along with its forward layer by layer (Megatron's overlap_moe_expert_parallel_comm; default false)");
  v.Flag("delay_wgrad", expert.delay_wgrad,
         "backwards make gradients of inputs first, and those of weights beside the exchange that follows "
         "(Megatron's delay_wgrad_compute; with overlap; default false)");
}

template <typename V>
void Describe(V& v, ParallelSpec& parallel) {
  v.Block("data", parallel.data, "data parallelism");
  v.Block("pipeline", parallel.pipeline, "pipeline parallelism");
  v.Block("tensor", parallel.tensor, "tensor parallelism");
  v.Block("context", parallel.context, "context parallelism");
  v.Block("expert", parallel.expert, "expert parallelism");
}

template <typename V>
void Describe(V& v, LinkSpec& link) {
  v.Text("kind", link.kind, LinkKinds(), "a known kind of link");
  v.Number("gbytes_per_s", link.gbytes_per_s, kRate,
           "10^9 bytes per second and direction; 0 (default): not given");
  v.Number("gbits_per_nic", link.gbits_per_nic, kRate,
           "10^9 bits per second of one NIC; 0 (default): not given");
  v.Number("latency_us", link.latency_us, kMicroseconds,
           "microseconds one way; null (default): the kind's own");
}

template <typename V>
void Describe(V& v, NetworkSpec& network) {
  v.Text("preset", network.preset, NetworkPresets(), "a known network; empty by default");
  v.TextOrBlock("intra_node", "kind", network.intra_node.kind, IntraNodeKinds(), network.intra_node,
                "the link between devices of one node (cpu: default loopback)");
  v.TextOrBlock("inter_node", "kind", network.inter_node.kind, InterNodeKinds(), network.inter_node,
                "the link between nodes");
  v.Integer("nics_per_node", network.nics_per_node, kRanks, "default 1");
  v.Word("algorithm", network.algorithm,
         "of collectives that have it where they run (default auto: as NCCL chooses)");
  v.Word("protocol", network.protocol, "the same of NCCL's protocols (default auto)");
}

template <typename V>
void Describe(V& v, TopologyNode& node) {
  v.Text("name", node.name, TextRule{}, "unique");
  v.Text("kind", node.kind, {TextRule::Other::kNothing, {"device", "nic", "switch"}}, "what the vertex is");
  v.Require("name");
  v.Require("kind");
}

template <typename V>
void Describe(V& v, TopologyLink& link) {
  v.Text("from", link.from, TextRule{}, "a node's name");
  v.Text("to", link.to, TextRule{}, "a node's name");
  v.Number("gbytes_per_s", link.gbytes_per_s, MoreThan(0), "10^9 bytes per second and direction");
  v.Number("latency_us", link.latency_us, kMicroseconds, "microseconds one way (default 0)");
  v.Require("from");
  v.Require("to");
  v.Require("gbytes_per_s");
}

template <typename V>
void Describe(V& v, TopologySpec& topology) {
  v.Text("preset", topology.preset, TopologyPresets(), "a known topology; empty by default");
  v.Number("oversubscription", topology.oversubscription, AtLeast(1),
           "presets: a leaf switch's links to nodes over its links to the spine (default 1)");
  v.Integer("nodes_per_leaf", topology.nodes_per_leaf, From(0, kRanks.max),
            "presets: nodes that share leaf switches; 0 (default): the preset's own number");
  v.Blocks("nodes", topology.nodes, "devices, NICs and switches");
  v.Blocks("links", topology.links, "edges between nodes");
}

template <typename V>
void Describe(V& v, StragglerSpec& straggler) {
  v.Integer("rank", straggler.rank, kCount, "the slow rank");
  v.Number("slowdown", straggler.slowdown, From(1, 1e6), "its operators' time over the others'");
  v.Require("rank");
  v.Require("slowdown");
}

template <typename V>
void Describe(V& v, SlowLinkSpec& link) {
  const TextRule ends{.summary = "a name of cluster.topology, such as node0, node0.nic1, leaf0 or spine"};
  v.Text("from", link.from, ends, "one end, as the topology names it");
  v.Text("to", link.to, ends, "the other end");
  v.Number("factor", link.factor, From(1e-6, 1e6), "its bandwidth over the healthy one");
  v.Require("from");
  v.Require("to");
  v.Require("factor");
}

template <typename V>
void Describe(V& v, ClusterSpec& cluster) {
  v.Text("device", cluster.device, Devices(),
         "cpu (default) or cuda: the one at hand; else a hardware profile");
  v.Integer("nodes", cluster.nodes, kRanks, "default 1");
  v.Integer("devices_per_node", cluster.devices_per_node, kRanks,
            "default 1; without nodes and devices_per_node: one node with the whole world");
  v.TextOrBlock("network", "preset", cluster.network.preset, NetworkPresets(), cluster.network,
                "a known network or its parts");
  v.TextOrBlock("topology", "preset", cluster.topology.preset, TopologyPresets(), cluster.topology,
                "a known topology, or nodes and links spelled out");
  v.OptionalBlock("straggler", cluster.straggler, "what if one rank is slow");
  v.OptionalBlock("slow_link", cluster.slow_link, "what if one link is slow");
  v.Number("jitter", cluster.jitter, From(0, 10),
           "relative standard deviation of every operator's time (default 0)");
}

template <typename V>
void Describe(V& v, RunSpec& run) {
  v.Word("backend", run.backend, "communication of a live run (default gloo on a cpu, else nccl)");
  v.Integer("warmup", run.warmup, kCount,
            "steps before the measured ones (default 5), at least as many as differ from the later ones");
  v.Integer("steps", run.steps, kSize, "measured steps (default 20)");
  v.Integer("seed", run.seed, AtLeast(0), "of weights and data (default 0)");
  v.Flag("pin", run.pin, "pin ranks to cores (default true)");
  v.Flag("cuda_graphs", run.cuda_graphs,
         "launch operators as CUDA graphs, live and predicted (default false)");
  v.Words("cuda_graph_scope", run.cuda_graph_scope,
          "with cuda_graphs, what may be in a graph (Megatron's cuda_graph_scope; default: whole layers with "
          "framework: megatron_core, else everything)");
  v.Flag("deterministic", run.deterministic,
         "only kernels that repeat their bits: attention's backward on cuda is Windtunnel's own, not cuDNN's "
         "(default false)");
}

template <typename V>
void Describe(V& v, SearchSpec& search) {
  v.Integers("data", search.data, kRanks, "parallel.data.size");
  v.Integers("tensor", search.tensor, kRanks, "parallel.tensor.size");
  v.Integers("pipeline", search.pipeline, kRanks, "parallel.pipeline.size");
  v.Integers("context", search.context, kRanks, "parallel.context.size");
  v.Words("context_kind", search.context_kind, "parallel.context.kind, where context is above 1");
  v.Integers("expert", search.expert, kRanks, "parallel.expert.size");
  v.Integers("expert_tensor", search.expert_tensor, From(0, 1048576), "parallel.expert.tensor");
  v.Words("dispatcher", search.dispatcher, "parallel.expert.dispatcher");
  v.Integers("micro", search.micro, kSize, "batch.micro");
  v.Integers("accumulate", search.accumulate, kSize, "batch.accumulate");
  v.Integers("virtual_stages", search.virtual_stages, kRanks, "parallel.pipeline.virtual_stages");
  v.Integers("shard_size", search.shard_size, kRanks, "parallel.data.shard_size");
  v.Words("kind", search.kind, "parallel.data.kind");
  v.Words("sharding", search.sharding, "parallel.data.sharding");
  v.Words("offload", search.offload, "parallel.data.offload");
  v.Paths("schedule", search.schedule, Schedules(), "parallel.pipeline.schedule");
  v.Words("recompute", search.recompute, "recompute");
  v.Integers("recompute_layers", search.recompute_layers, From(0, kSize.max),
             "recompute_layers, where recompute is full; 0: all");
  v.Flags("activation_offload", search.activation_offload,
          "activation_offload; predicted operator by operator, except with FSDP alone");
  v.Integers("devices", search.devices, kRanks, "of the whole cluster, in nodes of cluster.devices_per_node");
  v.Flags("overlap", search.overlap, "parallel.data.overlap");
  v.Flags("sequence", search.sequence, "parallel.tensor.sequence");
  v.Flags("tensor_overlap", search.tensor_overlap, "parallel.tensor.overlap, where sequence is true");
  v.Flags("expert_overlap", search.expert_overlap,
          "parallel.expert.overlap, with the scenario's delay_wgrad; predicted operator by operator");
  v.Flags("uneven", search.uneven,
          "true: layers go to stages as without parallel.pipeline.balance, and need not divide");
}

template <typename V>
void Describe(V& v, ToleranceSpec& tolerance) {
  v.Number("step_time", tolerance.step_time, AtLeast(0), "fraction (default 0.2)");
  v.Number("peak_memory", tolerance.peak_memory, AtLeast(0), "fraction (default 0)");
}

template <typename V>
void Describe(V& v, Scenario& scenario) {
  v.Text("name", scenario.name, TextRule{}, "default: the file's name");
  v.Text("description", scenario.description, TextRule{.is_prose = true}, "one line");
  v.Block("model", scenario.model, "what is trained");
  v.Block("batch", scenario.batch, "of one data-parallel replica");
  v.Block("precision", scenario.precision, "number formats");
  v.Block("optimizer", scenario.optimizer, "defaults as in torch.optim");
  v.Block("lr_scheduler", scenario.lr_scheduler,
          "how the learning rate changes in a live run (default: it does not)");
  v.Word("recompute", scenario.recompute,
         "activations recomputed in backward: none (default), some modules, every second matmul, all");
  v.Words(
      "recompute_modules", scenario.recompute_modules,
      "with recompute: selective, what of a block is made again in backward (Megatron's recompute_modules; "
      "default: core_attn)");
  v.Integer("recompute_layers", scenario.recompute_layers, From(0, kSize.max),
            "with recompute: full, only the first so many layers of each stage (default 0: all; Megatron's "
            "recompute_method block)");
  v.Integer("recompute_every", scenario.recompute_every, kSize,
            "with recompute: full, only every N-th layer of the model (default 1: all; torchtitan's "
            "selective_ac_option as a number)");
  v.Flag("activation_offload", scenario.activation_offload,
         "what layers keep for backward is copied to the host's memory, and back (default false; Megatron's "
         "cpu_offloading, torchtune's enable_activation_offloading)");
  v.Integer(
      "activation_offload_layers", scenario.activation_offload_layers, From(0, kSize.max),
      "with activation_offload, only the first so many layers of each stage (default 0: all; Megatron's "
      "cpu_offloading_num_layers)");
  v.Word("cross_entropy", scenario.cross_entropy,
         "how the loss is made: as the framework does by itself (default), or fused (FlashAttention's and "
         "Liger's "
         "losses, a compiled loss, Megatron's cross_entropy_loss_fusion by te)");
  v.Integer(
      "cross_entropy_chunks", scenario.cross_entropy_chunks, From(1, 4096),
      "the head and the loss work on so many equal parts of the tokens, one after another, so that logits "
      "of one part exist at a time (default 1; Liger's fused linear cross-entropy)");
  v.Block("parallel", scenario.parallel, "how it is split; world size = data x pipeline x tensor x context");
  v.Block("cluster", scenario.cluster, "the machine");
  v.WordOrPath(
      "framework", scenario.framework, scenario.framework_file, ".json",
      "whose operators, host costs and collectives (default windtunnel), or a framework profile's file");
  v.Word("allocator", scenario.allocator, "default windtunnel; for another framework pytorch");
  v.Path("data", scenario.data, TextRule{.words = {"synthetic"}},
         "synthetic (default) or a text file, read as bytes");
  v.Block("run", scenario.run, "a live run");
  v.OptionalBlock("search", scenario.search,
                  "ranges of `windtunnel search`; a missing one keeps the scenario's value");
  v.Block("tolerance", scenario.tolerance, "targets of a single run");
  v.Require("model");
}

}  // namespace windtunnel
