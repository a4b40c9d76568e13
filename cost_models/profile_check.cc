#include "cost_models/profile_check.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>

#include "base/ceil_divide.h"
#include "base/format.h"
#include "base/text.h"
#include "cost_models/key_work.h"
#include "topology/link_rates.h"

namespace windtunnel {
namespace {

constexpr Bytes kBeyondCaches = MiB(256);
constexpr double kSpread = 4, kDrift = 1.5;
constexpr Duration kLongEnough = Microseconds(20);  // shorter times spread because of timers and interrupts
constexpr int64_t kFewSamples = 5;
constexpr double kLarger = 1.25;  // of sizes closer to each other, either may be faster

// The upper limits of one rank's device.
struct Limits {
  std::string what;  // "a core", "an NVIDIA H100 SXM5 80 GB"
  bool is_device = false;
  FlopRate peak_fp32, peak_16;
  FlopRate peak_fp8, peak_fp4;
  Bandwidth memory;
  Bandwidth links;

  FlopRate Peak(DType type) const {
    if (type == DType::kFloat8 || type == DType::kMxFloat8) return peak_fp8;
    if (type == DType::kFloat4x2) return peak_fp4;
    return type == DType::kFloat32 || type == DType::kTf32 ? peak_fp32 : peak_16;
  }
};

Bandwidth BytesPerSecond(double rate) { return GBps(rate / 1e9); }

Limits LimitsOfCores(int64_t cores) {
  const double cycles = kCoreClock * static_cast<double>(cores);
  Limits limits;
  limits.what = cores == 1 ? "a core" : fmt::format("{} cores", cores);
  limits.peak_fp32 = FlopRate::FromFlopsPerSecond(kCoreFlopsPerCycle * cycles);
  limits.peak_16 = FlopRate::FromFlopsPerSecond(kCoreFlopsPerCycle16 * cycles);
  limits.peak_fp8 = limits.peak_fp4 = limits.peak_16;
  limits.memory = limits.links = BytesPerSecond(kCoreBytesPerCycle * cycles);
  return limits;
}

Limits LimitsOf(const DeviceSpec& device) {
  Limits limits;
  limits.what = "the datasheet of " + device.name;
  limits.is_device = true;
  // fp32 products may run as tf32.
  limits.peak_fp32 = std::max(device.PeakFor(DType::kFloat32), device.PeakFor(DType::kTf32));
  limits.peak_16 = std::max(device.PeakFor(DType::kBFloat16), device.PeakFor(DType::kFloat16));
  limits.peak_fp8 = device.PeakFor(DType::kFloat8);
  limits.peak_fp4 = device.PeakFor(DType::kFloat4x2);
  limits.memory = device.hbm;
  if (const auto links = IntraNodeRates({}, device.intra_node)) limits.links = links->nominal;
  return limits;
}

std::map<std::string, Limits> LimitsOfKnownDevices() {
  std::map<std::string, Limits> limits;
  for (const std::string& name : EmbeddedProfileNames())
    if (const auto device = ParseDeviceSpec(*EmbeddedProfile(name), name))
      limits.emplace(name, LimitsOf(*device));
  return limits;
}

Limits LessStrict(Limits a, const Limits& b) {
  if (b.memory > a.memory) a.what = b.what;
  for (const auto rate : {&Limits::peak_fp32, &Limits::peak_16, &Limits::peak_fp8, &Limits::peak_fp4})
    a.*rate = std::max(a.*rate, b.*rate);
  for (const auto rate : {&Limits::memory, &Limits::links}) a.*rate = std::max(a.*rate, b.*rate);
  return a;
}

// The words of a text, in lower case, with one space before and behind each.
std::string WordsOf(const std::string& text) {
  std::string words = " ";
  for (const char c : LowerCase(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) words += c;
    else if (words.back() != ' ') words += ' ';
  }
  return words.back() == ' ' ? words : words + ' ';
}

// The model in a device's name: "h200" of "h200-sxm-141g", "rtx 6000 ada" of "rtx-6000-ada-48g".
std::string ModelOf(const std::string& name) {
  return WordsOf(name.substr(0, name.starts_with("rtx-") ? name.rfind('-') : name.find('-')));
}

// The limits of the known device that the profile is named as; or else, of those whose model the profile or
// its machine names, the least strict of each.
std::optional<Limits> LimitsOfMeasuredDevice(const Profile& profile) {
  static const std::map<std::string, Limits> known = LimitsOfKnownDevices();
  if (const auto own = known.find(profile.name); own != known.end()) return own->second;
  std::string names = WordsOf(profile.name);
  for (const auto& [field, value] : profile.machine) names += WordsOf(value);
  std::optional<Limits> found;
  for (const auto& [name, limits] : known) {
    if (names.find(ModelOf(name)) == std::string::npos) continue;
    found = found ? LessStrict(*found, limits) : limits;
  }
  return found;
}

// A lower bound for the share of the message that a device must send or receive, whatever the algorithm, and
// even if switches reduce.
double ShareOnLinks(const std::string& op, int ranks) {
  if (ranks < 2 || op == "barrier") return 0;
  const bool is_part =
      op == "all_gather" || op == "reduce_scatter" || op == "all_to_all" || op == "gather" || op == "scatter";
  return is_part ? (ranks - 1.0) / ranks : 1.0;
}

class Checker {
 public:
  explicit Checker(const Profile& profile) : profile_(profile) {}

  std::vector<ProfileFinding> Check() {
    if (profile_.hardware) {
      CheckDatasheet(*profile_.hardware);
    } else {
      CheckKernels();
      CheckCollectives();
      CheckRest();
    }
    std::stable_partition(findings_.begin(), findings_.end(), [](const auto& f) { return f.impossible; });
    return std::move(findings_);
  }

 private:
  void Impossible(const std::string& where, std::string what) {
    findings_.push_back({true, where, std::move(what)});
  }
  void Suspicious(const std::string& where, std::string what) {
    findings_.push_back({false, where, std::move(what)});
  }

  // The limits of one of `ranks` ranks on a node; nothing for a device that is not known.
  std::optional<Limits> LimitsOfRank(int ranks) const {
    if (profile_.device != "cpu") return LimitsOfMeasuredDevice(profile_);
    return LimitsOfCores(std::max<int64_t>(1, CeilDivide(profile_.cores, ranks)));
  }

  // Collects wide spreads, so that a disturbance of many entries at once is one finding.
  struct Spreads {
    const char* of;
    int64_t entries = 0, wide = 0;
    double widest = 0;
    std::string where = {};
    Duration means{}, medians{};  // together

    void Add(const std::string& entry, const Distribution& time) {
      ++entries;
      means += time.Mean();
      medians += time.p50();
      const double spread = time.p90() / time.p10();
      if (spread <= kSpread || time.p50() < kLongEnough) return;
      ++wide;
      if (spread <= widest) return;
      widest = spread;
      where = entry;
    }
  };
  void Report(const Spreads& spreads) {
    if (spreads.wide == 0) {
      if (spreads.means > spreads.medians.Scaled(kDisturbedMeans))
        Suspicious(spreads.of,
                   fmt::format("their means are {:.1f} times their medians, all together: did something else "
                               "run? measure again",
                               spreads.means / spreads.medians));
      return;
    }
    Suspicious(
        fmt::format("{} of {} {}", spreads.wide, spreads.entries, spreads.of),
        fmt::format(
            "p90 is more than {:g} times p10, {:.1f} times in {}: did something else run? measure again",
            kSpread, spreads.widest, spreads.where));
  }

  bool CheckTime(const std::string& where, const Distribution& time, int64_t count, Spreads& spreads) {
    if (time.values().front() <= Duration()) {
      Impossible(where, "its shortest time is not positive");
      return false;
    }
    spreads.Add(where, time);
    if (count < kFewSamples) Suspicious(where, fmt::format("{} samples only", count));
    return true;
  }

  void CheckFlops(const std::string& where, Flops flops, DType type, Duration time, const Limits& limits) {
    const FlopRate peak = limits.Peak(type);
    if (flops <= Flops(0) || peak <= FlopRate()) return;
    const FlopRate rate = FlopRate::FromFlopsPerSecond(flops.count() / ToSeconds(time));
    if (rate > peak)
      Impossible(where, fmt::format("{} in the median, {} does at most {}", FormatFlopRate(rate), limits.what,
                                    FormatFlopRate(peak)));
  }

  void CheckTraffic(const std::string& where, Bytes traffic, Duration time, const Limits& limits) {
    if (traffic <= Bytes(0) || (limits.is_device && traffic < kBeyondCaches)) return;
    if (const Bandwidth rate = traffic / time; rate > limits.memory)
      Impossible(where, fmt::format("{} in the median, the memory of {} has at most {}",
                                    FormatBandwidth(rate), limits.what, FormatBandwidth(limits.memory)));
  }

  void CheckKernels() {
    std::vector<KeyWork> works;
    Spreads spreads{"kernels"};
    for (const KernelEntry& entry : profile_.kernels) {
      works.emplace_back(entry.key);
      const std::string where = fmt::format("{}, {} ranks", entry.key, entry.ranks);
      if (!CheckTime(where, entry.time, entry.count, spreads)) continue;
      const auto limits = LimitsOfRank(entry.ranks);
      if (!limits) continue;
      CheckFlops(where, works.back().flops, works.back().dtype, entry.time.p50(), *limits);
      CheckTraffic(where, works.back().traffic, entry.time.p50(), *limits);
    }
    Report(spreads);
    for (size_t large = 0; large < works.size(); ++large) {
      for (size_t small = 0; small < works.size(); ++small) {
        const KernelEntry &a = profile_.kernels[small], &b = profile_.kernels[large];
        if (a.ranks != b.ranks || !(b.time.p90() < a.time.p10()) ||
            !works[small].IsSmallerThan(works[large], kLarger))
          continue;
        Suspicious(fmt::format("{}, {} ranks", b.key, b.ranks),
                   fmt::format("p90 {} is less than p10 {} of the smaller {}", FormatDuration(b.time.p90()),
                               FormatDuration(a.time.p10()), a.key));
        break;  // one is enough to look at
      }
    }
  }

  void CheckCollectives() {
    Spreads spreads{"collectives"};
    for (const CollectiveEntry& entry : profile_.collectives) {
      const std::string where = fmt::format("{} {} of {}, {} ranks", entry.op, entry.backend,
                                            FormatBytes(entry.bytes), entry.ranks);
      if (!CheckTime(where, entry.time, entry.count, spreads)) continue;
      CheckLinks(where, entry);
      const double cores = entry.core_time / entry.time.values().back();
      if (profile_.device == "cpu" && cores > static_cast<double>(profile_.cores))
        Impossible(where, fmt::format("a rank spends {} of core time on it, {:.1f} cores' of its longest "
                                      "time {}; the machine has {}",
                                      FormatDuration(entry.core_time), cores,
                                      FormatDuration(entry.time.values().back()), profile_.cores));
      for (const CollectiveEntry& small : profile_.collectives) {
        if (small.op != entry.op || small.backend != entry.backend || small.ranks != entry.ranks ||
            entry.bytes / small.bytes < kLarger)
          continue;
        if (!(entry.time.p90() < small.time.p10())) continue;
        Suspicious(where, fmt::format("p90 {} is less than p10 {} of {}", FormatDuration(entry.time.p90()),
                                      FormatDuration(small.time.p10()), FormatBytes(small.bytes)));
        break;
      }
    }
    Report(spreads);
  }

  void CheckLinks(const std::string& where, const CollectiveEntry& entry) {
    const auto limits = LimitsOfRank(entry.ranks);
    if (!limits) return;
    const Bytes moved(
        static_cast<int64_t>(static_cast<double>(entry.bytes.count()) * ShareOnLinks(entry.op, entry.ranks)));
    if (moved <= Bytes(0) || limits->links <= Bandwidth()) return;
    if (const Bandwidth rate = moved / entry.time.p50(); rate > limits->links)
      Impossible(where, fmt::format("every rank moves {}, {} has at most {}", FormatBandwidth(rate),
                                    limits->what, FormatBandwidth(limits->links)));
  }

  void CheckRest() {
    for (const auto& [ranks, time] : profile_.dispatch) {
      const std::string where = fmt::format("dispatch of an operator, {} ranks", ranks);
      if (time.p50() > Milliseconds(1))
        Suspicious(where, fmt::format("{} in the median, as if the process had to wait for its core",
                                      FormatDuration(time.p50())));
    }
    const double drift = profile_.common_mode[7] / profile_.common_mode[3];  // p90 over p10
    if (drift > kDrift)
      Suspicious(
          "common mode",
          fmt::format("the machine's speed drifts by {:.2f} from p10 to p90: something else ran", drift));
  }

  void CheckDatasheet(const DeviceSpec& device) {
    const Limits limits = LimitsOf(device);
    const auto check_rates = [&](const char* kind, const std::vector<AttentionRate>& rates) {
      for (const AttentionRate& rate : rates) {
        const FlopRate fastest = std::max(rate.forward, rate.backward);
        if (fastest > limits.peak_16)
          Impossible(fmt::format("attention.{}, head_dim {}, seq {}", kind, rate.head_dim, rate.seq),
                     fmt::format("{} is above the peak of {}", FormatFlopRate(fastest),
                                 FormatFlopRate(limits.peak_16)));
      }
    };
    check_rates("flash", device.flash);
    check_rates("flash_1", device.flash_1);
    check_rates("flash_cudnn", device.flash_cudnn);
    check_rates("eager", device.eager);
    for (const MeasuredCollective& measured : device.measured_collectives) CheckMeasured(measured, limits);
    const int most = std::max({device.collectives.channels_intra, device.collectives.channels_inter,
                               device.collectives.channels_nvls});
    if (most >= device.multiprocessors)
      Impossible("collectives",
                 fmt::format("{} channels occupy all {} multiprocessors", most, device.multiprocessors));
    // All kinds once: with one peer, and with the pool.
    const CommunicatorMemorySpec& c = device.communicators;
    const Bytes outside = device.context + c.first + c.further + c.channel * c.peer_channels + c.network;
    if (outside >= device.memory)
      Impossible("outside", fmt::format("{} beyond the allocator leave nothing of {}", FormatBytes(outside),
                                        FormatBytes(device.memory)));
    const FlopRate fp8 = device.PeakFor(DType::kFloat8);
    if (fp8 > FlopRate() && fp8 < limits.peak_16)
      Suspicious("peak_tflops", fmt::format("fp8 ({}) is slower than 16 bits ({})", FormatFlopRate(fp8),
                                            FormatFlopRate(limits.peak_16)));
    if (limits.peak_fp4 > FlopRate() && limits.peak_fp4 < fp8)
      Suspicious("peak_tflops", fmt::format("fp4 ({}) is slower than fp8 ({})",
                                            FormatFlopRate(limits.peak_fp4), FormatFlopRate(fp8)));
    if (limits.peak_16 < limits.peak_fp32)
      Suspicious("peak_tflops",
                 fmt::format("16 bits ({}) are slower than fp32 or tf32 ({})", FormatFlopRate(limits.peak_16),
                             FormatFlopRate(limits.peak_fp32)));
    CheckUnits(device, limits);
  }

  // A figure that is off by a thousand is in another unit. The datasheets here have 37 to 419 FLOPs in 16
  // bits per byte of memory traffic.
  void CheckUnits(const DeviceSpec& device, const Limits& limits) {
    const double balance = limits.peak_16.flops_per_second() / device.hbm.bytes_per_second();
    if (balance < 3 || balance > 6000)
      Suspicious("peak_tflops and hbm_gbytes_per_s",
                 fmt::format("{} for {} in 16 bits, as if one were in another unit",
                             FormatBandwidth(device.hbm), FormatFlopRate(limits.peak_16)));
    if (device.kernel_launch > Microseconds(200))
      Suspicious("kernel_launch_us",
                 fmt::format("{} of host time a kernel", FormatDuration(device.kernel_launch)));
    if (const auto links = IntraNodeRates({}, device.intra_node); !links)
      Impossible("intra_node", fmt::format("'{}' is not a kind of link", device.intra_node));
  }

  void CheckMeasured(const MeasuredCollective& measured, const Limits& limits) {
    for (size_t i = 0; i < measured.rows.size(); ++i) {
      const auto& [bytes, time] = measured.rows[i];
      const std::string where = fmt::format("measured {} of {}, {} ranks on {} nodes", measured.op,
                                            FormatBytes(bytes), measured.ranks, measured.nodes);
      if (time <= Duration()) {
        Impossible(where, "its time is not positive");
        continue;
      }
      const Bandwidth rate = Bytes(static_cast<int64_t>(static_cast<double>(bytes.count()) *
                                                        ShareOnLinks(measured.op, measured.ranks))) /
                             time;
      if (measured.nodes == 1 && limits.links > Bandwidth() && rate > limits.links)
        Impossible(where, fmt::format("every rank moves {}, its links have {}", FormatBandwidth(rate),
                                      FormatBandwidth(limits.links)));
      // Single values, not distributions: a switch of algorithms may gain a tenth.
      if (i > 0 && ToSeconds(time) < 0.8 * ToSeconds(measured.rows[i - 1].second))
        Suspicious(where, fmt::format("{} is less than {} of {}", FormatDuration(time),
                                      FormatDuration(measured.rows[i - 1].second),
                                      FormatBytes(measured.rows[i - 1].first)));
    }
  }

  const Profile& profile_;
  std::vector<ProfileFinding> findings_;
};

}  // namespace

std::vector<ProfileFinding> CheckProfile(const Profile& profile) { return Checker(profile).Check(); }

}  // namespace windtunnel
