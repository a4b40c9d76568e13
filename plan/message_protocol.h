// What frameworks do about messages between pipeline stages beside sending them (docs/decisions/0032).
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace windtunnel {

struct MessageProtocol {
  // Whether the host waits for all that it has issued after each batch of messages. Megatron does, to protect itself from a race in
  // torch.distributed.batch_isend_irecv (megatron/p2p_communication.py; Megatron-Core's batch_p2p_sync). Not where ranks have several stages:
  // Megatron-Core's messages are not batched then (overlap_p2p_comm), and those of 2021 are after pairs of passes, which schedules here do
  // not say. DeepSpeed does where it scatters messages: their shapes come with them, and are read by the host (deepspeed/runtime/pipe/engine.py,
  // PartitionedTensor.from_meta; before it was cached).
  bool host_waits = false;
  // Among how many tensor ranks a message is scattered: what they have alike, each sends a part of, which those that receive it gather
  // (scatter_gather_tensors_in_pipeline of Megatron of 2021, where its host waits for messages; DeepSpeed's is_pipe_partitioned and
  // is_grad_partitioned). 1: it is sent whole.
  int parts = 1;
};

// Of messages of `elements` elements in a pipeline of so many stages.
MessageProtocol MessageProtocolOf(const Scenario& scenario, int stages, int64_t elements);

}  // namespace windtunnel
