// Weights of GPT-2, Llama, Mixtral and Qwen under Hugging Face's names, as transformers' GPT2LMHeadModel, LlamaForCausalLM,
// MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM and Qwen3MoeForCausalLM save them: a directory with model.safetensors and config.json.
//
// GPT-2: linear layers of blocks are Conv1D, whose weight is the transpose of a Linear's; queries, keys and values are one c_attn; names
//   begin with "transformer." (and are read without it, too).
// Llama: q_proj, k_proj, v_proj, gate_proj and up_proj are tensors of their own, which lie one after the other in ours. Rotary
//   positions rotate halves in both.
// Mixtral: Llama, with block_sparse_moe in the place of an MLP: gate is our router, and experts' w1 (gate), w3 (up) and w2 (down) are
//   tensors of their own, which lie one expert after the other in ours. It drops no tokens: model.experts.capacity_factor does, unless it
//   is count / top_k or more.
// Qwen2: Llama, with biases of q_proj, k_proj and v_proj. Qwen3: Llama, with q_norm and k_norm, one weight for all heads of each; its
//   experts' matrices are gate_proj, up_proj and down_proj.
// Tied heads are left out when written; when read, a head that is there must not differ.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/tensor_source.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// The weights as the logical tensors "model.…" of a scenario's model. `path` is a safetensors file, or a directory with
// model.safetensors, or with model.safetensors.index.json and the files that it names. Errors: Unsupported (a model of no such kind:
// names what differs; a configuration beside the weights of a model that computes otherwise: another base of rotary positions, another
// epsilon of norms), InvalidInput (no such file; a tensor that is missing, has another shape or has no place in the model).
Result<std::unique_ptr<TensorSource>> OpenHuggingFaceWeights(const std::string& path, const ModelSpec& model);

// Unsupported, as above, for a model that has no names there: what could be neither read nor written.
Status CheckHuggingFaceNames(const ModelSpec& model);

// Writes the weights of a checkpoint to DIRECTORY/model.safetensors, fp32, and DIRECTORY/config.json, which model.config reads. Errors:
// as above, Failed (names the file).
Status ExportHuggingFace(const Checkpoint& checkpoint, const std::string& directory);

}  // namespace windtunnel
