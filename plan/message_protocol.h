// What frameworks do about messages between pipeline stages besides sending them (docs/decisions/0032).
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace windtunnel {

struct MessageProtocol {
  // Whether the host synchronizes with everything it has issued after each batch of messages. Megatron does,
  // to avoid a race in torch.distributed.batch_isend_irecv (megatron/p2p_communication.py; Megatron-Core's
  // batch_p2p_sync). Not where ranks have several stages: Megatron-Core does not batch messages then
  // (overlap_p2p_comm), and Megatron of 2021 synchronizes after pairs of passes, which schedules here do not
  // express. DeepSpeed does where it scatters messages: their shapes are sent along, and the host reads them
  // (deepspeed/runtime/pipe/engine.py, PartitionedTensor.from_meta; before it was cached).
  bool host_waits = false;
  // The number of tensor ranks that a message is scattered over: all of them hold the same tensor, each sends
  // one part of it, and the receivers all-gather the parts (scatter_gather_tensors_in_pipeline of Megatron of
  // 2021, where its host waits for messages; DeepSpeed's is_pipe_partitioned and is_grad_partitioned). 1:
  // each sends the whole tensor.
  int parts = 1;
};

// The protocol of messages of `elements` elements in a pipeline of `stages` stages.
MessageProtocol MessageProtocolOf(const Scenario& scenario, int stages, int64_t elements);

}  // namespace windtunnel
