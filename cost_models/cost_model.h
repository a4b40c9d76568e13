// Costs of the operators of a plan, from a profile. A cost model sees operators, never steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost_models/distribution.h"
#include "cost_models/profile.h"
#include "plan/plan.h"

namespace windtunnel {

// Where a cost came from: this exact shape, between measured shapes, or a formula.
enum class CostSource : uint8_t { kMeasured, kInterpolated, kModelled };

struct KernelCost {
  Distribution time = {};
  CostSource source = CostSource::kMeasured;
  // Its speed, at most, while communication holds multiprocessors; 0: what that leaves to kernels (CommunicationCost::compute_efficiency).
  double beside_communication = 0;
};

struct CommunicationCost {
  Distribution time = {};  // alone, on idle cores
  double core_share =
      0;  // of one core, that one rank's threads need while it runs alone; 0 on a device with its own engines
  // How one rank's communication threads fare against a computing thread on their core: their weight in weighted
  // max-min sharing (the computing thread's weight is 1), from the measured slow-downs.
  double weight = 1;
  // Speed of a kernel while a collective is in flight beyond the loss of core time (caches, memory): (0, 1].
  double compute_efficiency = 1;
  bool holds_multiprocessors =
      false;  // its kernel runs on some of them; not said of messages, which hold two
  CostSource source = CostSource::kMeasured;
  // "nvls_tree" and "simple": what it is taken to run by, where the model knows; empty otherwise.
  std::string_view algorithm = {}, protocol = {};
};

// What a transfer takes of a link of cluster.topology while it goes as fast as alone: a share of what is achieved of the link, up to 1 on
// the busiest.
struct LinkDemand {
  int32_t link = -1;
  double share = 0;
};
using LinkDemands = std::vector<LinkDemand>;

class ProductSpeeds;  // cost_models/block_speed.h

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Errors: InvalidInput naming the operator when there is no entry to take its cost from.
  virtual Result<KernelCost> Kernel(const Op& op) const = 0;
  virtual Result<CommunicationCost> Communication(const Op& op, const Group& group) const = 0;
  // Whether transfers share links, which Links tells.
  virtual bool has_links() const { return false; }
  // The links that a transfer crosses, by link, ascending. `position` is that of the operator's rank in the group, where it matters (a send
  // or receive). Null where transfers share none. Errors: as Communication.
  virtual Result<std::shared_ptr<const LinkDemands>> Links(const Op&, const Group&, int /*position*/) const {
    return std::shared_ptr<const LinkDemands>();
  }
  // Host time before each operator.
  virtual Distribution Dispatch() const = 0;
  // The same before this one, where the model tells operators apart.
  virtual KernelCost DispatchOf(const Op&) const { return {.time = Dispatch()}; }
  // Whether the host's thread runs the kernels (a CPU) or only issues them to a device that runs them in its own time.
  virtual bool host_computes() const { return true; }
  // Cores of a node that its ranks share (rank r of a node runs on core r modulo this); 0: every rank has its own device.
  virtual int cores_per_node() const = 0;
  // A step's slow-down that all its operators share, at a level of its distribution in [0, 1].
  virtual double CommonMode(double level) const = 0;
  virtual Bytes OutsideAllocator(const Plan& plan) const = 0;
  // What a device has for its allocator and everything outside it; 0: not known.
  virtual Bytes DeviceMemory() const { return Bytes(0); }
};

// Whether collectives of different groups slow each other down on the cards of a node where cluster.topology does not say how nodes are linked.
enum class CardSharing : uint8_t { kModelled, kIgnored };

// Whether a device's costs of the scenario have links though it names no topology: collectives of two axes or more go between nodes
// (AxesAcrossNodes), and may do so at once, over no more than a card a device.
bool SharesCards(const Profile& profile, const Scenario& scenario);

// Costs out of `profile` for `plan`: kernels measured at its number of ranks per node (or the nearest measured number:
// interpolated), collectives by size (between measured sizes: interpolated linearly; beyond the largest: modelled by its
// bandwidth). Where the profile is a datasheet, everything is modelled (cost_models/device_cost_model.h). The profile must outlive
// the model.
// `speeds`: as MakeDeviceCostModel's, of one profile. `cards`: kIgnored for a model without links where SharesCards.
std::unique_ptr<CostModel> MakeProfileCostModel(const Profile& profile, const Plan& plan,
                                                ProductSpeeds* speeds = nullptr,
                                                CardSharing cards = CardSharing::kModelled);

// What a profile lacks for a plan, so that calibration measures only that.
struct MissingCosts {
  std::vector<std::string> kernels;  // cost keys
  std::vector<std::string> collectives;
  bool dispatch = false;
  bool outside_allocator = false;
  bool empty() const { return kernels.empty() && collectives.empty() && !dispatch && !outside_allocator; }
};
MissingCosts FindMissingCosts(const Profile& profile, const Plan& plan);

}  // namespace windtunnel
