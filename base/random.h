// Deterministic random streams: the same (seed, stream) gives the same numbers on any machine, in any order
// of use and with any number of threads, since the generator is a counter passed through a hash (SplitMix64's
// finaliser, Steele, Lea and Flood, OOPSLA 2014). No standard-library distribution: those differ between
// implementations.
#pragma once

#include <cstdint>

namespace windtunnel {

// SplitMix64's output function: a bijection of 64-bit integers that passes BigCrush on a counter.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// 64 random bits as a double in [0, 1), a multiple of 2^-53.
constexpr double UnitInterval(uint64_t bits) {
  return static_cast<double>(static_cast<int64_t>(bits >> 11)) * 0x1.0p-53;
}

// A stream of numbers, identified by a seed and the stream's own number (a rank, a parameter, a replicate).
class RandomStream {
 public:
  constexpr RandomStream(uint64_t seed, uint64_t stream)
      : key_(Mix64(Mix64(seed) ^ (stream * 0xD1342543DE82EF95ULL))) {}

  // The n-th number of the stream, without advancing it.
  constexpr uint64_t At(uint64_t n) const { return Mix64(key_ + n * 0x9E3779B97F4A7C15ULL); }
  constexpr uint64_t Next() { return At(counter_++); }

  constexpr double Uniform() { return UnitInterval(Next()); }

  // Uniform in [0, bound), bound positive; multiply-shift, bias below bound / 2^64.
  constexpr uint64_t Below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(Next()) * bound) >> 64);
  }

  // Approximately standard normal: the sum of twelve uniforms less six (variance exactly 1, tails end at +-6).
  // Only additions, so the same bits everywhere; good enough for weights and inputs, not for tail statistics.
  constexpr double Normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace windtunnel
