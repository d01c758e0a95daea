/* test_small.c - all small inputs of the decoder, on every tier: private_small.h. */
#include "t.h"

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    t_test_small();
    return t_end();
}
