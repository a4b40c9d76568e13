#include "scenarios/importers/cluster_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace windtunnel {
namespace {

constexpr std::string_view kNodes[] = {"nnodes", "num_nodes", "nodes"};
constexpr std::string_view kDevices[] = {"nproc_per_node", "num_gpus", "ntasks_per_node", "gpus_per_node"};

std::optional<int64_t> WholeNumber(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool Any(std::span<const std::string_view> names, Settings& settings) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return settings.Has(name); });
}

// "--nnodes 1:4", as many nodes as there may be, and "--nproc-per-node gpu". False for other values.
bool SetByTorchrunsForms(std::string_view path, std::string_view name, Settings& settings, Draft& draft) {
  const std::string value = settings.Word(name), shown = settings.Shown(name);
  if (name == "nproc_per_node" && (value == "gpu" || value == "auto")) {
    settings.Fail("{} is '{}', all devices of a node, expected --set {}=N", shown, value, path);
    return true;
  }
  const size_t colon = value.find(':');
  const std::optional<int64_t> most =
      colon == std::string::npos ? std::nullopt : WholeNumber(value.substr(colon + 1));
  if (name != "nnodes" || !most || !WholeNumber(value.substr(0, colon))) return false;
  draft.Set(path, *most, fmt::format("{} {}, with all of them", shown, value));
  return true;
}

struct Hosts {
  int64_t nodes = 0;
  std::optional<int64_t> devices;  // of each; nothing if that is not said, or if they differ
};
// `between` separates nodes. What is behind a node's ':' are slots, or with `lists` its devices' numbers.
Hosts HostsIn(const std::string& text, char between, bool lists) {
  Hosts hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(between, begin), text.size());
    const std::string host = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = host.find(':');
    std::optional<int64_t> devices;
    if (colon != std::string::npos)
      devices = lists ? std::count(host.begin(), host.end(), ',') + 1 : WholeNumber(host.substr(colon + 1));
    hosts.devices = hosts.nodes == 0 || hosts.devices == devices ? devices : std::nullopt;
    ++hosts.nodes;
  }
  return hosts;
}

// From `deepspeed --include worker-0:0,1@worker-1:0,1` and `mpirun -np 16 -H a:8,b:8`.
void SetByHosts(Settings& settings, Draft& draft) {
  for (const char* name : {"deepspeed_include", "mpirun_hosts"}) {
    if (!settings.Holds(name)) continue;
    const std::string value = settings.Word(name), shown = settings.Shown(name);
    const bool is_deepspeeds = std::string_view(name) == "deepspeed_include";
    if (value.empty() || value.find(kUnknown) != std::string::npos) continue;
    const Hosts hosts = HostsIn(value, is_deepspeeds ? '@' : ',', is_deepspeeds);
    draft.Set("cluster.nodes", hosts.nodes, shown);
    if (hosts.devices) draft.Set("cluster.devices_per_node", *hosts.devices, shown);
  }
  const std::optional<int64_t> nodes = draft.FindInteger("cluster.nodes");
  const std::optional<int64_t> ranks = WholeNumber(settings.Word("mpirun_np"));
  if (nodes && ranks && *nodes > 0 && *ranks > 0 && *ranks % *nodes == 0)
    draft.Set("cluster.devices_per_node", *ranks / *nodes, settings.Shown("mpirun_np"));
}

// The first of `names` that is given sets `path`.
void SetFirst(std::string_view path, std::span<const std::string_view> names, Settings& settings,
              Draft& draft) {
  for (const std::string_view name : names) {
    if (!settings.Has(name)) continue;
    if (draft.Has(path)) continue;  // its value does not matter
    if (SetByTorchrunsForms(path, name, settings, draft)) return;
    const std::vector<std::string>& values = settings.Find(name)->values;
    if (values.size() == 1 && values[0].find(kUnknown) != std::string::npos) {
      settings.Fail("{} is '{}', which is not known here, expected --set {}=N", settings.Shown(name),
                    WithUnknownShown(values[0]), path);
      return;
    }
    if (const std::optional<int64_t> value = settings.Integer(name))
      draft.Set(path, *value, settings.Shown(name));
  }
}

}  // namespace

int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<int64_t>::max();
  return product;
}

std::optional<int64_t> SetCluster(Settings& settings, Draft& draft) {
  SetFirst("cluster.nodes", kNodes, settings, draft);
  SetFirst("cluster.devices_per_node", kDevices, settings, draft);
  SetByHosts(settings, draft);
  if (!draft.Has("cluster.nodes") && settings.Has("standalone"))
    draft.Set("cluster.nodes", int64_t{1}, "--standalone");
  if (!Any(kNodes, settings) && settings.Has("nproc_per_node"))
    draft.Set("cluster.nodes", int64_t{1}, "torchrun's default");
  const std::optional<int64_t> nodes = draft.FindInteger("cluster.nodes");
  const std::optional<int64_t> devices = draft.FindInteger("cluster.devices_per_node");
  if (!nodes && !Any(kNodes, settings))
    settings.Fail("how many nodes there are is not said, expected --set cluster.nodes=N");
  if (!devices && !Any(kDevices, settings))
    settings.Fail("how many devices a node has is not said, expected --set cluster.devices_per_node=N");
  if (!draft.Has("cluster.device"))
    settings.Fail(
        "the device is not said, expected --set cluster.device=NAME (see `windtunnel list devices`)");
  if (nodes && *nodes > 1 && !draft.HasBelow("cluster.network"))
    settings.Fail(
        "the network between nodes is not said, expected --set cluster.network=NAME (see `windtunnel list "
        "networks`)");
  if (!nodes || !devices) return std::nullopt;
  return Product({*nodes, *devices});
}

std::optional<int64_t> DataRanks(int64_t world, int64_t tensor, int64_t pipeline, int64_t context,
                                 Settings& settings) {
  const int64_t others = Product({tensor, pipeline, context});
  if (others > 0 && world % others == 0 && world > 0) return world / others;
  settings.Fail(
      "{} ranks cannot be divided among {} tensor x {} pipeline x {} context ranks; expected a multiple of "
      "{}, as in --set cluster.nodes=N",
      world, tensor, pipeline, context, others);
  return std::nullopt;
}

}  // namespace windtunnel
