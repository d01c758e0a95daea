#pragma once
#include "base/platform.h"

/* The library's version; names and texts of statuses. enum lmc_status (api.h) says what each status
 * means for a caller; spec 2.2 says which broken rule of the format gives which status.
 *
 * A text tells the user of a program what happened, then what to do. It can follow a file's name
 * ("x.lmc: not an LMC file"), so it begins with a small letter and has no full stop. */

LMC_API const char *lmc_version(void) { return LMC_VERSION; }

/* In any order: lookups compare the value. */
#define LMC__STATUS(status, text) {status, #status, text}
static const struct {
    enum lmc_status status;
    const char *name, *text;
} lmc__statuses[] = {
    LMC__STATUS(LMC_OK, "success"),
    LMC__STATUS(LMC_ERR_ARGUMENT, "invalid argument (NULL, contradictory or out of range): see the "
                                  "comment of the function in lmc.h"),
    LMC__STATUS(LMC_ERR_DST_TOO_SMALL, "the output buffer is too small: the function's bound tells "
                                       "what is enough (lmc_compress_bound, lmc_decompressed_size, "
                                       "lmc_tensor_bound, lmc_block_bound, lmc_block_parse)"),
    LMC__STATUS(LMC_ERR_WORKSPACE, "the workspace is too small: lmc_block_workspace_size and "
                                   "lmc_tensor_workspace_size tell what is enough"),
    LMC__STATUS(LMC_ERR_MEMORY, "out of memory: use fewer workers or smaller blocks"),
    LMC__STATUS(LMC_ERR_READ, "reading failed"),
    LMC__STATUS(LMC_ERR_WRITE, "writing failed"),
    LMC__STATUS(LMC_ERR_NOT_FOUND, "not found in the snapshot: list it to see what it holds"),
    LMC__STATUS(
        LMC_ERR_LIMIT,
        "exceeds a limit of the format or of the caller: raise the limit if you trust the data"),
    LMC__STATUS(LMC_ERR_SIZE, "too large for a 32-bit program: use a 64-bit build"),
    LMC__STATUS(LMC_ERR_READ_BACK, "some tensors are copies of others in the snapshot: restore it "
                                   "from a file or to files, not from a pipe to a pipe"),
    LMC__STATUS(LMC_ERR_AMBIGUOUS, "several files have a tensor of that name: name the file, too"),
    LMC__STATUS(LMC_ERR_CANCELLED, "cancelled"),
    LMC__STATUS(LMC_ERR_LOST, "lost: the damaged file does not have these bytes any more"),
    LMC__STATUS(LMC_ERR_NOT_ONE_FILE,
                "this snapshot holds several files, or a directory, not one file: restore it with "
                "lmc -d, or by lmc_snapshot_restore or lmc_reader_open"),
    LMC__STATUS(LMC_ERR_CHANGED,
                "the data changed while it was saved: save it again while nothing writes to it"),
    LMC__STATUS(LMC_ERR_DEVICE,
                "the GPU, its driver or NVRTC is missing or failed: decode on the CPU"),
    LMC__STATUS(LMC_ERR_NOT_LMC, "not an LMC file"),
    LMC__STATUS(LMC_ERR_VERSION,
                "another version of the LMC format: use the lmc that wrote it, or a newer one"),
    LMC__STATUS(LMC_ERR_UNSUPPORTED,
                "unknown feature of the LMC format: use a newer lmc, or this build leaves it out"),
    LMC__STATUS(LMC_ERR_TRUNCATED, "truncated: the data ends early; fetch or write the file again"),
    LMC__STATUS(LMC_ERR_CORRUPT, "corrupt: the data breaks a rule of the format; use another copy"),
    LMC__STATUS(LMC_ERR_CHECKSUM, "corrupt: a checksum does not match; use another copy"),
    LMC__STATUS(LMC_ERR_BASE_MISSING,
                "this is a delta: its base, the snapshot that it was made against, is needed"),
    LMC__STATUS(LMC_ERR_BASE_WRONG,
                "wrong base: not the snapshot that the delta was made against")};

LMC_API const char *lmc_status_name(enum lmc_status status)
{
    size_t i;
    for (i = 0; i < sizeof lmc__statuses / sizeof *lmc__statuses; i++)
        if (lmc__statuses[i].status == status) return lmc__statuses[i].name;
    return "LMC_ERR_?";
}

LMC_API const char *lmc_status_text(enum lmc_status status)
{
    size_t i;
    for (i = 0; i < sizeof lmc__statuses / sizeof *lmc__statuses; i++)
        if (lmc__statuses[i].status == status) return lmc__statuses[i].text;
    return "unknown error";
}
