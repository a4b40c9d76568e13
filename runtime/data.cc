#include "runtime/data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/read_file.h"
#include "plan/ops.h"

namespace windtunnel {
namespace {

// Distinguish the random streams that share run.seed: parameters take their registration order, from 0 on.
constexpr uint64_t kTokenStream = 1ULL << 40;
constexpr uint64_t kFeatureStream = 2ULL << 40;
constexpr uint64_t kTeacherStream = 3ULL << 40;
constexpr uint64_t kMaskStream = 4ULL << 40;

class TokenSource : public DataSource {
 public:
  void Features(int64_t, std::span<float>, std::span<float>) const override {
    WT_CHECK(!"a transformer's data source has no features");
  }
};

// next = (5 token + 7) mod m in nine cases of ten, else uniform over m = min(vocab, 1024) tokens. The best
// possible loss is about 0.33 + 0.1 ln m nats, against ln vocab of a model that knows nothing.
class SyntheticTokens : public TokenSource {
 public:
  SyntheticTokens(uint64_t seed, int64_t vocab)
      : seed_(seed), used_(static_cast<uint64_t>(std::min<int64_t>(vocab, 1024))) {}

  int64_t size() const override { return kSyntheticSamples; }
  int64_t held_out() const override { return kSyntheticHeldOut; }

  void Tokens(int64_t sample, std::span<int32_t> ids, std::span<int32_t> targets) const override {
    WT_CHECK_EQ(ids.size(), targets.size());
    RandomStream random(seed_, kTokenStream + static_cast<uint64_t>(sample));
    uint64_t token = random.Below(used_);
    for (size_t t = 0; t < ids.size(); ++t) {
      ids[t] = static_cast<int32_t>(token);
      const uint64_t draw = random.Next();
      // The draw's low bits decide on noise, its high half is the noise.
      token = draw % 1000 < 100 ? ((draw >> 32) * used_) >> 32 : (5 * token + 7) % used_;
      targets[t] = static_cast<int32_t>(token);
    }
  }

 private:
  uint64_t seed_;
  uint64_t used_;
};

// Sample i is bytes [i seq, (i + 1) seq] of the file: neighbours share one byte, the last target and the
// first input.
class TextTokens : public TokenSource {
 public:
  TextTokens(std::string text, int64_t seq) : text_(std::move(text)), seq_(seq) {}

  int64_t size() const override { return sequences() - held_out(); }
  int64_t held_out() const override { return sequences() / kHeldOutDivisor; }

  void Tokens(int64_t sample, std::span<int32_t> ids, std::span<int32_t> targets) const override {
    WT_CHECK_EQ(static_cast<int64_t>(ids.size()), seq_);
    WT_CHECK_EQ(static_cast<int64_t>(targets.size()), seq_);
    WT_CHECK_LT(sample, sequences());
    const auto* bytes = reinterpret_cast<const unsigned char*>(text_.data()) + sample * seq_;
    for (int64_t t = 0; t < seq_; ++t) {
      ids[t] = bytes[t];
      targets[t] = bytes[t + 1];
    }
  }

 private:
  int64_t sequences() const { return (static_cast<int64_t>(text_.size()) - 1) / seq_; }

  std::string text_;
  int64_t seq_;
};

// Masks tokens of another source's sequences, which are drawn for each sample anew.
class MaskedTokens : public TokenSource {
 public:
  MaskedTokens(std::unique_ptr<DataSource> whole, const ModelSpec& model, uint64_t seed)
      : whole_(std::move(whole)),
        masked_(static_cast<size_t>(model.MaskedTokens())),
        mask_(static_cast<int32_t>(model.vocab - 1)),
        seed_(seed) {}

  int64_t size() const override { return whole_->size(); }
  int64_t held_out() const override { return whole_->held_out(); }

  void Tokens(int64_t sample, std::span<int32_t> ids, std::span<int32_t> targets) const override {
    whole_->Tokens(sample, ids, targets);
    std::fill(targets.begin(), targets.end(), kNoToken);
    RandomStream random(seed_, kMaskStream + static_cast<uint64_t>(sample));
    size_t left = masked_;
    // Selection sampling: each set of so many positions is equally likely.
    for (size_t t = 0; t < ids.size(); ++t) {
      if (random.Below(ids.size() - t) >= left) continue;
      targets[t] = std::exchange(ids[t], mask_);
      --left;
    }
  }

 private:
  std::unique_ptr<DataSource> whole_;
  size_t masked_;
  int32_t mask_;
  uint64_t seed_;
};

// Inputs are uniform in [-1, 1); every output is a fixed combination of a few inputs, plus a fixed offset.
// Few, so that making a batch costs next to nothing beside training on it.
class Regression : public DataSource {
 public:
  Regression(uint64_t seed, int64_t inputs, int64_t outputs)
      : seed_(seed), inputs_(inputs), outputs_(outputs) {
    RandomStream random(seed, kTeacherStream);
    const float scale = 1.0f / std::sqrt(static_cast<float>(kTerms));
    for (int64_t i = 0; i < outputs * kTerms; ++i)
      terms_.push_back({static_cast<int32_t>(random.Below(static_cast<uint64_t>(inputs))),
                        static_cast<float>(random.Normal()) * scale});
    for (int64_t i = 0; i < outputs; ++i) offsets_.push_back(static_cast<float>(random.Uniform() - 0.5));
  }

  int64_t size() const override { return kSyntheticSamples; }
  int64_t held_out() const override { return kSyntheticHeldOut; }

  void Features(int64_t sample, std::span<float> in, std::span<float> out) const override {
    WT_CHECK_EQ(static_cast<int64_t>(in.size()), inputs_);
    WT_CHECK_EQ(static_cast<int64_t>(out.size()), outputs_);
    const RandomStream random(seed_, kFeatureStream + static_cast<uint64_t>(sample));
    for (int64_t i = 0; i < inputs_; ++i)
      in[i] =
          static_cast<float>(static_cast<int32_t>(random.At(static_cast<uint64_t>(i)) >> 40)) * 0x1.0p-23f -
          1.0f;
    for (int64_t o = 0; o < outputs_; ++o) {
      float sum = offsets_[o];
      for (int t = 0; t < kTerms; ++t)
        sum += in[terms_[o * kTerms + t].input] * terms_[o * kTerms + t].weight;
      out[o] = sum;
    }
  }

  void Tokens(int64_t, std::span<int32_t>, std::span<int32_t>) const override {
    WT_CHECK(!"an MLP's data source has no tokens");
  }

 private:
  static constexpr int kTerms = 4;
  struct Term {
    int32_t input;
    float weight;
  };
  uint64_t seed_;
  int64_t inputs_, outputs_;
  std::vector<Term> terms_;  // kTerms of each output
  std::vector<float> offsets_;
};

// Every rank reads the whole file, more than once. A pipe gives each byte to one reader only, and a device
// may have no end. A missing file, or a directory, gives an error when it is read.
Status CheckIsRegular(const std::string& path) {
  using std::filesystem::file_type;
  std::error_code ignored;
  const auto is = [&](const char* what) {
    return InvalidInput("data: {}: is {}, expected a text file", path, what);
  };
  switch (std::filesystem::status(path, ignored).type()) {
    case file_type::character:
      return is("a character device");
    case file_type::block:
      return is("a block device");
    case file_type::fifo:
      return is("a pipe");
    case file_type::socket:
      return is("a socket");
    default:
      return Ok();
  }
}

Result<std::unique_ptr<DataSource>> MakeTextSource(const Scenario& scenario) {
  const ModelSpec& model = scenario.model;
  const int64_t least = model.causal ? 256 : 257;  // with the mask
  if (model.vocab < least)
    return InvalidInput("data: '{}' is read as bytes, so model.vocab must be at least {}, is {}",
                        scenario.data, least, model.vocab);
  WT_RETURN_IF_ERROR(CheckIsRegular(scenario.data));
  Result<std::string> text = ReadFile(scenario.data, "a text file");
  if (!text) return InvalidInput("data: {}", text.error().message);
  const int64_t tokens = model.SampleTokens();
  if (static_cast<int64_t>(text->size()) < tokens + 1)
    return InvalidInput("data: '{}' has {} bytes; one sample takes {} + 1 = {}", scenario.data, text->size(),
                        model.encoder ? "model.seq_len + model.encoder.seq_len" : "model.seq_len",
                        tokens + 1);
  return std::make_unique<TextTokens>(std::move(*text), tokens);
}

}  // namespace

Result<std::unique_ptr<DataSource>> MakeDataSource(const Scenario& scenario) {
  const ModelSpec& model = scenario.model;
  const bool synthetic = scenario.data == "synthetic";
  if (model.kind == ModelKind::kMlp) {
    if (!synthetic)
      return InvalidInput("data: an MLP trains on 'synthetic' only, '{}' was given", scenario.data);
    return std::make_unique<Regression>(scenario.run.seed, model.widths.front(), model.widths.back());
  }
  const int64_t words = model.causal ? model.vocab : model.vocab - 1;
  std::unique_ptr<DataSource> source = std::make_unique<SyntheticTokens>(scenario.run.seed, words);
  if (!synthetic) {
    WT_ASSIGN_OR_RETURN(source, MakeTextSource(scenario));
  }
  if (model.causal) return source;
  return std::make_unique<MaskedTokens>(std::move(source), model, scenario.run.seed);
}

}  // namespace windtunnel
