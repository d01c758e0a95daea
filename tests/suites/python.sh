# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suites python, newest

# suite_python [--long]: the packages of python/ and integrations/ in an environment with the
# packages that they work with: each from its source distribution, which must need nothing beside
# it; with --long the first also from the clone. Types, stubs, and all that is in their tests. The
# first is tested without the second, and then the second with it.
suite_python() {
    local venv=$PWD/build/python-venv d=$PWD/$out/python
    if ! "$venv/bin/python" -c 'import torch, pytest' 2>/dev/null; then
        echo "SKIPPED python: torch and what else tests/install brings to build/python-venv is" \
            "not installed"
        return
    fi
    make_command gpu-stand-ins # of some tests
    rm -rf "$d" && mkdir -p "$d"
    "$venv/bin/pip" uninstall -q -y --disable-pip-version-check lmc-integrations 2>/dev/null
    try "$venv/bin/python" -m build -q --sdist --no-isolation -o "$d" python || return
    if [ -n "$1" ]; then
        try "$venv/bin/pip" install -q --no-deps --no-build-isolation --force-reinstall ./python ||
            return
    fi
    try "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation \
        --force-reinstall "$d"/lmc_codec-*.tar.gz || return
    check_types python lmc_codec
    try "$venv/bin/python" -m mypy.stubtest lmc_codec._lmc
    run_pytest python "$1"
    try "$venv/bin/python" bench/python.py --small
    cp -R integrations "$d/source" # what builds it leaves files there
    try "$venv/bin/python" -m build -q --no-isolation -o "$d" "$d/source" || return
    try "$venv/bin/pip" install -q --disable-pip-version-check --no-index --no-build-isolation \
        "$d"/lmc_integrations-*.tar.gz || return
    try cmp <("$venv/bin/python" -m zipfile -l "$d"/lmc_integrations-*-py3-none-any.whl |
        grep -o '^lmc_integrations/[^ ]*' | sort) \
        <(cd integrations && ls lmc_integrations/*.py lmc_integrations/py.typed | sort)
    check_types integrations lmc_integrations
    run_pytest integrations "$1"
}

# suite_newest: the adapters' tests, and those of the file system lmc://, with the newest releases
# that pip finds of what they work with. What fails is said, and is no failure of this suite: it may
# be those releases.
suite_newest() {
    local venv=$PWD/build/newest-venv d=$PWD/$out/newest said
    if ! tests/install newest; then
        echo "SKIPPED newest: pip cannot install the newest releases"
        return
    fi
    rm -rf "$d" && mkdir -p "$d"
    cp -R integrations "$d/source"
    make_command gpu-stand-ins
    try "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation \
        --force-reinstall ./python "$d/source" || return
    "$venv/bin/pip" list --disable-pip-version-check 2>/dev/null |
        grep -E '^(torch|transformers|lightning|zarr|numcodecs|h5py|matplotlib|fsspec) '
    "$venv/bin/python" -m pytest -q -rfEs -m "not long" -p no:cacheprovider \
        --rootdir integrations -c integrations/pyproject.toml integrations/tests >"$d/pytest" 2>&1
    "$venv/bin/python" -m pytest -q -rfEs -p no:cacheprovider --rootdir python \
        -c python/pyproject.toml python/tests/test_fsspec.py >>"$d/pytest" 2>&1
    try test "$(grep -c ' passed' "$d/pytest")" = 2 # else pytest did not get to its end
    said="SKIPPED newest: with the newest releases this fails:"
    sed -n "s/^\(FAILED\|ERROR\) \(.*\)/$said \2/p" "$d/pytest"
    n_passed=$((n_passed + $(sum_of passed "$d/pytest")))
}

# sum_of WHAT LOG: of all "N WHAT" in it
sum_of() { grep -oE "[0-9]+ $1" "$2" | awk '{n += $1} END {print n + 0}'; }

# check_types DIR PACKAGE
check_types() {
    try env MYPYPATH= "$PWD/build/python-venv/bin/mypy" --config-file "$1/pyproject.toml" \
        --python-executable "$PWD/build/python-venv/bin/python" \
        --cache-dir "$PWD/$out/python/mypy" -p "$2"
}

# run_pytest DIR [--long]: counts what it says of DIR/tests
run_pytest() {
    local log=$PWD/$out/python/$1.pytest
    local -x MYPY_CACHE_DIR=$PWD/$out/python/mypy
    local which=()
    if [ -z "$2" ]; then which=(-m "not long"); fi
    if "$PWD/build/python-venv/bin/python" -m pytest -q -rfEs "${which[@]}" --durations=30 \
        -p no:cacheprovider --rootdir "$1" -c "$1/pyproject.toml" "$1/tests" >"$log" 2>&1; then
        :
    else
        tail -n 60 "$log"
    fi
    sed -n "s/^SKIPPED \[[0-9]*\] $1\/tests\/\([^:]*\):[0-9]*: /SKIPPED $1, \1: /p" "$log"
    n_passed=$((n_passed + $(sum_of passed <(grep ' passed' "$log" | tail -n 1)))) # 0: it crashed
    n_failed=$((n_failed + $(sum_of "(failed|error)" "$log")))
    grep -q ' passed' "$log" || fail "pytest did not get to its end"
}
