"""Which tensors are quantised, and how precisely: the rules of the command (`lmc --quant`), and what they mean."""

from __future__ import annotations

from collections.abc import Mapping

from . import _lmc
from ._arrays import BITS

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable
    from typing import Any

_ROLES = ("other", "weight", "m", "v", "gradient")
_MOMENTS = (("exp_avg", "exp_avg_sq"), ("mu", "nu"))  # PyTorch, DeepSpeed, Megatron; optax and Flax
_GRADIENTS = ("grad", "grads", "gradient", "gradients", "main_grad", "main_grads")
_OTHERS = ("max_exp_avg_sq", "momentum_buffer")
_MEASURES = {"update": 1, "rel": 2, "nmse": 3, "auto": 1}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MIN_ELEMENTS = 16 << 10  # a smaller tensor gains nothing: its table and scales weigh more
MIN_FLAT_ELEMENTS = 256 << 10  # norms and biases are small and delicate


class Rule:
    __slots__ = ("text", "glob", "roles", "dtype", "min", "max", "kind", "bits", "bound")

    def __init__(self, text: str):
        self.text = text
        head, equals, choice = text.rpartition("=")
        if not equals:
            raise self.error("a rule is a pattern for names, '=' and a choice, such as '*=bits:8'")
        self.roles: tuple[str, ...] = ("m", "v", "gradient")
        self.dtype, self.min, self.max = "", 0, 1 << 64
        self._parse_choice(choice)
        self.glob = self._parse_fields(head)

    def error(self, what: str) -> ValueError:
        return ValueError(f"quantize rule {self.text!r}: {what}")

    def _parse_choice(self, choice: str) -> None:
        self.kind, _, value = choice.partition(":")
        self.bits, self.bound = 0, 0.0
        if choice == "lossless":
            return
        if self.kind == "bits" and value in "45678" and len(value) == 1:
            self.bits = int(value)
            return
        try:
            self.bound = float(value)
        except ValueError:
            pass
        if self.kind not in _MEASURES or not 0 < self.bound < 1:
            raise self.error(
                "after the last '=' comes bits:8 (4 to 8), update:0.01, rel:0.01, nmse:0.0001, auto:0.01 or lossless"
            )

    def _parse_fields(self, head: str) -> str:
        while "," in head:
            rest, _, field = head.rpartition(",")
            key, equals, value = field.partition("=")
            import re

            size = re.fullmatch(r"(\d+)([KMG]?)", value)
            if key == "role" and value in (*_ROLES, "any"):
                self.roles = _ROLES if value == "any" else (value,)
            elif key == "dtype" and value in BITS:
                self.dtype = value
            elif key in ("min", "max") and size:
                setattr(self, key, int(size[1]) * _UNITS[size[2]])
            elif equals:
                raise self.error("the fields are role=, dtype=, min= and max=, with their values")
            else:
                break  # a comma of the pattern
            head = rest
        if not head:
            raise self.error("begins with a pattern for names, such as '*'")
        return head

    def matches(self, path: str, name: str, dtype: str, size: int) -> bool:
        from fnmatch import fnmatchcase

        return (
            self.dtype in ("", dtype)
            and self.min <= size <= self.max
            and (fnmatchcase(name, self.glob) or fnmatchcase(f"{path}/{name}", self.glob))
        )


def _has_word(text: str, word: str) -> bool:
    import re

    return re.search(rf"(?<![0-9A-Za-z_]){word}(?![0-9A-Za-z_])", text) is not None


def _role_in(text: str, is_path: bool) -> tuple[str, str] | None:
    """The role, and the name with "*" where the moment's word was: the same for both moments of a parameter."""
    import re

    for m, v in _MOMENTS:
        has_m, has_v = _has_word(text, m), _has_word(text, v)
        if (has_m or has_v) and not (has_m and has_v and is_path):
            word = v if has_v else m
            return ("v" if has_v else "m"), re.sub(rf"(?<![0-9A-Za-z_]){word}(?![0-9A-Za-z_])", "*", text, count=1)
    if any(re.search(rf"(^|[./]){word}($|[./])", text) for word in _GRADIENTS):
        return "gradient", ""
    if any(_has_word(text, word) for word in _OTHERS):
        return "other", ""
    return None


def find_role(path: str, name: str, dtype: str) -> tuple[str, str]:
    if not dtype.startswith(("F", "BF")):
        return "other", ""
    found = _role_in(name, False)
    if found:
        return found
    found = _role_in(path, True)
    if found:
        return found[0], f"{found[1]}/{name}" if found[1] else ""
    return "weight", ""


def _group(shape: tuple[int, ...]) -> int:
    """Neighbours that share a scale: a row, or what comes near to one."""
    n = 1
    for i in reversed(shape):
        if n >= 64:
            break
        n *= i
    return 256 if is_flat(shape) or not 64 <= n <= 65536 else n


def is_flat(shape: tuple[int, ...]) -> bool:
    return sum(i != 1 for i in shape) <= 1


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
        self.rules = [Rule(text) for text in texts]
        self.seconds: dict[str, Second] = {}
        self.n_quantised = 0
        self._reasons: dict[str, str] = {}  # why tensors that a rule names stay as they are: with one of them

    def say_nothing_done(self) -> str | None:
        """What a user of rules that have quantised nothing is told; None: something was, or was not to be."""
        if self.n_quantised or all(rule.kind == "lossless" for rule in self.rules):
            return None
        reasons = "; ".join(f"{name!r} {reason}" for reason, name in self._reasons.items())
        return f"no tensor was quantised: {reasons or 'no rule matches one'}"

    def find(self, path: str, name: str, dtype: str, shape: tuple[int, ...], size: int) -> tuple[Rule, str, str] | None:
        """The rule, the role and the name of the pair; None: the tensor stays as it is."""
        role, pair = find_role(path, name, dtype)
        matching = [rule for rule in reversed(self.rules) if rule.matches(path, name, dtype, size)]
        rule = next((rule for rule in matching if role in rule.roles), None)
        if rule is None:
            if matching and role in ("weight", "other"):
                self._reasons[f"is no moment or gradient: a rule for it says role={role}"] = name
            return None
        n = 8 * size // BITS[dtype]
        if rule.kind == "lossless":
            return None
        if rule.kind == "auto" and role in ("weight", "other"):
            reason = "is no moment or gradient, which are what auto: is for"
        elif dtype not in ("F32", "BF16"):
            reason = f"is of {dtype}: only F32 and BF16 are quantised"
        elif n < MIN_ELEMENTS or (is_flat(shape) and n < MIN_FLAT_ELEMENTS):
            reason = "is too small"
        else:
            return rule, role, pair
        self._reasons[reason] = name
        return None

    def fit(self, name: str, rule: Rule, role: str, pair: str, dtype: str, shape: tuple[int, ...], buffer: Any) -> tuple[Any, Any]:
        """A quantizer, and the twin that it wants; (None, None) if the tensor is better kept."""
        measure, bound = _MEASURES.get(rule.kind, 1), rule.bound
        if measure == 1 and role in ("m", "v"):  # each moment may spoil a part of the update
            bound *= 0.70710678118654752
        elif measure == 1:  # of a gradient, all it does is that it is there
            measure, bound = 3, bound * bound
        number = {"m": 1, "v": 2}.get(role, 0)
        second = self.seconds.get(pair) if role == "m" and measure != 2 else None
        if role == "m" and second is None:  # what the update loses cannot be measured; no more than each element does
            number, measure = 0, 2 if measure == 1 else measure
        quantizer = _lmc.Quantizer(
            buffer,
            dtype,
            number,
            rule.bits,
            measure,
            bound,
            _group(shape),
            0.0,
            None if second is None else second.buffer,
            None if second is None else second.quantizer,
        )
        if quantizer.info()[0]:
            self._reasons["would not become smaller"] = name
            return None, None
        self.n_quantised += 1
        return quantizer, None if second is None else (second.file_number, second.offset, 0)
