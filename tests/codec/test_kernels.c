/* The kernels and trees of every tier, which only the implementation's file can see. */
#include "t.h"

int main(int argc, char **argv)
{
    t_begin(argc, argv);
    t_test_kernels();
    t_test_trees();
    return t_end();
}
