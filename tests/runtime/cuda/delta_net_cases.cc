// Gated delta networks, and the gates that multiply attention and shared experts.
#include <cstdint>
#include <vector>

#include "plan/delta_net_ops.h"
#include "tests/runtime/cuda/case_list.h"

namespace windtunnel::test {
namespace {

// Keys for every number of rows of a thread; values of one part of columns and of several; heads of values
// that share keys; sequences shorter than the convolution, than a tile, and of several runs of tokens.
std::vector<DeltaNetShape> DeltaNetShapes(const Cases& c) {
  std::vector<DeltaNetShape> all = {{1, 1, 1, 1, 4, 4, 1},    {2, 2, 1, 3, 16, 8, 4},
                                    {2, 5, 2, 4, 16, 16, 2},  {1, 70, 1, 2, 40, 20, 4},
                                    {1, 35, 1, 1, 64, 80, 4}, {1, 20, 1, 2, 128, 12, 4},
                                    {2, 9, 3, 3, 5, 7, 3},    {1, 6, 1, 1, 200, 130, 4}};
  if (c.large)
    all.insert(all.end(),
               {{1, 2048, 16, 32, 128, 128, 4}, {2, 500, 4, 16, 128, 128, 4}, {1, 300, 2, 2, 256, 256, 4}});
  // On blocks of fibers fp16's kernels are bf16's with other conversions.
  if (!c.large && c.dtype == DType::kFloat16) all.resize(3);
  for (DeltaNetShape& s : all) s.dtype = c.dtype;
  return all;
}

void AddNetworks(Cases& c) {
  for (const DeltaNetShape& s : DeltaNetShapes(c)) {
    const int64_t elements = s.tokens() * s.inner();
    OperatorCase forward{.name = "delta net", .kind = DeltaNetForward{s}};
    forward.Read(c.dtype, s.tokens() * s.packed()).Read(s.dtype, s.convolved() * s.conv, 0.5);
    forward.Read(s.dtype, s.value_heads).Read(s.dtype, s.value_heads).Read(s.dtype, s.value_dim);
    forward.Write(c.dtype, elements).Write(c.dtype, elements).Write(kFloat, s.tokens() * s.value_heads);
    // In 16 bits the statistics are of outputs of which some are rounded the other way.
    if (c.dtype != kFloat) forward.buffers.back().tolerance = 1e-3;
    forward.Workspace(DeltaNetWorkspaceElements(s, /*backward=*/false));
    const Outcome outcome = OnCpu(forward);
    for (const bool accumulate : {false, true}) {
      OperatorCase backward{.name = "delta net backward", .kind = DeltaNetBackward{s, accumulate}};
      backward.Read(c.dtype, elements);
      for (const size_t read : forward.reads) backward.ReadValues(forward.buffers[read]);
      backward.ReadValues(outcome.writes[1]).ReadValues(outcome.writes[2]);
      backward.Write(c.dtype, s.tokens() * s.packed());
      const auto of_parameter = [&](int64_t n) {
        if (accumulate) backward.Update(c.dtype, n);
        else backward.Write(c.dtype, n);
      };
      of_parameter(s.convolved() * s.conv);
      for (int i = 0; i < 2; ++i) {
        // Sums over a sequence of terms that nearly cancel.
        of_parameter(s.value_heads);
        backward.buffers.back().tolerance = c.dtype == kFloat ? 2e-3 : 1e-2;
      }
      of_parameter(s.value_dim);
      backward.Workspace(DeltaNetWorkspaceElements(s, /*backward=*/true));
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

void AddGates(Cases& c) {
  const std::vector<std::pair<int64_t, int64_t>> sizes =
      c.large ? std::vector<std::pair<int64_t, int64_t>>{{4096, 4096}, {511, 2048}}
              : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 8}, {5, 24}, {4, 33}};
  for (const auto& [rows, columns] : sizes)
    for (const bool by_row : {false, true}) {
      const int64_t all = rows * columns, gates = by_row ? rows : all;
      OperatorCase forward{.name = "gate", .kind = GateForward{rows, columns, by_row, c.dtype}};
      forward.Read(c.dtype, all).Read(c.dtype, gates).Write(c.dtype, all);
      OperatorCase backward{.name = "gate backward", .kind = GateBackward{rows, columns, by_row, c.dtype}};
      backward.Read(c.dtype, all).Read(c.dtype, all).Read(c.dtype, gates);
      backward.Write(c.dtype, all).Write(c.dtype, gates);
      c.cases.push_back(std::move(forward));
      c.cases.push_back(std::move(backward));
    }
}

}  // namespace

void AddDeltaNets(Cases& c) {
  AddNetworks(c);
  AddGates(c);
}

}  // namespace windtunnel::test
