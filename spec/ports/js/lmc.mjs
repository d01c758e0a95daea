// A decoder of the LMC format, version 0.4, in plain JavaScript: written from spec/lmc-format.md alone, in its order; "section" below means there.
//
//     import { decode } from "./lmc.mjs";
//     const snapshot = decode(bytes, { bases: [otherBytes] });      // bytes: a Uint8Array; throws an LmcError and nothing else
//     for (const file of snapshot.files) for (const tensor of file.tensors) console.log(tensor.name, tensor.dtype, tensor.shape, tensor.data);
//
// It has no dependency and needs nothing that a browser lacks. A whole snapshot is decoded in memory: twice its size and that of its base at most.
//
// Numbers: a u64 is a BigInt until it was checked against something that is surely less than 2^53, such as a size in memory; then it is a Number.
//
// SPDX-License-Identifier: MIT

export const VERSION = "0.4";

/** What callers may allow: see section 12. All in bytes. */
export const DEFAULT_LIMITS = Object.freeze({
    section: 2 ** 30, // body of a section: at least 64 MiB MUST be allowed
    decoded: 2 ** 30, // sum of the sizes of all files of a snapshot
});

// -- Errors (section 11) ------------------------------------------------------------------------------------------------------------------------

/** The only thing that is thrown for bad input; `status` is a name of section 11. */
export class LmcError extends Error {
    constructor(status, message) {
        super(`${status}: ${message}`);
        this.name = "LmcError";
        this.status = status;
    }
}

function refuse(status, message) {
    throw new LmcError(status, message);
}

function corruptIf(broken, message) {
    if (broken) refuse("CORRUPT", message);
}

function unsupportedIf(unknown, message) {
    if (unknown) refuse("UNSUPPORTED", message);
}

/** Zeroed memory, or LIMIT where the engine has none left. Callers have checked that the input justifies the size. */
function allocate(size) {
    try {
        return new Uint8Array(size);
    } catch {
        return refuse("LIMIT", "out of memory");
    }
}

// -- Conventions (section 2) --------------------------------------------------------------------------------------------------------------------

/** Little-endian fields of bytes[at .. end); a read past the end is refused with `statusAtEnd`. */
class Reader {
    constructor(bytes, at, end, statusAtEnd) {
        this.bytes = bytes;
        this.data = dataOf(bytes);
        this.at = at;
        this.end = end;
        this.statusAtEnd = statusAtEnd;
    }

    get left() {
        return this.end - this.at;
    }

    /** Skips size bytes and returns where they start. */
    take(size) {
        if (size > this.end - this.at) refuse(this.statusAtEnd, "the input ends before what should be there");
        const at = this.at;
        this.at += size;
        return at;
    }

    u8() { return this.bytes[this.take(1)]; }
    u16() { return this.data.getUint16(this.take(2), true); }
    u32() { return this.data.getUint32(this.take(4), true); }
    i32() { return this.data.getInt32(this.take(4), true); }
    u64() { return this.data.getBigUint64(this.take(8), true); }
    i64() { return this.data.getBigInt64(this.take(8), true); }

    /** The next size bytes themselves, not a copy. */
    view(size) {
        const at = this.take(size);
        return this.bytes.subarray(at, at + size);
    }

    /** A string: no zero byte. */
    string(size) {
        const bytes = this.view(size);
        corruptIf(bytes.includes(0), "zero byte in a string");
        return bytes;
    }

    mustBeAtEnd(message) {
        corruptIf(this.at !== this.end, message);
    }
}

const MOST_BYTES = 2n ** 63n - 1n; // of any file, tensor or run

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
const utf8Encoder = new TextEncoder();

function asBytes(text) {
    return typeof text === "string" ? utf8Encoder.encode(text) : text;
}

/** One UTF-16 unit for each byte: a key for sets, which sorts in byte order. */
function keyOf(bytes) {
    let key = "";
    for (let at = 0; at < bytes.length; at += 4096) key += String.fromCharCode.apply(null, bytes.subarray(at, at + 4096));
    return key;
}

function sameBytes(a, b) {
    if (a.length !== b.length) return false;
    for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
    return true;
}

function concat(parts) {
    const all = allocate(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}

/** value as size bytes, little-endian. */
function littleEndian(value, size) {
    const bytes = new Uint8Array(size);
    for (let i = 0, rest = BigInt(value); i < size; i++, rest >>= 8n) bytes[i] = Number(rest & 255n);
    return bytes;
}

/** A u64 that nothing bounds, for the caller: a Number if it is one exactly. */
function exact(value) {
    return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

const dataOf = bytes => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");

// -- CRC-32C ------------------------------------------------------------------------------------------------------------------------------------

const CRC_POLYNOMIAL = 0x82f63b78;

/** Row k, of 256: what a byte does to the CRC when k more bytes follow it. */
const CRC_TABLE = (() => {
    const table = new Int32Array(8 * 256);
    for (let i = 0; i < 256; i++) {
        let crc = i;
        for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
        table[i] = crc;
    }
    for (let i = 256; i < table.length; i++) table[i] = (table[i - 256] >>> 8) ^ table[table[i - 256] & 255];
    return table;
})();

/** CRC(bytes[at .. end)); `before` is the CRC of bytes that stand in front of them. */
export function crc32c(bytes, at = 0, end = bytes.length, before = 0) {
    const table = CRC_TABLE;
    let crc = ~before;
    for (; at + 8 <= end; at += 8) {
        crc ^= bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
        crc =
            table[1792 + (crc & 255)] ^
            table[1536 + ((crc >>> 8) & 255)] ^
            table[1280 + ((crc >>> 16) & 255)] ^
            table[1024 + (crc >>> 24)] ^
            table[768 + bytes[at + 4]] ^
            table[512 + bytes[at + 5]] ^
            table[256 + bytes[at + 6]] ^
            table[bytes[at + 7]];
    }
    for (; at < end; at++) crc = (crc >>> 8) ^ table[(crc ^ bytes[at]) & 255];
    return ~crc >>> 0;
}

/** The product of two polynomials modulo that of the CRC; the highest bit is the coefficient of x^0. */
function crcMultiply(a, b) {
    let product = 0;
    for (; a !== 0; a <<= 1) {
        if (a < 0) product ^= b;
        b = (b >>> 1) ^ (b & 1 ? CRC_POLYNOMIAL : 0);
    }
    return product;
}

/** The CRC of two pieces, one after the other, from those of the pieces: the first times x^(8 * size of the second). */
function crcOfBoth(first, second, sizeOfSecond) {
    let shift = 1 << 31;
    for (let power = 1 << 23, size = sizeOfSecond; size > 0; size = Math.floor(size / 2)) {
        if (size % 2 === 1) shift = crcMultiply(shift, power);
        power = crcMultiply(power, power);
    }
    return (crcMultiply(first | 0, shift) ^ second) >>> 0;
}

// -- SHA-256 (FIPS 180-4) -----------------------------------------------------------------------------------------------------------------------

/** The first 32 bits behind the point of the square (power 1/2) or cube (1/3) roots of the first n primes: the constants of FIPS 180-4. */
function fractionsOfRoots(n, power) {
    const words = [];
    for (let candidate = 2; words.length < n; candidate++) {
        let prime = true;
        for (let d = 2; d * d <= candidate; d++) if (candidate % d === 0) prime = false;
        if (prime) words.push((candidate ** power % 1) * 2 ** 32);
    }
    return Int32Array.from(words, word => Math.floor(word));
}

const SHA_ROUNDS = fractionsOfRoots(64, 1 / 3);
const SHA_START = fractionsOfRoots(8, 1 / 2);

export function sha256(message) {
    const padded = allocate(Math.ceil((message.length + 9) / 64) * 64);
    padded.set(message);
    padded[message.length] = 0x80;
    const data = dataOf(padded);
    data.setBigUint64(padded.length - 8, BigInt(message.length) * 8n);

    const state = SHA_START.slice();
    const w = new Int32Array(64);
    const rotate = (x, k) => (x >>> k) | (x << (32 - k));
    for (let at = 0; at < padded.length; at += 64) {
        for (let i = 0; i < 16; i++) w[i] = data.getInt32(at + 4 * i);
        for (let i = 16; i < 64; i++) {
            const s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >>> 3);
            const s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >>> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        let [a, b, c, d, e, f, g, h] = state;
        for (let i = 0; i < 64; i++) {
            const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
            const t1 = (h + s1 + ((e & f) ^ (~e & g)) + SHA_ROUNDS[i] + w[i]) | 0;
            const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
            const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
            (h = g), (g = f), (f = e), (e = (d + t1) | 0);
            (d = c), (c = b), (b = a), (a = (t1 + t2) | 0);
        }
        [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] += word));
    }
    const digest = dataOf(new Uint8Array(32));
    state.forEach((word, i) => digest.setInt32(4 * i, word));
    return new Uint8Array(digest.buffer);
}

// -- File_Header (section 4) --------------------------------------------------------------------------------------------------------------------

const MAGIC = Uint8Array.of(0x8c, 0x4c, 0x4d, 0x43, 0x0d, 0x0a, 0x1a, 0x0a);
const FILE_HEADER_SIZE = 80;

export function isLmc(bytes) {
    return bytes.length >= 8 && sameBytes(bytes.subarray(0, 8), MAGIC);
}

function readFileHeader(bytes) {
    if (!isLmc(bytes)) refuse("NOT_LMC", "this is no LMC file");
    const input = new Reader(bytes, 8, bytes.length, "TRUNCATED");
    const major = input.u8();
    const minor = input.u8();
    if (major !== 0 || minor !== 4) refuse("VERSION", `version ${major}.${minor}; this decoder knows ${VERSION}`);
    const headerSize = input.u16();
    const flags = input.u32();
    const incompatible = input.u64();
    input.u64(); // Compatible: any value
    const baseIdentity = input.view(32);
    const chainDepth = input.u32();
    const reserved = input.u64();
    if (crc32c(bytes, 0, 76) !== input.u32()) refuse("CHECKSUM", "Header_CRC");
    corruptIf(headerSize !== FILE_HEADER_SIZE, "Header_Size");
    unsupportedIf(incompatible !== 0n, "a feature of another version");
    unsupportedIf(flags > 1, "Flags");
    unsupportedIf(reserved !== 0n, "reserved field of the header");
    const hasBase = baseIdentity.some(byte => byte !== 0);
    corruptIf(hasBase !== (chainDepth !== 0), "Chain_Depth and Base_Identity");
    return { sequential: (flags & 1) === 1, baseIdentity: hasBase ? baseIdentity : null, chainDepth };
}

// -- Sections (section 5) -----------------------------------------------------------------------------------------------------------------------

const SECTION_HEADER_SIZE = 24;

/** Reads one section; its body is a Reader, which ends with it. */
function readSection(input, limits) {
    const at = input.at;
    const kind = keyOf(input.view(4));
    const number = input.u32();
    const size = input.u64();
    const headCrc = input.u32();
    const bodyCrc = input.u32();
    if (crc32c(input.bytes, at, at + 16) !== headCrc) refuse("CHECKSUM", "Head_CRC of a section");
    corruptIf(!["FILE", "RUN ", "INDX"].includes(kind), "Kind of a section");
    corruptIf(size > 2n ** 40n, "Body_Size of a section");
    if (size > limits.section) refuse("LIMIT", `a section of ${size} bytes; ${limits.section} are allowed`);
    const bodyAt = input.take(Number(size));
    if (crc32c(input.bytes, bodyAt, input.at) !== bodyCrc) refuse("CHECKSUM", "Body_CRC of a section");
    return { kind, number, at, end: input.at, body: new Reader(input.bytes, bodyAt, input.at, "CORRUPT") };
}

// -- FILE body (section 5.1) --------------------------------------------------------------------------------------------------------------------

const UNKNOWN_SIZE = 2n ** 64n - 1n;

const DTYPE_BITS = new Map(
    Object.entries({
        8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
        4: "F4",
        6: "F6_E2M3 F6_E3M2",
        16: "I16 U16 F16 BF16",
        32: "I32 U32 F32",
        64: "C64 F64 I64 U64",
    }).flatMap(([bits, names]) => names.split(" ").map(name => [name, BigInt(bits)])),
);

const MEASURES = [null, "update", "relative", "nmse"];

/** A tensor of a file: where what is known of it stands in the input, as there may be millions. Strings are what UTF-8 makes of the bytes. */
class Tensor {
    constructor(file, number, offset, size) {
        this.file = file;
        this.number = number; // within its file
        this.offset = offset;
        this.size = size; // bytes
        this.bytes = null; // the input: at `at`, Shape, Name and Dtype
        this.at = this.rank = this.nameSize = this.dtypeSize = 0;
        this.generation = 0; // how often it was quantised
        this.measure = null; // one of MEASURES
        this.error = 0; // by that measure, in units of 2^-32
    }

    field(offset, size) { return this.bytes.subarray(this.at + offset, this.at + offset + size); }
    get shapeBytes() { return this.field(0, 8 * this.rank); }
    get nameBytes() { return this.field(8 * this.rank, this.nameSize); }
    get dtypeBytes() { return this.field(8 * this.rank + this.nameSize, this.dtypeSize); }
    get name() { return utf8.decode(this.nameBytes); }
    get dtype() { return utf8.decode(this.dtypeBytes); }

    get shape() {
        const data = dataOf(this.shapeBytes);
        return Array.from({ length: this.rank }, (_, i) => exact(data.getBigUint64(8 * i, true)));
    }

    /** Its bytes, once the file is decoded. */
    get data() { return this.file.data.subarray(this.offset, this.offset + this.size); }

    /** 32 bytes, once the file is decoded (section 9.2). */
    get identity() { return this.file.identities.subarray(32 * this.number, 32 * this.number + 32); }
}

/** A source file, or a directory. */
class SourceFile {
    constructor() {
        this.kind = "file"; // or "directory"
        this.declaredSize = 0n; // File_Size of the FILE section
        this.size = 0; // of the runs so far; in the end of the file
        this.pathBytes = new Uint8Array(0);
        this.mode = null; // POSIX permission bits, if known
        this.mtime = null; // { seconds (BigInt), nanoseconds }, if known
        this.tensors = [];
        this.data = null; // once decoded
        this.crc = 0; // likewise
        this.identities = null; // likewise: of its tensors, or its own if it has none
        this.ownRanges = []; // start, end, start, end ...: what runs of Prediction 2 made of it
        this.at = this.end = 0; // its section in the input
    }

    get path() { return utf8.decode(this.pathBytes); }
    get nameBytes() { return this.pathBytes; } // as an item: section 9.3
    get identity() { return this.tensors.length === 0 ? this.identities : null; }
}

function readFileBody(body) {
    const file = new SourceFile();
    file.declaredSize = body.u64();
    corruptIf(file.declaredSize > MOST_BYTES && file.declaredSize !== UNKNOWN_SIZE, "File_Size");
    const kind = body.u8();
    unsupportedIf(kind > 1, "File_Kind");
    file.kind = kind === 1 ? "directory" : "file";
    const attributes = body.u8();
    const reserved = body.u16();
    unsupportedIf(attributes > 3 || reserved !== 0, "Attributes or reserved field of a FILE section");
    const mode = body.u32();
    corruptIf(mode > (attributes & 1 ? 0o7777 : 0), "Mode");
    if (attributes & 1) file.mode = mode;
    const seconds = body.i64();
    const nanoseconds = body.u32();
    corruptIf(attributes & 2 ? nanoseconds > 999999999 : seconds !== 0n || nanoseconds !== 0, "Mtime");
    if (attributes & 2) file.mtime = { seconds, nanoseconds };
    const pathSize = body.u32();
    const nTensors = body.u32();
    corruptIf(pathSize > 65535, "Path_Size");
    corruptIf(nTensors > 2 ** 28, "N_Tensors");
    corruptIf(kind === 1 && (file.declaredSize !== 0n || nTensors !== 0), "a directory with bytes or tensors");
    corruptIf(file.declaredSize === UNKNOWN_SIZE && nTensors !== 0, "a file of unknown size with tensors");
    file.pathBytes = body.string(pathSize);
    corruptIf(pathSize !== 0 && !isPlainPath(keyOf(file.pathBytes)), "Path");

    const names = new Set();
    for (let i = 0, end = 0n; i < nTensors; i++) {
        end = readTensorEntry(body, file, end);
        names.add(keyOf(file.tensors[i].nameBytes));
        corruptIf(names.size !== i + 1, "two tensors of one name");
    }
    body.mustBeAtEnd("Body_Size of a FILE section");
    return file;
}

function isPlainPath(path) {
    return !path.includes("\\") && path.split("/").every(part => part !== "" && part !== "." && part !== "..");
}

/** Adds a tensor to the file, and returns where it ends. */
function readTensorEntry(body, file, endBefore) {
    const offset = body.u64();
    const size = body.u64();
    corruptIf(offset < endBefore, "tensors overlap or are not sorted");
    corruptIf(offset + size > file.declaredSize, "a tensor beyond its file");
    // As Numbers they are exact if the file is complete, which is checked later
    const tensor = new Tensor(file, file.tensors.length, Number(offset), Number(size));
    tensor.nameSize = body.u32();
    tensor.dtypeSize = body.u8();
    tensor.rank = body.u8();
    tensor.generation = body.u8();
    const measure = body.u8();
    corruptIf(tensor.nameSize > 65535, "Name_Size");
    corruptIf(tensor.dtypeSize < 1 || tensor.dtypeSize > 32, "Dtype_Size");
    corruptIf(tensor.rank > 32, "Rank");
    corruptIf(measure > 3 || (measure === 0) !== (tensor.generation === 0), "Measure");
    tensor.measure = MEASURES[measure];
    tensor.bytes = body.bytes;
    tensor.at = body.take(8 * tensor.rank);
    body.string(tensor.nameSize);
    body.string(tensor.dtypeSize);
    if (tensor.generation !== 0) tensor.error = body.u32();
    corruptIf(!isOfItsSize(tensor, size), "Size of a tensor is not what Dtype and Shape say");
    file.tensors.push(tensor);
    return offset + size;
}

/** Whether Dtype and Shape make that size, as far as the Dtype is known. */
function isOfItsSize(tensor, size) {
    const bits = DTYPE_BITS.get(keyOf(tensor.dtypeBytes));
    return bits === undefined || tensor.shape.reduce((all, extent) => all * BigInt(extent), bits) === 8n * BigInt(size);
}

// -- RUN body (section 5.2) ---------------------------------------------------------------------------------------------------------------------

const ZERO = 0; // Prediction of a run, or of a block
const BASE = 1;
const OWN = 2;

const SEGMENT_SIZE = 32;

/** A RUN section. Its segments stay in the input, where segment() finds them: they may be many. */
class Run {
    constructor(number, file, body) {
        this.number = number;
        this.file = file;
        this.start = file.size; // in the file
        const size = body.u64();
        corruptIf(size < 1n || size > MOST_BYTES, "Run_Size");
        this.size = Number(size); // exact if its blocks are there (readRun)
        this.log2BlockSize = body.u8();
        corruptIf(this.log2BlockSize < 14 || this.log2BlockSize > 23, "Log2_Block_Size");
        this.prediction = body.u8();
        unsupportedIf(this.prediction > OWN, "Prediction of a run");
        this.conversion = body.u8();
        unsupportedIf(this.conversion > (this.prediction === OWN ? 2 : 0), "Conversion of a run");
        unsupportedIf(body.u8() !== 0, "reserved field of a RUN section");
        this.nSegments = body.u32();
        corruptIf(this.nSegments < 1 || this.nSegments > 2 ** 24, "N_Segments");
        this.data = body.data;
        this.segmentsAt = body.take(SEGMENT_SIZE * this.nSegments);
        body.mustBeAtEnd("Body_Size of a RUN section");
        const nBlocks = (size + BigInt(this.blockSize) - 1n) >> BigInt(this.log2BlockSize);
        corruptIf(nBlocks > 2n ** 32n - 1n, "more than 2^32 - 1 blocks in a run");
        this.nBlocks = Number(nBlocks);
        this.blocksAt = 0; // where the first one's header starts
        this.blockSizes = null; // in the input, header included
        this.at = this.end = 0; // its section in the input
    }

    get blockSize() {
        return 2 ** this.log2BlockSize;
    }

    /** Decoded bytes of a block. */
    sizeOfBlock(number) {
        return Math.min(this.blockSize, this.size - number * this.blockSize);
    }

    segment(i) {
        const at = this.segmentsAt + SEGMENT_SIZE * i;
        return {
            file: this.data.getUint32(at, true),
            base: this.data.getUint32(at + 4, true),
            offset: this.data.getBigUint64(at + 8, true),
            size: this.data.getBigUint64(at + 16, true),
            baseOffset: this.data.getBigUint64(at + 24, true),
        };
    }
}

/** The rules of sections 5.2, 6.2 and 6.3 for the segments of a run. `items` are those of the base, or null to leave them unchecked. */
function checkSegments(run, files, items) {
    let offset = BigInt(run.start);
    for (let i = 0; i < run.nSegments; i++) {
        const segment = run.segment(i);
        corruptIf(segment.file !== files.length - 1, "a segment is not of the latest file");
        corruptIf(segment.size < 1n, "an empty segment");
        corruptIf(segment.offset !== offset, "a segment does not continue its file");
        offset += segment.size;
        corruptIf(run.conversion !== 0 && segment.size % 2n !== 0n, "a segment of odd size in a run with a Conversion");
        if (segment.base === 0) {
            corruptIf(segment.baseOffset !== 0n, "Base_Offset without a Base");
        } else if (run.prediction === ZERO) {
            refuse("CORRUPT", "Base in a run without prediction");
        } else if (run.prediction === OWN) {
            checkOwnReference(run, segment, files);
        } else if (items) {
            corruptIf(segment.base > items.length, "no such item of the base");
            corruptIf(segment.baseOffset + segment.size > BigInt(items[segment.base - 1].size), "a segment beyond its item of the base");
        }
    }
    corruptIf(offset - BigInt(run.start) !== BigInt(run.size), "Run_Size is not the sum of its segments");
    const { declaredSize } = run.file;
    corruptIf(offset > (declaredSize === UNKNOWN_SIZE ? MOST_BYTES : declaredSize), "a segment beyond its file");
}

/** Prediction 2 refers to bytes of runs before this one that are not predicted so themselves. */
function checkOwnReference(run, segment, files) {
    corruptIf(segment.base > files.length, "a prediction from a file that does not come before");
    const source = files[segment.base - 1];
    const end = segment.baseOffset + segment.size * (run.conversion === 0 ? 1n : 2n);
    corruptIf(end > BigInt(source.size), "a prediction from bytes that do not come before");
    // Of the ranges that end after the reference starts, the first is the one to look at
    const ranges = source.ownRanges;
    let low = 0;
    for (let high = ranges.length / 2; low < high; ) {
        const middle = (low + high) >> 1;
        if (ranges[2 * middle + 1] > segment.baseOffset) high = middle;
        else low = middle + 1;
    }
    corruptIf(2 * low < ranges.length && ranges[2 * low] < end, "a prediction from bytes that are predicted so themselves");
}

/** F32 bits to BF16 bits: nearest, ties to even. A NaN keeps its sign and upper bits, and is quiet. */
export function bf16FromF32(bits) {
    if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
    return ((bits >>> 0) + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** F32 bits to F16 bits, likewise. */
export function f16FromF32(bits) {
    const sign = (bits >>> 16) & 0x8000;
    const magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff);
    if (magnitude >= 0x38800000) {
        // 2^-14 and above: normal; what rounds to 2^16 or more is infinite
        const rebiased = magnitude - 0x38000000;
        return sign | Math.min((rebiased + 0xfff + ((rebiased >>> 13) & 1)) >>> 13, 0x7c00);
    }
    const shift = 126 - (magnitude >>> 23); // to units of 2^-24
    if (shift > 24) return sign;
    const mantissa = (magnitude & 0x7fffff) | 0x800000;
    const rest = mantissa & (2 ** shift - 1);
    const half = 2 ** (shift - 1);
    const floor = mantissa >>> shift;
    return sign | (floor + (rest > half || (rest === half && floor & 1) ? 1 : 0));
}

/** Gives the prediction of a run's bytes, from the front to the end of the run. The segments were checked. */
class Predictor {
    constructor(run, files, items) {
        this.run = run;
        this.sources = run.prediction === OWN ? files : items;
        this.next = 0; // number of the next segment
        this.source = null; // of the current one: bytes, or null for zeros
        this.sourceAt = 0;
        this.left = 0; // of the current one
    }

    /** The next size bytes, which the caller must not change. */
    take(size) {
        let prediction = null;
        for (let done = 0; done < size; ) {
            if (this.left === 0) this.startSegment();
            const part = Math.min(size - done, this.left);
            if (part === size && this.source && this.run.conversion === 0) {
                prediction = this.source.subarray(this.sourceAt, this.sourceAt + size); // needs no copy
            } else {
                prediction ??= allocate(size);
                if (this.source) this.copy(prediction, done, part);
            }
            this.sourceAt += this.run.conversion === 0 ? part : 2 * part;
            this.left -= part;
            done += part;
        }
        return prediction;
    }

    startSegment() {
        const { base, size, baseOffset } = this.run.segment(this.next++);
        this.source = base === 0 ? null : this.sources[base - 1].data;
        this.sourceAt = Number(baseOffset);
        this.left = Number(size);
    }

    copy(to, at, size) {
        const { source, sourceAt, run } = this;
        if (run.conversion === 0) {
            to.set(source.subarray(sourceAt, sourceAt + size), at);
            return;
        }
        const convert = run.conversion === 1 ? bf16FromF32 : f16FromF32;
        for (let i = 0; i < size; i += 2) {
            const from = sourceAt + 2 * i;
            const half = convert(source[from] | (source[from + 1] << 8) | (source[from + 2] << 16) | (source[from + 3] << 24));
            to[at + i] = half;
            to[at + i + 1] = half >>> 8;
        }
    }
}

// -- Block (section 7) --------------------------------------------------------------------------------------------------------------------------

const BLOCK_HEADER_SIZE = 24;
const STORED = 0; // Layout
const PLANES = 1;
const QUANTISED = 2;

/**
 * Reads the header of a block, checks it, and skips its payload. Its place: run and block are its Position, size what it has to decode to (null:
 * anything), predicted whether its run has a prediction (null: not known).
 */
function readBlockHeader(input, { run, block, size, predicted }) {
    const { bytes, data } = input;
    const at = input.take(BLOCK_HEADER_SIZE);
    const [coding, prediction, grouping] = bytes.subarray(at + 1, at + 4);
    corruptIf(bytes[at] !== 0xb1, "Sync of a block");
    const position = Uint8Array.of(run, run >>> 8, run >>> 16, run >>> 24, block, block >>> 8, block >>> 16, block >>> 24);
    if (crc32c(bytes, at, at + 20, crc32c(position)) !== data.getUint32(at + 20, true)) refuse("CHECKSUM", "Header_CRC of a block");

    const header = {
        width: 1 << (coding & 3),
        subtract: (coding & 4) !== 0,
        joint: (coding >> 3) & 3,
        layout: coding >> 5,
        prediction,
        grouping,
        nClasses: (grouping & 7) + 1,
        sparse: (grouping & 8) !== 0,
        natural: (grouping >> 4) & 7,
        n: data.getUint32(at + 4, true),
        payloadSize: data.getUint32(at + 8, true),
        contentCrc: data.getUint32(at + 12, true),
        baseCrc: data.getUint32(at + 16, true),
        at,
        payloadAt: at + BLOCK_HEADER_SIZE,
    };
    unsupportedIf(header.joint === 3 || grouping > 127, "reserved bits of a block");
    unsupportedIf(header.layout > QUANTISED, "Layout of a block");
    unsupportedIf(prediction > 1, "Prediction of a block");
    corruptIf(header.n < 1 || header.n > 2 ** 20, "N_Elements");
    header.size = header.n * header.width;
    corruptIf(size !== null && header.size !== size, "size of a block");
    corruptIf(prediction === 1 && predicted === false, "Prediction of a block in a run without");
    corruptIf(prediction === 0 && header.baseCrc !== 0, "Base_CRC without a prediction");
    if (header.layout === STORED) {
        corruptIf(header.payloadSize !== header.size, "size of a stored block");
        corruptIf((coding & 0x1c) !== 0 || prediction !== 0 || grouping !== 0, "fields that a stored block does not have");
    } else {
        corruptIf(header.payloadSize >= header.size, "a payload that is not smaller than its content");
    }
    if (header.layout === PLANES) {
        corruptIf(header.joint !== 0 && (header.width < 2 || prediction !== 0 || grouping !== 0), "Joint");
        corruptIf(header.nClasses > 1 && prediction === 0, "classes without a prediction");
        corruptIf(header.natural >= header.width || (header.natural !== 0 && (header.nClasses === 1 || header.sparse)), "Natural");
    }
    if (header.layout === QUANTISED) {
        corruptIf(header.width !== 2 && header.width !== 4, "width of a quantised block");
        corruptIf((coding & 0x1c) !== 0 || grouping !== 0, "fields that a quantised block does not have");
    }
    input.take(header.payloadSize);
    return header;
}

/** Decodes a block to `out`. `prediction` has its size if the block is predicted; wrongBase is the status if it is not what the encoder had. */
function decodePayload(bytes, header, prediction, wrongBase, out) {
    if (header.prediction === 1) {
        if (crc32c(prediction) !== header.baseCrc) refuse(wrongBase, "Base_CRC: the prediction is not the one of the encoder");
    } else {
        prediction = null;
    }
    const input = new Reader(bytes, header.payloadAt, header.payloadAt + header.payloadSize, "CORRUPT");
    if (header.layout === STORED) out.set(input.view(header.size));
    else if (header.layout === PLANES) decodePlanes(input, header, prediction, out);
    else decodeQuantised(input, header, prediction, out);
    input.mustBeAtEnd("a payload is longer than its content");
    if (crc32c(out) !== header.contentCrc) refuse("CHECKSUM", "Content_CRC of a block");
}

// -- Planes (section 7.2) -----------------------------------------------------------------------------------------------------------------------

function decodePlanes(input, header, prediction, out) {
    const { n, width } = header;
    let planes;
    if (header.joint !== 0) planes = readJointPlanes(input, header);
    else if (header.grouping !== 0) planes = readClassPlanes(input, header, prediction);
    else planes = Array.from({ length: width }, () => readList(input, n));

    if (header.subtract) {
        const addResiduals = { 1: addResiduals8, 2: addResiduals16, 4: addResiduals32, 8: addResiduals64 }[width];
        addResiduals(planes, dataOf(prediction ?? allocate(header.size)), n, dataOf(out));
    } else {
        planes.forEach((plane, p) => {
            for (let i = 0, at = p; i < n; i++, at += width) out[at] = plane[i];
        });
        if (prediction) for (let at = 0; at < out.length; at++) out[at] ^= prediction[at];
    }
}

// Residual subtract: element = s ^ (t if t < S, else t ^ (S - 1)), with s the sign of b, t = its other bits + d, and d the residual out of zigzag.

function addResiduals8([plane], from, n, to) {
    for (let i = 0; i < n; i++) {
        const r = plane[i];
        const b = from.getUint8(i);
        const t = (b & 0x7f) + ((r >>> 1) ^ -(r & 1));
        to.setUint8(i, (b & 0x80) ^ t ^ (-((t >>> 7) & 1) & 0x7f));
    }
}

function addResiduals16([plane0, plane1], from, n, to) {
    for (let i = 0, at = 0; i < n; i++, at += 2) {
        const r = plane0[i] | (plane1[i] << 8);
        const b = from.getUint16(at, true);
        const t = (b & 0x7fff) + ((r >>> 1) ^ -(r & 1));
        to.setUint16(at, (b & 0x8000) ^ t ^ (-((t >>> 15) & 1) & 0x7fff), true);
    }
}

function addResiduals32([plane0, plane1, plane2, plane3], from, n, to) {
    for (let i = 0, at = 0; i < n; i++, at += 4) {
        const r = plane0[i] | (plane1[i] << 8) | (plane2[i] << 16) | (plane3[i] << 24);
        const b = from.getInt32(at, true);
        const t = ((b & 0x7fffffff) + ((r >>> 1) ^ -(r & 1))) | 0;
        to.setInt32(at, (b & 0x80000000) ^ t ^ ((t >> 31) & 0x7fffffff), true);
    }
}

/** In halves of 32 bits. */
function addResiduals64([p0, p1, p2, p3, p4, p5, p6, p7], from, n, to) {
    for (let i = 0, at = 0; i < n; i++, at += 8) {
        const rLow = p0[i] | (p1[i] << 8) | (p2[i] << 16) | (p3[i] << 24);
        const rHigh = p4[i] | (p5[i] << 8) | (p6[i] << 16) | (p7[i] << 24);
        const bHigh = from.getInt32(at + 4, true);
        const sign = -(rLow & 1); // of d
        const tLow = from.getUint32(at, true) + ((((rLow >>> 1) | (rHigh << 31)) ^ sign) >>> 0);
        const tHigh = ((bHigh & 0x7fffffff) + ((rHigh >>> 1) ^ sign) + (tLow >= 2 ** 32 ? 1 : 0)) | 0;
        const flip = tHigh >> 31; // all ones if t >= S
        to.setInt32(at, (tLow | 0) ^ flip, true);
        to.setInt32(at + 4, (bHigh & 0x80000000) ^ tHigh ^ (flip & 0x7fffffff), true);
    }
}

// -- Classes (section 7.3) ----------------------------------------------------------------------------------------------------------------------

function readClassPlanes(input, header, prediction) {
    const { n, width, nClasses, natural } = header;
    const thresholds = input.view(nClasses - 1);
    thresholds.forEach((threshold, i) => corruptIf(threshold <= (i === 0 ? 0 : thresholds[i - 1]), "Thresholds"));

    // The elements of class c are order[starts[c]] .. order[starts[c + 1] - 1]
    const order = new Uint32Array(n);
    const starts = new Uint32Array(nClasses + 1);
    if (nClasses === 1) {
        for (let i = 0; i < n; i++) order[i] = i;
        starts[1] = n;
    } else {
        const classOfKey = Uint8Array.from({ length: 256 }, (_, key) => thresholds.filter(threshold => threshold <= key).length);
        const classes = new Uint8Array(n);
        for (let i = 0, top = width - 1; i < n; i++, top += width) {
            // The key: the top byte of the prediction, rotated left by one bit
            classes[i] = classOfKey[((prediction[top] << 1) | (prediction[width === 1 ? top : top - 1] >>> 7)) & 255];
            starts[classes[i] + 1]++;
        }
        for (let c = 0; c < nClasses; c++) starts[c + 1] += starts[c];
        const next = starts.slice();
        for (let i = 0; i < n; i++) order[next[classes[i]]++] = i;
    }

    const coded = []; // for each class its elements that have bytes in planes
    for (let c = 0; c < nClasses; c++) {
        const members = order.subarray(starts[c], starts[c + 1]);
        coded.push(header.sparse && members.length > 0 ? select(members, readMask(input, members.length, 0)) : members);
    }

    const planes = [];
    for (let p = 0; p < width; p++) planes.push(p < natural ? input.view(n) : allocate(n));
    for (const members of coded) {
        if (members.length === 0) continue;
        for (let p = natural; p < width; p++) {
            const list = readList(input, members.length);
            const plane = planes[p];
            for (let j = 0; j < members.length; j++) plane[members[j]] = list[j];
        }
    }
    return planes;
}

/** Those of the numbers whose bit is set, in place. */
function select(numbers, bits) {
    let n = 0;
    for (let j = 0; j < numbers.length; j++) {
        if ((bits[j >>> 3] >>> (j & 7)) & 1) numbers[n++] = numbers[j];
    }
    return numbers.subarray(0, n);
}

// -- Joint planes (section 7.4) -----------------------------------------------------------------------------------------------------------------

function readJointPlanes(input, header) {
    const { n, width, joint } = header;
    const offset = input.u16();
    corruptIf(offset >= 2 ** (8 + joint), "Offset of joint planes");
    const planes = Array.from({ length: width - 2 }, () => readList(input, n));
    const k = 8 / joint;
    const q = Math.ceil(n / k);
    const m = (k - 1) * q;
    const rest = input.view(m);
    const symbols = readList(input, n);

    const values = allocate(k * q); // v_i, and those beyond the elements
    const lowBits = 255 >>> joint;
    for (let i = 0; i < m; i++) {
        values[i] = rest[i] & lowBits;
        values[m + (i % q)] |= (rest[i] >>> (8 - joint)) << (Math.floor(i / q) * joint);
    }
    for (let i = n; i < k * q; i++) corruptIf(values[i] !== 0, "values of joint planes beyond the elements");

    const top = allocate(n);
    const second = values.subarray(0, n);
    for (let i = 0; i < n; i++) {
        const symbol = (offset + symbols[i]) & (2 ** (8 + joint) - 1); // the upper 8 + joint bits of r
        top[i] = symbol >>> joint;
        second[i] |= symbol << (8 - joint);
    }
    return [...planes, second, top];
}

// -- Coded tensors in memory (section 7.5) ------------------------------------------------------------------------------------------------------

function checkBytes(value, what) {
    if (value?.[Symbol.toStringTag] !== "Uint8Array") throw new TypeError(`${what} must be a Uint8Array`);
}

/**
 * Decodes the block at bytes[at ..) by itself. Its Position is (run, block). Returns its bytes and where it ends in the input.
 */
export function decodeBlock(bytes, { at = 0, run = 0, block = 0, prediction = null } = {}) {
    checkBytes(bytes, "the input");
    const input = new Reader(bytes, at, bytes.length, "TRUNCATED");
    const header = readBlockHeader(input, { run, block, size: null, predicted: null });
    if (header.prediction === 1) {
        if (!prediction) refuse("BASE_MISSING", "the block is predicted");
        if (prediction.length !== header.size) refuse("BASE_WRONG", "the prediction has another size than the block");
    }
    const data = allocate(header.size);
    decodePayload(bytes, header, prediction, "BASE_WRONG", data);
    return { data, end: input.at };
}

/** Decodes an array of `size` bytes that was coded outside of a file: its blocks, one after another. */
export function decodeArray(bytes, size, { run = 0, prediction = null } = {}) {
    checkBytes(bytes, "the input");
    if (prediction && prediction.length !== size) refuse("BASE_WRONG", "the prediction has another size than the array");
    const input = new Reader(bytes, 0, bytes.length, "TRUNCATED");
    const headers = [];
    let decoded = 0;
    for (let block = 0; decoded < size; block++) {
        const header = readBlockHeader(input, { run, block, size: null, predicted: null });
        if (header.prediction === 1 && !prediction) refuse("BASE_MISSING", "the array is predicted");
        decoded += header.size;
        // All have the size of the first, but the last, which may be smaller: so one that is not the last is no smaller
        corruptIf(decoded > size || header.size > (headers[0] ?? header).size, "size of a block");
        corruptIf(decoded < size && header.size !== (headers[0] ?? header).size, "size of a block");
        headers.push(header);
    }
    input.mustBeAtEnd("bytes after the last block");
    const data = allocate(decoded);
    let at = 0;
    for (const header of headers) {
        const end = at + header.size;
        decodePayload(bytes, header, prediction && prediction.subarray(at, end), "BASE_WRONG", data.subarray(at, end));
        at = end;
    }
    return data;
}

// -- Quantised elements (section 7.6) -----------------------------------------------------------------------------------------------------------

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function decodeQuantised(input, header, prediction, out) {
    const { n, width } = header;
    const within = (value, low, high, what) => {
        if (value < low || value > high) refuse("CORRUPT", `${what} of a quantised block`);
        return value;
    };
    const own = header.prediction === 1;
    const method = within(input.u8(), 0, 7, "Method");
    const log = (method & 1) !== 0;
    const signed = (method & 2) !== 0;
    const hasTable = (method & 4) !== 0;
    corruptIf((signed && !log) || (log && own), "Method of a quantised block");
    const lowBits = within(input.u8(), 0, hasTable ? 0 : 8, "Low_Bits");
    const tableSize = within(input.u16(), hasTable ? 1 : 0, hasTable ? 255 : 0, "Table_Size");
    const min = within(input.i32(), -65535, 0, "Min");
    const step = within(input.u32(), log ? 1 : 0, log ? 2 ** 24 : 0, "Step");
    const bias = within(input.i32(), own ? -(2 ** 30) : 0, own ? 2 ** 30 : 0, "Bias");
    const floor = within(input.u32(), 0, own ? 0x7f800000 : 0, "Floor");
    const groupSize = within(input.u32(), own ? 0 : 1, own ? 0 : 2 ** 31 - 1, "Group_Size");
    const firstGroup = within(input.u32(), own ? 0 : 1, groupSize, "First_Group");
    const nExceptions = within(input.u32(), 0, n, "N_Exceptions");

    const table = [0]; // the symbol of each High, with Table
    for (let i = 0; i < tableSize; i++) {
        table.push(input.u16());
        corruptIf(table[i + 1] <= table[i], "Table of a quantised block");
    }
    const positionsAt = input.take(4 * nExceptions);
    const values = input.view(width * nExceptions);

    let groups = null; // bits(G) of each group
    if (!own) {
        const nGroups = n <= firstGroup ? 1 : 1 + Math.ceil((n - firstGroup) / groupSize);
        const low = readList(input, nGroups);
        const high = readList(input, nGroups);
        groups = Uint32Array.from(low, (byte, i) => within(byte | (high[i] << 8), 0x0080, log ? 0x7f7f : 0x7700, "scale") * 65536);
    }
    const low = lowBits !== 0 ? readList(input, n) : null;
    const high = readList(input, n);

    const asFloat = new Float32Array(1); // two views of four bytes
    const asBits = new Uint32Array(asFloat.buffer);
    const elements = dataOf(out);
    const put = width === 4 ? (i, bits) => elements.setUint32(4 * i, bits, true) : (i, bits) => elements.setUint16(2 * i, bf16FromF32(bits), true);
    let group = 0;
    let groupEnd = firstGroup;
    for (let i = 0; i < n; i++) {
        if (!own && i === groupEnd) {
            group++;
            groupEnd += groupSize;
        }
        let symbol;
        if (hasTable) {
            corruptIf(high[i] > tableSize, "a symbol beyond the Table of a quantised block");
            symbol = table[high[i]];
        } else {
            symbol = low ? (high[i] << lowBits) | low[i] : high[i];
        }
        if (symbol === 0) {
            put(i, 0);
            continue;
        }
        let t = symbol - 1;
        let sign = 0;
        if (signed) {
            sign = (t & 1) * 0x80000000;
            t >>>= 1;
        }
        const q = min + t;
        const scale = own ? scaleOf(prediction, i, width, bias, floor) : groups[group];
        if (log) {
            put(i, clamp(scale + q * step, 0x00800000, 0x7f7f0000) + sign);
        } else {
            asBits[0] = scale;
            asFloat[0] *= q; // exact
            put(i, asBits[0]);
        }
    }

    // Exceptions: the elements at Positions are Values
    for (let i = 0, before = -1; i < nExceptions; i++) {
        const position = input.data.getUint32(positionsAt + 4 * i, true);
        corruptIf(position <= before || position >= n, "Positions of a quantised block");
        before = position;
        for (let byte = 0; byte < width; byte++) out[position * width + byte] = values[i * width + byte];
    }
}

/** bits(G) of an element, from its prediction: about its square root times a constant. */
function scaleOf(prediction, i, width, bias, floor) {
    const at = (i + 1) * width - 2; // the upper two bytes
    let bits = ((prediction[at] << 16) | (prediction[at + 1] << 24)) & 0x7fffffff;
    if (width === 4) bits |= prediction[at - 2] | (prediction[at - 1] << 8);
    return (clamp((Math.max(bits, floor) >>> 1) + bias, 0x00800000, 0x77000000) & 0xffff0000) >>> 0;
}

// -- Lists of bytes (section 8) -----------------------------------------------------------------------------------------------------------------

/** A list of n bytes with its Mode. It may be a part of the input: do not change it. */
function readList(input, n) {
    const mode = input.u8();
    if (mode === 0) return input.view(n);
    if (mode === 1) return allocate(n).fill(input.u8());
    corruptIf(mode > 3, "Mode of a plane");
    const tree = readTree(input, mode === 3);
    const list = allocate(n);
    readNode(input, tree, n, 0, list, allocate(n), 0);
    return list;
}

const ESCAPE = 256; // sorts after all symbols

/** Tree_Header (section 8.1). Returns the root node. */
function readTree(input, hasEscape) {
    const first = input.u8();
    const count = input.u8() + 1;
    corruptIf(first + count > 256, "First and Count of a tree");
    const nLengths = count + (hasEscape ? 1 : 0);
    const fields = input.view(Math.ceil(nLengths / 2));
    const lengthAt = i => (fields[i >> 1] >>> (4 * (i & 1))) & 15;
    corruptIf(nLengths % 2 === 1 && lengthAt(nLengths) !== 0, "unused half of the lengths of a tree");
    corruptIf(lengthAt(0) === 0 || lengthAt(count - 1) === 0, "the first or last symbol of a tree has no code");
    const leaves = [];
    for (let i = 0; i < nLengths; i++) {
        if (lengthAt(i) !== 0) leaves.push({ symbol: i < count ? first + i : ESCAPE, length: lengthAt(i) });
    }
    leaves.sort((a, b) => a.length - b.length || a.symbol - b.symbol);
    corruptIf(leaves.length < 2 || leaves.length > 256, "number of leaves of a tree");
    corruptIf(hasEscape && leaves[leaves.length - 1].symbol !== ESCAPE, "the escape is not among the longest codes");
    corruptIf(leaves.reduce((sum, leaf) => sum + 2 ** (15 - leaf.length), 0) !== 2 ** 15, "the code of a tree is not complete");
    return buildNode(leaves, 0);
}

const LEAF = 0; // kinds of nodes, as in section 8.2: all n elements are one symbol
const ESCAPED = 1; // the n elements follow
const FLAT = 2; // equal lengths: D lists of bits
const SPLIT = 3; // a mask and two children

/** The node at a depth that owns these leaves, of a complete code in its order. */
function buildNode(leaves, depth) {
    const { symbol, length } = leaves[0];
    if (leaves.length === 1) return symbol === ESCAPE ? { kind: ESCAPED } : { kind: LEAF, symbol };
    const last = leaves[leaves.length - 1];
    const bits = length - depth; // D
    if (last.symbol !== ESCAPE && last.length === length && bits >= 2 && bits <= 6) {
        return { kind: FLAT, bits, symbols: Uint8Array.from(leaves, leaf => leaf.symbol) };
    }
    const half = 2 ** (14 - depth); // what the left child owns of the code's 2^15
    let middle = 0;
    for (let sum = 0; sum < half; middle++) sum += 2 ** (15 - leaves[middle].length);
    return { kind: SPLIT, left: buildNode(leaves.slice(0, middle), depth + 1), right: buildNode(leaves.slice(middle), depth + 1) };
}

/** Reads the n elements of a node to out[at ..); spare[at .. at + n) is overwritten, too. The masks of the node stand at that nesting. */
function readNode(input, node, n, nesting, out, spare, at) {
    if (n === 0) return;
    if (node.kind === LEAF) {
        out.fill(node.symbol, at, at + n);
    } else if (node.kind === ESCAPED) {
        out.set(input.view(n), at);
    } else if (node.kind === FLAT) {
        readFlat(input, node, n, out, at);
    } else {
        const mask = readMask(input, n, nesting);
        const nLeft = n - countOnes(mask);
        readNode(input, node.left, nLeft, nesting, spare, out, at);
        readNode(input, node.right, n - nLeft, nesting, spare, out, at + nLeft);
        merge(mask, n, nLeft, spare, out, at);
    }
}

/**
 * out[to + i] is the next of the left elements where bit i is 0, else of the right ones; both stand in from[to ..), the left ones first. Without
 * branches, as no processor foresees these bits; and eight in a row, as this takes more time than all else.
 */
function merge(mask, n, nLeft, from, out, to) {
    let left = to;
    let gap = nLeft; // from the next left element to the next right one
    let byte = 0;
    for (const end = to + (n & ~7); to < end; to += 8) {
        let bit = mask[byte] & 1;
        out[to] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = (mask[byte] >>> 1) & 1;
        out[to + 1] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = (mask[byte] >>> 2) & 1;
        out[to + 2] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = (mask[byte] >>> 3) & 1;
        out[to + 3] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = (mask[byte] >>> 4) & 1;
        out[to + 4] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = (mask[byte] >>> 5) & 1;
        out[to + 5] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = (mask[byte] >>> 6) & 1;
        out[to + 6] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1, bit = mask[byte++] >>> 7;
        out[to + 7] = from[left + (gap & -bit)];
        left += 1 - bit, gap += bit + bit - 1;
    }
    for (let rest = n & 7, bits = mask[byte]; rest > 0; rest--, to++, bits >>>= 1) {
        out[to] = from[bits & 1 ? left + gap : left];
        if (bits & 1) gap++;
        else left++, gap--;
    }
}

/** Bits 0-3 of a byte, each as a byte of its own. */
const SPREAD = Uint32Array.from({ length: 16 }, (_, i) => (i & 1) | ((i & 2) << 7) | ((i & 4) << 14) | ((i & 8) << 21));

function readFlat(input, { bits, symbols }, n, out, at) {
    const planes = Array.from({ length: bits }, () => readBits(input, n));
    for (let i = 0; i < n; i += 4) {
        let indices = 0; // of four elements, a byte each
        for (let j = 0; j < bits; j++) indices = (indices << 1) | SPREAD[(planes[j][i >>> 3] >>> (i & 4)) & 15];
        const end = Math.min(i + 4, n);
        for (let e = i; e < end; e++, indices >>>= 8) out[at + e] = symbols[indices & 255];
    }
}

// -- Masks (section 8.3) ------------------------------------------------------------------------------------------------------------------------

function readBits(input, n) {
    const bits = input.view((n + 7) >>> 3);
    checkUnusedBits(bits, n);
    return bits;
}

function checkUnusedBits(bits, n) {
    corruptIf((n & 7) !== 0 && bits[bits.length - 1] >>> (n & 7) !== 0, "unused bits of a list of bits");
}

/** A mask of n bits, n at least 1. It may be a part of the input. */
function readMask(input, n, nesting) {
    if (n < 256 || nesting === 3) return readBits(input, n);
    const mode = input.u8();
    corruptIf(mode > 20, "Mode of a mask");
    if (mode === 0) return readBits(input, n);
    const size = (n + 7) >>> 3;
    const mask = allocate(size);
    readNode(input, frozenTree((mode - 1) >>> 1), size, nesting + 1, mask, allocate(size), 0);
    if ((mode - 1) & 1) for (let i = 0; i < size; i++) mask[i] ^= 255;
    checkUnusedBits(mask, n);
    return mask;
}

const ONES = Uint8Array.from({ length: 256 }, (_, byte) => [0, 1, 2, 3, 4, 5, 6, 7].filter(bit => (byte >>> bit) & 1).length);

function countOnes(mask) {
    let ones = 0;
    for (let i = 0; i < mask.length; i++) ones += ONES[mask[i]];
    return ones;
}

// -- Frozen trees (section 8.4) -----------------------------------------------------------------------------------------------------------------

/** For each level the number of leaves of length 1 .. 15. */
const FROZEN_LENGTHS = [
    [0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0],
    [0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2],
    [0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34],
    [0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90],
    [1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92],
    [1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162],
    [1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162],
    [1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182],
    [1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214],
];

/** All bytes, by number of ones, then by value. */
const FROZEN_SYMBOLS = Array.from({ length: 256 }, (_, byte) => byte).sort((a, b) => ONES[a] - ONES[b] || a - b);

const frozenTrees = []; // made when they are needed

function frozenTree(level) {
    if (!frozenTrees[level]) {
        const lengths = FROZEN_LENGTHS[level].flatMap((count, i) => Array(count).fill(i + 1));
        const leaves = FROZEN_SYMBOLS.map((symbol, i) => ({ symbol, length: lengths[i] }));
        frozenTrees[level] = buildNode(leaves, 0);
    }
    return frozenTrees[level];
}

// -- Identities (section 9) ---------------------------------------------------------------------------------------------------------------------

const LEAF_SIZE = 262144;

/** Gives file.crc and file.identities. Every byte goes through the CRC once. */
function identifyFile(file) {
    const { data, tensors } = file;
    let at = 0;
    file.crc = 0;
    file.identities = allocate(32 * Math.max(1, tensors.length));
    /** Moves on to end, in pieces, whose CRCs it returns. */
    const leavesTo = end => {
        const leaves = [];
        while (at < end) {
            const next = Math.min(at + LEAF_SIZE, end);
            leaves.push(crc32c(data, at, next));
            file.crc = crcOfBoth(file.crc, leaves[leaves.length - 1], next - at);
            at = next;
        }
        return leaves;
    };
    for (const tensor of tensors) {
        leavesTo(tensor.offset);
        const leaves = leavesTo(tensor.offset + tensor.size);
        tensor.identity.set(identityOf(leaves, tensor.dtypeBytes, tensor.shapeBytes, tensor.size));
    }
    const leaves = leavesTo(data.length);
    if (tensors.length === 0) file.identities.set(identityOf(leaves, asBytes("U8"), littleEndian(data.length, 8), data.length));
}

/** Section 9.2. */
function identityOf(leafCrcs, dtypeBytes, shapeBytes, size) {
    const leaves = allocate(4 * leafCrcs.length);
    leafCrcs.forEach((crc, i) => dataOf(leaves).setUint32(4 * i, crc, true));
    const dtypeSize = Uint8Array.of(dtypeBytes.length);
    const rank = Uint8Array.of(shapeBytes.length / 8);
    return sha256(concat([asBytes("LMC tensor 1\0"), leaves, dtypeSize, dtypeBytes, rank, shapeBytes, littleEndian(size, 8)]));
}

/** Section 9.3: all tensors, and all files without any, sorted by name and identity. */
function itemsOf(files) {
    const items = files.flatMap(file => (file.tensors.length === 0 ? [file] : file.tensors));
    // No name has a zero byte, so a shorter one comes before a longer one that starts with it
    const keyed = items.map(item => ({ item, key: `${keyOf(item.nameBytes)}\0${keyOf(item.identity)}` }));
    return keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0)).map(({ item }) => item);
}

function identityOfItems(items) {
    const title = asBytes("LMC snapshot 1\0");
    const message = allocate(items.reduce((size, item) => size + 4 + item.nameBytes.length + 32, title.length));
    message.set(title);
    let at = title.length;
    for (const { nameBytes, identity } of items) {
        dataOf(message).setUint32(at, nameBytes.length, true);
        message.set(nameBytes, at + 4);
        message.set(identity, at + 4 + nameBytes.length);
        at += 4 + nameBytes.length + 32;
    }
    return sha256(message);
}

// -- Index and trailer (section 10) -------------------------------------------------------------------------------------------------------------

const TRAILER_SIZE = 40;
const END_MAGIC = Uint8Array.of(0x8d, 0x4c, 0x4d, 0x43, 0x0d, 0x0a, 0x1a, 0x0a);

/** Reads the body of the INDX section, which must say what the sections said. What it says of the content is left for checkContent(). */
function readIndex(body, snapshot) {
    const { files, runs, sections } = snapshot;
    corruptIf(body.u32() !== files.length || body.u32() !== runs.length, "N_Files or N_Runs");
    snapshot.identity = body.view(32);
    const nMetadata = body.u32();
    unsupportedIf(body.u32() !== 0, "reserved field of the index");
    for (const section of sections) {
        const { at, end } = section;
        corruptIf(body.u64() !== BigInt(at), "Offset of an index entry");
        corruptIf(!sameBytes(body.view(end - at), body.bytes.subarray(at, end)), "Copy of an index entry");
        if (section instanceof SourceFile) {
            corruptIf(body.u64() !== BigInt(section.size), "File_Size of an index entry");
            section.statedCrc = body.u32();
            corruptIf(body.u32() !== 0, "reserved field of an index entry");
            section.statedIdentities = body.view(32 * Math.max(1, section.tensors.length));
        } else {
            let block = section.blocksAt;
            for (const size of section.blockSizes) {
                corruptIf(body.u32() !== size, "size of a block in the index");
                corruptIf(body.u32() !== body.data.getUint32(block + 20, true), "Header_CRC of a block in the index");
                block += size;
            }
        }
    }
    snapshot.metadataSource = { body, at: body.at, n: nMetadata };
    let keyBefore = "";
    for (let i = 0; i < nMetadata; i++) {
        const key = keyOf(readMetadataEntry(body).keyBytes);
        corruptIf(key <= keyBefore, "keys do not ascend");
        keyBefore = key;
    }
    body.mustBeAtEnd("Body_Size of the index");
}

function readMetadataEntry(body) {
    const keySize = body.u32();
    const valueSize = body.u32();
    corruptIf(keySize < 1 || keySize > 65535, "Key_Size");
    corruptIf(valueSize > 2 ** 28, "Value_Size");
    return { keyBytes: body.string(keySize), value: body.view(valueSize) };
}

/** Reads the trailer, which must be all that is left. */
function readTrailer(input) {
    const at = input.take(TRAILER_SIZE);
    const trailer = new Reader(input.bytes, at, at + TRAILER_SIZE, "CORRUPT");
    corruptIf(!sameBytes(input.bytes.subarray(at + 32, at + 40), END_MAGIC), "End_Magic");
    const indexOffset = trailer.u64();
    const indexSize = trailer.u64();
    const totalSize = trailer.u64();
    const reserved = trailer.u32();
    if (crc32c(input.bytes, at, at + 28) !== trailer.u32()) refuse("CHECKSUM", "Trailer_CRC");
    unsupportedIf(reserved !== 0, "reserved field of the trailer");
    corruptIf(indexOffset + indexSize !== BigInt(at), "Index_Offset or Index_Size");
    corruptIf(totalSize !== BigInt(input.bytes.length), "Total_Size");
    return { indexAt: Number(indexOffset) };
}

/** The identity that an LMC file says it has, without decoding it (a random-access reader's way). */
function statedIdentity(bytes, limits) {
    readFileHeader(bytes);
    if (bytes.length < TRAILER_SIZE || !sameBytes(bytes.subarray(-8), END_MAGIC)) refuse("TRUNCATED", "the file has no end");
    const { indexAt } = readTrailer(new Reader(bytes, bytes.length - TRAILER_SIZE, bytes.length, "TRUNCATED"));
    const { kind, body } = readSection(new Reader(bytes, indexAt, bytes.length - TRAILER_SIZE, "CORRUPT"), limits);
    corruptIf(kind !== "INDX", "Index_Offset");
    body.take(8);
    return body.view(32);
}

// -- Snapshots ----------------------------------------------------------------------------------------------------------------------------------

/** What an LMC file, or a file or directory that serves as a base, holds. */
class Snapshot {
    constructor({ sequential = true, baseIdentity = null, chainDepth = 0 } = {}) {
        this.sequential = sequential;
        this.baseIdentity = baseIdentity; // 32 bytes, or null: no base
        this.chainDepth = chainDepth;
        this.identity = null; // 32 bytes
        this.metadataSource = null; // where that of the index stands
        this.files = [];
        this.items = []; // section 9.3, once decoded: tensors, and files without any
        this.runs = [];
        this.sections = []; // files and runs, in the order of the input
    }

    /** [{ key, keyBytes, value }], made anew each time. */
    get metadata() {
        if (!this.metadataSource) return [];
        const { body, at, n } = this.metadataSource;
        body.at = at;
        return Array.from({ length: n }, () => readMetadataEntry(body)).map(entry => ({ key: utf8.decode(entry.keyBytes), ...entry }));
    }
}

/** Reads everything but the payloads of blocks (sections 3 to 6, 10), so that all sizes are known. `base`: a decoded snapshot, or null. */
function readStructure(bytes, header, base, limits) {
    const snapshot = new Snapshot(header);
    const { files, runs, sections } = snapshot;
    const input = new Reader(bytes, FILE_HEADER_SIZE, bytes.length, "TRUNCATED");
    const paths = new Set();
    let decodedSize = 0;
    for (;;) {
        const { kind, number, at, end, body } = readSection(input, limits);
        corruptIf(number !== { "FILE": files.length, "RUN ": runs.length, "INDX": 0 }[kind], "Number of a section");
        const latest = files[files.length - 1];
        if (kind === "RUN ") {
            corruptIf(!latest, "a RUN before the first FILE");
            const run = readRun(input, body, snapshot, base, limits.decoded - decodedSize);
            decodedSize += run.size;
            sections.push(Object.assign(run, { at, end }));
            continue;
        }
        corruptIf(latest && latest.declaredSize !== UNKNOWN_SIZE && latest.declaredSize !== BigInt(latest.size), "a file is not complete");
        if (kind === "FILE") {
            const file = readFileBody(body);
            paths.add(keyOf(file.pathBytes));
            files.push(file);
            corruptIf(paths.size !== files.length, "two files of one Path");
            corruptIf(files.length > 1 && paths.has(""), "an empty Path beside others");
            sections.push(Object.assign(file, { at, end }));
            continue;
        }
        corruptIf(files.length === 0, "no FILE section");
        readIndex(body, snapshot);
        const { indexAt } = readTrailer(input);
        corruptIf(indexAt !== at, "Index_Offset");
        return snapshot;
    }
}

/** Reads a RUN section and skips its blocks, whose headers it checks. */
function readRun(input, body, snapshot, base, allowedSize) {
    const { files, runs } = snapshot;
    const run = new Run(runs.length, files[files.length - 1], body);
    corruptIf(run.prediction === BASE && !snapshot.baseIdentity, "a run that needs a base in a file that has none");
    corruptIf(run.prediction === OWN && snapshot.sequential, "Prediction 2 in a file that is Sequential");
    // No block has less than its header and one byte. With as many as that, all sizes are less than 2^53 and the list of blocks is justified
    if (run.nBlocks * (BLOCK_HEADER_SIZE + 1) > input.left) refuse("TRUNCATED", "the input ends before the blocks of a run");
    checkSegments(run, files, base && base.items);
    if (run.size > allowedSize) refuse("LIMIT", "the files are larger than allowed");
    run.blocksAt = input.at;
    run.blockSizes = new Uint32Array(run.nBlocks);
    for (let block = 0; block < run.nBlocks; block++) {
        const at = input.at;
        readBlockHeader(input, { run: run.number, block, size: run.sizeOfBlock(block), predicted: run.prediction !== ZERO });
        run.blockSizes[block] = input.at - at;
    }
    run.file.size += run.size;
    if (run.prediction === OWN) run.file.ownRanges.push(run.start, run.file.size);
    runs.push(run);
    return run;
}

/** Decodes all blocks to the files' data. */
function decodeContent(bytes, snapshot, base) {
    const { files, runs } = snapshot;
    for (const file of files) file.data = allocate(file.size);
    for (const run of runs) {
        const predictor = run.prediction === ZERO ? null : new Predictor(run, files, base && base.items);
        const input = new Reader(bytes, run.blocksAt, bytes.length, "TRUNCATED");
        const wrongBase = run.prediction === OWN ? "CORRUPT" : "BASE_WRONG";
        for (let block = 0, at = run.start; block < run.nBlocks; block++) {
            const size = run.sizeOfBlock(block);
            const header = readBlockHeader(input, { run: run.number, block, size, predicted: predictor !== null });
            const prediction = predictor && predictor.take(size);
            decodePayload(bytes, header, prediction, wrongBase, run.file.data.subarray(at, at + size));
            at += size;
        }
    }
}

/** Compares what was decoded with what the index says of it. */
function checkContent(snapshot) {
    for (const file of snapshot.files) {
        identifyFile(file);
        corruptIf(file.crc !== file.statedCrc, "File_CRC");
        corruptIf(!sameBytes(file.identities, file.statedIdentities), "identity of a tensor or file");
    }
    snapshot.items = itemsOf(snapshot.files);
    corruptIf(!sameBytes(identityOfItems(snapshot.items), snapshot.identity), "Snapshot_Identity");
}

/**
 * Decodes an LMC file, and checks all of it.
 *
 * bases: where to look for its base, and the base of that. Each is the bytes of a file (LMC or not), or an array of { path, data } that stands for a
 * directory, with data null for directories in it; or a snapshot that this function returned.
 * limits: see DEFAULT_LIMITS.
 */
export function decode(bytes, { bases = [], limits = {} } = {}) {
    checkBytes(bytes, "the input");
    const allowed = { ...DEFAULT_LIMITS, ...limits };
    const header = readFileHeader(bytes);
    const base = header.baseIdentity ? findBase(header.baseIdentity, bytes, bases, allowed) : null;
    const snapshot = readStructure(bytes, header, base, allowed);
    decodeContent(bytes, snapshot, base);
    checkContent(snapshot);
    return snapshot;
}

/** What an LMC file holds, without decoding it: files have no data. Needs no base, and leaves unchecked what only that tells. */
export function list(bytes, { limits = {} } = {}) {
    checkBytes(bytes, "the input");
    return readStructure(bytes, readFileHeader(bytes), null, { ...DEFAULT_LIMITS, ...limits, decoded: Infinity });
}

// -- Bases (sections 4, 9.4) --------------------------------------------------------------------------------------------------------------------

/** The snapshot of that identity among the candidates, decoded. `user` is the file that needs it. */
function findBase(identity, user, candidates, limits) {
    if (candidates.length === 0) refuse("BASE_MISSING", `the file needs its base, ${hex(identity)}`);
    let problem = new LmcError("BASE_WRONG", `the file needs another base, ${hex(identity)}`);
    for (const candidate of candidates) {
        try {
            const snapshot = openBase(identity, user, candidate, candidates, limits);
            if (snapshot && sameBytes(snapshot.identity, identity)) return snapshot;
        } catch (error) {
            if (!(error instanceof LmcError)) throw error;
            problem = error; // it is damaged, or lacks its own base: another may do
        }
    }
    throw problem;
}

/** The candidate as a snapshot, or null if it cannot be the one of that identity. */
function openBase(identity, user, candidate, candidates, limits) {
    if (candidate instanceof Snapshot) return candidate;
    if (Array.isArray(candidate)) return snapshotOfFiles(candidate);
    checkBytes(candidate, "a base");
    if (!isLmc(candidate)) return snapshotOfFiles([{ path: "", data: candidate }]);
    if (sameBytes(candidate, user)) return null; // no file is its own base
    if (!sameBytes(statedIdentity(candidate, limits), identity)) return null;
    const others = candidates.filter(other => other !== candidate); // so this comes to an end
    return decode(candidate, { bases: others, limits });
}

/** The snapshot that a tool would make of these files: { path, data }, data null for a directory. Not of those that hold LMC files. */
export function snapshotOfFiles(entries) {
    const snapshot = new Snapshot();
    for (const { path, data } of entries) {
        const file = new SourceFile();
        file.kind = data ? "file" : "directory";
        file.pathBytes = asBytes(path);
        file.data = data ?? new Uint8Array(0);
        file.size = file.data.length;
        file.tensors = safetensorsOf(file);
        identifyFile(file);
        snapshot.files.push(file);
    }
    snapshot.items = itemsOf(snapshot.files);
    snapshot.identity = identityOfItems(snapshot.items);
    return snapshot;
}

/** The tensors of a file, if it keeps all that section 9.4 says of safetensors: u64 size of a JSON header, the header, the tensors' bytes. */
function safetensorsOf(file) {
    const { data } = file;
    if (data.length < 9 || data[8] !== 0x7b) return [];
    const headerSize = dataOf(data).getBigUint64(0, true);
    if (headerSize > data.length - 8) return [];
    const start = 8 + Number(headerSize);
    const header = readMarkedJson(data.subarray(8, start));
    if (!header) return [];
    const tensors = [];
    for (const [key, entry] of Object.entries(header)) {
        if (key === "s__metadata__") continue;
        const tensor = safetensor(file, key, entry, start);
        if (!tensor) return [];
        tensors.push(tensor);
    }
    tensors.sort((a, b) => a.offset - b.offset || a.size - b.size);
    let end = start;
    for (const [number, tensor] of tensors.entries()) {
        if (tensor.offset !== end) return [];
        tensor.number = number;
        end += tensor.size;
    }
    return end <= data.length ? tensors : [];
}

/** JSON with an "s" in front of all strings, keys too, and numbers as strings of their digits with an "n": exact. Null if it is not good. */
function readMarkedJson(bytes) {
    try {
        const text = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true }).decode(bytes);
        JSON.parse(text); // so it is JSON, and these are its tokens
        let colons = 0;
        const marked = text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][-+.0-9eE]*|:/g, token => {
            if (token === ":") colons++;
            return token === ":" ? token : token[0] === '"' ? `"s${token.slice(1)}` : `"n${token}"`;
        });
        let members = -1; // the root counts as one
        const value = JSON.parse(marked, function count(key, part) {
            if (!Array.isArray(this)) members++;
            return part;
        });
        return members === colons ? value : null; // or a key is there twice
    } catch {
        return null; // or too deep for the engine
    }
}

function safetensor(file, key, entry, start) {
    const { sdtype: dtype, sshape: shape, sdata_offsets: offsets } = entry ?? {};
    const isString = value => typeof value === "string" && value[0] === "s" && !/\p{Surrogate}/u.test(value);
    const areSizes = values => Array.isArray(values) && values.every(value => /^n[0-9]{1,19}$/.test(value) && BigInt(value.slice(1)) <= MOST_BYTES);
    if (!isString(key) || !isString(dtype) || !areSizes(shape) || shape.length > 32 || !areSizes(offsets) || offsets.length !== 2) return null;
    const nameBytes = asBytes(key.slice(1));
    const dtypeBytes = asBytes(dtype.slice(1));
    if (nameBytes.length > 65535 || dtypeBytes.length < 1 || dtypeBytes.length > 32 || nameBytes.includes(0) || dtypeBytes.includes(0)) return null;
    const [begin, end] = offsets.map(offset => Number(offset.slice(1))); // exact if they are within the file
    if (end < begin || start + end > file.size) return null;
    const tensor = new Tensor(file, 0, start + begin, end - begin);
    tensor.bytes = concat([...shape.map(extent => littleEndian(extent.slice(1), 8)), nameBytes, dtypeBytes]);
    tensor.rank = shape.length;
    tensor.nameSize = nameBytes.length;
    tensor.dtypeSize = dtypeBytes.length;
    return isOfItsSize(tensor, tensor.size) ? tensor : null;
}
