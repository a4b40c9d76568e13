// The speeds of transfers that cross the same links at once: max-min fair, by progressive filling, as if
// network cards served their connections in turn.
//
// At speed 1 (as fast as alone) a transfer takes the share u of each link's capacity; e is the largest of its
// u. If x are the speeds of the transfers in flight, their shares x e satisfy:
//
//   each is at most e;  for each link the sum of u x over its transfers is at most 1;
//   none can be raised without lowering one that is not larger.
//
// All shares rise together from 0. When a link is full, its transfers keep their shares; a transfer that
// reaches its e does too; the others go on rising.
//
//   Two transfers with u = 1 on a link get a half each, so both take twice as long. A third with u = 0.2
//   there gets its 0.2, and is as fast as alone; the two get 0.4 each. If the third has u = 1 on another
//   link, which it shares with three more such transfers, it gets a quarter of that link and takes 0.05 of
//   this one; the two get (1 - 0.05) / 2 = 0.475.
//
// A flow may stand for all transfers of a class. Its u are then what they take of a link together, which may
// be more than 1; its e is that of one.
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

  // Forgets all transfers in flight.
  void Reset();
  void Start(int32_t transfer, int32_t flow);
  void Finish(int32_t transfer, int32_t flow);
  // Returns the speeds of the transfers in flight whose speed may have changed since the last call: all that
  // share links, directly or through other transfers, with one that started or finished.
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
    int32_t open = 0;  // number of transfers that are not settled
    double slope = 0;  // capacity that these take per unit of their shares: the sum of u / e
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
  size_t first_link_ = 0, first_ = 0;  // in those two, where what the current dirty link reaches begins
  std::vector<Change> changes_;
};

}  // namespace windtunnel
