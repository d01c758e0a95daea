# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suite abi

# The ABI of the shared library is the one of tests/abi.txt; and what changes in it is found.
suite_abi() {
    local d=$out/abi line
    grown_options
    own_allocator
    if [ "$(uname -m)" != x86_64 ]; then echo "SKIPPED abi: the hardware is not x86-64"; return; fi
    if ! command -v abidw >/dev/null; then echo "SKIPPED abi: abidw is not installed"; return; fi
    mkdir -p "$d"
    printf '%s\n' '#define LMC_IMPLEMENTATION' '#include "lmc.h"' '#include "lmc_salvage.h"' \
        '#include "lmc_extra.h"' >"$d/lmc.c"
    try gcc -std=c99 -g -O0 -fPIC -shared -Wl,-soname,liblmc.so.1 -DLMC_PTHREADS -DLMC_POSIX \
        -D_POSIX_C_SOURCE=200809L -I. -Iinclude "$d/lmc.c" -o "$d/liblmc.so.1" -pthread
    try "$python" tools/abi "$d/liblmc.so.1"
    # a copy of the check, with a description of which two lines are others
    cp -R lmc.h include tools "$d"
    mkdir -p "$d/tests"
    sed -e 's/^lmc_loss.error: double at 8$/lmc_loss.error: double at 16/' \
        -e 's/^macro LMC_MAX_RANK: 32$/macro LMC_MAX_RANK: 31/' tests/abi.txt >"$d/tests/abi.txt"
    if "$python" "$d/tools/abi" "$d/liblmc.so.1" >"$d/said"; then
        fail "a member that has moved is not found"
    else
        pass
    fi
    if "$python" "$d/tools/abi" --record "$d/liblmc.so.1" >"$d/refused"; then
        fail "a frozen line is recorded anew"
    else
        pass
    fi
    try grep -qxF 'lmc_loss.error: double at 16' "$d/refused"
    try grep -qxF 'macro LMC_MAX_RANK: 31' "$d/refused"
    # members that a later version adds: in padding, and beside the reserved words
    sed -e '/^lmc_reader_options.parallel_reads:/d; /^lmc_file.has_mtime:/d' tests/abi.txt \
        >"$d/tests/abi.txt"
    if "$python" "$d/tools/abi" --record "$d/liblmc.so.1" >"$d/refused"; then
        fail "members in padding are recorded"
    else
        pass
    fi
    for line in lmc_reader_options.parallel_reads lmc_file.has_mtime; do
        try grep -q "^$line: .* padding" "$d/refused"
    done
    try grep -qxF -- '+lmc_loss.error: double at 8' "$d/said"
}

# Programs and shared libraries of 1.0 and of a "1.1" whose structs of options have grown, in all
# pairs.
grown_options() {
    local d=$PWD/$out/grown program library language
    rm -rf "$d" && mkdir -p "$d/1.0/include"
    cp lmc.h "$d/1.0" && cp include/*.h "$d/1.0/include"
    try "$python" tests/codec/grown_options.py "$d/1.1"
    printf '%s\n' '#define LMC_IMPLEMENTATION' '#include "lmc.h"' '#include "lmc_salvage.h"' \
        '#include "lmc_extra.h"' >"$d/lmc.c"
    for library in 1.0 1.1; do
        try gcc -std=c99 -O0 -DLMC_NO_SIMD -fPIC -shared -Wl,-soname,liblmc.so.1 -I"$d/$library" \
            -I"$d/$library/include" "$d/lmc.c" -o "$d/$library/liblmc.so.1" -lm
    done
    for language in "gcc -std=c99" "g++ -std=c++11 -xc++"; do
        for program in 1.0 1.1; do
            # shellcheck disable=SC2046,SC2086 # words
            try $language -Wall -Wextra -Werror $([ $program = 1.0 ] || echo -DGROWN) \
                -I"$d/$program" -I"$d/$program/include" tests/codec/grown_options.c -xnone \
                "$d/$program/liblmc.so.1" -o "$d/program"
            for library in 1.0 1.1; do
                counted env -C "$d" LD_LIBRARY_PATH="$d/$library" ./program
            done
        done
    done
    try gcc -std=c99 -fsyntax-only -m32 -malign-double -I. -Iinclude tests/codec/grown_options.c
    # a library that takes 0 for its own size reads what is behind the struct of an old program
    mkdir "$d/wrong" && sed 's/given_size = first;/given_size = size;/' "$d/1.1/lmc.h" \
        >"$d/wrong/lmc.h" && cp -R "$d/1.1/include" "$d/wrong"
    try gcc -std=c99 -O0 -DLMC_NO_SIMD -fPIC -shared -Wl,-soname,liblmc.so.1 -I"$d/wrong" \
        -I"$d/wrong/include" "$d/lmc.c" -o "$d/wrong/liblmc.so.1" -lm
    try gcc -std=c99 -I"$d/1.0" -I"$d/1.0/include" tests/codec/grown_options.c \
        "$d/1.0/liblmc.so.1" -o "$d/program"
    if (cd "$d" && LD_LIBRARY_PATH=$d/wrong ./program >said); then
        fail "a library that reads behind an old program's options is not found"
    else
        pass
    fi
}

# A program's own allocator, through the header and through the shared library: allocator.c.
own_allocator() {
    local d=$PWD/$out/allocator \
        flags="-O1 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -I. -Iinclude" language
    if ! echo '#include <features.h>' | gcc -E -dM - | grep -q __GLIBC__; then
        echo "SKIPPED allocator: the C library is not glibc"
        return
    fi
    mkdir -p "$d"
    make_command build/liblmc.so
    for language in "gcc -std=c99" "g++ -std=c++11 -xc++"; do
        # shellcheck disable=SC2086 # words
        try $language $flags -DLMC_PTHREADS -DLMC_NO_SIMD -DLMC_STATIC -DLMC_IMPLEMENTATION \
            tests/codec/allocator.c -o "$d/header" -pthread
        counted "$d/header"
    done
    # shellcheck disable=SC2086 # words
    try gcc -std=c99 $flags tests/codec/allocator.c build/liblmc.so -Wl,-rpath,"$PWD/build" \
        -o "$d/library"
    counted "$d/library"
}
