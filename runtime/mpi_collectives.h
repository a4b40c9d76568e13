// Runs large operators, except sums (runtime/mpi_communicator.cc), as MPI's own collectives: the library
// knows the network, and a site may have tuned it.
#pragma once

#include <mpi/mpi.h>

#include <vector>

#include "base/result.h"
#include "runtime/group_operator.h"
#include "runtime/mpi_channel.h"

namespace windtunnel {

class MpiCollectives {
 public:
  explicit MpiCollectives(MpiChannel& channel) : channel_(channel) {}

  // Unsupported for more elements than a count of MPI's holds.
  static Status Check(const GroupOperator& op);

  // Checks that the ranks are at the same operator. If they are not, the error names both sides' operators.
  Status Agree(const GroupOperator& op);
  // The whole operator, after Agree. REQUIRES: it is no barrier, and the group has at least two ranks.
  Status Run(const GroupOperator& op);

 private:
  int Start(const GroupOperator& op, MPI_Request* requests);
  int StartReduceScatter(const GroupOperator& op, MPI_Request* request);
  int StartGathering(const GroupOperator& op, MPI_Request* request);
  int StartReduce(const GroupOperator& op, MPI_Request* request);
  void LayOutParts(const GroupOperator& op);
  char* OwnPart(const void* whole, const GroupOperator& op) const;

  MpiChannel& channel_;
  std::vector<int> counts_, offsets_;  // of the parts of an operator's message, in elements
  std::vector<char> shard_;            // for a reduce-scatter in place, which MPI does not have
};

}  // namespace windtunnel
