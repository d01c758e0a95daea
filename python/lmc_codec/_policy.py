"""Which tensors are quantised, and how precisely: the rules of the command (`lmc --quant`), read and matched by its own
code. Here is what they do to tensors that come one after another."""

from __future__ import annotations

from collections.abc import Mapping

from . import _lmc

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable
    from typing import Any

    #: name, dtype, shape, bytes
    Row = tuple[str, str, tuple[int, ...], int]


class Second:
    """A second moment that was written: where it is, its bytes, and how it was quantised."""

    __slots__ = ("file_number", "offset", "buffer", "quantizer")

    def __init__(self, file_number: int, offset: int, buffer: Any, quantizer: Any):
        self.file_number, self.offset, self.buffer, self.quantizer = file_number, offset, buffer, quantizer


class Policy:
    def __init__(self, rules: str | Iterable[str] | Mapping[str, str] | None):
        if rules is None:
            texts: list[str] = []
        elif isinstance(rules, str):
            texts = [rules]
        elif isinstance(rules, Mapping):
            texts = [f"{glob}={choice}" for glob, choice in rules.items()]
        else:
            texts = list(rules)
        self._object = _lmc.Policy(texts)
        self.has_rules = bool(texts)
        self.seconds: dict[str, Second] = {}
        self.n_quantised = 0
        self._pairs: dict[str, set[str]] = {}  # which of both moments there are, where the words for them are common
        self._reasons: dict[str, str] = {}  # why tensors that a rule names stay as they are: with one of them

    def say_nothing_done(self) -> str | None:
        """What a user of rules that have quantised nothing is told; None: something was, or was not to be."""
        if self.n_quantised or not self._object.is_lossy():
            return None
        reasons = "; ".join(f"{name!r}: {reason}" for reason, name in self._reasons.items())
        return f"no tensor was quantised: {reasons or 'no rule matches one'}"

    def look_at(self, path: str, rows: Iterable[Row]) -> None:
        """What is written next, before find() is asked."""
        for name, dtype, *_ in rows:
            role, pair, is_common = self._object.find_meaning(path, name, dtype)
            if is_common:
                self._pairs.setdefault(pair, set()).add(role)

    def find(self, path: str, row: Row) -> tuple[int, str, str] | None:
        """The number of its rule, its role and the name of its pair; None: the tensor stays as it is."""
        name, dtype, shape, size = row
        role, pair, is_common = self._object.find_meaning(path, name, dtype)
        if is_common and len(self._pairs[pair]) < 2:  # "mu" alone may be anything
            role, pair = "weight", ""
        rule, reason = self._object.find_rule(role, path, name, dtype, shape, size)
        if reason is not None:
            self._reasons[reason] = name
        return None if rule < 0 or reason is not None else (rule, role, pair)

    def fit(self, rule: int, role: str, pair: str, row: Row, buffer: Any) -> tuple[Any, Any]:
        """A quantizer, and the twin that it wants; (None, None) if the tensor is better kept."""
        name, dtype, shape, _ = row
        second = self.seconds.get(pair)
        options, has_second = self._object.quantizer_options(rule, role, dtype, shape, second is not None)
        if not has_second:
            second = None
        quantizer = _lmc.Quantizer(
            buffer, dtype, *options, 0.0, None if second is None else second.buffer,
            None if second is None else second.quantizer
        )
        if quantizer.info()[0]:
            self._reasons["would not become smaller"] = name
            return None, None
        self.n_quantised += 1
        return quantizer, None if second is None else (second.file_number, second.offset, 0)
