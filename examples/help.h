/* help.h - the texts of 'lmc help'
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_HELP_H
#define LMC_HELP_H

#include <stdio.h>
#include <string.h>

#include "report.h"

struct topic {
    const char *name, *text;
};

static const struct topic topics[] = {
    {"",
     "lmc - lossless compression of tensors and model checkpoints\n"
     "\n"
     "  lmc FILE...            compress each to FILE.lmc; FILE is kept\n"
     "  lmc DIR                compress a whole checkpoint to one snapshot, DIR.lmc\n"
     "  lmc -d FILE.lmc...     restore, byte for byte (also: unlmc)\n"
     "  lmc -t FILE.lmc...     check everything, write nothing\n"
     "  lmc -l FILE.lmc...     list files and tensors\n"
     "  lmc cat FILE.lmc TENSOR[SLICE]   write the bytes of a tensor, e.g. 'wte.weight[0:128,:]'\n"
     "  lmc apply DELTA... TARGET        turn a file or directory into what comes next, in place\n"
     "  lmc diff FROM TO       what has changed, tensor by tensor, and what a delta would take\n"
     "  lmc stats SNAPSHOT...  what they are made of and how they change, as table, JSON or pictures (--svg PREFIX)\n"
     "  lmc fold --base BASE DELTA... -o OUT      one delta out of a chain of them\n"
     "  lmc rebase --onto NEW|none FILE -o OUT    the same snapshot against another base, or none\n"
     "  lmc verify FILE...     check whole chains, each link once\n"
     "  lmc series DIR VERB    a directory of snapshots kept as deltas: add, list, restore, prune, gc, watch, ...\n"
     "  lmc help TOPIC         formats, directories, quant, deltas, chains, apply, series, cat, diff, stats, pipes, memory, exit\n"
     "\n"
     "  -z, --compress    compress (default)     -c, --stdout      write to standard output\n"
     "  -d, --decompress  restore                -o OUT            write to OUT\n"
     "  -t, --test        check                  -f, --force       overwrite; allow binary to a terminal\n"
     "  -l, --list        list                   -k, --keep        keep the source (default)\n"
     "      --json        list, diff, stats: JSON    --rm          remove the source once the output is on the\n"
     "  -r, --recursive   each file below                          disk, read back and verified\n"
     "                    the directories        -T#, --threads=#  threads; 0: one for each core (default)\n"
     "      --dtype NAME  a raw array of NAME    -q, --quiet       no messages but errors\n"
     "      --opaque      plain bytes            -v, --verbose     sizes and speed\n"
     "      --max         smaller, but slower        --progress, --no-progress\n"
     "      --npy         cat: as a .npy file    -V, --version     -h, --help\n"
     "      --file PATH   cat: in that file          --no-twins    store each tensor by itself\n"
     "      --trust-base  apply: do not read the target first to know that it is the right one\n"
     "      --base PATH   compress against, and restore with, this snapshot, file or directory (also: --patch-from)\n"
     "      --quant RULE, --policy FILE   LOSSY: keep optimizer states only as precisely as a rule says; see 'lmc help quant'\n"
     "\n"
     "A FILE of '-', or none where standard input is no terminal, is standard input. '--' ends the options.\n"
     "'cat', 'diff', 'apply', 'fold', 'rebase', 'verify', 'series', 'stats' and 'help' come first, before any option; files so named are ./cat, ...\n"},
    {"formats",
     "The tensors of these files are found and coded by their dtype, and can be listed and read alone:\n"
     "\n"
     "  .safetensors  all dtypes of safetensors 0.8; unknown ones are kept as bytes\n"
     "  .gguf         versions 2 and 3; quantised types are kept as bytes\n"
     "  .npy          versions 1 to 3, little-endian; a Fortran-order array appears transposed\n"
     "\n"
     "The content decides, whatever the name. But a FILE that is named so and has a broken header is an error: it would\n"
     "be useless. --opaque stores it all the same. Below a DIR it is stored as plain bytes, with a warning. Everything else (pickles, .pt, .bin, JSON) is coded as bytes whose\n"
     "element width is guessed for each block. --dtype BF16 (or F32, U8, ...) says what a raw array is made of.\n"
     "Whatever the format, every byte of the file is restored, those outside of tensors too.\n"},
    {"directories",
     "'lmc DIR' makes one snapshot, DIR.lmc, of all files below DIR in the order of their paths, with mode and time.\n"
     "The directories in it are kept with mode and time, too. Links to files are stored as files. Links to directories,\n"
     "sockets, pipes and devices are refused, and so is a file that changes while it is read.\n"
     "\n"
     "'lmc -d DIR.lmc' restores below a temporary directory beside DIR, which is renamed once everything was checked\n"
     "and is on the disk. DIR itself gets the mode of DIR.lmc. An existing DIR is refused; with -f it steps aside and is\n"
     "removed when the new one stands there, but only if everything in it comes back: what the snapshot lacks is not lost.\n"
     "\n"
     "With -r each file below DIR is compressed to its own .lmc (or, with -d, -t and -l, each .lmc taken). Outputs that are\n"
     "being written, .lmc-XXXXXX, are passed over; 'lmc DIR' refuses them.\n"},
    {"quant",
     "  lmc --quant 'GLOB[,role=R][,dtype=D][,min=SIZE][,max=SIZE]=CHOICE'... FILE_OR_DIR      lmc --policy FILE FILE_OR_DIR\n"
     "\n"
     "Without a rule everything is exact. A rule selects tensors; of several that match, the last one counts. It says how near to\n"
     "the original they must stay:\n"
     "\n"
     "  update:0.01    the optimizer's update m / (sqrt(v) + 1e-8) changes by at most 1 % (L2 norm), by m and v together\n"
     "  bits:8         codes of 4 to 8 bits; the values that they stand for are found by k-means\n"
     "  rel:0.01       no element changes by more than 1 % of itself\n"
     "  nmse:0.0001    mean squared error, over the mean square\n"
     "  auto:0.01      moments as with update:, gradients by the same measure; weights stay exact\n"
     "  lossless       an exception to the rules before\n"
     "\n"
     "GLOB is matched with the tensor's name and with FILE/NAME; '*' matches '/', too. SIZE is in bytes: 65536, 64K, 1M. R is a role:\n"
     "\n"
     "  m, v           first and second moments: exp_avg and exp_avg_sq, as a word of the tensor's name (state.0.exp_avg,\n"
     "                 optimizer.state.exp_avg.NAME) or else of its file's path; mu and nu, where there are both\n"
     "  gradient       grad, grads, gradient, main_grad\n"
     "  weight         any other float; also master weights\n"
     "  other          integers, max_exp_avg_sq, momentum_buffer\n"
     "\n"
     "Without role= a rule is for m, v and gradients only: weights must be named (role=weight, role=any). A first moment is\n"
     "coded with its second, which is looked for by name in all files, and whose file is stored first. Where there is none, where it\n"
     "stands in the same file, or where the output is a pipe, the first is quantised by itself: with bits: less\n"
     "well, with update: larger, as by rel:.\n"
     "\n"
     "Exact in any case: tensors of less than 16 Ki elements, of one dimension and less than 256 Ki, of other dtypes than F32 and\n"
     "BF16, what would not become a tenth smaller, and single NaN, infinities, -0, subnormals, negative second moments. A second\n"
     "moment above zero never becomes zero.\n"
     "\n"
     "A policy FILE has one rule on a line, and '#' comments. Other lines: 'role=v match=GLOB' gives a role, 'm=NAME v=NAME' tells\n"
     "how moments are called, 'default level=max' and 'default block=256K' (elements) are for all of the snapshot.\n"
     "\n"
     "-l marks what is LOSSY, and by how much, -l -v and --json tell what was chosen and why. Snapshots restore what they hold:\n"
     "checks, bases and chains know the quantised elements only, and fold and rebase lose nothing more. What was restored does not\n"
     "know that it was quantised: do not quantise it again. --rm is refused: it would remove the only exact copy. Inputs are read\n"
     "twice, so they cannot be pipes. A quantised tensor is not coded against a --base.\n"},
    {"deltas",
     "  lmc --base OLD NEW          lmc -d --base OLD NEW.lmc\n"
     "\n"
     "The first --base is what NEW is coded against: a .lmc file, any other file, or a directory. Tensors are matched by name,\n"
     "dtype and size, whatever file they stand in (of several, the one in the file of the same path), other files by path;\n"
     "what has no match is coded without. Restoring, -t and cat want the same base again, and know it by its content: the\n"
     "same tensors and files, in whatever form, sharding or order. OLD is read whole to know its identity, but for .lmc files.\n"
     "If it is missing or another one, the exit code is 4, and nothing is written. -l needs no base; it shows which it is.\n"
     "\n"
     "A base that is a delta itself needs its own: give every link of the chain with a --base of its own, in any order but the\n"
     "first. --dtype and --opaque say how the files of a base are to be looked at, as for compressing.\n"
     "\n"
     "With and without a base, tensors that are equal, and bf16 or fp16 copies of fp32 masters, are stored once (twins), if they\n"
     "come after what they repeat; files with masters are stored first. Such a snapshot can be restored from a pipe, but not to\n"
     "one, unless it is a file itself. Outputs to pipes have no twins; --no-twins leaves them out of other outputs.\n"},
    {"chains",
     "  lmc fold [--max] [--no-twins] --base BASE [--base LINK]... DELTA... -o OUT\n"
     "  lmc rebase [--max] [--no-twins] [--base LINK]... --onto NEW|none FILE.lmc -o OUT\n"
     "  lmc verify [-v] [--base BASE]... FILE.lmc...\n"
     "\n"
     "fold makes one delta of those given, in any order, which must form one chain: from BASE, the first --base that is none of\n"
     "them, to what the last of them restores. It is as large as if it had been made from the two snapshots.\n"
     "\n"
     "rebase makes of FILE.lmc, a delta or not, one that restores the same, against NEW (a .lmc file, any other file, or a\n"
     "directory) or without base: 'none'. NEW must not need FILE.lmc itself.\n"
     "\n"
     "Both read the snapshot through its chain, window by window; nowhere does it exist as a whole. For both every link is\n"
     "needed: with --base, as for restoring. No input is touched. -c writes to standard output, without twins. The exit code is 4,\n"
     "and there is no output, if a link is missing or is another one.\n"
     "\n"
     "verify checks everything in every file, as -t does, but decodes each file only once, however long the chain: what others\n"
     "need is restored to a scratch file. There are two at a time, each as large as the files of a snapshot, and one more at\n"
     "most for each doubling of the number of files where deltas branch. They have no names, and lie in the directory TMPDIR, or\n"
     "beside the first FILE.lmc. Files may come in any order; bases that are none of them are named with --base. -v tells of each\n"
     "the first 16 digits of its identity and of its base's. A damaged file (exit code 3) does not keep others from being\n"
     "verified, but for those that need it, which are named; so it is with a base that is missing (exit code 4).\n"},
    {"apply",
     "  lmc apply [--trust-base] [-f] [-T#] DELTA... TARGET\n"
     "\n"
     "Makes of TARGET, a file or directory that is the base of the first DELTA, what the last one restores, in place: block by block,\n"
     "in memory that does not grow with it. A DELTA of '-' is standard input. Whoever reads TARGET meanwhile sees a mixture.\n"
     "\n"
     "TARGET is read whole first, to know its identity. If it is what a DELTA restores, that one and those before it are passed\n"
     "over, and nothing is changed if it is the last: the same command can be repeated. If it is anything else, or the deltas\n"
     "are not in order, the exit code is 4, and nothing is changed. --trust-base goes without reading it: layout and sizes are\n"
     "compared, and each block's checksum of its base before it is written, the first 4 to 32 MiB before anything is; where\n"
     "these do not fit, TARGET is read after all.\n"
     "\n"
     "What is written goes to .TARGET.lmc-apply beside TARGET first, and to the disk. After a kill or a crash, of lmc or of the\n"
     "machine, give the same command again: it goes on from there. Until then TARGET is neither old nor new: no other command\n"
     "takes it, nor other deltas. Mode and time become those of the snapshot, the owner stays.\n"
     "\n"
     "Where the layout changes (another header, files that come or go), the snapshot is restored beside TARGET and takes its\n"
     "place at once; what it does not hold, which all belonged to the base, goes. Hard links, and links within TARGET, are\n"
     "refused unless forced with -f: what else they name would change, too. -f also opens files that are read-only.\n"},
    {"series",
     "  lmc series DIR add [--name NAME] [--every N] [--anchor] [--verify] [--rm] SNAPSHOT\n"
     "  lmc series DIR list [--json]                 restore [-o OUT] [-f] NAME\n"
     "  lmc series DIR cat NAME [TENSOR[SLICE]]      verify [NAME...]\n"
     "  lmc series DIR prune [--dry-run] NAME... | [--keep-last K] [--keep-every M] [--keep NAME]...\n"
     "  lmc series DIR keep NAME...                  gc [--dry-run]\n"
     "  lmc series DIR watch [--rm] [--settle SECONDS] [--interval SECONDS] [--once] [--match GLOB] SOURCE_DIR\n"
     "  lmc series DIR rebuild\n"
     "\n"
     "DIR holds a file NAME.lmc for each snapshot, coded against the one before; every N-th (16, or as --every said last) is an\n"
     "anchor, which needs no other. series.json lists them. NAME is that of the source, without .safetensors; where one is asked\n"
     "for, the number in it will do (57 for step_57), or 'latest'. SNAPSHOT is a file or a directory.\n"
     "\n"
     "add      --verify restores and compares before the snapshot counts; --rm does so, too, and removes the source then\n"
     "restore  to OUT, or to the name that the source had, in this directory; it and cat read only what they need of the chain\n"
     "prune    marks snapshots as forgotten: those that are named, or all that no rule keeps: the last K, those whose number is a\n"
     "         multiple of M (and those without a number), those named by --keep. 'keep' takes it back, until gc\n"
     "gc       removes what is forgotten, all but the names, so that watch does not add them again. Kept deltas whose base goes are\n"
     "         coded again first, against the last one before them that is kept, and checked\n"
     "verify   reads all that is kept, and what it needs, each file once, and needs room for two restored snapshots in TMPDIR, or else in DIR\n"
     "watch    adds what appears in SOURCE_DIR, in the order of numbers, when nothing in it has changed for a time (10 s), always\n"
     "         with --verify; links, empty directories, hidden files and .lmc files are passed over, and so is what has a\n"
     "         name of which there was a snapshot already. --once: what is there now\n"
     "rebuild  makes series.json anew of the .lmc files, by name, if it is lost or damaged or these were moved by hand; the old\n"
     "         one stays as series.json.old\n"
     "\n"
     "A kill at any moment leaves all snapshots that count restorable; the next command that changes the series tidies up. One\n"
     "command changes it at a time, others wait; reading goes on meanwhile, but gc waits for those who read, and they for it.\n"
     "-T, -v, -q, --max, --no-twins, --dtype and --opaque are as for compressing; so are --quant and --policy with add and watch,\n"
     "which then verify all but what is quantised.\n"},
    {"diff",
     "  lmc diff [--json] [--max] [--base PATH]... FROM TO\n"
     "\n"
     "FROM and TO are .lmc files, other files or directories. For each tensor, and each file without tensors: same, changed,\n"
     "reshaped, retyped (another dtype), added or removed; the share of elements that have changed; and what the tensor takes as\n"
     "a delta and without a base, in bytes and in bits for each element, headers of the file not counted. Twins are not looked\n"
     "for, and what is quantised is measured as if it were stored exactly. --base gives what deltas among the two are made\n"
     "against, if it is not the other one. Both are read whole. The exit code is 0 if that went well,\n"
     "whether they differ or not.\n"},
    {"stats",
     "  lmc stats [--json] [--svg PREFIX] [-f] [-v] [--max] [--base PATH]... SNAPSHOT...\n"
     "\n"
     "Each SNAPSHOT is a .lmc file, another file or a directory; a .lmc file that is a delta finds what it is made of among the\n"
     "others. Of each, for each dtype, and with -v or for one or two snapshots for each tensor:\n"
     "\n"
     "zeros       share of the elements that are 0 or -0\n"
     "exp.        powers of two that the exponents of 1, 50 and 99 % of the elements do not exceed; zero: or subnormal\n"
     "bits        entropy of each byte plane, the highest first, as LMC codes them: for F16 and wider floats, elements are\n"
     "            rotated by a bit, so that the exponent is in the highest\n"
     "entropy     what all of these would take, in % of the size\n"
     "coded       what LMC takes; for each tensor by itself, without headers of the file, and without twins\n"
     "changed     against the SNAPSHOT before: share of the elements of which any bit differs; or, if the tensor cannot be\n"
     "            compared with one: added, retyped, reshaped\n"
     "flipped     share of the elements of which the sign differs\n"
     "delta       what LMC takes with the one before as its base; ratio: to 'coded'\n"
     "\n"
     "--json      one object with all that is known of each tensor: the planes from the lowest on, how often each exponent occurs\n"
     "            (as it is stored, from 'first' on; it has the 'bias'), sizes in bytes\n"
     "--svg       PREFIX-compressibility.svg: of each snapshot the planes' entropies and what LMC takes; PREFIX-density.svg, of\n"
     "            two and more: the share of elements that have changed, by tensor and snapshot. -f overwrites\n"},
    {"cat",
     "  lmc cat [--npy] [--file PATH] [-o OUT] FILE.lmc [TENSOR[SLICE]]\n"
     "\n"
     "Writes the bytes of a tensor, or of a slice of it, to standard output; only the blocks that hold them are read.\n"
     "SLICE is as in NumPy, without steps: [0:128,:,3], [-1], [2:]. Dtypes whose elements are no whole bytes, and those that\n"
     "lmc does not know, can be read as a whole only. If a tensor's name ends like a slice, the name wins.\n"
     "The array of a .npy file has an empty name: lmc cat a.npy.lmc '[0:10]'. A lone tensor needs no name.\n"
     "--npy     write a .npy file; dtypes that NumPy lacks (BF16, F8_*) become raw bytes of their width: view() them\n"
     "--file    the file of the snapshot that holds the tensor, where several have one of that name\n"},
    {"pipes",
     "  producer | lmc > x.lmc         lmc -dc x.lmc | consumer\n"
     "\n"
     "A pipe has no length, but a safetensors or .npy header at its beginning tells it, and the tensors are found as in a\n"
     "file; bytes after the last tensor are an error then (--opaque takes them). GGUF files are taken to end with the\n"
     "padding that writers add. What has no such header is coded as bytes. Restoring to a pipe writes blocks as soon as they\n"
     "are checked; only exit code 0 says that nothing is missing. -l and cat need a file: the index stands at its end.\n"},
    {"memory",
     "Memory does not grow with the files. It is about\n"
     "\n"
     "  7 MiB for each thread, with a base 12                                what is being read, coded and written\n"
     "  48 MiB                                                               compressing a pipe of unknown length\n"
     "  the index: a few bytes for each block, and the names                 about 100 bytes for each MB of bf16\n"
     "  the header of a safetensors or GGUF file, while it is parsed         at most 100 MB of text; JSON takes 15 times its size\n"
     "\n"
     "  20 MiB for a base that is a .lmc file; for each link of a chain its index, and 2 MiB where tensors have moved\n"
     "\n"
     "-l and cat hold the index twice and a window of 4 MiB, diff and stats three pieces of 16 MiB; stats\n"
     "the index of each .lmc file and 2 MiB.\n"},
    {"exit",
     "  0  all went well\n"
     "  1  an error: a file that cannot be read or written, exists already, ...; also a newer version of the format\n"
     "  2  wrong usage\n"
     "  3  corrupt data: a snapshot is damaged, cut short or no snapshot at all\n"
     "  4  the base of a delta is missing or is the wrong one\n"
     "\n"
     "With several files, all are tried and the highest code is returned. After an error there is no output file.\n"},
};

static int print_help(const char *name)
{
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (strcmp(topics[i].name, name) == 0) {
            fputs(topics[i].text, stdout);
            return CODE_OK;
        }
    return fail(CODE_USAGE, NULL, "no help on '%s'; topics: formats, directories, quant, deltas, chains, apply, series, cat, diff, stats, pipes, memory, exit", name);
}

#endif
