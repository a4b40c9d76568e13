// Every kind of mistake in a scenario file, with the exact message.
#include <filesystem>
#include <fstream>

#include "tests/scenarios/testing.h"

namespace windtunnel {
namespace {

struct Mistake {
  std::string text;
  std::string message;
};

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreReportedWithPlaceAndExpectation) {
  EXPECT_EQ(MistakesOf(GetParam().text), GetParam().message);
}

std::string Mlp(const std::string& rest) { return kMlp + rest; }
std::string Gpt(const std::string& rest) { return kGpt + rest; }

INSTANTIATE_TEST_SUITE_P(
    WholeFile, Mistakes,
    testing::Values(
        Mistake{"", "s.yaml:1:1: the file is empty, expected a scenario"},
        Mistake{"# a comment only\n", "s.yaml:1:1: the file is empty, expected a scenario"},
        Mistake{"- model\n", "s.yaml:1:1: the file is a list, expected a block of \"key: value\" lines"},
        Mistake{"hello\n", "s.yaml:1:1: the file is 'hello', expected a block of \"key: value\" lines"},
        Mistake{Mlp("---\nname: b\n"), "s.yaml:2:1: a second YAML document, expected only one"},
        Mistake{"model: {preset: [\n",
                "s.yaml:2:1: not valid YAML (end of sequence flow not found), expected \"key: value\" lines"},
        Mistake{"name: a: b\n",
                "s.yaml:1:8: not valid YAML (illegal map value), expected \"key: value\" lines"},
        Mistake{std::string(2000, '['),
                "s.yaml:1:1: values nested too deeply, expected at most a few hundred levels"},
        Mistake{"name: a\n", "s.yaml:1:1: model is missing, expected a value"},
        Mistake{"model: {preset: bert-base, sliding_window: {tokens: 64}}\n",
                "s.yaml:1:44: model.causal is false, expected true with model.sliding_window"},
        Mistake{"model: {preset: bert-base, masked_share: 0}\n",
                "s.yaml:1:42: model.masked_share is '0', expected more than 0"},
        Mistake{"model: {preset: gpt2-124m, masked_share: 0.3}\n",
                "s.yaml:1:42: model.masked_share is 0.3, expected model.causal: false with it"},
        Mistake{
            "model: {preset: bert-base, vocab: 1}\n",
            "s.yaml:1:35: model.vocab is 1, expected at least 2 with model.causal: false: the last token is "
            "the mask"},
        Mistake{"model: {preset: bert-base, post_norm: true}\n",
                "s.yaml:1:39: model.residual_from_norm is true, expected model.post_norm: false with it"},
        Mistake{
            "model: {preset: flan-t5-small, position: rope, attention: flash, sliding_window: {tokens: 8}}\n",
            "s.yaml:1:82: model.encoder is given, expected no model.sliding_window with it"},
        Mistake{"model: {preset: bart-base, encoder: {seq_len: 0}}\n",
                "s.yaml:1:47: model.encoder.seq_len is '0', expected at least 1"},
        Mistake{"model: {preset: gpt2-124m, encoder: {seq_len: 64}}\n",
                "s.yaml:1:37: model.encoder.layers is missing, expected a value"},
        Mistake{
            "model: {preset: t5-small}\nparallel: {pipeline: {size: 2}}\n",
            "s.yaml:2:29: parallel.pipeline.size is 2, expected 1 with model.encoder\n"
            "s.yaml:2:29: model.position is relative, expected parallel.pipeline.size: 1 (all blocks share "
            "one table) with it"},
        Mistake{
            "model: {preset: t5-small, attention: flash}\n",
            "s.yaml:1:38: model.position is relative, expected model.attention: eager, which adds biases to "
            "scores, with it"},
        Mistake{"model: {preset: gpt2-124m, document_tokens: 100}\n",
                "s.yaml:1:45: model.document_tokens is 100, expected a divisor of model.seq_len (1024)"},
        Mistake{"model: {preset: gpt2-124m, document_tokens: 128, attention: eager}\n",
                "s.yaml:1:61: model.attention is eager, expected flash with model.document_tokens: eager "
                "attention computes whole sequences and masks them"},
        Mistake{"model: {preset: gpt2-124m, document_tokens: 128, dropout: 0.1}\n",
                "s.yaml:1:59: model.dropout is 0.1, expected 0 with model.document_tokens"},
        Mistake{"model: {preset: gpt2-124m, document_tokens: 128}\n"
                "parallel: {context: {size: 2, kind: ring}}\n",
                "s.yaml:2:37: parallel.context.kind is ring, expected ulysses with model.document_tokens"},
        Mistake{"model: {preset: gpt2-124m}\nactivation_offload_layers: 2\n",
                "s.yaml:2:28: activation_offload_layers is 2, expected activation_offload: true"},
        Mistake{"model: {preset: mlp-10-100-10}\nactivation_offload: true\n",
                "s.yaml:2:21: activation_offload is true, expected false for kind: mlp, which has no blocks"},
        Mistake{
            "model: {preset: gpt2-124m}\nparallel: {data: {kind: dp, size: 2}}\nactivation_offload: true\n",
            "s.yaml:3:21: activation_offload is true, expected false with parallel.data.kind: dp"},
        Mistake{"model: {preset: gpt2-124m}\nrecompute: selective\nrecompute_layers: 2\n",
                "s.yaml:3:19: recompute_layers is 2, expected recompute: full, not selective"},
        Mistake{Mlp("name: \"abc\nbatch: {micro: 2}\n"),
                "s.yaml:2:7: a quote is opened and not closed, expected it at the end of the text"},
        Mistake{Mlp("name: &n 'it''s\n"),
                "s.yaml:2:7: a quote is opened and not closed, expected it at the end of the text"},
        Mistake{"model:\n\tpreset: gpt2-124m\n", "s.yaml:2:1: a tab indents the line, expected spaces"},
        Mistake{"batch:\n  micro: 1\n \taccumulate: 2\n",
                "s.yaml:3:2: a tab indents the line, expected spaces"},
        Mistake{Mlp("name: caf\xE9\n"), "s.yaml:2:10: not UTF-8, expected text in UTF-8"}));

INSTANTIATE_TEST_SUITE_P(
    DeltaNets, Mistakes,
    testing::Values(
        Mistake{
            "model: {preset: qwen3.5-9b, delta_net: {pattern: G-M}}\n",
            "s.yaml:1:50: model.delta_net.pattern is 'G-M', expected letters G (a gated delta network), * "
            "(attention), - (an MLP) and E (experts)"},
        Mistake{"model: {preset: qwen3.5-9b, delta_net: {pattern: '*-'}}\n",
                "s.yaml:1:50: model.delta_net.pattern is '*-', expected G for one of the 32 layers, or no "
                "model.delta_net"},
        Mistake{
            "model: {preset: qwen3.5-9b, delta_net: {key_heads: 5}}\n",
            "s.yaml:1:52: model.delta_net.key_heads is 5, expected a divisor of model.delta_net.value_heads "
            "(32)"},
        Mistake{"model: {preset: qwen3.5-9b, mamba: {pattern: M}}\n",
                "s.yaml:1:36: model.delta_net is given, expected no model.mamba with it"},
        Mistake{"model: {preset: qwen3.5-9b, lora: {rank: 4}}\n",
                "s.yaml:1:35: model.delta_net is given, expected no model.lora with it"},
        Mistake{"model: {preset: qwen3.5-9b, delta_net: {key_heads: 2}}\nparallel: {tensor: {size: 4}}\n",
                "s.yaml:2:27: parallel.tensor.size is 4, expected a divisor of model.delta_net.key_heads "
                "(2), which "
                "its ranks share"},
        Mistake{
            "model: {preset: qwen3.5-9b}\nrecompute: selective_op\n",
            "s.yaml:2:12: recompute is selective_op, expected none, selective or full with "
            "model.attention_gate, "
            "whose product it does not count\n"
            "s.yaml:2:12: recompute is selective_op, expected none, selective or full with model.delta_net"},
        Mistake{"model: {preset: deepseek-v3, attention_gate: true}\n",
                "s.yaml:1:46: model.attention_gate is true, expected false with model.latent_attention"},
        Mistake{"model: {preset: qwen3-30b-a3b, experts: {shared_gate: true}}\n",
                "s.yaml:1:55: model.experts.shared_gate is true, expected false without "
                "model.experts.shared_ffn"}));

INSTANTIATE_TEST_SUITE_P(
    Mamba, Mistakes,
    testing::Values(
        Mistake{
            "model: {preset: nemotron-h-8b, mamba: {pattern: M-G}}\n",
            "s.yaml:1:49: model.mamba.pattern is 'M-G', expected letters M (Mamba-2), * (attention), - (an "
            "MLP) and E (experts)"},
        Mistake{"model: {preset: nemotron-h-8b, mamba: {pattern: ''}}\n",
                "s.yaml:1:49: model.mamba.pattern is '', expected letters such as M-M*-: M (Mamba-2), * "
                "(attention), - (an MLP) and E (experts)"},
        Mistake{"model: {preset: nemotron-h-8b, mamba: {pattern: E*M}}\n",
                "s.yaml:1:49: model.mamba.pattern is 'E*M', expected model.experts with E"},
        Mistake{"model: {preset: nemotron-h-8b, mamba: {pattern: '*-'}}\n",
                "s.yaml:1:49: model.mamba.pattern is '*-', expected M for one of the 28 layers, or no "
                "model.mamba"},
        Mistake{"model: {preset: nemotron-h-8b, layers: 1, mamba: {pattern: '*M'}}\n",
                "s.yaml:1:60: model.mamba.pattern is '*M', expected M for one of the 1 layers, or no "
                "model.mamba"},
        Mistake{"model: {preset: nemotron-h-8b, mamba: {pattern: ME}}\n",
                "s.yaml:1:49: model.mamba.pattern is 'ME', expected model.experts with E"},
        Mistake{"model: {preset: nemotron3-nano-30b, mamba: {pattern: M-}}\n",
                "s.yaml:1:54: model.mamba.pattern is 'M-', expected E for one of the 29 layers, or no "
                "model.experts"},
        Mistake{"model: {preset: nemotron-h-8b, mamba: {groups: 3}}\n",
                "s.yaml:1:48: model.mamba.groups is 3, expected a divisor of model.mamba.heads (128)"},
        Mistake{"model: {layers: 1, hidden: 16, vocab: 8, seq_len: 4, mamba: {head_dim: 64}}\n",
                "s.yaml:1:72: model.mamba.head_dim is 64, expected at most twice model.hidden (16), or "
                "model.mamba.heads"},
        Mistake{"model: {preset: nemotron-h-8b, causal: false}\n",
                "s.yaml:1:40: model.mamba is given, expected model.causal: true with it"},
        Mistake{"model: {preset: nemotron-h-8b, pre_norm: false, post_norm: true}\n",
                "s.yaml:1:42: model.mamba is given, expected model.pre_norm: true with it\n"
                "s.yaml:1:60: model.mamba is given, expected model.post_norm: false with it"},
        Mistake{"model: {preset: nemotron-h-8b, post_norm: true}\n",
                "s.yaml:1:43: model.mamba is given, expected model.post_norm: false with it"},
        Mistake{"model: {preset: nemotron-h-8b, residual_from_norm: true}\n",
                "s.yaml:1:52: model.mamba is given, expected model.residual_from_norm: false with it"},
        Mistake{"model: {preset: nemotron-h-8b, parallel_residual: one_norm}\n",
                "s.yaml:1:51: model.mamba is given, expected model.parallel_residual: none with it"},
        Mistake{"model: {preset: nemotron-h-8b, position: relative, attention: eager}\n",
                "s.yaml:1:42: model.mamba is given, expected another model.position than relative with it"},
        Mistake{
            "model: {preset: nemotron-h-8b, position: rope, kv_heads: 32, latent_attention: {kv_rank: 64}}\n",
            "s.yaml:1:80: model.mamba is given, expected no model.latent_attention with it"},
        Mistake{"model: {preset: nemotron-h-8b, sliding_window: {tokens: 64}}\n",
                "s.yaml:1:48: model.mamba is given, expected no model.sliding_window with it"},
        Mistake{"model: {preset: nemotron-h-8b, document_tokens: 1024}\n",
                "s.yaml:1:49: model.mamba is given, expected model.document_tokens: 0 (states would go on "
                "into the next document) with it"},
        Mistake{"model: {preset: nemotron-h-8b, encoder: {layers: 2}}\n",
                "s.yaml:1:41: model.mamba is given, expected no model.encoder with it"},
        Mistake{"model: {preset: nemotron-h-8b, lora: {rank: 4}}\n",
                "s.yaml:1:38: model.mamba is given, expected no model.lora with it"},
        Mistake{"model: {preset: nemotron3-nano-30b, experts: {first_dense: 1, every: 2}}\n",
                "s.yaml:1:60: model.mamba is given, expected model.experts.first_dense: 0 "
                "(model.mamba.pattern says which layers have experts) with it\n"
                "s.yaml:1:70: model.mamba is given, expected model.experts.every: 1 (model.mamba.pattern "
                "says which layers have experts) with it"},
        Mistake{"model: {preset: nemotron-h-8b, mamba: {groups: 2}}\nparallel: {tensor: {size: 4}}\n",
                "s.yaml:2:27: parallel.tensor.size is 4, expected a divisor of model.mamba.groups (2), "
                "which its ranks share"},
        Mistake{"model: {preset: nemotron-h-8b}\nparallel: {tensor: {size: 2}, context: {size: 8}}\n",
                "s.yaml:2:47: parallel.context.size is 8, expected context x tensor (16) to divide "
                "model.mamba.groups (8), which their ranks share"},
        Mistake{
            "model: {preset: nemotron-h-8b}\nframework: pytorch\nparallel: {context: {size: 2}}\n"
            "cluster: {device: h100-sxm-80g}\n",
            "s.yaml:3:28: parallel.context.size is 2, expected 1 with model.mamba and framework: pytorch, "
            "which cannot split sequences among state space models"},
        Mistake{"model: {preset: nemotron3-nano-30b}\nparallel: {expert: {size: 2, overlap: true}, data: "
                "{size: 2}}\nbatch: {accumulate: 2}\n",
                "s.yaml:2:39: parallel.expert.overlap is true, expected false with model.mamba"},
        Mistake{"model: {preset: nemotron-h-8b}\nrecompute: selective_op\n",
                "s.yaml:2:12: recompute is selective_op, expected none, selective or full with "
                "model.mamba"},
        Mistake{"model: {kind: mlp, widths: [2, 2], mamba: {state: 2}}\n",
                "s.yaml:1:43: model.mamba is for kind: transformer, expected model.widths only"}));

INSTANTIATE_TEST_SUITE_P(
    Keys, Mistakes,
    testing::Values(
        Mistake{Mlp("bathc: {micro: 1}\n"), "s.yaml:2:1: unknown key 'bathc', did you mean 'batch'?"},
        Mistake{Mlp("batch:\n  mirco: 1\n"),
                "s.yaml:3:3: unknown key 'batch.mirco', did you mean 'batch.micro'?"},
        Mistake{Mlp("seq_len: 128\n"), "s.yaml:2:1: unknown key 'seq_len', did you mean 'model.seq_len'?"},
        Mistake{Mlp("bf16: true\n"), "s.yaml:2:1: unknown key 'bf16', did you mean 'precision.param: bf16'?"},
        Mistake{Mlp("bf16: false\n"), "s.yaml:2:1: unknown key 'bf16', did you mean 'precision.param'?"},
        Mistake{Mlp("parallel: {data: zero1}\n"),
                "s.yaml:2:18: parallel.data is 'zero1', expected a block such as {kind: zero1}"},
        Mistake{Mlp("optimizer: {learning_rate: 1}\n"),
                "s.yaml:2:13: unknown key 'optimizer.learning_rate', did you mean 'optimizer.lr'?"},
        Mistake{Mlp("parallel: {kind: ddp}\n"),
                "s.yaml:2:12: unknown key 'parallel.kind', did you mean 'parallel.data.kind'?"},
        Mistake{Mlp("parallel: {tp: 2}\n"),
                "s.yaml:2:12: unknown key 'parallel.tp', did you mean 'parallel.tensor.size'?"},
        Mistake{Mlp("batch: {size: 2, epochs: 3}\n"),
                "s.yaml:2:9: unknown key 'batch.size', did you mean 'batch.micro'?\n"
                "s.yaml:2:18: unknown key 'batch.epochs', expected micro or accumulate"},
        Mistake{Mlp("batch: {foo: 2}\n"),
                "s.yaml:2:9: unknown key 'batch.foo', expected micro or accumulate"},
        // The misspelt key is why the other one is missing.
        Mistake{"name: a\nmodle: {preset: gpt2-124m}\n",
                "s.yaml:2:1: unknown key 'modle', did you mean 'model'?"},
        Mistake{Mlp("parallelism: {tensor_parallel_degree: 2, zzz: 1, pipeline_parallel_degree: 4}\n"),
                "s.yaml:2:1: unknown key 'parallelism', whose keys are elsewhere here: "
                "tensor_parallel_degree is 'parallel.tensor.size'; pipeline_parallel_degree is "
                "'parallel.pipeline.size'"},
        Mistake{Mlp("quantize: {linear: {float8: {memory_budget: 1}}}\n"),
                "s.yaml:2:1: unknown key 'quantize', whose keys are elsewhere here: float8 is "
                "'precision.compute: fp8'; of memory_budget, what the compiler recomputes within a budget is "
                "not modelled"},
        Mistake{Mlp("zero_optimization: {stage: 3, overlap_comm: true}\n"),
                "s.yaml:2:1: unknown key 'zero_optimization', which is 'parallel.data.kind' (zero1, zero2 or "
                "zero3, after the stage), and whose keys are elsewhere here: overlap_comm is "
                "'parallel.data.overlap'"},
        Mistake{Mlp("training: {local_batch_size: 1, seq_len: 8, steps: 9}\n"),
                "s.yaml:2:1: unknown key 'training', whose keys are elsewhere here: local_batch_size is "
                "'batch.micro'; seq_len is 'model.seq_len'; steps is 'run.steps'"},
        Mistake{
            Mlp("search: {global_batch: [64]}\n"),
            "s.yaml:2:10: unknown key 'search.global_batch', a search keeps the scenario's: batch.micro x "
            "batch.accumulate x parallel.data.size"},
        Mistake{Mlp("search: {tp: [1, 2]}\n"),
                "s.yaml:2:10: unknown key 'search.tp', did you mean 'search.tensor'?"},
        Mistake{Mlp("dropout: 0.1\n"), "s.yaml:2:1: unknown key 'dropout', did you mean 'model.dropout'?"},
        Mistake{Mlp("warmup_steps: 5\n"),
                "s.yaml:2:1: unknown key 'warmup_steps', did you mean 'lr_scheduler.warmup_steps'?"},
        Mistake{Mlp("run: {warmup_steps: 5}\n"),
                "s.yaml:2:7: unknown key 'run.warmup_steps', did you mean 'run.warmup'?"},
        Mistake{Mlp("loss_parallel: true\n"),
                "s.yaml:2:1: unknown key 'loss_parallel', with tensor ranks, the vocabulary and the loss are "
                "always divided among them"},
        Mistake{Mlp("batch: {recompute: full}\n"),
                "s.yaml:2:9: unknown key 'batch.recompute', did you mean 'recompute'?"},
        Mistake{Mlp("batch: {micro: 1}\nbatch: {micro: 2}\n"),
                "s.yaml:3:1: duplicate key 'batch', expected it once (it is already in line 2)"},
        Mistake{Mlp("batch: {micro: 1, micro: 1}\n"),
                "s.yaml:2:19: duplicate key 'micro', expected it once (it is already in line 2)"},
        Mistake{Mlp("? [a]\n: 1\n"), "s.yaml:2:3: a key is a list, expected text"},
        Mistake{Mlp("name: !!str a\n"),
                "s.yaml:2:7: the tag 'tag:yaml.org,2002:str', expected a plain value"}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, Mistakes,
    testing::Values(
        Mistake{Mlp("batch: {micro: two}\n"), "s.yaml:2:16: batch.micro is 'two', expected a whole number"},
        Mistake{Mlp("batch: {micro: \"2\"}\n"),
                "s.yaml:2:16: batch.micro is '2', expected a whole number without quotes"},
        Mistake{Mlp("batch: {micro: 2.5}\n"), "s.yaml:2:16: batch.micro is '2.5', expected a whole number"},
        Mistake{Mlp("batch: {micro: 1e3}\n"),
                "s.yaml:2:16: batch.micro is '1e3', expected a whole number in digits only (1000)"},
        Mistake{Mlp("batch: {micro: auto}\n"),
                "s.yaml:2:16: batch.micro is 'auto', expected a whole number: only Hugging Face's Trainer "
                "fills in 'auto'"},
        Mistake{Mlp("batch: {micro: 1.5e0}\n"),
                "s.yaml:2:16: batch.micro is '1.5e0', expected a whole number"},
        Mistake{Mlp("batch: {micro: 1_000}\n"),
                "s.yaml:2:16: batch.micro is '1_000', expected a whole number in digits only (1000)"},
        Mistake{Mlp("batch: {micro: 010}\n"),
                "s.yaml:2:16: batch.micro is '010', expected a whole number in digits only (10)"},
        Mistake{Mlp("batch: {micro: 0x10}\n"), "s.yaml:2:16: batch.micro is '0x10', expected a whole number"},
        Mistake{Mlp("batch: {micro: 1:30}\n"), "s.yaml:2:16: batch.micro is '1:30', expected a whole number"},
        Mistake{Mlp("batch: {micro: true}\n"), "s.yaml:2:16: batch.micro is 'true', expected a whole number"},
        Mistake{Mlp("batch: {micro: [2]}\n"), "s.yaml:2:16: batch.micro is a list, expected a whole number"},
        Mistake{Mlp("batch: {micro: {}}\n"), "s.yaml:2:16: batch.micro is a block, expected a whole number"},
        Mistake{Mlp("batch:\n  micro:\n\nname: a\n"),
                "s.yaml:3:3: batch.micro is empty, expected a whole number"},
        Mistake{
            Mlp("batch: {micro: 99999999999999999999}\n"),
            "s.yaml:2:16: batch.micro is '99999999999999999999', expected a whole number of at most 63 bits"},
        Mistake{Mlp("batch: {micro: 3000000000}\n"),
                "s.yaml:2:16: batch.micro is '3000000000', expected at most 2147483647"},
        Mistake{Mlp("batch: {micro: 0}\n"), "s.yaml:2:16: batch.micro is '0', expected at least 1"},
        Mistake{Mlp("batch: {accumulate: -4}\n"),
                "s.yaml:2:21: batch.accumulate is '-4', expected at least 1"},
        Mistake{Mlp("optimizer: {lr: fast}\n"), "s.yaml:2:17: optimizer.lr is 'fast', expected a number"},
        Mistake{Mlp("optimizer: {lr: '1'}\n"),
                "s.yaml:2:17: optimizer.lr is '1', expected a number without quotes"},
        Mistake{Mlp("optimizer: {lr: .inf}\n"), "s.yaml:2:17: optimizer.lr is '.inf', expected a number"},
        Mistake{Mlp("optimizer: {lr: 1e999}\n"),
                "s.yaml:2:17: optimizer.lr is '1e999', expected a number in the range of a double"},
        Mistake{Mlp("optimizer: {lr: -1}\n"), "s.yaml:2:17: optimizer.lr is '-1', expected at least 0"},
        Mistake{Gpt("tolerance: {step_time: -0.1}\n"),
                "s.yaml:2:24: tolerance.step_time is '-0.1', expected at least 0"},
        Mistake{"model: {preset: gpt2-124m, dropout: 1}\n",
                "s.yaml:1:37: model.dropout is '1', expected less than 1"},
        Mistake{Mlp("parallel: {data: {bucket_cap_mb: 0}}\n"),
                "s.yaml:2:34: parallel.data.bucket_cap_mb is '0', expected more than 0"},
        Mistake{Mlp("parallel: {data: {bucket_cap_mb: 25MB}}\n"),
                "s.yaml:2:34: parallel.data.bucket_cap_mb is '25MB', expected a number without a unit, which "
                "counts MiB"},
        Mistake{Mlp("batch: {micro: 2k}\n"),
                "s.yaml:2:16: batch.micro is '2k', expected a whole number without a unit"},
        Mistake{Mlp("search: {tensor: [1, 0]}\n"), "s.yaml:2:22: search.tensor is '0', expected at least 1"},
        Mistake{Mlp("search: {tensor: 2}\n"), "s.yaml:2:18: search.tensor is '2', expected a list"}));

INSTANTIATE_TEST_SUITE_P(
    Words, Mistakes,
    testing::Values(
        Mistake{Mlp("run: {pin: yes}\n"), "s.yaml:2:12: run.pin is 'yes', expected true or false"},
        Mistake{Mlp("run: {pin: off}\n"), "s.yaml:2:12: run.pin is 'off', expected true or false"},
        Mistake{Mlp("run: {pin: tRue}\n"), "s.yaml:2:12: run.pin is 'tRue', expected true or false"},
        Mistake{Mlp("run: {pin: 1}\n"), "s.yaml:2:12: run.pin is '1', expected true or false"},
        Mistake{Mlp("run: {pin: \"true\"}\n"),
                "s.yaml:2:12: run.pin is 'true', expected true or false without quotes"},
        Mistake{
            Mlp("parallel: {data: {reshard_after_forward: some}}\n"),
            "s.yaml:2:42: parallel.data.reshard_after_forward is 'some', expected true, false or an integer"},
        Mistake{
            Mlp("parallel: {data: {reshard_after_forward: 0}}\n"),
            "s.yaml:2:42: parallel.data.reshard_after_forward is '0', expected true, false or an integer, at "
            "least 1"},
        Mistake{Mlp("name: 405\n"), "s.yaml:2:7: name is '405', expected text (write \"405\")"},
        Mistake{Mlp("optimizer: {kind: adamx}\n"),
                "s.yaml:2:19: optimizer.kind is 'adamx', expected sgd, adam, adamw or muon (did you mean "
                "'adam'?)"},
        Mistake{Mlp("recompute: no\n"),
                "s.yaml:2:12: recompute is 'no', expected none, selective, selective_op or full"},
        Mistake{
            Mlp("precision: {param: bfloat16}\n"),
            "s.yaml:2:20: precision.param is 'bfloat16', expected fp32, bf16 or fp16 (did you mean 'bf16'?)"},
        Mistake{
            Mlp("parallel: {data: {kind: DDP}}\n"),
            "s.yaml:2:25: parallel.data.kind is 'DDP', expected none, dp, ddp, zero1, zero2, zero3 or fsdp "
            "(did you mean 'ddp'?)"},
        Mistake{
            Mlp("parallel: {data: {kind: deepspeed}}\n"),
            "s.yaml:2:25: parallel.data.kind is 'deepspeed', expected none, dp, ddp, zero1, zero2, zero3 or "
            "fsdp (zero1, zero2 or zero3, after DeepSpeed's stage)"},
        Mistake{Mlp("optimizer: {kind: Lion}\n"),
                "s.yaml:2:19: optimizer.kind is 'Lion', expected sgd, adam, adamw or muon (not modelled; sgd "
                "with momentum has as many states)"},
        Mistake{Mlp("framework: megatron-lm\n"),
                "s.yaml:2:12: framework is 'megatron-lm', expected windtunnel, pytorch, pytorch_compile, "
                "megatron, megatron_core, deepspeed or a path that ends with .json (did you mean "
                "'megatron_core'?)"},
        Mistake{Mlp("name: \"a\\e[31m\"\n"),
                "s.yaml:2:7: name is 'a\\x1b[31m', expected text without control characters"},
        Mistake{Mlp("name: \"a\\nb\"\n"),
                "s.yaml:2:7: name is 'a\\nb', expected text on one line, without tabs"},
        Mistake{Mlp("precision: {loss_scale: dynamics}\n"),
                "s.yaml:2:25: precision.loss_scale is 'dynamics', expected none, dynamic or a number (did "
                "you mean 'dynamic'?)"},
        Mistake{Mlp("precision: {loss_scale: 0}\n"),
                "s.yaml:2:25: precision.loss_scale is '0', expected more than 0"},
        Mistake{Mlp("precision: {init_scale: -1}\n"),
                "s.yaml:2:25: precision.init_scale is '-1', expected more than 0"},
        Mistake{Mlp("precision: {growth_interval: 0}\n"),
                "s.yaml:2:30: precision.growth_interval is '0', expected at least 1"},
        Mistake{
            "model: {preset: gpt2}\n",
            "s.yaml:1:17: model.preset is 'gpt2', expected one of `windtunnel list models`; of other models, "
            "model.config takes the Hugging Face config.json (did you mean 'gpt2-124m'?)"},
        Mistake{"model: {preset: gpt2-xl}\n",
                "s.yaml:1:17: model.preset is 'gpt2-xl', expected one of `windtunnel list models`; of other "
                "models, "
                "model.config takes the Hugging Face config.json (did you mean 'gpt2-1.5b'?)"},
        Mistake{Gpt("parallel: {pipeline: {schedule: 1b1f}}\n"),
                "s.yaml:2:33: parallel.pipeline.schedule is '1b1f', expected none, gpipe, 1f1b, interleaved, "
                "looped_bfs, zb_h1, zb_v, dualpipe_v or a .csv file"},
        Mistake{
            Gpt("parallel: {data: {wrap: size:big}}\n"),
            "s.yaml:2:25: parallel.data.wrap is 'size:big', expected a positive number of bytes without a "
            "unit after size:, such as size:1000000"},
        Mistake{Gpt("parallel: {data: {wrap: size:1GiB}}\n"),
                "s.yaml:2:25: parallel.data.wrap is 'size:1GiB', expected a positive number of bytes without "
                "a unit after size:, such as size:1000000"},
        Mistake{
            Gpt("parallel: {data: {wrap: []}}\n"),
            "s.yaml:2:25: parallel.data.wrap is an empty list, expected block, root, size:BYTES or a list "
            "of module names"},
        Mistake{Mlp("cluster: {network: {intra_node: nvlink}}\n"),
                "s.yaml:2:33: cluster.network.intra_node is 'nvlink', expected nvlink2, nvlink2_mesh, "
                "nvlink3, nvlink3x8, nvlink4, nvlink4x8, nvlink5, pcie3, pcie4, pcie5 or loopback (did you "
                "mean 'nvlink2'?)"},
        Mistake{Mlp("cluster: {network: {intra_node: {kind: infiniband}}}\n"),
                "s.yaml:2:40: cluster.network.intra_node is 'infiniband', expected nvlink2, "
                "nvlink2_mesh, nvlink3, nvlink3x8, nvlink4, nvlink4x8, nvlink5, pcie3, pcie4, pcie5 or "
                "loopback"},
        Mistake{Mlp("cluster: {network: {inter_node: {kind: nvlink4}}}\n"),
                "s.yaml:2:40: cluster.network.inter_node is 'nvlink4', expected infiniband, roce, ethernet, "
                "omnipath or efa"},
        Mistake{Mlp("cluster: fast\n"),
                "s.yaml:2:10: cluster is 'fast', expected a block such as {device: fast}"},
        Mistake{Mlp("cluster: {slow_link: {from: 3, to: leaf0, factor: 0.5}}\n"),
                "s.yaml:2:29: cluster.slow_link.from is '3', expected a name of cluster.topology, such as "
                "node0, node0.nic1, leaf0 or spine"},
        Mistake{Mlp("cluster: {straggler: {rank: 0}}\n"),
                "s.yaml:2:22: cluster.straggler.slowdown is missing, expected a value"}));

TEST(LoadErrors, LayersOnTheHostMayBeThoseOfASearch) {
  EXPECT_EQ(MistakesOf(Gpt("activation_offload_layers: 2\nsearch: {activation_offload: [false, true]}\n")),
            "(no error)");
}

// YAML's core schema has True and TRUE, JSON Schema counts 8.0 among the integers, and Python writes both.
TEST(LoadErrors, ValuesAsPythonWritesThemAreNone) {
  EXPECT_EQ(MistakesOf(Mlp("run: {pin: True, steps: 8.0, cuda_graphs: FALSE}\n")), "(no error)");
  EXPECT_EQ(MistakesOf(Mlp("run: {steps: 8.5}\n")),
            "s.yaml:2:14: run.steps is '8.5', expected a whole number");
  EXPECT_EQ(MistakesOf(Mlp("run: {steps: 8.}\n")), "s.yaml:2:14: run.steps is '8.', expected a whole number");
}

TEST(LoadErrors, AllMistakesAreReportedInTheOrderOfTheFile) {
  EXPECT_EQ(MistakesOf(Mlp("tolerance: {step_time: -1}\nbatch: {micro: 0}\nrun: {stepz: 3}\n")),
            "s.yaml:2:24: tolerance.step_time is '-1', expected at least 0\n"
            "s.yaml:3:16: batch.micro is '0', expected at least 1\n"
            "s.yaml:4:7: unknown key 'run.stepz', did you mean 'run.steps'?");
}

TEST(LoadErrors, ModulesThatAreMadeAgainAreThere) {
  const auto of = [](const std::string& modules, const std::string& rest) {
    return MistakesOf(Gpt("recompute_modules: [" + modules + "]\n" + rest));
  };
  EXPECT_EQ(of("layernorm", ""),
            "s.yaml:2:20: recompute_modules is given, expected recompute: selective, not none");
  EXPECT_EQ(of("layernorm", "recompute: full\nsearch: {recompute: [full, selective]}\n"), "(no error)");
  const std::string selective = "recompute: selective\n";
  EXPECT_EQ(of("mlp, layernorm, core_attn", selective), "(no error)");
  EXPECT_EQ(of("moe_act, mla_up_proj", selective),
            "s.yaml:2:20: recompute_modules has moe_act, which no layer of the model has\n"
            "s.yaml:2:20: recompute_modules has mla_up_proj, which no layer of the model has");
  EXPECT_EQ(of("mlp, mlp", selective), "s.yaml:2:20: recompute_modules has mlp 2 times, expected once");
  EXPECT_EQ(
      of("layer_norm", selective),
      "s.yaml:2:21: recompute_modules is 'layer_norm', expected core_attn, layernorm, mla_up_proj, mlp, moe, "
      "moe_act or shared_experts (did you mean 'layernorm'?)");
}

TEST(LoadErrors, MergeKeysAreNotRead) {
  EXPECT_EQ(
      MistakesOf(Gpt("batch: {<<: {micro: 2}}\n")),
      "s.yaml:2:9: found a merge key ('<<'), expected the keys themselves (a whole block may be an alias)");
}

TEST(LoadErrors, FusedLossesAreOfFrameworksThatHaveThem) {
  const std::string fused = "cross_entropy: fused\n";
  for (const char* has : {"windtunnel", "pytorch", "pytorch_compile", "megatron_core"})
    EXPECT_EQ(MistakesOf(Gpt(fused + "framework: " + has + "\n")), "(no error)") << has;
  for (const std::string has_not : {"megatron", "deepspeed"}) {
    EXPECT_EQ(
        MistakesOf(Gpt(fused + "framework: " + has_not + "\n")),
        "s.yaml:2:16: cross_entropy is fused, expected framework windtunnel, pytorch, pytorch_compile or "
        "megatron_core, which have it, not " +
            has_not);
  }
  EXPECT_EQ(MistakesOf(Mlp(fused)),
            "s.yaml:2:16: cross_entropy is fused, expected it left out for kind: mlp, whose loss is a mean "
            "squared error");
}

TEST(LoadErrors, FlashKernelsAreChosenWhereOtherFrameworksArePredicted) {
  const std::string gpt = "model: {preset: gpt2-124m, flash_kernels: cudnn}\nframework: ";
  for (const char* other : {"pytorch", "pytorch_compile", "megatron_core", "deepspeed"})
    EXPECT_EQ(MistakesOf(gpt + other + "\n"), "(no error)") << other;
  EXPECT_EQ(
      MistakesOf(gpt + "windtunnel\n"),
      "s.yaml:1:43: model.flash_kernels is cudnn, expected it left out for framework: windtunnel, which "
      "has cuDNN's where they are and its own elsewhere");
  EXPECT_EQ(
      MistakesOf("model: {preset: gpt2-124m, attention: eager, flash_kernels: flash_attention_2}\n"
                 "framework: pytorch\n"),
      "s.yaml:1:61: model.flash_kernels is flash_attention_2, expected it left out for attention: eager, "
      "which is not fused");
}

// Conditions between keys are checked once each key can be read.
TEST(LoadErrors, MistakesOfSeveralKeysAreReportedTogether) {
  EXPECT_EQ(MistakesOf(Mlp("parallel: {tensor: {size: 3}, expert: {size: 2}}\n")),
            "s.yaml:2:27: parallel.tensor.size is 3, expected a divisor of entry 2 of model.widths (100)\n"
            "s.yaml:2:46: parallel.expert.size is 2, expected 1 for kind: mlp, which has no experts");
}

TEST(LoadErrors, LongAndMultiLineTextIsShownOnOneLine) {
  EXPECT_EQ(MessageOf(Mlp("recompute: \"a\\nb\"\n")),
            "s.yaml:2:12: recompute is 'a\\nb', expected none, selective, selective_op or full");
  EXPECT_EQ(MessageOf(Mlp("recompute: " + std::string(500, 'x') + "\n")),
            "s.yaml:2:12: recompute is '" + std::string(80, 'x') +
                "...', expected none, selective, selective_op or full");
}

TEST(LoadErrors, AliasesAreFollowedButDoNotExplode) {
  EXPECT_EQ(Parsed(Mlp("name: &n both\ndescription: *n\n")).description, "both");
  EXPECT_EQ(MessageOf("a: &a [*a]\n"), "s.yaml:1:8: an alias inside its own anchor, expected a value");
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i, i - 1);
  }
  EXPECT_NE(MessageOf(bomb).find("the aliases unfold into too many values, expected at most 100000"),
            std::string::npos);
}

TEST(LoadErrors, FilesThatCannotBeReadAreNamed) {
  std::string directory = testing::TempDir();
  Result<Scenario> missing = LoadScenario(directory + "/nowhere.yaml", {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(
      missing.error().message,
      directory + "/nowhere.yaml: cannot be read (No such file or directory), expected a scenario file");
  Result<Scenario> folder = LoadScenario(directory, {});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, directory + ": is a directory, expected a scenario file");
}

TEST(LoadErrors, AFileIsNamedAsItWasGiven) {
  std::string path = testing::TempDir() + "/bad.yaml";
  std::ofstream(path) << Mlp("batch: 3\n");
  Result<Scenario> scenario = LoadScenario(path, {});
  ASSERT_FALSE(scenario);
  EXPECT_EQ(scenario.error().message, path + ":2:8: batch is '3', expected a block such as {micro: 3}");
}

INSTANTIATE_TEST_SUITE_P(
    OtherFrameworks, Mistakes,
    testing::Values(Mistake{
        Mlp("cluster: {device: a100-sxm-80g}\nframework: pytorch\nrun: {deterministic: true}\n"),
        "s.yaml:4:22: run.deterministic is true, expected false for framework: pytorch: only "
        "Windtunnel's own "
        "kernels are known"}));

}  // namespace
}  // namespace windtunnel
