# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suites spec, ports

# suite_spec [--brief]: the conformance vectors: as the generator makes them, through the Python
# decoder, the command and the library.
suite_spec() {
    local build reason tier tiers
    make_command
    if [ -n "$1" ]; then # through the library and the command
        try "$python" spec/check_vectors.py 'build/lmc -d -q -f --no-search {base} -o {out} {in}'
        set_build gcc
        try compile gcc vectors vectors && try "$python" tests/codec/vectors.py "$out/gcc/vectors"
        return
    fi
    try "$python" spec/make_vectors.py --check-only
    try "$python" spec/base_variants.py
    try "$python" spec/check_page.py
    try "$python" spec/check_vectors.py
    try "$python" spec/check_vectors.py --has "" --has own,zeros # decoders of some bits
    try "$python" spec/check_vectors.py 'build/lmc -d -q -f --no-search {base} -o {out} {in}'
    for build in gcc sanitize s390x; do
        if ! reason=$(set_build $build); then
            echo "SKIPPED vectors with $build: $reason"
            continue
        fi
        set_build $build
        echo "vectors with $build"
        try compile $build vectors vectors
        # under the sanitizers the best one only: the other suites have shown what is in bounds
        tiers=$($run "$out/$build/vectors" --tiers)
        if [ $build = sanitize ]; then tiers=${tiers##*$'\n'}; fi
        for tier in $tiers; do
            LMC_TEST_TIER=$tier try "$python" tests/codec/vectors.py $run "$out/$build/vectors"
        done
    done
    set_build gcc
    echo "vectors with lmc_read.h; blocks with lmc_decode.h"
    try "${cc[@]}" "${flags[@]}" tests/codec/vectors.c tests/codec/t_read.c \
        -o "$out/gcc/vectors_read" "${link[@]}" &&
        try "$python" tests/codec/vectors.py "$out/gcc/vectors_read"
    try "${cc[@]}" "${flags[@]}" -fPIC -shared tests/codec/t_decode.c -o "$out/gcc/decode.so" &&
        try "$python" tests/codec/blocks.py "$out/gcc/decode.so"
}

# The decoders in other languages (spec/ports), each with all vectors.
suite_ports() {
    port_rust
    port_js
    port_ruby
}

# golden_by COMMAND: the golden files by a port, too
golden_by() {
    if [ "$(head -c 1 tests/golden/step-0.lmc | od -An -tx1)" != " 95" ]; then
        echo "SKIPPED golden files by $1: tests/golden is of an older format"
        return
    fi
    make_command
    try env PORTS="$1 {base} {in} {out}" "$python" tests/command/test_golden.py
}

port_rust() {
    local d=$out/ports/rust source=spec/ports/rust
    if ! command -v rustc >/dev/null; then
        echo "SKIPPED ports in Rust: rustc is not installed"
        return
    fi
    rm -rf "$d"
    mkdir -p "$d"
    # the compiler's own checks for overflow are on, so that one is a crash
    local compile=(rustc --edition 2021 -O -C overflow-checks=on)
    try "${compile[@]}" --crate-type rlib --crate-name lmc $source/src/lib.rs --out-dir "$d" ||
        return
    try "${compile[@]}" --extern lmc="$d/liblmc.rlib" $source/src/main.rs -o "$d/lmc-rs"
    try "${compile[@]}" --test --extern lmc="$d/liblmc.rlib" $source/tests/tests.rs -o "$d/tests"
    try env LMC_VECTORS=spec/vectors "$d/tests" -q
    try "$python" spec/check_vectors.py --answers "$d/lmc-rs --answers"
    try "$python" spec/check_vectors.py "$d/lmc-rs {base} {in} {out}"
    golden_by "$d/lmc-rs"
}

port_js() {
    local d=spec/ports/js rust=$out/ports/rust/lmc-rs
    if ! command -v node >/dev/null; then
        echo "SKIPPED ports in JavaScript: node is not installed"
        return
    fi
    try "$python" spec/check_vectors.py --answers "node $d/answers.mjs"
    try node $d/test.mjs
    if [ -x "$rust" ]; then # both must accept the same damaged files
        try node $d/fuzz.mjs 2000 1 "$rust --answers"
    else
        try node $d/fuzz.mjs 2000
    fi
    golden_by "node $d/cli.mjs"
}

# one for files without a base
port_ruby() {
    local d=$out/ports/ruby source=spec/ports/ruby said
    if ! command -v ruby >/dev/null; then
        echo "SKIPPED ports in Ruby: ruby is not installed"
        return
    fi
    rm -rf "$d"
    mkdir -p "$d"
    try "$python" spec/check_vectors.py --has zeros,matrix,codes --answers \
        "ruby -w $source/answers.rb"
    try ruby -w $source/restore.rb spec/vectors/valid/group_mixed.lmc "$d/a"
    try "$python" spec/lmc_decode.py spec/vectors/valid/group_mixed.lmc "$d/b"
    try diff -r "$d/a" "$d/b"
    said=$(ruby -w $source/restore.rb spec/vectors/invalid/header_crc.lmc "$d/c" 2>&1)
    try test "$? $said" = "3 restore: CHECKSUM: Header_CRC"
    try test ! -e "$d/c"
}
