// Transfers that cross the same links at once, each at one speed: max-min fair, by progressive filling.
//
// A transfer's flow takes u of a link's capacity at speed 1 (as fast as alone). The speeds x of the transfers in flight are
//
//   at most 1;  for each link the sum of u x over its transfers is at most 1;
//   none can be raised but at the cost of one that is not faster.
//
// All speeds rise together; where a link is full, its transfers stay; the others go on rising.
//
//   Two transfers with u = 1 of a link: 1/2 each, so both take twice as long. A third with u = 0.2 there: 1/2.2 = 0.4545 each. Where the
//   third is held at 0.25 by another link, the two get (1 - 0.2 x 0.25) / 2 = 0.475.
//
// A flow may stand for all transfers of a class: then u is what they take of a link together, which may be more than 1.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_models/cost_model.h"

namespace windtunnel {

// The transfers of a schedule as flows over (classes of) links.
struct NetworkFlows {
  std::vector<int32_t> flow_of_transfer;  // -1: crosses none; empty: no transfer does
  std::vector<LinkDemands> demands;       // by flow
  int32_t links = 0;
};

class LinkSharing {
 public:
  struct Change {
    int32_t transfer = -1;
    double speed = 1;
  };

  LinkSharing(std::vector<LinkDemands> demands, int32_t links);

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
    double free = 1;    // capacity that settled transfers leave
    double demand = 0;  // of the others, at speed 1
  };

  void MarkLinksOf(int32_t flow);
  void ReachFrom(int32_t link);
  int32_t FirstFull(double& level) const;
  void Fill();
  void Settle(int32_t active, double speed);

  const std::vector<LinkDemands> demands_;
  std::vector<Link> links_;
  std::vector<Active> active_;
  std::vector<int32_t> unused_;  // of active_
  std::vector<int32_t> dirty_, reached_links_, reached_;
  size_t first_link_ = 0, first_ = 0;  // what was reached from the dirty link at hand, of both
  std::vector<Change> changes_;
};

}  // namespace windtunnel
