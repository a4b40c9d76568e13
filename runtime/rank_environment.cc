#include "runtime/rank_environment.h"

#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace windtunnel {
namespace {

constexpr int kLastPort = 65535;
constexpr int kNoJobPort = 12910;  // PyTorch Lightning's port under Slurm without a job's id
constexpr int kFirstJobPort = 15000, kJobPorts = 10000;
constexpr int kPortsBetweenSteps = 101;  // coprime to kJobPorts: 10000 steps have a port each

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool Has(const char* name) const { return environment_(name) != nullptr; }
  std::string Text(const char* name) const {
    const char* text = environment_(name);
    return text == nullptr ? "" : text;
  }

  // `preferred` if it is set and not empty, else `otherwise`.
  const char* FirstOf(const char* preferred, const char* otherwise) const {
    return Text(preferred).empty() ? otherwise : preferred;
  }

  // The variable as a whole number in [least, most]; `otherwise` when it is not set.
  Result<int> Number(const char* name, int least, int most, const std::string& expected,
                     int otherwise) const {
    const char* text = environment_(name);
    if (text == nullptr) return otherwise;
    int value = 0;
    const char* end = text + std::strlen(text);
    auto [stopped, error] = std::from_chars(text, end, value);
    if (error != std::errc() || stopped != end || value < least || value > most)
      return InvalidInput("{} is '{}', expected {}", name, text, expected);
    return value;
  }

  Result<int> Port(int otherwise) const {
    return Number("MASTER_PORT", 1, kLastPort, "a port, 1 to 65535", otherwise);
  }

  // The names of one launcher's variables.
  struct Names {
    const char *rank, *size, *local_rank, *local_size;
  };
  // The local world size where its variable is not set (0: the world size), and the variable that says so.
  struct LocalSize {
    int otherwise = 0;
    const char* name = "";
  };
  Result<RankEnvironment> Ranks(const Names& names, const LocalSize& local) const {
    RankEnvironment result;
    WT_ASSIGN_OR_RETURN(result.world_size, Number(names.size, 1, INT_MAX, "a positive integer", 1));
    WT_ASSIGN_OR_RETURN(result.rank,
                        Number(names.rank, 0, result.world_size - 1,
                               fmt::format("a rank below {} = {}", names.size, result.world_size), 0));
    const int local_size = local.otherwise > 0 ? local.otherwise : result.world_size;
    const char* where_local_size_is =
        Has(names.local_size) ? names.local_size : (local.otherwise > 0 ? local.name : names.size);
    WT_ASSIGN_OR_RETURN(result.local_world_size,
                        Number(names.local_size, 1, result.world_size,
                               fmt::format("1 to {} = {}", names.size, result.world_size), local_size));
    WT_ASSIGN_OR_RETURN(result.local_rank, Number(names.local_rank, 0, result.local_world_size - 1,
                                                  fmt::format("a rank below {} = {}", where_local_size_is,
                                                              result.local_world_size),
                                                  result.rank % result.local_world_size));
    result.world_size_name = names.size;
    return result;
  }

 private:
  const Environment& environment_;
};

std::string DigitsAtEnd(const std::string& text) {
  const size_t last = text.find_last_not_of("0123456789");
  return last == std::string::npos ? text : text.substr(last + 1);
}

// The last four digits of a number, 0 to 9999.
int LastDigits(const std::string& digits) {
  return std::atoi(digits.substr(digits.size() - std::min<size_t>(digits.size(), 4)).c_str());
}

// A port from the last four digits of a job's number, so that jobs on one machine rarely meet. The steps of a
// job are apart and not on adjacent ports, which are those of the next jobs.
int PortOfJob(const std::string& number, const std::string& step, int otherwise) {
  const std::string digits = DigitsAtEnd(number);
  if (digits.empty()) return otherwise;
  return kFirstJobPort +
         (LastDigits(digits) + kPortsBetweenSteps * LastDigits(DigitsAtEnd(step))) % kJobPorts;
}

Result<RankEnvironment> ReadTorchrun(const Reader& reader) {
  const bool has_rank = reader.Has("RANK"), has_size = reader.Has("WORLD_SIZE");
  if (has_rank != has_size)
    return InvalidInput("{} is set but {} is not: a rank of a job needs both, any other process neither",
                        has_rank ? "RANK" : "WORLD_SIZE", has_rank ? "WORLD_SIZE" : "RANK");
  WT_ASSIGN_OR_RETURN(RankEnvironment result,
                      reader.Ranks({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, {}));
  WT_ASSIGN_OR_RETURN(result.master_port, reader.Port(29500));
  if (reader.Text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    if (result.master_port == kLastPort)
      return InvalidInput(
          "MASTER_PORT is '{0}', expected at most {1}: torchrun's agent keeps it "
          "(TORCHELASTIC_USE_AGENT_STORE), and ranks meet at the port after it",
          kLastPort, kLastPort - 1);
    ++result.master_port;
  }
  result.token = reader.Text("TORCHELASTIC_RUN_ID");
  result.launcher = "torchrun";
  result.launcher_stays = !result.token.empty();
  return result;
}

Result<RankEnvironment> ReadMpirun(const Reader& reader) {
  WT_ASSIGN_OR_RETURN(RankEnvironment result,
                      reader.Ranks({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                   {}));
  result.world_size_name = "mpirun's -np (OMPI_COMM_WORLD_SIZE)";
  if (result.local_world_size < result.world_size && reader.Text("MASTER_ADDR").empty())
    return InvalidInput(
        "{} of {} ranks are on this node and MASTER_ADDR is not set: name the host of rank 0 with `mpirun -x "
        "MASTER_ADDR=HOST`",
        result.local_world_size, result.world_size);
  // "1234567", or with Open MPI 5 "prterun-node0-4711@1": the process of mpirun, and which of its jobs.
  const std::string job = reader.Text("PMIX_NAMESPACE");
  const size_t at = job.rfind('@');
  const std::string of_jobs = at == std::string::npos ? "" : job.substr(at + 1);
  WT_ASSIGN_OR_RETURN(result.master_port, reader.Port(PortOfJob(job.substr(0, at), of_jobs, 29500)));
  result.token = job;
  result.launcher = "mpirun";
  result.launcher_stays = true;
  return result;
}

// The entry of a list such as "2(x3),1" for one node: of nodes 0 to 2 that is 2, of node 3 it is 1. 0 when
// there is none.
int TasksOfNode(const std::string& list, int node) {
  int seen = 0;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string entry = list.substr(at, end - at);
    const size_t repeat = entry.find("(x");
    seen += repeat == std::string::npos ? 1 : std::atoi(entry.c_str() + repeat + 2);
    if (node < seen) return std::atoi(entry.c_str());
    at = end + 1;
  }
  return 0;
}

Result<RankEnvironment> ReadSlurm(const Reader& reader) {
  WT_ASSIGN_OR_RETURN(const int node, reader.Number("SLURM_NODEID", 0, INT_MAX, "a node's number", 0));
  const char* tasks = reader.FirstOf("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  WT_ASSIGN_OR_RETURN(RankEnvironment result,
                      reader.Ranks({"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", /*local_size=*/""},
                                   {TasksOfNode(reader.Text(tasks), node), tasks}));
  // An allocation may have several steps at once, each a job of windtunnel's.
  const std::string job = reader.Text("SLURM_JOB_ID"), step = reader.Text("SLURM_STEP_ID");
  WT_ASSIGN_OR_RETURN(result.master_port, reader.Port(PortOfJob(job, step, kNoJobPort)));
  const char* nodes = reader.FirstOf("SLURM_STEP_NODELIST", "SLURM_NODELIST");
  const std::string list = reader.Text(nodes);
  const size_t bracket = list.find('[');
  if (bracket != std::string::npos && list.find(']', bracket) == std::string::npos)
    return InvalidInput("{} is '{}', expected hosts such as node[01-04]", nodes, list);
  if (const std::string first = FirstHostOf(list); !first.empty()) result.master_addr = first;
  result.token = step.empty() ? job : job + "." + step;
  result.is_of_no_step = step.empty();
  if (result.is_of_no_step)
    result.advice = fmt::format(
        "Slurm's variables make this process rank {} of {} (SLURM_PROCID, SLURM_NTASKS), but no step has "
        "started it (SLURM_STEP_ID is not set): `srun windtunnel run …` starts all of them",
        result.rank, result.world_size);
  result.launcher = "srun";
  return result;
}

// False in the shell of an interactive job: whatever runs there is not one of its tasks.
bool IsTaskOfSlurm(const Reader& reader) {
  const std::string name = reader.Text("SLURM_JOB_NAME");
  if (!reader.Has("SLURM_PROCID") || name == "bash" || name == "interactive") return false;
  const std::string tasks = reader.Text("SLURM_NTASKS");
  const bool is_number = !tasks.empty() && tasks.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::atoi(tasks.c_str()) > 1 : !tasks.empty();  // the reader says what is no number
}

}  // namespace

std::string FirstHostOf(const std::string& node_list) {
  const size_t bracket = node_list.find('['), comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const size_t end = node_list.find_first_of("-,]", bracket), close = node_list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return node_list.substr(0, bracket);
  const size_t next = std::min(node_list.find(',', close), node_list.size());
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1) +
         node_list.substr(close + 1, next - close - 1);
}

Result<std::optional<RankEnvironment>> ReadRankEnvironment(const Environment& environment) {
  const Reader reader(environment);
  Result<RankEnvironment> result;
  if (reader.Has("RANK") || reader.Has("WORLD_SIZE")) result = ReadTorchrun(reader);
  else if (std::atoi(reader.Text("OMPI_COMM_WORLD_SIZE").c_str()) > 1) result = ReadMpirun(reader);
  else if (IsTaskOfSlurm(reader)) result = ReadSlurm(reader);
  else return std::nullopt;
  if (!result) return tl::unexpected(result.error());
  if (const std::string address = reader.Text("MASTER_ADDR"); !address.empty()) result->master_addr = address;
  if (const std::string token = reader.Text("WINDTUNNEL_JOB_TOKEN"); !token.empty()) result->token = token;
  if (result->token.empty()) result->token = "windtunnel";
  return *std::move(result);
}

Result<std::optional<RankEnvironment>> ReadRankEnvironment() {
  return ReadRankEnvironment([](const char* name) -> const char* { return std::getenv(name); });
}

std::string GlooInterfaces() {
  const char* names = std::getenv("GLOO_SOCKET_IFNAME");
  return names == nullptr ? "" : names;
}

}  // namespace windtunnel
