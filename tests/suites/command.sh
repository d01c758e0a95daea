# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# The suites that are scripts in Python: scripts_of in tests/run

has_python_h() { # [INTERPRETER]
    local include
    include=$("${1:-$python}" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$include/Python.h" ]
}

# run_checked NAME [--brief]
run_checked() {
    if ! command -v "$(clang_command)" >/dev/null; then
        echo "SKIPPED $1 with sanitizers: clang is not installed"
        echo "0 passed, 0 failed"
        return
    fi
    LMC=$(make_checked_command ${2:+--brief}) || { status=1; return; }
    # of memory that the end of the process frees
    export LMC LMC_SANITIZED=1 ASAN_OPTIONS=detect_leaks=0
    run_scripts "$@"
}

# run_scripts NAME [--brief|--long]
run_scripts() {
    local script
    case $1 in
    weight_sync)
        if ! "$python" -c 'import numpy' 2>/dev/null; then
            echo "SKIPPED weight_sync: numpy is not installed"
            echo "0 passed, 0 failed"
            return
        fi
        if ! has_python_h; then
            echo "SKIPPED weight_sync: Python.h is not installed"
            echo "0 passed, 0 failed"
            return
        fi
        PYTHON=$python make_command build/python
        ;;
    hostile | limits)
        make_command build/liblmc.so # sums of gigabytes of zeros
        ;;
    verdicts)
        make_command
        if [ "${2:-}" = --brief ]; then :
        elif has_python_h; then PYTHON=$python make_command build/python
        else echo "SKIPPED verdicts of the Python package: Python.h is not installed"; fi
        ;;
    fake_cuda)
        make_command gpu-stand-ins
        rm -f build/gpu-check/made_of
        if has_python_h; then PYTHON=$python make_command gpu-check && "$python" bench/gpu.py --make
        else echo "SKIPPED bench/gpu.py: Python.h is not installed"; fi
        ;;
    *) make_command ;;
    esac
    for script in $(scripts_of "$1"); do
        "$python" "$script" ${2:+"$2"} || status=$?
    done
}
