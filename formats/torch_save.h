/* torch_save.h - tensors of what torch.save() and torch.distributed.checkpoint write
 * SPDX-License-Identifier: MIT
 *
 * A file of torch.save() is a ZIP archive: `NAME/data.pkl` is a pickle of the object, in which each
 * tensor is a call with a storage, an offset, a shape and strides, and `NAME/data/K`, stored, the
 * bytes of storage K. A .distcp file is a row of such archives, of one object each; `.metadata`
 * beside it says which. Files of before PyTorch 1.6 are something else, and are not read.
 *
 * A tensor is named by the keys that lead to it, "optimizer.state.0.exp_avg". What becomes of a
 * storage:
 *
 *     one tensor fills it, in any order of dimensions    that tensor; shape: in the order of memory
 *     tensors lie in it side by side                     each of them
 *     tensors share bytes, and one holds the others      the one; the note tells of the others
 *     else: parts of a storage, strides, overlaps        "NAME@storage", all of it in one dimension
 *     big-endian, quantised or of unknown type, or       "NAME" or "data/K", of dtype BYTES
 *     the pickle is not understood
 *
 * What PyTorch sees otherwise than this is a view of the container. A long data.pkl and a long
 * directory of the archive are "@data.pkl" and "@directory", of dtype BYTES.
 */
#pragma once

#include "container.h"

/* What .metadata says. */
struct dcp;

enum container_result container_parse_torch_save(struct container *c, const struct view *v);

/* d: what the file beside it says, or NULL; name: of the file, without its directory. */
enum container_result container_parse_distcp(struct container *c, const struct view *v,
                                             const struct dcp *d, const char *name);

/* Views of a file of either kind, see container_find_views(). */
enum container_result container_find_torch_views(struct container *c, const struct view *v,
                                                 const lmc_file *f, const struct dcp *d);

/* The part of a tensor's first dimension that a name tells of: "NAME[256:512]". Returns the size of
 * "NAME"; 0: it tells of none, or of other dimensions, too. */
size_t torch_parse_part(const char *name, uint64_t *begin, uint64_t *end);
