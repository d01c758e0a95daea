// A decoder of the LMC format, version 1.0, in plain JavaScript: written from spec/lmc-format.md and its companions alone,
// in their order; "section" below means there.
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

export const VERSION = "1.0";

/** What callers may allow: see section 9. All in bytes. */
export const DEFAULT_LIMITS = Object.freeze({
    section: 2 ** 30, // body of a section: as much MUST be allowed
    decoded: 2 ** 30, // sum of the sizes of all files of a snapshot
    tables: 2 ** 30, // what the tables of files and tensors take in memory, about: entries of some bytes may repeat names of hundreds
    chain: 256, // bases of bases that are LMC files
});

// -- Errors (section 2.2) ---------------------------------------------------------------------------------------------------------------------------

/** The only thing that is thrown for bad input; `status` is a name of section 2.2. */
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

// -- Conventions (section 2) ------------------------------------------------------------------------------------------------------------------------

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

    /** Seven bits a byte, the least first; bit 7: another one follows. Below 2^64, in the shortest form. A Number if it is one exactly. */
    varint() {
        let value = 0;
        for (let i = 0, scale = 1; i < 7; i++, scale *= 128) {
            const byte = this.u8();
            value += (byte & 127) * scale;
            if (byte < 128) {
                corruptIf(byte === 0 && i > 0, "a varint that is not in its shortest form");
                return value;
            }
        }
        let rest = 0n;
        for (let i = 0n; i < 3n; i++) {
            const byte = this.u8();
            corruptIf(i === 2n && byte > 1, "a varint that is not below 2^64");
            rest |= BigInt(byte & 127) << (7n * i);
            if (byte < 128) {
                corruptIf(byte === 0, "a varint that is not in its shortest form");
                break;
            }
        }
        return exact(BigInt(value) | (rest << 49n));
    }

    /** A varint that is at most `most`. */
    upTo(most, what) {
        const value = this.varint();
        corruptIf(value > most, what);
        return value;
    }

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

/** The other way round. */
function bytesOf(key) {
    const bytes = allocate(key.length);
    for (let i = 0; i < key.length; i++) bytes[i] = key.charCodeAt(i);
    return bytes;
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

// -- CRC-32C ----------------------------------------------------------------------------------------------------------------------------------------

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

// -- SHA-256 (FIPS 180-4) ---------------------------------------------------------------------------------------------------------------------------

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

// -- Header (section 3.1) ---------------------------------------------------------------------------------------------------------------------------

const MAGIC = Uint8Array.of(0x95, 0x4c, 0x4d, 0x43, 0x0d, 0x0a, 0x1a, 0x0a);
const FORMAT_MAJOR = 1;
const HEADER_SIZE = 64;

/** Bits of Incompatible: what a file may use. */
const BASE_BIT = 1;
const OWN_BIT = 2;
const QUANTISED_BIT = 4;
const ZEROS_BIT = 8;
const MATRIX_BIT = 16;
const CODES_BIT = 32;
const ALL_BITS = 63;

export function isLmc(bytes) {
    return bytes.length >= 8 && sameBytes(bytes.subarray(0, 8), MAGIC);
}

function readHeader(bytes) {
    if (!isLmc(bytes)) refuse("NOT_LMC", "this is no LMC file");
    const input = new Reader(bytes, 8, bytes.length, "TRUNCATED");
    const major = input.u8();
    if (major !== FORMAT_MAJOR) refuse("VERSION", `version ${major} of the format; this decoder knows ${VERSION}`);
    input.u8(); // Format_Minor decides nothing
    const algorithm = input.u8();
    const reserved = input.view(5);
    const incompatible = input.u64();
    input.u64(); // Compatible: any value
    const baseFingerprint = input.view(FINGERPRINT_SIZE);
    const reservedToo = input.view(12);
    if (crc32c(bytes, 0, 60) !== input.u32()) refuse("CHECKSUM", "Header_CRC");
    unsupportedIf(algorithm !== 1, "Algorithm of fingerprints");
    unsupportedIf(isAnyOne(reserved), "reserved bytes of the header");
    unsupportedIf(incompatible > ALL_BITS, "a bit of Incompatible that this decoder does not know");
    const features = Number(incompatible);
    const hasBase = isAnyOne(baseFingerprint);
    corruptIf(hasBase !== ((features & BASE_BIT) !== 0), "Base_Fingerprint and its bit of Incompatible");
    unsupportedIf(isAnyOne(reservedToo), "reserved bytes of the header");
    return { features, baseFingerprint: hasBase ? baseFingerprint : null };
}

const isAnyOne = bytes => bytes.some(byte => byte !== 0);

// -- Sections (section 4) ---------------------------------------------------------------------------------------------------------------------------

const SECTION_HEADER_SIZE = 20;

/** Reads one section; its body is a Reader, which ends with it. mayStand(kind): whether such a section may stand here. */
function readSection(input, limits, mayStand) {
    const at = input.at;
    const kind = keyOf(input.view(4));
    const size = input.u64();
    const headCrc = input.u32();
    const bodyCrc = input.u32();
    if (crc32c(input.bytes, at, at + 12) !== headCrc) refuse("CHECKSUM", "Head_CRC of a section");
    corruptIf(!/^[A-Za-z][A-Za-z0-9 ]{3}$/.test(kind), "Kind of a section");
    unsupportedIf(!isAncillary(kind) && !["FILE", "RUN ", "BLKS", "INDX"].includes(kind), "a section of an unknown kind");
    corruptIf(!mayStand(kind), "a section that may not stand here");
    corruptIf(size > 2n ** 40n, "Body_Size of a section");
    if (size > limits.section) refuse("LIMIT", `a section of ${size} bytes; ${limits.section} are allowed`);
    const bodyAt = input.take(Number(size));
    if (crc32c(input.bytes, bodyAt, input.at) !== bodyCrc) refuse("CHECKSUM", "Body_CRC of a section");
    return { kind, at, bodyAt, end: input.at, body: new Reader(input.bytes, bodyAt, input.at, "CORRUPT") };
}

const isAncillary = kind => /^[a-z]/.test(kind);

/** A count in a body: not more than the rest of the body can hold, at leastSize bytes each. */
function checkCount(body, count, leastSize, what) {
    corruptIf(count > body.left / leastSize, what);
    return count;
}

/** What follows the last field of a body (section 4.5): records for extensions, of which this decoder knows none. */
function skipExtensions(body) {
    for (let before = -1; body.left > 0; ) {
        const tag = body.varint();
        corruptIf(tag <= before, "Tags of extension records do not ascend");
        before = tag;
        body.take(body.varint());
        unsupportedIf((BigInt(tag) & 1n) === 1n, "a critical extension record");
    }
}

// -- FILE body (section 4.1) ------------------------------------------------------------------------------------------------------------------------

/** In the order of their numbers, which count from 1: [Dtype, bits of an element]. */
const DTYPES = (
    "BOOL 8, F4 4, F6_E2M3 6, F6_E3M2 6, U8 8, I8 8, F8_E5M2 8, F8_E4M3 8, F8_E8M0 8, F8_E4M3FNUZ 8, F8_E5M2FNUZ 8, I16 16, U16 16, F16 16, " +
    "BF16 16, I32 32, U32 32, F32 32, C64 64, F64 64, I64 64, U64 64, I4 4, U4 4, I2 2, U2 2, C128 128"
).split(", ").map(entry => entry.split(" ")).map(([name, bits]) => [name, BigInt(bits)]);

const DTYPE_BITS = new Map(DTYPES);

/** A tensor of a file. There may be millions, so strings have a character for each byte, and what is alike is shared. */
class Tensor {
    constructor(file, number, key, type, offset) {
        this.file = file;
        this.number = number; // within its file
        this.key = key; // the bytes of Name: see keyOf()
        this.type = type; // { dtypeKey, shape, size }
        this.offset = offset;
        this.end = 0;
        this.generation = 0; // how often it was quantised
        this.measure = 0; // 1 update, 2 relative, 3 nmse; others are of later versions
        this.error = 0; // by that measure, in units of 2^-32
    }

    get size() { return this.type.size; } // bytes
    get shape() { return this.type.shape; }
    get nameBytes() { return bytesOf(this.key); }
    get dtypeBytes() { return bytesOf(this.type.dtypeKey); }
    get name() { return utf8.decode(this.nameBytes); }
    get dtype() { return utf8.decode(this.dtypeBytes); }

    /** Its bytes, once the file is decoded. */
    get data() { return this.file.data.subarray(this.offset, this.offset + this.size); }

    /** Once the file is decoded. */
    get fingerprint() { return this.file.fingerprints[this.number]; }
}

/** A file, or a directory. */
class SourceFile {
    constructor() {
        this.kind = "file"; // or "directory"
        this.size = 0; // -1: not known yet
        this.key = ""; // the bytes of Path: see keyOf()
        this.mode = null; // POSIX permission bits, if known
        this.mtime = null; // { seconds (BigInt), nanoseconds }, if known
        this.tensors = [];
        this.stream = null; // which it is a part of
        this.start = 0; // within that
        this.data = null; // once decoded
        this.fingerprints = null; // likewise: those of its tensors, or its own if it has none
        this.text = null; // its HeaderText, if it is needed
    }

    get pathBytes() { return bytesOf(this.key); }
    get path() { return utf8.decode(this.pathBytes); }
    get fingerprint() { return this.tensors.length === 0 ? this.fingerprints[0] : null; }
}

/** The files of a FILE section, one after another, which the runs behind it cut. Its fields are Numbers: exact once it is complete. */
class Stream {
    constructor(files) {
        this.files = files;
        this.isKnown = files[0].size >= 0; // otherwise it is one file, as large as its runs
        this.size = 0;
        this.cut = 0; // by the runs that were read so far
        this.done = 0; // by those that were decoded
        this.ownRanges = []; // start, end, start, end ...: what runs of Prediction 3 to 5 made of it
        this.data = null;
        for (const file of files) {
            file.stream = this;
            file.start = this.size;
            if (this.isKnown) this.size += file.size;
        }
    }
}

/** Whether two of them are the same, as strings. */
function hasTwins(keys) {
    const sorted = keys.sort();
    return sorted.some((key, i) => i > 0 && key === sorted[i - 1]);
}

/** What the objects of a file or tensor take in memory, about. */
const TABLE_ENTRY_SIZE = 256;

/** The files of a FILE section. tables.left is what the tables of files and tensors may take yet. */
function readFiles(body, tables) {
    const nFiles = checkCount(body, body.upTo(2 ** 28, "N_Files"), 3, "N_Files");
    corruptIf(nFiles === 0, "N_Files");
    const charge = strings => {
        tables.left -= TABLE_ENTRY_SIZE + strings;
        if (tables.left < 0) refuse("LIMIT", "the tables of files and tensors are larger than allowed");
    };
    const files = [];
    const tensors = []; // of all files of the section
    for (let i = 0; i < nFiles; i++) {
        const { file, size, nTensors } = readFileEntry(body, i === 0 ? "" : files[i - 1].key);
        corruptIf(size === null && nFiles > 1, "a file of unknown size beside others");
        charge(file.key.length);
        for (let number = 0, end = 0n; number < nTensors; number++) {
            const tensor = readTensorEntry(body, file, tensors, end);
            end = tensor.end;
            corruptIf(end > size, "a tensor beyond its file");
            tensor.end = Number(end); // exact, like its offset, if the file is complete
            charge(tensor.key.length + 16 * tensor.shape.length);
            file.tensors.push(tensor);
            tensors.push(tensor);
        }
        corruptIf(hasTwins(file.tensors.map(tensor => tensor.key)), "two tensors of one name");
        files.push(file);
    }
    skipExtensions(body);
    return files;
}

/** A file entry, up to its number of tensors. Its size is null if it is not known. */
function readFileEntry(body, keyBefore) {
    const file = new SourceFile();
    const form = body.u8();
    unsupportedIf(form > 15, "reserved bits of a file entry");
    const isDirectory = (form & 1) !== 0;
    const isUnknown = (form & 8) !== 0;
    corruptIf(isDirectory && isUnknown, "a directory of unknown size");
    if (isDirectory) file.kind = "directory";
    const prefix = body.u8();
    corruptIf(prefix > keyBefore.length, "Path_Prefix");
    file.key = keyBefore.slice(0, prefix) + keyOf(body.string(body.upTo(65535 - prefix, "size of a Path")));
    corruptIf(file.key !== "" && !isPlainPath(file.key), "Path");
    const hasSize = !isDirectory && !isUnknown;
    const size = hasSize ? body.upTo(MOST_BYTES, "File_Size") : isUnknown ? null : 0;
    file.size = isUnknown ? -1 : Number(size);
    if (form & 2) file.mode = body.upTo(0o7777, "Mode");
    if (form & 4) {
        file.mtime = { seconds: body.i64(), nanoseconds: body.u32() };
        corruptIf(file.mtime.nanoseconds > 999999999, "Mtime_Nanoseconds");
    }
    return { file, size, nTensors: hasSize ? checkCount(body, body.upTo(2 ** 28, "N_Tensors"), 5, "N_Tensors") : 0 };
}

function isPlainPath(path) {
    return path.split("/").every(part => part !== "" && part !== "." && part !== "..");
}

const byKey = (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);

/** The rules that all files of a snapshot keep together: R4-24 to R4-26. */
function checkPaths(files) {
    corruptIf(files.length > 1 && files.some(file => file.key === ""), "an empty Path beside others");
    // With "/" before all other bytes, what is below a path follows it at once
    const sorted = files.map(({ key, kind }) => ({ key: key.replaceAll("/", "\0"), kind })).sort(byKey);
    for (let i = 1; i < sorted.length; i++) {
        const { key, kind } = sorted[i - 1];
        corruptIf(sorted[i].key === key, "two files of one Path");
        corruptIf(kind === "file" && sorted[i].key.startsWith(key + "\0"), "a Path below that of a file");
    }
}

/** A tensor entry; `before` are those before it in the section. The one before it in its file ends at endBefore. */
function readTensorEntry(body, file, before, endBefore) {
    const form = body.u8();
    unsupportedIf(form > 7, "reserved bits of a tensor entry");
    const back = body.upTo(before.length, "Back of a tensor");
    const reference = back === 0 ? null : before[before.length - back];
    corruptIf((form & 1) !== 0 && !reference, "Like without a reference");
    let prefix = "";
    let suffix = "";
    if (reference) {
        const prefixSize = body.u8();
        const suffixStart = reference.key.length - body.u8();
        corruptIf(prefixSize > suffixStart, "Prefix and Suffix of a tensor");
        prefix = reference.key.slice(0, prefixSize);
        suffix = reference.key.slice(suffixStart);
    }
    const key = prefix + keyOf(body.string(body.upTo(65535 - prefix.length - suffix.length, "size of a Name"))) + suffix;
    const gap = form & 2 ? body.varint() : 0;
    corruptIf((form & 2) !== 0 && gap === 0, "Gap of a tensor");
    const type = form & 1 ? reference.type : readType(body);
    const offset = endBefore + BigInt(gap);
    const tensor = new Tensor(file, file.tensors.length, key, type, Number(offset));
    tensor.end = offset + BigInt(type.size);
    if (form & 4) {
        tensor.generation = body.u8();
        tensor.measure = body.u8();
        tensor.error = body.u32();
        corruptIf(tensor.generation === 0 || tensor.measure === 0, "Generation or Measure of a tensor is 0");
    }
    return tensor;
}

/** Dtype, Shape and Size of a tensor entry. */
function readType(body) {
    const number = body.u8();
    unsupportedIf(number > DTYPES.length, "Dtype of a tensor");
    let dtypeKey;
    if (number === 0) {
        const size = body.u8();
        corruptIf(size < 1 || size > 32, "Dtype_Size");
        dtypeKey = keyOf(body.string(size));
        corruptIf(DTYPE_BITS.has(dtypeKey), "a Dtype that has a number");
    } else {
        dtypeKey = DTYPES[number - 1][0];
    }
    const rank = body.u8();
    corruptIf(rank > 32, "Rank");
    const shape = Array.from({ length: rank }, () => body.varint());
    if (number === 0) return { dtypeKey, shape, size: body.upTo(MOST_BYTES, "Size of a tensor") };
    const size = sizeOfShape(dtypeKey, shape);
    corruptIf(size === null, "Shape of a tensor");
    return { dtypeKey, shape, size };
}

/** The bytes that a Dtype of the table and a Shape make; null: no whole number, or too many. */
function sizeOfShape(dtypeKey, shape) {
    const bits = shape.reduce((all, extent) => all * BigInt(extent), DTYPE_BITS.get(dtypeKey));
    return bits % 8n === 0n && bits / 8n <= MOST_BYTES ? exact(bits / 8n) : null;
}

// -- RUN body (section 4.2) -------------------------------------------------------------------------------------------------------------------------

const ZERO = 0; // Prediction of a run
const BASE = 1;
const TEXT = 2;
const OWN = 3; // and 4, 5: with a conversion
const OWN_AS_BF16 = 4;
const OWN_AS_F16 = 5;

/** A RUN section. */
class Run {
    constructor(body, features) {
        const size = body.upTo(MOST_BYTES, "Run_Size");
        corruptIf(size === 0, "Run_Size");
        this.size = Number(size); // exact if its blocks are there (readRun)
        this.blockSize = body.varint();
        unsupportedIf(!BLOCK_SIZES.includes(this.blockSize), "Block_Size");
        this.prediction = body.u8();
        unsupportedIf(this.prediction > OWN_AS_F16, "Prediction of a run");
        corruptIf(this.prediction === BASE && !(features & BASE_BIT), "a run that needs a base in a file that has none");
        corruptIf(this.prediction >= OWN && !(features & OWN_BIT), "Prediction of a run in a file without the bit Own");
        const nBlocks = (BigInt(size) + BigInt(this.blockSize) - 1n) / BigInt(this.blockSize);
        corruptIf(nBlocks > 2n ** 32n - 1n, "more than 2^32 - 1 blocks in a run");
        this.nBlocks = Number(nBlocks);
        this.body = body; // its segments are next
        this.features = features;
        this.stream = null;
        this.start = 0; // in the stream
        this.nFiles = 0; // described before it
        this.blocksAt = 0; // where the first one's header starts
        this.blockSizes = null; // in the input, header included
    }

    /** Bytes of what a segment refers to, for each byte that it predicts. */
    get factor() { return this.prediction > OWN ? 2 : 1; }

    /** Decoded bytes of a block. */
    sizeOfBlock(number) {
        return Math.min(this.blockSize, this.size - number * this.blockSize);
    }
}

const BLOCK_SIZES = [14, 15, 16, 17, 18, 19, 20, 21, 22].map(log2 => 2 ** log2);

/** The segments of a run: { size, source, offset }; source is null for zero bytes, else one of `sources`, which are items of the base, or files. */
function readSegments(run, sources) {
    const { body, factor } = run;
    const segments = [];
    if (run.prediction !== ZERO) {
        const nSegments = checkCount(body, body.upTo(2 ** 24, "N_Segments"), 2, "N_Segments");
        corruptIf(nSegments === 0, "N_Segments");
        let left = run.size;
        let number = -1; // of the last source
        for (let i = 0; i < nSegments; i++) {
            const size = body.upTo(left, "the segments of a run are more than Run_Size");
            corruptIf(size === 0, "an empty segment");
            corruptIf(size % factor !== 0, "a segment of odd size in a run with a conversion");
            left -= size;
            const reference = body.upTo(2 ** 40, "a segment refers to what is not there"); // there are fewer items and files
            let source = null;
            let offset = 0;
            if (reference !== 0) {
                const zigzag = Math.floor((reference - 1) / 2);
                number += 1 + (zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2);
                corruptIf(number < 0 || number >= sources.length, "a segment refers to what is not there");
                source = sources[number];
                if ((reference - 1) % 2 === 1) {
                    offset = body.varint();
                    corruptIf(offset === 0, "Offset of a segment");
                }
                checkReference(run, source, offset, factor * size);
            }
            segments.push({ size, source, offset });
        }
        corruptIf(left !== 0, "the segments of a run are less than Run_Size");
    }
    skipExtensions(body);
    return segments;
}

/** The first of n numbers for which `isThere` holds, as it does for all that follow; n if there is none. */
function lowerBound(n, isThere) {
    let low = 0;
    for (let high = n; low < high; ) {
        const middle = Math.floor((low + high) / 2);
        if (isThere(middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

/** The bytes that a segment refers to are there; those of this snapshot are of runs before it that are not predicted so themselves. */
function checkReference(run, source, offset, size) {
    if (run.prediction === TEXT) source.text ??= new HeaderText(source.tensors);
    const end = (run.prediction === TEXT ? source.text : source).size;
    corruptIf(size > end || offset > end - size, "a segment refers to bytes that are not there");
    if (run.prediction < OWN) return;
    const { stream, start } = source;
    const [first, last] = [start + offset, start + offset + size];
    corruptIf(last > stream.done, "a prediction from bytes that do not come before");
    // Of the ranges that end after the reference starts, the first is the one to look at
    const ranges = stream.ownRanges;
    const i = 2 * lowerBound(ranges.length / 2, i => ranges[2 * i + 1] > first);
    corruptIf(i < ranges.length && ranges[i] < last, "a prediction from bytes that are predicted so themselves");
}

/** Header text (section 4.3), which is made where it is needed, as it may be large. */
class HeaderText {
    constructor(tensors) {
        this.tensors = tensors;
        this.starts = [0]; // of the text of each, and the end of the last one's
        for (let i = 0; i < tensors.length; i++) this.starts.push(this.partsOf(i).reduce((end, part) => end + part.length, this.starts[i]));
    }

    get size() { return this.starts[this.tensors.length]; }

    /** A character for each byte. Not joined: a segment may ask for one byte, and the name have 65,535. */
    partsOf(i) {
        const { key, type, offset, end } = this.tensors[i];
        const base = this.tensors[0].offset;
        const back = `":{"dtype":"${type.dtypeKey}","shape":[${type.shape.join(",")}],"data_offsets":[${offset - base},${end - base}]}`;
        return [i === 0 ? '"' : ',"', key, back];
    }

    copy(from, size, to, at) {
        let i = lowerBound(this.starts.length, i => this.starts[i] > from) - 1;
        for (let skip = from - this.starts[i]; size > 0; i++) {
            for (const part of this.partsOf(i)) {
                const end = Math.min(part.length, skip + size);
                for (let c = skip; c < end; c++) to[at++] = part.charCodeAt(c);
                size -= Math.max(0, end - skip);
                skip = Math.max(0, skip - part.length);
            }
        }
    }
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

/** Gives the prediction of a run's bytes, from the front to the end of the run. */
class Predictor {
    constructor(run, segments) {
        this.run = run;
        this.segments = segments;
        this.next = 0; // number of the next segment
        this.source = null; // of the current one: null for zeros
        this.sourceAt = 0;
        this.left = 0; // of the current one
    }

    /** The next size bytes, which the caller must not change. */
    take(size) {
        let prediction = null;
        for (let done = 0; done < size; ) {
            if (this.left === 0) this.startSegment();
            const { run, source, sourceAt } = this;
            const part = Math.min(size - done, this.left);
            if (part === size && (run.prediction === BASE || run.prediction === OWN) && source) {
                prediction = source.data.subarray(sourceAt, sourceAt + size); // needs no copy
            } else {
                prediction ??= allocate(size);
                if (source) this.copy(prediction, done, part);
            }
            this.sourceAt += run.factor * part;
            this.left -= part;
            done += part;
        }
        return prediction;
    }

    startSegment() {
        const { size, source, offset } = this.segments[this.next++];
        this.source = source;
        this.sourceAt = offset;
        this.left = size;
    }

    copy(to, at, size) {
        const { source, sourceAt, run } = this;
        if (run.prediction === TEXT) return source.text.copy(sourceAt, size, to, at);
        const { data } = source;
        if (run.factor === 1) return to.set(data.subarray(sourceAt, sourceAt + size), at);
        const convert = run.prediction === OWN_AS_BF16 ? bf16FromF32 : f16FromF32;
        for (let i = 0; i < size; i += 2) {
            const from = sourceAt + 2 * i;
            const half = convert(data[from] | (data[from + 1] << 8) | (data[from + 2] << 16) | (data[from + 3] << 24));
            to[at + i] = half;
            to[at + i + 1] = half >>> 8;
        }
    }
}

// -- Blocks (section 5) -----------------------------------------------------------------------------------------------------------------------------

const BLOCK_HEADER_SIZE = 24;
const MOST_BLOCK = 2 ** 22; // decoded bytes
const STORED = 0; // Layout
const PLANES = 1;
const QUANTISED = 2;
const APART = 3;
const MATRIX = 4;
const CODES = 5;

/**
 * Reads the header of a block, checks it, and skips its payload. number: in its run; size: what it has to decode to (null: any), mayPredict: whether
 * its run has a prediction; features: what its file may use.
 */
function readBlockHeader(input, { number, size, mayPredict, features }) {
    const { bytes, data } = input;
    const at = input.take(BLOCK_HEADER_SIZE);
    const [sync, width, coding, grouping] = bytes.subarray(at, at + 4);
    corruptIf(sync !== 0xb2, "Sync of a block");
    if (crc32c(bytes, at, at + 20, crc32c(littleEndian(number, 4))) !== data.getUint32(at + 20, true)) refuse("CHECKSUM", "Header_CRC of a block");

    const header = {
        width,
        order: coding & 3,
        predicted: (coding & 4) !== 0,
        layout: coding >> 5,
        nClasses: (grouping & 15) + 1,
        sparse: (grouping & 16) !== 0,
        natural: grouping >>> 5,
        grouping,
        n: data.getUint32(at + 4, true),
        payloadSize: data.getUint32(at + 8, true),
        contentCrc: data.getUint32(at + 12, true),
        payloadCrc: data.getUint32(at + 16, true),
        payloadAt: at + BLOCK_HEADER_SIZE,
    };
    unsupportedIf(![1, 2, 4, 8].includes(width), "Width of a block");
    unsupportedIf(header.order === 3, "Order of a block");
    unsupportedIf(header.layout > CODES, "Layout of a block");
    unsupportedIf((coding & 0x18) !== 0, "reserved bits of a block");
    header.size = header.n * width;
    corruptIf(size === null ? header.size < 1 || header.size > MOST_BLOCK : header.size !== size, "size of a block");
    corruptIf(header.predicted && !mayPredict, "a block with a prediction in a run without");
    corruptIf(!header.predicted && header.payloadCrc !== 0, "Payload_CRC without a prediction");
    if (header.layout === STORED) {
        corruptIf(header.order !== 0 || header.predicted || grouping !== 0, "fields that a stored block does not have");
        corruptIf(header.payloadSize !== header.size, "size of a stored block");
    } else {
        corruptIf(header.payloadSize >= header.size, "a payload that is not smaller than its content");
    }
    if (header.layout === PLANES) {
        corruptIf(header.predicted && header.order === 0, "a prediction without Order");
        corruptIf(grouping !== 0 && !header.predicted, "classes without a prediction");
        corruptIf(header.natural >= width || (header.natural > 0 && (header.nClasses === 1 || header.sparse)), "Natural");
    }
    if (header.layout === QUANTISED) {
        corruptIf(width !== 2 && width !== 4, "Width of a quantised block");
        corruptIf(header.order !== 0 || grouping !== 0, "fields that a quantised block does not have");
    }
    if (header.layout === APART) {
        corruptIf(header.predicted || grouping !== 0, "fields that a block with zeros apart does not have");
        corruptIf(!(features & ZEROS_BIT), "a block with zeros apart in a file without that bit");
    }
    if (header.layout === MATRIX) {
        corruptIf(header.predicted || header.order === 0 || grouping !== 0, "fields that a block by rows and columns does not have");
        corruptIf(!(features & MATRIX_BIT), "a block by rows and columns in a file without that bit");
    }
    if (header.layout === CODES) {
        corruptIf(width !== 2 && width !== 4, "Width of a block of codes");
        corruptIf(header.predicted || header.order !== 0 || grouping !== 0, "fields that a block of codes does not have");
        corruptIf(!(features & CODES_BIT), "a block of codes in a file without that bit");
    }
    corruptIf(header.layout === QUANTISED && !(features & QUANTISED_BIT), "a quantised block in a file without that bit");
    corruptIf(grouping !== 0 && !(features & (BASE_BIT | OWN_BIT)), "classes in a file without the bits Base and Own");
    input.take(header.payloadSize);
    return header;
}

/** Decodes a block to `out`. `prediction` has its size if the block is predicted; isOfBase: it comes from a base, which may be a wrong one. */
function decodePayload(bytes, header, prediction, isOfBase, out) {
    const { payloadAt, predicted } = header;
    const input = new Reader(bytes, payloadAt, payloadAt + header.payloadSize, "CORRUPT");
    if (predicted && crc32c(bytes, payloadAt, input.end) !== header.payloadCrc) refuse("CHECKSUM", "Payload_CRC of a block");
    if (header.layout === STORED) out.set(input.view(header.size));
    else if (header.layout === CODES) decodeCodes(input, header, out);
    else if (header.layout !== QUANTISED) decodePlanes(input, header, prediction, out);
    else decodeQuantised(input, header, prediction, out);
    input.mustBeAtEnd("a payload is longer than its content");
    if (crc32c(out) !== header.contentCrc) refuse(predicted && isOfBase ? "BASE_WRONG" : "CHECKSUM", "Content_CRC of a block");
}

// -- Planes (section 5.1) ---------------------------------------------------------------------------------------------------------------------------

function decodePlanes(input, header, prediction, out) {
    const { n, width, order } = header;
    if (header.layout === MATRIX) prediction = readMatrix(input, header);
    const planes =
        header.layout === APART ? readApart(input, header)
        : header.grouping !== 0 ? readClasses(input, header, prediction)
        : Array.from({ length: width }, () => readList(input, n));
    if (order === 0) {
        planes.forEach((plane, p) => {
            for (let i = 0, at = p; i < n; i++, at += width) out[at] = plane[i];
        });
        return;
    }
    if (!header.predicted && header.layout !== MATRIX) prediction = allocate(header.size);
    if (width === 8) putElements64(planes, order, dataOf(prediction), dataOf(out));
    else putElements(planes, order, prediction, out);
}

/** Elements of up to 32 bits, from residuals. Bits above those of an element are never looked at. */
function putElements(planes, order, prediction, out) {
    const width = planes.length;
    const S = 1 << (8 * width - 1); // the sign bit
    for (let i = 0, at = 0; at < out.length; i++, at += width) {
        let r = 0;
        let b = 0;
        for (let p = 0; p < width; p++) {
            r |= planes[p][i] << (8 * p);
            b |= prediction[at + p] << (8 * p);
        }
        const difference = (r >>> 1) ^ -(r & 1); // unzigzag
        let element = b + difference;
        if (order === 2) {
            const total = (b & (S - 1)) + difference;
            element = (b & S) ^ (total & S ? total ^ (S - 1) : total);
        }
        for (let p = 0; p < width; p++) out[at + p] = element >> (8 * p);
    }
}

/** The same for elements of 64 bits. */
function putElements64(planes, order, from, to) {
    const S = 1n << 63n;
    for (let i = 0; i < planes[0].length; i++) {
        const r = planes.reduceRight((all, plane) => (all << 8n) | BigInt(plane[i]), 0n);
        const b = from.getBigUint64(8 * i, true);
        const difference = (r >> 1n) ^ -(r & 1n);
        let element = b + difference;
        if (order === 2) {
            const total = BigInt.asUintN(64, (b & (S - 1n)) + difference);
            element = (b & S) ^ (total < S ? total : total ^ (S - 1n));
        }
        to.setBigUint64(8 * i, BigInt.asUintN(64, element), true);
    }
}

// -- Classes (section 5.2) --------------------------------------------------------------------------------------------------------------------------

function readClasses(input, header, prediction) {
    const { n, width, nClasses } = header;
    const thresholds = input.view(nClasses - 1);
    thresholds.forEach((threshold, i) => corruptIf(threshold <= (i === 0 ? 0 : thresholds[i - 1]), "Thresholds"));

    // The elements of class c are order[starts[c]] .. order[starts[c + 1] - 1]
    const classOfKey = Uint8Array.from({ length: 256 }, (_, key) => thresholds.filter(threshold => threshold <= key).length);
    const classes = new Uint8Array(n);
    const starts = new Uint32Array(nClasses + 1);
    for (let i = 0, top = width - 1; i < n; i++, top += width) {
        // The key: the top byte of the prediction, rotated left by one bit
        classes[i] = classOfKey[((prediction[top] << 1) | (prediction[width === 1 ? top : top - 1] >>> 7)) & 255];
        starts[classes[i] + 1]++;
    }
    for (let c = 0; c < nClasses; c++) starts[c + 1] += starts[c];
    const order = new Uint32Array(n);
    const next = starts.slice();
    for (let i = 0; i < n; i++) order[next[classes[i]]++] = i;

    const coded = []; // for each class its elements that have bytes in planes
    for (let c = 0; c < nClasses; c++) {
        const members = order.subarray(starts[c], starts[c + 1]);
        coded.push(header.sparse && members.length > 0 ? select(members, readMask(input, members.length, 0, true)) : members);
    }

    const natural = Array.from({ length: header.natural }, () => input.view(n));
    const grouped = Array.from({ length: width - header.natural }, () => allocate(n));
    for (const members of coded) {
        if (members.length === 0) continue;
        for (const plane of grouped) {
            const list = readList(input, members.length);
            for (let j = 0; j < members.length; j++) plane[members[j]] = list[j];
        }
    }
    return [...natural, ...grouped];
}

/** zeros.md: planes of two kinds of elements. */
function readApart(input, { n, width }) {
    const mask = readList(input, Math.ceil(n / 8));
    corruptIf(n % 8 !== 0 && mask[mask.length - 1] >>> (n % 8) !== 0, "unused bits of the mask of a block with zeros apart");
    const kinds = Uint8Array.from({ length: n }, (_, i) => (mask[i >>> 3] >>> (i & 7)) & 1);
    const ones = kinds.reduce((sum, kind) => sum + kind, 0);
    return Array.from({ length: width }, () => {
        const lists = [n - ones, ones].map(size => (size === 0 ? null : readList(input, size)));
        const next = [0, 0];
        return kinds.map(kind => lists[kind][next[kind]++]);
    });
}

/** matrix.md: the prediction, by numbers of rows and columns. */
function readMatrix(input, { n, width }) {
    const [rowSize, first, shift] = [input.u32(), input.u32(), input.u8()];
    corruptIf(rowSize < 1 || rowSize > n, "Row_Size");
    corruptIf(first >= rowSize, "First");
    corruptIf(shift >= 8 * width, "Shift");
    const nRows = Math.floor((first + n - 1) / rowSize) + 1;
    const [low, high, columns] = [readList(input, nRows), readList(input, nRows), readList(input, rowSize)];
    const rows = Array.from(low, (byte, i) => byte + 256 * high[i]);
    const largest = values => values.reduce((most, value) => Math.max(most, value), 0);
    corruptIf(largest(rows) + largest(columns) >= 2 ** (8 * width - shift), "the sum of two numbers of rows and columns");
    const prediction = allocate(n * width);
    for (let i = 0; i < n; i++) {
        let number = BigInt(rows[Math.floor((first + i) / rowSize)] + columns[(first + i) % rowSize]) << BigInt(shift);
        for (let p = 0; p < width; p++, number >>= 8n) prediction[i * width + p] = Number(number & 255n);
    }
    return prediction;
}

/** codes.md: the number of a code, which may be -0. */
function numberOf(code, mantissa) {
    if (mantissa === 7) return code < 128 ? code : code - 256;
    const exponent = (code & 127) >> mantissa;
    const low = code & ((1 << mantissa) - 1);
    const magnitude = exponent === 0 ? low : ((1 << mantissa) | low) * 2 ** (exponent - 1);
    return code < 128 ? magnitude : -magnitude;
}

/** Codes with scales (codes.md). A number (a double) holds each product, so that Float32Array rounds once. */
function decodeCodes(input, { n, width }, out) {
    const [mantissa, half, groupSize, firstGroup] = [input.u8(), input.u8(), input.u32(), input.u32()];
    corruptIf(mantissa < 2 || mantissa > 7, "Mantissa");
    corruptIf(half > (width === 2 ? 1 : 0), "Half");
    corruptIf(groupSize < 16 || groupSize >= 2 ** 31, "Group_Size");
    corruptIf(firstGroup < 1 || firstGroup > groupSize, "First_Group");
    const nGroups = 1 + Math.ceil(Math.max(0, n - firstGroup) / groupSize);
    const scales = new DataView(new ArrayBuffer(4 * nGroups));
    for (let p = 0; p < 4; p++) readList(input, nGroups).forEach((byte, i) => scales.setUint8(4 * i + p, byte));
    for (let i = 0; i < nGroups; i++) corruptIf(scales.getUint32(4 * i, true) < 0x00800000 || scales.getUint32(4 * i, true) > 0x6e000000, "a scale");
    const codes = readList(input, n);
    const [elements, product] = [dataOf(out), new DataView(new ArrayBuffer(4))];
    for (let i = 0; i < n; i++) {
        const group = i < firstGroup ? 0 : 1 + Math.floor((i - firstGroup) / groupSize);
        product.setFloat32(0, numberOf(codes[i], mantissa) * scales.getFloat32(4 * group, true));
        const bits = product.getUint32(0);
        if (width === 4) elements.setUint32(4 * i, bits, true);
        else elements.setUint16(2 * i, half ? f16FromF32(bits) : bf16FromF32(bits), true);
    }
}

/** Those of the numbers whose bit is set, in place. */
function select(numbers, bits) {
    let n = 0;
    for (let j = 0; j < numbers.length; j++) {
        if ((bits[j >>> 3] >>> (j & 7)) & 1) numbers[n++] = numbers[j];
    }
    return numbers.subarray(0, n);
}

// -- Arrays in memory (section 10) ------------------------------------------------------------------------------------------------------------------

function checkBytes(value, what) {
    if (value?.[Symbol.toStringTag] !== "Uint8Array") throw new TypeError(`${what} must be a Uint8Array`);
}

/** Decodes an array of `size` bytes that was coded outside of a file: its blocks, one after another. prediction: as many bytes, if it has one. */
export function decodeArray(bytes, size, { prediction = null } = {}) {
    checkBytes(bytes, "the input");
    if (prediction && prediction.length !== size) refuse("BASE_WRONG", "the prediction has another size than the array");
    const input = new Reader(bytes, 0, bytes.length, "TRUNCATED");
    const headers = [];
    for (let decoded = 0; decoded < size; decoded += headers[headers.length - 1].size) {
        // All have the size of the first, but the last, which may be smaller
        const expected = headers.length === 0 ? null : Math.min(headers[0].size, size - decoded);
        const header = readBlockHeader(input, { number: headers.length, size: expected, mayPredict: true, features: ALL_BITS });
        if (header.predicted && !prediction) refuse("BASE_MISSING", "the array is predicted");
        corruptIf(header.size > size, "size of a block");
        headers.push(header);
    }
    input.mustBeAtEnd("bytes after the last block");
    const data = allocate(size);
    let at = 0;
    for (const header of headers) {
        const end = at + header.size;
        decodePayload(bytes, header, prediction && prediction.subarray(at, end), true, data.subarray(at, end));
        at = end;
    }
    return data;
}

// -- Lists (section 6) ------------------------------------------------------------------------------------------------------------------------------

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

/** Tree_Header (section 6.1). Returns the root node. */
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

const LEAF = 0; // kinds of nodes, as in section 6.2: all n elements are one symbol
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
        const mask = readMask(input, n, nesting, false);
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

// -- Masks (section 6.3) ----------------------------------------------------------------------------------------------------------------------------

function readBits(input, n) {
    const bits = input.view((n + 7) >>> 3);
    checkUnusedBits(bits, n);
    return bits;
}

function checkUnusedBits(bits, n) {
    corruptIf((n & 7) !== 0 && bits[bits.length - 1] >>> (n & 7) !== 0, "unused bits of a list of bits");
}

/** A mask of n bits, n at least 1. It may be a part of the input. */
function readMask(input, n, nesting, isOfClass) {
    if (n < 256 || nesting === 2) return readBits(input, n);
    const mode = input.u8();
    if (mode === 0) return readBits(input, n);
    if (mode > 20) {
        corruptIf(!isOfClass || mode > 64, "Mode of a mask");
        return readGaps(input, n, (mode - 21) >> 1, ((mode - 21) & 1) === 1);
    }
    const size = (n + 7) >>> 3;
    const mask = allocate(size);
    readNode(input, frozenTree((mode - 1) >>> 1), size, nesting + 1, mask, allocate(size), 0);
    if ((mode - 1) & 1) for (let i = 0; i < size; i++) mask[i] ^= 255;
    checkUnusedBits(mask, n);
    return mask;
}

/** n bits that are zero (inverted: one) but for K of them, told by the gaps in front of each: s low bits, and a number of zeros for the rest. */
function readGaps(input, n, s, inverted) {
    const k = input.u8() | (input.u8() << 8) | (input.u8() << 16);
    corruptIf(k < 1 || k > n, "K of a mask");
    const low = readBits(input, k * s);
    const mask = allocate((n + 7) >>> 3);
    let byte = 1; // of Quotients: those of its bits that are left, and a one behind them
    for (let j = 0, at = 0, next = 0; j < k; j++, next++) {
        for (let i = 0; i < s; i++, at++) next += ((low[at >>> 3] >>> (at & 7)) & 1) << i;
        for (;;) {
            if (byte === 1) byte = input.u8() | 256;
            const bit = byte & 1;
            byte >>>= 1;
            if (bit === 1) break;
            next += 1 << s;
            corruptIf(next >= n, "a gap of a mask"); // so this comes to an end
        }
        corruptIf(next >= n, "a position of a mask");
        mask[next >>> 3] |= 1 << (next & 7);
    }
    corruptIf((byte & (byte - 1)) !== 0, "unused bits of a list of bits");
    if (inverted) {
        for (let i = 0; i < mask.length; i++) mask[i] ^= 255;
        if ((n & 7) !== 0) mask[mask.length - 1] &= 2 ** (n & 7) - 1;
    }
    return mask;
}

const ONES = Uint8Array.from({ length: 256 }, (_, byte) => [0, 1, 2, 3, 4, 5, 6, 7].filter(bit => (byte >>> bit) & 1).length);

function countOnes(mask) {
    let ones = 0;
    for (let i = 0; i < mask.length; i++) ones += ONES[mask[i]];
    return ones;
}

// -- Frozen trees (section 6.4) ---------------------------------------------------------------------------------------------------------------------

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

// -- Quantised elements (quantised.md) --------------------------------------------------------------------------------------------------------------

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function decodeQuantised(input, header, prediction, out) {
    const { n, width } = header;
    const within = (value, low, high, what) => {
        if (value < low || value > high) refuse("CORRUPT", `${what} of a quantised block`);
        return value;
    };
    const own = header.predicted; // the scales come from the prediction
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
    const positions = Array.from({ length: nExceptions }, () => input.u32());
    positions.forEach((position, i) => corruptIf(position >= n || position <= (positions[i - 1] ?? -1), "Positions of a quantised block"));
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

    positions.forEach((position, i) => out.set(values.subarray(i * width, (i + 1) * width), position * width));
}

/** bits(G) of an element, from its prediction: about its square root times a constant. */
function scaleOf(prediction, i, width, bias, floor) {
    const at = (i + 1) * width - 2; // the upper two bytes
    let bits = ((prediction[at] << 16) | (prediction[at + 1] << 24)) & 0x7fffffff;
    if (width === 4) bits |= prediction[at - 2] | (prediction[at - 1] << 8);
    return (clamp((Math.max(bits, floor) >>> 1) + bias, 0x00800000, 0x77000000) & 0xffff0000) >>> 0;
}

// -- Fingerprints (section 7) -----------------------------------------------------------------------------------------------------------------------

const FINGERPRINT_SIZE = 16;
const CHUNK_SIZE = 262144;

/** Gives file.fingerprints: those of its tensors, or its own if it has none. */
function fingerprintFile(file) {
    const { data, tensors } = file;
    file.fingerprints = tensors.map(tensor => fingerprintOf(0, tensor.data, tensor.type.dtypeKey, tensor.shape));
    if (tensors.length === 0) file.fingerprints.push(fingerprintOf(file.kind === "directory" ? 2 : 1, data, "U8", [data.length]));
}

/** Section 7.1. Type is 0 for a tensor, 1 for a file without tensors, 2 for a directory. */
function fingerprintOf(type, data, dtypeKey, shape) {
    const sums = [];
    for (let at = 0; at < data.length; at += CHUNK_SIZE) {
        const chunk = data.subarray(at, at + CHUNK_SIZE);
        sums.push(littleEndian(crc32c(chunk), 4), littleEndian(sumOfWords(chunk), 8));
    }
    const dtype = concat([Uint8Array.of(dtypeKey.length), bytesOf(dtypeKey)]);
    const extents = shape.map(extent => littleEndian(extent, 8));
    const rank = Uint8Array.of(shape.length);
    const parts = [asBytes("LMC tensor 3\0"), Uint8Array.of(type), ...sums, dtype, rank, ...extents, littleEndian(data.length, 8)];
    return sha256(concat(parts)).subarray(0, FINGERPRINT_SIZE);
}

/** The u64 words of a chunk, added up; zero bytes complete the last one. */
function sumOfWords(chunk) {
    const words = new Uint8Array(Math.ceil(chunk.length / 8) * 8);
    words.set(chunk);
    const data = dataOf(words);
    let low = 0; // of 32 bits each; the sum of 2^15 of them is exact
    let high = 0;
    for (let at = 0; at < words.length; at += 8) {
        low += data.getUint32(at, true);
        high += data.getUint32(at + 4, true);
    }
    return BigInt.asUintN(64, (BigInt(high) << 32n) + BigInt(low));
}

/** Section 7.2: all tensors, and all files without any, sorted by name and fingerprint. */
function itemsOf(files) {
    const items = files.flatMap(file => (file.tensors.length === 0 ? [file] : file.tensors));
    // No name has a zero byte, so a shorter one comes before a longer one that starts with it
    const keyed = items.map(item => ({ item, key: `${item.key}\0${keyOf(item.fingerprint)}` }));
    return keyed.sort(byKey).map(({ item }) => item);
}

function fingerprintOfItems(items) {
    const parts = items.flatMap(({ key, fingerprint }) => [littleEndian(key.length, 4), bytesOf(key), fingerprint]);
    return sha256(concat([asBytes("LMC snapshot 3\0"), ...parts])).subarray(0, FINGERPRINT_SIZE);
}

// -- Hashes of content (hash.md) --------------------------------------------------------------------------------------------------------------------

/** SHA-256 of each tensor of a file, and of what else is in it. */
function hashesOf({ data, tensors }) {
    const outside = [];
    let end = 0;
    for (const tensor of tensors) {
        outside.push(data.subarray(end, tensor.offset));
        end = tensor.offset + tensor.size;
    }
    outside.push(data.subarray(end));
    return [...tensors.map(tensor => sha256(tensor.data)), sha256(concat(outside))];
}

/** SHA-256 of the statement: all that a snapshot says. hashes: of each file. */
function hashOfSnapshot({ files, metadata }, hashes) {
    const parts = [asBytes("LMC content 1\0"), littleEndian(files.length, 8)];
    const put = (size, ...numbers) => numbers.forEach(number => parts.push(littleEndian(number, size)));
    const order = files.map((_, i) => i).sort((a, b) => (files[a].key < files[b].key ? -1 : 1));
    for (const i of order) {
        const { kind, key, size, mode, mtime, tensors } = files[i];
        put(4, key.length);
        parts.push(bytesOf(key));
        put(1, (kind === "directory") | (mode !== null) << 1 | (mtime !== null) << 2);
        put(8, size);
        put(4, mode ?? 0);
        put(8, mtime?.seconds ?? 0);
        put(4, mtime?.nanoseconds ?? 0);
        put(8, tensors.length);
        tensors.forEach((tensor, k) => {
            put(4, tensor.key.length);
            parts.push(bytesOf(tensor.key));
            put(1, tensor.type.dtypeKey.length);
            parts.push(bytesOf(tensor.type.dtypeKey));
            put(1, tensor.shape.length);
            put(8, ...tensor.shape, tensor.offset, tensor.size);
            put(1, tensor.generation, tensor.measure);
            put(4, tensor.error);
            parts.push(hashes[i][k]);
        });
        parts.push(hashes[i][tensors.length]);
    }
    for (const { keyBytes, value } of metadata) {
        const key = keyOf(keyBytes);
        if (key.startsWith("lmc.") && key !== "lmc.links") continue;
        put(4, keyBytes.length, value.length);
        parts.push(keyBytes, value);
    }
    return sha256(concat(parts));
}

/** Checks what a section `hash` says. One of another algorithm is passed over. */
function checkHashes(snapshot) {
    const { sections, files } = snapshot;
    const bodies = sections.filter(({ kind, content }) => kind === "hash" && content.left >= 8).map(section => section.content)
        .filter(body => body.view(8).every((byte, i) => byte === (i === 0 ? 1 : 0)));
    corruptIf(bodies.length > 1, "two hash sections of SHA-256");
    if (bodies.length === 0) return;
    const [body] = bodies;
    const hashes = files.map(hashesOf);
    corruptIf(!sameBytes(body.view(32), hashOfSnapshot(snapshot, hashes)), "Snapshot_Hash");
    for (const hash of hashes.flat()) corruptIf(!sameBytes(body.view(32), hash), "the hash of a tensor, or of what else is in a file");
    body.mustBeAtEnd("Body_Size of a hash section");
}

// -- Index and trailer (sections 8 and 3.2) ---------------------------------------------------------------------------------------------------------

/** Reads the body of the BLKS section: a row for each block that was read. */
function readRows(body, runs) {
    for (const { blocksAt, blockSizes } of runs) {
        let at = blocksAt;
        for (const size of blockSizes) {
            corruptIf(body.u32() !== size, "Size of a block in its table");
            corruptIf(body.u32() !== body.data.getUint32(at + 20, true), "Header_CRC of a block in its table");
            at += size;
        }
    }
    body.mustBeAtEnd("Body_Size of the table of blocks");
}

/** Reads the body of the INDX section, which must say what the sections said. What it says of the content is left for checkContent(). */
function readIndex(body, snapshot) {
    const { sections } = snapshot;
    corruptIf(!sameBytes(body.view(HEADER_SIZE), body.bytes.subarray(0, HEADER_SIZE)), "copy of the header in the index");
    snapshot.fingerprint = body.view(FINGERPRINT_SIZE);
    corruptIf(body.u32() !== sections.length, "N_Sections");
    const nMetadata = body.u32();
    for (const { kind, at, bodyAt, bodyEnd, end, content } of sections) {
        corruptIf(keyOf(body.view(4)) !== kind, "Kind of an index entry");
        corruptIf(body.varint() !== end - at, "Stored_Size of an index entry");
        if (isAncillary(kind)) continue;
        corruptIf(body.varint() !== bodyEnd - bodyAt, "Body_Size of an index entry");
        corruptIf(!sameBytes(body.view(bodyEnd - bodyAt), body.bytes.subarray(bodyAt, bodyEnd)), "Body of an index entry");
        if (kind !== "FILE") continue;
        for (const file of content.files) {
            corruptIf(!content.isKnown && body.u64() !== BigInt(file.size), "File_Size of an index entry");
            file.statedCrc = body.u32();
            file.statedFingerprints = body.view(FINGERPRINT_SIZE * Math.max(1, file.tensors.length));
        }
    }
    snapshot.metadataSource = { body, at: body.at, n: checkCount(body, nMetadata, 9, "N_Metadata") };
    let keyBefore = "";
    for (let i = 0; i < nMetadata; i++) {
        const key = keyOf(readMetadataEntry(body).keyBytes);
        corruptIf(key <= keyBefore, "keys do not ascend");
        keyBefore = key;
    }
    skipExtensions(body);
}

function readMetadataEntry(body) {
    const keySize = body.u32();
    const valueSize = body.u32();
    corruptIf(keySize < 1 || keySize > 65535, "Key_Size");
    corruptIf(valueSize > 2 ** 28, "Value_Size");
    return { keyBytes: body.string(keySize), value: body.view(valueSize) };
}

const TRAILER_SIZE = 40;
const END_MAGIC = Uint8Array.of(0x94, 0x4c, 0x4d, 0x43, 0x0d, 0x0a, 0x1a, 0x0a);

/** Reads the trailer, which must be all that is left. Where the index starts. */
function readTrailer(input) {
    const at = input.take(TRAILER_SIZE);
    const trailer = new Reader(input.bytes, at, at + TRAILER_SIZE, "CORRUPT");
    const indexOffset = trailer.u64();
    const indexSize = trailer.u64();
    const totalSize = trailer.u64();
    const major = trailer.u8();
    trailer.u8(); // Format_Minor
    const reserved = trailer.u16();
    const crc = trailer.u32();
    corruptIf(!sameBytes(trailer.view(8), END_MAGIC), "End_Magic");
    if (crc32c(input.bytes, at, at + 28) !== crc) refuse("CHECKSUM", "Trailer_CRC");
    if (major !== FORMAT_MAJOR) refuse("VERSION", "Format_Major of the trailer");
    unsupportedIf(reserved !== 0, "reserved field of the trailer");
    corruptIf(indexOffset + indexSize !== BigInt(at), "Index_Offset or Index_Size");
    corruptIf(totalSize !== BigInt(input.bytes.length), "Total_Size");
    return Number(indexOffset);
}

/** The fingerprint that an LMC file says it has, without decoding it (a range reader's way). */
function statedFingerprint(bytes, limits) {
    readHeader(bytes);
    const end = bytes.length - TRAILER_SIZE;
    if (end < 0 || !sameBytes(bytes.subarray(-8), END_MAGIC)) refuse("TRUNCATED", "the file has no end");
    const indexAt = readTrailer(new Reader(bytes, end, bytes.length, "TRUNCATED"));
    const { body } = readSection(new Reader(bytes, indexAt, end, "CORRUPT"), limits, kind => kind === "INDX");
    body.take(HEADER_SIZE);
    return body.view(FINGERPRINT_SIZE);
}

// -- Snapshots --------------------------------------------------------------------------------------------------------------------------------------

/** What an LMC file, or a file or directory that serves as a base, holds. */
class Snapshot {
    constructor({ features = 0, baseFingerprint = null } = {}) {
        this.features = features;
        this.baseFingerprint = baseFingerprint; // 16 bytes, or null: no base
        this.deltas = 0; // in the chain that it was decoded from
        this.fingerprint = null; // 16 bytes
        this.metadataSource = null; // where that of the index stands
        this.files = [];
        this.items = []; // section 7.2, once decoded: tensors, and files without any
        this.sections = []; // in the order of the input, but for BLKS and INDX: where they stand, and what they are
    }

    /** [{ key, keyBytes, value }], made anew each time. */
    get metadata() {
        if (!this.metadataSource) return [];
        const { body, at, n } = this.metadataSource;
        body.at = at;
        return Array.from({ length: n }, () => readMetadataEntry(body)).map(entry => ({ key: utf8.decode(entry.keyBytes), ...entry }));
    }

    /** The Streams, or the Runs. */
    contentsOf(kind) {
        return this.sections.filter(section => section.kind === kind).map(section => section.content);
    }
}

/** Reads everything but the payloads of blocks and the segments of runs, so that all sizes are known. */
function readStructure(bytes, header, limits) {
    const snapshot = new Snapshot(header);
    const { files, sections } = snapshot;
    const input = new Reader(bytes, HEADER_SIZE, bytes.length, "TRUNCATED");
    const tables = { left: limits.tables };
    let decodedLeft = limits.decoded;
    let stream = null; // the latest
    let before = ""; // Kind of the section before
    const mayStand = kind => {
        if (before === "") return kind === "FILE";
        if (before === "BLKS" || kind === "INDX") return before === "BLKS" && kind === "INDX";
        return !["FILE", "BLKS"].includes(kind) || !stream.isKnown || stream.cut === stream.size;
    };
    for (;;) {
        const { kind, at, bodyAt, end: bodyEnd, body } = readSection(input, limits, mayStand);
        before = kind;
        let content = body; // of an ancillary section
        if (kind === "FILE") {
            endStream(stream);
            content = stream = new Stream(readFiles(body, tables));
            for (const file of stream.files) files.push(file);
        } else if (kind === "RUN ") {
            content = readRun(input, body, stream, snapshot, decodedLeft);
            decodedLeft -= content.size;
        } else if (kind === "BLKS") {
            endStream(stream);
            checkPaths(files);
            readRows(body, snapshot.contentsOf("RUN "));
            continue;
        } else if (kind === "INDX") {
            readIndex(body, snapshot);
            corruptIf(readTrailer(input) !== at, "Index_Offset");
            return snapshot;
        }
        sections.push({ kind, at, bodyAt, bodyEnd, end: input.at, content });
    }
}

/** No run follows for these files. */
function endStream(stream) {
    if (stream && !stream.isKnown) stream.size = stream.files[0].size = stream.cut;
}

/** Reads a RUN section, but for its segments, and skips its blocks, whose headers it checks. */
function readRun(input, body, stream, { files, features }, allowedSize) {
    const run = new Run(body, features);
    // No block has less than its header and one byte. With as many as that, all sizes are less than 2^53 and the list of blocks is justified
    if (run.nBlocks * (BLOCK_HEADER_SIZE + 1) > input.left) refuse("TRUNCATED", "the input ends before the blocks of a run");
    run.stream = stream;
    run.start = stream.cut;
    run.nFiles = files.length;
    stream.cut += run.size;
    corruptIf(stream.isKnown && stream.cut > stream.size, "a run goes beyond its stream");
    if (run.size > allowedSize) refuse("LIMIT", "the files are larger than allowed");
    run.blocksAt = input.at;
    run.blockSizes = new Uint32Array(run.nBlocks);
    for (let block = 0; block < run.nBlocks; block++) {
        const at = input.at;
        readBlockHeader(input, placeOfBlock(run, block));
        run.blockSizes[block] = input.at - at;
    }
    return run;
}

function placeOfBlock(run, number) {
    return { number, size: run.sizeOfBlock(number), mayPredict: run.prediction !== ZERO, features: run.features };
}

/** Decodes all blocks to the files' data. `base` is a decoded snapshot, or null. */
function decodeContent(bytes, snapshot, base) {
    const { files } = snapshot;
    for (const stream of snapshot.contentsOf("FILE")) {
        stream.data = allocate(stream.size);
        for (const file of stream.files) file.data = stream.data.subarray(file.start, file.start + file.size);
    }
    for (const run of snapshot.contentsOf("RUN ")) {
        const isOfBase = run.prediction === BASE;
        const sources = isOfBase ? base.items : run.nFiles === files.length ? files : files.slice(0, run.nFiles);
        const predictor = new Predictor(run, readSegments(run, sources));
        const input = new Reader(bytes, run.blocksAt, bytes.length, "TRUNCATED");
        for (let block = 0, at = run.start; block < run.nBlocks; block++) {
            const header = readBlockHeader(input, placeOfBlock(run, block));
            const prediction = run.prediction === ZERO ? null : predictor.take(header.size);
            decodePayload(bytes, header, prediction, isOfBase, run.stream.data.subarray(at, at + header.size));
            at += header.size;
        }
        run.stream.done += run.size;
        if (run.prediction >= OWN) run.stream.ownRanges.push(run.start, run.stream.done);
    }
}

/** Compares what was decoded with what the index says of it. */
function checkContent(snapshot) {
    for (const file of snapshot.files) {
        fingerprintFile(file);
        corruptIf(crc32c(file.data) !== file.statedCrc, "File_CRC");
        corruptIf(!sameBytes(concat(file.fingerprints), file.statedFingerprints), "fingerprint of a tensor or file");
    }
    snapshot.items = itemsOf(snapshot.files);
    corruptIf(!sameBytes(fingerprintOfItems(snapshot.items), snapshot.fingerprint), "Snapshot_Fingerprint");
    checkHashes(snapshot);
}

/**
 * Decodes an LMC file, and checks all of it.
 *
 * bases: where to look for its base, and the base of that. Each is the bytes of a file (LMC or not), or an array of { path, data } that stands for a
 * directory, with data null for directories in it, and isLink for symbolic links; or a snapshot that this function returned.
 * limits: see DEFAULT_LIMITS.
 */
export function decode(bytes, { bases = [], limits = {} } = {}) {
    checkBytes(bytes, "the input");
    const allowed = { ...DEFAULT_LIMITS, ...limits };
    const header = readHeader(bytes);
    if (header.baseFingerprint && bases.length === 0) refuse("BASE_MISSING", `the file needs its base, ${hex(header.baseFingerprint)}`);
    const snapshot = readStructure(bytes, header, allowed);
    const base = header.baseFingerprint ? findBase(snapshot, bytes, bases, allowed) : null;
    if (base) snapshot.deltas = base.deltas + 1;
    decodeContent(bytes, snapshot, base);
    checkContent(snapshot);
    return snapshot;
}

/** What an LMC file holds, without decoding it: files have no data. Needs no base, and leaves unchecked what only that tells. */
export function list(bytes, { limits = {} } = {}) {
    checkBytes(bytes, "the input");
    return readStructure(bytes, readHeader(bytes), { ...DEFAULT_LIMITS, ...limits, decoded: Infinity });
}

// -- Bases (section 7.3, foreign-bases.md) ----------------------------------------------------------------------------------------------------------

/** The base of a snapshot among the candidates, decoded. `user` is the file of the snapshot. */
function findBase(snapshot, user, candidates, limits) {
    const wanted = snapshot.baseFingerprint;
    let problem = new LmcError("BASE_WRONG", `the file needs another base, ${hex(wanted)}`);
    for (const candidate of candidates) {
        try {
            const base = openBase(snapshot, user, candidate, candidates, limits);
            if (base && sameBytes(base.fingerprint, wanted)) return base;
        } catch (error) {
            if (!(error instanceof LmcError)) throw error;
            problem = error; // it is damaged, or lacks its own base: another may do
        }
    }
    throw problem;
}

/** The candidate as a snapshot, or null if it cannot be the base. */
function openBase(snapshot, user, candidate, candidates, limits) {
    if (candidate instanceof Snapshot) return candidate;
    if (!Array.isArray(candidate)) checkBytes(candidate, "a base");
    if (Array.isArray(candidate) || !isLmc(candidate)) {
        const entries = Array.isArray(candidate) ? candidate : [{ path: "", data: candidate }];
        for (const read of [snapshotByTables, snapshotOfFiles, snapshotOfBytes]) {
            const base = read(entries, snapshot);
            if (base && sameBytes(base.fingerprint, snapshot.baseFingerprint)) return base;
        }
        return null;
    }
    if (sameBytes(candidate, user)) return null; // no file is its own base
    if (!sameBytes(statedFingerprint(candidate, limits), snapshot.baseFingerprint)) return null;
    if (limits.chain === 0) refuse("LIMIT", "a longer chain of deltas than allowed");
    const others = candidates.filter(other => other !== candidate); // so this comes to an end
    return decode(candidate, { bases: others, limits: { ...limits, chain: limits.chain - 1 } });
}

/** The snapshot that these files are by what is in them: { path, data, isLink }, data null for a directory (F-2). */
export function snapshotOfFiles(entries) {
    return snapshotOf(entries.filter(entry => !entry.isLink), file => safetensorsOf(file.data));
}

/** The same if no file has tensors (F-19). */
function snapshotOfBytes(entries) {
    return snapshotOf(entries.filter(entry => !entry.isLink), () => []);
}

/**
 * The snapshot that these files are by the tables of another one, if they are files and directories of the same paths and sizes: null if they are not
 * (F-1). Directories that the other one does not have, but files below them, do not count, nor do symbolic links.
 */
function snapshotByTables(entries, { files }) {
    const entryOf = new Map(entries.map(entry => [keyOf(asBytes(entry.path)), entry]));
    const parents = new Set();
    for (const { key } of files) {
        if (!entryOf.has(key)) return null;
        for (let at = key.indexOf("/"); at !== -1; at = key.indexOf("/", at + 1)) parents.add(key.slice(0, at));
    }
    const tables = new Map(files.map(file => [file.key, file]));
    for (const [key, { data, isLink }] of entryOf) {
        const file = tables.get(key);
        if (!file && !isLink && (data || !parents.has(key))) return null;
        if (file && ((file.kind === "file") !== Boolean(data) || (data ?? "").length !== file.size)) return null;
    }
    const alike = files.map(file => entryOf.get(file.key));
    return snapshotOf(alike, file => tables.get(file.key).tensors);
}

/** A snapshot of these files, with the tensors that tablesOf() gives for each. */
function snapshotOf(entries, tablesOf) {
    const snapshot = new Snapshot();
    for (const { path, data } of entries) {
        const file = new SourceFile();
        file.kind = data ? "file" : "directory";
        file.key = keyOf(asBytes(path));
        file.data = data ?? new Uint8Array(0);
        file.size = file.data.length;
        file.tensors = tablesOf(file).map(({ key, type, offset }, number) => new Tensor(file, number, key, type, offset));
        fingerprintFile(file);
        snapshot.files.push(file);
    }
    snapshot.items = itemsOf(snapshot.files);
    snapshot.fingerprint = fingerprintOfItems(snapshot.items);
    return snapshot;
}

// -- safetensors (foreign-bases.md) -----------------------------------------------------------------------------------------------------------------

const MOST_HEADER = 100_000_000; // bytes
const MOST_DEPTH = 64; // of objects and arrays

/** The tensors of a file, none unless it keeps F-9 to F-18: u64 size of a JSON header, the header, the tensors' bytes. */
function safetensorsOf(data) {
    if (data.length < 8) return [];
    const headerSize = dataOf(data).getBigUint64(0, true);
    if (headerSize > Math.min(MOST_HEADER, data.length - 8)) return [];
    const start = 8 + Number(headerSize);
    try {
        const tensors = [];
        const json = new Json(data.subarray(8, start));
        json.document(name => {
            if (name === "__metadata__") json.skip();
            else tensors.push(safetensor(json, name, start));
        });
        tensors.sort((a, b) => a.offset - b.offset || a.type.size - b.type.size);
        let end = start;
        for (const { offset, type } of tensors) {
            if (offset !== end) return [];
            end += type.size;
        }
        return end <= data.length ? tensors : [];
    } catch (error) {
        if (error instanceof NotSafetensors) return [];
        throw error;
    }
}

class NotSafetensors extends Error {}

function must(rule) {
    if (!rule) throw new NotSafetensors();
}

/** { key, type, offset } of a member of the header, whose value is next. */
function safetensor(json, name, start) {
    const entry = {};
    const parts = { dtype: () => json.string(), shape: () => json.sizes(), data_offsets: () => json.sizes() };
    json.object(key => {
        if (Object.hasOwn(parts, key)) entry[key] = parts[key]();
        else json.skip();
    });
    const { dtype, shape, data_offsets: offsets } = entry;
    must(dtype !== undefined && shape !== undefined && shape.length <= 32 && offsets !== undefined && offsets.length === 2);
    const key = keyOf(asBytes(name));
    const dtypeKey = keyOf(asBytes(dtype));
    must(key.length <= 65535 && dtypeKey.length >= 1 && dtypeKey.length <= 32 && !key.includes("\0") && !dtypeKey.includes("\0"));
    const [begin, end] = offsets;
    must(begin <= end && end <= Number.MAX_SAFE_INTEGER - start); // more than any file has
    const type = { dtypeKey, shape, size: end - begin };
    must(!DTYPE_BITS.has(dtypeKey) || sizeOfShape(dtypeKey, shape) === type.size);
    return { key, type, offset: start + begin };
}

const SPACES = new Set(" \t\n\r");
const DIGITS = new Set("0123456789");
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

/** JSON as RFC 8259 has it, in UTF-8: no key twice in an object, no lone surrogates, and no deeper than MOST_DEPTH. Takes values from the front. */
class Json {
    constructor(bytes) {
        try {
            this.text = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true }).decode(bytes);
        } catch {
            must(false);
        }
        this.at = 0;
        this.depth = 0;
    }

    /** An object that starts with the first character, and that only white space follows. */
    document(takeValue) {
        must(this.text[0] === "{");
        this.object(takeValue);
        this.skipAll(SPACES);
        must(this.at === this.text.length);
    }

    /** Skips such characters, and returns how many. */
    skipAll(characters) {
        const start = this.at;
        while (characters.has(this.text[this.at])) this.at++;
        return this.at - start;
    }

    /** Takes the characters, if they are the next ones. */
    has(characters) {
        if (!this.text.startsWith(characters, this.at)) return false;
        this.at += characters.length;
        return true;
    }

    /** Likewise, after white space. */
    hasNext(character) {
        this.skipAll(SPACES);
        return this.has(character);
    }

    /** What stands between two brackets, with commas between. */
    between(open, close, takeElement) {
        must(this.hasNext(open) && ++this.depth <= MOST_DEPTH);
        if (!this.hasNext(close)) {
            do takeElement();
            while (this.hasNext(","));
            must(this.hasNext(close));
        }
        this.depth--;
    }

    /** takeValue(key) takes the value of each member. */
    object(takeValue) {
        const keys = new Set();
        this.between("{", "}", () => {
            const key = this.string();
            must(keys.size !== keys.add(key).size && this.hasNext(":"));
            takeValue(key);
        });
    }

    /** An array of whole numbers below 2^63, without sign, fraction and exponent. */
    sizes() {
        const sizes = [];
        this.between("[", "]", () => {
            this.skipAll(SPACES);
            const token = this.number();
            must(/^[0-9]{1,19}$/.test(token) && BigInt(token) <= MOST_BYTES);
            sizes.push(exact(BigInt(token)));
        });
        return sizes;
    }

    /** Takes any value. */
    skip() {
        this.skipAll(SPACES);
        const first = this.text[this.at];
        if (first === '"') this.string();
        else if (first === "{") this.object(() => this.skip());
        else if (first === "[") this.between("[", "]", () => this.skip());
        else if (!this.has("true") && !this.has("false") && !this.has("null")) this.number();
    }

    number() {
        const start = this.at;
        this.has("-");
        if (!this.has("0")) must(this.skipAll(DIGITS) > 0);
        if (this.has(".")) must(this.skipAll(DIGITS) > 0);
        if (this.has("e") || this.has("E")) {
            this.has("+") || this.has("-");
            must(this.skipAll(DIGITS) > 0);
        }
        return this.text.slice(start, this.at);
    }

    string() {
        must(this.hasNext('"'));
        let string = "";
        for (let start = this.at; ; ) {
            const code = this.text.charCodeAt(this.at);
            must(code >= 0x20); // nor is it the end
            this.at++;
            if (code !== 0x22 && code !== 0x5c) continue;
            string += this.text.slice(start, this.at - 1);
            if (code === 0x22) break;
            string += this.escaped();
            start = this.at;
        }
        must(!/\p{Surrogate}/u.test(string));
        return string;
    }

    /** After a backslash. */
    escaped() {
        const character = this.text[this.at++];
        if (character !== "u") {
            must(Object.hasOwn(ESCAPES, character));
            return ESCAPES[character];
        }
        const digits = this.text.slice(this.at, this.at + 4);
        must(/^[0-9a-fA-F]{4}$/.test(digits));
        this.at += 4;
        return String.fromCharCode(parseInt(digits, 16));
    }
}
