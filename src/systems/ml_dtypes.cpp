// SPDX-License-Identifier: Apache-2.0
// ml_dtypes' small integers: a cast from float32 truncates toward zero and keeps the low bits; NaN and Inf are 0.
#include "planes.hpp"
#include "tables.hpp"

namespace qk::systems {

result ml_dtypes_int(const rule& how, const input& x) {
    const bool is_signed = how.format[0] == 'i';
    const int bits = how.format.back() - '0';
    std::vector<std::int8_t> codes(x.values.size());
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    for (std::size_t i = 0; i < codes.size(); ++i) {
        const float v = x.values[i];
        const int whole = v >= -2147483648.0f && v < 2147483648.0f ? static_cast<int>(v) : 0;
        int code = whole & ((1 << bits) - 1);
        if (is_signed && code >> (bits - 1) != 0) code -= 1 << bits;
        codes[i] = static_cast<std::int8_t>(code);
        made.values[i] = static_cast<float>(code);
    }
    made.planes.push_back(make_plane("codes", {x.rows, x.columns}, codes));
    return made;
}

}  // namespace qk::systems
