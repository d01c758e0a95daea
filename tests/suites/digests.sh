# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suites digests, determinism, avx512: the same bytes everywhere

# same NAME COMMAND...: its digests are those that are committed; brief: those of the samples
same() {
    local name=$1 d=$out/digests wanted=tests/digests.txt n
    shift
    mkdir -p "$d"
    if [ -n "${LMC_TEST_BRIEF:-}" ]; then
        grep sample tests/digests.txt >"$d/$name.wanted"
        wanted=$d/$name.wanted
    fi
    if ! "$@" >"$d/$name"; then fail "digest: $name"; return; fi
    if cmp -s "$wanted" "$d/$name"; then pass; return; fi
    n=$(diff "$wanted" "$d/$name" | grep -c '^<')
    fail "digest: $name differs from tests/digests.txt in $n groups; '<' is wanted." \
        "Each input: LMC_TEST_TIER=${LMC_TEST_TIER:-} $* --each"
    diff "$wanted" "$d/$name" | grep '^[<>]' | head -n 8
}

# same_on_tiers BUILD WORKERS...: on every tier of this machine, with each of these numbers of
# threads
same_on_tiers() {
    local build=$1 tier tiers workers
    shift
    tiers=$("$out/$build/digest" --tiers)
    if [ -z "$tiers" ]; then fail "$build: digest --tiers names no tier"; return; fi
    for tier in $tiers; do
        for workers in "$@"; do
            LMC_TEST_TIER=$tier same "$build-$tier-$workers" "$out/$build/digest" "$workers"
        done
    done
}

# Compressed bytes are those of the commit, on every tier of this machine.
suite_digests() {
    set_build gcc
    try compile gcc digest digest && same_on_tiers gcc 1 5
}

# suite_determinism [--long]: and with other compilers, word sizes and byte orders: of emulated
# machines one digest in 17; with --long all of all, those of test-cross, too
suite_determinism() {
    local build reason list="gcc clang m32 s390x aarch64 wasm"
    if [ -n "$1" ]; then
        list+=" scalar gcc_fast clang_fast ppc64le s390x_simde arm riscv64 arm_simde"
        list+=" riscv64_simde mingw"
    fi
    for build in $list; do
        if ! reason=$(set_build $build); then
            echo "SKIPPED determinism of $build: $reason"
            continue
        fi
        set_build $build
        if ! compile $build digest digest; then fail "digest does not compile: $build"; continue; fi
        LMC_TEST_BRIEF=$([ -z "$run" ] || [ -n "$1" ] || echo 1) same $build $run \
            "$out/$build/digest"
        # with the best tier only under an emulator
        if [ -n "$run" ] || [[ $build = *_fast ]]; then continue; fi
        same_on_tiers $build \
            $(if [ -n "$1" ]; then echo 1 2; elif [ $build = gcc ]; then echo 1; fi) 5
    done
}

# suite_avx512 [--long]: the tier of that name on an emulated machine that has it: what uses
# kernels, sampled so that it takes a quarter of an hour; with --long all, brief. Of the digests
# some.
suite_avx512() {
    local settings="LMC_TEST_TIER=avx512 LMC_TEST_BRIEF=kernels" list=$codec_programs
    local program tool commands=() said n
    for tool in bochs xorriso busybox cpio; do
        if ! command -v $tool >/dev/null; then
            echo "SKIPPED avx512: $tool is not installed"
            return
        fi
    done
    set_build avx512
    if [ -n "$1" ]; then settings="LMC_TEST_TIER=avx512 LMC_TEST_BRIEF=1" list=$programs; fi
    for program in $list; do
        try compile avx512 "test_$program" "$program" || return
        commands+=("$settings $out/avx512/$program")
    done
    try compile avx512 digest digest || return
    commands+=("LMC_TEST_TIER=avx512 LMC_TEST_BRIEF=1 $out/avx512/digest")
    said=$out/avx512/said
    try tests/avx512 "${commands[@]}" >"$said"
    sed '/digest$/,$d' "$said" # with the sums of each
    n=$(grep -c '^exit 0$' "$said")
    if [ "$n" = ${#commands[@]} ]; then
        pass
    else
        fail "$n programs of ${#commands[@]} ended well"
    fi
    sed '1,/digest$/d; /^exit/d' "$said" >"$said.digests"
    LMC_TEST_BRIEF=1 same avx512 cat "$said.digests"
}
