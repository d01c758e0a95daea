"""The command lmc_decode.py: restores an LMC file (lmc-format.md, section 9, Paths).

Usage: lmc_decode.py [OPTION]... FILE.lmc OUT        restore; OUT is a file if the snapshot is one file without a path, else a directory
       lmc_decode.py [OPTION]... --list FILE.lmc     check everything, print files and tensors as JSON
       lmc_decode.py [OPTION]... --tensor NAME FILE.lmc OUT       read one tensor only, by the index
FILE.lmc may be - (standard input), OUT may be - (standard output; one regular file only).
--base BASE   for a delta: an LMC file or anything of foreign-bases.md. Of several the one with the right fingerprint is used, also for a base that is
a delta itself. It is kept in memory.
--bits N      act as a decoder with these bits of Incompatible (default 7: all)
--limit N     restore at most N bytes in all (LIMIT): a small file can restore to a huge one
--hashes      check the SHA-256 hashes, too, if the file has them (hash.md)

Exit codes: 0 ok, 1 VERSION, UNSUPPORTED, LIMIT or an I/O error, 2 usage, 3 bad data, 4 BASE_MISSING or BASE_WRONG. After an error nothing
is left at OUT. SPDX-License-Identifier: MIT
"""
import json
import os
import shutil
import sys
import tempfile

import links
import lmc_decode
import ranges
from lmc_decode import DIRECTORY, REGULAR, LmcError

EXIT_CODES = {"VERSION": 1, "UNSUPPORTED": 1, "LIMIT": 1, "BASE_MISSING": 4, "BASE_WRONG": 4}                 # others: 3
MEASURES = {0: "none", 1: "update", 2: "relative", 3: "nmse"}


class Restore:
    """Writes the files below a temporary directory beside OUT; publish() moves them there."""

    def __init__(self, out):
        self.out, self.open = out, None
        # mkdtemp makes it private; root in it gets the usual mode.
        self.temporary = tempfile.mkdtemp(prefix=".lmc-", dir=None if out == "-" else os.path.dirname(os.path.abspath(out)))
        self.root = os.path.join(os.fsencode(self.temporary), b"root")
        os.mkdir(self.root)

    def deliver(self, file, piece):
        if piece:
            self.open.write(piece)
            return
        self.close()
        path = os.path.join(self.root, file.path or b"file")
        os.makedirs(path if file.kind == DIRECTORY else os.path.dirname(path), exist_ok=True)
        if file.kind == REGULAR:
            self.open = open(path, "xb")

    def publish(self, files, metadata=()):
        self.close()
        if files[0].path or files[0].kind == DIRECTORY:
            links.make_links(self.root, dict(metadata).get(b"lmc.links", b""), files)
        for file in sorted(files, key=lambda file: file.path, reverse=True):        # a directory after its content
            path = os.path.join(self.root, file.path or b"file")
            if file.mtime is not None:
                try:
                    os.utime(path, ns=(file.mtime, file.mtime))
                except (OverflowError, OSError):
                    pass                       # a time that this system does not support
            if file.mode is not None:
                os.chmod(path, file.mode & 0o777)                               # no set-user-ID bits from strangers
        single = not files[0].path                 # R4-27
        path = os.path.join(self.root, b"file") if single else self.root
        if self.out != "-":
            os.rename(path, os.fsencode(self.out))
        elif len(files) == 1 and files[0].kind == REGULAR:
            with open(os.path.join(self.root, files[0].path or b"file"), "rb") as data:
                shutil.copyfileobj(data, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            raise OSError("the snapshot is a directory: standard output takes one file only")

    def close(self):
        if self.open:
            self.open.close()
            self.open = None

    def remove(self):
        self.close()
        shutil.rmtree(self.temporary, ignore_errors=True)


def describe(snapshot):
    def text(data):
        return data.decode("utf-8", "backslashreplace")

    base = snapshot.base_fingerprint.hex() if snapshot.base_fingerprint else None
    metadata = {text(k): text(v) for k, v in snapshot.metadata}
    return json.dumps({"fingerprint": snapshot.fingerprint.hex(), "base": base, "metadata": metadata, "files": [
        {"path": text(f.path), "kind": "directory" if f.kind == DIRECTORY else "regular", "size": f.size, "crc32c": "%08x" % f.crc,
         "mode": f.mode, "mtime_ns": f.mtime, "fingerprint": f.fingerprint.hex() if f.fingerprint else None,
         "tensors": [{"name": text(t.name), "dtype": text(t.dtype), "shape": t.shape, "offset": t.offset, "size": t.size,
                      "fingerprint": t.fingerprint.hex(), "generation": t.loss[0], "measure": MEASURES.get(t.loss[1], t.loss[1]), "error": t.loss[2] / 2**32}
                     for t in f.tensors]} for f in snapshot.files]}, indent=1)


def main(arguments):
    bases, how, listing, tensor, restore = [], {}, False, None, None
    try:
        while arguments[0].startswith("--"):
            option, *arguments = arguments
            if option == "--base":
                bases.append(arguments.pop(0))
            elif option in ("--bits", "--limit"):
                how[option[2:]] = int(arguments.pop(0), 0)
            elif option == "--hashes":
                how["hashes"] = True
            elif option == "--tensor":
                tensor = os.fsencode(arguments.pop(0))
            elif option == "--list":
                listing = True
            else:
                raise ValueError
        if len(arguments) != (1 if listing else 2):
            raise ValueError
    except (IndexError, ValueError):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with (sys.stdin.buffer if arguments[0] == "-" else open(arguments[0], "rb")) as stream:
            if (bases or tensor is not None) and not stream.seekable():
                stream = spool(stream)
            if listing:
                print(describe(lmc_decode.decode_stream(stream, bases, **how)))
            elif tensor is not None:
                how.pop("hashes", None)
                write(arguments[1], ranges.read_tensor(stream, tensor, bases, **how))
            else:
                restore = Restore(arguments[1])
                snapshot = lmc_decode.decode_stream(stream, bases, restore.deliver, **how)
                restore.publish(snapshot.files, snapshot.metadata)
    except LmcError as error:
        print("lmc_decode: %s" % error, file=sys.stderr)
        return EXIT_CODES.get(error.status, 3)
    except KeyError as error:
        print("lmc_decode: there is no tensor %s" % error, file=sys.stderr)
        return 1
    except OSError as error:
        print("lmc_decode: IO: %s" % error, file=sys.stderr)
        return 1
    finally:
        if restore:
            restore.remove()
    return 0


def spool(stream):
    """Copies a pipe to a file, for reading its end."""
    file = tempfile.TemporaryFile()
    shutil.copyfileobj(stream, file)
    file.seek(0)
    return file


def write(path, data):
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with open(path, "wb") as file:
        file.write(data)
