// Weights of GPT-2, Llama, Mistral, Mixtral, Qwen and OLMo 2 and 3 under Hugging Face's names, as
// transformers saves GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM,
// Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, Olmo2ForCausalLM and Olmo3ForCausalLM: a directory
// with model.safetensors and config.json.
//
// GPT-2: the blocks' linear layers are Conv1D, whose weight is the transpose of a Linear's. Queries, keys and
//   values are one c_attn. Names begin with "transformer." (they are also read without it).
// Llama: q_proj, k_proj, v_proj, gate_proj and up_proj are separate tensors, which this project stores one
//   after the other in one. Rotary positions rotate halves in both.
// Mistral: Llama with a sliding window.
// Mixtral: Llama with block_sparse_moe in place of the MLP. Its gate is this project's router. The experts'
//   w1 (gate), w3 (up) and w2 (down) are separate tensors, which this project stores one expert after the
//   other. It drops no tokens; model.experts.capacity_factor does, unless it is at least count / top_k.
// Qwen2: Llama with biases on q_proj, k_proj and v_proj. Qwen3: Llama with q_norm and k_norm, each one weight
//   for all heads. Its experts' matrices are gate_proj, up_proj and down_proj.
// Adapters (model.lora) are not read, and written merged into the weights that they belong to.
// Tied heads are not written. If a file to read has one, it must equal the embedding.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/tensor_source.h"
#include "scenarios/model_spec.h"

namespace windtunnel {

// Opens weights as the logical tensors "model.…" of a scenario's model. `path` is a safetensors file, or a
// directory with model.safetensors, or with model.safetensors.index.json and the files that it names. Errors:
// Unsupported (a model of no such kind: names what differs; the weights' config.json scales rotary
// positions), InvalidInput (no such file; a tensor that is missing, has another shape or has no place in the
// model; another base of rotary positions or another epsilon of norms in config.json).
Result<std::unique_ptr<TensorSource>> OpenHuggingFaceWeights(const std::string& path, const ModelSpec& model);

// Errors: ExportHuggingFace's, for a model that transformers does not have.
Status CheckHuggingFaceExport(const ModelSpec& model);

// Writes a checkpoint's weights to DIRECTORY/model.safetensors, in fp32, and DIRECTORY/config.json, which
// model.config reads. Errors: as above, Failed (names the file).
Status ExportHuggingFace(const Checkpoint& checkpoint, const std::string& directory);

}  // namespace windtunnel
