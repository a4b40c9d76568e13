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
inline constexpr OpIndex kForwardOp = 0, kBackwardOp = 1, kCopyOp = 2, kAllReduceOp = 3, kGemmOp = 4,
                         kOptimizerOp = 5;
// The indices of the memory operations, which are before the first operator and after the last.
inline constexpr int32_t kAlloc = 0, kFree = 1;

Op SampleOp(OpKind kind, StreamId stream, std::vector<Slice> reads, std::vector<Slice> writes,
            std::vector<OpIndex> dependencies, Phase phase, std::string name);
MemoryOp Allocated(BufferId buffer);
MemoryOp Freed(BufferId buffer);
Role SampleRole();
Plan SamplePlan();
std::vector<Timeline> SampleTimelines();
MemoryPeak SamplePeak();
// Steps of 11 ms, of which 1.5 ms are spent waiting for the all-reduce (mean of 2 and 1).
Prediction SamplePrediction();
// Ten steps of 10 ms: the prediction is 10 % too long, 0.5 ms of it in gemm and 0.5 ms in waiting.
Measurement SampleMeasurement();
Outcome SampleOutcome();

}  // namespace windtunnel
