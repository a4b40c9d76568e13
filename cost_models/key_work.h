// The work that a cost key (CostKey of plan/op.h) implies, so that a measured time can be read as a rate.
//
//   KeyWork("gemm bf16 nn m=256 n=1024 k=256")    2 m n k = 134 MFLOP; reads and writes (mk + kn + mn) 2 bytes
//   KeyWork("copy fp32 bf16 n=1024")               1,024 values read in 4 bytes and written in 2
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/units.h"
#include "plan/dtype.h"

namespace windtunnel {

struct KeyWork {
  explicit KeyWork(const std::string& key);

  // All words of the key that are not NAME=NUMBER. Kernels of one shape are of one kind. "gemm bf16 nn"
  std::string kind;
  std::map<std::string, int64_t> sizes;  // {{"m", 256}, …}
  DType dtype = DType::kFloat32;         // fp32 if the key names no type
  Flops flops;                           // of products; 0: not a product, or the key does not tell
  Bytes traffic;  // lower bound of what passes through memory or caches; 0: the key does not tell

  // Whether `other` is of the same kind with the same sizes, no smaller in any of them, and at least `factor`
  // times as large in one.
  bool IsSmallerThan(const KeyWork& other, double factor = 1.0) const;
};

}  // namespace windtunnel
