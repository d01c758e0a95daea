# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suite gpu

# suite_gpu [--brief|--long]: the kernels of src/gpu on the CPU (tests/gpu): right, without races,
# in bounds of memory; and compiled for GPUs; and no more work than tests/gpu/counts.txt says.
# brief: the first two, of some blocks. long: in several orders of threads; each barrier, left out,
# is missed; under sanitizers
suite_gpu() {
    local d=$out/gpu blocks=build/gpu-check/blocks build reason source
    local cxx=(g++ -std=c++17 -g -Wall -Wextra -Wno-unused-function -Isrc -Itests/gpu)
    local sources="lmc.h src/gpu/* tests/gpu/*.cpp tests/gpu/*.h tests/codec/t.h"
    sources+=" tests/codec/t_data.h"
    mkdir -p "$d"
    PYTHON=$python try make_command build/gpu-check/blocks || return
    set_build gcc
    try compile_library gcc
    # instrumented as for ThreadSanitizer, which race_check.cpp is in place of
    try cached "$d/kernel.o" "$sources" "${cxx[@]}" -O1 -fsanitize=thread -c tests/gpu/kernel.cpp ||
        return
    try cached "$d/races" "$sources $d/kernel.o.state $out/gcc/lmc.o.state" "${cxx[@]}" -O2 \
        tests/gpu/{test_kernel,cuda_on_cpu,race_check}.cpp "$d/kernel.o" "$out/gcc/lmc.o" -ldl \
        -pthread -lm || return
    case $1 in
    --brief) counted env LMC_TEST_BRIEF=1 "$d/races" "$blocks"; return ;;
    --long)
        counted "$d/races" "$blocks" --barriers
        counted env LMC_TEST_BRIEF=1 "$d/races" "$blocks" --orders 20
        ;;
    *)
        counted "$d/races" "$blocks"
        counted "$d/races" "$blocks" --counts tests/gpu/counts.txt
        if "$python" tests/gpu/compile.py --is-installed; then counted "$python" \
            tests/gpu/compile.py
        else echo "SKIPPED gpu: nvidia-cuda-nvrtc-cu12 is not installed"; fi
        return
        ;;
    esac
    if ! reason=$(set_build sanitize); then echo "SKIPPED gpu with sanitizers: $reason"; return; fi
    set_build sanitize
    try compile_library sanitize
    # the stacks of fibers are not those that it knows: without fake ones it takes a fifth of the
    # time
    cxx=("${cc[@]}" -std=c++17 -fsanitize-address-use-after-return=never -Wno-unused-function
        -Isrc -Itests/gpu)
    cxx[0]=${cc[0]/clang/clang++}
    try cached "$d/sanitize" "$sources $out/sanitize/lmc.o.state" "${cxx[@]}" \
        tests/gpu/{test_kernel,cuda_on_cpu,kernel}.cpp "$out/sanitize/lmc.o" -pthread -lm || return
    counted "$d/sanitize" "$blocks"
}
