// Quantities with units. A Duration is a whole number of picoseconds, Bytes a whole number of bytes; Flops,
// FlopRate and Bandwidth are doubles. Named factories make values, and division by a unit gives a plain
// number:
//
//   Duration step = Milliseconds(12.5);
//   double in_seconds = step / Seconds(1);
//   Duration transfer = MiB(25) / GBps(2.0);
//
// GB is 10^9 bytes, GiB is 2^30. MulDiv goes through 128 bits, since bytes times picoseconds overflow 64 bits
// already at 9.2 MB for one second. What has a rate in it goes through doubles, and is rounded to a
// picosecond.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

#include "base/ceil_divide.h"

namespace windtunnel {

// A length of (virtual or real) time, in picoseconds. Range: about +-106 days; values beyond saturate.
class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration FromPicoseconds(int64_t ps) { return Duration(ps); }
  constexpr int64_t picoseconds() const { return ps_; }
  static constexpr Duration Max() { return Duration(std::numeric_limits<int64_t>::max()); }

  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration other) const {
    int64_t sum = 0;
    return __builtin_add_overflow(ps_, other.ps_, &sum) ? End(other.ps_ < 0) : Duration(sum);
  }
  constexpr Duration operator-(Duration other) const {
    int64_t difference = 0;
    return __builtin_sub_overflow(ps_, other.ps_, &difference) ? End(other.ps_ > 0) : Duration(difference);
  }
  constexpr Duration operator-() const { return Duration() - *this; }
  constexpr Duration& operator+=(Duration other) { return *this = *this + other; }
  constexpr Duration& operator-=(Duration other) { return *this = *this - other; }
  constexpr Duration operator*(int64_t factor) const {
    int64_t product = 0;
    return __builtin_mul_overflow(ps_, factor, &product) ? End((ps_ < 0) != (factor < 0)) : Duration(product);
  }
  constexpr Duration operator/(int64_t divisor) const { return Duration(ps_ / divisor); }
  constexpr double operator/(Duration unit) const {
    return static_cast<double>(ps_) / static_cast<double>(unit.ps_);
  }
  // Rounded to the nearest picosecond, halves away from zero.
  constexpr Duration Scaled(double factor) const {
    const double scaled = static_cast<double>(ps_) * factor;
    if (!(scaled > -kEnd && scaled < kEnd)) return End(scaled < 0);
    return Duration(static_cast<int64_t>(scaled + (scaled < 0 ? -0.5 : 0.5)));
  }

 private:
  static constexpr double kEnd = 9223372036854775807.0;  // 2^63
  static constexpr Duration End(bool is_negative) {
    return Duration(is_negative ? -std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::max());
  }
  explicit constexpr Duration(int64_t ps) : ps_(ps) {}
  int64_t ps_ = 0;
};

constexpr Duration Picoseconds(int64_t n) { return Duration::FromPicoseconds(n); }
constexpr Duration Nanoseconds(double n) { return Picoseconds(1'000).Scaled(n); }
constexpr Duration Microseconds(double n) { return Picoseconds(1'000'000).Scaled(n); }
constexpr Duration Milliseconds(double n) { return Picoseconds(1'000'000'000).Scaled(n); }
constexpr Duration Seconds(double n) { return Picoseconds(1'000'000'000'000).Scaled(n); }
constexpr double ToSeconds(Duration d) { return d / Picoseconds(1'000'000'000'000); }
// The share that `part` has in `whole`; 0 if there is no whole.
constexpr double ShareOf(Duration part, Duration whole) { return whole > Duration() ? part / whole : 0.0; }

// An amount of memory or traffic, in bytes.
class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(int64_t count) : count_(count) {}
  static constexpr Bytes Max() { return Bytes(std::numeric_limits<int64_t>::max()); }
  constexpr int64_t count() const { return count_; }

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes other) const { return Bytes(count_ + other.count_); }
  constexpr Bytes operator-(Bytes other) const { return Bytes(count_ - other.count_); }
  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count_ -= other.count_;
    return *this;
  }
  constexpr Bytes operator*(int64_t factor) const { return Bytes(count_ * factor); }
  constexpr Bytes operator/(int64_t divisor) const { return Bytes(count_ / divisor); }
  constexpr double operator/(Bytes unit) const {
    return static_cast<double>(count_) / static_cast<double>(unit.count_);
  }
  // The smallest multiple of `multiple` (positive) that is not less than this.
  constexpr Bytes RoundedUpTo(Bytes multiple) const {
    return Bytes(CeilDivide(count_, multiple.count_) * multiple.count_);
  }

 private:
  int64_t count_ = 0;
};

constexpr Bytes KiB(int64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(int64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(int64_t n) { return Bytes(n << 30); }

// Bytes per second.
class Bandwidth {
 public:
  constexpr Bandwidth() = default;
  static constexpr Bandwidth FromBytesPerSecond(double rate) { return Bandwidth(rate); }
  constexpr double bytes_per_second() const { return rate_; }
  constexpr auto operator<=>(const Bandwidth&) const = default;
  constexpr Bandwidth operator*(double factor) const { return Bandwidth(rate_ * factor); }
  constexpr double operator/(Bandwidth other) const { return rate_ / other.rate_; }

 private:
  explicit constexpr Bandwidth(double rate) : rate_(rate) {}
  double rate_ = 0;
};
constexpr Bandwidth GBps(double n) { return Bandwidth::FromBytesPerSecond(n * 1e9); }

// Floating-point operations; an amount, not a rate.
class Flops {
 public:
  constexpr Flops() = default;
  explicit constexpr Flops(double count) : count_(count) {}
  constexpr double count() const { return count_; }
  constexpr auto operator<=>(const Flops&) const = default;
  constexpr Flops operator+(Flops other) const { return Flops(count_ + other.count_); }
  constexpr Flops& operator+=(Flops other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Flops operator*(double factor) const { return Flops(count_ * factor); }

 private:
  double count_ = 0;
};

// Floating-point operations per second.
class FlopRate {
 public:
  constexpr FlopRate() = default;
  static constexpr FlopRate FromFlopsPerSecond(double rate) { return FlopRate(rate); }
  constexpr double flops_per_second() const { return rate_; }
  constexpr auto operator<=>(const FlopRate&) const = default;
  constexpr FlopRate operator*(double factor) const { return FlopRate(rate_ * factor); }

 private:
  explicit constexpr FlopRate(double rate) : rate_(rate) {}
  double rate_ = 0;
};
constexpr FlopRate Tflops(double n) { return FlopRate::FromFlopsPerSecond(n * 1e12); }

constexpr Duration operator/(Bytes bytes, Bandwidth rate) {
  return Seconds(static_cast<double>(bytes.count()) / rate.bytes_per_second());
}
constexpr Bandwidth operator/(Bytes bytes, Duration time) {
  return Bandwidth::FromBytesPerSecond(static_cast<double>(bytes.count()) / ToSeconds(time));
}
constexpr Duration operator/(Flops flops, FlopRate rate) {
  return Seconds(flops.count() / rate.flops_per_second());
}

// value * numerator / denominator through 128 bits, rounded to nearest and saturated at 64 bits. REQUIRES:
// none is negative, and the denominator is positive.
constexpr int64_t MulDiv(int64_t value, int64_t numerator, int64_t denominator) {
  __extension__ using Wide = __int128;
  const Wide product = static_cast<Wide>(value) * numerator;
  const Wide quotient = (product + denominator / 2) / denominator;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return quotient > kMost ? kMost : static_cast<int64_t>(quotient);
}

}  // namespace windtunnel
