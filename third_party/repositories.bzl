"""Every external dependency is a Debian -dev package, overlaid by third_party/NAME.BUILD."""

load("//third_party/cuda:repository.bzl", "cuda_repository")

# Repository name -> header directory of the Debian package.
_SYSTEM = {
    "benchmark": "/usr/include/benchmark",
    "boost": "/usr/include/boost",
    "cli11": "/usr/include/CLI",
    "eigen": "/usr/include/eigen3",
    "expected": "/usr/include/tl",
    "fmt": "/usr/include/fmt",
    "gloo": "/usr/include/gloo",
    "googletest": "/usr/include/gtest",
    "nlohmann_json": "/usr/include/nlohmann",
    "onednn": "/usr/include/oneapi",
    "protobuf": "/usr/include/google/protobuf",
    "rapidcheck": "/usr/include/rapidcheck",
    "tomlplusplus": "/usr/include/toml++",
    "yaml_cpp": "/usr/include/yaml-cpp",
}

def _multiarch_headers_impl(context):
    for triplet in ["x86_64-linux-gnu", "aarch64-linux-gnu"]:
        path = context.path(context.attr.path.format(triplet = triplet))
        if path.exists:
            context.symlink(path, "include")
            context.symlink(context.attr.build_file, "BUILD.bazel")
            return
    fail("%s: nowhere to be found; ./bazelw installs what is missing" % context.attr.path)

# Headers that Debian keeps in an architecture-specific directory, where the compiler does not look.
multiarch_headers = repository_rule(
    implementation = _multiarch_headers_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "path": attr.string(mandatory = True, doc = "{triplet} stands for the architecture's"),
    },
    local = True,
)

def system_repositories():
    """Declares the overlays and the parts of Bazel that Debian installs as files."""
    native.local_repository(name = "rules_cc", path = "third_party/rules_cc")
    native.local_repository(name = "remote_coverage_tools", path = "third_party/remote_coverage_tools")
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
    native.local_repository(name = "rules_license", path = "/usr/share/bazel/rules/license")
    native.local_repository(name = "rules_python", path = "/usr/share/bazel/rules/python")
    native.local_repository(name = "bazel_features", path = "/usr/share/bazel/tools/features")
    native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
    native.local_repository(name = "bazel_skylib", path = "/usr/share/bazel/tools/skylib")
    native.local_repository(name = "platforms", path = "/usr/share/bazel/tools/platforms")
    for name, path in _SYSTEM.items():
        native.new_local_repository(
            name = name,
            path = path,
            build_file = "@windtunnel//third_party:%s.BUILD" % name,
        )
    multiarch_headers(
        name = "pmix",
        path = "/usr/lib/{triplet}/pmix2/include",
        build_file = "@windtunnel//third_party:pmix.BUILD",
    )
    cuda_repository(name = "cuda")
