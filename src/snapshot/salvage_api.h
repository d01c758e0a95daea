#pragma once
#include "api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- salvage: what is intact in a damaged file (spec/salvage.md) --
 * Opening reads through the whole file, which may be damaged or cut short. It finds the sections
 * and the headers of blocks wherever they are, and learns from the index, or from the sections if
 * the index is damaged, where each block belongs. Bytes that source.read_at fails to read count as
 * damaged. lmc_salvage_next hands out all that there is. The reader of lmc_salvage_reader lists and
 * reads files and tensors as ever, and fails where something is lost (LMC_ERR_LOST). A base is
 * needed only for the blocks that were coded against it. Where the base is such a reader itself,
 * what it has lost is lost here, too.
 *
 * What is handed out has the right Content_CRC, and its header is right for its place. That tells
 * damage; it does not tell forgery. With BLKS, the table of blocks, blocks are known wherever they
 * are, and those of other LMC files are told apart. Without, a block of the same number and size
 * may pass for another one; where both are found, both are refused. In the end the fingerprints
 * tell (lmc_salvage_confirm). A file whose FILE section is lost has size LMC_UNKNOWN_SIZE and path
 * "". Without the index, numbers of files and runs count what was found.
 *
 * Opening fails with NOT_LMC (nothing was found), BASE_WRONG (by the header, if that is intact),
 * VERSION, UNSUPPORTED, LIMIT, MEMORY. Time: in proportion to the file, and to what is decoded,
 * whatever the input. Memory: as other readers; without an index 40 bytes for each header of a
 * block, and the bodies of sections. */

typedef struct lmc_salvage lmc_salvage;

/* source and options as for a reader; parallel_reads is ignored: all reads come from one thread. */
LMC_NODISCARD LMC_API enum lmc_status lmc_salvage_open(lmc_salvage **salvage,
                                                       const lmc_source *source,
                                                       const lmc_reader_options *options);
LMC_API void lmc_salvage_free(lmc_salvage *salvage); /* NULL allowed */
/* Belongs to the salvage, and is freed with it; NULL for NULL. */
LMC_API lmc_reader *lmc_salvage_reader(lmc_salvage *salvage);

typedef struct lmc_salvage_range {
    int is_end;         /* 1: there is no range any more; size is 0 then */
    size_t file_number; /* SIZE_MAX: a block whose place in the files is not known */
    uint64_t offset;    /* within the file; of a block without a place: 0 */
    uint64_t size;
    /* LMC_OK: intact. LOST: it is not there. CHECKSUM, CORRUPT: its block is damaged. READ: it
     * cannot be read. BASE_MISSING: its payload is intact, but its content needs the base.
     * BASE_WRONG: the same, and the base is another one. Where a prediction of its own snapshot is
     * lost, and its payload is not: what that gives. */
    enum lmc_status status;
    const void *data; /* of LMC_OK: size bytes, valid until the next call; else NULL */
    /* Of the block; of several lost ones in a row, of the first. UINT32_MAX where no run is
     * known. */
    uint32_t run, block;
    uint64_t reserved[4]; /* zero; see "What grows in 1.x" in lmc.h */
} lmc_salvage_range;

/* The next range: block by block, and what is lost between them, front to back through all files;
 * in the end one with is_end. Errors: ARGUMENT, LIMIT (more than max_total_size), MEMORY (try
 * again). */
LMC_NODISCARD LMC_API enum lmc_status lmc_salvage_next(lmc_salvage *salvage,
                                                       lmc_salvage_range *range);

typedef struct lmc_damage {
    int has_header, has_index, has_trailer; /* 1: intact */
    int is_complete;      /* 1: nothing followed what was found, so no file is missing unnoticed */
    uint64_t n_breaks;    /* places where something else stood than what should follow */
    size_t n_sections;    /* found damaged; lost ones are not counted */
    uint64_t reserved[4]; /* zero; see "What grows in 1.x" in lmc.h */
} lmc_damage;

LMC_NODISCARD LMC_API enum lmc_status lmc_salvage_get_damage(const lmc_salvage *salvage,
                                                             lmc_damage *damage);
/* 1 if path, size and tensors of that file are known. */
LMC_API int lmc_salvage_is_described(const lmc_salvage *salvage, size_t file_number);
/* When lmc_salvage_next has handed out all of the file: is the tensor of that number in it
 * (SIZE_MAX: the file) the one that was written? 1: yes, it has the fingerprint (the CRC) that the
 * index says. -1: no. 0: not known, for it is not whole, the index is lost, or there is none. */
LMC_API int lmc_salvage_confirm(const lmc_salvage *salvage, size_t file_number, size_t tensor);

#ifdef __cplusplus
}
#endif
