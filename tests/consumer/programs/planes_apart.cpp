// SPDX-License-Identifier: Apache-2.0
// Weights whose codes and scales lie apart, as checkpoints keep them, with the format known when compiling and when running.
#include <qk/codec.hpp>
#include <qk/reference.hpp>

#include "same.hpp"

int main() {
    const qk::along_axis rows{8, 96, 1};
    const std::vector<float> w = numbers(8 * 96);
    std::vector<std::byte> codes(w.size() / 2), scales(w.size() / 32);
    qk::encode<qk::mxfp4>(w, qk::planes{.elements = codes, .scales = scales, .shifts = {}, .tensor = {}}, rows);

    const qk::const_planes stored{.elements = codes, .scales = scales, .shifts = {}, .tensor = {}};
    std::vector<float> known(w.size()), asked(w.size()), expected(w.size());
    qk::decode<qk::mxfp4>(stored, known, rows);
    qk::decode(qk::mxfp4, stored, asked, rows);
    qk::reference::fake_quantize(qk::mxfp4, w, expected, rows);
    return same(known, expected) && same(asked, expected) ? 0 : 1;
}
