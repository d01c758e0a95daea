"""Tensors in pieces: several processes have a box of each, as a DTensor has it, and publish it without a gather.

A piece is published as if it was a tensor: with a name, NAME[0:50,0:128], a payload and a checksum. The version's index says
which tensors are in pieces, "pieces": {NAME: {"shape": [100, 128], "boxes": [[[0, 50], [0, 128]], ...]}}, and its digest has the
pieces in place of these tensors. So all that a receiver checks of a tensor it checks of a piece, in its own whole tensor.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from ._sync_codecs import SyncCorrupt
from ._sync_files import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._sync_codecs import Bytes

Box = list[list[int]]  # [first, last + 1] of each dimension


class Piece(NamedTuple):
    tensor: str
    shape: list[int]  #: of the whole tensor
    box: Box

    @property
    def name(self) -> str:
        return "%s[%s]" % (self.tensor, ",".join("%d:%d" % (a, b) for a, b in self.box))


class Whole(NamedTuple):
    """A tensor that is in pieces."""

    shape: list[int]
    boxes: list[Box]


Pieces = dict[str, Whole]  # by the tensor's name


def gather(pieces: Iterable[Piece]) -> Pieces:
    """Raises ValueError unless they are all pieces of these tensors: boxes of a grid, each there once."""
    found: Pieces = {}
    for piece in pieces:
        whole = found.setdefault(piece.tensor, Whole(piece.shape, []))
        if whole.shape != piece.shape:
            raise ValueError("tensor %s has two shapes: %s and %s" % (ascii(piece.tensor), whole.shape, piece.shape))
        whole.boxes.append(piece.box)
    for name, whole in found.items():
        whole.boxes.sort()
        sides = [sorted(set(map(tuple, side))) for side in zip(*whole.boxes)]
        joins = len(sides) == len(whole.shape) and math.prod(map(len, sides)) == len(whole.boxes) and all(
            side[0][0] == 0 and side[-1][1] == n and all(a[1] == b[0] for a, b in itertools.pairwise(side)) and all(a < b for a, b in side)
            for side, n in zip(sides, whole.shape))
        if not joins or whole.boxes != [list(map(list, box)) for box in itertools.product(*sides)]:
            raise ValueError("the pieces of tensor %s are not all of it, each once: %s of %s" % (ascii(name), whole.boxes, whole.shape))
    return found


def as_json(pieces: Pieces) -> dict[str, Any]:
    return {"pieces": {name: whole._asdict() for name, whole in sorted(pieces.items())}} if pieces else {}


def read_pieces(where: str, index: dict[str, Any]) -> Pieces:
    try:
        rows = [Piece(name, x["shape"], box) for name, x in index.get("pieces", {}).items() for box in x["boxes"]]
        if not all(type(n) is int for x in rows for n in [*x.shape, *itertools.chain(*x.box)]) or not all(len(side) == 2 for x in rows for side in x.box):
            raise ValueError("a shape or a box is none")
        return gather(rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SyncCorrupt("%s: pieces: %s" % (where, error))


class View:
    """Tensors of a checkpoint, as a version names them: whole, or in pieces. names: of each tensor, with its box (None: whole)."""

    def __init__(self, tensors: dict[str, Tensor], pieces: Pieces):
        self.tensors: dict[str, Tensor] = {}  #: by these names; for the digest
        self.names: dict[str, list[tuple[str, Box | None]]] = {}
        for t in tensors.values():
            if t.name not in pieces:
                self.names[t.name], self.tensors[t.name] = [(t.name, None)], t
                continue
            whole, self.names[t.name] = pieces[t.name], []
            width = t.size // max(1, math.prod(t.shape))
            if whole.shape != t.shape or width * math.prod(t.shape) != t.size:
                raise ValueError("tensor %s has shape %s, and its pieces are of %s" % (ascii(t.name), t.shape, whole.shape))
            for box in whole.boxes:
                name, shape = Piece(t.name, whole.shape, box).name, [b - a for a, b in box]
                self.names[t.name].append((name, box))
                self.tensors[name] = t._replace(name=name, shape=shape, size=width * math.prod(shape))
        if len(self.tensors) != sum(map(len, self.names.values())) or not pieces.keys() <= tensors.keys():
            raise ValueError("a piece has the name of a tensor, or is of one that is not there")


def cut(t: Tensor, data: Bytes, box: Box | None) -> tuple[Bytes, Bytes | None]:
    """(the bytes of a piece, in its own order; what they are to be copied back to if they change, None: they are no copy)."""
    if box is None:
        return data, None
    found = data.reshape(*t.shape, -1)[tuple(slice(a, b) for a, b in box)]
    return (found.reshape(-1), None) if found.flags.c_contiguous else (found.copy().reshape(-1), found)
