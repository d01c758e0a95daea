/* SPDX-License-Identifier: MIT
 * NVRTC compiles this behind decode.cu, whose names it uses. Experimental, too. Sums of decoded
 * bytes, for fingerprints (spec 7.1):
 *
 *     lmc_sums(pieces, n, sums, tables)        any number of groups, of 256 threads each
 *
 * A piece is a leaf of a tensor, at most 2^18 bytes at any address; its sums:
 *
 *     words   its u64 words, added up; zero bytes complete the last one
 *     crc     the remainder of its polynomial times x^32. That is a CRC-32C without the inversions;
 *             the host adds them, because it knows the size
 *
 * Leading zeros do not change a remainder: so the piece is filled up with zeros in front to whole
 * rows of 256 words of 4 bytes. Thread j has word j of each row: the factor between two of its
 * words is x^8192, and 255 - j words follow its last word.
 *
 *     piece         |.......xxxxxxxx|xxxxxxxxxxxxxxx|xxxxxxxxxxxxxxx|       3 rows
 *     thread j           ^               ^               ^ */
struct SumPiece { u64 at; u32 size, reserved; };
struct Sums { u64 words; u32 crc, reserved; };
struct SumShared { u64 words[256]; u32 advance[4][256], crc[256]; };

/* Bytes [at, at + size) as a number; bytes outside [begin, end) are 0. */
DEV u64 sum_bytes(u64 begin, u64 end, u64 at, u32 size)
{
    u64 v = 0;
    if (at >= begin && at + size <= end && at % size == 0)
        return size == 8 ? *(const u64 *)at : (u64) * (const u32 *)at;
    for (u32 i = 0; i < size; i++)
        if (at + i >= begin && at + i < end) v |= (u64) * (const u8 *)(at + i) << 8 * i;
    return v;
}

DEV u32 sum_product(const u32 table[4][256], u32 v)
{
    return table[0][v & 255] ^ table[1][v >> 8 & 255] ^ table[2][v >> 16 & 255] ^ table[3][v >> 24];
}

extern "C" __global__ void __launch_bounds__(256) lmc_sums(const SumPiece *pieces, u32 n,
                                                           Sums *sums, const Tables *t)
{
    SumShared &s = *(SumShared *)SHARED_MEMORY();
    const u32 tid = threadIdx.x;
    for (u32 i = tid; i < 1024; i += 256)
        s.advance[i >> 8][i & 255] = t->advance[5][i >> 8][i & 255];
    BARRIER();
    for (u32 k = blockIdx.x; k < n; k += gridDim.x) {
        const u64 begin = pieces[k].at, end = begin + pieces[k].size;
        const u32 rows = (pieces[k].size + 1023) / 1024;
        u64 words = 0;
        u32 crc = 0;
        for (u32 i = 0; i < rows; i++)
            crc = sum_product(s.advance, crc) ^
                  (u32)sum_bytes(begin, end, end - (u64)(rows - i) * 1024 + 4 * tid, 4);
        s.crc[tid] = move_crc(t, crc, 4 * (256 - tid)); /* the words behind it, and x^32 */
        for (u64 at = begin + 8 * tid; at < end; at += 8 * 256)
            words += sum_bytes(begin, end, at, 8);
        s.words[tid] = words;
        BARRIER();
        for (u32 half = 128; half; half >>= 1) {
            if (tid < half) {
                s.words[tid] += s.words[tid + half];
                s.crc[tid] ^= s.crc[tid + half];
            }
            BARRIER();
        }
        if (tid == 0) {
            sums[k].words = s.words[0];
            sums[k].crc = s.crc[0];
        }
        BARRIER();
    }
}

/* Copies the headers of n blocks, at any addresses, side by side. */
extern "C" __global__ void __launch_bounds__(256) lmc_headers(const u64 *blocks, u32 n, u8 *headers)
{
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < HEADER * n; i += gridDim.x * 256)
        headers[i] = *(const u8 *)(blocks[i / HEADER] + i % HEADER);
}
