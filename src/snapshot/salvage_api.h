#pragma once
#include "api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- salvage: what is intact in a damaged file (spec/salvage.md) --
 * Opening reads the whole file, which may be damaged or cut short. It finds the sections and the
 * headers of blocks wherever they are. The index tells where each block belongs; if the index is
 * damaged, the sections tell. Bytes that source.read_at cannot read count as damaged.
 * lmc_salvage_next returns everything that is intact. The reader of lmc_salvage_reader lists and
 * reads files and tensors as usual; reading lost bytes returns LMC_ERR_LOST. Only blocks that were
 * coded against a base need it. It may be such a reader, too; its lost bytes are lost here.
 *
 * A block that is returned has the right Content_CRC, and its header is right for its place. This
 * finds damage, but not forgery. With BLKS, the table of blocks, each block is recognised wherever
 * it is, and blocks of other LMC files are refused. Without BLKS, a block may be mistaken for
 * another block of the same number and size; if both are found, both are refused. Fingerprints
 * confirm whole files and tensors (lmc_salvage_confirm). A file whose FILE section is lost has size
 * LMC_UNKNOWN_SIZE and path "". Without the index, files and runs are numbered as they are found.
 *
 * Errors of opening: NOT_LMC (nothing was found), BASE_WRONG (if the header is intact), VERSION,
 * UNSUPPORTED, LIMIT, MEMORY. Time is in proportion to the sizes of the file and of what is
 * decoded, for any input. Memory: as other readers; without an index also 40 bytes for each block
 * header, and the bodies of sections. */

typedef struct lmc_salvage lmc_salvage;

/* source and options: as for a reader. parallel_reads is ignored: one thread does all reads. */
LMC_STATUS lmc_salvage_open(lmc_salvage **salvage, const lmc_source *source,
                            const lmc_reader_options *options);
LMC_API void lmc_salvage_free(lmc_salvage *salvage); /* NULL allowed */
/* The reader belongs to the salvage, and is freed with it. NULL for NULL. */
LMC_API lmc_reader *lmc_salvage_reader(lmc_salvage *salvage);

typedef struct lmc_salvage_range {
    int is_end;         /* 1: there are no more ranges; size is 0 then */
    size_t file_number; /* SIZE_MAX: a block without a known place in the files */
    uint64_t offset;    /* within the file; 0 for a block without a place */
    uint64_t size;
    /* LMC_OK: intact. LOST: not found. CHECKSUM, CORRUPT: its block is damaged. READ: it cannot be
     * read. BASE_MISSING: its payload is intact, but needs the base. BASE_WRONG: the same, but this
     * base is wrong. If its payload is intact but needs lost bytes of this snapshot: the status of
     * these bytes. */
    enum lmc_status status;
    const void *data; /* with LMC_OK: size bytes, valid until the next call; else NULL */
    /* Of the block and of its run; of several lost blocks, of the first block. UINT32_MAX if no run
     * is known. */
    uint32_t run_number, block_number;
    uint64_t reserved[4]; /* zero; see "What changes within 1.x" */
} lmc_salvage_range;

/* The next range: a block, or lost bytes between blocks, from front to back through all files. The
 * last range has is_end. Errors: ARGUMENT, LIMIT (more than max_total_size), MEMORY (try again). */
LMC_STATUS lmc_salvage_next(lmc_salvage *salvage, lmc_salvage_range *range);

typedef struct lmc_damage {
    int has_header, has_index, has_trailer; /* 1: intact */
    int is_complete;                        /* 1: no file is missing from the list */
    uint64_t n_breaks;    /* places where something was found that should not follow there */
    size_t n_sections;    /* damaged sections that were found; lost sections are not counted */
    uint64_t reserved[4]; /* zero; see "What changes within 1.x" */
} lmc_damage;

LMC_STATUS lmc_salvage_get_damage(const lmc_salvage *salvage, lmc_damage *damage);
/* 1: path, size and tensors of the file are known. */
LMC_API int lmc_salvage_is_described(const lmc_salvage *salvage, size_t file_number);
/* After lmc_salvage_next has returned all of the file: whether its tensor of that number (SIZE_MAX:
 * the file) is what was written. LMC_OK: its fingerprint (the file's CRC) is that of the index.
 * CHECKSUM: it is not. LOST: nobody knows, because bytes or the index are lost. ARGUMENT: there is
 * no such tensor. */
LMC_STATUS lmc_salvage_confirm(const lmc_salvage *salvage, size_t file_number,
                               size_t tensor_number);

#ifdef __cplusplus
}
#endif
