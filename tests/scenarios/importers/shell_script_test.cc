#include "scenarios/importers/shell_script.h"

#include <gtest/gtest.h>

namespace windtunnel {
namespace {

std::string Shown(const ShellCommand& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "[" : " [") + word + "]";
  for (char& c : text) c = c == '\x01' ? '<' : c == '\x02' ? '>' : c;
  return text;
}

// The words of the only command that would run, with spaces between them and what is not known as "<NAME>".
std::string CommandOf(const std::string& script, const std::map<std::string, std::string>& definitions = {}) {
  const ShellScript read = ReadShellScript(script, definitions);
  if (read.commands.size() != 1) return std::to_string(read.commands.size()) + " commands";
  return Shown(read.commands[0]);
}

// The words of the last command, as CommandOf()'s.
std::string LastOf(const std::string& script) {
  const std::vector<ShellCommand> commands = ReadShellScript(script, {}).commands;
  return commands.empty() ? "" : Shown(commands.back());
}

TEST(ShellScript, ExpandsVariablesAsShellsDo) {
  EXPECT_EQ(CommandOf("A=1\nB=\"$A 2\"\nrun $B \"$B\" '$B' ${A}x"), "[run] [1] [2] [1 2] [$B] [1x]");
  EXPECT_EQ(CommandOf("run ${X:-7} ${Y-} \"${Y-}\" z"), "[run] [7] [] [z]");
  EXPECT_EQ(CommandOf("export N=4 M=2; run $((N * (M + 1) / 3)) $(( $N - 6 ))"), "[run] [4] [-2]");
  EXPECT_EQ(CommandOf("A=x\nA+=y\nrun --a=$A"), "[run] [--a=xy]");
}

// bash reads 010 as octal, and refuses 08.
TEST(ShellScript, TakesNoNumberWithAZeroBeforeIt) {
  EXPECT_EQ(CommandOf("run $((010)) $((0 + 10))"), "[run] [<((010))>] [10]");
  EXPECT_EQ(CommandOf("N=08 M=-010\nrun $((N)) $((M * 2))"), "[run] [<((N))>] [<((M * 2))>]");
}

TEST(ShellScript, KnowsArraysContinuedLinesAndComments) {
  const std::string script =
      "ARGS=(\n  --a 1  # one\n  --b \"x y\"\n)\nARGS+=(--c)\n# run nothing\nrun \\\n  \"${ARGS[@]}\" "
      "${ARGS[@]}\n";
  EXPECT_EQ(CommandOf(script), "[run] [--a] [1] [--b] [x y] [--c] [--a] [1] [--b] [x] [y] [--c]");
  // In an assignment the elements become one text.
  EXPECT_EQ(CommandOf("A=(--a 1)\nB=\"run ${A[@]} --b\"\n$B"), "[run] [--a] [1] [--b]");
}

TEST(ShellScript, DecidesTestsOfKnownValues) {
  const std::string script =
      "if [ $SIZE = big ]; then H=8; elif [[ $SIZE == small ]]; then H=2; else H=0; fi\nrun $H";
  EXPECT_EQ(CommandOf(script, {{"SIZE", "big"}}), "[run] [8]");
  EXPECT_EQ(CommandOf(script, {{"SIZE", "small"}}), "[run] [2]");
  EXPECT_EQ(CommandOf(script, {{"SIZE", "other"}}), "[run] [0]");
  EXPECT_EQ(CommandOf(script), "[run] [<H>]");
  EXPECT_EQ(CommandOf("N=3\nif [ $N -gt 2 ]; then\n  if [ -z \"\" ]; then A=1; fi\nelse\n  A=2\nfi\nrun $A"),
            "[run] [1]");
  EXPECT_EQ(CommandOf("X=a\n[ $X = b ] && Y=1\n[ $X = a ] && Y=2\nrun $Y"), "[run] [2]");
}

TEST(ShellScript, KnowsNegationAndCommandsInARow) {
  const std::string script =
      "if ! [ -z \"$X\" ]; then A=1; else A=2; fi\nif [[ ! \"$X\" == a ]]; then B=1; else B=2; fi\nrun $A $B";
  EXPECT_EQ(CommandOf(script, {{"X", "a"}}), "[run] [1] [2]");
  EXPECT_EQ(CommandOf(script, {{"X", ""}}), "[run] [2] [1]");
  const ShellScript read = ReadShellScript("mkdir -p out && A=1\ncd out || A=2\nrun $A", {});
  EXPECT_EQ(read.commands.back(), (ShellCommand{"run", std::string("\x01") + "A\x02"}))
      << "cd may have failed";
  EXPECT_EQ(ReadShellScript("mkdir -p out && A=1\nrun $A", {}).commands.back(), (ShellCommand{"run", "1"}));
  EXPECT_EQ(CommandOf("if [[ $P = 1 && 2 = 2 ]]; then A=1; fi\nrun $A"), "[run] [<A>]")
      << "several conditions";
}

TEST(ShellScript, CombinesTheTestsOfACondition) {
  const auto taken = [](const std::string& condition) {
    return CommandOf("K=a\nif " + condition + "; then A=1; else A=2; fi\nrun $A");
  };
  EXPECT_EQ(taken("[[ $U == x ]] || [[ $K == a ]] || [[ -z $K ]]"), "[run] [1]") << "one suffices";
  EXPECT_EQ(taken("[[ $K == a ]] || [[ $U == x ]]"), "[run] [1]");
  EXPECT_EQ(taken("[ $K = b ] || [ $U = x ]"), "[run] [<A>]");
  EXPECT_EQ(taken("[ $K = b ] && [ $U = x ]"), "[run] [2]");
  EXPECT_EQ(taken("[ $K = a ] &&\n [ a = a ]"), "[run] [1]");
  EXPECT_EQ(taken("[ $K = a ] && grep -q a file"), "[run] [<A>]");
  EXPECT_EQ(taken("[[ -z $K || $K == a ]]"), "[run] [1]");
  EXPECT_EQ(taken("[[ -z $K || $K == b && $U == x ]]"), "[run] [2]") << "&& binds more tightly";
  EXPECT_EQ(taken("[[ $U == x || $K == b ]]"), "[run] [<A>]");
  EXPECT_EQ(taken("[[ ! -z $K && ! $K == b ]]"), "[run] [1]");
  EXPECT_EQ(taken("[[ ( $K == a ) ]]"), "[run] [<A>]") << "groups";
  EXPECT_EQ(taken("true"), "[run] [1]");
  EXPECT_EQ(taken("(false)"), "[run] [2]");
}

TEST(ShellScript, DecidesArithmeticConditions) {
  const auto taken = [](const std::string& condition) {
    return CommandOf("SP=0 TP=4\nif " + condition + "; then A=1; else A=2; fi\nrun $A");
  };
  EXPECT_EQ(taken("((SP))"), "[run] [2]");
  EXPECT_EQ(taken("((TP))"), "[run] [1]");
  EXPECT_EQ(taken("((0))"), "[run] [2]");
  EXPECT_EQ(taken("(( SP == 1 ))"), "[run] [2]");
  EXPECT_EQ(taken("((TP > 1 && !SP))"), "[run] [1]");
  EXPECT_EQ(taken("! ((SP))"), "[run] [1]");
  EXPECT_EQ(taken("((SP)) || ((TP >= 4))"), "[run] [1]");
  EXPECT_EQ(taken("((U))"), "[run] [<A>]");
  EXPECT_EQ(taken("((TP << 1))"), "[run] [<A>]") << "shifts are not known";
  EXPECT_EQ(CommandOf("SP=0\nif false; then A=1; elif ((SP)); then A=2; else A=3; fi\nrun $A"), "[run] [3]");
  EXPECT_EQ(CommandOf("A=1\n((A == 2)) && A=2\n((A == 1)) && B=3\n((U)) && A=4\nrun $A $B"),
            "[run] [<A>] [3]");
  EXPECT_EQ(CommandOf("N=4\n((N *= 2))\n((N++))\nrun $N"), "[run] [9]");
}

TEST(ShellScript, KnowsTheAssignmentsOfArithmetic) {
  EXPECT_EQ(CommandOf("N=4\n((++N))\n((N <<= 1))\n((M = -N))\nrun $N $M"), "[run] [10] [-10]");
  EXPECT_EQ(CommandOf("N=4\nM=$((N++)) K=$((--N))\nrun $N $M $K"), "[run] [4] [4] [4]");
  EXPECT_EQ(CommandOf("N=4\nlet N=N+1 \"N *= 2\"\nlet N-- || N=0\nrun $N"), "[run] [9]");
  EXPECT_EQ(CommandOf("N=0\n((N++)) || N=8\nrun $N"), "[run] [8]") << "what N was before is the truth";
  EXPECT_EQ(CommandOf("N=0\n((++N)) || N=8\nrun $N"), "[run] [1]");
  EXPECT_EQ(CommandOf("N=0\nif ((N += 1)); then M=2; fi\nrun $N $M"), "[run] [1] [2]");
  EXPECT_EQ(CommandOf("N=0\nif true; then :; elif ((N += 1)); then :; fi\nrun $N"), "[run] [0]");
}

TEST(ShellScript, ForgetsWhatIsAssignedInWaysThatItDoesNotKnow) {
  EXPECT_EQ(CommandOf("N=4 M=4\n((N |= 1, M = 2))\nrun $N $M"), "[run] [<N>] [<M>]");
  EXPECT_EQ(CommandOf("N=4 M=4\n((N == 4 && (M = 8)))\nrun $N $M"), "[run] [4] [<M>]");
  EXPECT_EQ(CommandOf("N=4\nif [ $U = 1 ] && ((N++)); then :; fi\nrun $N"), "[run] [<N>]");
  EXPECT_EQ(CommandOf("N=4\nwhile ((N++ < 8)); do :; done\nrun $N"), "[run] [<N>]");
  EXPECT_EQ(LastOf("N=4 M=2\nread -r N M < file\nrun $N $M"), "[run] [<N>] [<M>]");
  EXPECT_EQ(LastOf("A=(1 2)\nmapfile -t A < file\nrun ${A[@]}"), "[run] [<A>]");
  EXPECT_EQ(LastOf("N=4 M=2\nprintf -v N '%d' M\nrun $N $M"), "[run] [<N>] [2]");
  EXPECT_EQ(LastOf("N=4 M=2\nunset N\n[ $U = 1 ] && unset M\nrun ${N:-3} $N $M"), "[run] [3] [<N>] [<M>]");
}

TEST(ShellScript, AssignsToElementsOfArrays) {
  EXPECT_EQ(CommandOf("A=(1 2)\nA[1]=8\nA[2]=9\nA[0]+=0\nrun ${A[@]}"), "[run] [10] [8] [9]");
  EXPECT_EQ(CommandOf("A=(1 2)\nA[$U]=8\nrun ${A[@]}"), "[run] [<A>]");
  EXPECT_EQ(CommandOf("A=(1 2)\nA[7]=8\nrun ${A[@]}"), "[run] [<A>]");
}

TEST(ShellScript, KnowsTheOperatorsOfArithmetic) {
  EXPECT_EQ(CommandOf("run $((2 ** 10)) $((2 ** 3 ** 2)) $((-2 ** 2)) $((3 * 2 ** 2))"),
            "[run] [1024] [512] [4] [12]");
  EXPECT_EQ(CommandOf("run $((7 - 2 - 1)) $((1 < 2)) $((2 <= 1)) $((1 != 1 || 3 == 3)) $((1 + 2 > 2 && 0))"),
            "[run] [4] [1] [0] [1] [0]");
  EXPECT_EQ(CommandOf("run $((2 ** 64)) $((1 & 1)) $((2 ** -1))"),
            "[run] [<((2 ** 64))>] [<((1 & 1))>] [<((2 ** -1))>]");
}

TEST(ShellScript, EndsListsThatAndJoinsAtTheFirstFailure) {
  EXPECT_EQ(CommandOf("A=1\n[ a = b ] && [ a = a ] && A=2\nrun $A"), "[run] [1]");
  EXPECT_EQ(CommandOf("A=1\n[ a = b ] && A=2 || A=3\nrun $A"), "[run] [3]");
  EXPECT_EQ(CommandOf("A=1 B=1\n[ a = b ] && { A=2; B=2; }\nrun $A $B"), "[run] [1] [1]");
  EXPECT_EQ(CommandOf("A=1\n[ a = b ] || {\n  A=2\n}\nrun $A"), "[run] [2]");
  EXPECT_EQ(CommandOf("A=1\n[ $U = b ] && { A=2; } || A=3\nrun $A"), "[run] [<A>]");
}

TEST(ShellScript, TellsTheBracesOfFunctionsFromThoseOfGroups) {
  for (const char* function :
       {"function f {\n:\n}", "f () {\n:\n}", "f() {\n:\n}", "function f () {\n:\n}", "function f\n{\n:\n}"})
    EXPECT_EQ(CommandOf(std::string("A=1 N=2\n[ $A = 2 ] && {\n") + function + "\nN=4\n}\nrun $N"),
              "[run] [2]")
        << function;
  EXPECT_EQ(CommandOf("function f {\n  run 1\n}"), "[run] [1]");
}

TEST(ShellScript, TakesTheBranchOfACase) {
  const std::string script =
      "case \"$SIZE\" in\n  7b|8b) L=32 ;;\n  13b ) L=40\n    H=5120 ;;  # more\n  (70*) L=80;;\n"
      "  *) L=0;;\nesac\nrun $L";
  EXPECT_EQ(CommandOf(script, {{"SIZE", "7b"}}), "[run] [32]");
  EXPECT_EQ(CommandOf(script, {{"SIZE", "8b"}}), "[run] [32]");
  EXPECT_EQ(CommandOf(script, {{"SIZE", "13b"}}), "[run] [40]");
  EXPECT_EQ(CommandOf(script, {{"SIZE", "70b"}}), "[run] [80]");
  EXPECT_EQ(CommandOf(script, {{"SIZE", "x"}}), "[run] [0]");
  EXPECT_EQ(CommandOf(script), "[run] [<L>]");
  EXPECT_EQ(CommandOf("X=b; case $X in a) A=1;; b) case $X in b) A=2;; esac;; c) A=3;; esac; run $A"),
            "[run] [2]");
  EXPECT_EQ(CommandOf("case b in '*') A=1;; \"b\") A=2; esac; run $A"), "[run] [2]") << "what is quoted";
}

TEST(ShellScript, ComparesWithPatterns) {
  const auto taken = [](const std::string& condition) {
    return CommandOf("M=llama-7b\nif " + condition + "; then A=1; else A=2; fi\nrun $A");
  };
  EXPECT_EQ(taken("[[ $M == *7b ]]"), "[run] [1]");
  EXPECT_EQ(taken("[[ $M == llama* && $M != *13b ]]"), "[run] [1]");
  EXPECT_EQ(taken("[[ $M == \"*7b\" ]]"), "[run] [2]") << "what is quoted stands for itself";
  EXPECT_EQ(taken("[[ $M == l[a-z]ama-?b ]]"), "[run] [1]");
  EXPECT_EQ(taken("[[ $M == [!l]* ]]"), "[run] [2]");
  EXPECT_EQ(taken("[[ $M == @(a|b) ]]"), "[run] [<A>]") << "extended patterns";
  EXPECT_EQ(taken("[ $M = '*7b' ]"), "[run] [2]");
}

TEST(ShellScript, TakesOffWhatAPatternMatches) {
  EXPECT_EQ(CommandOf("F=a/b.c.d\nrun ${F%.*} ${F%%.*} ${F#*/} ${F##*.} ${F%x}"),
            "[run] [a/b.c] [a/b] [b.c.d] [d] [a/b.c.d]");
  EXPECT_EQ(CommandOf("N=4096M E=M\nrun ${N%$E} ${N%?} ${U%x}"), "[run] [4096] [4096] [<U%x>]");
  EXPECT_EQ(CommandOf("A=(1 2 3)\nrun ${A[1]} ${A[5]:-x}"), "[run] [2] [<A[5]:-x>]");
}

TEST(ShellScript, KnowsDeclarationsAndDefaultsThatAreAssigned) {
  EXPECT_EQ(CommandOf(": ${TP:=4} \"${PP:=2}\"\nrun $TP $PP"), "[run] [4] [2]");
  EXPECT_EQ(CommandOf("if [ $U = 1 ]; then : ${TP:=4}; fi\nrun $TP"), "[run] [<TP>]");
  EXPECT_EQ(
      CommandOf("declare -i N=2*4\ntypeset -r M=3\nexport A B=5\ndeclare -a L=(1 2)\nrun $N $M $B ${L[@]}"),
      "[run] [8] [3] [5] [1] [2]");
}

TEST(ShellScript, TakesALoopOverOneValueAsAPartOfTheScript) {
  EXPECT_EQ(CommandOf("for TP in 2; do A=$TP; done\nrun $A"), "[run] [2]");
  EXPECT_EQ(CommandOf("TP=1\nfor TP in 1 2 4; do run $TP; done"), "[run] [<TP>]") << "not the value before";
  EXPECT_EQ(CommandOf("for ((i = 0; i < 2; i++)); do A=1; done\nrun $A"), "[run] [<A>]");
  EXPECT_EQ(CommandOf("A=1\nwhile getopts 'a:' O; do case $O in a) A=$OPTARG;; esac; done\nrun $A"),
            "[run] [1]")
      << "the script is taken to have no arguments";
}

TEST(ShellScript, DoesNotKnowWhatDependsOnWhetherAVariableIsSet) {
  EXPECT_EQ(CommandOf("X=1 E=\nrun ${U:+--a} ${X:+--b} ${E:+--c} ${E+--d}"), "[run] [<U:+--a>] [--b] [--d]");
  EXPECT_EQ(CommandOf("A=$U B=x$U\nrun ${A:+--a} ${B:+--b}"), "[run] [<A:+--a>] [--b]");
}

TEST(ShellScript, DoesNotKeepTextsThatDouble) {
  std::string script = "A=12345678\n";
  for (int i = 0; i < 40; ++i) script += "A=$A$A\n";
  EXPECT_LT(CommandOf(script + "run $A").size(), size_t{1} << 20);
}

TEST(ShellScript, MakesNoWordOfNoArguments) {
  EXPECT_EQ(CommandOf("E=()\nrun --a 1 \"$@\" \"${E[@]}\" \"${@}\" $@ ${E[@]}"), "[run] [--a] [1]");
  EXPECT_EQ(CommandOf("E=() X=\nrun \"$X\" \"\" '' \"$*\" a\"$@\""), "[run] [] [] [] [] [a]");
}

TEST(ShellScript, KeepsWhatIsNotKnownInOnePiece) {
  EXPECT_EQ(CommandOf("A=\"$(cat <<EOF\n--a 1\nEOF\n)\"\nrun $A --b $(echo \"2 * 3\" | bc)"),
            "[run] [<(cat <<EOF\n--a 1\nEOF\n)>] [--b] [<(echo \"2 * 3\" | bc)>]");
  EXPECT_EQ(WithUnknownShown("a \x01(b <<X\n c\tX)\x02 d"), "a $(b <<X c X) d");
}

TEST(ShellScript, LeavesOutWhatUnknownConditionsAddAndSaysSo) {
  const ShellScript read =
      ReadShellScript("ARGS=\"--a 1\"\nif [ $P = 1 ]; then\n  ARGS=\"$ARGS --profile\"\nfi\nrun $ARGS", {});
  ASSERT_EQ(read.commands.size(), 1u);
  EXPECT_EQ(read.commands[0], (ShellCommand{"run", "--a", "1"}));
  EXPECT_EQ(read.conditional, std::vector<std::string>{"--profile"});
}

TEST(ShellScript, TakesNoOtherValueForAnAddition) {
  const auto after = [](const std::string& before, const std::string& assignment) {
    const ShellScript read =
        ReadShellScript(before + "\nif [ -f hosts ]; then " + assignment + "; fi\nrun \"${N[@]}\"", {});
    return Shown(read.commands.back()) + (read.conditional.empty() ? "" : " + " + read.conditional[0]);
  };
  EXPECT_EQ(after("N=1", "N=16"), "[run] [<N>]");
  EXPECT_EQ(after("N=2", "N=20"), "[run] [<N>]");
  EXPECT_EQ(after("N='--n 1'", "N='--n 16'"), "[run] [<N>]");
  EXPECT_EQ(after("N=4", "N=$(echo 2 4 8)"), "[run] [<N>]");
  EXPECT_EQ(after("N='--n 1'", "N=\"$N --a\""), "[run] [--n 1] + --a");
  EXPECT_EQ(after("N=--a", "N=\"--b $N\""), "[run] [--a] + --b");
  EXPECT_EQ(after("N=", "N=16"), "[run] [<N>]");
  EXPECT_EQ(after("N=", "N=\"$N --a\""), "[run] [] + --a");
  EXPECT_EQ(after("N=()", "N+=(a b)"), "[run] + a b");
}

TEST(ShellScript, MarksWhatItCannotKnow) {
  EXPECT_EQ(CommandOf("run $X ${1} $(nproc) `date`"), "[run] [<X>] [<1>] [<(nproc)>] [<`date`>]");
  EXPECT_EQ(CommandOf("for N in 1 2; do A=$N; done\nrun $A"), "[run] [<A>]");
  EXPECT_EQ(CommandOf("A=1\nA=2\nrun $A", {{"A", "3"}}), "[run] [3]") << "a definition comes first";
}

TEST(ShellScript, SkipsHereDocumentsAndRedirections) {
  EXPECT_EQ(CommandOf("A=1\ncat <<EOF > conf.json\n{\"a\": $A, \"run\": 1}\nEOF\n").substr(0, 5), "[cat]");
  for (const char* behind : {">hosts", "|tee hosts", "&", "<input"}) {
    const ShellScript read = ReadShellScript(std::string("cat <<EOF") + behind + "\na b\nEOF\nrun --a 1", {});
    ASSERT_FALSE(read.commands.empty()) << behind;
    EXPECT_EQ(read.commands.back(), (ShellCommand{"run", "--a", "1"})) << behind;
  }
  EXPECT_EQ(CommandOf("run --a 1 > log.txt 2>&1"), "[run] [--a] [1]");
  EXPECT_EQ(CommandOf("run <input>log --a 1"), "[run] [--a] [1]");
}

TEST(ShellScript, TakesSlurmsOptionsAndTheVariablesOfThem) {
  const auto options = [](const std::string& line) {
    std::string text;
    for (const Setting& option : ReadShellScript("#!/bin/bash\n#SBATCH " + line, {}).slurm_options) {
      text += (text.empty() ? "" : ", ") + option.name + " (" + option.shown + ")";
      for (const std::string& value : option.values) text += " " + value;
    }
    return text;
  };
  EXPECT_EQ(options("--nodes=4 --exclusive"), "nodes (--nodes) 4, exclusive (--exclusive)");
  EXPECT_EQ(options("--nodes 4 --mem 0"), "nodes (--nodes) 4, mem (--mem) 0");
  EXPECT_EQ(options("-N 4 -n 32  # all"), "nodes (-N) 4, ntasks (-n) 32");
  EXPECT_EQ(options("-J tiny -N4 -n32"), "nodes (-N) 4, ntasks (-n) 32");
  EXPECT_EQ(options("--ntasks-per-node 8"), "ntasks_per_node (--ntasks-per-node) 8");
  EXPECT_EQ(options("--gpus-per-node=h100:8"), "gpus_per_node (--gpus-per-node) 8");
  EXPECT_EQ(options("--gres=gpu:8"), "gpus_per_node (--gres) 8");
  EXPECT_EQ(options("--gres gpu:a100:4 --time=1:00"), "gpus_per_node (--gres) 4, time (--time) 1:00");
  EXPECT_EQ(options("--job-name=\"my job\" -N 2"), "job_name (--job-name) \"my, nodes (-N) 2");
  EXPECT_EQ(options("--gres=nvme:1"), "gres (--gres) nvme:1");
  EXPECT_EQ(CommandOf("#SBATCH --nodes 4 --ntasks=8\n#SBATCH --gres=gpu:2\n"
                      "run $SLURM_NNODES $SLURM_JOB_NUM_NODES $SLURM_NTASKS $SLURM_GPUS_ON_NODE"),
            "[run] [4] [4] [8] [2]");
  EXPECT_EQ(CommandOf("#SBATCH -N 4\nrun $SLURM_NNODES", {{"SLURM_NNODES", "2"}}), "[run] [2]")
      << "a definition comes first";
}

TEST(ShellScript, EndsOnAnyInput) {
  for (const char* script : {"${",
                             "$((",
                             "\"",
                             "'",
                             "`",
                             "A=(",
                             "if",
                             "fi",
                             "done",
                             "<<",
                             "$(",
                             "[ ",
                             "A=${B:-${C:-$((",
                             "\\",
                             "((",
                             "((a",
                             "[[",
                             "[[ ",
                             "[[ a",
                             "case",
                             "case a",
                             "case a in",
                             "case a in b",
                             "case a in b)",
                             "case a in b);;&",
                             "esac",
                             "{",
                             "}",
                             "! ",
                             "for",
                             "for a in",
                             "[[ a == [",
                             "[[ a == \\",
                             "${a%",
                             "A=1 ${A%[}",
                             "A=1 ${A#\\}",
                             "declare -",
                             "((++",
                             "((=))",
                             "((N++",
                             "((A[))",
                             "((A[ ++))",
                             "let",
                             "let A[",
                             "read",
                             "unset",
                             "printf -v",
                             "A[",
                             "A[0",
                             "A[0]",
                             "A[0]=",
                             "A[]=",
                             "A[0]=(",
                             "A[0]+=",
                             "function",
                             "function f",
                             "f (",
                             "f ()",
                             "$*"})
    ReadShellScript(script, {});
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += "${A:-";
  EXPECT_EQ(ReadShellScript("run " + nested, {}).commands.size(), 1u);
}

}  // namespace
}  // namespace windtunnel
