// What becomes of a process in which a thread of a library (Gloo's) finds no memory, where nobody can take an error.
#pragma once

namespace windtunnel {

// From now on such a process ends with exit status 1 and a line on standard error; a rank that was launched with kMemoryExhausted
// (runtime/launcher.h) alone, which its launcher says in words. Other exceptions that nobody takes end it as before.
void EndWhereMemoryIsExhausted(bool is_launched);

}  // namespace windtunnel
