// A device that is not at hand, from its datasheet and from published measurements of single kernels and
// collectives. Costs are modelled from it (cost_models/device_cost_model.h). JSON, schema
// "windtunnel/device/1" (cost_models/README.md); the known devices are part of the program.
//
//   WT_ASSIGN_OR_RETURN(DeviceSpec device, ParseDeviceSpec(*EmbeddedProfile("a100-sxm-80g"), "a100-sxm-80g"));
//   FlopRate peak = device.PeakFor(DType::kBFloat16);
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost_models/communicator_memory.h"
#include "cost_models/nccl_tuning.h"
#include "cost_models/power_limit.h"
#include "plan/dtype.h"

namespace windtunnel {

inline constexpr char kDeviceSchema[] = "windtunnel/device/1";

// The sides of the tile of C that one thread block of a GEMM kernel computes.
struct GemmTile {
  int64_t m = 0, n = 0;
};

// A matrix product's share of the peak: ceiling x k / (k + k_overhead), on tiles of tile_m x tile_n that run
// in waves; less on smaller tiles (cost_models/kernel_roofline.h).
struct GemmSpec {
  double ceiling = 0;  // (0, 1]; on a device with a power limit, what products sustain when they run alone
  // The ceiling of the slowest machine with such devices that is known (optional; 0: none differs much).
  double slowest_ceiling = 0;
  int64_t tile_m = 0, tile_n = 0;
  std::vector<GemmTile> tiles =
      {};                       // for which the device has kernels besides those of all devices (optional)
  int64_t k_overhead = 0;       // a tile's start and end, in steps of k
  double edge_overhead = 0;     // of a tile's edges, in elements
  // Up to this many waves, multiprocessors may share steps of k evenly instead of tiles (stream-K; optional;
  // 0: the device has no such kernels).
  double stream_k_waves = 0;
  // What products in fp32 without tensor cores reach of that peak (optional; 0: the ceiling).
  double fp32_ceiling = 0;
  // How much longer the batched products of attention take, whose operands are strided.
  double batched_factor = 1;
  // What fp8 products reach of their peak, as a factor on the ceiling: with fast accumulation, and where sums
  // are carried over to fp32 (optional: the same). Above 1 if they draw less power.
  double fp8_share = 1, fp8_precise_share = 1;
  // The same in microscaled fp8 and in fp4, for devices that have these.
  double mxfp8_share = 1;
  double fp4_share = 1;
  // How much longer steps of k take in 16 bits if rows of the product's matrices begin at multiples of 16
  // bytes only, of 8 or 4, and of 2 (optional: no longer).
  double rows_of_16 = 1, rows_of_4 = 1, rows_of_2 = 1;
  // The speed of a product while communication holds multiprocessors, if its kernels are persistent: they
  // launch one block per multiprocessor, and blocks that find none free wait for the others' end (optional;
  // 0: they share multiprocessors like other kernels).
  double beside_communication = 0;
};

// The rate of causal attention that a kernel achieves for one head size and sequence length. If forward and
// backward were measured together, both have that rate.
struct AttentionRate {
  int64_t head_dim = 0, seq = 0;
  FlopRate forward, backward;
};

// The inputs of NCCL's formulas (cost_models/nccl_collectives.h).
struct CollectiveSpec {
  GpuGeneration generation = GpuGeneration::kAmpere;
  HostCpu cpu = HostCpu::kIntel;
  // Blocks of the communication kernel: on one node, across nodes, and with reductions in the switches.
  int channels_intra = 0, channels_inter = 0, channels_nvls = 0;
  Bandwidth nvls;               // to and from the switches when these reduce; 0: they do not
  Duration start, start_inter;  // of a collective, beyond NCCL's own latencies: on one node, across nodes
};

// What kernels that put the tokens of experts in order reach, where that is less than memory's rate. Tokens
// are copied into rows at `permute`, of the bytes that are read and written once each; a token that is summed
// from its rows takes so much for each element beyond these bytes. 0: as memory.
struct TokenRowsSpec {
  Bandwidth permute;
  double sum_ps_per_element = 0;
};

// nccl-tests' output for one collective. It takes precedence over the model.
struct MeasuredCollective {
  std::string op;  // "all_reduce", as nccl-tests names them
  int ranks = 0, nodes = 0;
  Bandwidth node_bandwidth = {};                 // of all cards of a node, as the vendor says; 0 on one node
  std::vector<std::pair<Bytes, Duration>> rows;  // by bytes of the whole message, ascending
};

struct DeviceSpec {
  std::string name;         // "a100-sxm-80g"
  std::string description;  // "NVIDIA A100 SXM4 80 GB"
  Bytes memory;             // as the driver reports it
  int64_t multiprocessors = 1;
  std::map<std::string, FlopRate> peaks;  // dense, by type ("bf16"); 0: the device has none
  Bandwidth hbm;
  double hbm_efficiency = 1;  // the share that kernels reach
  Duration kernel_launch;     // host time
  double host_slowdown = 1;   // of its host, as HostSpeed
  Duration kernel_minimum;    // device time of a kernel with nothing to do
  // The spread of arithmetic times between devices of the type: the standard deviation over the mean.
  double speed_spread = 0;
  GemmSpec gemm;
  PowerSpec power;
  TokenRowsSpec token_rows;
  // By head size and sequence length, ascending: FlashAttention-2, its predecessor of 2022-23, cuDNN's (both
  // as the first, if none are given), unfused.
  std::vector<AttentionRate> flash, flash_1, flash_cudnn, eager;
  std::string intra_node;              // the kind of link to its neighbours, if the scenario names none
  int64_t most_devices_per_node = 0;   // that such links join; 0: not known
  int64_t usual_devices_per_node = 0;  // of systems as they are sold; 0: not known
  Bandwidth host_link;                 // to the host, one way, as NCCL rates it
  Bandwidth card_link;                 // to all its network cards together, the same; mostly the host's link
  // What `card_link` carries, which is more than NCCL rates it: an H100 copies 52.8 GB/s to its host
  // (nvbandwidth issue 24) and NCCL rates 48, an A100 25 to 26 and NCCL rates 24.
  Bandwidth ToCards() const { return card_link * 1.1; }
  // Memory bandwidth of the processors that serve `host_memory_devices` devices (0: all devices of a node).
  // The hosts of these devices share it.
  Bandwidth host_memory;
  int64_t host_memory_devices = 0;
  CollectiveSpec collectives;
  std::vector<MeasuredCollective> measured_collectives;
  Bytes context;  // memory outside the allocator, without what communicators add to it
  CommunicatorMemorySpec communicators;
  std::map<std::string, std::string> sources;  // by field: where its figure comes from

  std::string json;  // the text that it was read from, or, if that names a base, the whole device

  // Zero if the device has no arithmetic in the type.
  FlopRate PeakFor(DType dtype) const;
};

// Reads a device, whole or as changes of a known one (`base`). `name` stands for the file in errors. Errors:
// InvalidInput, naming a field that is missing, wrong or without a source.
Result<DeviceSpec> ParseDeviceSpec(const std::string& json, const std::string& name);

// The JSON of a known device; nothing for an unknown name.
std::optional<std::string> EmbeddedProfile(std::string_view name);
std::vector<std::string> EmbeddedProfileNames();

}  // namespace windtunnel
