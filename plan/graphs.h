// CUDA graphs: operators that the host launches together (run.cuda_graphs, run.cuda_graph_scope).
//
// Windtunnel's are what its runtime launches. A graph is a run of operators of the compute stream between
// which the host does nothing but allocate and free memory: it issues nothing to other streams, and nothing
// is waited for. An operator that another stream waits for ends a graph, and one that waits for another
// stream begins one, so dependencies are met at the ends of graphs. Graphs leave out operators in which more
// than the operands' values differs between steps (batches, which lie elsewhere each time; the optimizer's
// update, whose bias correction counts steps), copies to or from the host's memory, and what the host
// executes. Two operators are the least.
//
//   LoadBatch, Embedding, Norm, Gemm, [all_gather], Gemm, Gelu, OptimizerUpdate
//              ^ 3        -1    -1                  ^ 2   -1
//
// Megatron-Core's, which are predicted only, are captured with the communication in between: of a layer's
// forward, and of its backward, what is in the scope and not interrupted by operators of the layer that are
// not.
//
//   Norm, Gemm, [all_gather], Attention, Gemm, [reduce_scatter], Norm, router, [all_to_all], experts
//   ^ 8   -1    -1            -1         -1    -1                -1    -1            (attn, moe_router)
#pragma once

#include "plan/step_program.h"
#include "scenarios/scenario.h"

namespace windtunnel {

// Sets Op::graph of all operators of a step, as the scenario's framework and run.cuda_graph_scope have it.
// REQUIRES: run.cuda_graphs.
void FormGraphs(const Scenario& scenario, Program& program);

}  // namespace windtunnel
