// DataParallel (torch.nn.DataParallel): one process, a thread per device. Device 0 ("main") has the batch,
// the parameters, the gradients and the optimizer; the others ("replica") have nothing between micro-batches.
// A micro-batch, with n devices:
//
//   main                                               replica
//   loads n micro-batches                              .
//   scatter      of the inputs: to each device the rows of one micro-batch
//   broadcast    of all parameters, in buffers of 10 MiB (flattened on main, unflattened in place)
//   forward      of its own rows, up to the logits     forward of its rows
//   gather       of the logits, on main
//   loss of all rows, and its gradient                 .
//   scatter      of the gradient
//   backward                                           backward
//   reduce       of the gradients, coalesced likewise: main gets the sum (the loss is the mean over all rows)
//   adds them to .grad                                 .
//   … and once a step, the optimizer                   .
//
// Nothing overlaps: everything is on the compute streams. Replicas and their gradients are dropped after each
// micro-batch, and so are the gradients of main's own replica, whose parameters are the originals. In a
// step's first micro-batch the sums themselves become .grad, as torch.autograd steals them.
//
// An evaluation ends with the loss.
#pragma once

#include "plan/plan.h"

namespace windtunnel {

// Makes the plan's roles, "main" and "replica", and its model. REQUIRES: parallel.data.size > 1, and nothing
// else is parallel; axis 0 is the world.
void CompileDeviceReplicas(Plan& plan, const CompileOptions& options);

}  // namespace windtunnel
