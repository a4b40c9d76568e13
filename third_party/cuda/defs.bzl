"""cuda_library: .cu files compiled by nvcc for sm_80, sm_90 and, as PTX, whatever comes after.

    load("//third_party/cuda:defs.bzl", "cuda_library")

    cuda_library(
        name = "norm",
        srcs = ["norm.cu"],
        hdrs = ["norm.h"],
        deps = ["//plan:op"],
    )

It has the attributes of cc_library. nvcc's front end does not take {fmt}, so .cu files do without base/result.h: they return
cudaError_t, which runtime/cuda/status.h makes a Status of. Where no toolkit is found, the library has its headers and nothing else, so whatever would call
it must not be compiled either: choose sources by CUDA and NCCL.

    load("//third_party/cuda:defs.bzl", "CUDA")

    cc_library(name = "device", srcs = ["device.cc"] if CUDA else ["no_device.cc"], …)
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda//:found.bzl", "NVCC", _CUDA = "CUDA", _CUDNN = "CUDNN", _NCCL = "NCCL")
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

# Whether this machine has a CUDA toolkit, and the headers of NCCL and cuDNN.
CUDA = _CUDA
NCCL = _NCCL
CUDNN = _CUDNN

# The dependencies of C++ files that include the toolkit's headers.
TOOLKIT = ["@cuda//:toolkit"]

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
    "-lineinfo",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    "-Xcompiler=-fPIC,-ffp-contract=off",
]

def _cuda_objects_impl(ctx):
    compilation = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps]).compilation_context
    objects = []
    for src in ctx.files.srcs:
        object = ctx.actions.declare_file("{}/{}.o".format(ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all(["-ccbin", find_cpp_toolchain(ctx).compiler_executable])
        args.add_all(_NVCC_FLAGS + ctx.attr.copts)
        args.add_all(compilation.defines, format_each = "-D%s")
        args.add("-I.")
        args.add_all(compilation.quote_includes, before_each = "-I")
        args.add_all(compilation.includes, before_each = "-I")

        # nvcc finds the toolkit's own headers itself. As system directories they would change its order.
        args.add_all([i for i in compilation.system_includes.to_list() if "external/cuda/" not in i], before_each = "-isystem")
        args.add_all(["-c", src, "-o", object])
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [compilation.headers]),
            outputs = [object],
            mnemonic = "CudaCompile",
            progress_message = "Compiling {} (CUDA)".format(src.short_path),
            env = {"PATH": "/usr/bin:/bin"},
        )
        objects.append(object)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    fragments = ["cpp"],
)

def cuda_library(name, srcs, hdrs = [], deps = [], copts = [], **kwargs):
    """Args: as cc_library's; private headers go into hdrs; copts are nvcc's."""
    if CUDA:
        _cuda_objects(
            name = name + "_objects",
            srcs = srcs,
            hdrs = hdrs,
            deps = deps,
            copts = copts,
            visibility = ["//visibility:private"],
        )
    cc_library(
        name = name,
        srcs = [":" + name + "_objects"] if CUDA else [],
        hdrs = hdrs,
        deps = deps + TOOLKIT,
        **kwargs
    )
