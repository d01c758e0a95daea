// What the vectors do not test: arrays in memory, limits, bases, conversions, the command, and that the module needs nothing of Node.
// Usage: node test.mjs. SPDX-License-Identifier: MIT
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import vm from "node:vm";
import * as lmc from "./lmc.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const VECTORS = path.join(HERE, "../../vectors");
const read = name => new Uint8Array(fs.readFileSync(path.join(VECTORS, name)));
const text = string => new TextEncoder().encode(string);
const hex = bytes => Buffer.from(bytes).toString("hex");
const refuses = (status, run) => assert.throws(run, error => error instanceof lmc.LmcError && error.status === status);

/** The blocks of the first run of a vector. */
function blocksOf(bytes) {
    const [run] = lmc.list(bytes).contentsOf("RUN ");
    return bytes.subarray(run.blocksAt, run.blockSizes.reduce((end, size) => end + size, run.blocksAt));
}

const tests = {
    checksums() {
        assert.equal(lmc.crc32c(text("123456789")), 0xe3069283);
        assert.equal(lmc.crc32c(text("56789"), 0, 5, lmc.crc32c(text("1234"))), 0xe3069283);
        for (let size = 0; size < 300; size++) {
            const bytes = new Uint8Array(size).map((_, i) => i * size);
            assert.equal(hex(lmc.sha256(bytes)), createHash("sha256").update(bytes).digest("hex"));
        }
    },

    conversions() {
        const bits = new Uint32Array(1);
        const float = new Float32Array(bits.buffer);
        const valueOf16 = (half, exponentBits) => {
            const mantissaBits = 15 - exponentBits;
            const exponent = (half >>> mantissaBits) & (2 ** exponentBits - 1);
            const mantissa = half & (2 ** mantissaBits - 1);
            const bias = 2 ** (exponentBits - 1) - 1;
            return (exponent === 0 ? mantissa : mantissa + 2 ** mantissaBits) * 2 ** (Math.max(exponent, 1) - bias - mantissaBits);
        };
        for (const [convert, exponentBits] of [[lmc.bf16FromF32, 8], [lmc.f16FromF32, 5]]) {
            const infinity = (2 ** exponentBits - 1) << (15 - exponentBits);
            const quiet = 1 << (14 - exponentBits);
            // Around every value of 16 bits, and half way to the next: the nearest, and of two the even one
            for (let half = 0; half < infinity; half++) {
                const low = valueOf16(half, exponentBits);
                const high = valueOf16(half + 1, exponentBits); // where that is infinity, what would come next
                const even = half & 1 ? half + 1 : half;
                for (const [value, expected] of [[low, half], [(low + high) / 2, even]]) {
                    float[0] = value;
                    if (float[0] !== value) continue; // no F32
                    const place = bits[0];
                    const check = (at, wanted) => {
                        assert.equal(convert(at), wanted);
                        assert.equal(convert((at | 0x80000000) >>> 0), wanted | 0x8000);
                    };
                    check(place, expected);
                    if (expected !== half || value !== low) check(place - 1, half), check(place + 1, half + 1);
                }
            }
            for (const [nan, expected] of [[0x7f800001, infinity | quiet], [0xffffffff, 0xffff], [0x7fa00000, infinity | quiet | (quiet >> 1)]]) {
                assert.equal(convert(nan), expected);
            }
            assert.equal(convert(0x7f800000), infinity);
            assert.equal(convert(0x7f7fffff), infinity);
        }
    },

    arrays() {
        const file = read("valid/chain_0.lmc");
        const blocks = blocksOf(file);
        const data = lmc.decode(file).files[0].data;
        assert.deepEqual(lmc.decodeArray(blocks, data.length), data);
        assert.deepEqual(lmc.decodeArray(new Uint8Array(0), 0), new Uint8Array(0));
        refuses("TRUNCATED", () => lmc.decodeArray(blocks.subarray(0, blocks.length - 1), data.length));
        refuses("TRUNCATED", () => lmc.decodeArray(new Uint8Array(0), 1));
        refuses("CORRUPT", () => lmc.decodeArray(new Uint8Array(1), 0));
        refuses("CORRUPT", () => lmc.decodeArray(blocks, data.length - 1));
        refuses("TRUNCATED", () => lmc.decodeArray(blocks, data.length + 1));
        refuses("CHECKSUM", () => lmc.decodeArray(blocks.map((byte, i) => byte ^ (i === 20)), data.length));
        assert.throws(() => lmc.decodeArray([1, 2], 2), TypeError);
    },

    arraysWithPrediction() {
        const blocks = blocksOf(read("valid/example_delta.lmc"));
        const prediction = lmc.decode(read("valid/example_stored.lmc")).files[0].data;
        assert.equal(hex(lmc.decodeArray(blocks, 8, { prediction })), "813f00bf00004840");
        refuses("BASE_MISSING", () => lmc.decodeArray(blocks, 8));
        refuses("BASE_WRONG", () => lmc.decodeArray(blocks, 8, { prediction: prediction.subarray(1) }));
        refuses("BASE_WRONG", () => lmc.decodeArray(blocks, 8, { prediction: prediction.map(byte => byte ^ 1) }));
    },

    limits() {
        const file = read("valid/block_largest.lmc");
        assert.equal(lmc.decode(file, { limits: { decoded: 2 ** 22 } }).files[0].size, 2 ** 22);
        refuses("LIMIT", () => lmc.decode(file, { limits: { decoded: 2 ** 22 - 1 } }));
        refuses("LIMIT", () => lmc.decode(file, { limits: { section: 50 } }));
        refuses("LIMIT", () => lmc.decode(file, { limits: { tables: 200 } }));
        const bases = ["valid/chain_0.lmc", "valid/chain_1.lmc"].map(read);
        lmc.decode(read("valid/chain_2.lmc"), { bases, limits: { chain: 2 } });
        refuses("LIMIT", () => lmc.decode(read("valid/chain_2.lmc"), { bases, limits: { chain: 1 } }));
    },

    bases() {
        const [base, delta, stored] = ["valid/chain_0.lmc", "valid/chain_1.lmc", "valid/example_stored.lmc"].map(read);
        const wanted = hex(lmc.decode(delta, { bases: [base] }).fingerprint);
        const fingerprintWith = bases => hex(lmc.decode(delta, { bases }).fingerprint);
        assert.equal(fingerprintWith([stored, base]), wanted);
        assert.equal(fingerprintWith([delta, base]), wanted);
        assert.equal(fingerprintWith([lmc.decode(base)]), wanted);
        assert.equal(fingerprintWith([[{ path: "", data: lmc.decode(base).files[0].data }]]), wanted);
        const damaged = base.slice();
        damaged[damaged.length >> 1] ^= 1;
        assert.equal(fingerprintWith([damaged, base]), wanted);
        assert.throws(() => fingerprintWith([damaged]), lmc.LmcError);
        refuses("BASE_WRONG", () => fingerprintWith([delta]));
        refuses("BASE_MISSING", () => fingerprintWith([]));
        assert.equal(lmc.list(delta).files.length, 1); // needs no base
    },

    safetensors() {
        const withHeader = header => {
            const json = text(typeof header === "string" ? header : JSON.stringify(header));
            const file = new Uint8Array(8 + json.length + 8);
            new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
            file.set(json, 8);
            return lmc.snapshotOfFiles([{ path: "", data: file }]).files[0].tensors.length;
        };
        const entry = (begin, end, more) => ({ dtype: "U8", shape: [end - begin], data_offsets: [begin, end], ...more });
        assert.equal(withHeader({ a: entry(0, 4), "\u20ac": entry(4, 8), __metadata__: { x: "y" } }), 2);
        assert.equal(withHeader({ b: entry(0, 4), a: entry(0, 0, { shape: [0, 5] }), __proto__x: entry(4, 8) }), 3);
        assert.equal(withHeader('{"a":{"dtype":"U8","shape":[9223372036854775807,0],"data_offsets":[0,0],"more":[1.5e3]}} \n'), 1);
        const raw = shape => `{"a":{"dtype":"U8","shape":${shape},"data_offsets":[0,4]}}`;
        assert.equal(withHeader(raw("[4]")), 1);
        const hostile = ["[4.0]", "[-0,4]", '["4"]', '["n4"]', "[4e0]", "[9223372036854775808,0]", '"4"', "[04]", "4", "[[4]]", "[3]"].map(raw);
        hostile.push({ a: entry(0, 5), b: entry(4, 8) }, { a: entry(0, 4), b: entry(5, 8) }, { a: entry(1, 4) });
        hostile.push({ a: entry(0, 9) }, { a: entry(4, 0) });
        hostile.push({ a: null }, { a: 5 }, { a: {} }, [[1]], [null], { a: entry(0, 4, { shape: [4, ...Array(32).fill(1)] }) });
        hostile.push({ "a\0": entry(0, 4) }, { a: entry(0, 4, { dtype: "x".repeat(33) }) });
        hostile.push({ a: entry(0, 4, { dtype: "" }) }, { "\ud800": entry(0, 4) });
        hostile.push("{", "{".repeat(99999), `{"a":${"[".repeat(99999)}`, `{"a":${"[".repeat(99999)}${"]".repeat(99999)}}`);
        const twice = JSON.stringify({ a: entry(0, 4) });
        hostile.push(`${twice.slice(0, -1)},${twice.slice(1)}`, `${twice}x`, `{"__metadata__":{"x":"1","\\u0078":"2"},${twice.slice(1)}`);
        for (const header of hostile) assert.equal(withHeader(header), 0, JSON.stringify(header).slice(0, 60));
    },

    /** In a world that has nothing but the language and the text coders, as a browser has them. */
    nothingOfNode() {
        const source = fs.readFileSync(path.join(HERE, "lmc.mjs"), "utf8").replace(/^export /gm, "");
        const sandboxed = vm.runInNewContext(`${source}; ({ decode })`, { TextDecoder, TextEncoder });
        const { fingerprint } = sandboxed.decode(read("valid/example_delta.lmc"), { bases: [read("valid/example_stored.lmc")] });
        assert.equal(hex(fingerprint).slice(0, 8), "e055cf59");
    },

    demoIsJavaScript() {
        const page = fs.readFileSync(path.join(HERE, "demo.html"), "utf8");
        const script = page.match(/<script type="module">([^]*)<\/script>/)[1].replace(/^ *import .*$/m, "");
        new vm.Script(`(async () => {${script}})`);
        for (const name of page.match(/import \{(.*)\} from/)[1].split(",")) assert.ok(lmc[name.trim()], name);
    },

    command() {
        const folder = fs.mkdtempSync(path.join(os.tmpdir(), "lmc-js-"));
        const cli = (...args) => spawnSync(process.execPath, [path.join(HERE, "cli.mjs"), ...args], { encoding: "utf8" });
        const place = name => path.join(VECTORS, name);
        const out = path.join(folder, "out");
        try {
            assert.equal(cli(place("valid/chain_2.lmc"), out).status, 4);
            assert.equal(cli("-b", place("valid/chain_0.lmc"), "-b", place("valid/chain_1.lmc"), place("valid/chain_2.lmc"), out).status, 0);
            assert.deepEqual(fs.readFileSync(out), fs.readFileSync(place("valid/chain_2.bin")));
            assert.equal(cli(place("valid/chain_0.lmc"), out).status, 1); // it is there already
            assert.equal(cli(place("invalid/header_crc.lmc"), path.join(folder, "bad")).status, 3);
            assert.equal(cli(place("valid/block_largest.lmc"), path.join(folder, "large"), "-m", "3").status, 1);
            assert.equal(cli().status, 2);
            assert.match(cli("-l", place("valid/example_stored.lmc")).stdout, /"w" "BF16" \[2, 2\], 8 bytes/);
            assert.deepEqual(fs.readdirSync(folder), ["out"]);
        } finally {
            fs.rmSync(folder, { recursive: true });
        }
    },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        test();
    } catch (error) {
        failed++;
        console.log(`FAILED: ${name}: ${error.stack}`);
    }
}
console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
