//! What spec/check_vectors.py does not ask: arrays in memory, limits, bases, and many damaged files.
//! LMC_VECTORS: the folder spec/vectors; LMC_FUZZ: how many damaged files, in hundreds. SPDX-License-Identifier: MIT

use lmc::{crc32c, decode, decode_array, sha256, Base, Error, Fingerprint, Limits, Status};
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
    let text: Vec<u8> = (0..1000).map(|i| (i * i) as u8).collect();
    let slow = |bytes: &[u8]| {
        let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
    };
    (0..100).for_each(|n| assert_eq!(crc32c(&text[n..n * 10]), slow(&text[n..n * 10])));
    let hex = |bytes: &[u8]| sha256(bytes).iter().map(|byte| format!("{:02x}", byte)).collect::<String>();
    assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    // the largest tail that needs one block, and the least that needs two
    assert_eq!(hex(&[b'a'; 55]), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    assert_eq!(hex(&[b'a'; 56]), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
}

// -- files made by hand --

/// A file in the making: its sections so far, their entries for the index, and the rows of their blocks.
struct Maker {
    file: Vec<u8>,
    entries: Vec<u8>,
    n_sections: u32,
    rows: Vec<u8>,
    items: Vec<(Vec<u8>, Fingerprint)>,
}

/// Name, Type, Dtype, Shape and bytes of an item.
type ItemOf<'a> = (&'a str, u8, &'a str, &'a [u64], &'a [u8]);

impl Maker {
    fn new(features: u64, base: Option<Fingerprint>) -> Maker {
        let mut file = [&MAGIC[..], &[1, 7, 1, 0, 0, 0, 0, 0], &features.to_le_bytes(), &[0; 8], &base.unwrap_or_default(), &[0; 12]].concat();
        file.extend(crc32c(&file).to_le_bytes());
        Maker { file, entries: Vec::new(), n_sections: 0, rows: Vec::new(), items: Vec::new() }
    }

    /// A section, behind which such blocks stand.
    fn section_of(&mut self, kind: &[u8; 4], body: &[u8], blocks: &[u8]) -> &mut Maker {
        let mut header = [&kind[..], &(body.len() as u64).to_le_bytes()].concat();
        header.extend(crc32c(&header).to_le_bytes());
        header.extend(crc32c(body).to_le_bytes());
        self.file.extend([&header[..], body, blocks].concat());
        self.n_sections += 1;
        self.entries.extend(kind);
        self.entries.extend(varint((20 + body.len() + blocks.len()) as u64));
        if kind[0].is_ascii_uppercase() {
            self.entries.extend(varint(body.len() as u64));
            self.entries.extend(body);
        }
        self
    }

    fn section(&mut self, kind: &[u8; 4], body: &[u8]) -> &mut Maker {
        self.section_of(kind, body, &[])
    }

    /// A FILE section, with the content and the items of each of its files.
    fn files(&mut self, body: &[u8], files: &[(&[u8], &[ItemOf<'_>])]) -> &mut Maker {
        self.section(b"FILE", body);
        for (data, items) in files {
            self.entries.extend(crc32c(data).to_le_bytes());
            for (name, kind, dtype, shape, bytes) in *items {
                let mut text = [b"LMC tensor 3\0", &[*kind][..]].concat();
                for chunk in bytes.chunks(262_144) {
                    text.extend(crc32c(chunk).to_le_bytes());
                    let sum = (0..).zip(chunk).fold(0u64, |sum, (i, &byte)| sum.wrapping_add(u64::from(byte) << (i % 8 * 8)));
                    text.extend(sum.to_le_bytes());
                }
                text.push(dtype.len() as u8);
                text.extend(dtype.bytes());
                text.push(shape.len() as u8);
                shape.iter().for_each(|extent| text.extend(extent.to_le_bytes()));
                text.extend((bytes.len() as u64).to_le_bytes());
                self.entries.extend(fingerprint(&text));
                self.items.push((name.as_bytes().to_vec(), fingerprint(&text)));
            }
        }
        self.items.sort();
        self
    }

    /// A RUN section of blocks of 2^14 bytes, of which `fields` are Prediction and segments.
    fn run(&mut self, fields: &[u8], bytes: &[u8], block: fn(u32, &[u8]) -> Vec<u8>) -> &mut Maker {
        let mut blocks = Vec::new();
        for (number, part) in (0..).zip(bytes.chunks(1 << 14)) {
            let block = block(number, part);
            self.rows.extend((block.len() as u32).to_le_bytes());
            self.rows.extend(&block[20..24]);
            blocks.extend(block);
        }
        let body = [&varint(bytes.len() as u64)[..], &varint(1 << 14), fields].concat();
        self.section_of(b"RUN ", &body, &blocks)
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut text = b"LMC snapshot 3\0".to_vec();
        for (name, fingerprint) in &self.items {
            text.extend((name.len() as u32).to_le_bytes());
            text.extend(name);
            text.extend(fingerprint);
        }
        fingerprint(&text)
    }

    /// The whole file, with an index that has `end` behind its entries.
    fn end(&mut self, end: &[u8]) -> Vec<u8> {
        let body = [&self.file[..64], &self.fingerprint(), &self.n_sections.to_le_bytes(), &[0; 4], &self.entries, end].concat();
        let rows = self.rows.clone();
        self.section(b"BLKS", &rows);
        let at = self.file.len() as u64;
        self.section(b"INDX", &body);
        let size = self.file.len() as u64;
        let mut trailer = [at, size - at, size + 40].iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<u8>>();
        trailer.extend([1, 9, 0, 0]);
        trailer.extend(crc32c(&trailer).to_le_bytes());
        trailer.extend([&[0x94], &MAGIC[1..]].concat());
        self.file.extend(trailer);
        self.file.clone()
    }
}

const MAGIC: [u8; 8] = [0x95, 0x4C, 0x4D, 0x43, 0x0D, 0x0A, 0x1A, 0x0A];

fn fingerprint(text: &[u8]) -> Fingerprint {
    sha256(text)[..16].try_into().unwrap()
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

/// A block of bytes as elements; `fields` are Coding and Grouping.
fn block(number: u32, fields: [u8; 2], payload: &[u8], bytes: &[u8]) -> Vec<u8> {
    let payload_crc = if fields[0] & 4 == 0 { 0 } else { crc32c(payload) };
    let numbers = [bytes.len() as u32, payload.len() as u32, crc32c(bytes), payload_crc];
    let mut block = [&[0xB2, 1][..], &fields, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()].concat();
    let crc = crc32c(&[&number.to_le_bytes()[..], &block].concat());
    block.extend(crc.to_le_bytes());
    block.extend(payload);
    block
}

fn stored(number: u32, bytes: &[u8]) -> Vec<u8> {
    block(number, [0, 0], bytes, bytes)
}

const PREDICTED: u8 = 0x25; // Coding: planes of differences to a prediction

/// All bytes are those of the prediction.
fn same(number: u32, bytes: &[u8]) -> Vec<u8> {
    block(number, [PREDICTED, 0], &[1, 0], bytes)
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

/// Section 4: streams, references, header text, extension records, sections that a decoder need not know.
#[test]
fn streams() {
    let plain = grouped(0, &[], |maker, bytes| {
        maker.run(&[0], bytes, stored);
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
    // the text of the header in two segments; and the second tensor by the first
    let n = TEXT.len();
    let text = [&[2, 2, 5, 1][..], &varint(n as u64 - 5), &[4, 5]].concat();
    let own = [&[3, 1, 4, 2][..], &varint(n as u64 + 2)].concat();
    let by_reference = |text: &[u8], own: &[u8], maker: &mut Maker, bytes: &[u8]| {
        maker.run(&[0], &bytes[..1], stored).run(text, &bytes[1..1 + n], same).section(b"pad ", &[0; 5]);
        maker.run(&[0], &bytes[1 + n..7 + n], stored).run(own, &bytes[7 + n..11 + n], same).run(&[0], &bytes[11 + n..], stored);
        maker.section(b"any ", b"thing");
    };
    assert_eq!(with(2, &[], &|maker, bytes| by_reference(&text, &own, maker, bytes)).as_ref(), Ok(&snapshot));
    assert_eq!(status(with(0, &[], &|maker, bytes| by_reference(&text, &own, maker, bytes))), Some(Status::Corrupt)); // not allowed: Own
    let with_text = |text: &[u8]| status(with(2, &[], &|maker, bytes| by_reference(text, &own, maker, bytes)));
    let one = |end: &[u8]| with_text(&[&[2, 1][..], &varint(n as u64), end].concat()); // segment: from Reference on
    assert_eq!(one(&[1]), None);
    assert_eq!(one(&[1, 2, 3, b'a', b'b', b'c']), None); // an extension record
    assert_eq!(one(&[1, 3, 3, b'a', b'b', b'c']), Some(Status::Unsupported)); // a critical one
    assert_eq!(one(&[1, 2, 4, b'a', b'b', b'c']), Some(Status::Corrupt)); // it ends early
    assert_eq!(one(&[1, 2, 0, 2, 0]), Some(Status::Corrupt)); // the same Tag twice
    assert_eq!(one(&[2, 0]), Some(Status::Corrupt)); // Offset 0
    assert_eq!(one(&[2, 1]), Some(Status::Corrupt)); // beyond the text
    assert_eq!(one(&[5]), Some(Status::Corrupt)); // the directory's
    assert_eq!(one(&[3]), Some(Status::Corrupt)); // of file -1
    assert_eq!(one(&[13]), Some(Status::Corrupt)); // of file 3
    assert_eq!(one(&[0]), Some(Status::Checksum)); // zeros are not what it was coded against
    assert_eq!(with_text(&[2, 1, 0, 1]), Some(Status::Corrupt)); // an empty segment
    assert_eq!(with_text(&[&[6, 1][..], &varint(n as u64), &[1]].concat()), Some(Status::Unsupported)); // Prediction

    // extension records of the FILE and the index
    let whole = |maker: &mut Maker, bytes: &[u8]| {
        maker.run(&[0], bytes, stored);
    };
    assert_eq!(with(0, &[0, 2, 7, 7, 4, 0], &whole).as_ref(), Ok(&snapshot));
    assert_eq!(status(with(0, &[1, 0], &whole)), Some(Status::Unsupported));
    assert_eq!(status(with(0, &[0], &whole)), Some(Status::Corrupt));
    assert_eq!(status(with(64, &[], &whole)), Some(Status::Unsupported));
    assert_eq!(status(with(1, &[], &whole)), Some(Status::Corrupt)); // Base without a base
    assert_eq!(
        status(with(0, &[], &|maker, bytes| {
            maker.section(b"Any ", b"").run(&[0], bytes, stored);
        })),
        Some(Status::Unsupported)
    );
    assert_eq!(
        status(with(0, &[], &|maker, bytes| {
            maker.section(b"an-y", b"").run(&[0], bytes, stored);
        })),
        Some(Status::Corrupt)
    );

    // hashes of something else: who knows the algorithm looks at them (right ones are in the vectors)
    let hashed = |algorithm: u8| {
        let body = [&[algorithm, 0, 0, 0, 0, 0, 0, 0][..], &sha256(b"another")].concat();
        status(with(0, &[], &|maker, bytes| {
            maker.run(&[0], bytes, stored).section(b"hash", &body);
        }))
    };
    assert_eq!(hashed(1), Some(Status::Corrupt));
    assert_eq!(hashed(2), None);
}

/// What is wrong with a FILE body; None: what is missing are its runs.
fn status_of_files(features: u64, body: &[u8]) -> Option<Status> {
    status(decode(&Maker::new(features, None).section(b"FILE", body).file, &[], &Limits::default())).filter(|&status| status != Status::Truncated)
}

/// Section 4.1, and varints (section 2).
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
    assert_eq!(tensor(&[0, 0, 0, 27, 2, 2, 3]), None); // C128
    assert_eq!(tensor(&[0, 0, 0, 28, 2, 2, 3]), Some(Status::Unsupported)); // Dtype
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
    assert_eq!(tensor(&[4, 0, 0, 5, 0, 1, 4, 0, 0, 0, 0]), None); // a Measure of a later version

    // a name twice in a file, and in two
    let two = [&[1, 0, 0, 1, b'a', 100, 2][..], &[0, 0, 1, b'w', 5, 0], &[1, 1, 0, 1, 0]].concat();
    assert_eq!(status_of_files(0, &two), corrupt);
    let two = [&[2, 0, 0, 1, b'a', 100, 1][..], &[0, 0, 1, b'w', 5, 0], &[0, 0, 1, b'b', 100, 1], &[1, 1, 0, 1, 0]].concat();
    assert_eq!(status_of_files(0, &two), None);
}

/// R4-24 to R4-26: paths of empty files.
#[test]
fn paths() {
    let paths = |paths: &[(&str, u8)]| {
        let entry = |(path, form): &(&str, u8)| {
            let end: &[u8] = if *form == 1 { &[] } else { &[0, 0] };
            [&[*form, 0, path.len() as u8][..], path.as_bytes(), end].concat()
        };
        let body = [vec![paths.len() as u8], paths.iter().flat_map(entry).collect()].concat();
        status(decode(&Maker::new(0, None).section(b"FILE", &body).section(b"BLKS", &[]).file, &[], &Limits::default()))
    };
    let (fine, corrupt) = (Some(Status::Truncated), Some(Status::Corrupt));
    assert_eq!(paths(&[("a", 1), ("a/b", 0), ("a b", 0), ("a/b b", 0), ("a\\/..b", 0)]), fine);
    assert_eq!(paths(&[("a/b", 0), ("a", 0)]), corrupt);
    assert_eq!(paths(&[("a/b/c", 0), ("a b", 0), ("a", 0), ("a/b", 1)]), corrupt);
    assert_eq!(paths(&[("a", 0), ("b", 0), ("a", 1)]), corrupt);
    assert_eq!(paths(&[("", 0)]), fine);
    assert_eq!(paths(&[("", 1), ("a", 0)]), corrupt);
    for path in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "./a", "a/\0"] {
        assert_eq!(paths(&[(path, 0)]), corrupt, "{}", path);
    }
}

/// Section 6.3: masks by gaps. One class, of which the mask tells the elements that are 1; the prediction is zero.
#[test]
fn gaps() {
    let array = |mode: u8, k: u8, lists: &[u8], ones: &[usize]| {
        let mut bytes = vec![0; 256];
        ones.iter().for_each(|&position| bytes[position] = 1);
        let payload = [&[mode, k, 0, 0][..], lists, &[1, 2]].concat();
        decode_array(&block(0, [PREDICTED, 16], &payload, &bytes), 256, Some(&[0; 256])).map(|array| assert_eq!(array, bytes))
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
    let mut all = [&[21, 0, 1, 0][..], &[255; 32], &[1, 2]].concat();
    let decoded = |payload: &[u8]| decode_array(&block(0, [PREDICTED, 16], payload, &[1; 256]), 256, Some(&[0; 256]));
    assert_eq!(decoded(&all), Ok(vec![1; 256]));
    all[1] = 1;
    assert_eq!(status(decoded(&all)), corrupt); // K = 257
                                                // a tree's masks have none
    let tree = [&[2, 0, 1, 0x11, 21, 0, 1, 0][..], &[255; 32]].concat();
    assert_eq!(status(decode_array(&block(0, [0x20, 0], &tree, &[1; 256]), 256, None)), corrupt);
}

/// Section 10: arrays in memory.
#[test]
fn arrays() {
    let several = |parts: &[&[u8]]| (0..).zip(parts).flat_map(|(number, part)| stored(number, part)).collect::<Vec<u8>>();
    assert_eq!(decode_array(&several(&[b"abcd", b"efgh", b"i"]), 9, None), Ok(b"abcdefghi".to_vec()));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"ef", b"ghi"]), 9, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efghi"]), 9, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efgh"]), 9, None)), Some(Status::Truncated));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efgh"]), 4, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd"]), 3, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b""]), 3, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[&[0; (1 << 22) + 1]]), (1 << 22) + 1, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&stored(1, b"abcd"), 4, None)), Some(Status::Checksum)); // another number
    assert_eq!(decode_array(&[], 0, None), Ok(Vec::new()));
    let coded = several(&[b"abcd", b"efgh"]);
    (0..coded.len()).for_each(|size| assert_eq!(status(decode_array(&coded[..size], 8, None)), Some(Status::Truncated)));

    let delta = same(0, b"abcd");
    assert_eq!(decode_array(&delta, 4, Some(b"abcd")), Ok(b"abcd".to_vec()));
    assert_eq!(status(decode_array(&delta, 4, None)), Some(Status::BaseMissing));
    assert_eq!(status(decode_array(&delta, 4, Some(b"abc"))), Some(Status::BaseWrong));
    assert_eq!(status(decode_array(&delta, 4, Some(b"abcx"))), Some(Status::BaseWrong));
    // 16 classes: a threshold for each of 15 keys, the last of which all elements have; and classes without a prediction
    let thresholds: Vec<u8> = (1..16).collect();
    let classes = |coding: u8| block(0, [coding, 15], &[&thresholds[..], &[1, 0]].concat(), &[0x40; 32]);
    assert_eq!(decode_array(&classes(PREDICTED), 32, Some(&[0x40; 32])), Ok(vec![0x40; 32]));
    assert_eq!(status(decode_array(&classes(0x21), 32, Some(&[0x40; 32]))), Some(Status::Corrupt));
}

#[test]
fn limits() {
    let file = grouped(0, &[], |maker, bytes| {
        maker.run(&[0], bytes, stored);
    });
    let limits = |section, decoded, tables| status(decode(&file, &[], &Limits { section, decoded, tables, chain: 0 }));
    let (index, decoded) = (u64::from_le_bytes(file[file.len() - 32..file.len() - 24].try_into().unwrap()) - 20, TEXT.len() as u64 + 15);
    let tables = 3 * 3 + 2 * (10 + 2 * 8); // three paths, two names and shapes
    assert_eq!(limits(index, decoded, tables), None);
    assert_eq!(limits(index - 1, decoded, tables), Some(Status::Limit));
    assert_eq!(limits(index, decoded - 1, tables), Some(Status::Limit));
    assert_eq!(limits(index, decoded, tables - 1), Some(Status::Limit));
}

/// foreign-bases.md: files as a base, by the tables of the snapshot that needs them, or by their own header.
#[test]
fn bases() {
    let with_header = |json: &str, data: &[u8]| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), data].concat();
    let json = r#"{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let file = with_header(json, b"abcd");
    // a delta of a file of `size` bytes, in which the tensor w is the last; its base is what `base` is
    let delta = |size: usize, base: &ItemOf<'_>| {
        let base = Maker::new(0, None).files(&[], &[(&[], &[*base])]).fingerprint();
        let body = [&[1, 0, 0, 0, size as u8, 1, 2, 0, 1, b'w', size as u8 - 4, 5, 1, 4][..]].concat();
        let data = [&vec![b'x'; size - 4][..], b"abcd"].concat();
        let mut maker = Maker::new(1, Some(base));
        maker.files(&body, &[(&data, &[("w", 0, "U8", &[4], b"abcd")])]);
        maker.run(&[0], &data[..size - 4], stored).run(&[1, 1, 4, 1], b"abcd", same);
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
        let mut maker = Maker::new(u64::from(base.is_some()), base);
        maker.files(&[1, 0, 0, 0, 2, 0], &[(&i.to_le_bytes(), &[("", 1, "U8", &[2], &i.to_le_bytes())])]);
        base = Some(maker.fingerprint());
        bases.push(maker.run(&[0], &i.to_le_bytes(), stored).end(&[]));
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
        put(file, 60, crc32c(file.get(..60)?))?;
        let mut at = 64;
        loop {
            let kind = field::<4>(file, at)?;
            put(file, at + 12, crc32c(file.get(at..at + 12)?))?;
            let size = usize::try_from(u64::from_le_bytes(field(file, at + 4)?)).ok()?;
            let body = at + 20..at.checked_add(20)?.checked_add(size)?;
            let crc = crc32c(file.get(body.clone())?);
            put(file, at + 16, crc)?;
            at = body.end;
            if &kind == b"INDX" {
                let size = file.len() as u64;
                let fields = [(body.start - 20) as u64, (at + 20 - body.start) as u64, size];
                file.get_mut(at..at + 24)?.copy_from_slice(&fields.map(u64::to_le_bytes).concat());
                return put(file, at + 28, crc32c(file.get(at..at + 28)?));
            }
            for number in 0u32.. {
                if &kind != b"RUN " || file.get(at) != Some(&0xB2) {
                    break;
                }
                let payload = at + 24..at.checked_add(24)?.checked_add(u32::from_le_bytes(field(file, at + 8)?) as usize)?;
                if file.get(at + 2)? & 4 != 0 {
                    let crc = crc32c(file.get(payload.clone())?);
                    put(file, at + 16, crc)?;
                }
                let crc = crc32c(&[&number.to_le_bytes(), file.get(at..at + 20)?].concat());
                put(file, at + 20, crc)?;
                at = payload.end;
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
                // a bit may mend an invalid vector; some of a payload do not matter (symbols of exceptions)
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
