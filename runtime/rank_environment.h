// What a launcher tells a rank through its environment: torchrun's contract, that of Open MPI's mpirun, or
// Slurm's.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace windtunnel {

struct RankEnvironment {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  // on this node
  std::string master_addr = "127.0.0.1";     // where rank 0 runs
  int master_port = 29500;
  std::string token;     // ranks of this job know it, and others need not
  std::string launcher;  // "torchrun", "mpirun", "srun": whose variables these are
  // The parent process is the launcher and outlives the ranks unless it is killed.
  bool launcher_stays = false;
  std::string world_size_name = "WORLD_SIZE";  // where the world size comes from, as errors say it
  std::string advice;  // added to the error when other ranks do not come; may be empty
  // Slurm's variables, but no step (srun) has started this process, as in a batch job's shell.
  bool is_of_no_step = false;
};

// What getenv answers: a variable's value, or null.
using Environment = std::function<const char*(const char* name)>;

// nullopt when no launcher has started this process. Of these launchers, the first whose
// variables are set counts:
//
// |                  | torchrun              | mpirun                         | srun
// | | rank             | RANK                  | OMPI_COMM_WORLD_RANK           | SLURM_PROCID
// | | world_size       | WORLD_SIZE            | OMPI_COMM_WORLD_SIZE (not 1)   | SLURM_NTASKS (more than 1;
// no interactive shell)     | | local_rank       | LOCAL_RANK            | OMPI_COMM_WORLD_LOCAL_RANK     |
// SLURM_LOCALID                                        | | local_world_size | LOCAL_WORLD_SIZE      |
// OMPI_COMM_WORLD_LOCAL_SIZE     | that of SLURM_[STEP_]TASKS_PER_NODE at SLURM_NODEID  | | master_addr
// | MASTER_ADDR           | MASTER_ADDR, on one node local | MASTER_ADDR, or the first of
// SLURM_[STEP_]NODELIST   | | master_port      | MASTER_PORT, or 29500 | MASTER_PORT, or by the job     |
// MASTER_PORT, or 15000 + the job id's last four digits| | token            | TORCHELASTIC_RUN_ID   | the
// job's PMIx name            | SLURM_JOB_ID.SLURM_STEP_ID                           |
//
// For each further step of a job (SLURM_STEP_ID) Slurm's port is 101 more, again from 15000 on after 24999:
// steps may run at once. Local values that are not set are those of a single node. WINDTUNNEL_JOB_TOKEN goes
// before any other token. Under torchrun itself (TORCHELASTIC_USE_AGENT_STORE) the port is the one after
// MASTER_PORT, which its agent keeps.
// launcher_stays is true for torchrun itself (TORCHELASTIC_RUN_ID) and mpirun. It is false for a
// user who sets RANK in a shell, since the processes may outlive the shell, and for Slurm, which
// itself ends what it has started.
// Errors: InvalidInput ("WORLD_SIZE is 'x', expected a positive integer").
Result<std::optional<RankEnvironment>> ReadRankEnvironment(const Environment& environment);
// Of this process.
Result<std::optional<RankEnvironment>> ReadRankEnvironment();

// GLOO_SOCKET_IFNAME: the interfaces of this machine for others to connect to; empty when it is not set.
std::string GlooInterfaces();

// The first host of a list as Slurm writes it: "gpu[07-12,20],login1" is "gpu07".
std::string FirstHostOf(const std::string& node_list);

}  // namespace windtunnel
