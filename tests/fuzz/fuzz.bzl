"""Fuzz targets: one source with LLVMFuzzerTestOneInput, and a corpus of seeds in corpus/NAME."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def fuzz_test(name, deps, max_len = 16384, mutations = 20000):
    """A test that runs a target on its seeds and on mutations of them.

    Ordinarily, in any build, with the mutations of mutate_main.cc: always the same number, always the same ones. With --config=fuzz
    (clang) it is libFuzzer's, guided by coverage, under AddressSanitizer and UndefinedBehaviorSanitizer.

    Args:
      name: the target; NAME_fuzz.cc is its source, corpus/NAME has its seeds, NAME_fuzz is the test.
      deps: what the source includes.
      max_len: libFuzzer's largest input, bytes.
      mutations: without libFuzzer, how many.
    """
    cc_test(
        name = name + "_fuzz",
        size = "medium",
        srcs = [name + "_fuzz.cc"] + select({
            ":libfuzzer": ["libfuzzer_arguments.cc"],
            "//conditions:default": [],
        }),
        args = select({
            ":libfuzzer": [
                "-max_total_time=20",
                "-rss_limit_mb=4096",
                "-timeout=20",
                "-max_len=%d" % max_len,
                "-entropic=0",  # its bookkeeping costs more than the readers
                "-print_final_stats=1",
            ],
            "//conditions:default": [
                "--runs=%d" % mutations,
                "--seconds=10",
            ],
        }) + ["tests/fuzz/corpus/" + name],
        data = native.glob(["corpus/%s/*" % name]),
        linkopts = select({
            ":libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps + ["//base:random"] + select({
            ":libfuzzer": [],
            "//conditions:default": [":mutate_main"],
        }),
    )
