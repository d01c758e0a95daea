# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Builds: compilers and emulators, programs of C, the command.

# the newest clang
clang_command() {
    compgen -c clang | grep -xE 'clang-[0-9]+' | sort -t- -k2 -rn | { cat; echo clang; } |
        head -n 1
}

# cross NAME QEMU FLAG...: compiler and emulator of another architecture
cross() {
    cc=("$1-gcc" -O2 "${@:3}")
    link=(-static -pthread -lm)
    run=$(command -v "qemu-$2" || command -v "qemu-$2-static") ||
        { echo "qemu-$2 is not installed"; return 1; }
}

# SIMDe's headers only, by a link: the other headers of this machine are wrong for another
simde() {
    local header
    cc+=(-isystem "$out/simde" -DLMC_SIMDE)
    if [ -e "$out/simde/simde/x86/avx2.h" ]; then return; fi
    header=$(echo '#include <simde/x86/avx2.h>' | gcc -E -M - 2>/dev/null |
        grep -om1 '/[^ ]*/simde/x86/avx2.h') || { echo "SIMDe is not installed"; return 1; }
    mkdir -p "$out/simde"
    ln -sfn "${header%/x86/avx2.h}" "$out/simde/simde"
}

# set_build NAME
set_build() {
    run= link=(-pthread -lm)
    case $1 in
    cc) cc=("${CC:-cc}" -O2) ;;
    gcc) cc=(gcc -O2) ;;
    clang) cc=("$(clang_command)" -O2) ;;
    # of quantisers, the scalar code does here what vectors do elsewhere
    gcc_fast) cc=(gcc -O1 -ffast-math -Wno-unused-function) ;;
    clang_fast)
        cc=("$(clang_command)" -O1 -ffast-math -Wno-error=unused-function)
        # as zig cc has it: functions with target attributes must name all that they use
        if [ "$(uname -m)" = x86_64 ] &&
            [ "$(echo __clang_major__ | "${cc[0]}" -E -P -)" -ge 15 ]; then
            cc+=(-mno-crc32)
        fi
        ;;
    scalar) cc=(gcc -O2 -DLMC_NO_SIMD) ;;
    # FUZZ_WITH_TESTS: one object for the tests and for fuzz/
    sanitize)
        cc=("$(clang_command)" -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
            -DFUZZ_WITH_TESTS)
        ;;
    unsigned_char) cc=(gcc -O2 -funsigned-char) ;;
    # gcc's headers spell some intrinsics otherwise
    gcc_ubsan) cc=(gcc -O1 -g -fsanitize=undefined -fno-sanitize-recover=all) ;;
    avx512) cc=(gcc -O2 -static -DT_BOCHS) link=(-pthread -lm) ;; # for tests/avx512
    thread) cc=("$(clang_command)" -O1 -g -fsanitize=thread) ;;
    m32) cc=(gcc -m32 -O2) ;;
    s390x) cross s390x-linux-gnu s390x || return ;;
    aarch64) cross aarch64-linux-gnu aarch64 || return ;;
    aarch64_clang)
        cross aarch64-linux-gnu aarch64 || return
        cc=("$(clang_command)" --target=aarch64-linux-gnu "${cc[@]:1}")
        ;;
    # off_t of 64 bits: readdir fails at the entries of an ext4 of the host
    arm) cross arm-linux-gnueabihf arm -D_FILE_OFFSET_BITS=64 || return ;;
    riscv64) cross riscv64-linux-gnu riscv64 || return ;;
    # the AVX2 text through SIMDe; on riscv64 and s390x it does not win, so there it is scalar
    # unless forced
    arm_simde) cross arm-linux-gnueabihf arm -mfpu=neon && simde || return ;;
    ppc64le) cross powerpc64le-linux-gnu ppc64le && simde || return ;;
    riscv64_simde) cross riscv64-linux-gnu riscv64 -DLMC__SIMDE=1 && simde || return ;;
    s390x_simde) cross s390x-linux-gnu s390x -march=z14 -mzvector && simde || return ;;
    wasm)
        command -v node >/dev/null || { echo "node is not installed"; return 1; }
        # single-threaded: at the end of a program node 20 crashes now and then when its compiler
        # threads are still at work
        run="node --no-warnings --single-threaded tests/wasi.mjs"
        cc=("$(clang_command)" --target=wasm32-wasi -O2 -msimd128 -D_WASI_EMULATED_PROCESS_CLOCKS)
        link=(-Wl,-z,stack-size=1048576 -lwasi-emulated-process-clocks)
        simde || return
        ;;
    # it does not know all vector instructions
    memory)
        cc=("$(clang_command)" -O1 -g -fsanitize=memory -fno-sanitize-recover=all -DLMC_NO_SIMD)
        ;;
    mingw) # Windows
        run=$(command -v wine64 || command -v wine || ls /usr/lib/wine/wine64 2>/dev/null) ||
            { echo "wine is not installed"; return 1; }
        run="env WINEDEBUG=-all WINEPREFIX=$PWD/$out/wine $run"
        cc=(x86_64-w64-mingw32-gcc -O2) link=(-static -lpthread -lm)
        ;;
    *) echo "no such build"; return 1 ;;
    esac
    command -v "${cc[0]}" >/dev/null || { echo "${cc[0]} is not installed"; return 1; }
    mkdir -p "$out/$1"
    local version
    version=$("${cc[0]}" --version | head -n 1)
    if [ "${cc[*]} $version $run" = "$(cat "$out/$1/works" 2>/dev/null)" ]; then return; fi
    echo '#include <stdio.h>
int main(void) { return printf("works\n") != 6; }' >"$out/$1/works.$$.c"
    "${cc[@]}" "$out/$1/works.$$.c" -o "$out/$1/works.$$" "${link[@]}" 2>/dev/null &&
        $run "$out/$1/works.$$" >/dev/null ||
        { echo "${cc[*]} is not installed so that its programs run here"; return 1; }
    rm -f "$out/$1/works.$$"*
    echo "${cc[*]} $version $run" >"$out/$1/works"
}

# cached FILE SOURCES COMMAND...: runs the command, which makes FILE, unless FILE was made by the
# same command and compiler from the same SOURCES (a list of files). Whoever wants it at the same
# time waits.
cached() {
    local file=$1 sources=$2 state
    shift 2
    (
        if command -v flock >/dev/null; then flock 8; fi
        state=$({ echo "$@"; "$1" --version; cat $sources; } | cksum)
        if [ -e "$file" ] && [ "$state" = "$(cat "$file.state" 2>/dev/null)" ]; then exit; fi
        rm -f "$file.state"
        "$@" -o "$file.new" && mv "$file.new" "$file" && echo "$state" >"$file.state"
    ) 8>"$file.lock"
}

flags=(-std=c99 -Wall -Wextra -Wpedantic -Werror)

# compile_library BUILD [FLAG], after set_build: what implements lmc.h, once for all programs of a
# build but cuda, which has it with the flag and lmc_cuda.h
compile_library() {
    local sources="lmc.h include/*.h fuzz/lmc.c fuzz/*.h"
    sources+=" tests/codec/t.h tests/codec/t_data.h tests/codec/private_*.h tests/codec/t_lmc.c"
    cached "$out/$1/lmc${2:-}.o" "$sources" \
        "${cc[@]}" "${flags[@]}" ${2:+"$2"} -c tests/codec/t_lmc.c
}

# compile BUILD SOURCE PROGRAM, after set_build
compile() {
    local program=$out/$1/$3 source=tests/codec/$2.c flag= library
    if [ "$2" = test_cuda ]; then flag=-DT_CUDA link+=(-ldl) && make -s gpu-stand-ins || return; fi
    compile_library "$1" $flag || return
    library=$out/$1/lmc$flag.o
    if [ "$1" = mingw ]; then program+=.exe; fi
    cached "$program" "lmc.h include/*.h tests/codec/t*.h $source formats/*.[ch] $library.state" \
        "${cc[@]}" "${flags[@]}" "$source" "$library" "${link[@]}" || return
    if [ "$1" = mingw ]; then cp "$program" "$out/$1/$3"; fi
}

# The command, by the Makefile: the same as users get; and what else is named
make_command() {
    (
        if command -v flock >/dev/null; then flock 8; fi
        make -s build/lmc "$@"
    ) 8>"$out/command.lock"
}

# make_checked_command [--brief]: the command under sanitizers, which end it at the first error;
# fuzz/unchecked.txt names what may wrap. Prints its path. Compiling takes longer than a brief
# suite, so it is not optimised for one
make_checked_command() {
    local d=$PWD/$out/checked level=1 sources
    if [ -n "${1:-}" ]; then level=0; fi
    mkdir -p "$d"
    sed -f cli/help.sed cli/help.txt >"$d/help_text.c"
    local fuse=()
    if pkg-config --exists fuse3 2>/dev/null; then
        read -r -a fuse <<<"-DLMC_FUSE $(pkg-config --cflags --libs fuse3)"
    fi
    sources="lmc.h include/*.h cli/*.[ch] cli/*/*.[ch] formats/*.[ch] store/*.[ch]"
    cached "$d/lmc" "$sources $d/help_text.c fuzz/unchecked.txt" \
        "$(clang_command)" -std=c99 -O$level -g1 -w \
        -fsanitize=address,undefined,integer,nullability,float-divide-by-zero \
        -fno-sanitize-recover=all -fsanitize-ignorelist=fuzz/unchecked.txt \
        cli/*.c cli/*/*.c formats/*.c store/*.c "$d/help_text.c" "${fuse[@]}" \
        -ljansson -pthread -lm >&2 &&
        echo "$d/lmc"
}
