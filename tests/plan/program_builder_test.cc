#include "plan/program_builder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace windtunnel {
namespace {

using Texts = std::vector<std::string>;

class ProgramBuilderTest : public testing::Test {
 protected:
  Slice Lasting(const std::string& name) { return NewBuffer(role_, name, 8, Category::kWorkspace); }
  Slice Temporary(const std::string& name) { return b_.Temporary(name, 8, Category::kActivations); }
  void Compute(const std::string& name, const std::vector<Slice>& reads, const std::vector<Slice>& writes) {
    b_.Add(Scale{}, name, reads, writes);
  }
  // "1 alloc x": before operator 1.
  static Texts MemoryOf(const Program& program, const Role& role) {
    Texts texts;
    for (const MemoryOp& op : program.memory)
      texts.push_back(fmt::format("{} {} {}", op.before, Name(op.kind), role.buffers[op.buffer].name));
    return texts;
  }

  Role role_;
  ProgramBuilder b_{role_, "made up"};
};

TEST_F(ProgramBuilderTest, PutsMemoryBetweenOperators) {
  const Slice x = Lasting("x"), first = Temporary("first"), second = Temporary("second");
  Compute("a", {}, {first});
  b_.Alloc(x.buffer);
  Compute("b", {first}, {second});
  b_.Free(x.buffer);
  Compute("c", {}, {});
  const Program program = b_.Finish();
  EXPECT_EQ(program.ops.size(), 3u);
  EXPECT_EQ(MemoryOf(program, role_), (Texts{"0 alloc first", "1 alloc x", "1 alloc second", "2 free first",
                                             "2 free second", "2 free x"}));
}

// Nothing waits for the gather, so its output is freed at the end, after everything else.
TEST_F(ProgramBuilderTest, FreesLastWhatNothingWaitsFor) {
  const Slice x = Lasting("x"), gathered = Temporary("gathered");
  b_.Alloc(x.buffer);
  b_.Add(Collective{CollectiveKind::kAllGather}, "gather", {}, {gathered}, {}, /*stream=*/1);
  Compute("a", {}, {});
  b_.Free(x.buffer);
  const Program program = b_.Finish();
  EXPECT_EQ(MemoryOf(program, role_),
            (Texts{"0 alloc x", "0 alloc gathered", "2 free x", "2 free gathered"}));
}

// Two runs take turns. The memory operations of each stay between its own operators.
TEST_F(ProgramBuilderTest, MemoryTakesTurnsWithItsRun) {
  const Slice x = Lasting("x"), y = Lasting("y");
  b_.BeginTurns();
  b_.AtTurn(0);
  Compute("x made", {}, {x});
  b_.Alloc(y.buffer);
  b_.AtTurn(2);
  Compute("x used", {x}, {});
  b_.Free(x.buffer);
  b_.NextRun();
  b_.AtTurn(1);
  Compute("between", {}, {});
  b_.Free(y.buffer);
  b_.AtTurn(2);
  Compute("last", {}, {});
  b_.Alloc(y.buffer);
  b_.EndTurns();
  Compute("after", {}, {});
  const Program program = b_.Finish();
  Texts names;
  for (const Op& op : program.ops) names.push_back(op.name);
  EXPECT_EQ(names, (Texts{"x made", "between", "x used", "last", "after"}));
  EXPECT_EQ(MemoryOf(program, role_), (Texts{"1 alloc y", "2 free y", "3 free x", "4 alloc y"}));
}

}  // namespace
}  // namespace windtunnel
