#!/usr/bin/env python3
"""Compare what lmc.h reads from the conformance vectors with their manifest.

Usage: vectors.py PROGRAM [ARGUMENT...]    PROGRAM is vectors.c, compiled; or an emulator and that program
"""
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "spec", "vectors")
passed = failed = 0

# A reader by the index uses its entries, not the sections, and no ancillary ones. It computes neither CRCs nor fingerprints of what it reads, and
# does not read every byte. For a whole run it needs no rows. So it reports other statuses.
BY_INDEX = {"section_largest_missing": "LMC_ERR_CORRUPT", "trailer_index_offset": "LMC_ERR_CHECKSUM"}
BY_INDEX.update(dict.fromkeys((
    "section_head_crc", "section_body_crc_file", "section_body_crc_run", "section_size_overflow", "ancillary_head_crc", "ancillary_body_crc",
    "ancillary_size_overflow", "ancillary_too_large", "ancillary_largest_missing", "ancillary_longer", "ancillary_entry_kind",
    "ancillary_entry_stored_size", "order_ancillary_after_blks", "entry_body_path", "entry_body_run", "row_size", "rows_swapped", "entry_order", "entry_file_crc", "entry_directory_crc", "group_entry_file_crc",
    "fingerprint_of_crc_collision_first", "fingerprint_of_crc_collision_last", "fingerprint_file_as_directory",
    "fingerprint_directory_as_file", "fingerprint_tensor_as_file", "base_missing"), "LMC_OK"))


# Vectors with hashes, which all begin with the same file; the hash of its first tensor.
HASHED = ("hash", "hash_and_other", "hash_after_other", "hash_empty", "hash_first", "hash_not_last")
FIRST_HASH = "6c0ffede4a0929305e0793c449f439f8d3d5a634a252885bb7bea3c87aa957b0"


def check(condition, what):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED: " + what)


def raw(entry, name):
    """The bytes of a string of the manifest, in hexadecimal."""
    return entry[name + "_hex"] if name + "_hex" in entry else entry[name].encode().hex()


def check_valid(want, got):
    name = want["name"]
    check(got["restore"] == "LMC_OK", "%s: restore: %s" % (name, got["restore"]))
    check(got["read"] == "LMC_OK", "%s: read: %s" % (name, got["read"]))
    refused = want.get("or", []) if want["section"] == "hash" else []       # if hashes are checked; only the command checks links
    check(got["checked"] in (["LMC_ERR_" + status for status in refused] or ["LMC_OK"]),
        "%s: with hashes: %s" % (name, got["checked"]))
    if name in HASHED:
        check(got["hashed"] == "LMC_OK" and got["hash"] == FIRST_HASH, "%s: the first hash: %s %s" % (name, got["hashed"], got["hash"]))
    elif name in ("hash_all", "hash_of_other_hint"):
        check(got["hashed"] == "LMC_OK", "%s: hashes: %s" % (name, got["hashed"]))
    elif not refused:
        check(got["hashed"] == "LMC_ERR_NOT_FOUND", "%s: hashes: %s" % (name, got["hashed"]))
    if got["read"] != "LMC_OK":
        return
    check(got["fingerprint"] == got["index_fingerprint"] == want["fingerprint"], name + ": fingerprint")
    check({raw(m, "key"): raw(m, "value") for m in want["metadata"]} == got["metadata"], name + ": metadata")
    check(len(want["files"]) == len(got["files"]), name + ": number of files")
    for a, b in zip(want["files"], got["files"]):
        check(raw(a, "path") == b["path"] and a["size"] == b["size"] and a["sha256"] == b["sha256"] and b["same"], name + ": content")
        check((a["kind"] == "directory") == (b["kind"] == 1), name + ": kind")
        check((-1 if a["mode"] is None else a["mode"]) == b["mode"] and a["mtime"] == b["mtime"], name + ": mode, time")
        if not a["tensors"]:
            check(a["fingerprint"] == b["fingerprint"], name + ": fingerprint of the file")
        check([(raw(t, "name"), raw(t, "dtype"), t["shape"], t["offset"], t["size"], t["fingerprint"], t["loss"], True) for t in a["tensors"]]
              == [(t["name"], t["dtype"], t["shape"], t["offset"], t["size"], t["fingerprint"], t["loss"], t["same"]) for t in b["tensors"]],
              name + ": tensors")


def say(program, bases, paths):
    """What the program prints for each file; None if it crashed. One process for all, and after a crash another one for the rest."""
    said = []
    while len(said) < len(paths):
        command = program + [word for base in bases for word in ("--base", os.path.join(ROOT, base))] + paths[len(said):]
        run = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True)
        said += [json.loads(line) for line in run.stdout.splitlines() if line.endswith("}")]
        if run.returncode != 0:
            print("exit status %d after %d files" % (run.returncode, len(said)))
            said = (said if len(said) < len(paths) else said[:-1]) + [None]  # for this file, or, after the last one, for memory that was not freed
        elif len(said) < len(paths):
            said += [None]
    return said


def main():
    with open(os.path.join(ROOT, "manifest.json")) as file:
        manifest = json.load(file)
    groups = {}  # with the same bases
    for kind in ("invalid", "valid"):
        for want in manifest[kind]:
            bases = tuple(want.get("base", []))
            if any(os.path.isdir(os.path.join(ROOT, base)) or base.endswith((".safetensors", ".npy")) or "/variants/" in base for base in bases):
                continue  # the command reads these, the library does not: spec/check_vectors.py
            groups.setdefault(bases, []).append((kind, want))
    for bases, vectors in groups.items():
        paths = [os.path.join(ROOT, kind, want["name"] + ".lmc") for kind, want in vectors]
        for (kind, want), path, got in zip(vectors, paths, say(sys.argv[1:], bases, paths)):
            check(got is not None and got["file"] == path, "%s: no answer" % want["name"])
            if got is None:
                continue
            if kind == "valid":
                check_valid(want, got)
            else:
                allowed = ["LMC_ERR_" + status for status in want["status"]]
                check(got["restore"] in allowed, "%s: %s: restore gave %s, not %s" % (want["name"], want["breaks"], got["restore"], allowed))
                by_index = [BY_INDEX[want["name"]]] if want["name"] in BY_INDEX else allowed
                if want["name"].startswith(("order_section_", "order_cut_block_")):  # they end before the index
                    by_index = ["LMC_ERR_TRUNCATED"]
                if want["name"].startswith(("flipped_", "section_kind_")):  # anywhere, or at a place that only a restore reads
                    by_index = by_index + ["LMC_OK"]
                check(got["read"] in by_index, "%s: %s: read gave %s, not %s" % (want["name"], want["breaks"], got["read"], by_index))
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0 or not groups


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main())
