"""Makes files of PyTorch without PyTorch. cases() also has their content: the command (test_checkpoints.py) and Python
(python/tests/test_torch_files.py) must find the same.

SPDX-License-Identifier: MIT
"""
import io
import itertools
import pickle
import struct
import sys
import types
import unittest.mock
import zipfile

WIDTHS = {"F32": 4, "BF16": 2, "C64": 8, "I64": 8}
KINDS = {"F32": "torch.FloatStorage", "BF16": "torch.BFloat16Storage", "C64": "torch.ComplexFloatStorage", "I64": "torch.LongStorage"}


def pickled(tensors, protocol=2):
    """The pickle of torch.save for {name: (storage class, key, numel, offset, shape, strides)}."""
    def text(s):
        return b"X" + struct.pack("<I", len(s.encode())) + s.encode()
    def number(n):
        return b"\x8a\x08" + struct.pack("<q", n)
    def numbers(ns):
        return b"(" + b"".join(map(number, ns)) + b"t"
    out = b"\x80" + bytes([protocol]) + b"}("
    for name, (kind, key, numel, offset, shape, strides) in tensors.items():
        storage = b"(" + text("storage") + b"c" + kind.replace(".", "\n").encode() + b"\n" + text(key) + text("cpu") + number(numel) + b"tQ"
        out += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(shape) + numbers(strides) + b"\x89NtR"
    return out + b"u."


def archive(members, method=zipfile.ZIP_STORED, prefix="a/", align=1):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", method) as z:
        for name, data in members.items():
            info = zipfile.ZipInfo(prefix + name)
            padding = -(b.tell() + 34 + len(info.filename)) % align
            info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding if align > 1 else b""
            z.writestr(info, data, method)
    return b.getvalue()


def torch_file(tensors, records, **more):
    return archive({"data.pkl": pickled(tensors), "byteorder": b"little", **{"data/" + k: v for k, v in records.items()}}, **more)


def metadata(items):
    """The pickle of torch.distributed.checkpoint for (name, extents, position, offset, size), by classes with the same names."""
    module = types.ModuleType("torch.distributed.checkpoint.metadata")
    for name in "Metadata", "MetadataIndex", "TensorStorageMetadata", "Size", "_StorageInfo":
        setattr(module, name, type(name, (), {"__module__": module.__name__}))

    def make(name, **state):
        made = getattr(module, name)()
        made.__dict__.update(state)
        return made
    whole = make(
        "Metadata", state_dict_metadata={name: make("TensorStorageMetadata", size=tuple(extents), chunks=[]) for name, extents, *_ in items}, planner_data=None,
        storage_data={make("MetadataIndex", fqn=name, offset=tuple(position), index=i): make("_StorageInfo", relative_path="__0_0.distcp", offset=offset, length=size)
                      for i, (name, _, position, offset, size) in enumerate(items)})
    parents = {name: types.ModuleType(name) for name in ("torch", "torch.distributed", "torch.distributed.checkpoint")}
    with unittest.mock.patch.dict(sys.modules, {**parents, module.__name__: module}):
        return pickle.dumps(whole, protocol=4)


# -- what both must find --


def elements(data, dtype, offset, shape, strides):
    """The elements of a view, in the order of its shape."""
    width = WIDTHS[dtype]
    places = (offset + sum(i * s for i, s in zip(index, strides)) for index in itertools.product(*map(range, shape)))
    return b"".join(data[place * width:(place + 1) * width] for place in places)


def torch_case(views, **changes):
    """A file, and its tensors. views: dtype, offset, shape and strides by name; each dtype has a storage. changes: to its pickle."""
    records, keys = {}, {}
    for dtype, *_ in views.values():
        keys[dtype] = str(len(records)) if dtype not in keys else keys[dtype]
        records[keys[dtype]] = bytes(i * 7 % 251 for i in range(240 * WIDTHS[dtype]))
    data = pickled({name: (KINDS[dtype], keys[dtype], 240, *view) for name, (dtype, *view) in views.items()})
    for old, new in changes.get("replace", ()):
        data = data.replace(old, new)
    file = archive({"data.pkl": data, "byteorder": b"little", **{"data/" + k: v for k, v in records.items()}}, align=64)
    return file, {name: (dtype, shape, elements(records[keys[dtype]], dtype, offset, shape, strides)) for name, (dtype, offset, shape, strides) in views.items()}


def cases():
    """(name, data by path, (dtype, shape, elements) by tensor): for one file, or for a directory. None: a tensor that must not be listed."""
    def one(name, file, tensors):
        return name, {"x.pt": file}, tensors
    yield one("plain", *torch_case({"w": ("F32", 0, (12, 20), (20, 1)), "b": ("BF16", 0, (240,), (1,)), "n.deep.i": ("I64", 0, (2, 3, 40), (120, 40, 1))}))
    yield one("order", *torch_case({"t": ("F32", 0, (20, 12), (1, 20)), "last": ("BF16", 0, (2, 3, 5, 8), (120, 1, 24, 3))}))
    yield one("shared", *torch_case({"w": ("F32", 0, (12, 20), (20, 1)), "tied": ("F32", 0, (12, 20), (20, 1)), "row": ("F32", 40, (20,), (1,)),
                                     "turned": ("F32", 0, (20, 12), (1, 20))}))
    yield one("parts", *torch_case({"a": ("F32", 0, (6, 20), (20, 1)), "b": ("F32", 120, (120,), (1,)), "column": ("BF16", 3, (12,), (20,))}))
    yield one("repeated", *torch_case({"all": ("F32", 7, (3, 4), (0, 0)), "windows": ("BF16", 0, (5, 4), (1, 1)), "scalar": ("I64", 9, (), ()), "empty": ("C64", 5, (3, 0), (1, 1))}))
    file, tensors = torch_case({"c": ("C64", 0, (240,), (1,))}, replace=[(b"\x89NtR", b"\x89N}X\4\0\0\0conj\x88stR")])
    signs = bytearray(tensors["c"][2])
    for i in range(7, len(signs), 8):
        signs[i] ^= 0x80
    yield one("conjugated", file, {"c": ("C64", (240,), bytes(signs))})
    file, tensors = torch_case({"a.b": ("F32", 0, (240,), (1,)), "a_b": ("F32", 0, (12, 20), (20, 1)), "c": ("I64", 0, (240,), (1,))}, replace=[(b"a_b", b"a.b")])
    yield one("meeting", file, {"a.b": None, "c": tensors["c"]})
    items, data, tensors = [], b"", {}
    for name, extents, position, view in (("w", (24, 20), (0, 0), ("F32", 0, (12, 20), (20, 1))), ("w", (24, 20), (12, 0), ("F32", 0, (12, 20), (20, 1))),
                                          ("t", (20, 12), (0, 0), ("F32", 0, (20, 12), (1, 20))), ("m.v", (40, 12), (20, 0), ("BF16", 0, (20, 12), (1, 20)))):
        file, found = torch_case({"": view}, replace=[(b"}(X\0\0\0\0", b""), (b"Ru.", b"R.")])
        items.append((name, extents, position, len(data), len(file)))
        data += file
        part = f"[{position[0]}:{position[0] + view[2][0]}]" if extents != view[2] else ""
        tensors[name + part] = found[""]
    yield "items", {"step/__0_0.distcp": data, "step/.metadata": metadata(items)}, tensors
