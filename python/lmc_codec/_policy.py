"""Rules that say which tensors are quantised, and how precisely: those of the command (`lmc --quant`), with its own parser.
This module applies them to tensors that are written one after another."""

from __future__ import annotations

from collections.abc import Mapping

from . import _lmc

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable
    from typing import Any

    #: name, dtype, shape, bytes
    Row = tuple[str, str, tuple[int, ...], int]
    #: a second moment that was written: number of its file, first byte, its bytes, its quantizer
    Second = tuple[int, int, Any, Any]
    #: name, dtype, shape, first byte, bytes
    Place = tuple[str, str, tuple[int, ...], int, int]


class Policy:
    def __init__(self, rules: str | Iterable[str] | Mapping[str, str] | None):
        if isinstance(rules, Mapping):
            rules = [f"{glob}={choice}" for glob, choice in rules.items()]
        if isinstance(rules, (bool, int, float)):
            raise TypeError(f"quantize: rules are needed, such as '*=auto:0.01', not {rules!r}")
        texts = [rules] if isinstance(rules, str) else list(rules or ())
        self._object = _lmc.Policy(texts)
        self.has_rules = bool(texts)
        self._seconds: dict[str, Second] = {}  # by the names of their pairs, in files that were written
        self._new: dict[str, Second] = {}  # those of the current file
        self._n_quantized = 0
        self._pairs: dict[str, set[str]] = {}  # by pair: which of the two moments exist, for names that use common words
        self._reasons: dict[str, str] = {}  # why tensors that a rule matches are not quantised: reason, one of the tensors

    def say_nothing_done(self) -> str | None:
        """The warning if rules have quantised nothing; None: something was quantised, or no rule is lossy."""
        if self._n_quantized or not self._object.is_lossy():
            return None
        reasons = "; ".join(f"{name!r}: {reason}" for reason, name in self._reasons.items())
        return f"no tensor was quantised: {reasons or 'no rule matches one'}"

    def plan(self, path: str, number: int, places: list[Place], buffers: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """For each tensor of a file: a quantizer, and the twin that this needs. Both are None if the tensor is not
        quantised, as all tensors without a buffer."""
        self._new = {}
        if not self.has_rules or not buffers:
            return [(None, None)] * len(places)
        for name, dtype, *_ in places:
            role, pair, is_common = self._object.find_meaning(path, name, dtype)
            if is_common:
                self._pairs.setdefault(pair, set()).add(role)
        return [self._fit(path, number, place, buffers) if place[0] in buffers else (None, None) for place in places]

    def end_file(self) -> list[tuple[int, Any]]:
        """The file was written: later tensors may use its second moments. Returns their first bytes and their buffers."""
        self._seconds.update(self._new)
        return [(at, buffer) for _, at, buffer, _ in self._new.values()]

    def find(self, path: str, row: Row) -> tuple[int, str, str] | None:
        """The number of its rule, its role and the name of its pair; None: the tensor is not quantised."""
        name, dtype, shape, size = row
        role, pair, is_common = self._object.find_meaning(path, name, dtype)
        if is_common and len(self._pairs[pair]) < 2:  # "mu" without "nu" may be anything
            role, pair = "weight", ""
        rule, reason = self._object.find_rule(role, path, name, dtype, shape, size)
        if reason is not None:
            self._reasons[reason] = name
        return None if rule < 0 or reason is not None else (rule, role, pair)

    def _fit(self, path: str, number: int, place: Place, buffers: Mapping[str, Any]) -> tuple[Any, Any]:
        name, dtype, shape, at, size = place
        found = self.find(path, (name, dtype, shape, size))
        if found is None:
            return None, None
        rule, role, pair = found
        second = self._seconds.get(pair)
        options, wants_second = self._object.quantizer_options(rule, role, dtype, shape, second is not None)
        used = second if wants_second else None
        buffer = buffers[name]  # of a file: read now
        quantizer: Any = _lmc.Quantizer(buffer, dtype, *options, 0.0, *((None, None) if used is None else used[2:]))
        if quantizer.info()[0]:
            self._reasons["would not become smaller"] = name
            quantizer = used = None
        else:
            self._n_quantized += 1
        if role == "v" and pair:
            self._new[pair] = (number, at, buffer, quantizer)
        return quantizer, None if used is None else (*used[:2], 0)
