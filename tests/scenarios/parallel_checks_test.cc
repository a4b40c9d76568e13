// Conditions that must hold between keys: of ranks and the cluster.
#include "tests/scenarios/conflicts.h"

namespace windtunnel {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Parallel, Conflicts,
    testing::Values(
        Conflict{Gpt("parallel: {data: {kind: zero1, size: 2, powersgd: {rank: 4}}}\n"),
                 "s.yaml:2:51: parallel.data.powersgd is given, expected parallel.data.kind: ddp, not zero1: "
                 "it is "
                 "a hook of DDP's buckets"},
        Conflict{
            Gpt("parallel: {data: {kind: ddp, size: 2, powersgd: {}}}\nframework: megatron_core\n"),
            "s.yaml:2:49: parallel.data.powersgd is given, expected framework pytorch, pytorch_compile or "
            "windtunnel, not megatron_core, whose reductions have no such hook"},
        Conflict{Gpt("parallel: {data: {size: 2, powersgd: {}}, tensor: {size: 2}}\n"),
                 "s.yaml:2:38: parallel.data.powersgd is given, expected parallel.tensor.size: 1, not 2: all "
                 "ranks "
                 "share the parameters"},
        Conflict{Gpt("parallel: {data: {size: 2, powersgd: {}, sync: every_micro_batch}}\n"),
                 "s.yaml:2:48: parallel.data.sync is every_micro_batch, expected last_micro_batch with "
                 "parallel.data.powersgd"},
        Conflict{
            Gpt("parallel: {data: {size: 2, powersgd: {}}}\nprecision: {compute: fp16}\n"),
            "s.yaml:2:38: parallel.data.powersgd is given, expected precision.loss_scale: none: a gradient "
            "that overflows would stay in what is added to the next step's"},
        Conflict{Gpt("parallel: {data: {kind: none, size: 2}}\n"),
                 "s.yaml:2:37: parallel.data.size is 2, expected 1 for kind: none"},
        Conflict{Gpt("parallel: {data: {kind: zero2}, pipeline: {size: 2}}\nbatch: {accumulate: 4}\n"),
                 "s.yaml:2:25: parallel.data.kind is zero2, which keeps no gradients between micro-batches, "
                 "expected zero1, ddp or fsdp in a pipeline"},
        Conflict{
            Gpt("parallel: {data: {kind: zero1, sync: every_micro_batch}, pipeline: {size: 2}}\n"
                "batch: {accumulate: 4}\n"),
            "s.yaml:2:38: parallel.data.sync is every_micro_batch, expected last_micro_batch in a pipeline"},
        Conflict{Gpt("parallel: {data: {kind: zero3}, pipeline: {size: 2}}\nbatch: {accumulate: 4}\n"),
                 "s.yaml:2:25: parallel.data.kind is zero3, expected zero1 in a pipeline: DeepSpeed's takes "
                 "nothing "
                 "that shards gradients"},
        Conflict{Gpt("parallel: {data: {kind: zero3, size: 2, sync: last_micro_batch}}\n"),
                 "s.yaml:2:47: parallel.data.sync is last_micro_batch, expected every_micro_batch for kind: "
                 "zero3, "
                 "which keeps no whole gradients"},
        Conflict{Gpt("parallel: {data: {kind: zero3, size: 2}}\nframework: megatron_core\n"),
                 "s.yaml:2:25: parallel.data.kind is zero3, expected zero1 with framework: megatron_core; "
                 "DeepSpeed's third stage goes with deepspeed, pytorch, pytorch_compile and windtunnel"},
        Conflict{
            "model: {preset: mixtral-8x7b}\nparallel: {data: {kind: zero3, size: 2}, expert: {size: 2}}\n",
            "s.yaml:2:25: parallel.data.kind is zero3, expected parallel.expert.size: 1, not 2: DeepSpeed's "
            "experts "
            "go with its stages up to 2"},
        Conflict{Gpt("parallel: {data: {kind: zero3, size: 8, shard_size: 3}}\n"),
                 "s.yaml:2:53: parallel.data.shard_size is 3, expected a divisor of parallel.data.size (8)"},
        Conflict{Gpt("parallel: {data: {kind: zero3, size: 8, shard_size: 4, offload: param}}\n"),
                 "s.yaml:2:53: parallel.data.shard_size is 4, expected all ranks with offload, whose "
                 "gradients are "
                 "in host memory"},
        Conflict{Gpt("parallel: {data: {kind: fsdp, size: 8, sharding: hybrid_shard, shard_size: 3}}\n"),
                 "s.yaml:2:76: parallel.data.shard_size is 3, expected a divisor of parallel.data.size (8)"},
        Conflict{Gpt("parallel: {data: {kind: zero1, size: 8, shard_size: 3}}\n"),
                 "s.yaml:2:53: parallel.data.shard_size is 3, expected a divisor of parallel.data.size (8)"},
        Conflict{
            Gpt("parallel: {data: {kind: zero2, size: 2, offload: param}}\n"),
            "s.yaml:2:50: parallel.data.offload is 'param', expected none or optimizer unless kind is zero3 "
            "or fsdp"},
        Conflict{Gpt("parallel: {data: {kind: ddp, size: 2, offload: param}}\n"),
                 "s.yaml:2:48: parallel.data.offload is 'param', expected none unless kind is zero3 or fsdp"},
        Conflict{
            Gpt("parallel: {data: {kind: ddp, size: 2, offload: optimizer}}\n"),
            "s.yaml:2:48: parallel.data.offload is 'optimizer', expected none unless kind is zero1, zero2, "
            "zero3 or fsdp"},
        Conflict{
            Gpt("parallel: {data: {kind: ddp, size: 2, gradient_as_bucket_view: true}}\n"
                "precision: {param: bf16, compute: bf16, reduce: fp32}\n"),
            "s.yaml:2:64: parallel.data.gradient_as_bucket_view is true, expected precision.reduce (fp32) to "
            "be precision.param (bf16)"},
        Conflict{Gpt("parallel: {data: {kind: fsdp, size: 2, sharding: shard_grad_op, reshard_after_forward: "
                     "true}}\n"),
                 "s.yaml:2:88: parallel.data.reshard_after_forward is true, expected false for sharding: "
                 "shard_grad_op"},
        Conflict{
            Gpt("parallel: {data: {kind: fsdp, size: 8, reshard_after_forward: 3}}\n"),
            "s.yaml:2:63: parallel.data.reshard_after_forward is 3, expected a divisor of the 8 ranks that "
            "share a unit"},
        Conflict{
            Gpt("parallel: {data: {kind: fsdp, size: 8, version: 1, reshard_after_forward: 4}}\n"),
            "s.yaml:2:75: parallel.data.reshard_after_forward is 4, expected true or false for version: 1, "
            "which has no numbers"},
        Conflict{
            Gpt("parallel: {data: {kind: fsdp, size: 8, sharding: hybrid_shard, shard_size: 4, "
                "reshard_after_forward: 8}}\n"),
            "s.yaml:2:102: parallel.data.reshard_after_forward is 8, expected a divisor of the 4 ranks that "
            "share a unit"},
        Conflict{
            Gpt("parallel: {data: {kind: dp, size: 2}, pipeline: {size: 2}}\n"),
            "s.yaml:2:56: parallel.pipeline.size is 2, expected 1 for parallel.data.kind: dp, which goes "
            "with nothing else"},
        Conflict{Gpt("parallel: {data: {kind: dp, size: 2}, tensor: {size: 2}}\n"),
                 "s.yaml:2:54: parallel.tensor.size is 2, expected 1 for parallel.data.kind: dp, which goes "
                 "with nothing else"},
        Conflict{Gpt("parallel: {data: {kind: dp, size: 2}, context: {size: 2}}\n"),
                 "s.yaml:2:55: parallel.context.size is 2, expected 1 for parallel.data.kind: dp, which goes "
                 "with nothing else"},
        Conflict{
            "model: {layers: 2, hidden: 64, heads: 2, vocab: 64, seq_len: 9}\nbatch: {micro: 3}\n"
            "parallel: {tensor: {size: 2, sequence: true}}\n",
            "s.yaml:3:40: parallel.tensor.sequence is true, expected tensor.size (2) to divide the 27 tokens "
            "that a rank has of a micro-batch (batch.micro 3 x model.seq_len 9 / context.size 1)"},
        Conflict{Gpt("parallel: {data: {kind: dp, size: 2, shard_size: 2}}\n"),
                 "s.yaml:2:50: parallel.data.shard_size is 2, expected none for kind: dp, which shards "
                 "nothing"},
        Conflict{
            Gpt("parallel: {data: {kind: dp, size: 2, offload: optimizer}}\n"),
            "s.yaml:2:47: parallel.data.offload is 'optimizer', expected none unless kind is zero1, zero2, "
            "zero3 or fsdp"},
        Conflict{Gpt("parallel: {data: {kind: dp, size: 2}}\ncluster: {nodes: 2, devices_per_node: 1}\n"),
                 "s.yaml:3:18: cluster.nodes is 2, expected 1 for parallel.data.kind: dp, which is one "
                 "process"},
        Conflict{Gpt("parallel: {pipeline: {size: 13}}\n"),
                 "s.yaml:2:29: the pipeline has 13 stages (size 13 x virtual_stages 1), expected at most the "
                 "model's 12 layers"},
        Conflict{
            Gpt("parallel: {pipeline: {size: 2, balance: [12]}}\n"),
            "s.yaml:2:41: parallel.pipeline.balance has 1 entries, expected 2 (size 2 x virtual_stages 1)"},
        Conflict{Gpt("parallel: {pipeline: {size: 2, balance: [6, 5]}}\n"),
                 "s.yaml:2:41: parallel.pipeline.balance adds up to 11, expected the model's 12 layers"},
        Conflict{Gpt("parallel: {pipeline: {size: 2, virtual_stages: 2}}\n"),
                 "s.yaml:2:48: parallel.pipeline.virtual_stages is 2, expected 1 for schedule: 1f1b"},
        Conflict{Gpt("parallel: {pipeline: {size: 2, virtual_stages: 3, schedule: zb_v}}\n"),
                 "s.yaml:2:48: parallel.pipeline.virtual_stages is 3, expected 2 for schedule: zb_v"},
        Conflict{"model: {preset: gpt2-124m}\nparallel: {tensor: {size: 2}}\n",
                 "s.yaml:2:27: parallel.tensor.size is 2, expected a divisor of model.vocab (50257), whose "
                 "rows its "
                 "ranks share; Megatron would pad it to 50432"},
        Conflict{Gpt("parallel: {tensor: {size: 5}}\n"),
                 "s.yaml:2:27: parallel.tensor.size is 5, expected a divisor of model.heads (12) and "
                 "model.ffn (3072)"},
        Conflict{Gpt("parallel: {context: {size: 3}}\n"),
                 "s.yaml:2:28: parallel.context.size is 3, expected a divisor of model.seq_len (1024)"},
        Conflict{Gpt("parallel: {context: {size: 8, kind: ulysses}}\n"),
                 "s.yaml:2:28: parallel.context.size is 8, expected context x tensor (8) to divide "
                 "model.heads (12) for "
                 "kind: ulysses"},
        Conflict{Gpt("parallel: {data: {size: 4}, expert: {size: 3}}\n"),
                 "s.yaml:2:44: parallel.expert.size is 3, expected a divisor of data x context (4)"},
        Conflict{Gpt("parallel: {data: {size: 4}, expert: {size: 2}}\n"),
                 "s.yaml:2:44: parallel.expert.size is 2, expected 1 for a model without model.experts"},
        Conflict{
            "model: {preset: gpt2-124m, experts: {count: 4, shared_ffn: 9}}\n"
            "parallel: {tensor: {size: 2}}\n",
            "s.yaml:2:27: parallel.tensor.size is 2, expected a divisor of model.experts.shared_ffn (9)"},
        Conflict{
            "model: {preset: gpt2-124m, experts: {count: 4}}\n"
            "parallel: {data: {kind: zero1, size: 6, shard_size: 3}, expert: {size: 2}}\n",
            "s.yaml:2:53: parallel.data.shard_size is 3, expected a divisor or a multiple of the 2 ranks of "
            "the data axis that share the experts, so that a shard group has every expert equally often"},
        Conflict{
            Experts("parallel: {data: {size: 4}, tensor: {size: 2, sequence: true}, "
                    "expert: {size: 1, tensor: 1}}\n"),
            "s.yaml:2:79: parallel.expert.size is 1, expected a multiple of tensor.size (2) and a divisor "
            "of tensor x data x context (8) with parallel.expert.tensor: 1"},
        Conflict{Experts("parallel: {data: {size: 4}, tensor: {size: 2}, expert: {size: 4, tensor: 1}}\n"),
                 "s.yaml:2:74: parallel.expert.tensor is 1, expected tensor.sequence: true, so that tensor "
                 "ranks have tokens of their own to send"},
        Conflict{Experts("parallel: {data: {size: 4}, tensor: {size: 4}, expert: {size: 4, tensor: 2}}\n"),
                 "s.yaml:2:74: parallel.expert.tensor is 2, expected 1 or tensor.size (4)"},
        Conflict{Experts("parallel: {data: {size: 4}, expert: {size: 4, dispatcher: deepep}}\n"),
                 "s.yaml:2:59: parallel.expert.dispatcher is deepep, expected "
                 "model.experts.capacity_factor 0: it pads no experts"},
        Conflict{Dropless("parallel: {data: {size: 4}, expert: {dispatcher: deepep}}\n"),
                 "s.yaml:2:50: parallel.expert.dispatcher is deepep, expected parallel.expert.size above 1, "
                 "between whose ranks tokens go"},
        Conflict{Dropless("parallel: {data: {size: 4}, tensor: {size: 2}, expert: {size: 4, dispatcher: "
                          "deepep}}\n"),
                 "s.yaml:2:78: parallel.expert.dispatcher is deepep, expected parallel.expert.tensor: 1 with "
                 "several tensor ranks"},
        Conflict{Gpt("parallel: {tensor: {size: 2, sequence: true}, expert: {tensor: 1}}\n"),
                 "s.yaml:2:64: parallel.expert.tensor is 1, expected 0 for a model without model.experts"},
        Conflict{Dropless("parallel: {data: {size: 8}, expert: {size: 4, dispatcher: deepep}}\n"
                          "cluster: {device: h100-sxm-80g, nodes: 4, devices_per_node: 2, network: {preset: "
                          "ethernet-4x100g}}\n"),
                 "s.yaml:2:59: parallel.expert.dispatcher is deepep, expected infiniband or roce between the "
                 "nodes of its ranks, not ethernet"},
        Conflict{Experts("parallel: {data: {size: 4}, expert: {size: 4, delay_wgrad: true}}\nbatch: "
                         "{accumulate: 2}\n"),
                 "s.yaml:2:60: parallel.expert.delay_wgrad is true, expected parallel.expert.overlap: true"},
        Conflict{
            Experts("parallel: {data: {size: 4}, expert: {overlap: true}}\nbatch: {accumulate: 2}\n"),
            "s.yaml:2:47: parallel.expert.overlap is true, expected parallel.expert.size above 1, between "
            "whose ranks tokens go"},
        Conflict{Experts("parallel: {data: {size: 4}, expert: {size: 4, overlap: true}}\n"),
                 "s.yaml:2:56: parallel.expert.overlap is true, expected batch.accumulate above 1: one "
                 "micro-batch computes while another's tokens are exchanged"},
        Conflict{
            Experts("parallel: {data: {size: 4}, pipeline: {size: 2}, expert: {size: 4, overlap: true}}\n"
                    "batch: {accumulate: 4}\n"),
            "s.yaml:2:77: parallel.expert.overlap is true, expected parallel.pipeline.schedule interleaved "
            "or dualpipe_v, not 1f1b: others have no pairs of a forward and a backward of two micro-batches"},
        Conflict{
            Experts("parallel: {data: {size: 4, kind: fsdp}, expert: {size: 4, overlap: true}}\nbatch: "
                    "{accumulate: 2}\n"),
            "s.yaml:2:68: parallel.expert.overlap is true, expected another parallel.data.kind than fsdp, "
            "which gathers parameters in the order of one pass"},
        Conflict{
            Experts("parallel: {data: {size: 4}, expert: {size: 4, overlap: true}}\nbatch: {accumulate: 2}\n"
                    "recompute: full\n"),
            "s.yaml:2:56: parallel.expert.overlap is true, expected another recompute than full, which would "
            "exchange tokens again"},
        Conflict{
            "model: {kind: mlp, widths: [10, 33, 5]}\nparallel: {tensor: {size: 2}}\n",
            "s.yaml:2:27: parallel.tensor.size is 2, expected a divisor of entry 2 of model.widths (33)"},
        Conflict{
            "model: {kind: mlp, widths: [10, 4]}\nparallel: {tensor: {size: 2}}\n",
            "s.yaml:2:27: parallel.tensor.size is 2, expected 1 for an MLP of one layer: ranks share what is "
            "between two"},
        Conflict{Mlp("parallel: {expert: {overlap: true}}\n"),
                 "s.yaml:2:30: parallel.expert.overlap is true, expected false for kind: mlp, which has no "
                 "experts"},
        Conflict{
            Mlp("parallel: {expert: {delay_wgrad: true}}\n"),
            "s.yaml:2:34: parallel.expert.delay_wgrad is true, expected false for kind: mlp, which has no "
            "experts"},
        Conflict{
            Mlp("parallel: {context: {size: 2}}\n"),
            "s.yaml:2:28: parallel.context.size is 2, expected 1 for kind: mlp, which has no sequence"}));

INSTANTIATE_TEST_SUITE_P(
    Cluster, Conflicts,
    testing::Values(
        Conflict{
            Gpt("parallel: {data: {size: 2}, tensor: {size: 3}}\ncluster: {nodes: 2, devices_per_node: 4}\n"),
            "s.yaml:3:39: the world size is 6 (data 2 x pipeline 1 x tensor 3 x context 1) but the cluster "
            "has 8 devices (nodes 2 x devices_per_node 4), expected the same number"},
        Conflict{Gpt("parallel: {data: {size: 2}}\ncluster: {nodes: 1}\n"),
                 "s.yaml:3:18: the world size is 2 (data 2 x pipeline 1 x tensor 1 x context 1) but the "
                 "cluster has 1 devices (nodes 1 x devices_per_node 1), expected the same number, as with "
                 "cluster.devices_per_node: 2"},
        Conflict{Gpt("parallel: {data: {size: 16}}\ncluster: {devices_per_node: 8}\n"),
                 "s.yaml:3:29: the world size is 16 (data 16 x pipeline 1 x tensor 1 x context 1) but the "
                 "cluster has 8 devices (nodes 1 x devices_per_node 8), expected the same number, as with "
                 "cluster.nodes: 2"},
        Conflict{Gpt("cluster: {straggler: {rank: 1, slowdown: 2}}\n"),
                 "s.yaml:2:29: cluster.straggler.rank is 1, expected less than the world size (1)"},
        Conflict{
            Gpt("cluster: {network: {intra_node: {latency_us: 3}}}\n"),
            "s.yaml:2:33: cluster.network.intra_node has a latency, but neither a kind nor a rate above 0, "
            "expected kind, gbytes_per_s or gbits_per_nic"},
        Conflict{Gpt("cluster: {topology: {nodes: [{name: a, kind: nic}, {name: a, kind: nic}]}}\n"),
                 "s.yaml:2:29: cluster.topology.nodes has 'a' twice, expected distinct names"},
        Conflict{Gpt("cluster: {topology: {links: [{from: a, to: b, gbytes_per_s: 1}]}}\n"),
                 "s.yaml:2:29: cluster.topology.links has an end 'a', expected the name of one of "
                 "cluster.topology.nodes"},
        Conflict{
            Gpt("cluster: {topology: {preset: dgx-a100, nodes: [{name: a, kind: device}]}}\n"),
            "s.yaml:2:47: cluster.topology has nodes and links beside preset 'dgx-a100', expected either"},
        Conflict{
            Gpt("cluster: {topology: {oversubscription: 2, nodes: [{name: a, kind: device}]}}\n"),
            "s.yaml:2:40: cluster.topology.oversubscription and nodes_per_leaf are for presets, expected "
            "links' own gbytes_per_s"},
        Conflict{
            Gpt("cluster: {network: dgx-h100}\n"),
            "s.yaml:2:20: cluster.network is 'dgx-h100', expected a network's parts for cluster.device: cpu"},
        Conflict{Gpt("cluster: {network: {intra_node: {gbits_per_nic: 8}}}\n"),
                 "s.yaml:2:49: cluster.network.intra_node.gbits_per_nic is 8, expected kind or gbytes_per_s: "
                 "no NICs "
                 "are within a node"},
        Conflict{
            Gpt("cluster: {topology: {oversubscription: 2}}\n"),
            "s.yaml:2:40: cluster.topology has oversubscription or nodes_per_leaf alone, expected a preset "
            "beside them"}));

}  // namespace
}  // namespace windtunnel
