// A model cut into stages is the same model: the same parameters with the same initial values, and the same
// work.
#include <gtest/gtest.h>

#include "plan/model.h"
#include "plan/program_builder.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// Every parameter whole, with a gradient beside it.
class PlainHooks : public ModelHooks {
 public:
  explicit PlainHooks(Role& role) : ready_(role.parameters.size(), 0) {
    for (const Parameter& parameter : role.parameters) {
      values_.push_back(NewBuffer(role, parameter.name, parameter.elements, Category::kParameters));
      gradients_.push_back(
          NewBuffer(role, parameter.name + ".grad", parameter.elements, Category::kGradients));
    }
  }
  Slice Values(int index) override { return values_[index]; }
  Slice Gradient(int index) override { return gradients_[index]; }
  bool HoldsValue(int) const override { return false; }
  void Ready(int index) override { ++ready_[index]; }
  void Wrote(int) override {}
  const std::vector<int>& ready() const { return ready_; }

 private:
  std::vector<Slice> values_, gradients_;
  std::vector<int> ready_;
};

struct Stage {
  Role role;
  Program program;
  std::vector<int> ready;
};

Stage Build(const Scenario& scenario, const StageRange& range) {
  Stage stage;
  stage.role.streams = {{StreamKind::kCompute, "compute", -1}};
  const auto model = MakeModel(scenario, range);
  model->Register(stage.role);
  PlainHooks hooks(stage.role);
  ProgramBuilder b(stage.role, "stage");
  const bool is_mlp = scenario.model.kind == ModelKind::kMlp;
  const int64_t elements = is_mlp ? scenario.batch.micro * scenario.model.widths[range.first]
                                  : scenario.batch.micro * scenario.model.seq_len * scenario.model.hidden;
  const Slice loss = NewBuffer(stage.role, "loss", 1, Category::kActivations);
  const Slice input = NewBuffer(stage.role, "input", elements, Category::kActivations);
  const Slice output = model->Forward(b, hooks, 0, input, loss, 1.0);
  const Slice dinput = model->Backward(
      b, hooks, 0,
      range.is_last ? output : NewBuffer(stage.role, "doutput", output.elements, Category::kActivations));
  EXPECT_EQ(dinput.elements, range.is_first ? 0 : elements);
  stage.program = b.Finish();
  stage.ready = hooks.ready();
  return stage;
}

double WorkOf(const Program& program) {
  double flops = 0;
  for (const Op& op : program.ops) flops += FlopsOf(op.kind).count();
  return flops;
}

// Cuts the model after `cut` layers.
void ExpectTwoStagesMakeTheModel(const Scenario& scenario, int64_t cut) {
  const StageRange all = WholeModel(scenario.model);
  const Stage whole = Build(scenario, all);
  const Stage first = Build(scenario, {0, cut, true, false}),
              last = Build(scenario, {cut, all.end, false, true});
  std::vector<Parameter> parameters = first.role.parameters;
  parameters.insert(parameters.end(), last.role.parameters.begin(), last.role.parameters.end());
  ASSERT_EQ(parameters.size(), whole.role.parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].name, whole.role.parameters[i].name);
    EXPECT_EQ(parameters[i].ordinal, whole.role.parameters[i].ordinal);
    EXPECT_EQ(parameters[i].shape, whole.role.parameters[i].shape);
  }
  EXPECT_EQ(WorkOf(first.program) + WorkOf(last.program), WorkOf(whole.program));
  for (const Stage* stage : {&whole, &first, &last}) {
    for (int count : stage->ready) EXPECT_EQ(count, 1);
  }
}

TEST(Stages, TransformersAreCutBetweenBlocks) {
  Scenario gpt = TinyGpt();
  gpt.model.layers = 4;
  for (int64_t cut : {1, 2, 3}) ExpectTwoStagesMakeTheModel(gpt, cut);
  Scenario llama = TinyLlama();
  llama.recompute = Recompute::kFull;
  ExpectTwoStagesMakeTheModel(llama, 1);
}

TEST(Stages, PerceptronsAreCutBetweenLayers) {
  Scenario mlp = TinyMlp();
  mlp.model.widths = {10, 100, 50, 10};
  for (int64_t cut : {1, 2}) ExpectTwoStagesMakeTheModel(mlp, cut);
}

TEST(Stages, AStageInTheMiddleLoadsNoData) {
  Scenario s = TinyGpt();
  s.model.layers = 3;
  const Stage middle = Build(s, {1, 2, false, false});
  for (const Op& op : middle.program.ops) EXPECT_FALSE(std::holds_alternative<LoadBatch>(op.kind));
  EXPECT_EQ(middle.role.parameters.front().name, "blocks.1.norm1.weight");
}

}  // namespace
}  // namespace windtunnel
