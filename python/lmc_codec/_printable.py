"""What files call their tensors, as a terminal shows it and does not obey it: the same as the command shows."""

from __future__ import annotations

#: Controls of C0 and C1, of formatting and direction, ends of lines, what has no width or looks like nothing, tags, and
#: what is no character: first and last of each range, as in cli/sys/printable.c.
_HIDDEN = (
    (0, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F),
    (0x890, 0x891), (0x8E2, 0x8E2), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xD800, 0xDFFF), (0xFDD0, 0xFDEF), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip


def _escape(character: str) -> str:
    c = ord(character)
    if c & 0xFFFE != 0xFFFE and not any(first <= c <= last for first, last in _HIDDEN):
        return character
    if 0xDC80 <= c <= 0xDCFF:  # a byte that is no UTF-8 (surrogateescape)
        return f"\\x{c - 0xDC00:02X}"
    return f"\\x{c:02X}" if c < 0x80 else f"\\u{{{c:04X}}}"


def printable(text: object) -> str:
    """Escapes what would move the cursor, end the line, turn the direction of writing or be seen by nobody: \\xHH is a byte
    that is no UTF-8 or a control character, \\u{HHHH} a character. What is escaped already stays as it is, so whole
    messages may go through it."""
    said = str(text)
    return said if said.isascii() and said.isprintable() else "".join(map(_escape, said))
