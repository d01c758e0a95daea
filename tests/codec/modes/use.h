/* use.h - a round trip through all three layers, for each way of including lmc.h. */
#ifndef USE_H
#define USE_H

#include <string.h>

static enum lmc_status use_append(void *user, const void *data, size_t size)
{
    (void)data;
    *(size_t *)user += size;
    return LMC_OK;
}

/* 0 if everything works */
static int use(void)
{
    static unsigned char src[6000], enc[6020], dst[6000], ws[1 << 18];
    const lmc_block_options block = LMC_BLOCK_OPTIONS(LMC_BF16);
    lmc_tensor_options options;
    lmc_writer *writer = NULL;
    lmc_writer_info info;
    lmc_sink sink = LMC_DEFAULTS;
    lmc_file file;
    size_t i, enc_size, dst_size, total = 0;
    for (i = 0; i < sizeof src; i++) src[i] = (unsigned char)(i % 2 ? 60 : i * i);
    if (lmc_block_workspace_size(3000, 2) > sizeof ws) return 1;
    if (lmc_block_encode(enc, sizeof enc, &enc_size, src, sizeof src, &block, ws, sizeof ws) !=
        LMC_OK)
        return 2;
    if (lmc_block_decode(dst, sizeof dst, &dst_size, enc, enc_size, &block, ws, sizeof ws) !=
        LMC_OK)
        return 3;
    if (dst_size != sizeof src || memcmp(src, dst, sizeof src) != 0 || enc_size >= sizeof src)
        return 4;
    memset(&options, 0, sizeof options);
    options.dtype = LMC_BF16;
    options.log2_block = 14;
    if (lmc_tensor_workspace_size(&options) == 0) return 5;
    memset(&file, 0, sizeof file);
    file.path = "file";
    file.size = sizeof src;
    sink.write = use_append;
    sink.user = &total;
    if (lmc_writer_open(&writer, &sink, NULL) != LMC_OK ||
        lmc_writer_begin_file(writer, &file, LMC_AUTO) != LMC_OK ||
        lmc_writer_write(writer, src, sizeof src) != LMC_OK ||
        lmc_writer_end_file(writer) != LMC_OK || lmc_writer_finish(writer) != LMC_OK)
        return 6;
    if (lmc_writer_get_info(writer, &info) != LMC_OK || info.size != total) return 7;
    lmc_writer_free(writer);
    return strcmp(lmc_version(), LMC_VERSION) != 0;
}

#endif
