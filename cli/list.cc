#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/format.h"
#include "cli/commands.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "cost_models/device_spec.h"
#include "plan/outline.h"
#include "reports/words.h"
#include "scenarios/known_names.h"
#include "scenarios/load.h"
#include "scenarios/presets.h"
#include "scenarios/suggest.h"
#include "topology/link_rates.h"

namespace windtunnel {
namespace {

struct Row {
  std::string name, description;
};
struct List {
  const char* what;  // as the command takes it
  const char* key;   // the scenario's key
  std::vector<Row> rows;
};

std::string DescribeDevice(const DeviceSpec& device) {
  const bool has_bf16 = device.PeakFor(DType::kBFloat16) > FlopRate();
  const DType type = has_bf16 ? DType::kBFloat16 : DType::kFloat16;
  return fmt::format("{}: {} in {}, {} of memory at {}", device.description,
                     FormatFlopRate(device.PeakFor(type)), Name(type), FormatBytes(device.memory),
                     FormatBandwidth(device.hbm));
}

Result<std::vector<Row>> Devices() {
  std::vector<Row> rows = {{"cpu", "the processors of this machine, measured (the default)"},
                           {"cuda", "the NVIDIA GPUs of this machine, measured"}};
  for (const std::string& name : EmbeddedProfileNames()) {
    WT_ASSIGN_OR_RETURN(const DeviceSpec device, ParseDeviceSpec(*EmbeddedProfile(name), name));
    rows.push_back({name, DescribeDevice(device)});
  }
  return rows;
}

Result<std::vector<Row>> Models() {
  std::vector<Row> rows;
  for (const std::string& name : ModelPresetNames()) {
    WT_ASSIGN_OR_RETURN(Scenario scenario,
                        ParseScenario(fmt::format("model: {{preset: {}}}", name), name, ".", {}));
    scenario.model.preset.clear();  // the row's name says it already
    Plan plan = OutlineOf(scenario);
    plan.model = StatisticsOf(scenario);
    rows.push_back({name, ModelInWords(plan)});
  }
  return rows;
}

std::vector<Row> Networks() {
  std::vector<Row> rows;
  for (const KnownNetwork& known : kKnownNetworks) {
    const std::string within = known.intra.empty() ? "the device's own links" : std::string(known.intra);
    rows.push_back({std::string(known.name), fmt::format("{} within a node, {} x {:g} Gb/s {} between nodes",
                                                         within, known.cards, known.gbits, known.inter)});
  }
  return rows;
}

std::vector<Row> Links() {
  std::vector<Row> rows;
  for (const KnownLink& link : KnownLinks())
    rows.push_back(
        {std::string(link.kind),
         fmt::format("{:g} GB/s from a device and to it, of which rings reach {:g}{}", link.nominal,
                     link.ring, link.is_mesh ? "; from device to device, without switches" : "")});
  return rows;
}

std::vector<Row> Topologies() {
  std::vector<Row> rows;
  for (const KnownTopology& known : kKnownTopologies) {
    rows.push_back({std::string(known.name),
                    fmt::format("{} nodes a leaf switch, {}", known.nodes_per_leaf,
                                known.has_rails ? "rail-optimised: the nodes' k-th NICs share leaf switches"
                                                : "all NICs of a node on one leaf switch")});
  }
  return rows;
}

std::vector<Row> Frameworks() {
  return {{"windtunnel", "this project's own runtime (the default)"},
          {"pytorch", "PyTorch in eager mode: DDP, FSDP, DTensor"},
          {"pytorch_compile", "PyTorch with torch.compile"},
          {"megatron_core", "Megatron-Core since 2024, with Transformer Engine"},
          {"megatron", "Megatron-LM of 2021"},
          {"deepspeed", "Megatron-DeepSpeed"}};
}

std::vector<Row> SchedulesInWords() {
  return {{"none", "stages in turn, one micro-batch after the other (model parallelism)"},
          {"gpipe", "all forwards, then all backwards"},
          {"1f1b", "one forward, one backward (the default)"},
          {"interleaved", "1F1B over several virtual stages a rank (Megatron)"},
          {"looped_bfs", "breadth-first over several virtual stages a rank"},
          {"zb_h1", "zero bubble H1: gradients of weights fill the bubble"},
          {"zb_v", "zero bubble with two stages a rank in a V"},
          {"dualpipe_v", "DualPipe in a V: forwards and backwards in pairs"}};
}

Result<std::vector<List>> Lists() {
  WT_ASSIGN_OR_RETURN(std::vector<Row> devices, Devices());
  WT_ASSIGN_OR_RETURN(std::vector<Row> models, Models());
  return std::vector<List>{{"devices", "cluster.device", std::move(devices)},
                           {"models", "model.preset", std::move(models)},
                           {"networks", "cluster.network", Networks()},
                           {"links", "cluster.network.intra_node", Links()},
                           {"topologies", "cluster.topology", Topologies()},
                           {"frameworks", "framework", Frameworks()},
                           {"schedules", "parallel.pipeline.schedule", SchedulesInWords()}};
}

std::string Text(const List& list, Ink ink) {
  size_t width = 0;
  for (const Row& row : list.rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{} ({})\n", ink.Bold(list.what), list.key);
  for (const Row& row : list.rows) text += fmt::format("  {:{}}  {}\n", row.name, width, row.description);
  return text;
}

}  // namespace

Result<int> ListCommand(const Options& options) {
  WT_ASSIGN_OR_RETURN(const std::vector<List> lists, Lists());
  std::vector<std::string> known;
  for (const List& list : lists) known.emplace_back(list.what);
  for (const std::string& asked : options.files) {
    if (std::find(known.begin(), known.end(), asked) != known.end()) continue;
    const std::string meant = MeantWord(asked, known);
    return InvalidInput(
        "no list of '{}', {}", asked,
        meant.empty() ? "expected " + JoinWithOr(known) : fmt::format("did you mean '{}'?", meant));
  }
  std::string text;
  for (const List& list : lists) {
    const bool asked = options.files.empty() || std::find(options.files.begin(), options.files.end(),
                                                          list.what) != options.files.end();
    if (!asked) continue;
    if (!text.empty()) text += "\n";
    text += Text(list, StandardInk());
  }
  WT_RETURN_IF_ERROR(Print(text));
  return 0;
}

}  // namespace windtunnel
