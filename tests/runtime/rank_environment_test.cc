#include "runtime/rank_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace windtunnel {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<RankEnvironment>> Read(const Variables& variables) {
  return ReadRankEnvironment([&](const char* name) -> const char* {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankEnvironment, ReadsTorchrunsContract) {
  auto read = Read({{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "node0"},
                    {"MASTER_PORT", "12345"}});
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(*read);
  EXPECT_EQ((*read)->rank, 5);
  EXPECT_EQ((*read)->world_size, 8);
  EXPECT_EQ((*read)->local_rank, 1);
  EXPECT_EQ((*read)->local_world_size, 4);
  EXPECT_EQ((*read)->master_addr, "node0");
  EXPECT_EQ((*read)->master_port, 12345);
}

// The end of these launchers ends the ranks. A shell's processes may outlive it, and Slurm itself ends what
// it has started.
TEST(RankEnvironment, OfTorchrunItselfAndMpirunAloneTheLauncherStays) {
  const auto stays = [](const Variables& variables) { return (*Read(variables))->launcher_stays; };
  EXPECT_TRUE(stays({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}}));
  EXPECT_FALSE(stays({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"WINDTUNNEL_JOB_TOKEN", "secret"}}));
  EXPECT_TRUE(stays({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
  EXPECT_FALSE(stays({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}));
}

TEST(RankEnvironment, AProcessOfNoJobIsNoRank) {
  auto read = Read({{"MASTER_ADDR", "node0"}, {"LOCAL_RANK", "x"}});
  ASSERT_TRUE(read);
  EXPECT_FALSE(*read);
}

TEST(RankEnvironment, DefaultsAreThoseOfOneNode) {
  auto read = Read({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->local_rank, 1);
  EXPECT_EQ((*read)->local_world_size, 2);
  EXPECT_EQ((*read)->master_addr, "127.0.0.1");
  EXPECT_EQ((*read)->master_port, 29500);
}

TEST(RankEnvironment, NamesTheVariableItsValueAndWhatWasExpected) {
  const std::pair<Variables, const char*> cases[] = {
      {{{"RANK", "0"}, {"WORLD_SIZE", "x"}}, "WORLD_SIZE is 'x', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE is '0', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", ""}}, "WORLD_SIZE is '', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2.0"}}, "WORLD_SIZE is '2.0', expected a positive integer"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}},
       "WORLD_SIZE is '99999999999', expected a positive integer"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is '2', expected a rank below WORLD_SIZE = 2"},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK is '-1', expected a rank below WORLD_SIZE = 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}},
       "MASTER_PORT is '70000', expected a port, 1 to 65535"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "one"}},
       "LOCAL_RANK is 'one', expected a rank below WORLD_SIZE = 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "1"}},
       "LOCAL_RANK is '1', expected a rank below LOCAL_WORLD_SIZE = 1"},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_TASKS_PER_NODE", "1(x2)"}},
       "SLURM_LOCALID is '1', expected a rank below SLURM_TASKS_PER_NODE = 1"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "x"}}, "SLURM_NTASKS is 'x', expected a positive integer"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "2"}},
       "SLURM_LOCALID is '2', expected a rank below SLURM_NTASKS = 2"},
      {{{"RANK", "0"},
        {"WORLD_SIZE", "2"},
        {"MASTER_PORT", "65535"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       "MASTER_PORT is '65535', expected at most 65534: torchrun's agent keeps it "
       "(TORCHELASTIC_USE_AGENT_STORE), "
       "and ranks meet at the port after it"},
      {{{"RANK", "0"}},
       "RANK is set but WORLD_SIZE is not: a rank of a job needs both, any other process neither"},
  };
  for (const auto& [variables, message] : cases) {
    auto read = Read(variables);
    ASSERT_FALSE(read) << message;
    EXPECT_EQ(read.error().kind, ErrorKind::kInvalidInput);
    EXPECT_EQ(read.error().message, message);
  }
}

TEST(RankEnvironment, TorchrunsAgentKeepsItsPortAndNamesTheJob) {
  auto read = Read({{"RANK", "0"},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_PORT", "29400"},
                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                    {"TORCHELASTIC_RUN_ID", "secret"}});
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->master_port, 29401);
  EXPECT_EQ((*read)->token, "secret");
}

TEST(RankEnvironment, ReadsMpirunsVariables) {
  const Variables one_node = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "2871590913"}};
  auto read = Read(one_node);
  ASSERT_TRUE(read && *read) << (read ? "" : read.error().message);
  EXPECT_EQ((*read)->rank, 1);
  EXPECT_EQ((*read)->world_size, 2);
  EXPECT_EQ((*read)->local_rank, 1);
  EXPECT_EQ((*read)->master_addr, "127.0.0.1");
  EXPECT_EQ((*read)->master_port, 15913);  // 15000 + 0913
  EXPECT_EQ((*read)->token, "2871590913");

  // Open MPI 5: two jobs of one machine are at different ports.
  Variables other = one_node;
  other["PMIX_NAMESPACE"] = "prterun-node0-84711@1";
  read = Read(other);
  ASSERT_TRUE(read && *read);
  const int first_port = (*read)->master_port;
  other["PMIX_NAMESPACE"] = "prterun-node0-84720@1";
  EXPECT_EQ((*Read(other))->master_port, first_port + 9);

  Variables two_nodes = one_node;
  two_nodes["OMPI_COMM_WORLD_SIZE"] = "4";
  read = Read(two_nodes);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("2 of 4 ranks are on this node and MASTER_ADDR is not set"),
            std::string::npos)
      << read.error().message;
  two_nodes["MASTER_ADDR"] = "node0";
  read = Read(two_nodes);
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->master_addr, "node0");
}

TEST(RankEnvironment, ReadsSlurmsVariables) {
  auto read = Read({{"SLURM_PROCID", "5"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_NTASKS", "7"},
                    {"SLURM_NODEID", "2"},
                    {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                    {"SLURM_NODELIST", "gpu[07-09,12]"},
                    {"SLURM_JOB_ID", "4712345"}});
  ASSERT_TRUE(read && *read) << (read ? "" : read.error().message);
  EXPECT_EQ((*read)->rank, 5);
  EXPECT_EQ((*read)->world_size, 7);
  EXPECT_EQ((*read)->local_rank, 1);
  EXPECT_EQ((*read)->local_world_size, 2);
  EXPECT_EQ((*read)->master_addr, "gpu07");
  EXPECT_EQ((*read)->master_port, 17345);  // 15000 + 2345
  EXPECT_EQ((*read)->token, "4712345");
}

TEST(RankEnvironment, StepsOfOneAllocationAreJobsOfTheirOwn) {
  Variables variables = {{"SLURM_PROCID", "0"},         {"SLURM_NTASKS", "2"},
                         {"SLURM_JOB_ID", "4712345"},   {"SLURM_NODELIST", "gpu[07-09]"},
                         {"SLURM_TASKS_PER_NODE", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
  std::set<int> ports;
  std::set<std::string> tokens;
  for (const char* step : {"0", "1", "2", "99", "9998"}) {
    variables["SLURM_STEP_ID"] = step;
    variables["SLURM_STEP_NODELIST"] = "gpu[08-09]";
    auto read = Read(variables);
    ASSERT_TRUE(read && *read) << (read ? "" : read.error().message);
    ports.insert((*read)->master_port);
    tokens.insert((*read)->token);
    EXPECT_EQ((*read)->master_addr, "gpu08");
    EXPECT_EQ((*read)->local_world_size, 1);
    EXPECT_EQ((*read)->advice, "");
    EXPECT_FALSE((*read)->is_of_no_step);
  }
  EXPECT_EQ(ports.size(), 5u);
  EXPECT_GE(*ports.begin(), 15000);
  EXPECT_LT(*ports.rbegin(), 25000);
  EXPECT_EQ(tokens.count("4712345.1"), 1u);
  EXPECT_EQ(tokens.size(), 5u);
}

TEST(RankEnvironment, ARankThatNoStepOfSlurmsHasStartedIsToldSo) {
  auto read = Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->token, "7");
  EXPECT_TRUE((*read)->is_of_no_step);
  EXPECT_EQ((*read)->advice,
            "Slurm's variables make this process rank 0 of 2 (SLURM_PROCID, SLURM_NTASKS), but no step has "
            "started it (SLURM_STEP_ID is not set): `srun windtunnel run …` starts all of them");
}

TEST(RankEnvironment, SaysWhereTheWorldSizeComesFrom) {
  EXPECT_EQ((*Read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}))->world_size_name, "WORLD_SIZE");
  EXPECT_EQ((*Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}))->world_size_name, "SLURM_NTASKS");
  EXPECT_EQ((*Read({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}))->world_size_name,
            "mpirun's -np (OMPI_COMM_WORLD_SIZE)");
}

TEST(RankEnvironment, UnderSlurmAPortOfOnesOwnGoesFirstAndThereIsOneWithoutAJob) {
  Variables variables = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "a,b"}};
  EXPECT_EQ((*Read(variables))->master_port, 12910);
  EXPECT_EQ((*Read(variables))->master_addr, "a");
  variables["MASTER_PORT"] = "20000";
  EXPECT_EQ((*Read(variables))->master_port, 20000);
}

TEST(RankEnvironment, AListOfNodesThatDoesNotEndIsNamed) {
  const auto read = Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "n[1-"}});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::kInvalidInput);
  EXPECT_EQ(read.error().message, "SLURM_NODELIST is 'n[1-', expected hosts such as node[01-04]");
}

TEST(RankEnvironment, AShellOfSlurmsOrASingleTaskIsNoRank) {
  EXPECT_FALSE(*Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NAME", "bash"}}));
  EXPECT_FALSE(*Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NAME", "interactive"}}));
  EXPECT_FALSE(*Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
  EXPECT_FALSE(*Read({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
}

TEST(RankEnvironment, TorchrunsVariablesGoBeforeThoseOfWhatStartedIt) {
  auto read = Read({{"RANK", "1"},
                    {"WORLD_SIZE", "2"},
                    {"SLURM_PROCID", "0"},
                    {"SLURM_NTASKS", "2"},
                    {"SLURM_JOB_ID", "123"}});
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->rank, 1);
  EXPECT_EQ((*read)->launcher, "torchrun");
}

TEST(FirstHost, OfEveryWayThatSlurmWritesLists) {
  EXPECT_EQ(FirstHostOf("node7"), "node7");
  EXPECT_EQ(FirstHostOf("node7,node8"), "node7");
  EXPECT_EQ(FirstHostOf("gpu[07-12,20],login1"), "gpu07");
  EXPECT_EQ(FirstHostOf("rack[3,5]-ib,x"), "rack3-ib");
  EXPECT_EQ(FirstHostOf("login1,gpu[07-12]"), "login1");
  EXPECT_EQ(FirstHostOf("n[5]"), "n5");
  EXPECT_EQ(FirstHostOf(""), "");
  EXPECT_EQ(FirstHostOf("n[5"), "n");
}

}  // namespace
}  // namespace windtunnel
