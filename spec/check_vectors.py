#!/usr/bin/env python3
"""Run a decoder over the conformance vectors and compare with vectors/manifest.json.

Usage: check_vectors.py [--has LIST]                               the reference decoder, as a module: bytes, fields, fingerprints, statuses, rules
       check_vectors.py [--has LIST] 'DECODER {base} {in} {out}'   any command, e.g. 'build/lmc -d -f {base} -o {out} {in}' (split at
                                                                   spaces, no shell)
       check_vectors.py [--has LIST] --answers 'PROGRAM'           one program for all vectors: bytes, fields, fingerprints, statuses

--has LIST: the decoder's features, of those that vectors may need (vectors/README.md), separated by commas; default
base,own,quantised,zeros,matrix,codes,hash,links,foreign. Without a needed bit of Incompatible (those up to codes) it must refuse the vector: a valid one with
UNSUPPORTED, an invalid one with this or its own statuses. Without foreign, vectors with such bases are left out. Vectors that need hash or links are
valid files: a decoder without these must accept them, one with these may. Several --has: one decoder after another is checked.

{base} becomes --base PATH for each base that the decoder gets, or nothing; without {base} vectors with bases are left out.
A command must exit with 0 and leave the file, or the directory of files, at {out} for valid vectors; for invalid ones it must exit
with 3 (bad data), 1 (VERSION, UNSUPPORTED, LIMIT) or 4 (BASE_MISSING, BASE_WRONG) as the status says, and leave nothing in the
directory of {out}. Modes and times are not checked with a command.

PROGRAM reads a line for each vector from its input: the path of the file and those of the bases, with tabs between. It answers each at once with
a line of JSON: {"status": "CORRUPT"} (or another name of section 2.2), or everything that it decoded, as in answer_of() below. Strings of the file
are in hexadecimal; numbers have up to 64 bits.

Exit code 0 if all passed. SPDX-License-Identifier: MIT
"""
import functools
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading

import links
import lmc_decode
import ranges
import restore

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")
TIMEOUT = 120                                  # seconds for one vector
BITS = ["base", "own", "quantised", "zeros", "matrix", "codes"]  # of Incompatible
RANGE_RULES = {"R8-6", "R8-7", "R8-8", "R8-9", "R8-12", "R8-13", "R8-14"}           # a range reader must check these, too
HAS = BITS + ["hash", "links", "foreign"]
# Blocks, files and ranges have the same bytes, in some vectors millions of them, so their CRC is computed only once.
lmc_decode.crc32c = functools.lru_cache(maxsize=None)(lmc_decode.crc32c)


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
    """The symbolic links in the metadata."""
    for item in entry.get("metadata", []):
        if raw(item, "key") == b"lmc.links" and not any(rule.startswith("L-") for rule in entry.get("rules", [])):
            parts = raw(item, "value").split(b"\0")   # a broken value, which is not used, has no pairs
            return {path[1:]: target for path, target in zip(parts[0::2], parts[1::2]) if path[:1] == b"s"}
    return {}


def expect(entry, has):
    """The statuses that a decoder with these features may report."""
    lacks = ["UNSUPPORTED"] if set(BITS) & set(entry["needs"]) - has else []
    if lacks and len(entry["base"]) > 0:
        lacks += ["BASE_MISSING", "BASE_WRONG"]                  # perhaps the base needs more features
    if entry["kind"] == "valid":
        return lacks or ["OK"] + entry.get("or", [])
    return entry["status"] + lacks


def compare_module(entry, has):
    """What is wrong with the reference decoder's result, or None. It makes all checks, and names the rule."""
    data, expected = read(path_of(entry)), expect(entry, has)
    bits = sum(1 << bit for bit, name in enumerate(BITS) if name in has)
    if "or" in entry and expected[0] == "OK":
        expected = [status for status in expected if (status != "OK") == (set(entry["needs"]) & has & {"hash", "links"} != set())]
    try:
        snapshot = lmc_decode.decode(data, bases_of(entry), bits=bits, hashes="hash" in has)
        if "links" in has and (snapshot.files[0].path or snapshot.files[0].kind == lmc_decode.DIRECTORY):
            links.links_of(dict(snapshot.metadata).get(b"lmc.links", b""), snapshot.files)
    except lmc_decode.LmcError as error:
        if error.status not in expected:
            return str(error)
        named = set(re.findall(r"[RFHKLMQSZ](?:[0-9]+-|-)[0-9]+", error.text))
        if error.status == "UNSUPPORTED" and "R3-8" in named:
            return None
        if not named & set(entry["rules"]):
            return "%s, not by %s" % (error, entry["rules"])
        return compare_refused_ranges(entry, data, bits) if entry["kind"] == "invalid" else None
    return "accepted" if "OK" not in expected else compare_decoded(entry, snapshot) or compare_ranges(entry, data, bits)


def compare_ranges(entry, data, bits):
    """The same for reading by ranges: all files, and all tensors."""
    reader = ranges.Reader(io.BytesIO(data), bases_of(entry), bits)
    for file, want in zip(reader.files, entry["files"]):
        if digest(reader.read(file, 0, file.size)) != want["sha256"]:
            return "range reader: file %r" % file.path
        for tensor in file.tensors:
            reader.read_tensor(file, tensor)
    return None


def compare_refused_ranges(entry, data, bits):
    """An invalid file: a range reader may miss the fault, except for rules that it must check."""
    try:
        reader = ranges.Reader(io.BytesIO(data), bases_of(entry), bits)
        for file in reader.files:
            reader.read(file, 0, file.size)
            for tensor in file.tensors:
                reader.read_tensor(file, tensor)
    except lmc_decode.LmcError as error:
        return None if error.status in entry["status"] + ["TRUNCATED", "BASE_WRONG"] + ["CHECKSUM"] * ("R3-20" in entry["rules"]) else "range reader: %s" % error
    return "range reader: accepted" if set(entry["rules"]) & RANGE_RULES else None


def compare_decoded(entry, snapshot):
    if snapshot.fingerprint.hex() != entry["fingerprint"] or len(snapshot.files) != len(entry["files"]):
        return "fingerprint of the snapshot or number of files"
    if (snapshot.base_fingerprint and snapshot.base_fingerprint.hex()) != entry["base_fingerprint"]:
        return "fingerprint of the base"
    if snapshot.metadata != [(raw(m, "key"), raw(m, "value")) for m in entry["metadata"]]:
        return "metadata"
    for got, file in zip(snapshot.files, entry["files"]):
        mtime = file["mtime"] and file["mtime"][0] * 10**9 + file["mtime"][1]
        kind = lmc_decode.DIRECTORY if file["kind"] == "directory" else lmc_decode.REGULAR
        if (got.path, got.kind, got.size, digest(got.data), got.mode, got.mtime) != (
                raw(file, "path"), kind, file["size"], file["sha256"], file["mode"], mtime):
            return "file %r" % got.path
        if got.fingerprint and got.fingerprint.hex() != file["fingerprint"]:
            return "fingerprint of file %r" % got.path
        if [(t.name, t.dtype, list(t.shape), t.offset, t.size, t.fingerprint.hex(), list(t.loss)) for t in got.tensors] != [
                (raw(t, "name"), t["dtype"].encode(), t["shape"], t["offset"], t["size"], t["fingerprint"], t["loss"]) for t in file["tensors"]]:
            return "tensors of file %r" % got.path
    if "output" in entry and snapshot.files[0].data != read(os.path.join(VECTORS, entry["output"])):
        return "output"
    return None


def answer_of(entry):
    """The answer that a program must give for a valid vector."""
    return {
        "status": "OK",
        "fingerprint": entry["fingerprint"],
        "base_fingerprint": entry["base_fingerprint"],
        "metadata": [[raw(m, "key").hex(), raw(m, "value").hex()] for m in entry["metadata"]],
        "files": [{
            "path": raw(file, "path").hex(),
            "kind": file["kind"],                                # "regular" or "directory"
            "size": file["size"],
            "sha256": file["sha256"],                            # of its bytes
            "mode": file["mode"],                                # or null
            "mtime": file["mtime"],                              # [seconds, nanoseconds] or null
            "fingerprint": None if file["tensors"] else file["fingerprint"],
            "tensors": [{
                "name": raw(t, "name").hex(), "dtype": t["dtype"].encode().hex(), "shape": t["shape"], "offset": t["offset"], "size": t["size"],
                "loss": t["loss"],                               # Generation, Measure, Error
                "fingerprint": t["fingerprint"],
            } for t in file["tensors"]],
        } for file in entry["files"]],
    }


def compare_answer(entry, has, program):
    """What is wrong with the answer of a running program, or None."""
    paths = [path_of(entry)] + bases_of(entry)
    watch = threading.Timer(TIMEOUT, program.kill)               # then the answer is an empty line
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
    if answer["status"] not in expect(entry, has) or answer["status"] == "OK" and answer != answer_of(entry):
        return line.strip()[:500]
    return None


def compare_command(entry, has, template):
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
        allowed = {0 if status == "OK" else restore.EXIT_CODES.get(status, 3) for status in expect(entry, has)}
        if any(len(raw(file, "path")) > 4000 for file in entry.get("files", [])):
            allowed.add(1)                      # a path that few systems support (R9-3)
        if result.returncode not in allowed:
            return said
        if result.returncode != 0:
            return "left behind: %s" % ", ".join(os.listdir(folder)) if os.listdir(folder) else None
        if os.listdir(folder) != ["out"]:
            return "left behind: %s" % ", ".join(os.listdir(folder))
        files = entry["files"]
        if len(files) == 1 and files[0]["kind"] == "regular":
            if os.path.isdir(out):                  # a command may restore a file with a Path as a directory of one file
                return compare_directory(os.fsencode(out), entry)
            return None if os.path.isfile(out) and digest(read(out)) == files[0]["sha256"] else "content of the file"
        return compare_directory(os.fsencode(out), entry)


def compare_directory(out, entry):
    expected = {raw(file, "path"): file for file in entry["files"]}
    found = {os.path.relpath(os.path.join(folder, name), out) for folder, _, names in os.walk(out) for name in names
             if not os.path.islink(os.path.join(folder, name))}
    links = {os.fsencode(os.path.relpath(os.path.join(folder, name), out)): os.fsencode(os.readlink(os.path.join(folder, name)))
             for folder, folders, names in os.walk(out) for name in folders + names if os.path.islink(os.path.join(folder, name))}
    if links and links != links_of(entry):             # a decoder may make no links, or all
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
    sets = []
    while arguments[:1] == ["--has"] and len(arguments) > 1 and set(arguments[1].split(",")) <= {*HAS, ""}:
        sets, arguments = sets + [set(arguments[1].split(","))], arguments[2:]
    return max(check(has, arguments) for has in sets or [set(HAS)])


def check(has, arguments):
    program = None
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
            if "foreign" in set(entry["needs"]) - has:
                left_out += 1
                continue
            if program:
                problem = compare_answer(entry, has, program)
            elif arguments and entry["base"] and "{base}" not in arguments[0]:
                left_out += 1
                continue
            else:
                problem = compare_command(entry, has, arguments[0]) if arguments else compare_module(entry, has)
            if problem:
                print("FAILED %s/%s (%s): %s" % (kind, entry["name"], "/".join(entry.get("status", ["ok"])), problem))
            passed, failed = passed + (not problem), failed + bool(problem)
    if program:
        program.stdin.close()
        if program.wait() != 0:
            print("FAILED: the program's exit code is %d" % program.returncode)
            failed += 1
    print("%d passed, %d failed%s" % (passed, failed, ", %d left out" % left_out if left_out else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
