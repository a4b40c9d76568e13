#include "cost_models/device_spec.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "cost_models/json_fields.h"
#include "plan/op.h"
#include "topology/link_rates.h"

namespace windtunnel {
namespace {

constexpr double kMost = 1e9;  // the largest figure in any unit: more is a mistaken unit

Bandwidth ReadGBps(Fields& fields, const std::string& key) { return GBps(fields.Number(key, 1e-3, kMost)); }
Duration ReadMicroseconds(Fields& fields, const std::string& key) {
  return Microseconds(fields.Number(key, 0, 1e6));
}

std::map<std::string, FlopRate> ReadPeaks(Fields& fields) {
  std::map<std::string, FlopRate> peaks;
  for (const char* type : {"fp32", "tf32", "bf16", "fp16", "fp8"})
    peaks[type] = Tflops(fields.NumberOrNull(type, 0, kMost));
  for (const char* type : {"mxfp8", "fp4"})
    if (fields.Has(type)) peaks[type] = Tflops(fields.NumberOrNull(type, 0, kMost));
  return peaks;
}

GemmSpec ReadGemm(Fields& fields) {
  GemmSpec spec{.ceiling = fields.Number("ceiling", 1e-3, 1),
                .tile_m = fields.Integer("tile_m", 1),
                .tile_n = fields.Integer("tile_n", 1),
                .k_overhead = fields.Integer("k_overhead", 0),
                .edge_overhead = fields.Number("edge_overhead", 0, 1e4),
                .batched_factor = fields.Number("batched_factor", 1, 100),
                .fp8_share = fields.Number("fp8_share", 1e-3, 10)};
  if (spec.ceiling * spec.fp8_share > 1)
    fields.Fail(
        "$.gemm.fp8_share",
        fmt::format("is {:g}, at which products in fp8 beat their peak: expected at most {:.3f}, one over "
                    "the ceiling",
                    spec.fp8_share, 1 / spec.ceiling));
  spec.fp8_precise_share = fields.Has("fp8_precise_share")
                               ? fields.Number("fp8_precise_share", 1e-3, spec.fp8_share)
                               : spec.fp8_share;
  if (fields.Has("slowest_ceiling"))
    spec.slowest_ceiling = fields.Number("slowest_ceiling", 1e-3, spec.ceiling);
  if (fields.Has("fp32_ceiling")) spec.fp32_ceiling = fields.Number("fp32_ceiling", 1e-3, 1);
  if (fields.Has("mxfp8_share")) spec.mxfp8_share = fields.Number("mxfp8_share", 1e-3, 1 / spec.ceiling);
  if (fields.Has("fp4_share")) spec.fp4_share = fields.Number("fp4_share", 1e-3, 1 / spec.ceiling);
  constexpr double kMostSlower = 100;
  if (fields.Has("rows_of_16")) spec.rows_of_16 = fields.Number("rows_of_16", 1, kMostSlower);
  if (fields.Has("rows_of_4")) spec.rows_of_4 = fields.Number("rows_of_4", 1, kMostSlower);
  if (fields.Has("rows_of_2")) spec.rows_of_2 = fields.Number("rows_of_2", 1, kMostSlower);
  if (fields.Has("stream_k_waves")) spec.stream_k_waves = fields.Number("stream_k_waves", 0, 100);
  if (fields.Has("tiles")) {
    fields.List("tiles", [&](Fields& f) { spec.tiles.push_back({f.Integer("m", 8), f.Integer("n", 8)}); });
  }
  if (fields.Has("beside_communication"))
    spec.beside_communication = fields.Number("beside_communication", 1e-3, 1);
  return spec;
}

PowerSpec ReadPower(Fields& fields) {
  PowerSpec power{.limit_watts = fields.Number("limit_watts", 1, 1e5)};
  power.attention_watts = fields.Number("attention_watts", 1, power.limit_watts);
  power.memory_watts = fields.Number("memory_watts", 1, power.limit_watts);
  power.most_product_speed = fields.Number("most_product_speed", 1, 100);
  return power;
}

std::vector<AttentionRate> ReadRates(Fields& fields, const std::string& key) {
  std::vector<AttentionRate> rates;
  fields.List(key, [&](Fields& f) {
    AttentionRate rate{f.Integer("head_dim", 1), f.Integer("seq", 1), {}, {}};
    const bool is_together = f.Has("tflops");
    rate.forward = Tflops(f.Number(is_together ? "tflops" : "forward_tflops", 1e-3, kMost));
    rate.backward = is_together ? rate.forward : Tflops(f.Number("backward_tflops", 1e-3, kMost));
    rates.push_back(rate);
  });
  std::sort(rates.begin(), rates.end(), [](const AttentionRate& a, const AttentionRate& b) {
    return std::tie(a.head_dim, a.seq) < std::tie(b.head_dim, b.seq);
  });
  if (rates.empty()) fields.FailAt(key, "is empty, expected rates");
  const auto same = std::adjacent_find(rates.begin(), rates.end(), [](const auto& a, const auto& b) {
    return a.head_dim == b.head_dim && a.seq == b.seq;
  });
  if (same != rates.end())
    fields.FailAt(key, fmt::format("has two rates for head_dim {} and seq {}, expected one", same->head_dim,
                                   same->seq));
  return rates;
}

// The value in `words` that the field names.
template <typename E, size_t N>
E ReadWord(Fields& fields, const std::string& key,
           const std::array<std::pair<std::string_view, E>, N>& words) {
  const std::string word = fields.String(key);
  for (const auto& [name, value] : words) {
    if (name == word) return value;
  }
  std::string expected;
  for (const auto& [name, value] : words) expected += fmt::format(" {}", name);
  fields.Fail("$.collectives." + key, fmt::format("is \"{}\", expected one of{}", word, expected));
  return words.front().second;
}

constexpr int64_t kMostChannels = 1024;

int ReadChannels(Fields& fields, const std::string& key, int64_t least) {
  return static_cast<int>(fields.Integer(key, least, kMostChannels));
}

CollectiveSpec ReadCollectives(Fields& fields) {
  using Generation = std::pair<std::string_view, GpuGeneration>;
  using Cpu = std::pair<std::string_view, HostCpu>;
  CollectiveSpec spec;
  spec.generation = ReadWord(fields, "generation",
                             std::array<Generation, 4>{{{"volta", GpuGeneration::kVolta},
                                                        {"ampere", GpuGeneration::kAmpere},
                                                        {"hopper", GpuGeneration::kHopper},
                                                        {"blackwell", GpuGeneration::kBlackwell}}});
  spec.cpu =
      ReadWord(fields, "host_cpu", std::array<Cpu, 2>{{{"intel", HostCpu::kIntel}, {"amd", HostCpu::kAmd}}});
  spec.channels_intra = ReadChannels(fields, "channels_intra", 1);
  spec.channels_inter = ReadChannels(fields, "channels_inter", 1);
  spec.channels_nvls = ReadChannels(fields, "channels_nvls", 0);
  spec.nvls = GBps(fields.NumberOrNull("nvls_gbytes_per_s", 1e-3, kMost));
  spec.start = ReadMicroseconds(fields, "start_us");
  spec.start_inter = ReadMicroseconds(fields, "start_inter_us");
  return spec;
}

bool IsMeasurable(std::string_view op) {
  for (int kind = 0; kind < static_cast<int>(CollectiveKind::kBarrier); ++kind)
    if (op == Name(static_cast<CollectiveKind>(kind))) return true;
  return false;
}

MeasuredCollective ReadMeasured(Fields& fields) {
  MeasuredCollective measured{.op = fields.String("op"), .ranks = fields.Ranks(), .rows = {}};
  if (!IsMeasurable(measured.op))
    fields.FailAt("op", fmt::format("is \"{}\", expected a collective such as all_reduce", measured.op));
  measured.nodes = static_cast<int>(fields.Integer("nodes", 1, measured.ranks));
  if (measured.nodes > 1) measured.node_bandwidth = ReadGBps(fields, "node_gbytes_per_s");
  fields.List("rows", [&](Fields& f) {
    const Bytes bytes(f.Integer("bytes", 1));
    measured.rows.emplace_back(bytes, ReadMicroseconds(f, "time_us"));
  });
  std::sort(measured.rows.begin(), measured.rows.end());
  if (measured.rows.empty()) fields.FailAt("rows", "is empty, expected measured sizes");
  const auto same = std::adjacent_find(measured.rows.begin(), measured.rows.end(),
                                       [](const auto& a, const auto& b) { return a.first == b.first; });
  if (same != measured.rows.end())
    fields.FailAt("rows", fmt::format("has {} bytes twice, expected once", same->first.count()));
  return measured;
}

DeviceSpec ReadDevice(Fields& fields) {
  DeviceSpec device;
  device.name = fields.String("name");
  device.description = fields.String("description");
  device.memory = Bytes(fields.Integer("memory_bytes", 1));
  device.multiprocessors = fields.Integer("multiprocessors", 1);
  fields.Object("peak_tflops", [&](Fields& f) { device.peaks = ReadPeaks(f); });
  device.hbm = ReadGBps(fields, "hbm_gbytes_per_s");
  device.hbm_efficiency = fields.Number("hbm_efficiency", 1e-3, 1);
  device.kernel_launch = ReadMicroseconds(fields, "kernel_launch_us");
  device.host_slowdown = fields.NumberOr("host_slowdown", 1, 0.1, 10);
  device.kernel_minimum = ReadMicroseconds(fields, "kernel_minimum_us");
  device.speed_spread = fields.NumberOr("speed_spread", 0, 0, 1);
  fields.Object("gemm", [&](Fields& f) { device.gemm = ReadGemm(f); });
  if (fields.Has("power")) fields.Object("power", [&](Fields& f) { device.power = ReadPower(f); });
  if (fields.Has("token_rows")) {
    fields.Object("token_rows", [&](Fields& f) {
      device.token_rows = {.permute = ReadGBps(f, "permute_gbytes_per_s"),
                           .sum_ps_per_element = f.Number("sum_ps_per_element", 0, 1000)};
    });
  }
  fields.Object("attention", [&](Fields& f) {
    device.flash = ReadRates(f, "flash");
    device.flash_1 = f.Has("flash_1") ? ReadRates(f, "flash_1") : device.flash;
    device.flash_cudnn = f.Has("flash_cudnn") ? ReadRates(f, "flash_cudnn") : device.flash;
    device.eager = ReadRates(f, "eager");
  });
  device.intra_node = fields.String("intra_node");
  if (!device.intra_node.empty() && !IntraNodeRates({}, device.intra_node)) {
    std::vector<std::string_view> kinds;
    for (const KnownLink& link : KnownLinks()) kinds.emplace_back(link.kind);
    fields.FailAt("intra_node",
                  fmt::format("is \"{}\", expected one of {}", device.intra_node, fmt::join(kinds, ", ")));
  }
  if (fields.Has("most_devices_per_node"))
    device.most_devices_per_node = fields.Integer("most_devices_per_node", 1);
  if (fields.Has("usual_devices_per_node"))
    device.usual_devices_per_node = fields.Integer("usual_devices_per_node", 1);
  device.host_link = ReadGBps(fields, "host_gbytes_per_s");
  device.card_link =
      fields.Has("card_gbytes_per_s") ? ReadGBps(fields, "card_gbytes_per_s") : device.host_link;
  device.host_memory = ReadGBps(fields, "host_memory_gbytes_per_s");
  if (fields.Has("host_memory_devices"))
    device.host_memory_devices = fields.Integer("host_memory_devices", 1);
  fields.Object("collectives", [&](Fields& f) { device.collectives = ReadCollectives(f); });
  if (fields.Has("measured_collectives"))
    fields.List("measured_collectives",
                [&](Fields& f) { device.measured_collectives.push_back(ReadMeasured(f)); });
  fields.Object("outside", [&](Fields& f) {
    device.context = Bytes(f.Integer("context_bytes", 0));
    CommunicatorMemorySpec& c = device.communicators;
    c.first = Bytes(f.Integer("communicator_bytes", 0));
    constexpr int64_t kMostBytes = 1'000'000'000'000;
    const auto bytes = [&](const char* key) {
      return f.Has(key) ? Bytes(f.Integer(key, 0, kMostBytes)) : Bytes();
    };
    const auto channels = [&](const char* key) { return f.Has(key) ? f.Integer(key, 0, kMostChannels) : 0; };
    c.further = bytes("further_communicator_bytes");
    c.channel = bytes("channel_bytes");
    c.peer_channels = channels("peer_channels");
    c.network_peer_channels = channels("network_peer_channels");
    c.network = bytes("network_bytes");
  });
  device.sources = fields.Strings("sources");
  return device;
}

// Requires a source for each field, or for each figure in it ("collectives.start_us").
void RequireSources(const nlohmann::json& document, Fields& fields) {
  const std::map<std::string, std::string> sources = fields.Strings("sources");
  for (const auto& item : document.items()) {
    const std::string& key = item.key();
    if (key == "schema" || key == "base" || key == "name" || key == "description" || key == "sources")
      continue;
    if (sources.contains(key)) continue;
    if (!item.value().is_object())
      fields.Fail("$.sources." + key, "is missing: every figure names its source");
    for (const auto& part : item.value().items()) {
      if (!sources.contains(key + "." + part.key()))
        fields.Fail("$.sources." + key + "." + part.key(), "is missing: every figure names its source");
    }
  }
}

// Multiplies the rates of an attention kernel.
void Scale(nlohmann::json& rates, double factor) {
  for (nlohmann::json& rate : rates)
    for (const char* key : {"tflops", "forward_tflops", "backward_tflops"})
      if (rate.contains(key)) rate[key] = rate[key].get<double>() * factor;
}

// A device's figure at a JSON pointer; 0 if there is none.
double FigureAt(const char* pointer, const nlohmann::json& device) {
  const nlohmann::json::json_pointer place(pointer);
  return device.contains(place) && device.at(place).is_number() ? device.at(place).get<double>() : 0;
}

// The ratio of two devices' figures; 1 unless both have one.
double RatioAt(const char* pointer, const nlohmann::json& device, const nlohmann::json& base) {
  const double own = FigureAt(pointer, device), of_base = FigureAt(pointer, base);
  return own > 0 && of_base > 0 ? own / of_base : 1;
}

// Objects are merged; whatever else is of another kind is the reader's to refuse.
void Merge(const nlohmann::json& changes, nlohmann::json& into) {
  for (const auto& [key, value] : changes.items()) {
    if (value.is_object() && into.contains(key) && into[key].is_object()) Merge(value, into[key]);
    else into[key] = value;
  }
}

// Products are slower under a lower limit than the base's, by nobody knows how much.
void CheckPower(const nlohmann::json& base, const nlohmann::json& changes, Fields& fields) {
  const nlohmann::json power = changes.value("power", nlohmann::json::object());
  const double limit = FigureAt("/limit_watts", power), of_base = FigureAt("/power/limit_watts", base);
  if (limit <= 0 || limit >= of_base) return;
  const bool has_all = FigureAt("/gemm/ceiling", changes) > 0 && FigureAt("/attention_watts", power) > 0 &&
                       FigureAt("/memory_watts", power) > 0;
  if (!has_all)
    fields.Fail(
        "$.power.limit_watts",
        fmt::format("is {:g}, less than the {:g} of {}: expected gemm.ceiling, which is measured under "
                    "that limit, and power.attention_watts and power.memory_watts of at most the limit",
                    limit, of_base, base.value("name", "the base")));
}

// `changes` over the base that they name. Attention that they do not give keeps its share: of the peak in
// bf16 (fp16 if one of them has no bf16), unfused of memory's bandwidth. Collectives that were measured are
// not those of other links. A ceiling of one's own is that of one machine.
nlohmann::json OverBase(const nlohmann::json& base, const nlohmann::json& changes) {
  nlohmann::json device = base;
  Merge(changes, device);
  device.erase("base");
  const bool both_have_bf16 =
      FigureAt("/peak_tflops/bf16", device) > 0 && FigureAt("/peak_tflops/bf16", base) > 0;
  const double of_peak = RatioAt(both_have_bf16 ? "/peak_tflops/bf16" : "/peak_tflops/fp16", device, base);
  const double of_memory = RatioAt("/hbm_gbytes_per_s", device, base);
  if (nlohmann::json& attention = device["attention"]; attention.is_object()) {
    const nlohmann::json given = changes.value("attention", nlohmann::json::object());
    for (const auto& rates : attention.items())
      if (!given.contains(rates.key())) Scale(rates.value(), rates.key() == "eager" ? of_memory : of_peak);
  }
  const nlohmann::json products = changes.value("gemm", nlohmann::json::object());
  if (products.contains("ceiling") && !products.contains("slowest_ceiling"))
    device["gemm"].erase("slowest_ceiling");
  const bool has_other_links = changes.contains("intra_node") || changes.contains("collectives");
  if (has_other_links && !changes.contains("measured_collectives")) device.erase("measured_collectives");
  return device;
}

// A known device, whole: some are changes of others.
Result<nlohmann::json> KnownDevice(const std::string& name) {
  WT_ASSIGN_OR_RETURN(nlohmann::json device, ParseJson(*EmbeddedProfile(name), name, "a hardware profile"));
  if (!device.contains("base")) return device;
  WT_ASSIGN_OR_RETURN(const nlohmann::json base, KnownDevice(device["base"].get<std::string>()));
  return OverBase(base, device);
}

// The known device that a document (of text `json`) names, which it must not pass itself off as.
Result<nlohmann::json> BaseOf(Fields& fields, const std::string& json) {
  const std::string base = fields.String("base"), name = fields.String("name");
  fields.String("description");
  if (!EmbeddedProfile(base)) {
    const std::vector<std::string> known = EmbeddedProfileNames();
    fields.FailAt("base", fmt::format("is \"{}\", expected one of {}", base, fmt::join(known, ", ")));
    return nlohmann::json();
  }
  if (const auto known = EmbeddedProfile(name); known && *known != json)
    fields.FailAt("name", fmt::format("is \"{}\", expected a name that is not a known device's", name));
  return KnownDevice(base);
}

}  // namespace

FlopRate DeviceSpec::PeakFor(DType dtype) const {
  auto found = peaks.find(std::string(Name(dtype)));
  return found == peaks.end() ? FlopRate() : found->second;
}

Result<DeviceSpec> ParseDeviceSpec(const std::string& json, const std::string& name) {
  WT_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json, name, "a hardware profile"));
  std::string error;
  Fields fields(document, "$", error);
  std::string schema = fields.String("schema");
  if (error.empty() && schema != kDeviceSchema)
    return InvalidField(name, json,
                        fmt::format("$.schema is \"{}\", expected \"{}\"", schema, kDeviceSchema));
  const bool has_base = fields.Has("base");
  nlohmann::json whole = document;
  if (has_base) {
    WT_ASSIGN_OR_RETURN(const nlohmann::json base, BaseOf(fields, json));
    if (error.empty()) CheckPower(base, document, fields);
    if (!error.empty()) return InvalidField(name, json, error);
    whole = OverBase(base, document);
  }
  Fields all(whole, "$", error);
  all.String("schema");
  DeviceSpec device = ReadDevice(all);
  all.RejectOthers();
  if (error.empty()) RequireSources(document, fields);
  if (!error.empty()) return InvalidField(name, json, error);
  device.json = has_base ? whole.dump(2) : json;
  return device;
}

}  // namespace windtunnel
