// A hand-made outcome that the tests of reports share: two replicas, five operators and a bucket.
//
//   ms        0    1    2    3    4    5    6    7    8    9    10   11
//   rank 0    [ forward][ backward     ][copy][ gemm    ]        [opt]     compute
//                                            [ all-reduce       ]          data
//   rank 1    [ forward][ backward          ][copy][ gemm   ]    [opt]     compute
//                                                 [ all-reduce  ]          data
#pragma once

#include "reports/outcome.h"

namespace windtunnel {

// The indices of the operators in the steady program.
inline constexpr OpIndex kAllocOp = 0, kForwardOp = 1, kBackwardOp = 2, kCopyOp = 3, kAllReduceOp = 4,
                         kGemmOp = 5, kOptimizerOp = 6, kFreeOp = 7;

Op SampleOp(OpKind kind, StreamId stream, std::vector<Slice> reads, std::vector<Slice> writes,
            std::vector<OpIndex> dependencies, Phase phase, std::string name);
Op SampleMemoryOp(OpKind kind, BufferId buffer);
Role SampleRole();
Plan SamplePlan();
std::vector<Timeline> SampleTimelines();
MemoryPeak SamplePeak();
// 11 ms a step, of which 1.5 ms wait for the all-reduce (mean of 2 and 1).
Prediction SamplePrediction();
// Ten steps of 10 ms: the prediction is 10 % too long, 0.5 ms of it in gemm and 0.5 ms in waiting.
Measurement SampleMeasurement();
Outcome SampleOutcome();

}  // namespace windtunnel
