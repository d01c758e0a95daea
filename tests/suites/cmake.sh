# shellcheck shell=bash disable=SC2034,SC2154 # read by tests/run
# Suite cmake

# What CMake builds and installs, used from a project outside: by find_package and by FetchContent.
suite_cmake() {
    local d=$PWD/$out/cmake cmake target plug_in
    cmake=$(command -v build/python-venv/bin/cmake || command -v cmake) ||
        { echo "SKIPPED cmake: cmake is not installed"; return; }
    rm -rf "$d/root" "$d/outside" && mkdir -p "$d/outside"
    try "$cmake" -S . -B "$d/build" -DCMAKE_INSTALL_PREFIX="$d/root" -DCMAKE_C_FLAGS=-Wall \
        -DCMAKE_C_FLAGS_RELEASE=-O0 -DLMC_BUILD_HDF5_FILTER=ON >"$d/log" 2>&1 ||
        { cat "$d/log"; return; }
    try "$cmake" --build "$d/build" >"$d/log" 2>&1 || { tail -n 40 "$d/log"; return; }
    try "$cmake" --install "$d/build" >"$d/log"
    try "$d/root/bin/lmc" --version
    # the plug-in needs nothing of HDF5; what it declares itself is what HDF5 has
    plug_in=$(find "$d/root" -name 'liblmc_hdf5.so')
    try test "$(nm -D --undefined-only "$plug_in" | grep -c ' H5')" = 0
    if [ -e /usr/include/hdf5/serial/hdf5.h ]; then
        try gcc -std=c99 -fsyntax-only -Wall -Werror -DLMC_FILTER_LINKED -DFILTER_CHECK \
            -I/usr/include/hdf5/serial examples/hdf5_filter.c
    else echo "SKIPPED hdf5.h: libhdf5-dev is not installed"; fi
    printf '%s\n' '#include <lmc.h>' '#include <string.h>' \
        'int main(void) { return strcmp(lmc_version(), LMC_VERSION); }' >"$d/outside/main.c"
    printf '%s\n' '#define LMC_IMPLEMENTATION' '#include <lmc.h>' >"$d/outside/impl.c"
    for target in lmc compiled; do
        printf '%s\n' 'cmake_minimum_required(VERSION 3.15...4.0)' 'project(outside C)' \
            'if(LMC_SOURCE)' 'set(LMC_BUILD_COMPILED ON)' "include(FetchContent)" \
            "FetchContent_Declare(lmc SOURCE_DIR \${LMC_SOURCE})" \
            "FetchContent_MakeAvailable(lmc)" \
            'else()' 'find_package(lmc 1.0 REQUIRED)' 'endif()' \
            "add_executable(outside main.c $([ $target = lmc ] && echo impl.c))" \
            "target_link_libraries(outside lmc::$target)" >"$d/outside/CMakeLists.txt"
        try "$cmake" -S "$d/outside" -B "$d/outside/$target" \
            -Dlmc_DIR="$(dirname "$(find "$d/root" -name lmc-config.cmake)")" >"$d/log" 2>&1 ||
            { cat "$d/log"; return; }
        try "$cmake" --build "$d/outside/$target" >"$d/log" 2>&1
        try "$d/outside/$target/outside"
    done
    packages_cmake "$d"
    parts_cmake "$d"
    python_cmake "$d"
    # as a part of another project it builds nothing that was not asked for
    try "$cmake" -S "$d/outside" -B "$d/outside/sub" -DLMC_SOURCE="$PWD" >"$d/log" 2>&1
    try test "$("$cmake" --build "$d/outside/sub" --target help | grep -c 'lmc_command')" = 0
}

# python_cmake DIR: without scikit-build, too, python/ names what is missing, and nothing else.
python_cmake() {
    local d=$1/python interpreter=build/python-venv/bin/python
    rm -rf "$d"
    "$cmake" -S python -B "$d/none" -DPython_EXECUTABLE=/nowhere >"$1/log" 2>&1
    try grep -q ' CPython 3.11 or later is missing' "$1/log"
    if [ -x $interpreter ] && has_python_h $interpreter; then
        CC=/nowhere "$cmake" -S python -B "$d/cc" -DPython_EXECUTABLE="$PWD/$interpreter" \
            >"$1/log" 2>&1
        try grep -q ' A C compiler is missing' "$1/log"
    else echo "SKIPPED python/ without a compiler: build/python-venv has no Python.h"; fi
}

# parts_cmake DIR: in a clone, what an older lmc.h has left in include/ is made again, before the
# build and when lmc.h changes after it.
parts_cmake() {
    local d=$1/clone
    rm -rf "$d" && mkdir -p "$d"
    cp -R CMakeLists.txt lmc.h include src tools "$d"
    echo old >"$d/include/lmc_read.h"
    rm -f "$d/include/lmc_decode.h"
    try "$cmake" -S "$d" -B "$d/build" -DLMC_BUILD_COMMAND=OFF -DLMC_BUILD_COMPILED=OFF \
        -DCMAKE_INSTALL_PREFIX="$d/root" >"$1/log" 2>&1 || { cat "$1/log"; return; }
    try "$cmake" --install "$d/build" >"$1/log"
    try cmp include/lmc_read.h "$d/root/include/lmc_read.h"
    try cmp include/lmc_decode.h "$d/root/include/lmc_decode.h"
    echo old >"$d/include/lmc_read.h"
    touch -d '1 hour' "$d/lmc.h"
    try "$cmake" --build "$d/build" >"$1/log" 2>&1
    try cmp include/lmc_read.h "$d/include/lmc_read.h"
}

# packages_cmake DIR: tools/packaging, with what suite_cmake has installed to DIR/root.
packages_cmake() {
    local d=$1 meson file version consumer=tools/packaging/conan/test_package/consumer.c
    version=$(sed -n 's/^#define LMC_VERSION "\(.*\)"/\1/p' lmc.h)
    for file in meson/lmc.wrap meson/packagefiles/lmc/meson.build vcpkg/vcpkg.json \
        homebrew/lmc.rb conda/recipe.yaml; do
        try grep -qF "$version" "tools/packaging/$file"
    done
    try "$python" -c 'import ast, json
json.load(open("tools/packaging/vcpkg/vcpkg.json"))
ast.parse(open("tools/packaging/conan/conanfile.py").read())'
    try ruby -c tools/packaging/homebrew/lmc.rb
    if command -v pkg-config >/dev/null; then
        local -x PKG_CONFIG_PATH
        PKG_CONFIG_PATH=$(dirname "$(find "$d/root" -name lmc.pc)")
        try test "$(pkg-config --modversion lmc)" = "$version"
        # shellcheck disable=SC2046 # flags
        try gcc $consumer -o "$d/consumer" $(pkg-config --cflags --libs lmc) && try "$d/consumer"
    else echo "SKIPPED pkg-config: it is not installed"; fi
    meson=$PWD/build/python-venv/bin/meson
    if [ -x "$meson" ]; then
        rm -rf "$d/meson" && mkdir -p "$d/meson/subprojects"
        cp -R tools/packaging/meson/packagefiles/lmc tools/packaging/meson/lmc.wrap \
            "$d/meson/subprojects/"
        cp -R lmc.h include src tools "$d/meson/subprojects/lmc/"
        rm "$d"/meson/subprojects/lmc/include/lmc_{read,decode}.h # as in a clone
        cp $consumer "$d/meson/"
        printf '%s\n' "project('consumer', 'c')" "dependency('lmc', version: '>=$version')" \
            "executable('consumer', 'consumer.c', dependencies: dependency('lmc-compiled'))" \
            >"$d/meson/meson.build"
        try env PATH="$PWD/build/python-venv/bin:$PATH" "$meson" setup "$d/meson/build" \
            "$d/meson" >"$d/log" 2>&1 || { cat "$d/log"; return; }
        try cmp include/lmc_read.h "$d/meson/subprojects/lmc/include/lmc_read.h"
        try cmp include/lmc_decode.h "$d/meson/subprojects/lmc/include/lmc_decode.h"
        try env PATH="$PWD/build/python-venv/bin:$PATH" "$meson" compile -C "$d/meson/build" \
            >"$d/log" 2>&1 || { cat "$d/log"; return; }
        try "$d/meson/build/consumer"
    else echo "SKIPPED meson: build/python-venv, which tests/install makes, has none"; fi
}
