// What a framework runs for an operator: which kernels it launches on the device, what each of them moves,
// and what each costs the host. JSON, schema "windtunnel/framework/1" (cost_models/README.md); the profiles
// for the scenario's `framework` are part of the program.
//
//   const FrameworkProfile& megatron = *EmbeddedFramework("megatron");
//   Duration device = DeviceTime(op.kind, megatron, …);  // cost_models/framework_kernels.h
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost_models/flash_kernels.h"
#include "cost_models/layer_factors.h"
#include "scenarios/scenario.h"

namespace windtunnel {

inline constexpr char kFrameworkSchema[] = "windtunnel/framework/1";

// One kernel, or several that are alike.
struct FrameworkKernel {
  enum class Work {
    kBytes,  // moves bytes
    // The operator's own work: the matrix product, flash attention, or one pass over inputs and outputs.
    kOwn,
    kScores,   // the batched product of queries and keys, [heads x batch, seq, seq]
    kContext,  // that of scores and values, [heads x batch, seq, head size]
  };
  std::string name;  // for people: "softmax"
  Work work = Work::kBytes;
  std::string of;  // kBytes: the operator's tensor that it moves; empty: the main one
  // How many times it moves the tensor: in the operator's type, in four bytes and in one byte per element.
  double values = 0, fp32 = 0, bytes = 0;
  // If both are 0: host work only, or bytes that another operator's kernel moves in addition. The tensors are
  // those of the optimizer, or experts.
  double launches = 1, launches_per_tensor = 0;
  double host_us = 0, host_us_per_tensor = 0;  // host time beyond its launches
  std::vector<std::string> when;  // what must hold of the operator ("residual"), or must not ("!residual")
};

// How much longer than predicted operators take: what `calibrate --steps` finds. 1 if nothing is known.
struct ResidualFactors {
  double host = 1;
  double gemm = 1;
  double attention = 1;  // all its kernels
  double loss = 1;       // and embeddings: what works on the vocabulary
  double optimizer = 1;
  double memory = 1;  // other kernels that move bytes
  double link = 1;    // collectives and messages
  // 1: the host issues ahead of the device. 2: the device waits for every launch (CUDA_LAUNCH_BLOCKING=1), so
  // that an operator's host time adds to its device time. In between: the device waits for some launches.
  double launch = 1;
  LayerFactors layers = {};  // a further factor on host, gemm, attention and memory, by the layers' shape
};
// In the order of the JSON.
inline constexpr const char* kResidualNames[] = {"host",      "gemm",   "attention", "loss",
                                                 "optimizer", "memory", "link",      "launch"};
double& Residual(ResidualFactors& factors, std::string_view name);
// The factors above that `layers` multiplies.
inline constexpr const char* kLayerResidualNames[] = {"host", "gemm", "attention", "memory"};
// The factors for layers of one shape: the factor of `layers` is in the others, and `layers` is empty.
ResidualFactors FactorsFor(const LayerShape& shape, ResidualFactors factors);
// The smallest value that a factor may have: 1 for `launch`, since a host cannot hide more than all of its
// time; nothing for the others.
std::optional<double> LeastResidual(std::string_view name);

struct FrameworkProfile {
  std::string name, description;
  std::string base;  // the known framework that it is based on; its own name if there is none
  // By the first word of the operator's cost key ("norm_forward"); an operator that is not here is one kernel.
  std::map<std::string, std::vector<FrameworkKernel>, std::less<>> operators;
  // Host time of each kernel beyond its launch: issued by the model's code, by the framework's backward
  // engine, or by a loop over tensors that needs no gradients (optimizers, copies).
  double forward_us = 0, backward_us = 0, plain_us = 0;
  double collective_us = 0;  // for each collective and message
  // Host time if run.cuda_graphs launches several operators at once: of the launch, and of each kernel in it.
  double graph_us = 0, graph_kernel_us = 0;
  double graph_saves_us = 0;  // device time of the gap that each kernel of a graph except the first saves
  // With full activation recomputation: host time of a kernel of the first forward, which records no
  // gradients, and of what is around each block.
  double no_grad_us = 0, checkpoint_us = 0;
  FlashKernels flash = FlashKernels::kFlashAttention2;
  // Pads the rows of products' matrices, so that they begin where products are fast (GemmSpec::rows_of_16).
  bool pads_products = false;
  // Batched 16-bit products need rows at multiples of 16 bytes for tensor cores: cuBLAS before CUDA 11.7.
  bool aligned_batches_only = false;
  ResidualFactors residuals;
  std::map<std::string, std::string> sources;
  std::string digest;  // "sha256:…" of the text that it was read from
};

// `name` stands for the file in errors. Errors: InvalidInput, naming a field that is missing or wrong.
Result<FrameworkProfile> ParseFrameworkProfile(const std::string& json, const std::string& name);
Result<FrameworkProfile> LoadFrameworkProfile(const std::string& path);

// A known framework; null for another name. It lives as long as the program.
const FrameworkProfile* EmbeddedFramework(std::string_view name);
// The profile of the scenario's framework. FSDP 1 stands for the PyTorch of its time (pytorch_fsdp1).
const FrameworkProfile& FrameworkOf(const Scenario& scenario);

// Returns the framework profile `text`, read from `file`, under another name, with the residuals of
// `factors`, and with `sources` added to its own. Errors: ParseFrameworkProfile's.
Result<std::string> CalibratedFrameworkJson(const std::string& text, const std::string& file,
                                            const std::string& name, const ResidualFactors& factors,
                                            const std::map<std::string, std::string>& sources);

// Returns JSON that parses to the known framework `base` with the residuals of `factors`, and with `sources`
// added to its own.
std::string CalibratedFrameworkJson(const std::string& name, const std::string& base,
                                    const ResidualFactors& factors,
                                    const std::map<std::string, std::string>& sources);

// The text of frameworks/NAME.json.
std::optional<std::string> EmbeddedFrameworkJson(std::string_view name);
std::vector<std::string> EmbeddedFrameworkNames();

}  // namespace windtunnel
