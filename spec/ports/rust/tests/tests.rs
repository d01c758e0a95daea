//! What spec/check_vectors.py does not ask: arrays in memory, limits, bases, and many damaged files.
//! LMC_VECTORS: the folder spec/vectors; LMC_FUZZ: how many damaged files, in hundreds. SPDX-License-Identifier: MIT

use lmc::{crc32c, crc64, decode, decode_array, sha256, Base, Error, Limits, Status};
use std::path::PathBuf;
use std::{env, fs};

fn vectors() -> PathBuf {
    env::var_os("LMC_VECTORS").map_or_else(|| PathBuf::from("../../vectors"), PathBuf::from)
}

fn read(name: &str) -> Vec<u8> {
    fs::read(vectors().join(name)).expect(name)
}

fn status<T>(result: Result<T, Error>) -> Option<Status> {
    result.err().map(|error| error.status)
}

#[test]
fn hashes() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc64(b"123456789"), 0xAE8B_1486_0A79_9888);
    let text: Vec<u8> = (0..1000).map(|i| (i * i) as u8).collect();
    let slow = |bytes: &[u8]| {
        let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
    };
    (0..100).for_each(|n| assert_eq!(crc32c(&text[n..n * 10]), slow(&text[n..n * 10])));
    let slow = |bytes: &[u8]| {
        let bit = |crc: u64, _| if crc & 1 == 1 { crc >> 1 ^ 0x9A6C_9329_AC4B_C9B5 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u64::from(byte), bit))
    };
    (0..100).for_each(|n| assert_eq!(crc64(&text[n..n * 10]), slow(&text[n..n * 10])));
    let hex = |bytes: &[u8]| sha256(bytes).iter().map(|byte| format!("{:02x}", byte)).collect::<String>();
    assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    // the largest tail that needs one block, and the least that needs two
    assert_eq!(hex(&[b'a'; 55]), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    assert_eq!(hex(&[b'a'; 56]), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
}

// -- files made by hand --

/// A file in the making: its sections so far, and their entries for the index.
struct Maker {
    file: Vec<u8>,
    entries: Vec<u8>,
    counts: [u32; 3], // of FILE, RUN and others
    items: Vec<(Vec<u8>, [u8; 32])>,
}

/// Name, Type, Dtype, Shape and bytes of an item.
type ItemOf<'a> = (&'a str, u8, &'a str, &'a [u64], &'a [u8]);

impl Maker {
    fn new(features: u64, base: Option<[u8; 32]>) -> Maker {
        let mut file = [&[0x83, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A, 1, 7, 80, 0, 0, 0, 0, 0][..], &features.to_le_bytes(), &[0; 8]].concat();
        file.extend(base.unwrap_or([0; 32]));
        file.extend([u8::from(base.is_some()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(crc32c(&file).to_le_bytes());
        Maker { file, entries: Vec::new(), counts: [0; 3], items: Vec::new() }
    }

    fn section(&mut self, kind: &[u8; 4], body: &[u8]) -> &mut Maker {
        let which = if kind == b"FILE" { 0 } else { 1 + usize::from(kind != b"RUN ") };
        let number = if kind == b"INDX" { 0 } else { self.counts[which] };
        self.counts[which] += 1;
        let mut header = [&kind[..], &number.to_le_bytes(), &(body.len() as u64).to_le_bytes()].concat();
        let crc = crc32c(&header);
        header.extend(crc.to_le_bytes());
        header.extend(crc32c(body).to_le_bytes());
        self.entries.extend((self.file.len() as u64).to_le_bytes());
        self.entries.extend(&header);
        self.file.extend(header);
        self.file.extend(body);
        if kind[0].is_ascii_uppercase() {
            self.entries.extend(body);
        }
        self
    }

    /// A FILE section, with the content and the items of each of its files.
    fn files(&mut self, body: &[u8], files: &[(&[u8], &[ItemOf<'_>])]) -> &mut Maker {
        self.section(b"FILE", body);
        for (data, items) in files {
            self.entries.extend(crc32c(data).to_le_bytes());
            for (name, kind, dtype, shape, bytes) in *items {
                let mut text = [b"LMC tensor 2\0", &[*kind][..]].concat();
                bytes.chunks(262_144).for_each(|leaf| text.extend(crc64(leaf).to_le_bytes()));
                text.push(dtype.len() as u8);
                text.extend(dtype.bytes());
                text.push(shape.len() as u8);
                shape.iter().for_each(|extent| text.extend(extent.to_le_bytes()));
                text.extend((bytes.len() as u64).to_le_bytes());
                self.entries.extend(sha256(&text));
                self.items.push((name.as_bytes().to_vec(), sha256(&text)));
            }
        }
        self.items.sort();
        self
    }

    /// A RUN section of blocks of 2^14 bytes, of which `fields` are Prediction, Conversion and segments.
    fn run(&mut self, fields: &[u8], bytes: &[u8], block: fn(u32, u32, &[u8]) -> Vec<u8>) -> &mut Maker {
        let run = self.counts[1];
        self.section(b"RUN ", &[&varint(bytes.len() as u64)[..], &[14], fields].concat());
        for (number, part) in (0..).zip(bytes.chunks(1 << 14)) {
            let block = block(run, number, part);
            self.entries.extend((block.len() as u32).to_le_bytes());
            self.entries.extend(&block[20..24]);
            self.file.extend(block);
        }
        self
    }

    fn identity(&self) -> [u8; 32] {
        let mut text = b"LMC snapshot 2\0".to_vec();
        for (name, identity) in &self.items {
            text.extend((name.len() as u32).to_le_bytes());
            text.extend(name);
            text.extend(identity);
        }
        sha256(&text)
    }

    /// The whole file, with an index that has `end` behind its entries.
    fn end(&mut self, end: &[u8]) -> Vec<u8> {
        let n_sections = self.counts.iter().sum::<u32>();
        let body = [&self.file[..80], &n_sections.to_le_bytes(), &[0; 4], &self.identity(), &self.entries, end].concat();
        let at = self.file.len() as u64;
        self.section(b"INDX", &body);
        let size = self.file.len() as u64;
        let mut trailer = [at, size - at, size + 40].iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<u8>>();
        trailer.extend([1, 9, 0, 0]);
        trailer.extend(crc32c(&trailer).to_le_bytes());
        trailer.extend([0x82, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A]);
        self.file.extend(trailer);
        self.file.clone()
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A block, its elements being bytes.
fn block(run: u32, number: u32, fields: [u8; 3], payload: &[u8], bytes: &[u8], base_crc: u32) -> Vec<u8> {
    let numbers = [bytes.len() as u32, payload.len() as u32, crc32c(bytes), base_crc];
    let mut block = [&[0xB1][..], &fields, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()].concat();
    let crc = crc32c(&[&run.to_le_bytes()[..], &number.to_le_bytes(), &block].concat());
    block.extend(crc.to_le_bytes());
    block.extend(payload);
    block
}

fn stored(run: u32, number: u32, bytes: &[u8]) -> Vec<u8> {
    block(run, number, [0; 3], bytes, bytes, 0)
}

/// All bytes are those of the prediction.
fn same(run: u32, number: u32, bytes: &[u8]) -> Vec<u8> {
    block(run, number, [0x20, 1, 0], &[1, 0], bytes, crc32c(bytes))
}

const TEXT: &[u8] =
    b"\"layers.0.w\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]},\"layers.1.w\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[5,9]}";

/// A file with a header, two tensors and a byte between them, a directory and another file, all in one section.
fn grouped_body() -> Vec<u8> {
    let mut body = [&[3, 0, 0, 3][..], b"m/a"].concat();
    body.extend(varint(TEXT.len() as u64 + 11));
    body.extend([2, 2, 0, 10]);
    body.extend(b"layers.0.w");
    body.extend(varint(TEXT.len() as u64 + 2));
    body.extend([5, 2, 2, 2]);
    body.extend([3, 1, 7, 2, 1, b'1', 1]); // Like: "layers." "1" ".w", and a gap
    body.extend([1 | 2 | 4, 2, 1, b'd', 0xED, 3]); // m/d: Mode, Mtime
    body.extend([1, 2, 3, 4, 5, 6, 7, 0x80, 4, 3, 2, 1]);
    body.extend([0, 2, 1, b'c', 4, 0]);
    body
}

/// That file, with the runs that `runs` makes of the bytes of the stream, and `end` behind the body of its FILE section.
fn grouped(features: u64, end: &[u8], runs: impl Fn(&mut Maker, &[u8])) -> Vec<u8> {
    let a = [b"{", TEXT, b"}abcd-abcd"].concat();
    let w: &[u8] = b"abcd";
    let tensors: [ItemOf<'_>; 2] = [("layers.0.w", 0, "U8", &[2, 2], w), ("layers.1.w", 0, "U8", &[2, 2], w)];
    let mut maker = Maker::new(features, None);
    let body = [&grouped_body()[..], end].concat();
    maker.files(&body, &[(&a, &tensors), (b"", &[("m/d", 2, "U8", &[0], b"")]), (b"last", &[("m/c", 1, "U8", &[4], b"last")])]);
    runs(&mut maker, &[&a[..], b"last"].concat());
    maker.end(&[])
}

/// Sections 5.1 and 5.2: streams, references, pieces, header text, extension records, sections that a decoder need not know.
#[test]
fn streams() {
    let plain = grouped(0, &[], |maker, bytes| {
        maker.run(&[0, 0], bytes, stored);
    });
    let snapshot = decode(&plain, &[], &Limits::default()).unwrap();
    assert_eq!(snapshot.files.iter().map(|file| &file.path[..]).collect::<Vec<_>>(), [&b"m/a"[..], b"m/d", b"m/c"]);
    assert_eq!(snapshot.files[2].data, b"last");
    assert_eq!(snapshot.files[1].mode, Some(0o755));
    assert_eq!(snapshot.files[1].mtime, Some((i64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 0x80]), 0x0102_0304)));
    let tensor = &snapshot.files[0].tensors[1];
    assert_eq!((&tensor.name[..], &tensor.shape[..], tensor.size), (&b"layers.1.w"[..], &[2, 2][..], 4));
    assert_eq!(snapshot.items().iter().map(|item| snapshot.bytes_of(item)).collect::<Vec<_>>(), [b"abcd", b"abcd", b"last", &b""[..]]);

    let with = |features, end: &[u8], runs: &dyn Fn(&mut Maker, &[u8])| decode(&grouped(features, end, runs), &[], &Limits::default());
    // the text of the header in two segments; and the second tensor by the first, to the end of its piece
    let n = TEXT.len();
    let text = [&[3, 0, 2, 5, 1][..], &varint(n as u64 - 5), &[4, 5]].concat();
    let own = [&[2, 0, 1, 0, 2][..], &varint(n as u64 + 2)].concat();
    let by_reference = |text: &[u8], own: &[u8], maker: &mut Maker, bytes: &[u8]| {
        maker.run(&[0, 0], &bytes[..1], stored).run(text, &bytes[1..1 + n], same).section(b"pad ", &[0; 5]);
        maker.run(&[0, 0], &bytes[1 + n..7 + n], stored).run(own, &bytes[7 + n..11 + n], same).run(&[0, 0], &bytes[11 + n..], stored);
        maker.section(b"any ", b"thing");
    };
    assert_eq!(with(4, &[], &|maker, bytes| by_reference(&text, &own, maker, bytes)).as_ref(), Ok(&snapshot));
    assert_eq!(status(with(0, &[], &|maker, bytes| by_reference(&text, &own, maker, bytes))), Some(Status::Corrupt)); // not allowed: Own
    let with_text = |text: &[u8]| status(with(4, &[], &|maker, bytes| by_reference(text, &own, maker, bytes)));
    let n = varint(n as u64);
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[1]].concat()), None);
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[1, 2, 3, b'a', b'b', b'c']].concat()), None); // an extension record
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[1, 3, 3, b'a', b'b', b'c']].concat()), Some(Status::Unsupported)); // a critical one
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[1, 2, 4, b'a', b'b', b'c']].concat()), Some(Status::Corrupt)); // it ends early
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[1, 2, 0, 2, 0]].concat()), Some(Status::Corrupt)); // the same Tag twice
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[2, 0]].concat()), Some(Status::Corrupt)); // Offset 0
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[2, 1]].concat()), Some(Status::Corrupt)); // beyond the text
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[5]].concat()), Some(Status::Corrupt)); // the directory's
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[3]].concat()), Some(Status::Corrupt)); // of file -1
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[13]].concat()), Some(Status::Corrupt)); // of file 3
    assert_eq!(with_text(&[3, 0, 1, 0, 1]), Some(Status::Corrupt)); // to the end of the piece, which is beyond the run
    assert_eq!(with_text(&[&[3, 1, 1][..], &n, &[1]].concat()), Some(Status::Unsupported)); // Conversion
    assert_eq!(with_text(&[&[4, 0, 1][..], &n, &[1]].concat()), Some(Status::Unsupported)); // Prediction
    assert_eq!(with_text(&[&[3, 0, 1][..], &n, &[0]].concat()), Some(Status::Corrupt)); // zeros are not what Base_CRC says

    // extension records of the FILE and the index
    let whole = |maker: &mut Maker, bytes: &[u8]| {
        maker.run(&[0, 0], bytes, stored);
    };
    assert_eq!(with(0, &[0, 2, 7, 7, 4, 0], &whole).as_ref(), Ok(&snapshot));
    assert_eq!(status(with(0, &[1, 0], &whole)), Some(Status::Unsupported));
    assert_eq!(status(with(0, &[0], &whole)), Some(Status::Corrupt));
    assert_eq!(status(with(16, &[], &whole)), Some(Status::Unsupported));
    assert_eq!(status(with(2, &[], &whole)), Some(Status::Corrupt)); // Base without a base
    assert_eq!(
        status(with(0, &[], &|maker, bytes| {
            maker.section(b"Any ", b"").run(&[0, 0], bytes, stored);
        })),
        Some(Status::Unsupported)
    );
    assert_eq!(
        status(with(0, &[], &|maker, bytes| {
            maker.section(b"an-y", b"").run(&[0, 0], bytes, stored);
        })),
        Some(Status::Corrupt)
    );

    // hashes of something else: who knows the algorithm looks at them (right ones are in the vectors)
    let hashed = |algorithm: u8| {
        let body = [&[algorithm, 0, 0, 0, 0, 0, 0, 0][..], &sha256(b"another")].concat();
        status(with(0, &[], &|maker, bytes| {
            maker.run(&[0, 0], bytes, stored).section(b"hash", &body);
        }))
    };
    assert_eq!(hashed(1), Some(Status::Corrupt));
    assert_eq!(hashed(2), None);
}

/// What is wrong with a FILE body; None: what is missing are its runs.
fn status_of_files(features: u64, body: &[u8]) -> Option<Status> {
    status(decode(&Maker::new(features, None).section(b"FILE", body).file, &[], &Limits::default())).filter(|&status| status != Status::Truncated)
}

/// Section 5.1, and varints (section 2).
#[test]
fn file_bodies() {
    let corrupt = Some(Status::Corrupt);
    let body = grouped_body();
    assert_eq!(status_of_files(0, &body), None);
    (0..body.len()).for_each(|size| assert_eq!(status_of_files(0, &body[..size]), corrupt, "{}", size));
    assert_eq!(status_of_files(0, &[1, 8, 0, 0]), None); // nothing is known of it
    assert_eq!(status_of_files(0, &[2, 8, 0, 1, b'a', 1, 0, 1, b'b']), corrupt); // unknown beside others
    assert_eq!(status_of_files(0, &[1, 9, 0, 0]), corrupt);
    assert_eq!(status_of_files(0, &[0]), corrupt);
    assert_eq!(status_of_files(0, &[1, 16, 0, 0, 0, 0]), Some(Status::Unsupported));
    assert_eq!(status_of_files(0, &[1, 0, 1, 0, 0, 0]), corrupt); // Path_Prefix of the first

    let size = |bytes: &[u8]| status_of_files(0, &[&[1, 0, 0, 0][..], bytes, &[0]].concat());
    assert_eq!(size(&[0x80, 1]), None);
    assert_eq!(size(&[0x80, 0]), corrupt); // not the shortest form
    assert_eq!(size(&[255, 255, 255, 255, 255, 255, 255, 255, 127]), None);
    assert_eq!(size(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]), corrupt); // 2^64 - 1
    assert_eq!(size(&[128, 128, 128, 128, 128, 128, 128, 128, 128, 2]), corrupt); // 2^64
    assert_eq!(size(&[128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0]), corrupt);
    assert_eq!(size(&[255]), corrupt);

    // one tensor of a file of 100 bytes: from its Form on
    let tensor = |entry: &[u8]| status_of_files(0, &[&[1, 0, 0, 0, 100, 1][..], entry].concat());
    assert_eq!(tensor(&[0, 0, 1, b'a', 5, 1, 100]), None);
    assert_eq!(tensor(&[0, 0, 1, b'a', 5, 1, 101]), corrupt); // beyond the file
    assert_eq!(tensor(&[2, 0, 1, b'a', 1, 5, 1, 100]), corrupt); // with a gap of 1, too
    assert_eq!(tensor(&[2, 0, 1, b'a', 0, 5, 1, 100]), corrupt); // Gap 0
    assert_eq!(tensor(&[8, 0, 1, b'a', 5, 1, 100]), Some(Status::Unsupported));
    assert_eq!(tensor(&[0, 1, 0, 0, 1, b'a', 5, 1, 100]), corrupt); // refers to itself
    assert_eq!(tensor(&[1, 0, 1, b'a']), corrupt); // Like nothing
    assert_eq!(tensor(&[0, 0, 1, 0, 5, 1, 100]), corrupt); // zero byte
    assert_eq!(tensor(&[0, 0, 0, 22, 2, 4, 3]), None);
    assert_eq!(tensor(&[0, 0, 0, 23, 2, 4, 3]), Some(Status::Unsupported)); // Dtype
    assert_eq!(tensor(&[0, 0, 0, 2, 1, 3]), corrupt); // 12 bits
    assert_eq!(tensor(&[&[0, 0, 0, 22, 33][..], &[1; 33]].concat()), corrupt); // Rank
    let huge = [255, 255, 255, 255, 255, 255, 255, 255, 127];
    assert_eq!(tensor(&[&[0, 0, 0, 22, 3][..], &huge, &huge, &[0]].concat()), None);
    assert_eq!(tensor(&[&[0, 0, 0, 22, 3][..], &huge, &huge, &huge].concat()), corrupt);
    assert_eq!(tensor(&[0, 0, 0, 0, 2, b'Q', b'4', 1, 5, 50]), None);
    assert_eq!(tensor(&[0, 0, 0, 0, 2, b'F', b'4', 1, 2, 1]), corrupt); // it has a number
    assert_eq!(tensor(&[0, 0, 0, 0, 0, 1, 5, 50]), corrupt); // Dtype_Size
    assert_eq!(tensor(&[4, 0, 0, 5, 0, 1, 3, 0, 0, 0, 0]), None);
    assert_eq!(tensor(&[4, 0, 0, 5, 0, 0, 3, 0, 0, 0, 0]), corrupt); // Generation
    assert_eq!(tensor(&[4, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0]), corrupt); // Measure
    assert_eq!(tensor(&[4, 0, 0, 5, 0, 1, 4, 0, 0, 0, 0]), Some(Status::Unsupported));

    // a name twice in a file, and in two
    let two = [&[1, 0, 0, 1, b'a', 100, 2][..], &[0, 0, 1, b'w', 5, 0], &[1, 1, 0, 1, 0]].concat();
    assert_eq!(status_of_files(0, &two), corrupt);
    let two = [&[2, 0, 0, 1, b'a', 100, 1][..], &[0, 0, 1, b'w', 5, 0], &[0, 0, 1, b'b', 100, 1], &[1, 1, 0, 1, 0]].concat();
    assert_eq!(status_of_files(0, &two), None);
}

/// Section 8.3: masks by gaps. A tree of two leaves, 0 and 1, has one mask, which is the block.
#[test]
fn gaps() {
    let array = |mode: u8, k: u8, lists: &[u8], ones: &[usize]| {
        let mut bytes = vec![0; 256];
        ones.iter().for_each(|&position| bytes[position] = 1);
        let payload = [&[2, 0, 1, 0x11, mode, k, 0, 0][..], lists].concat();
        decode_array(&block(0, 0, [0x20, 0, 0], &payload, &bytes, 0), 256, 0, None).map(|array| assert_eq!(array, bytes))
    };
    // s = 6: gaps 5, 64 + 3 and 0
    let low: u32 = 5 | 3 << 6;
    let low = &low.to_le_bytes()[..3];
    let with = |quotients: &[u8]| [low, quotients].concat();
    assert_eq!(array(33, 3, &with(&[0b1101]), &[5, 73, 74]), Ok(()));
    let corrupt = Some(Status::Corrupt);
    assert_eq!(status(array(33, 3, &with(&[0b1_1101]), &[5, 73, 74])), corrupt); // a bit behind the last
    assert_eq!(status(array(33, 3, &with(&[0b0101]), &[])), corrupt); // they end after the payload
    assert_eq!(status(array(33, 3, &with(&[0b0100_0001, 1]), &[])), corrupt); // beyond the elements
    assert_eq!(status(array(33, 3, &[low[0], low[1], low[2] | 4, 0b1101], &[])), corrupt); // unused bits of Low
    assert_eq!(status(array(33, 0, &[], &[])), corrupt); // K
    assert_eq!(status(array(65, 1, &[0; 9], &[])), corrupt); // Mode
    let others: Vec<usize> = (0..256).filter(|i| ![5, 73, 74].contains(i)).collect();
    assert_eq!(array(34, 3, &with(&[0b1101]), &others), Ok(()));
    // K = n in as many words, with s = 0
    let mut all = [&[2, 0, 1, 0x11, 21, 0, 1, 0][..], &[255; 32]].concat();
    let decoded = |payload: &[u8]| decode_array(&block(0, 0, [0x20, 0, 0], payload, &[1; 256], 0), 256, 0, None);
    assert_eq!(decoded(&all), Ok(vec![1; 256]));
    all[5] = 1;
    assert_eq!(status(decoded(&all)), corrupt); // K = 257
}

/// Section 7.5: bare blocks.
#[test]
fn arrays() {
    let several = |parts: &[&[u8]]| (0..).zip(parts).flat_map(|(number, part)| stored(7, number, part)).collect::<Vec<u8>>();
    assert_eq!(decode_array(&several(&[b"abcd", b"efgh", b"i"]), 9, 7, None), Ok(b"abcdefghi".to_vec()));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"ef", b"ghi"]), 9, 7, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efghi"]), 9, 7, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efgh"]), 9, 7, None)), Some(Status::Truncated));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efgh"]), 4, 7, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd"]), 4, 8, None)), Some(Status::Checksum)); // another position
    assert_eq!(decode_array(&[], 0, 0, None), Ok(Vec::new()));
    let coded = several(&[b"abcd", b"efgh"]);
    (0..coded.len()).for_each(|size| assert_eq!(status(decode_array(&coded[..size], 8, 7, None)), Some(Status::Truncated)));

    let delta = same(0, 0, b"abcd");
    assert_eq!(decode_array(&delta, 4, 0, Some(b"abcd")), Ok(b"abcd".to_vec()));
    assert_eq!(status(decode_array(&delta, 4, 0, None)), Some(Status::BaseMissing));
    assert_eq!(status(decode_array(&delta, 4, 0, Some(b"abc"))), Some(Status::BaseWrong));
    assert_eq!(status(decode_array(&delta, 4, 0, Some(b"abcx"))), Some(Status::BaseWrong));
    // 16 classes: a threshold for each of 15 keys, the last of which all elements have; and classes without a prediction
    let thresholds: Vec<u8> = (1..16).collect();
    let classes = |prediction: u8, base_crc| {
        let payload = [&thresholds[..], &[1, 0]].concat();
        block(0, 0, [0x20, prediction, 0x87], &payload, &[0x40; 32], base_crc)
    };
    assert_eq!(decode_array(&classes(1, crc32c(&[0x40; 32])), 32, 0, Some(&[0x40; 32])), Ok(vec![0x40; 32]));
    assert_eq!(status(decode_array(&classes(0, 0), 32, 0, Some(&[0x40; 32]))), Some(Status::Corrupt));
}

#[test]
fn limits() {
    let file = grouped(0, &[], |maker, bytes| {
        maker.run(&[0, 0], bytes, stored);
    });
    let limits = |section, decoded, tables| status(decode(&file, &[], &Limits { section, decoded, tables, chain: 0 }));
    let (index, decoded) = (u64::from_le_bytes(file[file.len() - 32..file.len() - 24].try_into().unwrap()) - 24, TEXT.len() as u64 + 15);
    assert_eq!(limits(index, decoded, 1 << 12), None);
    assert_eq!(limits(index - 1, decoded, 1 << 12), Some(Status::Limit));
    assert_eq!(limits(index, decoded - 1, 1 << 12), Some(Status::Limit));
    assert_eq!(limits(index, decoded, 1 << 8), Some(Status::Limit));
}

/// Section 9.4: files as a base, by the tables of the snapshot that needs them, or by their own header.
#[test]
fn bases() {
    let with_header = |json: &str, data: &[u8]| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), data].concat();
    let json = r#"{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let file = with_header(json, b"abcd");
    // a delta of a file of `size` bytes, in which the tensor w is the last; its base is what `base` is
    let delta = |size: usize, base: &ItemOf<'_>| {
        let identity = Maker::new(0, None).files(&[], &[(&[], &[*base])]).identity();
        let body = [&[1, 0, 0, 0, size as u8, 1, 2, 0, 1, b'w', size as u8 - 4, 5, 1, 4][..]].concat();
        let data = [&vec![b'x'; size - 4][..], b"abcd"].concat();
        let mut maker = Maker::new(2, Some(identity));
        maker.files(&body, &[(&data, &[("w", 0, "U8", &[4], b"abcd")])]);
        maker.run(&[0, 0], &data[..size - 4], stored).run(&[1, 0, 1, 0, 1], b"abcd", same);
        maker.end(&[])
    };
    let w: ItemOf<'_> = ("w", 0, "U8", &[4], b"abcd");
    let find = |file: &[u8], base: &[u8]| status(decode(file, &[Base::from_bytes(base.to_vec())], &Limits::default()));
    assert_eq!(find(&delta(20, &w), &file), None); // by the header
    assert_eq!(find(&delta(20, &w), b"0123456789ABCDEFabcd"), None); // by the tables
    assert_eq!(find(&delta(20, &w), b"0123456789ABCDEFabce"), Some(Status::BaseWrong));
    assert_eq!(find(&delta(20, &w), b"0123456789ABCDEF-abcd"), Some(Status::BaseWrong)); // another size, and no header
    assert_eq!(find(&delta(20, &("", 1, "U8", &[4], b"abcd")), b"abcd"), None); // one item
    assert_eq!(status(decode(&delta(20, &w), &[], &Limits::default())), Some(Status::BaseMissing));

    let is_one = |json: &str| find(&delta(20, &w), &with_header(json, b"abcd")).is_none();
    let with = |more: &str| is_one(&json.replace("}}", &format!("{}}}}}", more)));
    let nested = |depth: usize| format!(",\"a\":{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(is_one(json) && with(&nested(62)) && !with(&nested(63))); // both objects count
    for good in [r#","a":[1.5e3,-0,0.0E-1,true,false,null,"\ud83d\ude00\/",{}]"#, " \t\n\r", r#","":{"":0,"a":0}"#] {
        assert!(with(good), "{}", good);
    }
    assert!(is_one(&format!("{} \n", json)) && is_one(&json.replace("{\"w\"", "{\"__metadata__\":[{\"a\":0}],\"\\u0077\"")));
    let bad = [
        r#","a":01"#,
        r#","a":+1"#,
        r#","a":1."#,
        r#","a":.5"#,
        r#","a":-"#,
        r#","a":1e"#,
        r#","a":tru"#,
        r#","a":"\ud800""#,
        r#","a":"\udc00\ud800""#,
        r#","a":"\x""#,
        r#","a":"\u12g4""#,
        ",\"a\":\"\t\"",
        r#","a":[1,]"#,
        r#","a":[1 2]"#,
        r#","a":{"b":0,"\u0062":0}"#,
        r#","dtype":"U8""#,
        ",",
        r#","a""#,
    ];
    for bad in bad {
        assert!(!with(bad), "{}", bad);
    }
    for (from, to) in
        [("[4]", "[04]"), ("[4]", "[4.0]"), ("[4]", "[-4]"), ("[4]", "[3]"), ("[4]", "4"), ("[0,4]", "[0,4,4]"), ("[0,4]", "[1,4]"), ("}}", "}}x")]
    {
        assert!(!is_one(&json.replace(from, to)), "{}", to);
    }
    assert!(!is_one(&json.replace("{\"w\"", " {\"w\"")) && !is_one(&json.replace("{\"w\"", "{\"__metadata__\":{\"a\":\"\\ud800\"},\"w\"")));
    assert!(!is_one(&json.replace("{\"w\"", "{\"__metadata__\":0,\"__metadata__\":0,\"w\"")) && !is_one(&json.replace("\"w\"", "\"w\\u0000\"")));
    // a surrogate that is encoded in UTF-8
    let surrogate = json.replace("}}", ",\"a\":\"???\"}}").into_bytes();
    let at = surrogate.windows(3).position(|window| window == b"???").unwrap();
    let mut file = [&(surrogate.len() as u64).to_le_bytes()[..], &surrogate, b"abcd"].concat();
    assert_eq!(find(&delta(20, &w), &file), None);
    file[8 + at..11 + at].copy_from_slice(&[0xED, 0xA0, 0x80]);
    assert_eq!(find(&delta(20, &w), &file), Some(Status::BaseWrong));
}

/// Chains of deltas.
#[test]
fn chains() {
    let find = |file: &str, bases: &[&str]| {
        let bases: Vec<Base> = bases.iter().map(|name| Base::from_bytes(read(name))).collect();
        status(decode(&read(file), &bases, &Limits::default()))
    };
    assert_eq!(find("valid/chain_2.lmc", &["valid/chain_0.lmc", "valid/chain_1.lmc"]), None);
    assert_eq!(find("valid/chain_2.lmc", &[]), Some(Status::BaseMissing));
    // two that say that they are the base: the damaged one does not hide the other
    assert_eq!(find("valid/chain_1.lmc", &["bases/damaged.lmc", "valid/chain_0.lmc"]), None);
    assert_eq!(find("valid/chain_1.lmc", &["valid/chain_0.lmc", "bases/damaged.lmc"]), None);
    // a delta back to what it was coded against: no circle
    assert_eq!(find("valid/chain_back.lmc", &["valid/chain_1.lmc", "valid/chain_back.lmc"]), Some(Status::BaseMissing));
    assert_eq!(find("valid/chain_back.lmc", &["valid/chain_1.lmc", "valid/chain_back.lmc", "valid/chain_0.lmc"]), None);
    // a long one
    let mut bases: Vec<Vec<u8>> = Vec::new();
    let mut base = None;
    for i in 0..=256u16 {
        let mut maker = Maker::new(if i == 0 { 0 } else { 2 }, base);
        maker.files(&[1, 0, 0, 0, 2, 0], &[(&i.to_le_bytes(), &[("", 1, "U8", &[2], &i.to_le_bytes())])]);
        base = Some(maker.identity());
        bases.push(maker.run(&[0, 0], &i.to_le_bytes(), stored).end(&[]));
    }
    let delta = bases.pop().unwrap();
    let bases: Vec<Base> = bases.into_iter().map(Base::from_bytes).collect();
    assert_eq!(status(decode(&delta, &bases, &Limits::default())), None);
    assert_eq!(status(decode(&delta, &bases, &Limits { chain: 255, ..Limits::default() })), Some(Status::Limit));
    // the limit holds for the base, too
    let limits = Limits { decoded: 10, ..Limits::default() };
    assert_eq!(status(decode(&read("valid/chain_1.lmc"), &[Base::from_bytes(read("valid/chain_0.lmc"))], &limits)), Some(Status::Limit));
}

// -- damaged files --

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn damage(file: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(file.len());
    match random.below(12) {
        0 => file.truncate(at),
        1 => drop(file.drain(at..at + random.below(9).min(file.len() - at))),
        2 => drop(file.splice(at..at, (0..random.below(9)).map(|i| i as u8).collect::<Vec<_>>())),
        3 if !other.is_empty() => {
            let (from, size) = (random.below(other.len()), random.below(200));
            let piece = other[from..].iter().take(size).copied().collect::<Vec<_>>();
            drop(file.splice(at..(at + size).min(file.len()), piece));
        }
        4 => file[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
        5 => file[at..].iter_mut().take(1 << random.below(4)).for_each(|byte| *byte = 0xFF),
        6 => file[at] = file[at].wrapping_add(1),
        7 => file[at] = file[at].wrapping_sub(1),
        8 => file[at..].iter_mut().take(random.below(20)).for_each(|byte| *byte = random.next() as u8),
        _ => file[at] ^= 1 << random.below(8),
    }
}

/// Puts the right CRCs into what can be recognised, so that damage gets past them.
fn repair(file: &mut [u8]) {
    fn field<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
        file.get(at..at.checked_add(N)?)?.try_into().ok()
    }
    fn put(file: &mut [u8], at: usize, crc: u32) -> Option<()> {
        file.get_mut(at..at + 4)?.copy_from_slice(&crc.to_le_bytes());
        Some(())
    }
    fn walk(file: &mut [u8]) -> Option<()> {
        put(file, 76, crc32c(file.get(..76)?))?;
        let mut at = 80;
        loop {
            let kind = field::<4>(file, at)?;
            put(file, at + 16, crc32c(file.get(at..at + 16)?))?;
            let size = usize::try_from(u64::from_le_bytes(field(file, at + 8)?)).ok()?;
            let body = at + 24..at.checked_add(24)?.checked_add(size)?;
            let crc = crc32c(file.get(body.clone())?);
            put(file, at + 20, crc)?;
            let run = field::<4>(file, at + 4)?;
            at = body.end;
            if &kind == b"INDX" {
                let size = file.len() as u64;
                let fields = [(body.start - 24) as u64, (at + 24 - body.start) as u64, size];
                file.get_mut(at..at + 24)?.copy_from_slice(&fields.map(u64::to_le_bytes).concat());
                return put(file, at + 28, crc32c(file.get(at..at + 28)?));
            }
            for number in 0u32.. {
                if &kind != b"RUN " || file.get(at) != Some(&0xB1) {
                    break;
                }
                let crc = crc32c(&[&run[..], &number.to_le_bytes(), file.get(at..at + 20)?].concat());
                put(file, at + 20, crc)?;
                at = at.checked_add(24)?.checked_add(u32::from_le_bytes(field(file, at + 8)?) as usize)?;
            }
        }
    }
    walk(file);
}

/// Whatever the damage: no panic (the tests are compiled with checks for overflow), no hang, no false success.
#[test]
fn damaged_files() {
    let count = 100 * env::var("LMC_FUZZ").map_or(200, |hundreds| hundreds.parse::<usize>().expect("LMC_FUZZ"));
    let mut names: Vec<PathBuf> = ["valid", "invalid"]
        .iter()
        .flat_map(|folder| fs::read_dir(vectors().join(folder)).expect("LMC_VECTORS").map(|entry| entry.expect("an entry").path()))
        .filter(|path| path.extension().map_or(false, |extension| extension == "lmc"))
        .collect();
    names.sort();
    let files: Vec<Vec<u8>> = names.iter().map(|name| fs::read(name).expect("a vector")).filter(|file| file.len() < 50_000).collect();
    let base_names =
        ["bases/pool.bin", "bases/weights.safetensors", "valid/chain_1.lmc", "valid/chain_0.lmc", "valid/example_stored.lmc", "bases/seconds.bin"];
    let mut bases: Vec<Base> = base_names.iter().map(|name| Base::from_bytes(read(name))).collect();
    bases.push(Base::read(&vectors().join("bases/directory")).expect("a directory"));
    let limits = Limits { section: 1 << 26, decoded: 1 << 24, tables: 1 << 26, chain: 10 };

    let mut random = Random(env::var("LMC_SEED").map_or(1, |seed| seed.parse().expect("LMC_SEED")));
    let mut seen = std::collections::BTreeMap::new();
    for i in 0..count {
        let original = &files[random.below(files.len())];
        let mut file = original.clone();
        let other = &files[random.below(files.len())];
        for _ in 0..1 + random.below(3) {
            if !file.is_empty() {
                damage(&mut file, other, &mut random);
            }
        }
        let repaired = random.below(4) > 0;
        if repaired {
            repair(&mut file);
        }
        let name = match decode(&file, &bases, &limits) {
            Ok(_) if repaired => "OK",
            Ok(snapshot) => {
                // a bit may mend an invalid vector; some of a payload do not matter (section 7.6: symbols of exceptions)
                let is_right = decode(original, &bases, &limits).map_or(true, |original| original == snapshot);
                assert!(is_right, "damaged file {} was accepted", i);
                "intact"
            }
            Err(error) => error.status.name(),
        };
        *seen.entry(name).or_insert(0) += 1;
        // a base may be damaged, too, or be no more than a name
        if i % 16 == 0 {
            let mut base = read(base_names[random.below(base_names.len())]);
            damage(&mut base, other, &mut random);
            repair(&mut base);
            let base = [Base::from_bytes(base)];
            let _ = decode(&read("valid/delta_base_safetensors.lmc"), &base, &limits);
            let _ = decode(&read("valid/chain_1.lmc"), &base, &limits);
        }
    }
    println!("{:?}", seen);
}
