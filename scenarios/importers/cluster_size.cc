#include "scenarios/importers/cluster_size.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace windtunnel {
namespace {

constexpr std::string_view kNodes[] = {"nnodes", "num_nodes", "nodes"};
constexpr std::string_view kDevices[] = {"nproc_per_node", "num_gpus", "ntasks_per_node", "gpus_per_node"};

bool Any(std::span<const std::string_view> names, Settings& settings) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return settings.Has(name); });
}

// The first of `names` that is given sets `path`.
void SetFirst(std::string_view path, std::span<const std::string_view> names, Settings& settings,
              Draft& draft) {
  for (const std::string_view name : names) {
    if (!settings.Has(name)) continue;
    if (draft.Has(path)) continue;  // its value does not matter
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
  if (!draft.Has("cluster.nodes") && settings.Has("standalone"))
    draft.Set("cluster.nodes", int64_t{1}, "--standalone");
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
