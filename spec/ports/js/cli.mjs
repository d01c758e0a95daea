#!/usr/bin/env node
// Decodes an LMC file, in Node 18 or later. SPDX-License-Identifier: MIT
import fs from "node:fs";
import path from "node:path";
import { DEFAULT_LIMITS, decode, list, LmcError } from "./lmc.mjs";
import { readBase, readFile } from "./files.mjs";

const USAGE = `Usage: node cli.mjs [-b BASE]... [-m MIB] IN.lmc OUT     restore the file OUT, or the directory OUT, which must not be there
       node cli.mjs -l IN.lmc                           list the files and tensors
  -b, --base BASE   a base of IN.lmc, or of its bases: an LMC file, any other file, or a directory
  -m, --most MIB    how many MiB of files are restored at most (default: ${DEFAULT_LIMITS.decoded / 2 ** 20})
Exit code: 0 done, 1 error, 2 usage, 3 the data is bad, 4 the base is missing or wrong.`;

const BAD_DATA = ["NOT_LMC", "TRUNCATED", "CORRUPT", "CHECKSUM"];

function exitCodeOf(error) {
    if (!(error instanceof LmcError)) return 1;
    return BAD_DATA.includes(error.status) ? 3 : error.status.startsWith("BASE_") ? 4 : 1;
}

/** Names may hold anything: as JSON strings they do no harm to a terminal. */
const escaped = char => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
const quoted = text => JSON.stringify(text).replace(/[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, escaped);

const MEASURES = [null, "update", "relative", "nmse"];

function printList(snapshot) {
    for (const file of snapshot.files) {
        console.log(`${file.kind} ${quoted(file.path)}: ${file.size} bytes`);
        for (const tensor of file.tensors) {
            const loss = tensor.generation === 0 ? "" : `, quantised (${MEASURES[tensor.measure] ?? `measure ${tensor.measure}`} ${(tensor.error / 2 ** 32).toPrecision(3)})`;
            console.log(`    ${quoted(tensor.name)} ${quoted(tensor.dtype)} [${tensor.shape.join(", ")}], ${tensor.size} bytes${loss}`);
        }
    }
}

function writeFile(place, bytes, mode) {
    const file = fs.openSync(place, "wx", mode);
    try {
        for (let at = 0; at < bytes.length; ) at += fs.writeSync(file, bytes, at, Math.min(bytes.length - at, 2 ** 30));
        fs.fsyncSync(file);
    } finally {
        fs.closeSync(file);
    }
}

function setModeAndTime(file, place) {
    if (file.mode !== null) fs.chmodSync(place, file.mode & 0o777);
    if (file.mtime) {
        const time = Number(file.mtime.seconds) + file.mtime.nanoseconds / 1e9;
        fs.utimesSync(place, time, time);
    }
}

/** A single file without a path becomes OUT, anything else files in the directory OUT. */
function restore(snapshot, place) {
    const [first] = snapshot.files;
    if (first.pathBytes.length === 0 && first.kind === "file") {
        writeFile(place, first.data);
        setModeAndTime(first, place);
        return;
    }
    fs.mkdirSync(place); // new: nobody else's symbolic links are in it
    const placeOf = file => Buffer.concat([Buffer.from(place + "/"), file.pathBytes]);
    for (const file of snapshot.files) {
        const at = placeOf(file);
        const parent = file.kind === "directory" ? at : at.subarray(0, at.lastIndexOf(0x2f));
        fs.mkdirSync(parent, { recursive: true });
        if (file.kind === "file") {
            writeFile(at, file.data);
            setModeAndTime(file, at);
        }
    }
    // Those of directories when all is in them, the inner ones first
    const directories = snapshot.files.filter(file => file.kind === "directory");
    directories.sort((a, b) => b.pathBytes.length - a.pathBytes.length);
    for (const file of directories) setModeAndTime(file, placeOf(file));
    if (snapshot.metadata.some(({ keyBytes }) => Buffer.from(keyBytes).toString("latin1") === "lmc.links"))
        console.error("note: it has links (lmc.links), which are not restored"); // L-10
}

function main(args) {
    const bases = [];
    const names = [];
    const limits = {};
    let listOnly = false;
    while (args.length > 0) {
        const arg = args.shift();
        if (["-b", "--base"].includes(arg) && args.length > 0) bases.push(args.shift());
        else if (["-m", "--most"].includes(arg) && /^[0-9]{1,9}$/.test(args[0] ?? "")) limits.decoded = Number(args.shift()) * 2 ** 20;
        else if (["-l", "--list"].includes(arg)) listOnly = true;
        else if (arg.startsWith("-")) names.push("", "", ""); // usage
        else names.push(arg);
    }
    if (names.length !== (listOnly ? 1 : 2)) {
        console.error(USAGE);
        return 2;
    }
    const [input, output] = names;
    let temporary = null;
    try {
        if (listOnly) {
            printList(list(readFile(input)));
            return 0;
        }
        if (fs.existsSync(output)) throw new Error(`${output}: it is there already`);
        const snapshot = decode(readFile(input), { bases: bases.map(readBase), limits });
        temporary = path.join(path.dirname(output), `.${path.basename(output)}.${process.pid}.tmp`);
        restore(snapshot, temporary);
        fs.renameSync(temporary, output);
        return 0;
    } catch (error) {
        if (temporary) fs.rmSync(temporary, { recursive: true, force: true });
        console.error(error instanceof LmcError ? `${input}: ${error.message}` : `error: ${error.message}`);
        return exitCodeOf(error);
    }
}

process.exitCode = main(process.argv.slice(2));
