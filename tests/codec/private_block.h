/* Tests of blocks that need what is private to lmc.h. */

/* The largest workspace that decoding can need: eight planes, all trees of the largest depth. In
 * each tree all elements take the longest path, so each of its masks is nested and has a bit for
 * every element. The encoder makes no such block, but the format allows it. */
void t_test_workspace(void)
{
    const size_t n = 65536, size = 8 * n, ws_size = lmc_block_workspace_size(n, 8),
                 more = 4 * ws_size;
    uint8_t *const block = (uint8_t *)malloc(size), *const content = (uint8_t *)malloc(size),
                   *const ws = (uint8_t *)malloc(more);
    t_guard exact = t_new_guard(ws_size);
    size_t payload_size, got = 0;
    lmc__block_coding coding;
    lmc__plan plan;
    lmc__encoder e;
    unsigned p, i;
    if (!block || !content || !ws) abort();
    t_note("workspace");
    memset(content, 15, size);
    memset(&plan, 0, sizeof plan);
    plan.last = 15;
    for (i = 0; i < 16; i++) plan.lengths[i] = (uint8_t)(i < 15 ? i + 1 : 15);
    e.k = lmc__get_kernels();
    e.worth = UINT32_MAX; /* every mask that can be nested is */
    e.scratch = lmc__open_workspace(&e.stack, ws, more);
    e.out = block + LMC_BLOCK_HEADER_SIZE;
    e.end = block + size;
    for (p = 0; p < 8; p++) {
        uint8_t *const top = e.stack.top, *const row = lmc__push_list(&e.stack, n),
                       *const spare = lmc__push_list(&e.stack, n);
        memset(row, 15, n);
        CHECK(lmc__put_tree(&e, &plan, row, spare, n));
        e.stack.top = top;
    }
    payload_size = (size_t)(e.out - block) - LMC_BLOCK_HEADER_SIZE;
    CHECK(payload_size < size / 32); /* the masks are nested */
    memset(&coding, 0, sizeof coding);
    coding.layout = LMC__LAYOUT_PLANES;
    coding.payload_size = payload_size;
    coding.content_crc = e.k->crc32c(0, content, size);
    lmc__put_block_header(block, &coding, 8, n, e.k, 0);
    memset(ws, 0xA5, size);
    CHECK_STATUS(t_block_decode(ws, size, &got, block, LMC_BLOCK_HEADER_SIZE + payload_size, NULL,
                                0, 0, t_tail(&exact, ws_size), ws_size),
                 LMC_OK);
    CHECK(got == size && memcmp(ws, content, size) == 0);
    free(block);
    free(content);
    free(ws);
}
