// A stream of a device that is none, as the fake NCCL puts its work into it.
#pragma once

namespace windtunnel {

struct FakeStream {
  void (*enqueue)(FakeStream* stream, void (*work)(void*), void* argument) = nullptr;
};

}  // namespace windtunnel
