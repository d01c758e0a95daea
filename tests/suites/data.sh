# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suites data, fuzz: real checkpoints; what fuzzing has kept

# Real checkpoints through the library, the command and (small ones) the Python decoder.
suite_data() {
    make_command
    local file how d=$out/data
    if [ ! -d "$LMC_DATA" ]; then echo "SKIPPED data: LMC_DATA is not there"; return; fi
    if [ -z "$(find "$LMC_DATA" -name '*.safetensors' -print -quit)" ]; then
        echo "SKIPPED data: LMC_DATA has no safetensors"
        return
    fi
    mkdir -p "$d"
    while read -r file; do
        rm -rf "$d/x"*
        try build/lmc -q -k -f "$file" -o "$d/x.lmc"
        try build/lmc -q -t "$d/x.lmc"
        try build/lmc -q -d -f "$d/x.lmc" -o "$d/x"
        try cmp "$file" "$d/x"
        if [ "$(stat -c %s "$file")" -le 2000000 ]; then
            try "$python" spec/lmc_decode.py "$d/x.lmc" "$d/x.py"
            try cmp "$file" "$d/x.py"
        fi
    done < <(find "$LMC_DATA" -name '*.safetensors' | sort)
    rm -rf "$d/x"*
    # what chunks of a file that was changed are those of the file
    try "${CC:-cc}" -std=c99 -O2 tests/codec/chunks.c -o "$d/chunks"
    find "$LMC_DATA" -name '*.safetensors' -size +4M -size -100M -print0 | sort -z |
        head -z -n 4 >"$d/list"
    try xargs -0 -a "$d/list" "$python" tests/codec/test_chunks.py build/lmc "$d/chunks" "$d"
    rm -f "$d/before"* "$d/after"*
    if ! [ -d "$LMC_DATA/series" ] || ! [ -d "$LMC_DATA/models" ]; then
        echo "SKIPPED damages: LMC_DATA has no series/ and models/"
    # some of the damages of bench/corruption.py: none may be silent
    elif "$python" -c 'import numpy' 2>/dev/null; then
        make_command build/liblmc.so
        try "$python" bench/corruption.py --only LMC --trials 60 "$LMC_DATA" >"$d/damages"
        for how in restored read; do # all kinds came
            try test "$(grep -c "^| LMC, $how | " "$d/damages")" -eq 26
        done
    else echo "SKIPPED damages: numpy is not installed"; fi
}

# What fuzzing has kept: every input once more, under sanitizers where clang has them.
# suite_fuzz [--brief]: one in sixteen
suite_fuzz() {
    local program=$PWD/$out/fuzz reason
    if ! reason=$(set_build sanitize); then echo "SKIPPED fuzz: $reason"; return; fi
    set_build sanitize
    mkdir -p "$program/replay"
    try compile_library sanitize
    try env LIBRARY="$out/sanitize/lmc.o" CC="${cc[0]}" CXX="${cc[0]}" CFLAGS="${cc[*]:1}" \
        CXXFLAGS="${cc[*]:1}" LIB_FUZZING_ENGINE= OUT="$program/replay" fuzz/build replay
    try env OUT="$program" FUZZ_WORK="$program/work" fuzz/run --replay ${1:+--every=16}
}
