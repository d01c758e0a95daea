# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suite prove

# suite_prove [--brief]: proofs about the portable decoder
suite_prove() {
    if command -v frama-c >/dev/null; then counted tests/prove/run ${1:+"$1"}
    elif apt-cache show frama-c-base >/dev/null 2>&1; then
        echo "SKIPPED prove: frama-c-base is not installed"
    else echo "SKIPPED prove: this system has no package frama-c-base"; fi
}
