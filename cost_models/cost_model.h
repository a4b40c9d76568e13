// The interface that answers what a plan's operators cost. A cost model sees operators, never steps.
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
  // The kernel's highest speed while communication holds multiprocessors. 0: no limit beyond what
  // communication leaves to kernels (CommunicationCost::compute_efficiency).
  double beside_communication = 0;
};

struct CommunicationCost {
  Distribution time = {};  // alone, on idle cores
  // The share of a core that one rank's threads need while it runs alone; 0 on a device with its own engines.
  double core_share = 0;
  // How one rank's communication threads compete with a computing thread on their core: their weight in
  // weighted max-min sharing (the computing thread's weight is 1), from the measured slow-downs.
  double weight = 1;
  // Speed of a kernel while a collective is in flight beyond the loss of core time (caches, memory): (0,1].
  double compute_efficiency = 1;
  // Its kernel occupies multiprocessors. False for messages, though these hold two.
  bool holds_multiprocessors = false;
  CostSource source = CostSource::kMeasured;
  // "nvls_tree" and "simple": what it is assumed to run by; empty if the model does not know.
  std::string_view algorithm = {}, protocol = {};
};

// The load of a transfer on one link of cluster.topology while it runs as fast as alone: a share of the
// bandwidth that is achieved on the link, up to 1 on the busiest.
struct LinkDemand {
  int32_t link = -1;
  double share = 0;
};
using LinkDemands = std::vector<LinkDemand>;

class ProductSpeeds;  // cost_models/block_speed.h

// A model with links (has_links) is for one thread at a time; others are for any number of threads at once.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Errors: InvalidInput naming the operator when there is no entry to take its cost from.
  virtual Result<KernelCost> Kernel(const Op& op) const = 0;
  virtual Result<CommunicationCost> Communication(const Op& op, const Group& group) const = 0;
  // Whether transfers share links; if so, Links returns them.
  virtual bool has_links() const { return false; }
  // The links that a transfer crosses, in ascending order. `position` is that of the operator's rank in the
  // group; it matters for sends and receives. Null if the transfer shares no links. The model keeps what it
  // returns, so results of one address are equal. Errors: as Communication.
  virtual Result<std::shared_ptr<const LinkDemands>> Links(const Op&, const Group&, int /*position*/) const {
    return std::shared_ptr<const LinkDemands>();
  }
  // Host time before each operator.
  virtual Distribution Dispatch() const = 0;
  // The same before this operator, if the model tells operators apart.
  virtual KernelCost DispatchOf(const Op&) const { return {.time = Dispatch()}; }
  // Whether the host's thread runs the kernels (a CPU) or only issues them to a device that runs them in its
  // own time.
  virtual bool host_computes() const { return true; }
  // Cores of a node that its ranks share (rank r of a node runs on core r modulo this); 0: every rank has its
  // own device.
  virtual int cores_per_node() const = 0;
  // The slow-down that all operators of a step share, at a level of its distribution in [0, 1].
  virtual double CommonMode(double level) const = 0;
  // How fast products run (cost_models/block_speed.h), and how much longer the operators of the plan's layers
  // take than a framework's other residual factors say (cost_models/layer_factors.h). For plans that have the
  // same cluster, framework and share of recomputed layers, models of one profile in which both are equal
  // have equal costs.
  virtual double product_speed() const { return 1; }
  virtual double layer_factor() const { return 1; }
  virtual Bytes OutsideAllocator(const Plan& plan) const = 0;
  // The device's memory, for its allocator and everything outside it; 0: not known.
  virtual Bytes DeviceMemory() const { return Bytes(0); }
};

// Whether, without a cluster.topology, collectives of different groups slow each other down on nodes' cards.
enum class CardSharing : uint8_t { kModelled, kIgnored };

// Whether the costs of a device have links for the scenario although it names no topology. They do if
// collectives of two or more axes cross nodes (AxesAcrossNodes), and so may do so at once.
bool SharesCards(const Profile& profile, const Scenario& scenario);

// Costs for `plan` from `profile`. Kernels are looked up at the plan's number of ranks per node, or the
// nearest measured number (interpolated); collectives by size (linear between measured sizes: interpolated;
// beyond the largest at its bandwidth: modelled). If the profile is a datasheet, everything is modelled
// (cost_models/device_cost_model.h). The profile must outlive the model.
// `speeds`: as for MakeDeviceCostModel, used with this profile only. `cards`: pass kIgnored for a model
// without links even if SharesCards.
std::unique_ptr<CostModel> MakeProfileCostModel(const Profile& profile, const Plan& plan,
                                                ProductSpeeds* speeds = nullptr,
                                                CardSharing cards = CardSharing::kModelled);

// The costs that a profile lacks for a plan, so that calibration measures only those.
struct MissingCosts {
  std::vector<std::string> kernels;  // cost keys
  std::vector<std::string> collectives;
  bool dispatch = false;
  bool outside_allocator = false;
  bool empty() const { return kernels.empty() && collectives.empty() && !dispatch && !outside_allocator; }
};
MissingCosts FindMissingCosts(const Profile& profile, const Plan& plan);

}  // namespace windtunnel
