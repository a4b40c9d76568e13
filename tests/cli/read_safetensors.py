#!/usr/bin/env python3
"""A reader of safetensors that knows nothing of Windtunnel: prints each tensor's name, shape, and sum of absolute values."""
import array
import json
import math
import struct
import sys

with open(sys.argv[1], "rb") as file:
    (length,) = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    for name, tensor in sorted(header.items()):
        begin, end = tensor["data_offsets"]
        file.seek(8 + length + begin)
        values = array.array("f", file.read(end - begin))
        assert tensor["dtype"] == "F32" and len(values) == math.prod(tensor["shape"]), name
        assert all(map(math.isfinite, values)), name
        print(name, tensor["shape"], f"{sum(map(abs, values)):.6g}")
