// What is known of a script's variables while it is read: the values that assignments give them, also those
// that may not run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/importers/shell_expansion.h"

namespace windtunnel {

// How a variable gets a value.
struct AssignmentManner {
  bool is_certain = true;  // false: it is not known whether the assignment runs
  bool is_array = false;   // NAME=(…)
  bool appends = false;    // NAME+=…
};

class ScriptVariables {
 public:
  // Whatever the script assigns, the names of `definitions` keep their values.
  explicit ScriptVariables(const std::map<std::string, std::string>& definitions);

  const ShellVariables& values() const { return values_; }
  bool IsDefined(const std::string& name) const { return definitions_.contains(name); }

  // After an assignment that may not run, the value is not known unless it is as before. Only what it would
  // add to the words of the value is left out, and noted in additions().
  void Set(const std::string& name, std::vector<std::string> value, AssignmentManner how);
  // NAME[INDEX]=… Of another index than that of an element or the next one, the array is not known.
  void SetElement(const std::string& name, std::optional<int64_t> index, const std::string& value,
                  AssignmentManner how);
  // The variable gets a value that is not known.
  void Forget(const std::string& name, bool is_certain);
  void Unset(const std::string& name);

  // The words that assignments would add that may not run, in the script's order.
  const std::vector<std::string>& additions() const { return additions_; }

 private:
  bool NoteAddition(const std::string& before, const std::string& after, bool are_words);

  const std::map<std::string, std::string> definitions_;
  ShellVariables values_;
  std::vector<std::string> additions_;
};

}  // namespace windtunnel
