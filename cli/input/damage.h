/* damage.h - which bytes of which tensor are damaged: one place and one form for all verbs
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "archive.h"

#define DAMAGE_TEXT 640

/* Reports that reading bytes of that file, from `at` on, gave that status, and where the damage is:
 * " (bytes 7471104 to 7602175 of the tensor 'w')", of all blocks side by side. a has its base. */
int fail_damage(const struct archive *a, enum lmc_status status, size_t number, uint64_t at);

/* Reads the snapshot once, from front to back, and needs no index. LMC_OK: nothing is damaged; else
 * text says what is, or is "". base: NULL: as far as it shows without: of blocks that are coded
 * against it, headers and payloads. It is made to say where damage is: that there is none, only
 * restoring tells, which knows what must stand in a snapshot. */
enum lmc_status look_for_damage(struct archive *a, const lmc_base *base, char text[DAMAGE_TEXT]);

/* The same where the bytes cannot be looked for: it is somewhere behind byte `at`. */
int fail_damage_behind(const struct archive *a, enum lmc_status status, size_t number, uint64_t at);
