"""Files that appear whole, or not at all."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class NewFile:
    """What will be the file at `place`, which is an absolute path.

    On Linux it has no name until then (O_TMPFILE), so a process that is killed leaves nothing. Where the system or the
    file system has no such files it is `.NAME.NUMBER.part`, beside its place."""

    def __init__(self, place: str):
        self.place = place
        directory, name = os.path.split(place)
        # the beginning of the name only: all of it may be as long as names can be
        self._part = os.path.join(directory, f".{name[:32]}.{os.urandom(8).hex()}.part")
        opener = _opener(place)
        self._has_name = False
        self._fd = _open_without_name(directory or os.sep, opener)
        if self._fd < 0:
            self._has_name = True
            self._fd = opener(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0))

    def fileno(self) -> int:
        return self._fd

    def sync(self) -> None:
        os.fsync(self._fd)

    def appear(self) -> None:
        """Ends it: it is at its place, where it replaces what was there, and both are on the disk."""
        if not self._has_name:
            self._give_name()
        self.close()
        os.replace(self._part, self.place)
        self._has_name = False
        _sync_directory(os.path.dirname(self.place))

    def remove(self) -> None:
        """Ends it: it never was."""
        self.close()
        if self._has_name:
            self._has_name = False
            try:
                os.unlink(self._part)
            except FileNotFoundError:
                pass

    def close(self) -> None:
        """The descriptor only: after a fork the file is the parent's."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _give_name(self) -> None:
        self._has_name = True  # remove() takes away what is there
        try:
            # a directory, which an absolute path does not need, has Python call linkat(): link() does not follow
            os.link(f"/proc/self/fd/{self._fd}", self._part, src_dir_fd=self._fd, follow_symlinks=True)
        except OSError:  # a copy needs nothing but room
            import shutil

            with open(self._part, "xb", opener=_opener(self.place)) as part, open(self._fd, "rb", closefd=False) as file:
                file.seek(0)
                shutil.copyfileobj(file, part, 8 << 20)
                part.flush()
                os.fsync(part.fileno())


def _sync_directory(directory: str) -> None:
    """So that the new name is on the disk, too. Where a directory cannot be opened or synced, that is all there is."""
    if os.name == "nt":
        return
    try:
        fd = os.open(directory or os.sep, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # one that can be searched, and not read
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _open_without_name(directory: str, opener: Callable[[str, int], int]) -> int:
    """-1 where that cannot be."""
    if not hasattr(os, "O_TMPFILE"):
        return -1
    try:
        fd = opener(directory, os.O_TMPFILE | os.O_RDWR)
    except OSError:
        return -1  # whatever it is: a file with a name shows it, too, and names the file
    if not os.path.exists(f"/proc/self/fd/{fd}"):  # by which it is to get its name
        os.close(fd)
        return -1
    return fd


def _opener(place: str) -> Callable[[str, int], int]:
    """Opens what will replace `place`: with the mode of that, and at no time with a wider one."""
    try:
        mode = stat.S_IMODE(os.stat(place).st_mode)
    except OSError:
        return lambda path, flags: os.open(path, flags, 0o666)

    def opener(path: str, flags: int) -> int:
        fd = os.open(path, flags, 0o600)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
        except OSError:
            os.close(fd)
            raise
        return fd

    return opener
