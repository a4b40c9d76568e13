// The data that a live run trains on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "scenarios/scenario.h"

namespace windtunnel {

class DataSource {
 public:
  virtual ~DataSource() = default;
  // Samples in an epoch.
  virtual int64_t size() const = 0;
  // Samples that training never sees, numbered from size() on.
  virtual int64_t held_out() const = 0;
  // Sequence `sample`: ids[t] is followed by targets[t]; or, of a model that is not causal, targets[t] is the
  // token that is masked in ids[t], or kNoToken if none is. Both have SampleTokens() elements: with an
  // encoder, those of the source come first. REQUIRES: a transformer's source.
  virtual void Tokens(int64_t sample, std::span<int32_t> ids, std::span<int32_t> targets) const = 0;
  // Input features and regression targets of `sample`. REQUIRES: an MLP's source.
  virtual void Features(int64_t sample, std::span<float> in, std::span<float> out) const = 0;
};

// The number of samples in an epoch of a synthetic source, and the number that it holds out.
inline constexpr int64_t kSyntheticSamples = 65'536;
inline constexpr int64_t kSyntheticHeldOut = 256;

// The last tenth of a text's sequences, rounded down, is held out.
inline constexpr int64_t kHeldOutDivisor = 10;

// "synthetic": for a transformer, a noisy recurrence over tokens; for an MLP, a regression on a fixed linear
// teacher. Both can be learned, so a loss that does not fall is a bug. Anything else is a text file, read as
// bytes. For a model that is not causal, ModelSpec::MaskedTokens of each sequence are replaced by the
// vocabulary's last token, the same ones in every epoch. Errors: InvalidInput (a file that cannot be read or
// is shorter than one sample and a byte, a vocabulary below 256, or 257 with masks, text for an MLP).
Result<std::unique_ptr<DataSource>> MakeDataSource(const Scenario& scenario);

}  // namespace windtunnel
