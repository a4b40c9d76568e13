// The error of the collective model against published nccl-tests output: mean errors by collective, system
// and size.
//
//   ./bazelw run //bench:collective_model_error -- CURVES.jsonl…  (-v: each row, with the model's choice)
//
// A line of a file is {"op", "ranks", "nodes", "device", "interconnect", "rows": [{"bytes", "time_us"}]}.
// Systems whose device has no profile are listed and left out.
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cost_models/device_spec.h"
#include "cost_models/nccl_collectives.h"

namespace windtunnel {
namespace {

// A system, found by words in a curve's device and interconnect: its profile, its network cards, and the
// number of devices that links join (0: those of a node).
struct System {
  const char *device, *interconnect, *profile, *kind;
  int cards;
  double gbits;
  int joined = 0;
};
constexpr std::array<System, 17> kSystems = {{{"A100", "4x100", "a100-sxm-80g", "efa", 4, 100},
                                              {"A100", "RoCE", "a100-sxm-80g", "roce", 8, 200},
                                              {"A100", "NV", "a100-sxm-80g", "roce", 8, 200},
                                              {"H100", "TCPXO", "h100-sxm-80g", "roce", 8, 200},
                                              {"H100", "TCPX", "h100-sxm-80g", "ethernet", 4, 200},
                                              {"H100 PCIe", "", "", "", 0, 0},
                                              {"H100 (1 GPU", "", "", "", 0, 0},
                                              {"96 ranks", "", "", "", 0, 0},
                                              {"H100", "EFA", "h100-sxm-80g", "efa", 8, 400},
                                              {"H200", "EFA", "h100-sxm-80g", "efa", 8, 400},
                                              {"H100", "", "h100-sxm-80g", "infiniband", 8, 400},
                                              {"H200", "", "h100-sxm-80g", "infiniband", 8, 400},
                                              {"GB200", "", "gb200-nvl72-186g", "infiniband", 72, 400, 72},
                                              {"B200", "EFA", "b200-sxm-180g", "efa", 8, 400},
                                              {"B200", "RoCE", "b200-sxm-180g", "roce", 8, 400},
                                              {"B200", "", "b200-sxm-180g", "infiniband", 8, 400},
                                              {"", "", "", "", 0, 0}}};

const System& SystemOf(const std::string& device, const std::string& interconnect) {
  for (const System& system : kSystems) {
    if (device.find(system.device) != std::string::npos &&
        interconnect.find(system.interconnect) != std::string::npos)
      return system;
  }
  return kSystems.back();
}

std::optional<OpKind> OperatorOf(const std::string& op, int64_t bytes) {
  if (op == "sendrecv") return Send{DType::kFloat8, bytes};
  const std::pair<const char*, CollectiveKind> kinds[] = {{"all_reduce", CollectiveKind::kAllReduce},
                                                          {"all_gather", CollectiveKind::kAllGather},
                                                          {"reduce_scatter", CollectiveKind::kReduceScatter},
                                                          {"alltoall", CollectiveKind::kAllToAll}};
  for (const auto& [name, kind] : kinds) {
    if (op == name) return Collective{kind, DType::kFloat8, bytes};
  }
  return std::nullopt;
}

// Relative errors of predicted against measured times, one entry per column of sizes.
struct Errors {
  std::array<double, 4> absolute = {}, sum = {};
  std::array<int, 4> count = {};
};
int ColumnOf(int64_t bytes) {
  if (bytes <= 64 << 10) return 0;
  if (bytes <= 4 << 20) return 1;
  return bytes <= 256 << 20 ? 2 : 3;
}

class Comparison {
 public:
  explicit Comparison(bool verbose) : verbose_(verbose) {}

  void Add(const nlohmann::json& curve) {
    const std::string device = curve["device"], interconnect = curve["interconnect"], op = curve["op"];
    const System& system = SystemOf(device, interconnect);
    if (*system.profile == '\0') {
      ++left_out_[device];
      return;
    }
    const DeviceSpec spec = *ParseDeviceSpec(*EmbeddedProfile(system.profile), system.profile);
    ClusterSpec cluster;
    const int ranks = curve["ranks"];
    const int nodes = system.joined > 0 ? ranks / system.joined : curve["nodes"].get<int>();
    cluster.devices_per_node = nodes > 1 || system.joined > 0 ? ranks / nodes : 8;
    cluster.network.inter_node = {.kind = system.kind, .gbits_per_nic = system.gbits, .latency_us = {}};
    cluster.network.nics_per_node = system.cards;
    const GroupLayout layout = *LayOutGroup(MakeAxis("group", ranks, ranks, 1).groups[0], cluster, spec);
    const std::string key = fmt::format("{:<22} {:>2} x {:<3} {}", op, nodes, ranks / nodes,
                                        std::string_view(device).substr(0, 4));
    for (const auto& row : curve["rows"])
      AddRow(op, row, layout, spec, errors_[key + " " + (nodes > 1 ? interconnect : "")]);
  }

  void Print() const {
    fmt::print("mean |error| (mean error), %          to 64 KiB      to 4 MiB    to 256 MiB        beyond\n");
    for (const auto& [key, errors] : errors_) {
      fmt::print("{:<36}", key.substr(0, 36));
      for (int i = 0; i < 4; ++i) {
        if (errors.count[i] == 0) fmt::print("{:>14}", "-");
        else
          fmt::print("{:>6.0f} ({:>+4.0f}) ", 100 * errors.absolute[i] / errors.count[i],
                     100 * errors.sum[i] / errors.count[i]);
      }
      fmt::print("  {}\n", key.size() > 36 ? key.substr(36) : "");
    }
    for (const auto& [device, curves] : left_out_) fmt::print("no profile: {} ({} curves)\n", device, curves);
  }

 private:
  void AddRow(const std::string& op, const nlohmann::json& row, const GroupLayout& layout,
              const DeviceSpec& spec, Errors& errors) {
    const int64_t bytes = row["bytes"];
    const auto kind = OperatorOf(op.substr(0, op.find('(')), bytes);
    double measured = row.contains("time_us") && !row["time_us"].is_null() ? row["time_us"].get<double>() : 0;
    if (measured <= 0 && row.contains("busbw")) {
      const double n = layout.ranks;
      const double steps = op.starts_with("all_reduce") ? 2 * (n - 1) / n
                           : op == "sendrecv"           ? 1
                                                        : (n - 1) / n;
      measured = static_cast<double>(bytes) * steps / row["busbw"].get<double>() / 1e3;
    }
    if (!kind || measured <= 0) return;
    const auto algorithm =
        op.ends_with("(NVLS off)") ? CollectiveAlgorithm::kRing : CollectiveAlgorithm::kAuto;
    const CollectiveTime time = *CollectiveTimeOf(*kind, layout, spec.collectives, algorithm);
    const double error = time.time / Microseconds(1) / measured - 1;
    const int column = ColumnOf(bytes);
    ++errors.count[column];
    errors.absolute[column] += std::abs(error);
    errors.sum[column] += error;
    if (verbose_)
      fmt::print(
          "{:<16} {:>3} x {:<2} {:>12} B {:>12.1f} us measured {:>12.1f} predicted {:>+7.1f} % pattern {}\n",
          op, layout.nodes, layout.ranks_per_node, bytes, measured, time.time / Microseconds(1), 100 * error,
          static_cast<int>(time.pattern));
  }

  const bool verbose_;
  std::map<std::string, Errors> errors_;
  std::map<std::string, int> left_out_;
};

}  // namespace
}  // namespace windtunnel

int main(int argc, char** argv) {
  const bool verbose = argc > 1 && std::strcmp(argv[1], "-v") == 0;
  windtunnel::Comparison comparison(verbose);
  for (int i = verbose ? 2 : 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    if (!file) {
      fmt::print(stderr, "{}: cannot be read\n", argv[i]);
      return 2;
    }
    for (std::string line; std::getline(file, line);) comparison.Add(nlohmann::json::parse(line));
  }
  comparison.Print();
  return 0;
}
