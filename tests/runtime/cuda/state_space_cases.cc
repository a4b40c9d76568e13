// State space models. On a small device backward divides long sequences of few heads into chunks.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/state_space_ops.h"
#include "tests/runtime/cuda/case_list.h"

namespace windtunnel::test {
namespace {

struct StateSpaceSizes {
  int64_t batch, seq, heads, groups, head_dim, state, conv;
};

// States for every number of columns of a thread; rows of whole pieces and others; heads of more rows than a
// block's; groups of heads in one part and in several; sequences shorter than the convolution, than a tile,
// and of several runs of tokens.
std::vector<StateSpaceSizes> StateSpaceShapes(const Cases& c) {
  std::vector<StateSpaceSizes> all = {{1, 1, 2, 1, 4, 1, 1},     {2, 2, 3, 1, 8, 16, 4},
                                      {2, 5, 6, 2, 16, 16, 2},   {1, 70, 5, 1, 20, 64, 4},
                                      {1, 200, 1, 1, 80, 16, 4}, {1, 150, 1, 1, 12, 128, 4},
                                      {2, 70, 16, 2, 8, 128, 4}, {2, 9, 3, 3, 5, 7, 3},
                                      {2, 11, 2, 1, 64, 256, 4}, {1, 133, 2, 2, 4, 33, 2}};
  if (c.large)
    all.insert(all.end(), {{2, 1024, 24, 1, 64, 128, 4},
                           {1, 2048, 32, 8, 64, 128, 4},
                           {2, 500, 16, 2, 80, 256, 4},
                           {8, 300, 16, 1, 128, 64, 4}});
  // On blocks of fibers fp16's kernels are bf16's with other conversions.
  if (!c.large && c.dtype == DType::kFloat16) all.resize(4);
  return all;
}

void ReadParameters(const StateSpaceShape& s, OperatorCase& to) {
  to.Read(s.dtype, s.convolved() * s.conv, 0.5).Read(s.dtype, s.convolved(), 0.3);
  for (int i = 0; i < 3; ++i) to.Read(s.dtype, s.heads);
  to.Read(s.dtype, s.inner());
}

}  // namespace

void AddStateSpace(Cases& c) {
  for (const StateSpaceSizes& sizes : StateSpaceShapes(c)) {
    const StateSpaceShape s = {sizes.batch, sizes.seq,  sizes.heads, sizes.groups, sizes.head_dim,
                               sizes.state, sizes.conv, 256,         c.dtype};
    const int64_t elements = s.tokens() * s.inner();
    OperatorCase forward{.name = "state space", .kind = StateSpaceForward{s}};
    forward.Read(c.dtype, s.tokens() * s.packed());
    ReadParameters(s, forward);
    forward.Write(c.dtype, elements).Write(c.dtype, elements).Write(kFloat, s.tokens() * s.groups);
    // In 16 bits the statistics are of outputs of which some are rounded the other way.
    if (c.dtype != kFloat) forward.buffers.back().tolerance = 1e-3;
    forward.Workspace(StateSpaceWorkspaceElements(s, /*backward=*/false));
    const Outcome outcome = OnCpu(forward);
    for (const bool accumulate : {false, true}) {
      OperatorCase backward{.name = "state space backward", .kind = StateSpaceBackward{s, accumulate}};
      backward.Read(c.dtype, elements);
      for (const size_t read : forward.reads) backward.ReadValues(forward.buffers[read]);
      backward.ReadValues(outcome.writes[1]).ReadValues(outcome.writes[2]);
      backward.Write(c.dtype, s.tokens() * s.packed());
      const auto of_parameter = [&](int64_t n) {
        if (accumulate) backward.Update(c.dtype, n);
        else backward.Write(c.dtype, n);
      };
      of_parameter(s.convolved() * s.conv);
      of_parameter(s.convolved());
      for (int i = 0; i < 3; ++i) {
        // The norm makes ds of a group orthogonal to its s, of which the heads' scalars are factors.
        of_parameter(s.heads);
        backward.buffers.back().tolerance = c.dtype == kFloat ? 2e-3 : 1e-2;
      }
      of_parameter(s.inner());
      backward.Workspace(StateSpaceWorkspaceElements(s, /*backward=*/true));
      if (accumulate) {  // off 16 bytes
        forward.offset = backward.offset = 1;
        c.cases.push_back(forward);
        forward.offset = 0;
      }
      c.cases.push_back(std::move(backward));
    }
    c.cases.push_back(std::move(forward));
  }
}

}  // namespace windtunnel::test
