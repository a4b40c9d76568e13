// A stream of a fake device, into which the fake NCCL enqueues its work.
#pragma once

namespace windtunnel {

struct FakeStream {
  void (*enqueue)(FakeStream* stream, void (*work)(void*), void* argument) = nullptr;
};

}  // namespace windtunnel
