// Reading of files and bases for the programs of this folder, in Node. SPDX-License-Identifier: MIT
import fs from "node:fs";

/** The bytes of a file of any size. */
export function readFile(path) {
    const file = fs.openSync(path);
    try {
        const bytes = new Uint8Array(fs.fstatSync(file).size);
        for (let at = 0; at < bytes.length; ) {
            const size = fs.readSync(file, bytes, at, Math.min(bytes.length - at, 2 ** 30), at);
            if (size === 0) throw new Error(`${path}: it has become shorter`);
            at += size;
        }
        return bytes;
    } finally {
        fs.closeSync(file);
    }
}

/** What decode() takes for a base: the bytes of a file, or the entries of a directory. */
export function readBase(path) {
    if (!fs.statSync(path).isDirectory()) return readFile(path);
    const entries = readDirectory(Buffer.from(path), "");
    return entries.length > 0 ? entries : [{ path: "", data: null }];
}

/** The files and directories below a directory; paths are bytes. Of symbolic links those to files. */
function readDirectory(directory, prefix) {
    return fs.readdirSync(directory, { encoding: "buffer", withFileTypes: true }).flatMap(entry => {
        const place = Buffer.concat([directory, Buffer.from("/"), entry.name]);
        const path = Buffer.concat([Buffer.from(prefix), entry.name]);
        if (entry.isDirectory()) return [{ path, data: null }, ...readDirectory(place, Buffer.concat([path, Buffer.from("/")]))];
        const isFile = fs.statSync(place, { throwIfNoEntry: false })?.isFile();
        return isFile ? [{ path, data: readFile(place), isLink: entry.isSymbolicLink() }] : [];
    });
}
