# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suites style, budget

# What the tools of tools/ check: lmc.h is made from src/, floors are kept, the code has one format,
# and the pages' links lead somewhere.
suite_style() {
    local said
    try "$python" tools/tables.py --check
    try "$python" tools/amalgamate.py --check
    try "$python" tools/check_layers.py
    try "$python" tools/check_layers_cli.py
    try "$python" tools/check_circles.py
    try "$python" tools/check_links.py
    try "$python" tools/check_limits.py
    try "$python" tools/completions.py --check
    if said=$(no_clone); then echo "SKIPPED release: $said"
    else
        # a make that ran before has made lmc.h anew; what was committed must have been right
        if [ "${CI:-}" = true ]; then try git diff --stat --exit-code lmc.h include; fi
        try "$python" tools/release --check
    fi
    if said=$(tools/format --check 2>&1); then pass
    elif [[ $said = *"is not installed"* ]]; then echo "SKIPPED format: $said"
    else fail "tools/format --check: $said"
    fi
    checks_skips
    finds_python
    needs_no_clone
    says_what_it_costs
}

# builds_quietly TREE: a line for each file; V=1 shows commands; without Python lmc.h stays, with a
# warning if src/ has something else.
builds_quietly() {
    local d=$1 old_python='#!/bin/sh\nexit 1\n' make said
    make=(env MAKEFLAGS= PATH="$d/none:$PATH" make -C "$d" CC=true)
    mkdir "$d/none"
    printf '%b' "$old_python" >"$d/none/python3"
    chmod +x "$d/none/python3"
    touch -d 2020-01-01 "$d/lmc.h"
    said=$("${make[@]}" 2>&1)
    try test "$(echo "$said" | grep -cx 'CC cli/.*\.c')" = "$(find cli -name '*.c' | wc -l)"
    try test -z "$(echo "$said" | grep -vE '^make|^(CC|LD) [a-z0-9_/.]*$')"
    try test -z "$("${make[@]}" -s 2>&1)"
    try test "$("${make[@]}" V=1 | grep -c '^true -std=c99 .* -c cli/')" = \
        "$(find cli -name '*.c' | wc -l)"
    touch -d 2020-01-01 "$d/lmc.h"
    echo "int something_new;" >>"$d/src/base/wire_file.h"
    try test "$("${make[@]}" | grep -c 'warning: lmc.h is not made of')" = 1
}

# tests/install, where no package can be had: it goes on, and says what is skipped for that.
says_what_it_costs() {
    local d=$out/no_packages said name
    rm -rf "$d" && mkdir -p "$d/bin"
    cp --parents tests/install integrations/lmc_integrations/_hosts.py "$d"
    for name in apt-get sudo sleep; do printf '#!/bin/sh\nexit 1\n' >"$d/bin/$name"; done
    printf '#!/bin/sh\nif [ "$1" = -m ]; then exit 1; fi\nexec "%s" "$@"\n' \
        "$("$python" -c 'import sys; print(sys.executable)')" >"$d/bin/python3"
    chmod +x "$d"/bin/*
    said=$(PATH=$PWD/$d/bin:$PATH "$d/tests/install" test 2>&1)
    try test "$?" = 0
    said=$(echo "$said" | grep -c '^could not install them: .* are skipped; all others run$')
    try test "$said" = 2
    # make demo and make check stop without root: one line, to copy
    printf '#!/bin/sh\necho 1000\n' >"$d/bin/id"
    chmod +x "$d/bin/id"
    for name in build check; do
        said=$(CC=no-compiler PATH=$PWD/$d/bin:$PATH "$d/tests/install" $name 2>&1 </dev/null)
        try test "$?" = 1
        try test "$(echo "$said" | wc -l)" = 1
        try test -z "${said##not installed*as root*: apt-get update && apt-get install * gcc *}"
    done
}

# A tarball has no history, and a machine need have no git: the pages are checked all the same.
needs_no_clone() {
    local d
    d=$(mktemp -d)
    tar -c --exclude ./build --exclude ./.git . | tar -x -C "$d"
    try test "$(cd "$d" && no_clone)" = "this is not a clone"
    builds_quietly "$d"
    : >"$d/.git"
    try test "$(cd "$d" && PATH= no_clone)" = "git is not installed"
    try test "$(cd "$d" && "$python" tools/check_links.py)" = "$("$python" tools/check_links.py)"
    rm -rf "$d"
}

# What continuous integration lets pass of what is skipped, and what not.
checks_skips() {
    local reason
    for reason in "no compiler" "no sample" "no reference decoder" \
        "meson: build/python-venv, which tests/install makes, has none" "wine is not installed" \
        "zstandard is not there" "could not import 'torch'" \
        "faults.c cannot be compiled here" "no such build"; do
        try test -n "$(echo "SKIPPED it: $reason" | forbidden_skips)"
    done
    for reason in "no LMC_DATA" "cannot mount a small file system" \
        "a file system of its own cannot be mounted" "this machine has no pseudo-terminals (x)"; do
        try test -z "$(echo "SKIPPED it: $reason" | forbidden_skips)"
    done
    try test -z "$(echo "left out it: --long" | forbidden_skips)"
}

# The Python that tests/install takes where the first one on the path is old, cannot make
# environments, or has a fault.
finds_python() {
    local d=$PWD/$out/pythons real
    real=$("$python" -c 'import sys; print(sys.executable)')
    stub() { # stub NAME VERSION [ENSUREPIP]: of that version, without ensurepip where that is None
        printf '%s\n' '#!/bin/sh' "exec \"$real\" -c \"import sys" "sys.version_info = ($2, 0)" \
            "sys.modules.update(ensurepip=${3:-sys}, venv=sys)" '$2"' >"$d/$1"
        chmod +x "$d/$1"
    }
    # finds MINOR COMMAND
    finds() { try test "$(PATH=$d "$BASH" tests/install python "$1")" = "$2"; }
    rm -rf "$d" && mkdir -p "$d"
    stub python3.11 "3, 11, 9"
    stub python3 "3, 13, 5" && finds 11 python3
    stub python3 "3, 13, 5" None && finds 11 python3.11
    stub python3 "3, 9, 18" && finds 10 python3.11
    stub python3 "3, 10, 12" && finds 11 python3.11 && finds 10 python3
    stub python3 "3, 12, 1" && finds 11 python3.11
}

# suite_budget [--brief]: nothing has grown that was not recorded; and what grows is found. Seconds
# of compilers cannot fail, so they are not taken. brief: without compilers
suite_budget() {
    make_command
    try "$python" tools/budget "${1:---no-seconds}"
    awk -F'\t' -v OFS='\t' '/^docs/ {$2 = 1} {print}' tools/budget.txt >"$out/budget.less"
    if "$python" tools/budget --brief --recorded "$out/budget.less" >"$out/budget.said" 2>&1; then
        fail "a page that has grown is not found"
    else
        pass
    fi
    try grep -q "more than tools/budget.txt has: docs/\*.md: words; if" "$out/budget.said"
}
