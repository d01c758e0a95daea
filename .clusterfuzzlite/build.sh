#!/bin/bash -eu
"$SRC/lmc/fuzz/build" oss-fuzz
