#include "scenarios/importers/rest.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

TEST(ArePatterns, IsOfWordsInOrderOfWhichNoneCoversAnother) {
  EXPECT_TRUE(ArePatterns("data_* dataset lr save*"));
  EXPECT_FALSE(ArePatterns("lr data_*")) << "not in order";
  EXPECT_FALSE(ArePatterns("lr lr"));
  EXPECT_FALSE(ArePatterns("data_* data_path")) << "covered";
  EXPECT_FALSE(ArePatterns("data_* data_p*")) << "covered";
  EXPECT_FALSE(ArePatterns("save save*")) << "covered";
  EXPECT_FALSE(ArePatterns("is_*_model")) << "a star ends a pattern";
}

TEST(NoteRest, TellsWhatHasNoEffectFromWhatIsNotModelledOrNotKnown) {
  Settings settings("train.sh");
  settings.Add({"lr", "--lr", {"1e-4"}});
  settings.Add({"data_path", "--data-path", {"here"}});
  settings.Add({"loss_parallel", "--loss-parallel", {"true"}});
  settings.Add({"strange", "--strange", {"1"}});
  settings.Ignore({"lr"});
  Draft draft;
  NoteRest(settings, "data_* seed", draft);
  EXPECT_EQ(draft.notes(),
            (std::vector<std::string>{"Not modelled: --loss-parallel true (with tensor ranks, the vocabulary "
                                      "and the loss are always divided among them).",
                                      "Not known, and left out: --strange 1.",
                                      "Without effect here: --data-path."}));
}

}  // namespace
}  // namespace windtunnel
