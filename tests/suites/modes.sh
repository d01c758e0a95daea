# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suite modes

# suite_modes [--brief|--long]: every way to include lmc.h, in every standard, and whatever the
# LMC_NO_ macros leave of it: no warning. Most need no code for that, and linking shows as much with
# the portable code alone.
suite_modes() {
    local flags=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wchar-subscripts -Werror)
    local m=tests/codec/modes d=$out/modes mode=$1 compiler cxx standard level levels part
    mkdir -p "$d"
    warns() { try "$@" "${flags[@]}" -fsyntax-only; } # warns COMPILER ARGUMENT...: not
    # check NAME COMPILER ARGUMENT...: compiles without a warning, and runs
    check() {
        local name=$compiler-$1
        shift
        if "$1" "${flags[@]}" "${@:2}" -o "$d/$name" &&
            "$d/$name" spec/vectors/valid/example_quantised.lmc; then
            pass
        else
            fail "$name: $*"
        fi
    }
    # gcc and the newest clang do all of it, every other clang compiles it once: each warns of other
    # things
    local found= missing= wanted
    wanted="gcc g++ $(printf 'clang-%s clang++-%s ' 14 14 15 15 16 16 17 17 18 18 19 19)"
    for compiler in $wanted; do
        if command -v "$compiler" >/dev/null; then
            found+=" $compiler"
        else
            missing+=" $compiler"
        fi
    done
    echo "modes: found$found; not found:${missing:- none}"
    for compiler in $found; do
        case $compiler in
        *++*)
            warns "$compiler" -std=c++11 $m/cpp.cpp
            warns "$compiler" -std=c++11 -x c++ $m/macros.c
            ;;
        *)
            warns "$compiler" -std=c99 -DLMC_IMPLEMENTATION $m/use.c
            warns "$compiler" -std=c99 $m/macros.c
            ;;
        esac
    done
    # tests/install cross
    if command -v x86_64-w64-mingw32-gcc >/dev/null; then
        warns x86_64-w64-mingw32-gcc -std=c99 $m/multi_include.c
    fi
    for compiler in gcc "$(clang_command)"; do
        if ! command -v "$compiler" >/dev/null; then
            echo "SKIPPED modes with $compiler: not installed"
            continue
        fi
        cxx=${compiler/gcc/g++} cxx=${cxx/clang/clang++}
        if ! command -v "$cxx" >/dev/null; then
            echo "SKIPPED modes with $cxx: not installed"
            cxx=
        fi
        cuts
        headers
        if [ "$(uname -m)" = x86_64 ]; then no_avx512; fi
        warns "$compiler" -std=c99 -funsigned-char -DLMC_IMPLEMENTATION $m/use.c
        if [ "$mode" = --brief ]; then continue; fi
        for standard in c99 c17; do
            warns "$compiler" -std=$standard -DLMC_IMPLEMENTATION $m/use.c
        done
        warns "$compiler" -std=c99 $m/multi_include.c
        warns "$compiler" -std=c99 $m/static_a.c
        # gcc has warnings that need optimisation, most of them with -O3
        if [ "$mode" = --long ]; then levels="O2 O3"
        elif [ "$compiler" = gcc ]; then levels=O3
        else levels=
        fi
        for level in $levels; do
            try "$compiler" -std=c99 -$level "${flags[@]}" -c -o "$d/consumer.o" $m/consumer.c
        done
        # make dev
        for part in kernels kernels_avx2 kernels_avx512 rest; do
            try "$compiler" -std=c99 -Wall -Wextra -Wpedantic -Werror -Isrc -fsyntax-only \
                src/objects/$part.c
        done
        check multi_include "$compiler" -std=c99 -DLMC_NO_SIMD $m/multi_include.c
        check static "$compiler" -std=c99 -DLMC_NO_SIMD $m/static_a.c $m/static_b.c
        check two_tu "$compiler" -std=c99 -DLMC_NO_SIMD $m/use.c $m/implement.c
        # all test programs are compiled with -O2, and with -O1 by clang
        for level in $(if [ "$mode" = --long ]; then echo O1 O3 Os; fi); do
            check $level "$compiler" -std=c99 -$level -DLMC_IMPLEMENTATION $m/use.c
        done
        if [ -z "$cxx" ]; then continue; fi
        for standard in c++11 c++17; do
            warns "$cxx" -std=$standard $m/cpp.cpp
            warns "$cxx" -std=$standard -x c++ $m/static_a.c
        done
        check cpp "$cxx" -std=c++11 -DLMC_NO_SIMD $m/cpp.cpp
        check cpp_static "$cxx" -std=c++11 -DLMC_NO_SIMD -x c++ $m/static_a.c $m/static_b.c
        check cpp_two_tu "$cxx" -std=c++11 -DLMC_NO_SIMD -x c++ $m/use.c $m/implement.c
    done
}

# In suite_modes: each header of include/ that is cut out of lmc.h is what the preprocessor leaves
# of that, and it works; and no file can have two of them by mistake.
headers() {
    local name names set level levels
    for name in decode read; do
        names=$(sed -n 's/^@CUT \(.*\)@$/\1/p' "src/lmc_$name.h.in")
        read -r -a set <<<"${names//LMC_/-DLMC_}"
        try test "$("$compiler" -std=c99 -E -P -DLMC_IMPLEMENTATION "${set[@]}" -x c lmc.h)" = \
            "$("$compiler" -std=c99 -E -P -DLMC_IMPLEMENTATION -x c "include/lmc_$name.h")"
        set+=("-DHEADER=\"../../../include/lmc_$name.h\"")
        if "$compiler" -include lmc.h -fsyntax-only -x c "include/lmc_$name.h" 2>/dev/null; then
            fail "lmc.h and lmc_$name.h in one file"
        else
            pass
        fi
        if "$compiler" -include "include/lmc_$name.h" -fsyntax-only -x c lmc.h 2>/dev/null; then
            fail "lmc_$name.h and lmc.h in one file"
        else
            pass
        fi
        warns "$compiler" -std=c99 "${set[@]}" $m/config.c
        warns "$compiler" -std=c99 "${set[@]}" -DALONE $m/config.c
        warns "$compiler" -std=c99 "${set[@]}" -DLMC_PTHREADS -DLMC_POSIX \
            -D_POSIX_C_SOURCE=200809L $m/config.c
        if [ "$mode" = --brief ]; then continue; fi
        if [ "$mode" = --long ]; then levels="O0 O2"
        elif [ "$compiler" = gcc ]; then levels=O2
        else levels=O0
        fi
        for level in $levels; do
            check "$name-$level" "$compiler" -std=c99 -$level "${set[@]}" $m/config.c
        done
        check "$name-scalar" "$compiler" -std=c99 -O0 -DLMC_NO_SIMD -DLMC_NO_QUANTIZE "${set[@]}" \
            $m/config.c
        if [ -z "$cxx" ]; then continue; fi
        if [ "$mode" = --long ]; then check "$name-cpp" "$cxx" -std=c++11 -O0 "${set[@]}" \
            -x c++ $m/config.c
        else check "$name-cpp" "$cxx" -std=c++11 -O0 -DLMC_NO_SIMD "${set[@]}" \
            -x c++ $m/config.c; fi
    done
}

# In suite_modes: LMC_NO_AVX512 leaves no instruction of AVX-512, which the library has without it.
# With -O0 compilers keep functions that nobody calls.
no_avx512() {
    local assembly=("$compiler" -std=c99 -O0 "${flags[@]}" -S -o - $m/implement.c)
    if "${assembly[@]}" -O1 -DLMC_NO_AVX512 >"$d/assembly" && grep -q ymm "$d/assembly" &&
        ! grep -q zmm "$d/assembly"; then
        pass
    else
        fail "LMC_NO_AVX512 with $compiler"
    fi
    if [ "$mode" = --brief ]; then return; fi
    if "${assembly[@]}" | grep -q zmm; then pass; else fail "no AVX-512 with $compiler"; fi
    check no_avx512 "$compiler" -std=c99 -O0 -DLMC_NO_AVX512 -DLMC_IMPLEMENTATION $m/use.c
}

# In suite_modes: all 8 sets of what can be left out. clang tells of functions that nobody uses
# without compiling them, gcc only if it compiles; with vectors g++ takes longest.
cuts() {
    local macro set n=0
    for macro in LMC_NO_ENCODER LMC_NO_QUANTIZE LMC_NO_SNAPSHOT; do
        try grep -q "ndef $macro" lmc.h
    done
    for ((; n < 8; n++)); do
        set=()
        if ((n & 1)); then set+=(-DLMC_NO_ENCODER); fi
        if ((n & 2)); then set+=(-DLMC_NO_QUANTIZE); fi
        if ((n & 4)); then set+=(-DLMC_NO_SNAPSHOT); fi
        if [ "$mode" = --brief ]; then # the compiler that warns more; and the known bytes
            if [ "$compiler" != gcc ]; then
                warns "$compiler" -std=c99 -DLMC_NO_SIMD "${set[@]}" $m/config.c
            else
                warns "$compiler" -std=c99 "${set[@]}" $m/config.c
            fi
            if [ "$compiler" = gcc ] && ((n % 7 == 0)); then
                check "config-$n" "$compiler" -std=c99 -O0 -DLMC_NO_SIMD "${set[@]}" $m/config.c
            fi
            continue
        fi
        if [ "$compiler" != gcc ]; then
            warns "$compiler" -std=c99 -DLMC_NO_SIMD -DALONE "${set[@]}" $m/config.c
        fi
        warns "$compiler" -std=c99 "${set[@]}" $m/config.c
        # gcc tells only so of functions that nobody uses; for what runs then, the compiler does not
        # matter
        if [ "$compiler" = gcc ]; then
            check "config-$n" "$compiler" -std=c99 -O0 -DLMC_NO_SIMD "${set[@]}" $m/config.c
        fi
        if ((n % 7 == 0)); then warns "$compiler" -std=c17 -DLMC_NO_SIMD "${set[@]}" $m/config.c; fi
        if [ -z "$cxx" ]; then continue; fi
        warns "$cxx" -std=c++11 -DLMC_NO_SIMD "${set[@]}" -x c++ $m/config.c
        if ((n % 7 == 0)); then
            warns "$cxx" -std=c++17 -DLMC_NO_SIMD "${set[@]}" -x c++ $m/config.c
        fi
        if [ "$compiler" != gcc ] || [ "$mode" = --long ] || ((n % 7 == 0)); then
            warns "$cxx" -std=c++11 "${set[@]}" -x c++ $m/config.c
        fi
        if [ "$mode" = --long ]; then
            check "config-$n" "$compiler" -std=c99 -O2 "${set[@]}" $m/config.c
        fi
    done
}
