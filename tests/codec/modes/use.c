/* Only uses lmc.h: the implementation is in another file, or asked for on the command line. */
#include "../../../lmc.h"
#include "use.h"

int main(void) { return use(); }
