# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suites readme, recipes, examples, site

# suite_readme [--brief]: the commands and the C example of README.md, and the programs of
# docs/api.md, as they stand there; brief: with one compiler
suite_readme() {
    make_command
    try "$python" tests/pages/test_readme.py ${1:+gcc}
    try "$python" tests/pages/test_recipes_c.py ${1:+gcc}
}

# What the pages beside the command have for a shell, each in its order and in a directory of its
# own.
suite_recipes() {
    make_command
    recipes 20 docs/deltas.md docs/series.md
    recipes 8 docs/quantisation.md
}

# recipes LEAST PAGE...: so many commands there are
recipes() {
    local d=$PWD/$out/recipes-$(basename "$2" .md)
    rm -rf "$d"
    mkdir -p "$d"
    awk '/^```sh$/ {on = 1; next} /^```$/ {on = 0} on' "${@:2}" >"$d/recipes.sh"
    try test "$(grep -c '^ *lmc\|| *lmc\| lmc ' "$d/recipes.sh")" -ge "$1"
    try env PATH="$PWD/build:$PATH" LMC_SOURCE="$PWD" bash \
        -c 'cd "$1" && set -eux -o pipefail && . ./recipes.sh' recipes "$d"
}

# replayed COMMAND...: the step comes back, and the replay leaves less than a tenth of what the
# difference takes.
replayed() {
    "$@" | awk '
        {print}
        /^(master|exp_avg_sq)/ && $4 > 0 && $4 < $3 / 10 && $3 < $2 {n++}
        /^restored$/ {restored = 1}
        END {exit n != 2 || !restored}'
}

# The small programs beside the command, its manual page, `make install` and `make demo`.
suite_examples() {
    make_command
    local d=$out/examples program words
    mkdir -p "$d"
    for program in embed read_tensor; do
        try gcc -std=c99 -O0 -Wall -Wextra -Wpedantic -Werror examples/$program.c \
            -o "$d/$program" -lm
    done
    try gcc -std=c99 -O1 -Wall -Wextra -Wpedantic -Werror examples/replay.c -o "$d/replay" -lm
    try "$d/embed"
    try make -s gpu-stand-ins # no GPU is needed either
    try gcc -std=c99 -O1 -Wall -Wextra -Wpedantic -Werror examples/read_cuda.c \
        build/gpu/libcuda.so.1 -o "$d/read_cuda" -ldl
    build/lmc -f -o "$d/model.lmc" examples/data/gpt-step-001000.bf16.safetensors
    try cmp <("$d/read_tensor" "$d/model.lmc" model.norm.weight) \
        <(LD_LIBRARY_PATH=build/gpu "$d/read_cuda" "$d/model.lmc" model.norm.weight)
    # which nothing else compiles
    try gcc -std=c99 -fsyntax-only -Wall -Wextra -Wpedantic -Werror bench/instructions.c
    try gcc -std=c99 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fPIC \
        examples/liblmc.c
    try replayed "$d/replay"
    if [ -d "$LMC_DATA/series" ]; then
        try replayed "$d/replay" "$LMC_DATA"/series/step-00100[01] 1001
    else
        echo "SKIPPED replay of real steps: LMC_DATA has no series"
    fi
    if gcc -O2 -ffast-math -fsyntax-only examples/replay.c 2>/dev/null; then
        fail "replay compiles with -ffast-math"
    else
        pass
    fi
    if command -v mandoc >/dev/null; then
        try make -s build/lmc.1 &&
            try test -z "$(mandoc -T lint -W warning build/lmc.1 | grep -v 'missing date')"
    else
        echo "SKIPPED manual page: mandoc is not installed"
    fi
    try make -s install DESTDIR="$d/root" PREFIX=/usr
    try "$d/root/usr/bin/lmc" help
    try bash -n "$d/root/usr/share/bash-completion/completions/lmc"
    try test -s "$d/root/usr/share/zsh/site-functions/_lmc" \
        -a -s "$d/root/usr/share/fish/vendor_completions.d/lmc.fish"
    try test -s "$d/root/usr/include/lmc.h" -a -s "$d/root/usr/include/lmc_read.h" \
        -a -s "$d/root/usr/share/man/man1/lmc.1" -a -s "$d/root/usr/lib/liblmc.a"
    if command -v pkg-config >/dev/null; then # what a program is built with
        words=$(PKG_CONFIG_SYSROOT_DIR="$d/root" PKG_CONFIG_LIBDIR="$d/root/usr/lib/pkgconfig" \
            pkg-config --cflags --libs lmc)
        # shellcheck disable=SC2086 # words
        try gcc tools/packaging/conan/test_package/consumer.c -o "$d/consumer" $words &&
            try "$d/consumer"
    else echo "SKIPPED pkg-config: it is not installed"; fi
    try make -s uninstall DESTDIR="$d/root" PREFIX=/usr
    try test -z "$(find "$d/root" ! -type d)"
    try make -s demo QUICK=1
    # wheels are for glibc 2.17 (manylinux_2_17), which has none of these
    words='statx renameat2 copy_file_range getrandom gettid reallocarray memfd_create close_range'
    try test -z "$(nm -D --undefined-only build/lmc | grep -wF "${words// /$'\n'}")"
}

# suite_site: the website: each link, anchor and public name has its place
suite_site() {
    if ! "$python" -c 'import material, mkdocstrings' 2>/dev/null; then
        echo "SKIPPED site: mkdocs-material and mkdocstrings-python are not installed"
        return
    fi
    try "$python" tools/site/make
    try test -s build/site/reference/python.html
}
