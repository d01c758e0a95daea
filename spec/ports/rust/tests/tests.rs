//! What spec/check_vectors.py does not ask: arrays in memory, limits, bases, and many damaged files.
//! LMC_VECTORS: the folder spec/vectors; LMC_FUZZ: how many damaged files, in hundreds. SPDX-License-Identifier: MIT

use lmc::{crc32c, decode, decode_array, sha256, Base, Error, Limits, Status};
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

/// Section 7.5: the blocks of section 14's files, outside of them.
#[test]
fn arrays() {
    let file = read("valid/example_tree.lmc");
    let (block, array) = (&file[0xD4..0x101], read("valid/example_tree.bin"));
    assert_eq!(decode_array(block, 48, 0, None).as_ref(), Ok(&array));
    assert_eq!(decode_array(&[], 0, 0, None), Ok(Vec::new()));
    assert_eq!(decode_array(block, 48, 0, Some(&[0; 48])).as_ref(), Ok(&array)); // the block has Prediction 0
    assert_eq!(status(decode_array(block, 48, 1, None)), Some(Status::Checksum)); // another position
    assert_eq!(status(decode_array(block, 47, 0, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(block, 49, 0, None)), Some(Status::Truncated));
    assert_eq!(status(decode_array(block, 0, 0, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&file[0xD4..0x102], 48, 0, None)), Some(Status::Corrupt));
    (0..block.len()).for_each(|size| assert_eq!(status(decode_array(&block[..size], 48, 0, None)), Some(Status::Truncated)));

    let (delta, base) = (&read("valid/example_delta.lmc")[0x106..0x124], read("valid/example_stored.bin"));
    assert_eq!(decode_array(delta, 8, 0, Some(&base)), Ok(read("valid/example_delta.bin")));
    assert_eq!(status(decode_array(delta, 8, 0, None)), Some(Status::BaseMissing));
    assert_eq!(status(decode_array(delta, 8, 0, Some(&base[1..]))), Some(Status::BaseWrong));
    assert_eq!(status(decode_array(delta, 8, 0, Some(&[0; 8]))), Some(Status::BaseWrong));

    // several: all have the size of the first but the last, which has less
    let stored = |number: u32, bytes: &[u8]| {
        let mut header =
            [&[0xB1, 0, 0, 0][..], &[bytes.len() as u8, 0, 0, 0], &[bytes.len() as u8, 0, 0, 0], &crc32c(bytes).to_le_bytes(), &[0; 4]].concat();
        let crc = crc32c(&[&7u32.to_le_bytes()[..], &number.to_le_bytes(), &header].concat());
        header.extend(crc.to_le_bytes());
        header.extend(bytes);
        header
    };
    let several = |parts: &[&[u8]]| (0..).zip(parts).flat_map(|(number, part)| stored(number, part)).collect::<Vec<u8>>();
    assert_eq!(decode_array(&several(&[b"abcd", b"efgh", b"i"]), 9, 7, None), Ok(b"abcdefghi".to_vec()));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"ef", b"ghi"]), 9, 7, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efghi"]), 9, 7, None)), Some(Status::Corrupt));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efgh"]), 9, 7, None)), Some(Status::Truncated));
    assert_eq!(status(decode_array(&several(&[b"abcd", b"efgh"]), 4, 7, None)), Some(Status::Corrupt));
}

#[test]
fn limits() {
    let file = read("valid/example_stored.lmc");
    let limits = |section, decoded| Limits { section, decoded };
    assert!(decode(&file, &[], &limits(302, 8)).is_ok());
    assert_eq!(status(decode(&file, &[], &limits(301, 8))), Some(Status::Limit));
    assert_eq!(status(decode(&file, &[], &limits(302, 7))), Some(Status::Limit));
    let (delta, base) = (read("valid/chain_1.lmc"), || Base::from_bytes(read("valid/chain_0.lmc")));
    assert!(decode(&delta, &[base()], &Limits::default()).is_ok());
    assert_eq!(status(decode(&delta, &[base()], &limits(1 << 20, 10))), Some(Status::Limit));
}

#[test]
fn bases() {
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
    let limits = Limits { section: 1 << 26, decoded: 1 << 24 };

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
