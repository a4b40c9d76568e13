// The rates that collectives achieve over links between devices of a node and over network cards.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// A kind of link between the devices of a node, as scenarios name it; in GB/s.
struct KnownLink {
  std::string_view kind;
  double nominal, ring;
  bool is_nvlink;
  bool is_mesh = false;
};
std::span<const KnownLink> KnownLinks();

// A link between the devices of a node: the vendor's bandwidth in one direction, and what a ring achieves.
struct LinkRates {
  Bandwidth nominal, ring;
  bool is_nvlink = false;
  Duration latency = {};  // of a hop, beyond NCCL's own
  // Links that go from device to device, without switches, in the cube of a DGX-1: see AmongRanks.
  bool is_mesh = false;
  static constexpr int64_t kMostOfMesh = 8;

  // What a group of that many neighbours on a node has of them; `*this` unless they are a mesh.
  LinkRates AmongRanks(int ranks) const;
  bool operator==(const LinkRates&) const = default;
};
// Errors: InvalidInput for a kind of link that does not connect devices of a node, or no link at all.
Result<LinkRates> IntraNodeRates(const LinkSpec& link, const std::string& default_kind);

// A network card: its bandwidth in one direction, what a ring achieves over it, and the latency to another
// node beyond NCCL's own.
struct NicRates {
  Bandwidth nominal, rate;
  Duration latency;
};
// The bandwidth is the vendor's, or what a node's `devices` can move over the card if that is less: each
// moves `to_cards` over all of its cards together. Errors: InvalidInput if the bandwidth between nodes is not
// named.
Result<NicRates> CardRates(const NetworkSpec& network, int64_t devices, Bandwidth to_cards);
// What a ring achieves over the cards of one device, `cards` of them, of which it fills those that `to_cards`
// allows.
// Among more cards than it can fill it divides its bytes, so that none is driven faster than 200 Gb/s, of
// which the share is larger.
Bandwidth AchievedOfDevice(const NicRates& card, const NetworkSpec& network, double cards,
                           Bandwidth to_cards);
// Of all of a node's cards together, in one direction, as the vendor says; 0 if it is not named.
Bandwidth NodeBandwidth(const NetworkSpec& network);

}  // namespace windtunnel
