#include "runtime/mpi_host.h"

#include <errno.h>
#include <fcntl.h>
#include <pmix.h>
#include <pmix_server.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "base/errors_of.h"
#include "base/host_name.h"
#include "base/temporary_directory.h"
#include "base/write_file.h"
#include "runtime/store.h"

namespace windtunnel {
namespace {

constexpr char kNamespace[] = "windtunnel";
constexpr std::chrono::milliseconds kExchangeTime{60'000};

// Job information as PMIx takes it: an array of tagged values, of which it makes copies.
class Information {
 public:
  void Number(const char* key, uint32_t value) { Put(key, &value, PMIX_UINT32); }
  void Short(const char* key, int value) {
    const auto number = static_cast<uint16_t>(value);
    Put(key, &number, PMIX_UINT16);
  }
  void Rank(const char* key, int value) {
    const auto rank = static_cast<pmix_rank_t>(value);
    Put(key, &rank, PMIX_PROC_RANK);
  }
  void Text(const char* key, const std::string& value) { Put(key, value.c_str(), PMIX_STRING); }
  void Nest(const char* key, Information& inner) {
    pmix_data_array_t array{};
    array.type = PMIX_INFO;
    array.size = inner.values_.size();
    array.array = inner.values_.data();
    Put(key, &array, PMIX_DATA_ARRAY);
  }
  pmix_info_t* data() { return values_.data(); }
  size_t size() const { return values_.size(); }

 private:
  void Put(const char* key, const void* value, pmix_data_type_t type) {
    pmix_info_t& info = values_.emplace_back();
    memset(&info, 0, sizeof info);
    (void)PMIx_Info_load(&info, key, value, type);
  }

  std::vector<pmix_info_t> values_;  // not freed: the process that makes one ends soon
};

// Turns a callback of PMIx into a value to wait for.
void Fulfil(pmix_status_t status, void* promise) {
  static_cast<std::promise<pmix_status_t>*>(promise)->set_value(status);
}
Status Await(const char* what, const std::function<pmix_status_t(void* promise)>& call) {
  std::promise<pmix_status_t> done;
  pmix_status_t status = call(&done);
  if (status == PMIX_SUCCESS) status = done.get_future().get();
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return Ok();
  return Failed("PMIx: {}: status {}", what, status);
}

// Exchanges what ranks leave at a fence among all nodes, fence by fence. It has a thread of its own,
// since PMIx's must not wait.
class Exchange {
 public:
  Exchange(const MpiJob& job, std::unique_ptr<Store> store)
      : job_(job), store_(std::move(store)), thread_([this] { Work(); }) {}

  void Start(std::string own, pmix_modex_cbfunc_t done, void* argument) {
    std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(own), done, argument});
    changed_.notify_one();
  }

 private:
  struct Fence {
    std::string own;
    pmix_modex_cbfunc_t done;
    void* argument;
  };

  [[noreturn]] void Work() {
    for (int64_t number = 0;; ++number) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      const Fence fence = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      const Result<std::string> all = ErrorsOf([&] { return Gather(number, fence.own); });
      if (!all) {
        fence.done(PMIX_ERR_TIMEOUT, nullptr, 0, fence.argument, nullptr, nullptr);
        continue;
      }
      char* copy = static_cast<char*>(malloc(all->size()));
      memcpy(copy, all->data(), all->size());
      fence.done(PMIX_SUCCESS, copy, all->size(), fence.argument, free, copy);
    }
  }

  Result<std::string> Gather(int64_t number, const std::string& own) {
    const auto key = [&](int node) { return fmt::format("pmix/{}/{}", number, node); };
    WT_RETURN_IF_ERROR(store_->Set(key(job_.node), own));
    std::string all;
    for (int node = 0; node < job_.nodes; ++node) {
      WT_ASSIGN_OR_RETURN(const std::string theirs, store_->Get(key(node), kExchangeTime));
      all += theirs;
    }
    return all;
  }

  const MpiJob& job_;
  std::unique_ptr<Store> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Fence> waiting_;
  std::thread thread_;
};

Exchange* exchange = nullptr;  // PMIx's callbacks do not pass a pointer of the caller's

pmix_status_t Connected(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}
pmix_status_t Aborted(const pmix_proc_t*, void*, int, const char*, pmix_proc_t*, size_t, pmix_op_cbfunc_t,
                      void*) {
  return PMIX_OPERATION_SUCCEEDED;  // the rank ends, and the launcher sees that
}
pmix_status_t Fence(const pmix_proc_t*, size_t, const pmix_info_t*, size_t, char* data, size_t bytes,
                    pmix_modex_cbfunc_t done, void* argument) {
  if (exchange == nullptr) {
    done(PMIX_SUCCESS, data, bytes, argument, free, data);
  } else {
    exchange->Start(std::string(data, bytes), done, argument);
    free(data);
  }
  return PMIX_SUCCESS;
}
// Everything is exchanged at fences.
pmix_status_t DirectModex(const pmix_proc_t*, const pmix_info_t*, size_t, pmix_modex_cbfunc_t, void*) {
  return PMIX_ERR_NOT_FOUND;
}

std::string Joined(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) text += (i > begin ? "," : "") + std::to_string(i);
  return text;
}

// The server's process: everything between its start and its end.
class Server {
 public:
  Server(const MpiJob& job, std::string directory) : job_(job), directory_(std::move(directory)) {}

  Status Start() {
    if (job_.nodes > 1) {
      WT_ASSIGN_OR_RETURN(auto store,
                          ConnectStore(job_.store_host, job_.store_port, job_.store_token, kExchangeTime));
      exchange = new Exchange(job_, std::move(store));
    }
    pmix_server_module_t module{};
    module.client_connected = Connected;
    module.client_finalized = Connected;
    module.abort = Aborted;
    module.fence_nb = Fence;
    module.direct_modex = DirectModex;
    Information setup;
    setup.Text(PMIX_SERVER_TMPDIR, directory_);
    setup.Text(PMIX_SYSTEM_TMPDIR, directory_);
    setup.Text(PMIX_HOSTNAME, NameOfNode(job_.node));
    if (const pmix_status_t status = PMIx_server_init(&module, setup.data(), setup.size());
        status != PMIX_SUCCESS)
      return Failed("PMIx: the server does not start: status {}", status);
    WT_RETURN_IF_ERROR(Describe());
    for (int local = 0; local < job_.local_ranks; ++local) WT_RETURN_IF_ERROR(Expect(local));
    return Ok();
  }

  // The ranks' variables: NAME=VALUE, each ended by a zero; an empty one ends a rank's.
  std::string Environments() {
    std::string text;
    for (int local = 0; local < job_.local_ranks; ++local) {
      const pmix_proc_t process = ProcessOf(First() + local);
      char** variables = static_cast<char**>(calloc(1, sizeof(char*)));
      (void)PMIx_server_setup_fork(&process, &variables);
      for (char** variable = variables; *variable != nullptr; ++variable) (text += *variable) += '\0';
      // Tells Open MPI 4 that a daemon has started the rank. Without it, the rank takes itself for alone and
      // does not even look for the server.
      text += std::string("OMPI_MCA_orte_local_daemon_uri=1.0;tcp://127.0.0.1:1") + '\0';
      text += '\0';
    }
    return text;
  }

 private:
  int First() const { return job_.node * job_.local_ranks; }

  std::string NameOfNode(int node) const {
    if (job_.nodes > 1) return "node" + std::to_string(node);
    return HostName();
  }

  static pmix_proc_t ProcessOf(int rank) {
    pmix_proc_t process{};
    strncpy(process.nspace, kNamespace, sizeof process.nspace - 1);
    process.rank = static_cast<pmix_rank_t>(rank);
    return process;
  }

  // The job as a whole: the keys that Open MPI's processes ask for.
  Status Describe() {
    std::string nodes, ranks;
    for (int node = 0; node < job_.nodes; ++node) {
      nodes += (node > 0 ? "," : "") + NameOfNode(node);
      ranks += (node > 0 ? ";" : "") + Joined(node * job_.local_ranks, (node + 1) * job_.local_ranks);
    }
    char *node_map = nullptr, *rank_map = nullptr;
    (void)PMIx_generate_regex(nodes.c_str(), &node_map);
    (void)PMIx_generate_ppn(ranks.c_str(), &rank_map);
    const auto world = static_cast<uint32_t>(job_.world_size),
               local = static_cast<uint32_t>(job_.local_ranks);
    Information information;
    for (const char* key : {PMIX_UNIV_SIZE, PMIX_JOB_SIZE, PMIX_MAX_PROCS, PMIX_APP_SIZE})
      information.Number(key, world);
    for (const char* key : {PMIX_LOCAL_SIZE, PMIX_NODE_SIZE}) information.Number(key, local);
    information.Number(PMIX_JOB_NUM_APPS, 1);
    information.Number(PMIX_NUM_NODES, static_cast<uint32_t>(job_.nodes));
    information.Number(PMIX_NODEID, static_cast<uint32_t>(job_.node));
    information.Text(PMIX_NODE_MAP, node_map);
    information.Text(PMIX_PROC_MAP, rank_map);
    information.Text(PMIX_LOCAL_PEERS, Joined(First(), First() + job_.local_ranks));
    information.Rank(PMIX_LOCALLDR, First());
    information.Rank(PMIX_APPLDR, 0);
    information.Text(PMIX_TMPDIR, directory_);
    information.Text(PMIX_NSDIR, directory_);
    for (int rank = 0; rank < job_.world_size; ++rank) AddRank(information, rank);
    return Await("registering the job", [&](void* promise) {
      return PMIx_server_register_nspace(kNamespace, job_.local_ranks, information.data(), information.size(),
                                         Fulfil, promise);
    });
  }

  void AddRank(Information& information, int rank) const {
    const int node = rank / job_.local_ranks, local = rank % job_.local_ranks;
    Information of_rank;
    of_rank.Rank(PMIX_RANK, rank);
    of_rank.Number(PMIX_APPNUM, 0);
    of_rank.Rank(PMIX_GLOBAL_RANK, rank);
    of_rank.Rank(PMIX_APP_RANK, rank);
    of_rank.Short(PMIX_LOCAL_RANK, local);
    of_rank.Short(PMIX_NODE_RANK, local);
    of_rank.Number(PMIX_NODEID, static_cast<uint32_t>(node));
    of_rank.Text(PMIX_HOSTNAME, NameOfNode(node));
    of_rank.Text(PMIX_PROCDIR, directory_);
    information.Nest(PMIX_PROC_DATA, of_rank);
  }

  Status Expect(int local) {
    const pmix_proc_t process = ProcessOf(First() + local);
    return Await("registering a rank", [&](void* promise) {
      return PMIx_server_register_client(&process, getuid(), getgid(), nullptr, Fulfil, promise);
    });
  }

  const MpiJob& job_;
  std::string directory_;
};

// The directory in which ranks of a node share memory. Files of a rank that was killed stay there, so the
// server removes the directory.
std::string SharedMemoryDirectory(const std::string& directory) {
  return "/dev/shm/" + std::filesystem::path(directory).filename().string();
}

void RemoveAll(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// The child of MpiHost::Start. Answers "+" and the environments, or "-" and what went wrong. It lives until
// `alive` ends, whatever signals come: a request that all processes of a machine end is the launcher's to
// handle, as is an interrupt from the terminal.
[[noreturn]] void Serve(const MpiJob& job, const std::string& directory, int answer, int alive) {
  setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  Server server(job, directory);
  const Status started = server.Start();
  const bool told = !WriteAll(answer, started ? "+" + server.Environments() : "-" + started.error().message);
  close(answer);
  char byte;
  while (told && read(alive, &byte, 1) > 0) {
  }
  RemoveAll(directory);
  RemoveAll(SharedMemoryDirectory(directory));
  _exit(0);
}

// Reads `fd` to its end, or until `interrupt` is readable.
std::string ReadAll(int fd, int interrupt) {
  std::string text;
  char buffer[4096];
  for (;;) {
    pollfd polled[] = {{fd, POLLIN, 0}, {interrupt, POLLIN, 0}};
    if (poll(polled, std::size(polled), -1) < 0) continue;  // a signal, which `interrupt` tells
    if (polled[1].revents != 0) return text;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

// Open MPI's settings unless the user says otherwise: its own transports, shared memory and
// TCP. Debian's build also loads libraries for other networks, which take memory and time even
// where there is no such network.
const std::map<std::string, std::string>& Defaults() {
  static const std::map<std::string, std::string> defaults = {{"OMPI_MCA_pml", "ob1"},
                                                              {"OMPI_MCA_btl", "self,vader,tcp"}};
  return defaults;
}

// Between nodes: the interface on the way to the first node, which Gloo uses, too. Left alone, Open MPI may
// take an interface that leads nowhere, such as a bridge of containers. It is given by name: with an address
// as a network of its own (10.0.0.1/32) its ranks wait for each other for ever (4.1.4).
std::string InterfaceToInclude(const MpiJob& job) {
  const bool is_chosen =
      getenv("OMPI_MCA_btl_tcp_if_include") != nullptr || getenv("OMPI_MCA_btl_tcp_if_exclude") != nullptr;
  return job.nodes > 1 && !is_chosen ? InterfaceWith(job.interface) : "";
}

std::map<std::string, std::string> ParseEnvironment(std::string_view& text, const std::string& shared_memory,
                                                    const std::string& interface) {
  std::map<std::string, std::string> variables;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    const std::string_view variable = text.substr(0, end);
    text.remove_prefix(std::min(end, text.size() - 1) + 1);
    if (variable.empty()) break;
    const size_t equals = variable.find('=');
    variables[std::string(variable.substr(0, equals))] = std::string(variable.substr(equals + 1));
  }
  for (const auto& [name, value] : Defaults())
    if (getenv(name.c_str()) == nullptr) variables[name] = value;
  if (!interface.empty()) variables["OMPI_MCA_btl_tcp_if_include"] = interface;
  if (!shared_memory.empty()) variables["OMPI_MCA_btl_vader_backing_directory"] = shared_memory;
  return variables;
}

}  // namespace

Result<std::unique_ptr<MpiHost>> MpiHost::Start(const MpiJob& job, int interrupt) {
  WT_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make("windtunnel-mpi"));
  int answer[2], alive[2];
  if (pipe2(answer, O_CLOEXEC) != 0) return Failed("cannot make a pipe: {}", strerror(errno));
  FileDescriptor answer_read(answer[0]), answer_write(answer[1]);
  if (pipe2(alive, O_CLOEXEC) != 0) return Failed("cannot make a pipe: {}", strerror(errno));
  FileDescriptor alive_read(alive[0]), alive_write(alive[1]);
  std::unique_ptr<MpiHost> host(new MpiHost(std::move(directory)));
  const std::string path = host->directory_.path();
  // fork, although other threads run (the store's) and the child goes on in this program, where it allocates:
  // ranks are started by vfork and exec (runtime/launcher.cc), but this server has no program of its own. It
  // works because the child needs nothing that another thread may have held at that moment. Of
  // memory it has what this thread had (glibc takes the locks of malloc and stdio before it forks; should it
  // hang in another allocator's, an interrupt ends the wait for it). Of this project's locks it takes none that
  // existed before. It opens libraries, PMIx's plugins, which no other thread does meanwhile. OpenBLAS's
  // handler of fork finds no threads to join, because main has it start none, unless the user has set
  // OPENBLAS_NUM_THREADS. Descriptors that it inherits, such as the store's sockets, are closed when it ends,
  // with this process at the latest.
  host->pid_ = fork();
  if (host->pid_ < 0) return Failed("cannot start the PMIx server: {}", strerror(errno));
  if (host->pid_ == 0) {
    alive_write = FileDescriptor();
    answer_read = FileDescriptor();
    Serve(job, path, answer_write.get(), alive_read.get());
  }
  host->alive_ = std::move(alive_write);
  answer_write = FileDescriptor();
  const std::string text = ReadAll(answer_read.get(), interrupt);
  if (text.empty() || text[0] != '+') {
    kill(host->pid_, SIGKILL);  // it may be about to wait for another node
    return Failed("{}", text.empty() ? "the PMIx server died as it started" : text.substr(1));
  }
  std::string_view rest = std::string_view(text).substr(1);
  std::error_code no_shared_memory;
  const std::string shared = SharedMemoryDirectory(path);
  if (std::filesystem::create_directory(shared, no_shared_memory)) host->shared_memory_ = shared;
  for (int local = 0; local < job.local_ranks; ++local)
    host->environments_.push_back(ParseEnvironment(rest, host->shared_memory_, InterfaceToInclude(job)));
  return host;
}

MpiHost::~MpiHost() {
  alive_ = FileDescriptor();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  if (!shared_memory_.empty()) RemoveAll(shared_memory_);
}

}  // namespace windtunnel
