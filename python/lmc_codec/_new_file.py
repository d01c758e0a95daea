"""Files that appear complete, or not at all."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class NewFile:
    """A new file that will be at `place`, an absolute path.

    On Linux it has no name until then (O_TMPFILE), so a killed process leaves nothing. If the system or the file system
    does not support this, the file is `.NAME.NUMBER.part` in the same directory."""

    def __init__(self, place: str):
        self.place = place
        directory, name = os.path.split(place)
        # only the beginning of the name, because the name may have the maximal length
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
        """Moves the file to its place, where it replaces an old file. Syncs file and directory to the disk."""
        if not self._has_name:
            self._give_name()
        self.close()
        os.replace(self._part, self.place)
        self._has_name = False
        _sync_directory(os.path.dirname(self.place))

    def remove(self) -> None:
        """Removes the file; nothing appears."""
        self.close()
        if self._has_name:
            self._has_name = False
            try:
                os.unlink(self._part)
            except FileNotFoundError:
                pass

    def close(self) -> None:
        """Closes only the descriptor: after a fork the file belongs to the parent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _give_name(self) -> None:
        self._has_name = True  # from here on remove() unlinks it
        try:
            # src_dir_fd makes Python call linkat(), which follows the link; link() does not
            os.link(f"/proc/self/fd/{self._fd}", self._part, src_dir_fd=self._fd, follow_symlinks=True)
        except OSError:  # copying always works, if there is space
            import shutil

            with open(self._part, "xb", opener=_opener(self.place)) as part, open(self._fd, "rb", closefd=False) as file:
                file.seek(0)
                shutil.copyfileobj(file, part, 8 << 20)
                part.flush()
                os.fsync(part.fileno())


def _sync_directory(directory: str) -> None:
    """Syncs the new name to the disk. Ignored if the directory cannot be opened or synced."""
    if os.name == "nt":
        return
    try:
        fd = os.open(directory or os.sep, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # the directory can be searched, but not read
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _open_without_name(directory: str, opener: Callable[[str, int], int]) -> int:
    """A file without a name, or -1 if that is not possible."""
    if not hasattr(os, "O_TMPFILE"):
        return -1
    try:
        fd = opener(directory, os.O_TMPFILE | os.O_RDWR)
    except OSError:
        return -1  # any error: a file with a name has the same error, with a better message
    if not os.path.exists(f"/proc/self/fd/{fd}"):  # _give_name() needs this path
        os.close(fd)
        return -1
    return fd


def _opener(place: str) -> Callable[[str, int], int]:
    """Opens a file that will replace `place`: with the mode of the old file, and never with more permissions."""
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
