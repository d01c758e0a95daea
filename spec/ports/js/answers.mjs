// Answers for spec/check_vectors.py --answers 'node answers.mjs': a line with an LMC file and its bases (tabs between) gets a line of JSON.
// SPDX-License-Identifier: MIT
import { createHash } from "node:crypto";
import readline from "node:readline";
import { decode, LmcError } from "./lmc.mjs";
import { readBase, readFile } from "./files.mjs";

const hex = bytes => Buffer.from(bytes).toString("hex");

/** JSON with numbers of 64 bits. */
function json(value) {
    if (typeof value === "bigint") return String(value);
    if (Array.isArray(value)) return `[${value.map(json).join(",")}]`;
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    return `{${Object.entries(value).map(([key, part]) => `${JSON.stringify(key)}:${json(part)}`).join(",")}}`;
}

const answerOfTensor = tensor => ({
    name: hex(tensor.nameBytes),
    dtype: hex(tensor.dtypeBytes),
    shape: tensor.shape,
    offset: tensor.offset,
    size: tensor.size,
    loss: [tensor.generation, tensor.measure, tensor.error],
    fingerprint: hex(tensor.fingerprint),
});

const answerOfFile = file => ({
    path: hex(file.pathBytes),
    kind: file.kind === "file" ? "regular" : "directory",
    size: file.size,
    sha256: createHash("sha256").update(file.data).digest("hex"),
    mode: file.mode,
    mtime: file.mtime && [file.mtime.seconds, file.mtime.nanoseconds],
    fingerprint: file.fingerprint && hex(file.fingerprint),
    tensors: file.tensors.map(answerOfTensor),
});

const answerOf = snapshot => ({
    status: "OK",
    fingerprint: hex(snapshot.fingerprint),
    base_fingerprint: snapshot.baseFingerprint && hex(snapshot.baseFingerprint),
    metadata: snapshot.metadata.map(({ keyBytes, value }) => [hex(keyBytes), hex(value)]),
    files: snapshot.files.map(answerOfFile),
});

for await (const line of readline.createInterface({ input: process.stdin })) {
    const [path, ...bases] = line.split("\t");
    let answer;
    try {
        answer = answerOf(decode(readFile(path), { bases: bases.map(readBase) }));
    } catch (error) {
        if (!(error instanceof LmcError)) throw error;
        answer = { status: error.status };
    }
    console.log(json(answer));
}
