/* An object has the text of all that it includes, and uses a part of it. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
