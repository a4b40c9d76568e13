"""Reads TensorBoard event files without TensorBoard or protobuf, checks every CRC, and prints one JSON object for each event.

    read_events.py FILE…     {"file": 0, "step": 1, "scalars": {"grad_norm": 1.25, …}}
"""

import json
import struct
import sys

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    while data:
        (length, length_crc), data = struct.unpack("<QI", data[:12]), data[12:]
        assert length_crc == masked_crc(struct.pack("<Q", length)), "CRC of a length"
        record, (crc,), data = data[:length], struct.unpack("<I", data[length : length + 4]), data[length + 4 :]
        assert crc == masked_crc(record), "CRC of a record"
        yield record


def varint(data):
    value = shift = 0
    while True:
        byte, data = data[0], data[1:]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data


def fields(message):
    """(number, value) by protobuf's wire format."""
    while message:
        key, message = varint(message)
        if key & 7 == 0:
            value, message = varint(message)
        else:
            size, form = {1: (8, "<d"), 2: (None, None), 5: (4, "<f")}[key & 7]
            if size is None:
                size, message = varint(message)
            value, message = message[:size], message[size:]
            value = struct.unpack(form, value)[0] if form else value
        yield key >> 3, value


def event(message):
    read = {"step": 0}
    for number, value in fields(message):
        if number == 2:
            read["step"] = value
        elif number == 3:
            read["file_version"] = value.decode()
        elif number == 5:
            values = [dict(fields(entry)) for _, entry in fields(value)]
            read["scalars"] = {entry[1].decode(): entry.get(2, 0.0) for entry in values}
        elif number == 7:
            read["session"] = dict(fields(value))[1]
    return read


for index, path in enumerate(sys.argv[1:]):
    with open(path, "rb") as file:
        for record in records(file.read()):
            print(json.dumps({"file": index, **event(record)}))
