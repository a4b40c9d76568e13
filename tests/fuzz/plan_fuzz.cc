// Plans of small scenarios. For every key of the model, the batch and the strategy (in the order of
// describe.h), a byte of the input keeps a tiny model's value or chooses another. A scenario that the loader
// accepts is compiled, which checks every program, and has no race (tests/plan/race_check.h), or is refused
// with a reason.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "plan/plan.h"
#include "scenarios/describe.h"
#include "scenarios/load.h"
#include "scenarios/words.h"
#include "tests/plan/race_check.h"
#include "tests/plan/scenarios_for_tests.h"

namespace windtunnel {
namespace {

// The bytes of an input in order, followed by zeros.
class InputBytes {
 public:
  explicit InputBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint8_t Next() { return at_ < bytes_.size() ? bytes_[at_++] : 0; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

// Visits a description (describe.h). A byte below 128 leaves its key alone.
class Chooser {
 public:
  explicit Chooser(InputBytes& bytes) : bytes_(bytes) {}

  template <typename I>
  void Integer(std::string_view, I& value, const Bounds& bounds, std::string_view) {
    static constexpr std::array<I, 12> kSizes = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 0};
    const I chosen = Choose(kSizes, value);
    if (bounds.Violation(static_cast<double>(chosen)).empty()) value = chosen;
  }
  void Number(std::string_view, double& value, const Bounds& bounds, std::string_view) {
    static constexpr std::array kNumbers = {0.0, 0.001, 0.1, 0.5, 0.9, 1.0, 1.25, 2.0, 100.0};
    const double chosen = Choose(kNumbers, value);
    if (bounds.Violation(chosen).empty()) value = chosen;
  }
  void Number(std::string_view key, std::optional<double>& value, const Bounds& bounds,
              std::string_view doc) {
    double chosen = value.value_or(-1);
    Number(key, chosen, bounds, doc);
    if (chosen >= 0) value = chosen;
  }
  void Flag(std::string_view, bool& value, std::string_view) {
    value = Choose(std::array{false, true}, value);
  }
  void FlagOrInteger(std::string_view key, bool& value, int64_t& number, const Bounds&,
                     std::string_view doc) {
    Flag(key, value, doc);
    if (value) number = Choose(std::array<int64_t, 3>{0, 1, 2}, number);
  }
  template <typename E>
  void Word(std::string_view, E& value, std::initializer_list<E> words, std::string_view) {
    value = Choose(std::span(words.begin(), words.size()), value);
  }
  template <typename E>
  void Word(std::string_view, E& value, std::string_view) {
    value = Choose(std::span(windtunnel::Words<E>::table), windtunnel::Word<E>{{}, value}).value;
  }
  template <typename E>
  void WordOrNumber(std::string_view key, E& value, double& number, const Bounds&, std::string_view doc) {
    Word(key, value, doc);
    number = Choose(std::array{0.0, 1.0, 128.0}, number);
  }
  void Path(std::string_view, std::string& value, const TextRule& rule, std::string_view) {
    value = Choose(std::span(rule.words), value);
  }
  void Integers(std::string_view, std::vector<int64_t>& values, const Bounds&, std::string_view) {
    const uint8_t byte = bytes_.Next();
    if (byte < 128) return;
    values.resize(byte % 5);
    for (int64_t& value : values) value = bytes_.Next() % 9;
  }
  void Wrap(std::string_view, WrapPolicy& wrap, std::string_view) {
    using Kind = WrapPolicy::Kind;
    wrap.kind = Choose(std::array{Kind::kBlock, Kind::kRoot, Kind::kSize, Kind::kModules}, wrap.kind);
    if (wrap.kind == Kind::kSize) wrap.size_bytes = Choose(std::array{1, 1000, 30'000}, 10'000);
    if (wrap.kind == Kind::kModules) wrap.modules = {Choose(std::array{"head", "blocks.1"}, "blocks.0")};
  }
  template <typename T>
  void Block(std::string_view, T& spec, std::string_view) {
    Describe(*this, spec);
  }
  void OptionalBlock(std::string_view, std::optional<ExpertsSpec>& spec, std::string_view) {
    if (bytes_.Next() < 128) return;
    spec = ExpertsSpec{.count = 4};
    Describe(*this, *spec);
  }
  // Of the eight columns of a head (TinyLlama) four are rotated.
  void OptionalBlock(std::string_view, std::optional<LatentAttentionSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = LatentAttentionSpec{.kv_rank = 6, .rope_dim = 4};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<SlidingWindowSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = SlidingWindowSpec{.tokens = 3};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<TokenPredictionSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = TokenPredictionSpec{};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<EncoderSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = EncoderSpec{.layers = 2, .seq_len = 24};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<MambaSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = MambaSpec{.state = 5, .head_dim = 8, .heads = 4, .groups = 2};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<DeltaNetSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = DeltaNetSpec{.key_heads = 2, .value_heads = 4, .key_dim = 5, .value_dim = 8};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<LoraSpec>& spec, std::string_view) {
    if (bytes_.Next() < 192) return;
    spec = LoraSpec{.rank = 2};
    Describe(*this, *spec);
  }
  void OptionalBlock(std::string_view, std::optional<PowerSgdSpec>& spec, std::string_view) {
    const uint8_t byte = bytes_.Next();
    if (byte < 192) return;
    spec = PowerSgdSpec{.rank = 1 + byte % 3, .start_step = 2 + byte % 5, .error_feedback = byte % 2 == 0};
  }
  template <typename E>
  void Words(std::string_view, std::vector<E>& values, std::string_view) {
    const uint8_t byte = bytes_.Next();
    if (byte < 128) return;
    const auto& table = windtunnel::Words<E>::table;
    values = {table[byte % std::size(table)].value};
  }
  void Text(std::string_view, const std::string&, const TextRule&, std::string_view) {}
  void InputOnly(std::string_view, std::string_view) {}
  void Require(std::string_view) {}
  void RequireWithoutPreset(std::string_view) {}
  bool Covers(bool condition) const { return condition; }

 private:
  template <typename Options, typename T>
  T Choose(const Options& options, T otherwise) {
    const uint8_t byte = bytes_.Next();
    return byte < 128 ? otherwise : T(options[byte % options.size()]);
  }

  InputBytes& bytes_;
};

Scenario Chosen(InputBytes& bytes) {
  const uint8_t base = bytes.Next();
  Scenario s = base % 3 == 0 ? TinyGpt() : base % 3 == 1 ? TinyLlama() : TinyMlp();
  Chooser chooser(bytes);
  chooser.Word("framework", s.framework, "");
  chooser.Word("allocator", s.allocator, "");
  chooser.Word("recompute", s.recompute, "");
  chooser.Word("cross_entropy", s.cross_entropy, "");
  // The blocks that matter most come first, so that short inputs reach them.
  Describe(chooser, s.parallel);
  Describe(chooser, s.batch);
  Describe(chooser, s.precision);
  Describe(chooser, s.optimizer);
  Describe(chooser, s.model);
  return s;
}

// Whether it compiles in a millisecond or two.
bool IsSmall(const Scenario& s) {
  return s.WorldSize() <= 8 && s.model.layers <= 4 && s.batch.accumulate <= 4 &&
         s.parallel.pipeline.virtual_stages <= 2;
}

// Checks that no operator uses what another stream still works on.
void CheckOrder(const Plan& plan, const Role& role, const Program& program) {
  const std::string race = FindRace(plan, role, program);
  if (race.empty()) return;
  fmt::print(stderr, "{}: {}\n{}\n", program.name, race, ResolvedYaml(plan.scenario));
  WT_CHECK(race.empty());
}

// Checks that graphs are whole: only their first operator waits for others, and others wait only for their
// last (plan/graphs.h).
void CheckGraphs(const Program& program) {
  std::vector<bool> is_awaited(program.ops.size(), false);
  for (const Op& op : program.ops)
    for (OpIndex dependency : op.dependencies) is_awaited[dependency] = true;
  int32_t left = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    WT_CHECK_EQ(op.graph<0, left> 0);
    if (op.graph > 0) left = op.graph;
    if (left == 0) continue;
    WT_CHECK(op.graph > 0 || op.dependencies.empty());
    WT_CHECK(--left == 0 || !is_awaited[i]);
  }
  WT_CHECK_EQ(left, 0);
}

void Fuzz(std::span<const uint8_t> input) {
  InputBytes bytes(input);
  const uint8_t options = bytes.Next();
  const bool evaluates = (options & 1) != 0, has_queues = (options & 2) != 0;
  Scenario scenario = Chosen(bytes);
  if ((options & 8) != 0) {
    scenario.activation_offload = true;
    scenario.model.layers = 4;  // so that some of them leave the device
  }
  if (!IsSmall(scenario)) return;
  if (has_queues) {
    scenario.cluster.device = "h100-sxm-80g";
    scenario.run.backend = Backend::kNccl;
    scenario.run.cuda_graphs = (options & 4) != 0;
  }
  scenario.cluster.devices_per_node = scenario.WorldSize();
  const auto loaded = ParseScenario(ResolvedYaml(scenario), "fuzz.yaml", "/nonexistent", {});
  if (!loaded) {
    WT_CHECK(!loaded.error().message.empty());
    return;
  }
  const auto plan = CompilePlan(*loaded, {.evaluates = evaluates});
  if (!plan) {
    WT_CHECK(!plan.error().message.empty());
    return;
  }
  for (const Role& role : plan->roles) {
    CheckOrder(*plan, role, role.initialize);
    for (const Program& program : role.startup) CheckOrder(*plan, role, program);
    for (const Program& program : role.startup) CheckGraphs(program);
    CheckGraphs(role.steady);
    for (const Program* program : {&role.steady, &role.restore, &role.evaluate})
      CheckOrder(*plan, role, *program);
  }
}

}  // namespace
}  // namespace windtunnel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  windtunnel::Fuzz({data, size});
  return 0;
}
