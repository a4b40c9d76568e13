#include "cost_models/collective_traffic.h"

#include <algorithm>

namespace windtunnel {

TrafficModel::Key TrafficModel::KeyOf(Pattern pattern, const OpKind& kind, const Group& group, int position) {
  Key key{Shape::kRing, -1, -1, group.ranks};
  switch (pattern) {
    case Pattern::kRing:
      return key;
    case Pattern::kTree:
      key.shape = Shape::kTree;
      return key;
    case Pattern::kNvls:
      key.shape = Shape::kNvls;
      return key;
    case Pattern::kNvlsTree:
      key.shape = Shape::kNvlsTree;
      return key;
    case Pattern::kPat:
      key.shape = Shape::kPat;
      return key;
    case Pattern::kHierarchical:
      key.shape = Shape::kHierarchical;
      return key;
    case Pattern::kRelayed:
      key.shape = Shape::kRelayed;
      key.reach = std::get<Collective>(kind).reach;
      return key;
    case Pattern::kPairs:
      break;
  }
  key.shape = Shape::kSend;
  if (const auto* send = std::get_if<Send>(&kind)) {
    key.from = group.ranks[position];
    key.to = group.ranks[send->peer];
  } else if (const auto* receive = std::get_if<Receive>(&kind)) {
    key.from = group.ranks[receive->peer];
    key.to = group.ranks[position];
  } else {
    const auto& collective = std::get<Collective>(kind);
    if (collective.kind == CollectiveKind::kShift) {
      key.shape = Shape::kShift;
      key.to = collective.distance;
      return key;
    }
    key.shape = collective.kind == CollectiveKind::kAllToAll ? Shape::kAllToAll : Shape::kRoot;
    const int root = key.shape == Shape::kRoot ? group.ranks[collective.root] : -1;
    (collective.kind == CollectiveKind::kGather ? key.to : key.from) = root;
  }
  return key;
}

// If a node has fewer ranks than another, several ranks of the other one have the same peer there.
std::vector<TrafficModel::Message> TrafficModel::Relayed(const std::vector<std::vector<int>>& nodes,
                                                         const TokenReach& reach) {
  std::vector<Message> messages;
  const double count = static_cast<double>(nodes.size());
  for (const std::vector<int>& node : nodes) {
    for (size_t i = 0; i < node.size(); ++i) {
      for (const int to : node)
        if (to != node[i]) messages.push_back({node[i], to, count * reach.rank});
      for (const std::vector<int>& other : nodes)
        if (other != node) messages.push_back({node[i], other[i % other.size()], reach.node});
    }
  }
  return messages;
}

std::vector<TrafficModel::Message> TrafficModel::Pairs(const Key& key) {
  std::vector<Message> messages;
  const double part = 1 / static_cast<double>(key.ranks.size());
  for (int from : key.ranks) {
    for (int to : key.ranks) {
      const bool is_one = (key.from < 0 || key.from == from) && (key.to < 0 || key.to == to);
      if (from != to && is_one) messages.push_back({from, to, part});
    }
  }
  return messages;
}

std::vector<TrafficModel::Message> TrafficModel::OverRails(std::vector<Message> messages) const {
  if (!shares_.has_nvlink) return messages;
  const size_t direct = messages.size();
  for (size_t i = 0; i < direct; ++i) {
    const auto [from, to, bytes] = messages[i];
    const int node = from / devices_per_node_, relay = node * devices_per_node_ + to % devices_per_node_;
    if (to / devices_per_node_ == node || relay == from) continue;
    messages[i].from = relay;
    messages.push_back({from, relay, bytes});
  }
  return messages;
}

std::vector<TrafficModel::Message> TrafficModel::Around(const std::vector<int>& ranks, size_t distance,
                                                        double part) {
  std::vector<Message> messages;
  for (size_t i = 0; i < ranks.size(); ++i)
    messages.push_back({ranks[i], ranks[(i + distance) % ranks.size()], part});
  return messages;
}

std::vector<TrafficModel::Message> TrafficModel::Pat(const std::vector<int>& ranks) {
  std::vector<Message> messages;
  for (size_t step = 1; step < ranks.size(); step *= 2) {
    const size_t parts = std::min(step, ranks.size() - step);
    const auto of_step = Around(ranks, step, static_cast<double>(parts) / static_cast<double>(ranks.size()));
    messages.insert(messages.end(), of_step.begin(), of_step.end());
  }
  return messages;
}

void TrafficModel::AddWithin(Shape shape, const std::vector<std::vector<int>>& nodes,
                             std::vector<Message>& messages) {
  const size_t p = nodes.front().size();
  if (p == 1) return;
  const double parts = static_cast<double>(p);
  const bool is_in_switch = shape == Shape::kNvls || shape == Shape::kNvlsTree;
  double within = nodes.size() == 1 ? 1 : (parts - 1) / parts;
  if (is_in_switch) within = 1 + 1 / parts;
  if (shape == Shape::kHierarchical) within = 2 * (parts - 1) / parts;
  for (const std::vector<int>& node : nodes) {
    for (size_t i = 0; i < p; ++i) {
      messages.push_back({node[i], node[(i + 1) % p], within});
      if (shape == Shape::kTree) messages.push_back({node[(i + 1) % p], node[i], within});
    }
  }
}

void TrafficModel::AddBetween(Shape shape, const std::vector<std::vector<int>>& nodes,
                              std::vector<Message>& messages) {
  if (nodes.size() == 1) return;
  const size_t p = nodes.front().size();
  const double parts = static_cast<double>(p), count = static_cast<double>(nodes.size());
  for (size_t i = 0; i < p; ++i) {
    for (size_t node = 0; node < nodes.size(); ++node) {
      const int from = nodes[node][i], next = nodes[(node + 1) % nodes.size()][i];
      if (shape == Shape::kRing) {
        messages.push_back({from, next, 1 / parts});
      } else if (shape == Shape::kHierarchical) {
        messages.push_back({from, next, 2 * (count - 1) / (count * parts)});
      } else {
        messages.push_back({from, next, (count - 1) / (count * parts)});
        messages.push_back({next, from, (count - 1) / (count * parts)});
      }
    }
  }
}

std::vector<TrafficModel::Message> TrafficModel::MessagesOf(const Key& key) const {
  switch (key.shape) {
    case Shape::kSend:
      return OverRails({{key.from, key.to, 1}});
    case Shape::kRoot:
    case Shape::kAllToAll:
      return OverRails(Pairs(key));
    case Shape::kShift:
      return OverRails(Around(key.ranks, static_cast<size_t>(key.to), 1));
    case Shape::kPat:
      return Pat(key.ranks);
    case Shape::kRelayed:
      return Relayed(RanksByNode(key.ranks, devices_per_node_), key.reach);
    case Shape::kRing:
    case Shape::kTree:
    case Shape::kNvls:
    case Shape::kNvlsTree:
    case Shape::kHierarchical:
      break;
  }
  const std::vector<std::vector<int>> nodes = RanksByNode(key.ranks, devices_per_node_);
  const bool is_even = std::all_of(nodes.begin(), nodes.end(),
                                   [&](const auto& node) { return node.size() == nodes.front().size(); });
  if (!is_even) return Around(key.ranks, 1, 1);
  std::vector<Message> messages;
  AddWithin(key.shape, nodes, messages);
  AddBetween(key.shape, nodes, messages);
  return messages;
}

Result<Traffic> TrafficModel::Measure(const std::vector<Message>& messages, double beyond) {
  loads_.resize(topology_.links().size());
  std::vector<int32_t> loaded;  // links
  const struct Reset {
    std::vector<Load>& loads;
    const std::vector<int32_t>& loaded;
    ~Reset() {
      for (const int32_t link : loaded) loads[link] = {};
    }
  } reset{loads_, loaded};
  Traffic traffic;
  for (const Message& message : messages) {
    WT_ASSIGN_OR_RETURN(const NetworkRoute route, finder_.Between(message.from, message.to));
    const bool leaves = message.from / devices_per_node_ != message.to / devices_per_node_;
    for (const Hop& hop : route.hops) {
      Load& load = loads_[hop.link];
      if (!load.is_loaded) {
        loaded.push_back(hop.link);
        load.is_loaded = true;
      }
      load.bytes += hop.share * message.bytes;
      load.leaves_node = load.leaves_node || leaves;
    }
    Duration& longest = leaves ? traffic.latency : traffic.latency_within;
    longest = std::max(longest, route.latency);
  }
  std::sort(loaded.begin(), loaded.end());
  LinkDemands demands;
  for (const int32_t link : loaded) {
    const Load& load = loads_[link];
    const double time = load.bytes / topology_.links()[link].bandwidth.bytes_per_second();
    double& busiest = load.leaves_node ? traffic.beyond : traffic.within;
    busiest = std::max(busiest, time);
    const auto& vertices = topology_.vertices();
    const bool is_of_device = vertices[topology_.links()[link].from].kind == VertexKind::kDevice ||
                              vertices[topology_.links()[link].to].kind == VertexKind::kDevice;
    if (load.leaves_node && (is_of_device || topology_.IsOfCard(link)))
      traffic.cards = std::max(traffic.cards, time);
    demands.push_back({link, time / (load.leaves_node ? beyond : shares_.within)});
    traffic.achieved = std::max(traffic.achieved, demands.back().share);
  }
  for (LinkDemand& demand : demands) demand.share /= traffic.achieved;
  traffic.demands = std::make_shared<const LinkDemands>(std::move(demands));
  return traffic;
}

Result<const Traffic*> TrafficModel::Of(Pattern pattern, const OpKind& kind, const Group& group,
                                        int position) {
  Key key = KeyOf(pattern, kind, group, position);
  if (auto found = known_.find(key); found != known_.end()) return &found->second;
  const double beyond = key.shape == Shape::kNvlsTree  ? shares_.beyond_by_switches
                        : key.shape == Shape::kRelayed ? kOfCardsByDeepEp
                                                       : shares_.beyond;
  WT_ASSIGN_OR_RETURN(Traffic traffic, Measure(MessagesOf(key), beyond));
  return &known_.emplace(std::move(key), std::move(traffic)).first->second;
}

Result<GroupLayout> LayOutInTopology(const Group& group, const ClusterSpec& cluster, const DeviceSpec& device,
                                     TrafficModel& traffic) {
  const NetworkSpec network = NetworkOf(cluster);
  GroupLayout layout = PlaceOnNodes(group, cluster);
  WT_ASSIGN_OR_RETURN(layout.link, LinkWithinNodes(cluster, network.intra_node, device));
  WT_ASSIGN_OR_RETURN(const Traffic* ring, traffic.Of(Pattern::kRing, Collective{}, group, 0));
  const double p = layout.ranks_per_node;
  if (ring->within > 0) {
    const double part = layout.nodes == 1 ? 1 : (p - 1) / p;
    layout.link.nominal = Bandwidth::FromBytesPerSecond(part / ring->within);
    layout.link.ring = layout.link.nominal * traffic.shares().within;
    layout.link = layout.link.AmongRanks(layout.ranks_per_node);
  }
  if (!cluster.topology.links.empty())
    layout.link.latency = std::max(layout.link.latency, ring->latency_within);
  if (layout.nodes == 1) return layout;
  layout.cards_nominal = Bandwidth::FromBytesPerSecond(1 / (ring->cards > 0 ? ring->cards : ring->beyond));
  layout.cards_achieved = Bandwidth::FromBytesPerSecond(1 / ring->beyond) * traffic.shares().beyond;
  layout.cards = layout.ranks_per_node;
  if (const auto card = CardRates(network, cluster.devices_per_node, device.ToCards()))
    layout.cards =
        std::clamp(static_cast<int>(layout.cards_nominal / card->nominal + 0.5), 1, layout.cards);
  layout.net_latency = ring->latency;
  return layout;
}

Duration LeastMoving(const OpKind& kind, Pattern pattern, int ranks, const Traffic& traffic) {
  const double n = ranks;
  double passes = 1;
  if (const auto* collective = std::get_if<Collective>(&kind)) {
    const bool parts =
        collective->kind == CollectiveKind::kAllGather || collective->kind == CollectiveKind::kReduceScatter;
    if (pattern == Pattern::kRing && parts) passes = (n - 1) / n;
    if (pattern == Pattern::kRing && collective->kind == CollectiveKind::kAllReduce) passes = 2 * (n - 1) / n;
    if (pattern == Pattern::kHierarchical && parts) passes = 0.5;
    if (pattern == Pattern::kNvls && parts) passes = (n - 1) / (n + 1);
  }
  return Seconds(traffic.achieved * static_cast<double>(MessageBytes(kind).count()) * passes);
}

Result<LinkShares> SharesOf(const ClusterSpec& cluster, const DeviceSpec& device, const Topology& topology) {
  NetworkSpec network = NetworkOf(cluster);
  LinkShares shares;
  WT_ASSIGN_OR_RETURN(LinkRates link, IntraNodeRates(network.intra_node, device.intra_node));
  shares.within = link.ring / link.nominal;
  shares.has_nvlink = link.is_nvlink;
  if (NodeBandwidth(network) == Bandwidth()) {  // as the topology's own cards
    double& gbits = network.inter_node.gbits_per_nic;
    for (size_t i = 0; i < topology.links().size(); ++i) {
      if (topology.IsOfCard(static_cast<int32_t>(i)))
        gbits = std::max(gbits, 8 * (topology.links()[i].bandwidth / GBps(1)));
    }
    if (gbits == 0) return shares;  // no cards: devices are linked to each other alone
  }
  WT_ASSIGN_OR_RETURN(NicRates rates, CardRates(network, cluster.devices_per_node, device.ToCards()));
  const double has = static_cast<double>(network.nics_per_node) /
                     static_cast<double>(std::max<int64_t>(cluster.devices_per_node, 1));
  shares.beyond = AchievedOfDevice(rates, network, has, device.ToCards()) /
                  std::min(rates.nominal * has, device.ToCards());
  shares.beyond_by_switches =
      device.collectives.generation == GpuGeneration::kBlackwell ? kBlackwellCardsByTrees : shares.beyond;
  return shares;
}

}  // namespace windtunnel
