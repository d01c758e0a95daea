//! Section 2: CRC-32C and SHA-256.

/// CRC-32C (Castagnoli), reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Rows of 256: row 0 takes one byte, row k one byte that k more follow.
static TABLES: [[u32; 256]; 16] = crc_tables();

const fn crc_tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 16 {
        byte = 0;
        while byte < 256 {
            let crc = tables[k - 1][byte];
            tables[k][byte] = crc >> 8 ^ tables[0][(crc & 255) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// The register after some more bytes.
fn advance(mut crc: u32, bytes: &[u8]) -> u32 {
    let mut sixteens = bytes.chunks_exact(16);
    for chunk in &mut sixteens {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(chunk);
        bytes.iter_mut().zip(crc.to_le_bytes()).for_each(|(byte, crc)| *byte ^= crc);
        crc = (0..16).fold(0, |crc, i| crc ^ TABLES[15 - i][usize::from(bytes[i])]);
    }
    sixteens.remainder().iter().fold(crc, |crc, byte| crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)])
}

/// CRC-32C of `bytes`. crc32c(b"123456789") is 0xE3069283.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_of(&[bytes])
}

/// CRC-32C of several pieces, one after another.
pub(crate) fn crc32c_of(pieces: &[&[u8]]) -> u32 {
    !pieces.iter().fold(u32::MAX, |crc, piece| advance(crc, piece))
}

/// SHA-256 (FIPS 180-4): the fractional parts of the square roots of the first 8 primes ...
const SHA_START: [u32; 8] = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// ... and of the cube roots of the first 64.
const SHA_ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut state = SHA_START;
    let blocks = bytes.chunks_exact(64);
    let mut tail = blocks.remainder().to_vec();
    blocks.for_each(|block| sha_block(&mut state, block));
    tail.push(0x80);
    while tail.len() % 64 != 56 {
        tail.push(0);
    }
    tail.extend((bytes.len() as u64).wrapping_mul(8).to_be_bytes());
    tail.chunks_exact(64).for_each(|block| sha_block(&mut state, block));
    let mut digest = [0; 32];
    for (out, word) in digest.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn sha_block(state: &mut [u32; 8], block: &[u8]) {
    let mut w = [0u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for i in 16..64 {
        let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ w[i - 15] >> 3;
        let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in w.iter().zip(SHA_ROUNDS) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let t1 = h.wrapping_add(s1).wrapping_add(e & f ^ !e & g).wrapping_add(round).wrapping_add(*word);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t2 = s0.wrapping_add(a & b ^ a & c ^ b & c);
        h = g;
        g = f;
        f = e;
        e = d.wrapping_add(t1);
        d = c;
        c = b;
        b = a;
        a = t1.wrapping_add(t2);
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = old.wrapping_add(new);
    }
}
