// CUDA graphs: operators that the host launches together (run.cuda_graphs).
//
// A graph is a run of operators of the compute stream between which the host does nothing but allocate and
// free memory: it issues nothing to other streams, and nothing is waited for. An operator that another stream
// waits for ends a graph, and one that waits for another stream begins one, so dependencies are met at the
// ends of graphs. Graphs leave out operators in which more than the operands' values differs between steps
// (batches, which lie elsewhere each time; the optimizer's update, whose bias correction counts steps),
// copies to or from the host's memory, and what the host executes. Two operators are the least.
//
//   LoadBatch, Embedding, Norm, Gemm, [all_gather], Gemm, Gelu, OptimizerUpdate
//              ^ 3        -1    -1                  ^ 2   -1
#pragma once

#include "plan/step_program.h"

namespace windtunnel {

// Sets Op::graph of all operators.
void FormGraphs(Program& program);

}  // namespace windtunnel
