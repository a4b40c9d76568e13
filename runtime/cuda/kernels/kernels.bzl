"""The kernels' files, without .cu."""

# Each is compiled by nvcc, and by the host's compiler for //runtime/cuda/emulator.
KERNELS = [
    "activation",
    "attention",
    "delta_net",
    "delta_net_scan",
    "dropout",
    "elementwise",
    "embedding",
    "experts",
    "flash_backward",
    "flash_forward",
    "head_norm",
    "initialize",
    "loss",
    "muon",
    "norm",
    "optimizer",
    "orthonormalize",
    "packed",
    "plain_attention",
    "rearrange",
    "relative_bias",
    "rope",
    "state_space",
    "state_space_scan",
]
