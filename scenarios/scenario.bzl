"""scenario(): `./bazelw run //scenarios:NAME` compares the prediction with a live run of NAME.yaml; extra words follow `--`."""

def scenario(name, file, command = "compare", **kwargs):
    """Makes a runnable target of a scenario file.

    Args:
      name: the target's name.
      file: the scenario file.
      command: the command of windtunnel that gets the file; or "emulate": compare, on emulated nodes.
      **kwargs: passed on to the sh_binary.
    """
    native.sh_binary(
        name = name,
        srcs = ["run.sh"],
        args = ["$(rootpath //:windtunnel)", command, "$(rootpath %s)" % file],
        data = ["//:windtunnel", file] + (["//bench:netns_cluster.sh"] if command == "emulate" else []),
        **kwargs
    )
