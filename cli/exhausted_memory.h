// How a process ends if a library's thread (Gloo's) runs out of memory, where nothing can catch the
// exception.
#pragma once

namespace windtunnel {

// After this call such a process ends with exit status 1 and a line on standard error. A launched rank ends
// with kMemoryExhausted (runtime/launcher.h) and no line; its launcher reports it. Other uncaught exceptions
// end the process as before.
void EndWhereMemoryIsExhausted(bool is_launched);

}  // namespace windtunnel
