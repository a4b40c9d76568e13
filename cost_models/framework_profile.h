// What a framework makes of an operator: which kernels it launches on the device, what each of them moves, and what each costs the
// host. JSON, schema "windtunnel/framework/1" (cost_models/README.md); those of the scenario's `framework` are part of the program.
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
    kOwn,  // what the operator is: the matrix product, flash attention, or one pass that moves what must be moved
    kScores,   // the batched product of queries and keys, [heads x batch, seq, seq]
    kContext,  // that of scores and values, [heads x batch, seq, head size]
  };
  std::string name;  // for people: "softmax"
  Work work = Work::kBytes;
  std::string of;  // kBytes: which of the operator's tensors; empty: its main one
  double values = 0, fp32 = 0,
         bytes =
             0;  // times that it is moved: in the operator's type, in four bytes and in one byte an element
  // 0 of both: the host's work alone, or what another operator's kernel moves besides. Tensors: the optimizer's, or experts.
  double launches = 1, launches_per_tensor = 0;
  double host_us = 0;             // of the host, beyond its launches
  std::vector<std::string> when;  // what must hold of the operator ("residual"), or must not ("!residual")
};

// How much longer than predicted something takes: what `calibrate --steps` finds. 1 where nothing is known.
struct ResidualFactors {
  double host = 1;
  double gemm = 1;
  double attention = 1;  // all its kernels
  double loss = 1;       // and embeddings: what works on the vocabulary
  double optimizer = 1;
  double memory = 1;  // other kernels that move bytes
  double link = 1;    // collectives and messages
  // 1: the host issues ahead of the device. 2: the device waits for every launch (CUDA_LAUNCH_BLOCKING=1), so that the host's time for an
  // operator comes on top of the device's. Between: for some of them.
  double launch = 1;
  LayerFactors layers = {};  // on host, gemm, attention and memory, by the layers' shape
};
// In the order of the JSON.
inline constexpr const char* kResidualNames[] = {"host",      "gemm",   "attention", "loss",
                                                 "optimizer", "memory", "link",      "launch"};
double& Residual(ResidualFactors& factors, std::string_view name);
// Of the others, those that `layers` are factors on.
inline constexpr const char* kLayerResidualNames[] = {"host", "gemm", "attention", "memory"};
// The factors for layers of a shape: without `layers`, which are in the others.
ResidualFactors FactorsFor(const LayerShape& shape, ResidualFactors factors);
// Of `launch` 1: a host cannot hide more than all of its time. Of the others nothing.
std::optional<double> LeastResidual(std::string_view name);

struct FrameworkProfile {
  std::string name, description;
  std::string base;  // the known framework that it goes by; its own name where it goes by none
  // By the first word of the operator's cost key ("norm_forward"); an operator that is not here is one kernel.
  std::map<std::string, std::vector<FrameworkKernel>, std::less<>> operators;
  // Of the host, for each kernel beyond its launch: issued by the model's code, by the framework's backward engine, or by a loop over
  // tensors that needs no gradients (optimizers, copies).
  double forward_us = 0, backward_us = 0, plain_us = 0;
  double collective_us = 0;  // for each collective and message
  // Of the host where run.cuda_graphs launches several operators at once: for the launch, and for each kernel in it.
  double graph_us = 0, graph_kernel_us = 0;
  double graph_saves_us = 0;  // of the device, of the gap before each kernel in it but the first
  // Activations recomputed in full: a kernel of the first forward, which records no gradients, and what is around each block.
  double no_grad_us = 0, checkpoint_us = 0;
  FlashKernels flash = FlashKernels::kFlashAttention2;
  bool pads_products =
      false;  // so that rows of their matrices begin where products are fast (GemmSpec::rows_of_16)
  // Batched products of 16 bits have tensor cores only where their rows begin at multiples of 16 bytes: cuBLAS before CUDA 11.7.
  bool aligned_batches_only = false;
  ResidualFactors residuals;
  std::map<std::string, std::string> sources;
  std::string digest;  // "sha256:…" of the text that it was read from
};

// `name` stands for the file in errors. Errors: InvalidInput, naming a field that is missing or wrong.
Result<FrameworkProfile> ParseFrameworkProfile(const std::string& json, const std::string& name);
Result<FrameworkProfile> LoadFrameworkProfile(const std::string& path);

// A known one; nothing for another name. It lives as long as the program.
const FrameworkProfile* EmbeddedFramework(std::string_view name);
// The scenario's. FSDP 1 stands for the PyTorch of its time.
const FrameworkProfile& FrameworkOf(const Scenario& scenario);

// The framework profile `text`, read from `file`, under another name and with the residuals of `factors`; `sources` beside its own. Errors:
// ParseFrameworkProfile's.
Result<std::string> CalibratedFrameworkJson(const std::string& text, const std::string& file,
                                            const std::string& name, const ResidualFactors& factors,
                                            const std::map<std::string, std::string>& sources);

// The JSON that parses to the residuals of `factors` on top of the known framework `base`; `sources` beside its own.
std::string CalibratedFrameworkJson(const std::string& name, const std::string& base,
                                    const ResidualFactors& factors,
                                    const std::map<std::string, std::string>& sources);

// By name, the text of frameworks/NAME.json.
std::optional<std::string> EmbeddedFrameworkJson(std::string_view name);
std::vector<std::string> EmbeddedFrameworkNames();

}  // namespace windtunnel
