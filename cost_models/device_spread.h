// Devices of one type are not equally fast: chip quality sets the clock that the power limit allows. A step
// waits for the slowest of its devices, while kernels are measured on some one device.
//
//   slowest of n = 1 + s E[largest of n]        E[largest of n] ~ quantile((n - 3/8) / (n + 1/4))        (Blom 1958)
//
// with s the standard deviation of the times that kernels take on different devices, and the quantile that of
// the standard normal distribution. s = 0.015: one device 1, 8 devices 1.0215 (quantile 1.434), 1,024 devices
// 1.0485.
#pragma once

#include <cstdint>

namespace windtunnel {

// How much longer the slowest of `devices` takes than the average one. REQUIRES: devices >= 1, spread >= 0.
double SlowestOf(int64_t devices, double spread);

}  // namespace windtunnel
