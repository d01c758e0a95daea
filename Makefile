# LMC. Targets:
#   make                   build/lmc, the command (needs a C compiler and jansson)
#   make build/liblmc.so   lmc.h as a shared library, for other languages
#   make build/python      the Python package, without installing it: PYTHONPATH=build/python
#   make lmc.h             lmc.h and include/ from src/, if src/ is newer (needs Python 3.9); all
#                          targets that need lmc.h do this, too
#   make include           include/lmc_read.h and lmc_decode.h, parts of lmc.h, which are in
#                          releases, but not in git (needs Python 3.9)
#   make dev               build/dev/lmc-dev.a, the codec compiled from src/ in four objects: the
#                          kernels have their own, so that an edit elsewhere compiles fast; for
#                          programs that include lmc.h without LMC_IMPLEMENTATION; -j helps
#   make demo              install what is missing, build, and show what lmc does with a sample:
#                          sizes, a delta, Python (a minute more; QUICK=1: without)
#   make check             install what is missing, then run the quick tests for every change:
#                          three minutes
#   make test              all suites, as continuous integration runs them: 20 minutes
#   make test-all          that, test-cross, test-long and test-avx512
#   make test-cross        the C tests under emulators: s390x, aarch64, arm, riscv64, ppc64le,
#                          wasm32 in Node, and Windows under Wine
#   make test-long         large files, many random damages, crashes and kills; slow
#   make test-newest       the Python adapters with the newest releases of their hosts; what fails
#                          with these is only said
#   make test-avx512       the AVX-512 kernels on an emulated machine
#   make analyse           static analysis: clang-tidy and cppcheck; slow
#   make prove             proofs about the portable decoder, by Frama-C; slow
#   make site              the documentation as a website, with references of C and Python, in
#                          build/site
#   make fuzz              the harnesses of fuzz/, with sanitizers and libFuzzer (clang), to
#                          build/fuzz/; see fuzz/README.md
#   make fuzz-all HOURS=n  fuzz for n hours on all cores; harnesses that still find something get
#                          most of the time
#   make test-mutants      puts 40 small bugs into lmc.h one at a time, and counts those it finds;
#                          MUTANTS="--seed=2 --count=100 codec": others (tests/mutate.py)
#   make budget            compares lines, code, words and bytes of compressed cases with limits
#                          and recorded values; make budget-record records them
#   make bench             measure, and write a page and plots to build/results/; QUICK=1 make
#                          bench: a trial, to build/quick/
#   make install           to PREFIX: the command, its other names unlmc and lmccat, the manual
#                          page, completions for bash, zsh and fish, lmc.h, the headers of
#                          include/, a static library and lmc.pc (LIBDIR)
#   make install-shared    liblmc.so.1 and liblmc.so beside that library; programs are then linked
#                          with these (docs/stability.md)
#   make uninstall         removes all of them
#   make clean
#   make help              this list
# V=1 shows complete commands.

CC ?= cc
CFLAGS ?= -O2
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
WARNINGS = -Wall -Wextra -Wpedantic

all: build/lmc

# Prints one short line for each file that is made; with V=1 the commands, with -s nothing.
say = $(if $(V),,@$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,echo "$1"; ))

# lmc.h is committed. After a checkout it may look older than src/, so the script does not change a
# file that is right. Without Python the existing file is used, with a warning if src/ has lines
# that it lacks.
PARTS = include/lmc_decode.h include/lmc_read.h
HEADERS = lmc.h $(filter-out $(PARTS),$(wildcard include/*.h))
LMC_SOURCES = $(filter-out src/objects/% $(PARTS:include/%=src/%.in),\
    $(wildcard src/*.in src/*.h src/*/*.h))
lmc.h: tools/amalgamate.py $(LMC_SOURCES) $(wildcard src/gpu/*.cu)
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; \
	then python3 tools/amalgamate.py; \
	elif cat $(LMC_SOURCES) | grep -vE '^#(include "|pragma once)|@[A-Z]' | \
	    grep -Fxvq $(addprefix -f ,$(HEADERS)); \
	then echo "warning: lmc.h is not made of the src/ that is here; that takes Python 3.9"; \
	else touch lmc.h; fi

include: lmc.h
	@python3 tools/amalgamate.py --parts || \
	    echo "warning: lmc_decode.h and lmc_read.h are not made: that takes Python 3.9"

# The command: an object for each file of cli/, formats/ and store/, and lmc.o, which implements
# lmc.h and takes most of the time. An object is made again when its file, an included file, or the
# flags change.
SOURCES = $(filter-out cli/lmc_impl.c,$(wildcard cli/*.c cli/*/*.c))
FORMATS = $(wildcard formats/*.c store/*.c)
OBJECTS = build/obj/lmc.o $(patsubst cli/%.c,build/obj/%.o,$(SOURCES)) \
    $(FORMATS:%.c=build/obj/%.o) build/obj/help_text.o
COMPILE = $(CC) -std=c99 $(WARNINGS) $(CPPFLAGS) $(CFLAGS)

# lmc mount needs libfuse3; without it, it says so. make FUSE=no: without it, even if it is there.
FUSE := $(shell pkg-config --exists 'fuse3 >= 3.7' 2>/dev/null && echo yes || echo no)
ifeq ($(FUSE),yes)
FUSE_CFLAGS := -DLMC_FUSE $(patsubst -I%,-isystem %,$(shell pkg-config --cflags fuse3))
FUSE_LIBS := $(shell pkg-config --libs fuse3)
endif
build/obj/verb/mount.o: COMPILE += $(FUSE_CFLAGS)

build/lmc: $(OBJECTS)
	$(call say,LD $@)$(CC) $(CFLAGS) $(OBJECTS) -o $@ $(LDFLAGS) -ljansson $(FUSE_LIBS) -pthread

build/obj/lmc.o: cli/lmc_impl.c lmc.h build/obj/flags
	$(call say,CC $<)$(COMPILE) -c $< -o $@

build/obj/%.o: cli/%.c build/obj/flags | build/obj/jansson
	@mkdir -p $(@D)
	$(call say,CC $<)$(COMPILE) -MMD -MP -c $< -o $@

$(FORMATS:%.c=build/obj/%.o): build/obj/%.o: %.c build/obj/flags
	@mkdir -p $(@D)
	$(call say,CC $<)$(COMPILE) -MMD -MP -c $< -o $@

# The texts of 'lmc help' as an array of lines, and as the manual page.
build/obj/help_text.o: cli/help.sed cli/help.txt build/obj/flags
	@sed -f cli/help.sed cli/help.txt >build/obj/help_text.c
	$(call say,CC cli/help.txt)$(COMPILE) -c build/obj/help_text.c -o $@

build/lmc.1: cli/manual.awk cli/help.txt lmc.h
	@mkdir -p build
	$(call say,AWK $@)awk -v version=$(LMC_VERSION) -f cli/manual.awk cli/help.txt >$@

-include $(wildcard build/obj/*.d build/obj/*/*.d)

build/obj/flags: FORCE
	@command -v $(firstword $(CC)) >/dev/null || { echo "$(CC), a C compiler, is missing:" \
	    "apt-get install gcc libc6-dev (Debian, Ubuntu), gcc (Fedora)"; exit 1; }
	@mkdir -p build/obj
	@echo '$(COMPILE) $(FUSE_CFLAGS)' | cmp -s - $@ || echo '$(COMPILE) $(FUSE_CFLAGS)' >$@

build/obj/jansson:
	@mkdir -p build/obj
	@echo '#include <jansson.h>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 || \
	    { echo "jansson.h is missing: apt-get install libjansson-dev (Debian, Ubuntu)," \
	        "jansson-devel (Fedora), jansson (Homebrew)"; exit 1; }
	@touch $@

build/liblmc.so: examples/liblmc.c lmc.h
	@mkdir -p build
	$(call say,CC $@)$(COMPILE) -fPIC -shared examples/liblmc.c -o $@ $(LDFLAGS)

# lmc.h as a static library, with all that POSIX adds, as CMake's lmc::compiled.
LIBRARY_FLAGS = -DLMC_PTHREADS -DLMC_POSIX
build/liblmc.a: lmc.h
	@mkdir -p build/library
	@printf '%s\n' '#define LMC_IMPLEMENTATION' '#include "lmc.h"' '#include "lmc_salvage.h"' \
	    '#include "lmc_extra.h"' >build/library/lmc.c
	$(call say,CC build/library/lmc.c)$(COMPILE) -fPIC $(LIBRARY_FLAGS) \
	    -D_POSIX_C_SOURCE=200809L -I. -Iinclude -c build/library/lmc.c -o build/library/lmc.o
	@rm -f $@
	$(call say,AR $@)$(AR) rcs $@ build/library/lmc.o

# The same as a shared library. The number in its soname changes only when programs must be
# compiled again (docs/releasing.md). tests/abi.txt lists the ABI.
build/liblmc.so.1: build/liblmc.a
	$(call say,LD $@)$(CC) $(CFLAGS) -shared -Wl,-soname,liblmc.so.1 build/library/lmc.o -o $@ \
	    $(LDFLAGS) -pthread

# The Python package without an installation: PYTHONPATH=build/python python3 ...
build/python: build/python/lmc_codec/_lmc.abi3.so
	@cp python/lmc_codec/*.py* build/python/lmc_codec/
build/python/lmc.o: $(HEADERS)
	@mkdir -p $(@D)
	@printf '#include "%s"\n' lmc.h lmc_extra.h lmc_cuda.h >build/python/lmc.c
	$(call say,CC build/python/lmc.c)$(COMPILE) -fPIC -fvisibility=hidden $(LIBRARY_FLAGS) \
	    -DLMC_IMPLEMENTATION -D_POSIX_C_SOURCE=200809L -I. -Iinclude -c build/python/lmc.c -o $@
build/python/lmc_codec/_lmc.abi3.so: $(wildcard python/src/*.[ch] formats/*.[ch] store/*.[ch]) \
    build/python/lmc.o
	@mkdir -p $(@D)
	$(call say,CC $@)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -fvisibility=hidden $(LIBRARY_FLAGS) \
	    -D_POSIX_C_SOURCE=200809L -DPy_LIMITED_API=0x030B0000 -I. -Iinclude \
	    -I"$$($${PYTHON:-python3} -c \
	    'import sysconfig; print(sysconfig.get_path("include"))')" \
	    python/src/*.c $(FORMATS) build/python/lmc.o -o $@ $(LDFLAGS) -pthread -ldl

# Replacements of CUDA's driver and NVRTC, which run the kernels of src/gpu/decode.cu on the CPU.
gpu-stand-ins: build/gpu/libcuda.so.1 build/gpu/libnvrtc.so.12
build/gpu/libcuda.so.1: FAKE_FLAGS = tests/gpu/cuda_on_cpu.cpp
build/gpu/libnvrtc.so.12: FAKE_FLAGS = -DFAKE_NVRTC
build/gpu/lib%: tests/gpu/fake_cuda.cpp tests/gpu/cuda_on_cpu.cpp tests/gpu/cuda_on_cpu.h \
    $(wildcard src/gpu/*.cu)
	@mkdir -p $(@D)
	$(call say,CXX $@)$(CXX) -std=c++20 -O1 -w -Itests/gpu -fPIC -shared -Wl,-soname,$(@F) $< \
	    $(FAKE_FLAGS) -o $@.new && mv $@.new $@

# Files that bench/gpu.py needs on a machine with a GPU; they are built on this machine.
gpu-check: build/python build/gpu-check/blocks build/gpu-check/plan build/gpu-check/test_kernel
build/gpu-check/blocks: tests/codec/blocks.py $(wildcard spec/*.py) spec/vectors/manifest.json
	@mkdir -p $(@D)
	$(call say,PYTHON $@)$${PYTHON:-python3} tests/codec/blocks.py --write $@
build/gpu-check/plan: bench/gpu.c $(HEADERS)
	@mkdir -p $(@D)
	$(call say,CC $@)$(COMPILE) -w $< -o $@ $(LDFLAGS) -lm -ldl
build/gpu-check/t_lmc.o: tests/codec/t_lmc.c $(wildcard tests/codec/*.h) $(HEADERS)
	@mkdir -p $(@D)
	$(call say,CC $@)$(COMPILE) -c $< -o $@
build/gpu-check/test_kernel: build/gpu-check/t_lmc.o $(wildcard tests/gpu/*.cpp tests/gpu/*.h)
	$(call say,CXX $@)$(CXX) -std=c++17 -O1 -w -Isrc tests/gpu/test_kernel.cpp \
	    tests/gpu/cuda_on_cpu.cpp tests/gpu/kernel_on_gpu.cpp $< -o $@ $(LDFLAGS) -static-libstdc++ \
	    -static-libgcc -pthread -lm -ldl

DEV_KERNELS = $(addprefix build/dev/,kernels.o kernels_avx2.o kernels_avx512.o)
dev: build/dev/lmc-dev.a
build/dev/lmc-dev.a: $(DEV_KERNELS) build/dev/rest.o
	@rm -f $@
	$(call say,AR $@)$(AR) rcs $@ $^
$(DEV_KERNELS): build/dev/%.o: src/objects/%.c \
    $(wildcard src/api.h src/objects/*.h src/base/* src/kernels/*)
build/dev/rest.o: src/objects/rest.c $(wildcard src/*.h src/*.in src/*/*.h)
$(DEV_KERNELS) build/dev/rest.o:
	@mkdir -p build/dev
	$(call say,CC $<)$(COMPILE) -Isrc -c $< -o $@

build/bench build/peers.so: LEVELS = $(if $(shell grep -s LMC_LEVEL_MAX lmc.h),-DBENCH_LEVELS)

build/bench: bench/bench.c bench/measure.h bench/data.h tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(call say,CC $@)$(COMPILE) $(LEVELS) bench/bench.c -o $@ $(LDFLAGS) -lm -pthread

# Programs that include sources of other programs.
MEASURED = $(call say,CC $@)$(COMPILE) -Wno-unused-function -Wno-unused-variable

build/levels: bench/levels.c bench/measure.h bench/data.h tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(MEASURED) bench/levels.c -o $@ $(LDFLAGS) -lm

build/speed: bench/speed.c bench/peers.c bench/measure.h bench/data.h bench/front.h \
    tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(MEASURED) -DBENCH_LEVELS bench/speed.c -o $@ \
	    $(LDFLAGS) -l:libzstd.a -llz4 -lm

build/steps: bench/steps.c bench/measure.h bench/data.h tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(MEASURED) bench/steps.c -o $@ $(LDFLAGS) -lm

build/quantize: bench/quantize.c bench/measure.h bench/data.h tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(MEASURED) bench/quantize.c -o $@ $(LDFLAGS) -lm

build/delta: bench/delta.c bench/measure.h bench/data.h bench/front.h tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(call say,CC $@)$(COMPILE) bench/delta.c -o $@ $(LDFLAGS) -lzstd -lm

# Other codecs for bench/peers.py. huff0 is only in the static libzstd, whose code can be linked
# into a shared object only with -Bsymbolic.
build/peers.so: bench/peers.c bench/front.h tests/codec/t_data.h lmc.h
	@mkdir -p build
	$(call say,CC $@)$(COMPILE) $(LEVELS) -fPIC -shared bench/peers.c -o $@ $(LDFLAGS) -Wl,-Bsymbolic \
	    -l:libzstd.a -llz4 -lm

help:
	@sed -n '2,/^# V=1/s/^# \{0,3\}//p' Makefile

# Packages are installed first, so these targets build with a second make.
demo:
	@tests/install build
	@mkdir -p build
	@echo "building the command, about half a minute"
	@$(MAKE) -s build/lmc >build/demo.log 2>&1 || { cat build/demo.log; exit 1; }
	@QUICK=$(QUICK) tools/demo

check:
	@tests/install check
	@tests/run --check

test:
	tests/install test
	tests/run

test-all:
	tests/install cross
	tests/install avx512
	tests/run --all

test-cross:
	tests/install cross
	tests/run --cross

test-long:
	tests/install test
	tests/run --long

test-newest:
	tests/install test
	tests/run newest

test-avx512:
	tests/install avx512
	tests/run avx512

analyse:
	tests/install analyse
	tests/analyse

site:
	tests/install check
	build/venv/bin/python tools/site/make

prove:
	tests/install prove
	tests/prove/run
	tests/prove/run --bugs

fuzz:
	tests/install test
	fuzz/build
	fuzz/build fast

HOURS ?= 1
fuzz-all: fuzz
	fuzz/run --hours $(HOURS)

test-mutants:
	tests/install test
	python3 tests/mutate.py $(MUTANTS)

bench:
	tests/install bench
	$(MAKE) build/lmc build/bench build/quantize
	$(MAKE) build/delta || echo "no libzstd: deltas are left out"
	$(MAKE) build/peers.so || echo "no libzstd or liblz4: the comparison in process is left out"
	bench/run

budget: build/lmc
	tools/budget

budget-record: build/lmc
	tools/budget --record

LMC_VERSION = $(shell sed -n 's/^\#define LMC_VERSION "\(.*\)"/\1/p' lmc.h)
COMPLETIONS = bash-completion/completions zsh/site-functions fish/vendor_completions.d

install: build/lmc build/lmc.1 build/liblmc.a include
	@mkdir -p $(DESTDIR)$(LIBDIR)/pkgconfig 2>/dev/null; test -w $(DESTDIR)$(LIBDIR)/pkgconfig || \
	    { echo "cannot write to $(DESTDIR)$(LIBDIR): be root, or make install PREFIX=$$HOME/.local"; \
	    exit 1; }
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 644 build/liblmc.a $(DESTDIR)$(LIBDIR)/
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$${prefix}/include|' \
	    -e 's|@LMC_VERSION@|$(LMC_VERSION)|; s|@LMC_PC_CFLAGS@| $(LIBRARY_FLAGS) -pthread|' \
	    -e 's|@LMC_PC_LIBS@|-L$${libdir} -llmc -pthread|' tools/packaging/lmc.pc.in \
	    >$(DESTDIR)$(LIBDIR)/pkgconfig/lmc.pc
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 build/lmc $(DESTDIR)$(PREFIX)/bin/
	ln -sf lmc $(DESTDIR)$(PREFIX)/bin/unlmc
	ln -sf lmc $(DESTDIR)$(PREFIX)/bin/lmccat
	install -m 644 lmc.h include/*.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 build/lmc.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	ln -sf lmc.1 $(DESTDIR)$(PREFIX)/share/man/man1/unlmc.1
	ln -sf lmc.1 $(DESTDIR)$(PREFIX)/share/man/man1/lmccat.1
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,$(COMPLETIONS) doc/lmc/examples)
	install -m 644 spec/dump.py spec/lmc_decode.py $(DESTDIR)$(PREFIX)/share/doc/lmc/examples/
	install -m 644 cli/completions/lmc.bash \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/lmc
	ln -sf lmc $(DESTDIR)$(PREFIX)/share/bash-completion/completions/unlmc
	ln -sf lmc $(DESTDIR)$(PREFIX)/share/bash-completion/completions/lmccat
	install -m 644 cli/completions/_lmc $(DESTDIR)$(PREFIX)/share/zsh/site-functions/
	install -m 644 cli/completions/lmc.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/

install-shared: build/liblmc.so.1
	install -d $(DESTDIR)$(LIBDIR)
	install -m 644 build/liblmc.so.1 $(DESTDIR)$(LIBDIR)/
	ln -sf liblmc.so.1 $(DESTDIR)$(LIBDIR)/liblmc.so

# Files only: the directories may have existed before.
INSTALLED = $(addprefix $(PREFIX)/include/,$(notdir $(HEADERS) $(PARTS))) \
    $(addprefix $(PREFIX)/bin/,lmc unlmc lmccat) \
    $(addprefix $(PREFIX)/share/man/man1/,lmc.1 unlmc.1 lmccat.1) \
    $(addprefix $(PREFIX)/share/bash-completion/completions/,lmc unlmc lmccat) \
    $(addprefix $(PREFIX)/share/doc/lmc/examples/,dump.py lmc_decode.py) \
    $(addprefix $(PREFIX)/share/,zsh/site-functions/_lmc fish/vendor_completions.d/lmc.fish) \
    $(addprefix $(LIBDIR)/,liblmc.a liblmc.so liblmc.so.1 pkgconfig/lmc.pc)
uninstall:
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))

clean:
	rm -rf build

.PHONY: all include build/python gpu-stand-ins gpu-check dev demo check test test-all test-cross \
    test-long test-newest test-avx512 analyse prove site fuzz fuzz-all test-mutants bench budget \
    budget-record install install-shared uninstall clean help FORCE
