// Conditions that must hold between keys: of models and numerics.
#include "tests/scenarios/conflicts.h"

namespace windtunnel {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Lora, Conflicts,
    testing::Values(
        Conflict{"model: {preset: llama-7b, lora: {targets: [q]}}\n",
                 "s.yaml:1:43: model.lora.targets has q, which no block of the model has in framework "
                 "windtunnel, expected qkv, proj, gate_up, down"},
        Conflict{"model: {preset: gpt2-124m, lora: {targets: [down, down]}}\n",
                 "s.yaml:1:44: model.lora.targets has down more than once"},
        Conflict{"model: {preset: mixtral-8x7b, lora: {targets: [down]}}\n",
                 "s.yaml:1:47: model.lora.targets has down, which no block of the model has in framework "
                 "windtunnel (adapters of experts are not modelled), expected qkv, proj"},
        Conflict{"model: {preset: llama-7b, seq_len: 1024}\ncross_entropy_chunks: 3\n",
                 "s.yaml:2:23: cross_entropy_chunks is 3, expected a divisor of the 1024 tokens of a rank's "
                 "micro-batch"},
        Conflict{"model: {preset: llama-7b}\nframework: megatron_core\ncross_entropy_chunks: 2\n",
                 "s.yaml:3:23: cross_entropy_chunks is 2, expected 1 for framework megatron_core, which has "
                 "no such loss"},
        Conflict{"model: {preset: mixtral-8x7b, lora: {quantize: nf4}}\n",
                 "s.yaml:1:48: model.lora.quantize is nf4, expected none with model.experts: experts in 4 "
                 "bits are not modelled"},
        Conflict{
            "model: {preset: llama-7b, lora: {quantize: nf4}}\nparallel: {data: {kind: zero3, size: 2}}\n"
            "cluster: {devices_per_node: 2}\n",
            "s.yaml:1:44: model.lora.quantize is nf4, expected none with parallel.data.kind: zero3"},
        Conflict{"model: {preset: deepseek-v3, lora: {}}\n",
                 "s.yaml:1:36: model.lora is given, expected none with model.latent_attention"},
        Conflict{"model: {preset: llama-7b, mtp: {layers: 1}, lora: {}}\n",
                 "s.yaml:1:51: model.lora is given, expected none with model.mtp"},
        Conflict{"model: {preset: llama-7b, lora: {}}\nprecision: {param: bf16, compute: fp8}\n",
                 "s.yaml:2:35: precision.compute is fp8 with framework windtunnel and model.lora, expected "
                 "framework megatron_core, or 16 or 32 bits"},
        Conflict{"model: {preset: llama-7b, lora: {}}\nrecompute: selective_op\n",
                 "s.yaml:2:12: recompute is selective_op, expected none, selective or full with model.lora"},
        Conflict{"model: {preset: llama-7b, lora: {}}\nparallel: {data: {kind: dp, size: 2}}\n"
                 "cluster: {devices_per_node: 2}\n",
                 "s.yaml:2:25: parallel.data.kind is dp, expected ddp with model.lora"},
        Conflict{
            "model: {preset: llama-7b, lora: {}}\nparallel: {data: {kind: fsdp, version: 1, size: 2}}\n"
            "cluster: {devices_per_node: 2}\n",
            "s.yaml:2:40: parallel.data.version is 1, expected 2 with model.lora: version 1 flattens the "
            "weights of a unit, which must all be trained, or none of them"},
        Conflict{"model: {preset: llama-7b, lora: {}}\nparallel: {tensor: {size: 2, sequence: true, overlap: "
                 "true}}\ncluster: {devices_per_node: 2}\n",
                 "s.yaml:2:55: parallel.tensor.overlap is true, expected false with model.lora"},
        Conflict{
            "model: {preset: llama-7b, layers: 4, lora: {}}\n"
            "parallel: {pipeline: {size: 2, balance: [0, 4]}}\ncluster: {devices_per_node: 2}\n",
            "s.yaml:2:41: a pipeline stage has no layers, expected at least one in each with model.lora: "
            "nothing of the stage is trained"}));

INSTANTIATE_TEST_SUITE_P(
    Model, Conflicts,
    testing::Values(
        Conflict{"model: {}\n",
                 "s.yaml:1:8: model.layers is missing, expected a value, model.preset or model.config"},
        Conflict{"model: {layers: 2, hidden: 64, heads: 4, vocab: 8}\n",
                 "s.yaml:1:8: model.seq_len is missing, expected a value, model.preset or model.config"},
        Conflict{"model: {preset: gpt2-124m, heads: 7}\n",
                 "s.yaml:1:35: model.heads is 7, expected a divisor of model.hidden (768), or "
                 "model.head_dim"},
        Conflict{"model: {preset: gpt2-124m, hidden: 100}\n",
                 "s.yaml:1:36: model.heads is 12, expected a divisor of model.hidden (100), or "
                 "model.head_dim"},
        Conflict{"model: {preset: gpt2-124m, kv_heads: 5}\n",
                 "s.yaml:1:38: model.kv_heads is 5, expected a divisor of model.heads (12)"},
        Conflict{
            "model: {preset: llama3-8b}\nparallel: {tensor: {size: 16}}\n",
            "s.yaml:2:27: parallel.tensor.size is 16, expected a divisor of model.kv_heads (8), which its "
            "ranks share"},
        Conflict{"model: {preset: llama-7b, hidden: 96}\n",
                 "s.yaml:1:35: the head dimension is 3, expected an even one for position: rope"},
        Conflict{"model: {layers: 2, hidden: 64, heads: 2, vocab: 64, seq_len: 9, rope_dim: 8}\nbatch: "
                 "{micro: 1}\n",
                 "s.yaml:1:75: model.rope_dim is 8, expected it left out for position: learned"},
        Conflict{
            "model: {layers: 2, hidden: 64, heads: 2, vocab: 64, seq_len: 9, position: rope, rope_dim: 34}\n"
            "batch: {micro: 1}\n",
            "s.yaml:1:91: model.rope_dim is 34, expected an even number of up to model.head_dim (32)"},
        Conflict{"model: {preset: gpt2-124m, widths: [1, 2]}\n",
                 "s.yaml:1:36: model.widths is for kind: mlp, expected layers, hidden, ..."},
        Conflict{"model: {preset: gpt2-124m, experts: {count: 4, top_k: 5}}\n",
                 "s.yaml:1:55: model.experts.top_k is 5, expected at most count (4)"},
        Conflict{"model: {preset: gpt2-124m, experts: {count: 8, groups: 3}}\n",
                 "s.yaml:1:56: model.experts.groups is 3, expected a divisor of count (8)"},
        Conflict{"model: {preset: gpt2-124m, experts: {count: 8, groups: 2, top_k_groups: 3}}\n",
                 "s.yaml:1:73: model.experts.top_k_groups is 3, expected at most groups (2)"},
        Conflict{
            "model: {preset: gpt2-124m, experts: {count: 8, top_k: 3, groups: 4, top_k_groups: 1}}\n",
            "s.yaml:1:83: model.experts.top_k_groups is 1, expected groups enough for the 3 experts of a "
            "token, 2 in each"},
        Conflict{"model: {preset: gpt2-124m, experts: {count: 8, top_k: 2, imbalance: 5}}\n",
                 "s.yaml:1:69: model.experts.imbalance is 5, expected at most count / top_k (4), where every "
                 "token goes to the busiest expert"},
        Conflict{"model: {preset: gpt2-124m, config: a.json}\n",
                 "s.yaml:1:36: model.config beside model.preset, expected one of them"},
        Conflict{"model: {kind: mlp}\n",
                 "s.yaml:1:8: model.widths has 0 entries, expected at least 2 (input and output)"},
        Conflict{"model: {kind: mlp, widths: [3]}\n",
                 "s.yaml:1:28: model.widths has 1 entries, expected at least 2 (input and output)"},
        Conflict{"model: {kind: mlp, widths: [3, 4], layers: 2}\n",
                 "s.yaml:1:44: model.layers is for kind: transformer, expected model.widths only"},
        Conflict{
            "model: {kind: mlp, widths: [3, 4], activation: swiglu}\n",
            "s.yaml:1:48: model.activation is 'swiglu', expected gelu, relu or squared_relu for kind: mlp"},
        Conflict{
            "model: {preset: deepseek-v3, experts: {first_dense: 61}}\n",
            "s.yaml:1:53: no layer has experts: model.experts.first_dense is 61 and every 1, expected one of "
            "the 61 layers behind the first 61 to be a multiple of 1"},
        Conflict{
            "model: {preset: mixtral-8x7b, experts: {count: 8, dense_ffn: 64}}\n",
            "s.yaml:1:62: model.experts.dense_ffn is 64, expected it only where some layers have no experts "
            "(model.experts.first_dense, every)"},
        Conflict{
            "model: {preset: gemma3-1b}\nrecompute: selective_op\n",
            "s.yaml:2:12: model.post_norm is true, expected false with recompute selective_op: what every "
            "second matmul gives would be normalised again"},
        Conflict{"model: {preset: olmo2-1b, post_norm: false}\n",
                 "s.yaml:1:38: model.pre_norm is false, expected model.post_norm: true then: a block without "
                 "norms does not train"},
        Conflict{"model: {preset: llama2-7b, qk_norm_over: all_heads}\n",
                 "s.yaml:1:42: model.qk_norm_over is all_heads, expected model.qk_norm: true with it"},
        Conflict{"model: {preset: olmo2-1b}\nrecompute: selective\nrecompute_modules: [layernorm]\n",
                 "s.yaml:3:20: recompute_modules has layernorm, expected others with model.pre_norm: false"},
        Conflict{
            "model: {preset: olmo2-1b}\nparallel: {tensor: {size: 2}}\n",
            "s.yaml:2:27: parallel.tensor.size is 2, expected 1 with model.qk_norm_over: all_heads, which a "
            "rank with some of the heads cannot normalise"},
        Conflict{
            "model: {preset: llama2-7b}\nrecompute: selective\nrecompute_modules: [mlp]\n"
            "framework: megatron\n",
            "s.yaml:3:20: recompute_modules is given, expected framework windtunnel, megatron_core, pytorch "
            "or pytorch_compile, which have them, not megatron"},
        Conflict{"model: {preset: pythia-160m}\nrecompute: selective_op\n",
                 "s.yaml:2:12: recompute is selective_op, expected none, full or selective with "
                 "model.parallel_residual: two_norms"},
        Conflict{"model: {preset: pythia-160m}\nrecompute: selective\nrecompute_modules: [layernorm]\n",
                 "s.yaml:3:20: recompute_modules has layernorm, expected others with "
                 "model.parallel_residual: two_norms"},
        Conflict{"model: {preset: mixtral-8x7b, parallel_residual: one_norm}\n",
                 "s.yaml:1:50: model.parallel_residual is one_norm, expected none with model.experts"},
        Conflict{"model: {preset: gpt2-124m, activation: geglu}\nframework: megatron\n",
                 "s.yaml:1:40: model.activation is 'geglu', expected gelu, relu, squared_relu or swiglu with "
                 "framework: megatron, which has no other"},
        // 2^64 + 2^34 sequences, which would wrap to 2^34 in 64 bits.
        Conflict{
            "model: {preset: mlp-10-100-10}\nbatch: {micro: 16777216, accumulate: 1073741825}\n"
            "parallel: {data: {kind: ddp, size: 1024}}\ncluster: {device: a100-sxm-80g, nodes: 1024}\n",
            "s.yaml:2:38: a step has 1.8e+19 tokens (micro x accumulate x data x seq_len), expected at most "
            "1e+15"},
        Conflict{"model: {preset: mistral-7b-v0.1, sliding_window: {tokens: 64, full_every: 1}}\n",
                 "s.yaml:1:75: model.sliding_window.full_every is 1, which leaves no layer with a window; "
                 "expected at least 2, or no model.sliding_window"},
        Conflict{"model: {preset: mistral-7b-v0.1, sliding_window: {tokens: 64, full_every: 33}}\n",
                 "s.yaml:1:75: model.sliding_window.full_every is 33, expected at most model.layers (32), or "
                 "0: no layer sees all tokens"},
        Conflict{"model: {preset: gpt-oss-20b}\nparallel: {tensor: {size: 2}}\n",
                 "s.yaml:2:27: model.experts.bias is true, expected parallel.expert.tensor: 1 with "
                 "parallel.tensor.size (2): tensor ranks that share an expert would each add its biases"},
        Conflict{"model: {preset: mistral-7b-v0.1}\nparallel: {context: {size: 2}}\n",
                 "s.yaml:2:28: parallel.context.kind is ring, expected all_gather or ulysses with "
                 "model.sliding_window"},
        // Only Ulysses divides heads among context ranks.
        Conflict{"model: {preset: mistral-7b-v0.1}\nparallel: {tensor: {size: 8}, context: {size: 8}}\n",
                 "s.yaml:2:47: parallel.context.kind is ring, expected all_gather or ulysses with "
                 "model.sliding_window"},
        Conflict{"model: {preset: gpt2-124m, mtp: {layers: 1}}\n",
                 "s.yaml:1:33: model.position is learned, expected rope or none with model.mtp"},
        Conflict{"model: {preset: llama-7b, mtp: {pattern: '*-'}}\n",
                 "s.yaml:1:42: model.mtp.pattern is '*-', expected model.mamba or model.delta_net with it"},
        Conflict{
            "model: {preset: nemotron-h-8b, mtp: {pattern: '*-M'}}\n",
            "s.yaml:1:47: model.mtp.pattern is '*-M', expected the letters of one layer: M or *, with or "
            "without - or E behind it, or - or E alone"},
        Conflict{"model: {preset: nemotron-h-8b, mtp: {pattern: '*E'}}\n",
                 "s.yaml:1:47: model.mtp.pattern is '*E', expected model.experts with E"},
        Conflict{
            "model: {preset: nemotron3-nano-30b, mamba: {pattern: ME*E}, experts: {dense_ffn: 511}, mtp: "
            "{pattern: '*-'}}\n"
            "parallel: {tensor: {size: 2}, data: {size: 2}, expert: {size: 4, tensor: 1}}\n",
            "s.yaml:2:27: parallel.tensor.size is 2, expected a divisor of model.experts.dense_ffn (511)"},
        Conflict{
            "model: {preset: llama-7b, mtp: {layers: 2, repeated: true}}\n"
            "parallel: {data: {kind: fsdp, size: 2}}\n",
            "s.yaml:1:54: model.mtp.repeated is true, expected false with parallel.data.kind: fsdp, which "
            "would gather the module for each depth"},
        Conflict{"model: {preset: gpt2-124m, experts: {count: 4, latent: 64, bias: true}}\n",
                 "s.yaml:1:56: model.experts.latent is 64, expected model.experts.bias: false with it: its "
                 "projections "
                 "have no biases"},
        Conflict{"model: {preset: gpt2-124m, experts: {count: 4, latent: 64}}\nrecompute: selective_op\n",
                 "s.yaml:2:12: recompute is selective_op, expected none, selective or full with "
                 "model.experts.latent, whose two products it does not count"},
        Conflict{
            "model: {preset: gpt2-124m, experts: {count: 4, latent: 64}}\n"
            "parallel: {data: {size: 2}, expert: {size: 2, overlap: true}}\nbatch: {accumulate: 2}\n",
            "s.yaml:2:56: parallel.expert.overlap is true, expected false with model.experts.latent, whose "
            "projections have no place in the turns of micro-batches"},
        Conflict{"model: {preset: llama-7b, seq_len: 8, mtp: {layers: 8}}\n",
                 "s.yaml:1:53: model.mtp.layers is 8, expected less than model.seq_len (8): the last one has "
                 "no token to predict"},
        Conflict{
            "model: {preset: llama-7b, mtp: {layers: 1}}\nparallel: {data: {kind: dp, size: 2}}\n",
            "s.yaml:1:32: model.mtp is given, expected parallel.data.kind other than dp, which takes one "
            "loss of one gathered output"},
        Conflict{"model: {preset: deepseek-v3, mtp: {}}\n"
                 "parallel: {pipeline: {size: 2, mtp: before_last, balance: [60, 1]}}\n",
                 "s.yaml:2:59: parallel.pipeline.balance ends with 1, expected 0 with parallel.pipeline.mtp: "
                 "before_last, where the last stage has the heads alone"},
        Conflict{
            "model: {preset: deepseek-v3, mtp: {}}\n"
            "parallel: {pipeline: {size: 4, mtp: before_last, balance: [61, 0, 0, 0]}}\n",
            "s.yaml:2:59: parallel.pipeline.balance has a stage without layers, expected at least one in all "
            "but the first stage (which may have the embedding alone) and the last two (the modules of "
            "model.mtp, the heads) of a transformer"},
        Conflict{
            "model: {preset: deepseek-v3, tie_embeddings: true, mtp: {}}\n"
            "parallel: {pipeline: {size: 2, mtp: before_last}}\n",
            "s.yaml:2:37: parallel.pipeline.mtp is before_last, expected last with model.tie_embeddings, "
            "since three stages would have the table"},
        Conflict{
            "model: {preset: deepseek-v3, head_dim: 64}\n",
            "s.yaml:1:40: model.latent_attention.rope_dim is 64, expected less than model.head_dim (64), of "
            "which it is a part"},
        Conflict{
            "model: {preset: deepseek-v3, kv_heads: 8}\n",
            "s.yaml:1:40: model.kv_heads is 8, expected model.heads (128) with model.latent_attention: each "
            "head has keys of its own"},
        Conflict{"model: {preset: deepseek-v3, latent_attention: {kv_rank: 16777216, value_dim: 16777216}}\n",
                 "s.yaml:1:8: the model has 2.2e+18 parameters, expected at most 1e+15"},
        Conflict{"model: {preset: gpt2-124m, layers: 2000000000, hidden: 12000000}\n",
                 "s.yaml:1:36: the model has 3.5e+24 parameters, expected at most 1e+15"},
        Conflict{Gpt("batch: {micro: 2147483647}\n"),
                 "s.yaml:2:16: a micro-batch has a tensor of 1.1e+17 elements, expected at most 1e+15"}));

INSTANTIATE_TEST_SUITE_P(
    Numerics, Conflicts,
    testing::Values(
        Conflict{Gpt("precision: {compute: fp8, fp8_recipe: none}\n"),
                 "s.yaml:2:39: precision.fp8_recipe is 'none', expected tensorwise, delayed, rowwise, block "
                 "or mxfp8 for compute: fp8"},
        Conflict{Gpt("precision: {compute: fp8, fp8_recipe: nvfp4}\n"),
                 "s.yaml:2:39: precision.fp8_recipe is 'nvfp4', expected tensorwise, delayed, rowwise, block "
                 "or mxfp8 for compute: fp8"},
        Conflict{Gpt("precision: {compute: fp4, fp8_recipe: mxfp8}\nframework: megatron_core\n"),
                 "s.yaml:2:39: precision.fp8_recipe is 'mxfp8', expected nvfp4 for compute: fp4"},
        Conflict{Gpt("precision: {compute: fp4}\n"),
                 "s.yaml:2:22: precision.compute is 'fp4', expected framework: megatron_core, since "
                 "Transformer Engine's is the recipe that is modelled"},
        Conflict{"model: {preset: gpt2-124m, vocab: 50304, ffn: 3104}\nprecision: {compute: fp8, fp8_recipe: "
                 "mxfp8}\n"
                 "parallel: {tensor: {size: 2}}\n",
                 "s.yaml:1:47: model.ffn: a rank has 1552 columns, expected a multiple of 32 with "
                 "precision.fp8_recipe: mxfp8"},
        Conflict{"model: {preset: gpt2-124m, seq_len: 1000}\nprecision: {compute: fp8, fp8_recipe: mxfp8}\n",
                 "s.yaml:1:37: model.seq_len: a rank has 1000 tokens, expected a multiple of 32 with "
                 "precision.fp8_recipe: mxfp8"},
        Conflict{"model: {preset: llama3-8b, heads: 8, kv_heads: 1, head_dim: 4}\n"
                 "precision: {compute: fp8, fp8_recipe: mxfp8}\n",
                 "s.yaml:1:48: model.kv_heads: a rank has 40 columns of queries, keys and values, expected a "
                 "multiple of 32 with precision.fp8_recipe: mxfp8"},
        Conflict{
            "model: {kind: mlp, widths: [32, 32]}\nprecision: {compute: fp8}\n",
            "s.yaml:2:22: precision.compute is 'fp8', expected another type for kind: mlp: products of a "
            "transformer's blocks alone take it"},
        Conflict{Gpt("precision: {compute: bf16, fp8_recipe: block}\n"),
                 "s.yaml:2:40: precision.fp8_recipe is 'block', expected none unless compute is fp8 or fp4"},
        Conflict{
            Gpt("precision: {fp8_param_gather: true}\n"),
            "s.yaml:2:31: precision.fp8_param_gather is true, expected false with precision.compute: fp32"},
        Conflict{
            Gpt("precision: {compute: fp8, param: bf16, fp8_param_gather: true}\nparallel: {data: {kind: "
                "zero1, size: 2}}\n"),
            "s.yaml:2:58: precision.fp8_param_gather is true, expected kind: zero1 with framework: "
            "megatron_core, or kind: fsdp (version 2) with another framework than Megatron and DeepSpeed"},
        Conflict{Gpt("precision: {compute: fp8, param: bf16, fp8_param_gather: true, fp8_recipe: block}\n"
                     "parallel: {data: {kind: fsdp, version: 2, size: 2}}\n"),
                 "s.yaml:2:58: precision.fp8_param_gather is true, expected precision.fp8_recipe: tensorwise "
                 "with kind: fsdp, not block"},
        Conflict{Gpt("precision: {compute: fp8, fp8_param_gather: true}\n"
                     "parallel: {data: {kind: fsdp, version: 2, size: 2}}\n"),
                 "s.yaml:2:45: precision.fp8_param_gather is true, expected precision.param: bf16 or fp16, "
                 "the type of all other weights"},
        Conflict{Gpt("precision: {compute: fp8, param: bf16, fp8_param_gather: true, fp8_recipe: rowwise}\n"
                     "parallel: {data: {kind: zero1, size: 2}}\nframework: megatron_core\n"),
                 "s.yaml:2:58: precision.fp8_param_gather is true, expected another precision.fp8_recipe "
                 "than rowwise"},
        Conflict{Gpt("precision: {compute: fp8, param: bf16, fp8_param_gather: true}\n"
                     "parallel: {data: {kind: fsdp, version: 2, size: 4, reshard_after_forward: 2}}\n"),
                 "s.yaml:2:58: precision.fp8_param_gather is true, expected "
                 "parallel.data.reshard_after_forward: true or false, not 2"},
        Conflict{
            Gpt("precision: {compute: fp8, param: bf16, fp8_param_gather: true}\n"
                "parallel: {data: {kind: zero1, size: 2, offload: optimizer}}\nframework: megatron_core\n"),
            "s.yaml:2:58: precision.fp8_param_gather is true, expected parallel.data.offload: none, not "
            "optimizer"},
        Conflict{Gpt("optimizer: {momentum: 0.9}\n"),
                 "s.yaml:2:23: optimizer.momentum is 0.9, expected 0 unless kind is sgd or muon"},
        Conflict{Gpt("optimizer: {kind: muon}\nparallel: {data: {kind: zero1, size: 2}}\n"),
                 "s.yaml:2:19: optimizer.kind is muon, which updates whole matrices; expected "
                 "parallel.data.kind none, ddp or dp, not zero1, which shards them"},
        Conflict{
            Gpt("optimizer: {zero_redundancy: true}\nparallel: {data: {kind: fsdp, size: 2}}\n"),
            "s.yaml:2:30: optimizer.zero_redundancy is true, expected parallel.data.kind: ddp, not fsdp, "
            "which shards optimizer states itself"},
        Conflict{
            Gpt("optimizer: {zero_redundancy: true}\nframework: megatron_core\n"),
            "s.yaml:2:30: optimizer.zero_redundancy is true, expected framework pytorch, pytorch_compile or "
            "windtunnel, not megatron_core: PyTorch's ZeroRedundancyOptimizer is not used there"},
        Conflict{
            Gpt("optimizer: {zero_redundancy: true}\nparallel: {data: {size: 2}, tensor: {size: 2}}\n"),
            "s.yaml:2:30: optimizer.zero_redundancy is true, expected parallel.tensor.size: 1, not 2: all "
            "ranks share the parameters"},
        Conflict{Gpt("optimizer: {kind: muon, fused: true}\nframework: pytorch\n"),
                 "s.yaml:2:32: optimizer.fused is true, expected false for muon, which torch.optim has no "
                 "fused form of"},
        Conflict{Gpt("lr_scheduler: {decay: step, decay_steps: 5}\n"),
                 "s.yaml:2:42: lr_scheduler.decay_steps is 5, expected 0 with decay: step, which has no end"},
        Conflict{
            Gpt("lr_scheduler: {warmup_steps: 25, decay: cosine}\n"),
            "s.yaml:2:30: lr_scheduler has 25 steps of warm-up and at least 1 of decay, expected no more "
            "than the 25 of the schedule (total_steps, else run.warmup + run.steps)"}));

TEST(Checks, HeadsMayBeApartFromThePredictionsOfFurtherTokens) {
  for (const char* pipeline :
       {"{size: 2, mtp: before_last, balance: [61, 0]}", "{size: 3, mtp: before_last, balance: [61, 0, 0]}",
        "{size: 4, mtp: before_last, balance: [0, 61, 0, 0]}", "{size: 2, mtp: before_last}"})
    EXPECT_EQ(MessageOf(fmt::format("model: {{preset: deepseek-v3, mtp: {{}}}}\nparallel: {{pipeline: {}}}\n",
                                    pipeline)),
              "(no error)")
        << pipeline;
}

TEST(Checks, UnknownDevicesAreLeftToTheProfiles) {
  EXPECT_EQ(Parsed(Gpt("cluster: {device: tpu-v9}\n")).cluster.device, "tpu-v9");
}

}  // namespace
}  // namespace windtunnel
