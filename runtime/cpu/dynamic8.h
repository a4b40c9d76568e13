// Blocks of moments in 8 bits (runtime/dynamic8.h) on the CPU.
#pragma once

#include <cstdint>

#include "runtime/dynamic8.h"

namespace windtunnel::cpu {

// Numbers of one element, of which there are `count`, at most dynamic8::kBlock. `second`: without sign.
void UnpackMoments(bool second, const uint8_t* element, int64_t count, float* numbers);
// Bytes behind the last number stay.
void PackMoments(bool second, const float* numbers, int64_t count, uint8_t* element);

}  // namespace windtunnel::cpu
