"""@cuda: the CUDA toolkit and the headers of NCCL and cuDNN where this machine has them, and an empty repository elsewhere.

Looked for: $CUDA_HOME, /usr/local/cuda, Debian's packages (nvcc in /usr/bin); CUDA_HOME=none builds without one. Versions from 12.4 on count; an older one is ignored
with one line. What was found is in @cuda//:found.bzl:

    CUDA = True          # a toolkit
    NCCL = True          # and nccl.h
    CUDNN = True         # and cudnn_graph.h, of version 9.8 or newer
    NVCC = "/usr/local/cuda/bin/nvcc"
    CUDA_VERSION = 13000  # as CUDART_VERSION
"""

_OLDEST = 12040

def _version_of(ctx, header):
    """CUDART_VERSION of cuda_runtime_api.h; 0 where there is none."""
    if not ctx.path(header).exists:
        return 0
    for line in ctx.read(header).split("\n"):
        words = [word for word in line.split(" ") if word]
        if len(words) == 3 and words[0] == "#define" and words[1] == "CUDART_VERSION" and words[2].isdigit():
            return int(words[2])
    return 0

def _first(ctx, paths):
    for path in paths:
        if ctx.path(path).exists:
            return path
    return None

def _look_at(ctx, home):
    """The toolkit in a directory, or None."""
    nvcc = _first(ctx, [home + "/bin/nvcc"])
    include = _first(ctx, [home + "/include/cuda_runtime_api.h"])
    archive = _first(ctx, [
        home + folder + "/libcudart_static.a"
        for folder in ["/lib64", "/lib", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"]
    ])
    if not nvcc or not include or not archive:
        return None
    return struct(
        home = home,
        nvcc = nvcc,
        archive = archive,
        version = _version_of(ctx, include),
    )

def _find(ctx):
    named = ctx.os.environ.get("CUDA_HOME", "")
    if named == "none":
        return None
    for home in ([named] if named else []) + ["/usr/local/cuda", "/usr"]:
        toolkit = _look_at(ctx, home)
        if toolkit and toolkit.version >= _OLDEST:
            return toolkit
        if toolkit:
            # buildifier: disable=print
            print("CUDA {}.{} in {} is ignored: 12.4 or newer is needed".format(
                toolkit.version // 1000,
                toolkit.version % 1000 // 10,
                home,
            ))
        elif home == named:
            # buildifier: disable=print
            print("CUDA_HOME={} is ignored: it has no nvcc, headers and libcudart_static.a".format(home))
    return None

def _has_header(ctx, toolkit, name, containing = ""):
    path = _first(ctx, [toolkit.home + "/include/" + name, "/usr/include/" + name])
    return path != None and containing in ctx.read(path)

def _cuda_repository_impl(ctx):
    toolkit = _find(ctx)
    if toolkit:
        ctx.symlink(toolkit.archive, "libcudart_static.a")

        # The headers of /usr are on the compiler's path already.
        if toolkit.home != "/usr":
            ctx.symlink(toolkit.home + "/include", "include")
        ctx.symlink(ctx.attr._toolkit, "BUILD")
    else:
        ctx.file("BUILD", 'load("@rules_cc//cc:defs.bzl", "cc_library")\n\ncc_library(\n    name = "toolkit",\n    visibility = ["//visibility:public"],\n)\n')
    ctx.file("found.bzl", "CUDA = {}\nNCCL = {}\nCUDNN = {}\nNVCC = {}\nCUDA_VERSION = {}\n".format(
        toolkit != None,
        toolkit != None and _has_header(ctx, toolkit, "nccl.h"),
        toolkit != None and _has_header(ctx, toolkit, "cudnn_graph.h", containing = "DEVICEPROP_DESCRIPTOR"),
        repr(toolkit.nvcc if toolkit else ""),
        toolkit.version if toolkit else 0,
    ))

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    attrs = {"_toolkit": attr.label(default = "//third_party/cuda:toolkit.BUILD", allow_single_file = True)},
    environ = ["CUDA_HOME"],
    local = True,
)
