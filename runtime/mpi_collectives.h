// Large operators as MPI's own, but for sums (runtime/mpi_communicator.cc): the library knows the network, and a site may have taught it
// more.
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

  // Unsupported for more elements than MPI counts.
  static Status Check(const GroupOperator& op);

  // Makes sure that the ranks are at the same operator: an error names both sides' where they are not.
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
  std::vector<char> shard_;            // of a reduce-scatter in place, which MPI does not have
};

}  // namespace windtunnel
