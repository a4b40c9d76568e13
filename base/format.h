// Quantities as people read them, always with a unit and three significant digits (four for binary units from
// 1,000 on): "12.3 ms", "25.0 MiB", "1.25 GB/s". And numbers of things: "2 ranks".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace windtunnel {

// The unit (ps, ns, us, ms, s) that leaves one to three digits before the point.
std::string FormatDuration(Duration duration);
// The same for columns of numbers: "0" instead of "0 ps".
std::string FormatTime(Duration duration);
// Binary units: B, KiB, MiB, GiB, TiB, PiB.
std::string FormatBytes(Bytes bytes);
// Decimal units: B/s, KB/s, MB/s, GB/s, TB/s.
std::string FormatBandwidth(Bandwidth bandwidth);
// Decimal units: FLOP/s, KFLOP/s, MFLOP/s, GFLOP/s, TFLOP/s, PFLOP/s.
std::string FormatFlopRate(FlopRate rate);
// Returns `number`, or if it is a NaN, one that is printed as "nan". The sign bit of a NaN depends on the
// instruction that made it, and would print "-nan".
double UnsignedNan(double number);
// A plain count: 987, 12.3K, 124M, 1.50B.
std::string FormatCount(double count);
// The shape of a tensor: "[50257 x 768]"; "[]" of a scalar.
std::string FormatShape(const std::vector<int64_t>& shape);
// "rank" for 1, "ranks" for any other count; nouns in "s" and "ch" get "es".
std::string NounFor(int64_t count, std::string_view noun);
// "1 rank", "2 ranks", "0 batches".
std::string Counted(int64_t count, std::string_view noun);
// A share in per cent with one decimal: "3.1 %".
std::string FormatPercent(double fraction);
// A signed share in per cent with one decimal: "+3.1 %".
std::string FormatSignedPercent(double fraction);

}  // namespace windtunnel
