# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# The suites that are programs in C (tests/codec), in any build

# run_programs BUILD PROGRAM [--brief|--long]
run_programs() {
    local build=$1 program=$2 mode=$3 reason list tier tiers best quick brief
    if ! reason=$(set_build "$build"); then
        echo "SKIPPED $build:$program: $reason"
        echo "0 passed, 0 failed"
        return
    fi
    set_build "$build"
    list=$program
    brief=${mode#--long}
    if [ "$program" = all ]; then list=$programs; fi
    if [ "$program" = codec ]; then list=$codec_programs brief=${brief:+kernels}; fi
    for program in $list; do
        compile "$build" "test_$program" "$program" ||
            { echo "0 passed, 1 failed"; status=1; continue; }
        # of this build on this machine, the best one last
        tiers=$($run "$out/$build/$program" --tiers)
        best=${tiers##*$'\n'}
        # kernels and small try all of them themselves, and formats has none; threads are the same
        # on each, and under sanitizers blocks show what each tier touches
        case $build:$program:$mode in
        sanitize:block:*) ;;
        *:kernels:* | *:small:* | *:formats:* | *:cuda:* | *:--brief | thread:*: | sanitize:delta:)
            tiers=$best
            ;;
        esac
        for tier in $tiers; do
            echo "$build:$program$mode, tier $tier"
            # in full with gcc on the best tier; elsewhere quick; with --long in full
            quick=1
            case $build:$program:$mode in
            *:--long) quick=$LMC_TEST_QUICK ;;
            gcc:*:) if [ "$tier" = "$best" ]; then quick=$LMC_TEST_QUICK; fi ;;
            esac
            LMC_TEST_TIER=$tier LMC_TEST_QUICK=$quick LMC_TEST_BRIEF=$brief timeout 3000 $run \
                "$out/$build/$program" ${mode#--brief} || status=$?
        done
    done
}
