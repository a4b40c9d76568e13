// What is left of another program's settings after an importer has read those that it knows.
#pragma once

#include <string_view>

#include "scenarios/importers/draft.h"
#include "scenarios/importers/settings.h"

namespace windtunnel {

// Notes the settings that were not read, in up to three sentences: those that change nothing in a step here
// (a word of `without_effect`; "data_*" stands for all that begin with "data_"), those that are not modelled
// (scenarios/other_names.h says why), and those that are not known.
void NoteRest(const Settings& settings, std::string_view without_effect, Draft& draft);

}  // namespace windtunnel
