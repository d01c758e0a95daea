// As C++: the implementation compiles, and the interface is usable.
#define LMC_IMPLEMENTATION
#include "../../../lmc.h"
#include "use.h"

#include <vector>

int main()
{
    std::vector<unsigned char> src(10000, 1), enc(lmc_block_bound(src.size())), dst(src.size()),
        ws(lmc_block_workspace_size(src.size(), 1));
    std::size_t enc_size = 0, dst_size = 0;
    const lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_AUTO);
    if (lmc_block_encode(enc.data(), enc.size(), &enc_size, src.data(), src.size(), &options,
                         ws.data(), ws.size()) != LMC_OK)
        return 11;
    if (lmc_block_decode(dst.data(), dst.size(), &dst_size, enc.data(), enc_size, NULL, ws.data(),
                         ws.size()) != LMC_OK)
        return 12;
    return src != dst ? 13 : use();
}
