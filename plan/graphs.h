// CUDA graphs: operators that the host launches together (run.cuda_graphs).
//
// A graph is a run of operators of the compute stream between which the host has nothing to do but to hand out memory: nothing is
// issued to another stream, and nothing is waited for. What other streams wait for ends a graph, and what waits for other streams
// begins one, so dependencies are met at its ends. Left out is what differs from one step to the next beside its operands' values
// (batches, which lie elsewhere each time; the optimizer's update, whose bias correction counts steps), what crosses to the host's memory
// and what the host does itself. Two operators are the least.
//
//   LoadBatch, Embedding, Norm, Gemm, [all_gather], Gemm, Gelu, OptimizerUpdate
//              ^ 3        -1    -1                  ^ 2   -1
#pragma once

#include "plan/step_program.h"

namespace windtunnel {

// Sets Op::graph of all operators.
void FormGraphs(Program& program);

}  // namespace windtunnel
