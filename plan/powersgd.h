// PowerSGD (Vogels et al. 2019, arXiv 1905.13727), as PyTorch's powerSGD_hook runs it in DDP's reducer. The
// sum over ranks of a weight's gradient M[n,m] is approximated by P Q', where P[n,r] and Q[m,r] have few
// columns:
//
//   M += error; error = M                                      Copy (error feedback)
//   Q = orthonormal columns of the last step's Q; P = M Q      Orthonormalize, Gemm
//   all-reduce P
//   P = its orthonormal columns; Q = M' P                      Orthonormalize, Gemm
//   all-reduce Q
//   M = P Q'; error -= M / ranks                               Gemm, Copy
//
// So M P P' of the summed M is what is left of it: its part within r directions, which a step's Q hands on to
// the next one's. Gradients that it would not shorten much (biases, norms) are all-reduced as they are.
#pragma once

#include <string>
#include <vector>

#include "plan/collectives.h"
#include "plan/plan.h"

namespace windtunnel {

// The columns of the matrices that stand for the gradient of `parameter`, which is a matrix of shape[0] rows;
// 0: it is not compressed.
int64_t CompressedRank(const PowerSgdSpec& spec, const Parameter& parameter);

// Whether the ranks compress as PyTorch's hook does: it takes gradients that are not compressed out of the
// bucket and puts them back one by one, and copies what it adds errors to.
bool CompressesAsPytorch(const Scenario& scenario);

// The gradients of one bucket, summed over the ranks of `collectives` in the three calls below. They may be
// interleaved with those of other buckets, but all ranks must make them in the same order.
class CompressedBucket {
 public:
  // `whole`: the bucket; `slots`: where in it the gradient of each of `parameters` is. Those that are
  // compressed come first.
  CompressedBucket(Role& role, const PowerSgdSpec& spec, CollectiveStream& collectives, std::string name,
                   Slice whole, const std::vector<int>& parameters, const std::vector<Slice>& slots,
                   bool as_pytorch);

  // Allocates and initialises what is kept from step to step. Once.
  void Allocate(ProgramBuilder& b);

  void ReduceLeft(ProgramBuilder& b);   // adds what was lost; sums P, and gradients that are not compressed
  void ReduceRight(ProgramBuilder& b);  // sums Q
  // The bucket is then, or once the next computation begins, the sum.
  void Decompress(ProgramBuilder& b);

 private:
  struct Matrix {
    int parameter = -1;
    std::string name;
    int64_t rows = 0, columns = 0, rank = 0;
    Slice gradient, left, right;  // M, P, Q
  };
  Gemm Product(int64_t m, int64_t n, int64_t k) const;
  void ReduceRest(ProgramBuilder& b);
  std::vector<int> Compressed() const;

  Role& role_;
  CollectiveStream& collectives_;
  const std::string name_;
  const DType dtype_;
  const bool as_pytorch_;
  std::vector<Matrix> matrices_;
  std::vector<int> rest_parameters_;
  std::vector<Slice> rest_slots_;
  Slice gradients_, rest_;  // of the bucket: what is compressed, and what is not
  Slice left_, right_;      // all P, all Q
  Slice error_;             // no buffer: without error feedback
  OpIndex reduced_ = -1;    // the last all-reduce under way
};

}  // namespace windtunnel
