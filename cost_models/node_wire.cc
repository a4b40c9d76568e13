#include "cost_models/node_wire.h"

#include "topology/link_rates.h"

namespace windtunnel {
namespace {

constexpr double kPayloadShare = 1448.0 / 1538.0;

// Bytes that a node sends, over those of the message.
double CrossingShare(std::string_view op, int ranks, int nodes) {
  if (op != Name(CollectiveKind::kAllToAll)) return SentShare(op, ranks);
  const double of_node = static_cast<double>(ranks) / nodes;
  return of_node * (ranks - of_node) / ranks;
}

}  // namespace

double SentShare(std::string_view op, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (op == Name(CollectiveKind::kBarrier)) return 0;
  if (op == Name(CollectiveKind::kAllReduce)) return 2 * others;
  for (CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll})
    if (op == Name(kind)) return others;
  return 1;
}

double SentShare(const Collective& collective, int ranks) {
  if (collective.kind == CollectiveKind::kTokenExchange)
    return static_cast<double>(ranks - 1) * collective.reach.rank;
  return SentShare(Name(collective.kind), ranks);
}

Duration WireTime(const TransferKey& transfer, int ranks, int nodes, const NetworkSpec& network) {
  const double rate = NodeBandwidth(network).bytes_per_second();
  if (rate <= 0) return Duration();
  const double sent = CrossingShare(transfer.op, ranks, nodes) * static_cast<double>(transfer.bytes.count());
  return Seconds(sent / (rate * kPayloadShare) + network.inter_node.latency_us.value_or(0) * 1e-6);
}

}  // namespace windtunnel
