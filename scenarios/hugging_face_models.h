// What the readers of Hugging Face's configurations share (hugging_face.cc), those of mixtures of experts
// (hugging_face_mixtures.cc), those of models with a parallel residual (hugging_face_parallel.cc), those of
// encoders with decoders (hugging_face_encoders.cc), those of models with Mamba-2 layers
// (hugging_face_hybrids.cc), and those with gated delta networks (hugging_face_delta_nets.cc). Errors:
// InvalidInput for a wrong value, Unsupported for what is not modelled; with the configuration's place.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "scenarios/hugging_face_keys.h"
#include "scenarios/model_spec.h"

namespace windtunnel::hugging_face {

// What a configuration of Llama's keys leaves out.
struct LlamaDefaults {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: the heads' share of the width
  int64_t ffn = 0;       // 0: it must be there
  double epsilon = 1e-6, rope_theta = 10'000;
  bool ties_embeddings = false;
  std::optional<double> rotary_share = {};  // of a head's columns; none: such models rotate all of them
};

// The keys that Llama's configuration shares with those made after it. Biases and experts differ per model.
Result<ModelSpec> ReadLlamaDimensions(const Config& config, const LlamaDefaults& defaults = {});

// Errors: Unsupported if attention has biases.
Status ExpectNoBias(const Config& config, std::string_view name);

// Sets the window, if sequences are longer than it. `fallback`: its size if the configuration does not say.
// `full_every`: as in SlidingWindowSpec, used if the layers' kinds are not listed.
Status ReadWindow(const Config& config, std::optional<int64_t> fallback, int64_t full_every,
                  std::optional<int64_t> seq_len, ModelSpec& model);

// MistralConfig and MixtralConfig.
Result<ModelSpec> ReadMistral(const Config& config, const LlamaDefaults& defaults,
                              std::optional<int64_t> window, std::optional<int64_t> seq_len);

Result<ModelSpec> ReadQwen3(const Config& config, const LlamaDefaults& defaults,
                            std::optional<int64_t> seq_len);

Result<ModelSpec> ReadBart(const Config& config, bool has_pre_norm);
Result<ModelSpec> ReadT5(const Config& config, bool is_multilingual);

// Experts that drop no token, weighted by the softmax over the chosen ones.
Result<ExpertsSpec> ReadExperts(const Config& config, std::string_view count_key, int64_t default_count,
                                int64_t default_top_k);
// One group means no groups. DeepSeek-V3's default is eight groups, with a token's experts in four of them.
Status ReadExpertGroups(const Config& config, ExpertsSpec& experts);

Result<ModelSpec> ReadMixtral(const Config& config, std::optional<int64_t> seq_len);
Result<ModelSpec> ReadQwen3Moe(const Config& config, std::optional<int64_t> seq_len);
Result<ModelSpec> ReadOlmoe(const Config& config);
Result<ModelSpec> ReadGptOss(const Config& config, std::optional<int64_t> seq_len);
Result<ModelSpec> ReadDeepseek(const Config& config);
Result<ModelSpec> ReadLlama4(const Config& config, std::optional<int64_t> seq_len);
Result<ModelSpec> ReadGlm4Moe(const Config& config);

// An activation without a gate. GELU's tanh approximation counts as GELU.
Result<ActivationKind> ReadUngated(const Config& config, std::string_view key);

Result<ModelSpec> ReadGptNeox(const Config& config);
Result<ModelSpec> ReadPhi(const Config& config);
Result<ModelSpec> ReadFalcon(const Config& config);
Result<ModelSpec> ReadCohere(const Config& config);

Result<ModelSpec> ReadNemotronH(const Config& config);
Result<ModelSpec> ReadBamba(const Config& config);
Result<ModelSpec> ReadGraniteHybrid(const Config& config);
Result<ModelSpec> ReadMamba2(const Config& config);

Result<ModelSpec> ReadQwen3Next(const Config& config);
Result<ModelSpec> ReadQwen3Point5(const Config& config);
Result<ModelSpec> ReadQwen3Point5Moe(const Config& config);

}  // namespace windtunnel::hugging_face
