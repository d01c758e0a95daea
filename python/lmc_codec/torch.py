"""safetensors.torch for LMC files: `from lmc_codec.torch import save_file, load_file, safe_open`. And training states:
save_checkpoint, load_checkpoint."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ._arguments import check_bytes, check_choice
from ._base import Base
from ._checkpoint import load_checkpoint, save_checkpoint
from ._errors import ArgumentError
from ._in_place import apply, check_payloads
from ._lmc import printable
from ._reader import Reader
from ._safetensors import iterate_file, note_change, read_file, safe_open, write_bytes, write_file
from ._saving import Saving

if TYPE_CHECKING:
    from ._types import Backend, Decode, Level, OnError, Progress

__all__ = ["Saving", "apply_file", "iterate", "load", "load_checkpoint", "load_file", "load_model", "safe_open", "save", "save_checkpoint", "save_file", "save_model"]


def _find_shared(tensors: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Groups of names of tensors whose memory overlaps. A tensor that shares no memory is a group of its own."""
    by_storage: dict[Any, list[str]] = defaultdict(list)
    for name, t in tensors.items():
        if not t.is_meta:
            storage = t.untyped_storage()
            try:
                address = storage.data_ptr() if storage.nbytes() else 0
            except RuntimeError:
                if callable(getattr(t, "full_tensor", None)):
                    todo = "call .full_tensor(), or save all ranks with lmc_integrations.dcp"
                else:
                    todo = "give plain tensors, such as those that it is made of"
                raise ValueError(f"tensor {printable(repr(name))} is a {type(t).__name__}, which has no memory of its own: {todo}") from None
            if address:
                by_storage[t.device, address].append(name)
    groups: list[set[str]] = []
    for names in by_storage.values():
        if len(names) == 1:
            groups.append(set(names))
            continue
        last = None
        for start, end, name in sorted((*_span(tensors[name]), name) for name in names):
            if last is None or start >= last:
                groups.append(set())
            groups[-1].add(name)
            last = end if last is None else max(last, end)
    return groups


def _span(t: torch.Tensor) -> tuple[int, int]:
    start = t.data_ptr()
    if t.numel() == 0:
        return start, start
    n = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
    return start, start + n * t.element_size()


def _find_tied(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Groups of two or more names of the same tensor."""

    def identity(name: str) -> tuple[Any, ...]:
        t = tensors[name]
        return t.data_ptr(), t.dtype, t.shape, t.stride(), t.is_conj(), t.is_neg()

    order = {name: i for i, name in enumerate(tensors)}
    groups = [sorted(group, key=lambda name: (_span(tensors[name]), order[name])) for group in _find_shared(tensors) if len(group) > 1]
    for first, *others in groups:
        for name in others:
            if identity(name) != identity(first):  # all names before it are `first`, so these two overlap
                what = f"tensors {printable(repr(first))} and {printable(repr(name))}"
                raise ValueError(f"{what} share memory, but are not the same tensor: give one of them, or a clone")
    return groups


def _check_types(tensors: Mapping[str, torch.Tensor], kind: type = dict) -> None:
    if not isinstance(tensors, kind):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, t in tensors.items():
        if not isinstance(t, torch.Tensor):
            raise ValueError(f"Key `{printable(name)}` is invalid, expected torch.Tensor but received {type(t)}")


def _check(tensors: Mapping[str, torch.Tensor]) -> None:
    _check_types(tensors)
    for name, t in tensors.items():
        if t.device.type == "meta":
            raise ValueError(f"tensor {printable(repr(name))}: is on meta: it has a shape, but no data")
    sparse = [name for name, t in tensors.items() if t.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    shared = [group for group in _find_shared(tensors) if len(group) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, this will lead to duplicate memory on disk and potential differences when"
            f" loading them again: {shared}. A potential way to correctly save your model is to use `save_model`."
        )
    for name, t in tensors.items():
        if not t.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{printable(name)}` which is not allowed. It either means you"
                " are trying to save tensors which are reference of each other in which case it's recommended to save"
                " only the full tensors, and reslice at load time, or simply call `.contiguous()` on your tensor to"
                " pack it before saving."
            )


def _on_cpu(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t.detach().cpu() for name, t in tensors.items()}


def save_file(
    tensors: Mapping[str, torch.Tensor], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None, *,
    base: Any = None, level: Level = 0, threads: int | None = None, quantize: Any = None,
    progress: Progress | None = None
) -> None:
    """Saves tensors to an LMC file. The command `lmc -d` restores the file that safetensors would have written.

    base: the path of an earlier file, or its tensors by name, against which this becomes a delta.
    """
    _check(tensors)
    write_file(
        _on_cpu(tensors), filename, metadata, base=base, level=level, threads=threads, quantize=quantize,
        progress=progress
    )


def save(
    tensors: Mapping[str, torch.Tensor], metadata: dict[str, str] | None = None, *, base: Any = None, level: Level = 0,
    threads: int | None = None
) -> bytes:
    """Like save_file, but returns bytes."""
    _check(tensors)
    return write_bytes(_on_cpu(tensors), metadata, base=base, level=level, threads=threads)


def load_file(
    filename: Any, device: str | int | torch.device = "cpu", *, backend: Backend = "mmap", base: Any = None,
    threads: int | None = None, progress: Progress | None = None, storage_options: dict[str, Any] | None = None,
    on_error: OnError = "raise", decode: Decode = "cpu", staging: int = 0,
    out: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Loads all tensors of an LMC file to that device, through pinned memory.

    out: tensors by name, such as model.state_dict(), to which those of the same names are decoded; the result has them,
    and new tensors for all other names. Another dtype or shape is a ValueError before anything is read. If the file is
    damaged, tensors before the damage have been overwritten; the error names the damaged one.

    base: of a delta; "auto" looks for it beside the file. Unlike load_checkpoint(), which reads the states of one run,
    it opens no other file by default. on_error: "skip" leaves out tensors that PyTorch cannot have, and names of
    several tensors, with a UserWarning. decode: "gpu" (experimental): the device gets the encoded bytes and decodes
    them. A base is then tensors by name on that device; the CPU decodes what a base on the CPU predicts. staging: bytes
    that are decoded at once, 8 MiB to 4 GiB; 0: enough to keep the device busy, in at most a quarter of its free
    memory.
    """
    return read_file(
        filename, "torch", device, backend=backend, base=base, threads=threads, progress=progress,
        storage_options=storage_options, on_error=on_error, decode=decode, staging=staging, out=out
    )


def iterate(
    filename: Any, device: str | int | torch.device = "cpu", *, names: Container[str] | None = None,
    max_bytes: int = 256 << 20, base: Any = None, threads: int | None = None,
    storage_options: dict[str, Any] | None = None, decode: Decode = "cpu", staging: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields names and tensors of an LMC file, as load_file loads them, in stored order. If you drop each tensor, few are
    in memory. names: tensors to load. max_bytes: with decode="gpu" (experimental), limit on tensors that are made at once
    (one may be larger). staging: as for load_file."""
    return iterate_file(
        filename, "torch", device, names=names, most=max_bytes, base=base, threads=threads,
        storage_options=storage_options, decode=decode, staging=staging
    )


def apply_file(
    filename: Any, tensors: Mapping[str, torch.Tensor], *, threads: int | None = None,
    storage_options: dict[str, Any] | None = None, decode: Decode = "cpu", staging: int = 0
) -> None:
    """Updates tensors in place with a delta that was made against them. If it is refused (a wrong base, damage), nothing
    changes; after Ctrl-C some may be updated. decode: "gpu" (experimental) decodes on their device, staging as for load_file; "cpu" copies them to the CPU.
    Names of the same memory (tied weights) are one tensor: the delta's values for one name are for all. If it has other
    values for another of these names, that is an error."""
    check_choice("decode", decode, "cpu", "gpu")
    _check_types(tensors, Mapping)
    tied, wanted = _find_tied(tensors), None
    left_out: list[set[str]] = [set()]  # names that the base may lack
    if tied:
        with Reader(filename, threads=1, storage_options=storage_options) as reader:
            wanted, stored = reader.base_fingerprint, {x.name for file in reader.files for x in file.tensors}
        as_delta = [sorted(group, key=lambda name: name not in stored)[1:] for group in tied]
        # if the delta has untied some, the base has the first names, as torch.save() chooses them
        left_out = [{name for names in as_delta for name in names if name not in stored}, {name for group in tied for name in group[1:]}]
    if decode == "gpu":
        from . import _gpu

        for out in left_out:
            named = {name: t for name, t in tensors.items() if name not in out}
            name, t = next(iter(named.items()), ("", None))
            base = _gpu.make_base(named, None if t is None else t.device, staging, f"tensor {printable(repr(name))}")
            if base.fingerprint == wanted:
                break
        with Reader(filename, base=base, threads=threads, framework="torch", storage_options=storage_options) as reader:
            _gpu.apply(reader, [reader.info(name) for name in _once(reader, tied, named)], tensors, base, staging)
        return
    with Reader(filename, threads=threads, framework="torch", storage_options=storage_options) as reader:
        _refuse_full(reader)
        if callable(reader._source.argument):
            reader._source.load()
            reader._begin(None)
        check_payloads(reader)
        for out in left_out:
            held = _on_cpu({name: t for name, t in tensors.items() if name not in out})
            base = Base(held, threads=threads)
            if base.fingerprint == wanted:
                break
        reader._begin(base)
        for name in apply(reader, _once(reader, tied, held), base):
            if tensors[name].device.type != "cpu":
                tensors[name].detach().copy_(held[name])
            note_change(tensors[name])


def _refuse_full(reader: Reader) -> None:
    if reader.base_fingerprint is None:
        raise ArgumentError(f"{reader.name or 'this'} is not a delta: load_file() reads it")


def _once(reader: Reader, tied: list[list[str]], named: Mapping[str, Any]) -> list[str]:
    """Names of the delta's tensors; of names of the same memory only one."""
    _refuse_full(reader)
    once = {name: None for name in reader if not reader._is_archive_part(name)}
    for group in tied:
        first, *others = sorted(once.keys() & group, key=lambda name: (name not in named, name)) or [""]
        for name in others:
            _check_equal(reader, first, name)
            del once[name]
    return list(once)


def _check_equal(reader: Reader, a: str, b: str) -> None:
    """Raises unless the delta has equal values for both names. Views of a file of torch.save() have no fingerprint."""
    x, y = reader.info(a), reader.info(b)
    is_equal = (x.dtype, x.shape) == (y.dtype, y.shape)
    if is_equal and x.fingerprint and y.fingerprint:
        is_equal = x.fingerprint == y.fingerprint
    elif is_equal and (x.file_number, x.offset, x.strides, x.flags) != (y.file_number, y.offset, y.strides, y.flags):
        is_equal = reader.get(a, file=x.file, framework="bytes") == reader.get(b, file=y.file, framework="bytes")
    if not is_equal:
        what = f"{reader.name or 'the delta'}: it has different values for tensors {a!r} and {b!r}"
        raise ArgumentError(f"{what}, which share their memory here: give clones of them")


def load(data: Any, *, base: Any = None, threads: int | None = None) -> dict[str, torch.Tensor]:
    """Loads all tensors of an LMC file that is in memory."""
    check_bytes(data, "load", "load_file() takes paths, URLs and files")
    return read_file(data, "torch", base=base, threads=threads)


def _is_complete(t: torch.Tensor) -> bool:
    storage = t.untyped_storage()
    return t.data_ptr() == storage.data_ptr() and t.numel() * t.element_size() == storage.nbytes()


def _find_duplicates(state: Mapping[str, torch.Tensor], preferred_names: Iterable[str] = ()) -> dict[str, list[str]]:
    """For tensors that share memory: the name to keep, and the names to remove."""
    preferred_names = set(preferred_names)
    found = {}
    for group in _find_shared(state):
        complete = [name for name in group if _is_complete(state[name])]
        if not complete:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no suitable name to keep"
                f" for saving amongst: {group}. None is covering the entire storage. Refusing to save/load the model"
                " since you could be storing much more memory than needed."
            )
        if len(group) > 1:
            complete.sort()
            keep = next((name for name in complete if name in preferred_names), complete[0])
            found[keep] = [name for name in sorted(group) if name != keep]
    return found


def save_model(
    model: torch.nn.Module, filename: str | os.PathLike[str], metadata: dict[str, str] | None = None,
    force_contiguous: bool = True, **options: Any
) -> None:
    """Saves a model's state. Of tensors that share memory only one is saved; metadata names the others. options: as for
    save_file."""
    state = model.state_dict()
    metadata = dict(metadata or {})
    n_given = len(metadata)
    for keep, others in _find_duplicates({k: v for k, v in state.items() if isinstance(v, torch.Tensor)}).items():
        for name in others:
            metadata.setdefault(name, keep)
            del state[name]
    if force_contiguous:
        state = {name: t.contiguous() for name, t in state.items()}
    try:
        save_file(dict(state), filename, metadata if metadata or n_given else None, **options)
    except ValueError as error:
        if force_contiguous or all(t.is_contiguous() for t in state.values()):
            raise
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True), which saves contiguous copies.") from None


def _loads_plainly(model: torch.nn.Module, state: Mapping[str, Any]) -> bool:
    """Whether load_state_dict() would only copy to the tensors of this state, which are the model's own."""
    try:
        own = {t.data_ptr() for t in (*model.parameters(), *model.buffers()) if not t.is_meta}
        has_memory = all(isinstance(t, torch.Tensor) and not t.is_meta and t.data_ptr() in own for t in state.values())
    except RuntimeError:  # of a distributed tensor
        return False
    return (
        has_memory and type(model).load_state_dict is torch.nn.Module.load_state_dict
        and all(
            type(x)._load_from_state_dict is torch.nn.Module._load_from_state_dict
            and not x._load_state_dict_pre_hooks and not x._load_state_dict_post_hooks for x in model.modules()
        )
    )


def load_model(
    model: torch.nn.Module, filename: Any, strict: bool = True, device: str | int | torch.device = "cpu", *,
    backend: Backend = "mmap", **options: Any
) -> tuple[set[str], list[str]]:
    """Loads the file of save_model into a model. Returns the names that were missing, and those that were unexpected.

    Tensors are decoded to the model's memory. If the file is damaged, those before the damage have been overwritten. A
    model with hooks of its own for loading, and tensors of another dtype or shape, are loaded by model.load_state_dict().
    """
    own = model.state_dict()
    takes_memory = options.get("decode", "cpu") == "cpu" and "out" not in options and _loads_plainly(model, own)
    if takes_memory:
        options.update(out=own, fits_all=False)
    state = read_file(filename, "torch", device, backend=backend, **options)
    duplicates = _find_duplicates(own, state.keys())
    if takes_memory and all(t is own.get(name, t) for name, t in state.items()):
        missing_names, unexpected = [x for x in own if x not in state], [x for x in state if x not in own]
    else:
        missing_names, unexpected = model.load_state_dict(state, strict=False)
    missing = set(missing_names)
    for others in duplicates.values():
        for name in others:
            if name in missing:
                missing.remove(name)
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        text = f"Error(s) in loading state_dict for {model.__class__.__name__}:"
        if missing:
            text += "\n    Missing key(s) in state_dict: " + ", ".join(f'"{printable(k)}"' for k in sorted(missing))
        if unexpected:
            text += "\n    Unexpected key(s) in state_dict: " + ", ".join(f'"{printable(k)}"' for k in sorted(unexpected))
        raise RuntimeError(text)
    return missing, unexpected
