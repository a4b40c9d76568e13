#include "runtime/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "runtime/cores.h"
#include "runtime/signal_pipe.h"
#include "runtime/socket.h"

extern char** environ;

namespace windtunnel {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTick{100};
constexpr milliseconds kPollWithoutPidfd{20};
// The status of a process that something else has reaped. It means neither exited nor killed.
constexpr int kUnknownStatus = 0x7f;

std::atomic<bool> is_to_stop{false};

// Takes SIGTSTP over (the terminal's Ctrl-Z, which does not reach ranks: their process groups are their own)
// for as long as it lives.
class StopRequests {
 public:
  StopRequests() {
    sigaction(SIGTSTP, nullptr, &before_);
    Take();
  }
  ~StopRequests() {
    sigaction(SIGTSTP, &before_, nullptr);
    if (Came()) raise(SIGTSTP);
  }

  bool Came() { return is_to_stop.exchange(false); }
  // Stops this process until it is continued, or not at all where nobody could continue it
  // (an orphaned process group).
  void Obey() {
    sigaction(SIGTSTP, &before_, nullptr);
    raise(SIGTSTP);
    Take();
  }

 private:
  void Take() const {
    struct sigaction action = {};
    action.sa_handler = [](int) { is_to_stop = true; };
    action.sa_flags = SA_RESTART;
    if (before_.sa_handler != SIG_IGN) sigaction(SIGTSTP, &action, nullptr);
  }
  struct sigaction before_ = {};
};

struct RankProcess {
  pid_t pid = -1;
  FileDescriptor pidfd;       // readable once the process has ended; not valid on kernels before 5.3
  std::optional<int> status;  // as waitpid gives it; set once reaped

  bool running() const { return pid > 0 && !status; }
  bool failed() const { return status && *status != 0; }
  bool killed() const { return status && WIFSIGNALED(*status); }
};

// Everything that the child needs, made before vfork: after it, the child may not even allocate.
struct Command {
  std::vector<std::string> strings;
  std::vector<char*> arguments, environment;
  cpu_set_t core;
  bool pin = false;
};

// A rank's number in the job. `local`: on this node.
int GlobalRank(const LaunchOptions& options, int local) { return options.node * options.ranks + local; }

std::map<std::string, std::string> ContractVariables(const LaunchOptions& options, int local) {
  const int rank = GlobalRank(options, local);
  const std::string size = std::to_string(options.ranks * options.nodes), number = std::to_string(rank);
  std::map<std::string, std::string> variables = {
      {"RANK", number},
      {"LOCAL_RANK", std::to_string(local)},
      {"ROLE_RANK", number},
      {"WORLD_SIZE", size},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"ROLE_WORLD_SIZE", size},
      {"GROUP_RANK", std::to_string(options.node)},
      {"GROUP_WORLD_SIZE", std::to_string(options.nodes)},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", options.master_addr},
      {"MASTER_PORT", std::to_string(options.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
  };
  for (const char* threads : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    if (options.pin || getenv(threads) == nullptr) variables.insert_or_assign(threads, std::string("1"));
  for (const auto& [name, value] : options.environment) variables[name] = value;
  if (options.environment_of)
    for (const auto& [name, value] : options.environment_of(rank)) variables[name] = value;
  return variables;
}

Command MakeCommand(const LaunchOptions& options, const std::optional<CoreClaims>& cores, int local) {
  Command command;
  const std::map<std::string, std::string> variables = ContractVariables(options, local);
  command.strings = options.argv;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string text = *inherited;
    if (variables.count(text.substr(0, text.find('='))) == 0) command.strings.push_back(text);
  }
  for (const auto& [name, value] : variables) command.strings.push_back(name + "=" + value);
  for (size_t i = 0; i < command.strings.size(); ++i)
    (i < options.argv.size() ? command.arguments : command.environment).push_back(command.strings[i].data());
  command.arguments.push_back(nullptr);
  command.environment.push_back(nullptr);
  const int rank = options.first_core + local;
  command.pin = options.pin && (cores ? cores->CoreOf(rank, command.core) : CoreOfRank(rank, command.core));
  return command;
}

// The child, from vfork to exec. `mask`: its signal mask. Signals that the launcher handles get their default
// action back. A successful exec closes `report`; otherwise errno is written to it.
[[noreturn]] void BecomeRank(const Command& command, pid_t launcher, const sigset_t& mask, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  setpgid(0, 0);
  if (command.pin) sched_setaffinity(0, sizeof command.core, &command.core);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    struct sigaction now = {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) signal(number, SIG_DFL);
  }
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execve(command.arguments[0], command.arguments.data(), command.environment.data());
  const int error = errno;
  [[maybe_unused]] ssize_t written = write(report, &error, sizeof error);
  _exit(127);
}

Result<RankProcess> Start(const LaunchOptions& options, const std::optional<CoreClaims>& cores, int local) {
  const Command command = MakeCommand(options, cores, local);
  const int rank = GlobalRank(options, local);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("cannot start rank {}: {}", rank, strerror(errno));
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const pid_t launcher = getpid();
  RankProcess process;
  // Not fork, which runs the handlers that libraries have registered: OpenBLAS's joins its threads, and
  // never returns where they cannot get memory. The child shares this process's memory until its exec, so no
  // signal may run a handler there.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  process.pid = vfork();
  if (process.pid == 0) BecomeRank(command, launcher, before, write_end.get());
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (process.pid < 0) return Failed("cannot start rank {}: {}", rank, strerror(fork_error));
  write_end = FileDescriptor();
  int error = 0;
  if (read(read_end.get(), &error, sizeof error) == sizeof error) {
    waitpid(process.pid, nullptr, 0);
    return Failed("cannot start rank {}: '{}': {}", rank, options.argv[0], strerror(error));
  }
  process.pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  return process;
}

// The ranks of one job, from their start until all are reaped.
class RunningRanks {
 public:
  RunningRanks(const LaunchOptions& options, SignalPipe& signals) : options_(options), signals_(signals) {
    // Launchers of several nodes, which may be on one machine, would claim from each other.
    if (options.pin && options.nodes == 1) cores_.emplace(options.first_core, options.ranks);
  }
  // Where Run has thrown, ranks are left.
  ~RunningRanks() {
    Signal(SIGKILL);
    for (const RankProcess& rank : ranks_)
      if (rank.running()) waitpid(rank.pid, nullptr, 0);
  }

  Status Run() {
    interrupt_ = signals_.Next();
    for (int rank = 0; rank < options_.ranks && interrupt_ == 0; ++rank) {
      Result<RankProcess> process = Start(options_, cores_, rank);
      if (!process) {
        EndAll();
        return tl::unexpected(std::move(process).error());
      }
      ranks_.push_back(*std::move(process));
      interrupt_ = signals_.Next();
    }
    while (AnyRunning() && first_ < 0 && interrupt_ == 0 && reason_to_end_.empty())
      Watch(Clock::now() + kTick);
    if (interrupt_ != 0) return Interrupted();
    if (!reason_to_end_.empty()) {
      EndAll();
      if (interrupt_ != 0) return Interrupted();
      return Failed("{}", reason_to_end_);
    }
    if (first_ < 0) return Ok();
    const auto grace_end = Clock::now() + options_.grace;
    while (AnyRunning() && Clock::now() < grace_end && interrupt_ == 0) Watch(grace_end);
    if (interrupt_ != 0) return Interrupted();
    const int culprit = Culprit();
    if (options_.failed) options_.failed(GlobalRank(options_, culprit), *ranks_[culprit].status);
    EndAll();
    // Whoever wants the job to end does not want it to begin again.
    if (interrupt_ != 0) return Interrupted();
    return Failed("{}", DescribeDeath(culprit));
  }

 private:
  bool AnyRunning() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.running(); });
  }

  // Sleeps until a rank ends, a signal comes or `until`, and takes note.
  void Watch(Clock::time_point until) {
    std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
    for (const RankProcess& rank : ranks_) {
      if (!rank.running()) continue;
      if (!rank.pidfd.valid()) until = std::min(until, Clock::now() + kPollWithoutPidfd);
      polled.push_back({rank.pidfd.get(), POLLIN, 0});
    }
    poll(polled.data(), polled.size(), MillisecondsUntil(until));
    if (const int signal = signals_.Next(); signal != 0) interrupt_ = signal;
    if (stops_.Came()) Suspend();
    Reap();
    if (Clock::now() >= next_tick_) {
      if (options_.tick) options_.tick();
      // The first reason stands: this runs while the ranks are being ended, too.
      if (options_.reason_to_end && reason_to_end_.empty()) reason_to_end_ = options_.reason_to_end();
      next_tick_ = Clock::now() + kTick;
    }
  }

  void Reap() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].running()) ranks_[rank].status = StatusOfEnded(ranks_[rank].pid);
      if (ranks_[rank].failed() && first_ < 0) first_ = static_cast<int>(rank);
    }
  }

  // Reaps the process; nullopt while it runs.
  static std::optional<int> StatusOfEnded(pid_t pid) {
    siginfo_t ended = {};
    if (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0)
      return errno == ECHILD ? std::optional<int>(kUnknownStatus) : std::nullopt;
    if (ended.si_pid != pid) return std::nullopt;
    kill(-pid, SIGKILL);  // ends what it has left running, while its number is still its own
    int status = kUnknownStatus;
    waitpid(pid, &status, 0);
    return status;
  }

  // Of the ranks that have died by now, one that was killed, since its peers then complain that it
  // is gone. Otherwise the first.
  int Culprit() const {
    if (ranks_[first_].killed()) return first_;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].killed()) return static_cast<int>(rank);
    return first_;
  }

  // Each rank leads a process group, so whatever it has started ends with it.
  void Signal(int signal) {
    for (const RankProcess& rank : ranks_)
      if (rank.running()) kill(-rank.pid, signal);
  }

  // Stops this process with its ranks, and continues it before them, so that it has answered by then
  // what they have asked of it.
  void Suspend() {
    Signal(SIGSTOP);
    stops_.Obey();
    std::this_thread::sleep_for(kTick);
    Signal(SIGCONT);
  }

  Status Interrupted() {
    if (options_.interrupted) options_.interrupted(interrupt_);
    Signal(interrupt_);
    EndAll();
    return Failed("{}; all ranks have ended", DescribeInterrupt(interrupt_));
  }

  void EndAll() {
    Signal(SIGTERM);
    const auto deadline = Clock::now() + options_.patience;
    while (AnyRunning() && Clock::now() < deadline) Watch(deadline);
    Signal(SIGKILL);
    while (AnyRunning()) Watch(Clock::now() + kTick);
  }

  static std::string DescribeStatus(int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == kMemoryExhausted)
      return "ran out of the machine's memory";
    if (WIFEXITED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
    if (!WIFSIGNALED(status)) return "has ended, nobody knows how: something else has waited for it";
    const int signal = WTERMSIG(status);
    return fmt::format("was killed by signal {} ({}{})", signal, strsignal(signal),
                       signal == SIGKILL ? ", as where memory runs out" : "");
  }

  std::string DescribeDeath(int local) const {
    const int rank = GlobalRank(options_, local);
    const std::string where = options_.last_op ? options_.last_op(rank) : "";
    const std::string said = options_.describe_error ? options_.describe_error(rank) : "";
    const std::string name = options_.name ? options_.name(rank) : fmt::format("rank {}", rank);
    std::string text = name + " " + DescribeStatus(*ranks_[local].status);
    if (!where.empty()) text += "; its last operator was " + where;
    if (!said.empty()) text += ": " + said;
    return text;
  }

  const LaunchOptions& options_;
  std::optional<CoreClaims> cores_;
  SignalPipe& signals_;
  StopRequests stops_;
  std::vector<RankProcess> ranks_;
  int first_ = -1;     // the first rank seen to have failed
  int interrupt_ = 0;  // the signal that this process got
  std::string reason_to_end_;
  Clock::time_point next_tick_ = Clock::now();
};

}  // namespace

Status LaunchRanks(const LaunchOptions& options) {
  if (options.ranks < 1 || options.argv.empty()) return Failed("nothing to launch: {} ranks", options.ranks);
  if (options.signals != nullptr) return RunningRanks(options, *options.signals).Run();
  WT_ASSIGN_OR_RETURN(const auto signals, SignalPipe::Make());
  return RunningRanks(options, *signals).Run();
}

}  // namespace windtunnel
