#include "base/normal.h"

#include <cmath>

#include "base/check.h"

namespace windtunnel {
namespace {

template <int kTerms>
double Polynomial(const double (&coefficients)[kTerms], double x) {
  double sum = 0;
  for (double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

// The quantile outside the central region. `q` is the probability of the tail.
double TailQuantile(double q) {
  static constexpr double kNumerator[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                                          -2.400758277161838e+00, -2.549732539343734e+00,
                                          4.374664141464968e+00,  2.938163982698783e+00};
  static constexpr double kDenominator[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                            2.445134137142996e+00, 3.754408661907416e+00, 1};
  const double r = std::sqrt(-2 * NaturalLog(q));
  return Polynomial(kNumerator, r) / Polynomial(kDenominator, r);
}

double CentralQuantile(double p) {
  static constexpr double kNumerator[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                          -2.759285104469687e+02, 1.383577518672690e+02,
                                          -3.066479806614716e+01, 2.506628277459239e+00};
  static constexpr double kDenominator[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                            -1.556989798598866e+02, 6.680131188771972e+01,
                                            -1.328068155288572e+01, 1};
  const double q = p - 0.5, r = q * q;
  return q * Polynomial(kNumerator, r) / Polynomial(kDenominator, r);
}

}  // namespace

// x = m 2^e with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh((m - 1) / (m + 1)) as a series.
double NaturalLog(double x) {
  WT_CHECK(x > 0);
  constexpr double kLog2 = 0.693147180559945309417;
  constexpr double kSquareRootOfHalf = 0.70710678118654752440;
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSquareRootOfHalf) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + exponent * kLog2;
}

// 1/n is a sum of powers of two 2^-k; u to each of them is k square roots of u.
double NthRoot(double u, int64_t n) {
  WT_CHECK(u > 0 && u <= 1 && n >= 1);
  if (n == 1) return u;
  double result = 1, root = u;
  int64_t remainder = 1;  // of the long division 1 / n in base two
  for (int bit = 0; bit < 64 && remainder != 0; ++bit) {
    root = std::sqrt(root);
    remainder *= 2;
    if (remainder >= n) {
      remainder -= n;
      result *= root;
    }
  }
  return result;
}

double NormalQuantile(double p) {
  WT_CHECK(p > 0 && p < 1);
  constexpr double kTail = 0.02425;
  if (p < kTail) return TailQuantile(p);
  if (p > 1 - kTail) return -TailQuantile(1 - p);
  return CentralQuantile(p);
}

LargestOf LargestNormal(int64_t n) {
  constexpr int kSlices = 4096;
  double sum = 0, squares = 0;
  for (int i = 0; i < kSlices; ++i) {
    const double z = NormalQuantile(NthRoot((i + 0.5) / kSlices, n));
    sum += z;
    squares += z * z;
  }
  const double mean = sum / kSlices;
  return {mean, squares / kSlices - mean * mean};
}

}  // namespace windtunnel
