// Room in memory for predictions that go operator by operator, of which several may be asked for at once.
//
//   const OperatorRoom room(scenario);   // waits until there is room beside those under way
//   WT_ASSIGN_OR_RETURN(const Plan plan, CompilePlan(scenario));
#pragma once

#include "base/units.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// What the operators of a scenario's steady step take, with what simulating them does: about 65 kB for a block and micro-batch, 130 kB where
// blocks are mixtures of experts (measured; of all stages, since each has a role).
Bytes OperatorMemory(const Scenario& scenario);

// Three quarters of the machine's memory, or of the container's, are shared; who needs more goes alone. Of the process, from any thread.
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
