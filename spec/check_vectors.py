#!/usr/bin/env python3
"""Run a decoder over the conformance vectors and compare with vectors/manifest.json.

Usage: check_vectors.py [--level N]                               the reference decoder, as a module: bytes, fields, identities, statuses
       check_vectors.py [--level N] 'DECODER {base} {in} {out}'   any command, e.g. 'build/lmc -d -f {base} -o {out} {in}' (split at spaces,
                                                                  no shell)
       check_vectors.py [--level N] --answers 'PROGRAM'           a program that answers for all vectors: bytes, fields, identities, statuses

--level N: the decoder is one of conformance level N, default 4 (all). It must refuse a vector of a higher level: a valid one with UNSUPPORTED
(or BASE_MISSING), an invalid one with these or its own statuses. A valid vector with an "or" may also be refused as that says, by a decoder
that checks what need not be checked (hashes).

{base} becomes --base PATH for each base that the decoder is to know, or nothing; without it vectors of its level that have bases are left out.
A command must exit with 0 and leave the file, or the directory of files, at {out} for valid vectors; for invalid ones it must exit
with 3 (bad data), 1 (VERSION, UNSUPPORTED, LIMIT) or 4 (BASE_MISSING, BASE_WRONG) as the status says, and leave nothing in the
directory of {out}. Modes and times are not checked of a command.

PROGRAM reads a line for each vector from its input: the path of the file and those of the bases, with tabs between. It answers each at once with
a line of JSON: {"status": "CORRUPT"} (or another name of section 11), or all that it decoded, as answer_of() below has it. Strings of the file
are in hexadecimal; numbers have up to 64 bits.

Exit code 0 if all passed. SPDX-License-Identifier: MIT
"""
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading

import lmc_decode

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")
TIMEOUT = 120                                  # seconds for one vector


def read(path):
    with open(path, "rb") as file:
        return file.read()


def raw(entry, name):
    return bytes.fromhex(entry[name + "_hex"]) if name + "_hex" in entry else entry[name].encode("utf-8")


def digest(data):
    return hashlib.sha256(data).hexdigest()


def path_of(entry):
    return os.path.join(VECTORS, entry["kind"], entry["name"] + ".lmc")


def bases_of(entry):
    return [os.path.join(VECTORS, path) for path in entry["base"]]


def links_of(entry):
    """The symbolic links that the metadata tells of (10.2)."""
    for item in entry.get("metadata", []):
        if raw(item, "key") == b"lmc.links" and (entry["section"] != "10.2" or "or" not in entry):   # otherwise nobody makes them
            parts = raw(item, "value").split(b"\0")
            return {path[1:]: target for path, target in zip(parts[0::2], parts[1::2]) if path[:1] == b"s"}
    return {}


def expect(entry, level):
    """The statuses that a decoder of this level may report."""
    above = ["UNSUPPORTED", "BASE_MISSING"] if entry["level"] > level else []
    if entry["kind"] == "valid":
        return above or ["OK"] + entry.get("or", [])
    return entry["status"] + above


def compare_module(entry, level):
    """What is wrong with the reference decoder's answer, or None."""
    expected, data = expect(entry, level), read(path_of(entry))
    problem = compare_decoded(entry, data, [status for status in expected if status not in entry.get("or", ())], level, False)
    if not problem and b"hash" in data:
        checked = [status for status in expected if status != "OK" or "or" not in entry]
        problem = compare_decoded(entry, data, checked, level, True)
    return problem


def compare_decoded(entry, data, expected, level, hashes):
    try:
        snapshot = lmc_decode.decode(data, bases_of(entry), level=level, hashes=hashes)
    except lmc_decode.LmcError as error:
        return None if error.status in expected else str(error)
    if "OK" not in expected:
        return "accepted"
    if snapshot.identity.hex() != entry["identity"] or len(snapshot.files) != len(entry["files"]):
        return "identity of the snapshot or number of files"
    if (snapshot.base_identity and snapshot.base_identity.hex()) != entry["base_identity"]:
        return "identity of the base"
    if snapshot.metadata != [(raw(m, "key"), raw(m, "value")) for m in entry["metadata"]]:
        return "metadata"
    for got, file in zip(snapshot.files, entry["files"]):
        mtime = file["mtime"] and file["mtime"][0] * 10**9 + file["mtime"][1]
        kind = lmc_decode.DIRECTORY if file["kind"] == "directory" else lmc_decode.REGULAR
        if (got.path, got.kind, got.size, digest(got.data), got.mode, got.mtime) != (
                raw(file, "path"), kind, file["size"], file["sha256"], file["mode"], mtime):
            return "file %r" % got.path
        if got.identity and got.identity.hex() != file["identity"]:
            return "identity of file %r" % got.path
        if [(t.name, t.dtype, list(t.shape), t.offset, t.size, t.identity.hex(), list(t.loss)) for t in got.tensors] != [
                (raw(t, "name"), t["dtype"].encode(), t["shape"], t["offset"], t["size"], t["identity"], t["loss"]) for t in file["tensors"]]:
            return "tensors of file %r" % got.path
    if "output" in entry and snapshot.files[0].data != read(os.path.join(VECTORS, entry["output"])):
        return "output"
    return None


def answer_of(entry):
    """What a program has to say of a valid vector."""
    return {
        "status": "OK",
        "identity": entry["identity"],
        "base_identity": entry["base_identity"],
        "metadata": [[raw(m, "key").hex(), raw(m, "value").hex()] for m in entry["metadata"]],
        "files": [{
            "path": raw(file, "path").hex(),
            "kind": file["kind"],                                # "regular" or "directory"
            "size": file["size"],
            "sha256": file["sha256"],                            # of its bytes
            "mode": file["mode"],                                # or null
            "mtime": file["mtime"],                              # [seconds, nanoseconds] or null
            "identity": None if file["tensors"] else file["identity"],
            "tensors": [{
                "name": raw(t, "name").hex(), "dtype": t["dtype"].encode().hex(), "shape": t["shape"], "offset": t["offset"], "size": t["size"],
                "loss": t["loss"],                               # Generation, Measure, Error
                "identity": t["identity"],
            } for t in file["tensors"]],
        } for file in entry["files"]],
    }


def compare_answer(entry, level, program):
    """What is wrong with the answer of a running program, or None."""
    paths = [path_of(entry)] + bases_of(entry)
    watch = threading.Timer(TIMEOUT, program.kill)               # its answer is the empty line then
    watch.start()
    try:
        program.stdin.write("\t".join(paths) + "\n")
        program.stdin.flush()
        line = program.stdout.readline()
    except BrokenPipeError:
        line = ""
    watch.cancel()
    if not line:
        raise SystemExit("FAILED %s/%s: the program has ended, or was ended after %d seconds" % (entry["kind"], entry["name"], TIMEOUT))
    answer = json.loads(line)
    if answer["status"] not in expect(entry, level) or answer["status"] == "OK" and answer != answer_of(entry):
        return line.strip()[:500]
    return None


def compare_command(entry, level, template):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = []
        for part in shlex.split(template):
            if part == "{base}":
                command += [argument for path in bases_of(entry) for argument in ("--base", path)]
            else:
                command.append(part.replace("{in}", path_of(entry)).replace("{out}", out))
        try:
            result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return "no answer in %d seconds" % TIMEOUT
        said = "exit code %d: %s" % (result.returncode, result.stderr.decode(errors="replace").strip()[-200:])
        allowed = {0 if status == "OK" else lmc_decode.EXIT_CODES.get(status, 3) for status in expect(entry, level)}
        if result.returncode not in allowed:
            return said
        if result.returncode != 0:
            return "left behind: %s" % ", ".join(os.listdir(folder)) if os.listdir(folder) else None
        if os.listdir(folder) != ["out"]:
            return "left behind: %s" % ", ".join(os.listdir(folder))
        files = entry["files"]
        if len(files) == 1 and files[0]["kind"] == "regular":
            if os.path.isdir(out):                  # a command may take a file with a Path for a folder of one file
                return compare_directory(os.fsencode(out), entry)
            return None if os.path.isfile(out) and digest(read(out)) == files[0]["sha256"] else "content of the file"
        return compare_directory(os.fsencode(out), entry)


def compare_directory(out, entry):
    expected = {raw(file, "path"): file for file in entry["files"]}
    found = {os.path.relpath(os.path.join(folder, name), out) for folder, _, names in os.walk(out) for name in names
             if not os.path.islink(os.path.join(folder, name))}
    links = {os.fsencode(os.path.relpath(os.path.join(folder, name), out)): os.fsencode(os.readlink(os.path.join(folder, name)))
             for folder, folders, names in os.walk(out) for name in folders + names if os.path.islink(os.path.join(folder, name))}
    if links and links != links_of(entry):             # a decoder need not make them (10.2), but then it makes none
        return "links"
    if found != {path for path, file in expected.items() if file["kind"] == "regular"}:
        return "names of the files"
    for path, file in expected.items():
        path = os.path.join(out, path)
        if file["kind"] == "directory" and not os.path.isdir(path):
            return "no directory %r" % path
        if file["kind"] == "regular" and digest(read(path)) != file["sha256"]:
            return "content of %r" % path
    return None


def main(arguments):
    program, level = None, lmc_decode.ALL_LEVELS
    if arguments[:1] == ["--level"] and len(arguments) > 1 and arguments[1].isdigit():
        level, arguments = int(arguments[1]), arguments[2:]
    if len(arguments) == 2 and arguments[0] == "--answers":
        program = subprocess.Popen(shlex.split(arguments[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
    elif len(arguments) > 1 or (arguments and ("{in}" not in arguments[0] or "{out}" not in arguments[0])):
        print(__doc__, file=sys.stderr)
        return 2
    with open(os.path.join(VECTORS, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    passed = failed = left_out = 0
    for kind in ("valid", "invalid"):
        for entry in manifest[kind]:
            entry["kind"] = kind
            if program:
                problem = compare_answer(entry, level, program)
            elif arguments and entry["base"] and "{base}" not in arguments[0] and entry["level"] <= level:
                left_out += 1
                continue
            else:
                problem = compare_command(entry, level, arguments[0]) if arguments else compare_module(entry, level)
            if problem:
                print("FAILED %s/%s (section %s, %s): %s" % (kind, entry["name"], entry["section"], "/".join(entry.get("status", ["ok"])), problem))
            passed, failed = passed + (not problem), failed + bool(problem)
    if program:
        program.stdin.close()
        if program.wait() != 0:
            print("FAILED: the program's exit code is %d" % program.returncode)
            failed += 1
    print("%d passed, %d failed%s" % (passed, failed, ", %d left out for want of {base}" % left_out if left_out else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
