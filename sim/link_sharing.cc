#include "sim/link_sharing.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace windtunnel {

LinkSharing::LinkSharing(std::vector<NetworkFlow> flows, int32_t links)
    : flows_(std::move(flows)), links_(links) {}

void LinkSharing::Reset() {
  for (Link& link : links_) link = {};
  active_.clear();
  unused_.clear();
  dirty_.clear();
}

void LinkSharing::MarkLinksOf(int32_t flow) {
  for (const LinkDemand& demand : flows_[flow].demands) {
    Link& link = links_[demand.link];
    if (!link.is_dirty) dirty_.push_back(demand.link);
    link.is_dirty = true;
  }
}

void LinkSharing::Start(int32_t transfer, int32_t flow) {
  if (flows_[flow].demands.empty()) return;
  int32_t index = static_cast<int32_t>(active_.size());
  if (unused_.empty()) {
    active_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  active_[index] = {.transfer = transfer, .flow = flow};
  for (const LinkDemand& demand : flows_[flow].demands) links_[demand.link].active.push_back(index);
  MarkLinksOf(flow);
}

void LinkSharing::Finish(int32_t transfer, int32_t flow) {
  if (flows_[flow].demands.empty()) return;
  const std::vector<int32_t>& candidates = links_[flows_[flow].demands.front().link].active;
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](int32_t index) { return active_[index].transfer == transfer; });
  WT_CHECK(found != candidates.end());
  const int32_t index = *found;
  for (const LinkDemand& demand : flows_[flow].demands) std::erase(links_[demand.link].active, index);
  active_[index].transfer = -1;
  unused_.push_back(index);
  MarkLinksOf(flow);
}

// Collects the links and transfers that a change on `link` may affect, without those reached before.
void LinkSharing::ReachFrom(int32_t link) {
  first_link_ = reached_links_.size();
  first_ = reached_.size();
  links_[link].is_reached = true;
  reached_links_.push_back(link);
  for (size_t next = first_link_; next < reached_links_.size(); ++next) {
    for (int32_t index : links_[reached_links_[next]].active) {
      Active& active = active_[index];
      if (active.is_reached) continue;
      active.is_reached = true;
      active.is_settled = false;
      reached_.push_back(index);
      for (const LinkDemand& demand : flows_[active.flow].demands) {
        if (links_[demand.link].is_reached) continue;
        links_[demand.link].is_reached = true;
        reached_links_.push_back(demand.link);
      }
    }
  }
}

void LinkSharing::Settle(int32_t index, double speed) {
  Active& active = active_[index];
  active.is_settled = true;
  changes_.push_back({active.transfer, speed});
  const NetworkFlow& flow = flows_[active.flow];
  for (const LinkDemand& demand : flow.demands) {
    Link& link = links_[demand.link];
    link.free -= demand.share * speed;
    link.slope -= demand.share / flow.largest;
    --link.open;
  }
}

// Returns the link that is full first as all shares rise from `level`, and sets `level` to where it is full;
// -1 if no link is left. If rounding and SettleUpTo have given away more than a link has, the level does not
// fall: transfers keep the shares that they have reached.
int32_t LinkSharing::FirstFull(double& level) const {
  const double reached = level;
  int32_t full = -1;
  level = std::numeric_limits<double>::infinity();
  for (size_t i = first_link_; i < reached_links_.size(); ++i) {
    const Link& link = links_[reached_links_[i]];
    if (link.open == 0 || link.slope <= 0) continue;  // nothing more is taken of it, but for rounding
    const double at = std::max(link.free / link.slope, reached);
    if (at >= level) continue;
    level = at;
    full = reached_links_[i];
  }
  return full;
}

// Settles, at full speed, the transfers whose e is at most `level`. False if there are none.
bool LinkSharing::SettleUpTo(double level) {
  const double most = level * (1 + 1e-12);  // rounding must not slow down a transfer that has the link alone
  bool any = false;
  for (size_t i = first_; i < reached_.size(); ++i) {
    const Active& active = active_[reached_[i]];
    if (active.is_settled || flows_[active.flow].largest > most) continue;
    Settle(reached_[i], 1);
    any = true;
  }
  return any;
}

// Progressive filling of the links and transfers that the last ReachFrom collected.
void LinkSharing::Fill() {
  for (size_t i = first_link_; i < reached_links_.size(); ++i) {
    Link& link = links_[reached_links_[i]];
    link.free = 1;
    link.slope = 0;
    link.open = static_cast<int32_t>(link.active.size());
  }
  for (size_t i = first_; i < reached_.size(); ++i) {
    const NetworkFlow& flow = flows_[active_[reached_[i]].flow];
    for (const LinkDemand& demand : flow.demands) links_[demand.link].slope += demand.share / flow.largest;
  }
  double level = 0;
  for (size_t left = reached_.size() - first_; left > 0;) {
    const size_t before = changes_.size();
    const int32_t full = FirstFull(level);
    // The level assumes that no transfer reaches its e before. If some do, the link is full no earlier.
    if (!SettleUpTo(level)) {
      WT_CHECK_GE(full, 0);
      for (int32_t index : links_[full].active) {
        if (!active_[index].is_settled) Settle(index, level / flows_[active_[index].flow].largest);
      }
    }
    WT_CHECK(changes_.size() > before);
    left -= changes_.size() - before;
  }
}

const std::vector<LinkSharing::Change>& LinkSharing::Solve() {
  changes_.clear();
  std::sort(dirty_.begin(), dirty_.end());
  for (int32_t link : dirty_) {
    links_[link].is_dirty = false;
    if (links_[link].is_reached) continue;
    ReachFrom(link);
    Fill();
  }
  for (int32_t link : reached_links_) links_[link].is_reached = false;
  for (int32_t index : reached_) active_[index].is_reached = false;
  reached_links_.clear();
  reached_.clear();
  dirty_.clear();
  return changes_;
}

}  // namespace windtunnel
