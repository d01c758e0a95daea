"""Files that appear complete, or not at all."""

from __future__ import annotations

import errno
import os
import stat

from . import _lmc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def attempt(call: str, function: Callable[..., Any], *args: Any, **options: Any) -> bool:
    """Calls a function of `os` that many file systems lack (call: "mode", "owner", "time", "sync", "sync_directory", "lock",
    "link" or "symlink"; formats/refused.h). False: this one does. Other errors are raised."""
    try:
        function(*args, **options)
    except OSError as error:
        if not _lmc.is_refused(call, error.errno or 0):
            raise
        return False
    return True


def sync_file(fd: int) -> bool:
    """Syncs a file to the disk. False: its file system cannot do that."""
    return attempt("sync", _sync, fd)


def sync_directory(directory: str) -> bool:
    """Syncs the names in a directory to the disk. False: its file system cannot do that, or the directory cannot be read."""
    return os.name == "nt" or attempt("sync_directory", _sync_opened, directory or os.sep)


def _sync(fd: int) -> None:
    try:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore] # macOS: fsync() gives the data to the drive, which may keep them in its cache
    except (ImportError, AttributeError, OSError):
        os.fsync(fd)


def _sync_opened(directory: str) -> None:
    opened = _lmc.Descriptor(os.open, directory, os.O_RDONLY | os.O_DIRECTORY)
    _sync(opened.fileno())


MOUNTED = "it is mounted by itself, so no file can take its place: write to another path, or open it and hand over the file"


class NewFile:
    """A new file that will be at `place`, an absolute path.

    On Linux it has no name until then (O_TMPFILE), so a killed process leaves nothing. If the system or the file system
    does not support this, the file is `.NAME.NUMBER.part` in the same directory. The file belongs to `descriptor`: when that
    is gone, even by an exception at any moment, so is the file."""

    def __init__(self, place: str):
        self.place = place
        directory, name = os.path.split(place)
        # only the beginning of the name, because the name may have the maximal length
        self._part = os.path.join(directory, f".{name[:32]}.{os.urandom(8).hex()}.part")
        self._check()
        self._mode = _mode_of(place)
        self.descriptor = self._open_without_name(directory or os.sep) or self._open_part()
        self._set_mode(self.fileno())

    def fileno(self) -> int:
        return self.descriptor.fileno()

    def sync(self) -> bool:
        """Syncs the file to the disk. False: the file system cannot do that."""
        return sync_file(self.fileno())

    def _check(self) -> None:
        """Raises what appear() would raise after all the work, as far as that is known now."""
        _is_there(self._part)  # of another name, it may be too long
        if _is_there(self.place) and _is_mounted(self.place):
            raise OSError(errno.EBUSY, MOUNTED, self.place)

    def appear(self) -> None:
        """Moves the file to its place, where it replaces an old file. Syncs file and directory to the disk."""
        if self.descriptor.temporary is None:
            self._give_name()
        self.descriptor.close()
        try:
            os.replace(self._part, self.place)
        except OSError as error:
            raise OSError(error.errno, MOUNTED if error.errno == errno.EBUSY else error.strerror, self.place) from None
        self.descriptor.temporary = None
        sync_directory(os.path.dirname(self.place))

    def remove(self) -> None:
        """Removes the file; nothing appears."""
        self.descriptor.remove()

    def close(self) -> None:
        """Closes only the descriptor: after a fork the file belongs to the parent."""
        self.descriptor.close()

    # A file that replaces another one is private until it has the mode of that: so it never has more permissions.

    def _open(self, path: str, flags: int, temporary: str | None = None) -> _lmc.Descriptor:
        return _lmc.Descriptor(os.open, path, os.O_RDWR | flags, 0o666 if self._mode is None else 0o600, temporary=temporary)

    def _set_mode(self, fd: int) -> None:
        if self._mode is not None and hasattr(os, "fchmod"):
            attempt("mode", os.fchmod, fd, self._mode)

    def _open_part(self) -> _lmc.Descriptor:
        return self._open(self._part, os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), self._part)

    def _open_without_name(self, directory: str) -> _lmc.Descriptor | None:
        """None: that is not possible."""
        if not hasattr(os, "O_TMPFILE"):
            return None
        try:
            opened = self._open(directory, os.O_TMPFILE)
        except OSError:
            return None  # any error: a file with a name has the same error, with a better message
        return opened if os.path.exists(f"/proc/self/fd/{opened.fileno()}") else None  # _give_name() needs this path

    def _give_name(self) -> None:
        fd = self.fileno()
        self.descriptor.temporary = self._part  # before it has the name: an exception may come right after os.link()
        try:
            # src_dir_fd makes Python call linkat(), which follows the link; link() does not
            os.link(f"/proc/self/fd/{fd}", self._part, src_dir_fd=fd, follow_symlinks=True)
        except OSError:  # copying always works, if there is space
            import shutil

            self.descriptor.temporary = None
            copy = self._open_part()
            with open(copy.fileno(), "wb", closefd=False) as part, open(fd, "rb", closefd=False) as file:
                self._set_mode(copy.fileno())
                file.seek(0)
                shutil.copyfileobj(file, part, 8 << 20)
                part.flush()
                sync_file(copy.fileno())
            self.descriptor = copy


def _mode_of(place: str) -> int | None:
    """The mode of the file that will be replaced."""
    try:
        return stat.S_IMODE(os.stat(place).st_mode)
    except OSError:
        return None


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _is_mounted(path: str) -> bool:
    """Whether it is a mount point, as single files of containers are. Only Linux tells, by the numbers of mounts."""
    try:
        return _mount_of(path) != _mount_of(os.path.dirname(path) + "/.")
    except (OSError, AttributeError):
        return False


def _mount_of(path: str) -> list[bytes]:
    opened = _lmc.Descriptor(os.open, path, os.O_PATH | os.O_NOFOLLOW)
    with open(f"/proc/self/fdinfo/{opened.fileno()}", "rb") as file:
        return [line for line in file if line.startswith(b"mnt_id:")]
