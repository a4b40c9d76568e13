// MPI in this process: started once, used by one thread at a time, ended once.
//
// Threads of a rank (the computing one, those of its groups) take turns: every call of MPI is made under one
// lock and none of them blocks, so MPI_THREAD_SERIALIZED is enough. A thread that tests one request makes
// progress on all requests of the process (docs/decisions/0016).
#pragma once

#include <mpi/mpi.h>

#include <chrono>
#include <mutex>
#include <string>

#include "base/result.h"
#include "runtime/store.h"

namespace windtunnel {

// Starts MPI unless it is running, which takes until all processes of the job have begun. Ignores SIGPIPE for
// the process from then on, unless it has a handler. Failed: no MPI_THREAD_SERIALIZED, ended already, or not
// all have come within `timeout`; MPI is given up then, and the thread that waits for them stays.
Status StartMpi(std::chrono::milliseconds timeout);
// Ends MPI if it is running. Every rank of the job (not of a group) calls it once, when no communicator is
// left. The ranks wait for each other, up to `timeout`. If one of them has failed or does not come, they
// leave MPI as it is, since MPI itself would wait for ever.
void EndMpi(Store& store, int rank, int ranks, std::chrono::milliseconds timeout);

// The library's lock.
std::mutex& MpiMutex();

// After a failed operator no call of MPI is made any more in this process, since MPI may still write to that
// operator's buffers when it is called.
void GiveUpMpi();
bool MpiIsGivenUp();

// "Open MPI v4.1.4"; does not start MPI.
std::string MpiVersion();

// The text of an error code.
std::string MpiMessage(int code);

}  // namespace windtunnel
