// What a cost key (CostKey of plan/op.h) says of its kernel's work, so that a measured time can be read as a rate.
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

  // All that is no NAME=NUMBER: kernels of one shape are of one kind. "gemm bf16 nn"
  std::string kind;
  std::map<std::string, int64_t> sizes;  // {{"m", 256}, …}
  DType dtype = DType::kFloat32;         // fp32 where the key names none
  Flops flops;                           // of products; 0: no product, or nothing that the key tells
  Bytes traffic;  // at least what passes through memory or caches; 0: the key does not tell

  // Whether `other` is of the same kind and no smaller in any of the sizes, which are the same ones, and `factor` times as large in one.
  bool IsSmallerThan(const KeyWork& other, double factor = 1.0) const;
};

}  // namespace windtunnel
