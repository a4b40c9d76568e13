// The wire between nodes, for collectives that were measured within one node only. No collective is faster
// than its bytes over the link.
//
//   w   bytes that a node sends: 2 (n - 1) / n · b for an all-reduce of b bytes among n ranks, (n - 1) / n · b for
//       an all-gather or reduce-scatter, b for a broadcast, shift or message, 0 for a barrier: what one rank
//       sends, since a ring crosses each node's link once in each direction. In an all-to-all each of the r
//       ranks of a node sends b / n to each of the n - r others: r (n - r) / n · b.
//   R   the link's rate in bytes a second: of all cards of a node (NodeBandwidth of topology/link_rates.h)
//   e   0.9415, the share of it that carries TCP's payload: 1,448 of the 1,538 bytes that an Ethernet frame
//       takes on the wire (MTU 1,500: less 20 of IP, 20 of TCP and 12 of timestamps; plus 14 of header, 4 of
//       checksum, 8 of preamble and 12 of gap)
//   l   latency_us of the link, 0 if it is not given
//
//   t = w / (R e) + l
//
// Worked: 21 MB all-reduced between two ranks over 1 Gb/s: w = 21 MB, R e = 117.7 MB/s, t = 178 ms.
#pragma once

#include <string_view>

#include "base/units.h"
#include "cost_models/cost_keys.h"
#include "plan/ops.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Bytes that a rank sends, over those of the message. `op`: a collective's name, or a message's.
double SentShare(std::string_view op, int ranks);
// The same. In a token exchange, tokens go to the other ranks that have their experts.
double SentShare(const Collective& collective, int ranks);

// Among `ranks` ranks on `nodes` nodes, as many on each. 0 if the network names no rate between nodes.
Duration WireTime(const TransferKey& transfer, int ranks, int nodes, const NetworkSpec& network);

}  // namespace windtunnel
