/* prove: wp lmc__get_node, lmc__get_mask -rte-no-pointer-call
 * shows: lmc__get_node, lmc__get_mask
 * for:   all payloads, trees and nestings, n up to 4 MiB; termination included
 * given: what decoder.h says of lmc__get_sides, the kernels, gaps, and a tree's inner nodes
 * on:    gcc_x86_64 */
#include "harness.h"
#include "decoder.h"
