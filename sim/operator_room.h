// Limits how many operator-by-operator predictions run at once to those that the machine has memory for.
//
//   const OperatorRoom room(scenario);   // waits until there is room beside the predictions in progress
//   WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario));
#pragma once

#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// The memory that the operators of a scenario's steady step and their simulation take: about 65 kB per block
// and micro-batch, 130 kB if blocks are mixtures of experts (measured; over all stages, since each has a role
// of its own).
Bytes OperatorMemory(const Scenario& scenario);

// Reserves OperatorMemory of a budget that all threads of the process share: three quarters of the machine's
// memory, or of the container's. A prediction that needs more than the budget runs alone. From any thread.
class OperatorRoom {
 public:
  explicit OperatorRoom(const Scenario& scenario);
  ~OperatorRoom();
  OperatorRoom(const OperatorRoom&) = delete;
  OperatorRoom& operator=(const OperatorRoom&) = delete;

 private:
  const Bytes own_;
};

}  // namespace windtunnel
