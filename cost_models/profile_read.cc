// The profile's strict reader (cost_models/README.md documents the JSON).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cost_models/device_spec.h"
#include "cost_models/json_fields.h"
#include "cost_models/profile.h"
#include "cost_models/profile_entries.h"

namespace windtunnel {
namespace {

KernelEntry ReadKernel(Fields& fields) {
  return {.key = fields.String("key"),
          .ranks = fields.Ranks(),
          .count = fields.Integer("count", 1),
          .time = fields.Times("time_s")};
}

CollectiveEntry ReadCollective(Fields& fields) {
  return {.op = fields.String("op"),
          .backend = fields.String("backend"),
          .ranks = fields.Ranks(),
          .bytes = Bytes(fields.Integer("bytes", 0)),
          .count = fields.Integer("count", 1),
          .time = fields.Times("time_s"),
          .core_time = fields.Time("core_time_s"),
          .collective_rate_under_compute = fields.OptionalRate("collective_rate_under_compute"),
          .compute_rate_under_collective = fields.OptionalRate("compute_rate_under_collective")};
}

OutsideAllocatorEntry ReadOutsideAllocator(Fields& fields) {
  return {.backend = fields.String("backend"),
          .ranks = fields.Ranks(),
          .bytes = Bytes(fields.Integer("bytes", 0))};
}

// With two entries of one identity, chance would decide which one counts.
template <typename Entry>
void RejectTwins(Fields& fields, const std::string& path, std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), Before<Entry>);
  auto same = [](const Entry& a, const Entry& b) { return Identity(a) == Identity(b); };
  auto twin = std::adjacent_find(entries.begin(), entries.end(), same);
  if (twin != entries.end()) fields.Fail(path, "has two entries like " + EntryText(*twin));
}

Profile ReadProfile(Fields& fields) {
  Profile profile{.name = fields.String("name"),
                  .device = fields.String("device"),
                  .fingerprint = fields.String("fingerprint"),
                  .machine = fields.Strings("machine"),
                  .libraries = fields.Strings("libraries"),
                  .created = fields.String("created"),
                  .cores = fields.Integer("cores", 1),
                  .kernels = {},
                  .collectives = {},
                  .dispatch = {},
                  .common_mode = fields.Factors("common_mode"),
                  .outside_allocator = {},
                  .hardware = {}};
  fields.List("dispatch", [&](Fields& f) {
    int ranks = f.Ranks();
    if (profile.dispatch.contains(ranks))
      f.Fail("$.dispatch", fmt::format("has two entries for {} ranks", ranks));
    profile.dispatch[ranks] = f.Times("time_s");
  });
  fields.List("kernels", [&](Fields& f) { profile.kernels.push_back(ReadKernel(f)); });
  fields.List("collectives", [&](Fields& f) { profile.collectives.push_back(ReadCollective(f)); });
  fields.List("outside_allocator",
              [&](Fields& f) { profile.outside_allocator.push_back(ReadOutsideAllocator(f)); });
  RejectTwins(fields, "$.kernels", profile.kernels);
  RejectTwins(fields, "$.collectives", profile.collectives);
  RejectTwins(fields, "$.outside_allocator", profile.outside_allocator);
  return profile;
}

// Wraps a device's datasheet in a profile.
Profile ProfileOf(DeviceSpec device) {
  Profile profile;
  profile.name = device.name;
  profile.device = "cuda";
  profile.fingerprint = device.description;
  profile.hardware = std::move(device);
  return profile;
}

}  // namespace

Result<Profile> ParseProfile(const std::string& json, const std::string& name) {
  WT_ASSIGN_OR_RETURN(nlohmann::json document, ParseJson(json, name, "a hardware profile"));
  std::string error;
  Fields fields(document, "$", error);
  if (document.is_object() && !fields.Has("schema"))
    return InvalidField(
        name, json,
        fmt::format("$.schema is missing, expected \"{}\" or \"{}\"", kDeviceSchema, kProfileSchema));
  std::string schema = fields.String("schema");
  if (error.empty() && schema == kDeviceSchema) {
    WT_ASSIGN_OR_RETURN(DeviceSpec device, ParseDeviceSpec(json, name));
    return ProfileOf(std::move(device));
  }
  if (error.empty() && schema != kProfileSchema) {
    return InvalidField(name, json,
                        fmt::format("$.schema is \"{}\", expected \"{}\" or \"{}\"; measure the profile again "
                                    "with `windtunnel calibrate`",
                                    schema, kProfileSchema, kDeviceSchema));
  }
  Profile profile = ReadProfile(fields);
  fields.RejectOthers();
  if (!error.empty()) return InvalidField(name, json, error);
  return profile;
}

}  // namespace windtunnel
