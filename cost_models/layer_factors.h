// How much longer than predicted layers of a shape take, beyond a framework's other residual factors. cuBLAS
// has better kernels for some products than for others, and a table of a few factors cannot say for which.
// The factors are known for the shapes of measured steps, and estimated for other shapes by their distance
// (decision 0036):
//
//   factor(s) = 1 + sum over known shapes k of weight_k C(s, k),   so that it is the known factor at each k,
//   C(s, k)   = product over micro-batch, sequence, hidden size and tensor ranks of (the smaller one over the larger one)^1.5
//
// (Kriging without noise, of an Ornstein-Uhlenbeck process over the four logarithms. Square roots are the
// same on every machine.) C falls to 0.35 with each doubling; far from all known shapes the factor is 1.
//
//   LayerFactors factors({{{.micro = 4, .seq_len = 1024, .hidden = 2048, .tensor = 2}, 0.9}});
//   factors.At({.micro = 8, .seq_len = 1024, .hidden = 2048, .tensor = 2});  // 0.965
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace windtunnel {

// The part of a layer that one rank computes, as far as products' rates depend on it.
struct LayerShape {
  int64_t micro = 1;    // sequences of a micro-batch (samples of an MLP)
  int64_t seq_len = 1;  // tokens of a sequence on each context rank; 1 of an MLP
  int64_t hidden = 1;   // the widest layer of an MLP
  int64_t tensor = 1;   // tensor ranks
  auto operator<=>(const LayerShape&) const = default;
};
LayerShape LayerShapeOf(const Scenario& scenario);

// The correlation of two shapes' factors: C above, in (0, 1]; 1 for equal shapes.
double Correlation(const LayerShape& a, const LayerShape& b);

class LayerFactors {
 public:
  static constexpr double kLeast = 0.01, kMost = 100;

  struct Known {
    LayerShape shape;
    double factor = 1;
  };

  LayerFactors() = default;
  // REQUIRES: sizes of shapes are positive, factors within [kLeast, kMost].
  explicit LayerFactors(std::vector<Known> known);

  // Within [kLeast, kMost].
  double At(const LayerShape& shape) const;
  const std::vector<Known>& known() const { return known_; }
  bool empty() const { return known_.empty(); }

 private:
  std::vector<Known> known_;
  std::vector<double> weights_;  // of each
};

}  // namespace windtunnel
