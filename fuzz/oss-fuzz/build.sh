#!/bin/bash -eu
# All there is to know is in the repository: see there.
"$SRC/lmc/fuzz/build" oss-fuzz
