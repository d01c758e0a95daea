// Feeds damaged vectors to the decoder: whatever the input, it must answer, within a time, or throw an LmcError. Where the CRCs of a valid
// vector were not repaired, an answer must be what the vector holds.
// Usage: node fuzz.mjs [N [SEED [PROGRAM]]]       N inputs (default 3000). Most have their CRCs repaired, or hardly any would get past these.
// PROGRAM, which answers as spec/check_vectors.py says, must accept the same files as this decoder, and say the same of them.
// SPDX-License-Identifier: MIT
import { deepEqual } from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { crc32c, decode, decodeArray, list, LmcError, snapshotOfFiles } from "./lmc.mjs";
import { readBase, readFile } from "./files.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const VECTORS = path.join(HERE, "../../vectors");
const STATUSES = "NOT_LMC VERSION UNSUPPORTED TRUNCATED CORRUPT CHECKSUM LIMIT BASE_MISSING BASE_WRONG".split(" ");
const LIMITS = { decoded: 2 ** 24, section: 2 ** 26, tables: 2 ** 26 };
const MOST_SECONDS = 20; // for one input; a busy machine is slow

const [count = 3000, seed = 1] = process.argv.slice(2, 4).map(Number);
const program = process.argv[4];

let state = (seed * 2654435761 + 1) >>> 0;

/** An integer from 0 to n - 1 (xorshift). */
function random(n) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % n;
}

const pick = values => values[random(values.length)];

/** A vector, and the places that matter in it if it is a valid one. */
function readSeed(kind, entry) {
    const bytes = readFile(path.join(VECTORS, kind, `${entry.name}.lmc`));
    const bases = entry.base.map(name => path.join(VECTORS, name));
    if (kind === "invalid") return { name: entry.name, bytes, bases };
    const { sections } = list(bytes);
    const blocks = sections.filter(({ kind }) => kind === "RUN ").flatMap(({ content: { blocksAt, blockSizes } }) => {
        let at = blocksAt;
        return Array.from(blockSizes, (size, number) => ({ number, at: (at += size) - size, size }));
    });
    const index = Number(new DataView(bytes.buffer).getBigUint64(bytes.length - 40, true));
    const table = index - 20 - 8 * blocks.length; // BLKS
    blocks.forEach((block, i) => (block.row = table + 20 + 8 * i));
    // Where the index has its copies of the bodies
    let at = index + 20 + 88;
    for (const section of sections) {
        const { kind, bodyAt, bodyEnd, end, content } = section;
        at += 4 + sizeOfVarint(end - section.at);
        section.copy = at += kind === "FILE" || kind === "RUN " ? sizeOfVarint(bodyEnd - bodyAt) : 0;
        if (kind === "FILE" || kind === "RUN ") at += bodyEnd - bodyAt;
        if (kind === "FILE") for (const file of content.files) at += (content.isKnown ? 4 : 12) + 16 * Math.max(1, file.tensors.length);
    }
    return { name: entry.name, bytes, bases, sections, blocks, table, index };
}

function sizeOfVarint(value) {
    return value < 128 ? 1 : 1 + sizeOfVarint(Math.floor(value / 128));
}

function putCrc(bytes, at, crc) {
    new DataView(bytes.buffer).setUint32(at, crc, true);
}

/** Gives a section new CRCs. */
function sealSection(bytes, at, end) {
    putCrc(bytes, at + 12, crc32c(bytes, at, at + 12));
    putCrc(bytes, at + 16, crc32c(bytes, at + 20, end));
}

function sealBlock(bytes, { at, size, number }) {
    if (bytes[at + 2] & 4) putCrc(bytes, at + 16, crc32c(bytes, at + 24, at + size));
    putCrc(bytes, at + 20, crc32c(bytes, at, at + 20, crc32c(Uint8Array.of(number, number >>> 8, number >>> 16, number >>> 24))));
}

/** Repairs all CRCs of a vector whose bytes were changed where they are, and the copies of them. */
function seal(bytes, { sections, blocks, table, index }) {
    putCrc(bytes, 60, crc32c(bytes, 0, 60));
    bytes.copyWithin(index + 20, 0, 64);
    for (const block of blocks) {
        sealBlock(bytes, block);
        bytes.copyWithin(block.row + 4, block.at + 20, block.at + 24);
    }
    for (const { kind, at, bodyAt, bodyEnd, copy } of sections) {
        sealSection(bytes, at, bodyEnd);
        if (kind === "FILE" || kind === "RUN ") bytes.copyWithin(copy, bodyAt, bodyEnd);
    }
    sealSection(bytes, table, index);
    const trailer = bytes.length - 40;
    sealSection(bytes, index, trailer);
    putCrc(bytes, trailer + 28, crc32c(bytes, trailer, trailer + 28));
}

/** Changes a few bytes or fields of bytes[at .. end). */
function scribble(bytes, at, end) {
    const data = new DataView(bytes.buffer);
    for (let times = 1 + random(random(4) === 0 ? 8 : 2); times > 0 && end > at; times--) {
        const place = at + random(end - at);
        const size = Math.min(pick([1, 1, 1, 2, 4, 8]), end - place);
        const kind = random(6);
        if (kind === 0) bytes[place] ^= 1 << random(8);
        else if (kind === 1) bytes.fill(pick([0, 0xff, 0x80, 0x7f]), place, place + size);
        else if (kind === 2 && size === 8) data.setBigUint64(place, 2n ** BigInt(random(64)) - BigInt(random(3)), true);
        else if (kind === 3 && size >= 4) data.setUint32(place, 2 ** random(32) - random(3), true);
        else if (kind === 4) bytes[place] += random(5) - 2;
        else for (let i = 0; i < size; i++) bytes[place + i] = random(256);
    }
}

/** A place where something interesting stands: header, section, block header or payload, table of blocks and index, trailer. */
function target(seed) {
    const { sections, blocks, table, bytes } = seed;
    const kind = random(8);
    if (kind === 0) return [0, 64];
    if (kind <= 2) return (({ at, bodyEnd }) => [at, bodyEnd])(pick(sections));
    if (kind <= 6 && blocks.length > 0) return (({ at, size }) => (random(3) === 0 ? [at, at + 24] : [at + 24, at + size]))(pick(blocks));
    return random(4) === 0 ? [bytes.length - 40, bytes.length] : [table, bytes.length - 40];
}

/** An input and what to do with it. */
function mutate(seeds) {
    const seed = random(8) === 0 ? pick(seeds) : pick(validSeeds);
    let bytes = seed.bytes.slice();
    const kind = seed.blocks ? random(20) : 15 + random(5);
    if (kind < 6 && seed.blocks.length > 0) {
        const block = pick(seed.blocks); // as an array of its own
        bytes = bytes.slice(block.at, block.at + block.size);
        const inHeader = random(3) === 0;
        scribble(bytes, inHeader ? 1 : 24, inHeader ? 20 : bytes.length);
        // Most headers announce what is there: otherwise the payload is missing
        if (random(4) !== 0) putCrc(bytes, 8, bytes.length - 24);
        sealBlock(bytes, { at: 0, size: bytes.length, number: 0 });
        const size = Math.min(new DataView(bytes.buffer).getUint32(4, true) * bytes[1], 2 ** 23);
        const prediction = random(8) !== 0 ? new Uint8Array(size).map((_, i) => i * 7 + (i >> 3)) : null;
        return { name: seed.name, run: () => decodeArray(bytes, size, { prediction }) };
    }
    if (kind < 15) {
        scribble(bytes, ...target(seed));
        seal(bytes, seed);
    } else if (kind < 16) {
        bytes = bytes.slice(0, random(bytes.length + 1));
    } else if (kind < 17) {
        const other = pick(seeds).bytes;
        const cut = random(bytes.length + 1);
        const rest = other.subarray(random(2) === 0 ? Math.min(cut, other.length) : random(other.length + 1));
        bytes = Uint8Array.from([...bytes.subarray(0, cut).subarray(0, 2 ** 16), ...rest.subarray(0, 2 ** 16)]);
    } else if (kind < 18 && bytes.length > 100) {
        bytes.copyWithin(random(bytes.length), random(bytes.length), bytes.length);
        if (seed.blocks) seal(bytes, seed);
    } else {
        scribble(bytes, 0, bytes.length);
    }
    const paths = random(8) === 0 ? [pick(seeds).bases, seed.bases].flat() : seed.bases;
    const input = { bytes, paths };
    if (random(16) === 0) return { name: seed.name, input, run: () => list(bytes, { limits: LIMITS }) };
    if (random(32) === 0) return { name: seed.name, input, run: () => snapshotOfFiles([{ path: "", data: bytes }]) };
    // now and then the input is its own base, or its base is damaged
    const bases = paths.map(name => {
        const base = readBase(name);
        if (random(8) === 0 && base instanceof Uint8Array) scribble(base, 0, base.length);
        return base;
    });
    if (random(32) === 0) bases.push(bytes, bytes.slice());
    const mended = !seed.blocks || kind < 15 || kind === 16 || kind === 17; // 16: it may be another vector
    return { name: seed.name, input, run: () => (mended ? decode(bytes, { bases, limits: LIMITS }) : decodeSame(bytes, bases, seed)) };
}

/** A damaged vector that decodes must be as it was. */
function decodeSame(bytes, bases, seed) {
    const snapshot = decode(bytes, { bases, limits: LIMITS });
    const original = decode(seed.bytes, { bases: seed.bases.map(readBase) });
    const contentOf = ({ files }) => files.map(({ pathBytes, data, mode }) => [pathBytes, data, mode]);
    deepEqual(contentOf(snapshot), contentOf(original), "silent damage");
}

/** What a program answers for files that stand in a folder: an object for each. */
function answersOf([command, ...args], lines) {
    const { stdout } = spawnSync(command, args, { input: lines.join(""), encoding: "utf8", maxBuffer: 2 ** 30 });
    return stdout.split("\n").slice(0, -1).map(line => JSON.parse(line));
}

/** Gives these inputs to this decoder and to the program. How many get different answers. */
function compare(inputs) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "lmc-fuzz-"));
    const places = inputs.map((_, i) => path.join(folder, `${i}.lmc`));
    inputs.forEach(({ bytes }, i) => fs.writeFileSync(places[i], bytes));
    const lines = inputs.map(({ paths }, i) => [places[i], ...paths].join("\t") + "\n");
    const here = answersOf([process.execPath, path.join(HERE, "answers.mjs")], lines);
    const there = answersOf(program.split(" "), lines);
    const isSame = i => here[i] && there[i] && (here[i].status === "OK" || there[i].status === "OK" ? isDeepStrictEqual(here[i], there[i]) : true);
    const different = inputs.map((_, i) => i).filter(i => !isSame(i));
    for (const i of different) console.log(`FAILED: ${lines[i].trim()}: ${here[i]?.status} here, ${there[i]?.status} there`);
    if (different.length === 0) fs.rmSync(folder, { recursive: true });
    return different.length;
}

const manifest = JSON.parse(fs.readFileSync(path.join(VECTORS, "manifest.json"), "utf8"));
const seeds = ["valid", "invalid"].flatMap(kind => manifest[kind].map(entry => readSeed(kind, entry)));
const validSeeds = seeds.filter(seed => seed.blocks);
// What is not damaged needs no repair: so seal() finds all places
for (const seed of validSeeds) {
    const bytes = seed.bytes.slice();
    seal(bytes, seed);
    deepEqual(bytes, seed.bytes, seed.name);
}
const counts = { accepted: 0 };
let failed = 0;
let slowest = 0;
let inputs = []; // that the program has to see yet
for (let i = 0; i < count; i++) {
    const stateBefore = state;
    const { name, run, input } = mutate(seeds);
    if (program && input) inputs.push(input);
    if (inputs.length === 500 || (inputs.length > 0 && i === count - 1)) {
        failed += compare(inputs);
        inputs = [];
    }
    const start = performance.now();
    let answer = "accepted";
    try {
        run();
    } catch (error) {
        answer = error.status;
        if (!(error instanceof LmcError) || !STATUSES.includes(answer)) {
            failed++;
            answer = "failed";
            console.log(`FAILED: input ${i} (of ${name}, state ${stateBefore}): ${error.stack ?? error}`);
        }
    }
    const seconds = (performance.now() - start) / 1000;
    if (seconds > MOST_SECONDS) {
        failed++;
        console.log(`FAILED: input ${i} (of ${name}, state ${stateBefore}) took ${seconds.toFixed(1)} seconds`);
    }
    slowest = Math.max(slowest, seconds);
    counts[answer] = (counts[answer] ?? 0) + 1;
}
console.log(Object.entries(counts).map(([answer, n]) => `${answer} ${n}`).join(", ") + `; slowest ${slowest.toFixed(2)} s`);
console.log(`${count - failed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
