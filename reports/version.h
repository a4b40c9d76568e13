// The project's version, as `windtunnel --version` and the context block of every result give it.
#pragma once

namespace windtunnel {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace windtunnel
