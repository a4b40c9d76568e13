"""Packages of the npm registry, as archives: nothing of Node is needed to build."""

def _npm_package_impl(repository_ctx):
    name = repository_ctx.attr.package
    version = repository_ctx.attr.version
    repository_ctx.download_and_extract(
        url = "https://registry.npmjs.org/%s/-/%s-%s.tgz" % (name, name.split("/")[-1], version),
        integrity = repository_ctx.attr.integrity,
        stripPrefix = "package",
        type = "tar.gz",
    )
    repository_ctx.file("BUILD", "exports_files(%s)\n" % repr(repository_ctx.attr.files))

npm_package = repository_rule(
    implementation = _npm_package_impl,
    attrs = {
        "package": attr.string(mandatory = True),
        "version": attr.string(mandatory = True),
        "integrity": attr.string(mandatory = True, doc = "of the archive, as `npm view PACKAGE@VERSION dist.integrity` prints it"),
        "files": attr.string_list(mandatory = True, doc = "that others may use"),
    },
)

def npm_repositories():
    """The plots of the HTML report (reports/html)."""
    npm_package(
        name = "vega",
        package = "vega",
        version = "6.4.0",
        integrity = "sha512-rHXCq2LpEWCLMjXBEj7hocY9G0/i5TGYRayGGSj06VTF4+l2IG2Z7oeZKCjWbUh/7hTE/mVhbaOPB72wCElh6g==",
        files = ["build/vega.min.js", "LICENSE"],
    )
    npm_package(
        name = "vega_lite",
        package = "vega-lite",
        version = "6.5.0",
        integrity = "sha512-fMXF6s0MrIg0UTWnLIfeFtgSLzVhyzSKobzGrh5rhS+mL6FOYFG3m7ouJ4U23gj65EK+gl9FIIT5w7wLNaAzkA==",
        files = ["build/vega-lite.min.js", "LICENSE"],
    )
    npm_package(
        name = "vega_embed",
        package = "vega-embed",
        version = "7.3.0",
        integrity = "sha512-wQ8s5GaSzqoKgmRfbRolgBrjE2CP7ZKHXqH7NijxMqPjpdWxSs4Dn8tvp9g0giQvh2cK+3p56sxjWWM0wNngGw==",
        files = ["build/vega-embed.min.js", "LICENSE"],
    )
