#include "runtime/data.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <vector>

namespace windtunnel {
namespace {

Scenario Transformer(int64_t vocab, int64_t seq_len, const std::string& data = "synthetic") {
  Scenario scenario;
  scenario.model.kind = ModelKind::kTransformer;
  scenario.model.vocab = vocab;
  scenario.model.seq_len = seq_len;
  scenario.data = data;
  scenario.run.seed = 3;
  return scenario;
}

Scenario Mlp(std::vector<int64_t> widths) {
  Scenario scenario;
  scenario.model.kind = ModelKind::kMlp;
  scenario.model.widths = std::move(widths);
  scenario.run.seed = 3;
  return scenario;
}

struct Sequence {
  std::vector<int32_t> ids, targets;
};

Sequence TokensOf(const DataSource& source, int64_t sample, int64_t seq_len) {
  Sequence sequence;
  sequence.ids.resize(static_cast<size_t>(seq_len));
  sequence.targets.resize(static_cast<size_t>(seq_len));
  source.Tokens(sample, sequence.ids, sequence.targets);
  return sequence;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(SyntheticTokens, TargetsAreTheIdsOneFurtherOnWithinTheVocabulary) {
  for (int64_t vocab : {2, 100, 50257}) {
    auto source = MakeDataSource(Transformer(vocab, 64));
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ((*source)->size(), 65'536);
    const Sequence sequence = TokensOf(**source, 17, 64);
    for (size_t t = 0; t < 64; ++t) {
      EXPECT_GE(sequence.ids[t], 0);
      EXPECT_LT(sequence.ids[t], vocab);
      EXPECT_LT(sequence.targets[t], vocab);
      if (t > 0) {
        EXPECT_EQ(sequence.ids[t], sequence.targets[t - 1]);
      }
    }
  }
}

TEST(SyntheticTokens, ArePureFunctionsOfSeedAndSample) {
  auto a = MakeDataSource(Transformer(500, 32)), b = MakeDataSource(Transformer(500, 32));
  Scenario reseeded = Transformer(500, 32);
  reseeded.run.seed = 4;
  auto c = MakeDataSource(reseeded);
  TokensOf(**a, 1, 32);  // order of use does not matter
  EXPECT_EQ(TokensOf(**a, 5, 32).ids, TokensOf(**b, 5, 32).ids);
  EXPECT_NE(TokensOf(**a, 5, 32).ids, TokensOf(**a, 6, 32).ids);
  EXPECT_NE(TokensOf(**a, 5, 32).ids, TokensOf(**c, 5, 32).ids);
}

// Nine of ten targets follow the rule, so a model that has learned it predicts them.
TEST(SyntheticTokens, CanBeLearned) {
  auto source = MakeDataSource(Transformer(300, 100));
  int follow = 0;
  for (int64_t sample = 0; sample < 100; ++sample) {
    const Sequence sequence = TokensOf(**source, sample, 100);
    for (size_t t = 0; t < 100; ++t) follow += sequence.targets[t] == (5 * sequence.ids[t] + 7) % 300 ? 1 : 0;
  }
  EXPECT_NEAR(follow / 10'000.0, 0.9, 0.02);
}

TEST(TextTokens, AreTheFilesBytes) {
  auto source = MakeDataSource(Transformer(256, 4, WriteFile("bytes.txt", "abcdefghij\xff")));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 2);  // (11 - 1) / 4
  EXPECT_EQ(TokensOf(**source, 0, 4).ids, (std::vector<int32_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(TokensOf(**source, 0, 4).targets, (std::vector<int32_t>{'b', 'c', 'd', 'e'}));
  EXPECT_EQ(TokensOf(**source, 1, 4).targets, (std::vector<int32_t>{'f', 'g', 'h', 'i'}));
  auto high = MakeDataSource(Transformer(256, 10, WriteFile("high.txt", "abcdefghij\xff")));
  EXPECT_EQ(TokensOf(**high, 0, 10).targets.back(), 255);
}

TEST(TextTokens, HoldOutTheLastTenthOfTheSequences) {
  std::string text;
  for (int i = 0; i < 29 * 4 + 1; ++i) text += static_cast<char>('a' + i % 26);
  auto source = MakeDataSource(Transformer(256, 4, WriteFile("held.txt", text)));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 27);
  EXPECT_EQ((*source)->held_out(), 2);
  EXPECT_EQ(TokensOf(**source, 28, 4).targets.back(), text.back());
  auto small = MakeDataSource(Transformer(256, 4, WriteFile("held.txt", text.substr(0, 9 * 4 + 1))));
  EXPECT_EQ((*small)->size(), 9);
  EXPECT_EQ((*small)->held_out(), 0);
}

void ExpectInvalid(const Scenario& scenario, const std::string& part) {
  auto source = MakeDataSource(scenario);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().kind, ErrorKind::kInvalidInput);
  EXPECT_NE(source.error().message.find(part), std::string::npos) << source.error().message;
}

TEST(TextTokens, NamesWhatIsWrong) {
  ExpectInvalid(Transformer(256, 4, "/nowhere/at/all.txt"), "/nowhere/at/all.txt");
  ExpectInvalid(Transformer(256, 4, WriteFile("short.txt", "abcd")),
                "has 4 bytes; one sample takes model.seq_len + 1 = 5");
  ExpectInvalid(Transformer(255, 4, WriteFile("any.txt", "abcdefgh")), "at least 256, is 255");
  ExpectInvalid(Transformer(256, 4, "/dev/zero"),
                "data: /dev/zero: is a character device, expected a text file");
  const std::string pipe = testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // nobody writes: opening it would wait
  ExpectInvalid(Transformer(256, 4, pipe), "is a pipe, expected a text file");
  Scenario mlp = Mlp({2, 2});
  mlp.data = "/some/text.txt";
  ExpectInvalid(mlp, "MLP");
}

TEST(Regression, IsAPureFunctionOfSeedAndSampleWithInputsFromMinusOneToOne) {
  auto source = MakeDataSource(Mlp({8, 100, 3}));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 65'536);
  std::vector<float> in(8), out(3), again(3), other(3);
  (*source)->Features(1, in, out);
  (*source)->Features(2, in, other);
  (*source)->Features(1, in, again);
  EXPECT_EQ(out, again);
  EXPECT_NE(out, other);
  for (float x : in) {
    EXPECT_GE(x, -1.0f);
    EXPECT_LT(x, 1.0f);
  }
}

// A linear model, trained by stochastic gradient descent, reaches the teacher.
TEST(Regression, CanBeLearnedByALinearModel) {
  auto source = MakeDataSource(Mlp({8, 100, 3}));
  double weights[3][9] = {};
  double error = 0;
  for (int64_t sample = 0; sample < 4000; ++sample) {
    std::vector<float> in(8), out(3);
    (*source)->Features(sample, in, out);
    in.push_back(1.0f);  // the offset
    error = 0;
    for (int o = 0; o < 3; ++o) {
      double difference = -out[o];
      for (int i = 0; i < 9; ++i) difference += weights[o][i] * in[i];
      for (int i = 0; i < 9; ++i) weights[o][i] -= 0.1 * difference * in[i];
      error += difference * difference;
    }
  }
  EXPECT_LT(error, 1e-8);
}

}  // namespace
}  // namespace windtunnel
