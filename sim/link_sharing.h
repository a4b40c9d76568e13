// Transfers that cross the same links at once: max-min fair, by progressive filling, as network cards are that serve their connections in turn.
//
// At speed 1 (as fast as alone) a transfer takes the share u of a link's capacity, and of the link that it takes the most of, its share e. The
// shares x e that transfers in flight have, x being their speeds, are
//
//   at most e each;  for each link the sum of u x over its transfers is at most 1;
//   none can be raised but at the cost of one that is not larger.
//
// All shares rise together, from nothing. Where a link is full, its transfers stay; who has its e, does too; the others go on rising.
//
//   Two transfers with u = 1 of a link: a half each, so both take twice as long. A third with u = 0.2 there: it has its 0.2, and goes as fast as
//   alone; the two have 0.4 each. Where the third has u = 1 of another link, with three others that have, and so a quarter of it, it has 0.05
//   of this one, and the two have (1 - 0.05) / 2 = 0.475.
//
// A flow may stand for all transfers of a class: its u are what they take of a link together, which may be more than 1, its e is that of one.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_models/cost_model.h"

namespace windtunnel {

struct NetworkFlow {
  LinkDemands demands;  // u, by link
  double largest = 0;   // e
};

// The transfers of a schedule as flows over (classes of) links.
struct NetworkFlows {
  std::vector<int32_t> flow_of_transfer;  // -1: crosses none; empty: no transfer does
  std::vector<NetworkFlow> flows;
  int32_t links = 0;
};

class LinkSharing {
 public:
  struct Change {
    int32_t transfer = -1;
    double speed = 1;
  };

  LinkSharing(std::vector<NetworkFlow> flows, int32_t links);

  // No transfer is in flight.
  void Reset();
  void Start(int32_t transfer, int32_t flow);
  void Finish(int32_t transfer, int32_t flow);
  // The speeds of those in flight that may have changed since the last call: of all that share links, directly or over others, with one that
  // started or finished.
  const std::vector<Change>& Solve();

 private:
  struct Active {
    int32_t transfer = -1, flow = -1;
    bool is_reached = false, is_settled = false;
  };
  struct Link {
    std::vector<int32_t> active;  // into active_
    bool is_dirty = false, is_reached = false;
    double free = 1;   // capacity that settled transfers leave
    int32_t open = 0;  // how many others there are,
    double slope = 0;  // and what they take more of it as their shares rise: the sum of u / e
  };

  void MarkLinksOf(int32_t flow);
  void ReachFrom(int32_t link);
  int32_t FirstFull(double& level) const;
  bool SettleUpTo(double level);
  void Fill();
  void Settle(int32_t active, double speed);

  const std::vector<NetworkFlow> flows_;
  std::vector<Link> links_;
  std::vector<Active> active_;
  std::vector<int32_t> unused_;  // of active_
  std::vector<int32_t> dirty_, reached_links_, reached_;
  size_t first_link_ = 0, first_ = 0;  // what was reached from the dirty link at hand, of both
  std::vector<Change> changes_;
};

}  // namespace windtunnel
