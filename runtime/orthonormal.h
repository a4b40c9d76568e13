// What Orthonormalize does with columns that depend on others. It is the same on every device.
#pragma once

#include <cstdint>

namespace windtunnel {

// A column depends on those before it if at most this share of its length, which is a number, is left without
// them. A random column then takes its place, so that a product with it may find what no column has so far.
inline constexpr float kDependentShare = 1e-5f;

// An element of that column: 1 or -1, the same ones always (a hash of its place).
constexpr float ReplacementAt(int64_t row, int64_t column) {
  uint32_t bits = static_cast<uint32_t>(row) * 0x9E3779B1u + static_cast<uint32_t>(column) * 0x85EBCA77u;
  bits = (bits ^ (bits >> 15)) * 0x2C1B3C6Du;
  bits = (bits ^ (bits >> 12)) * 0x297A2D39u;
  return ((bits >> 15) & 1u) != 0 ? 1.0f : -1.0f;
}

}  // namespace windtunnel
