// SPDX-License-Identifier: Apache-2.0
// qk.h's layouts of quantized matrices.
#include <algorithm>
#include <vector>

#include "door.hpp"
#include "qk/layout.hpp"

namespace {

using namespace qk::c;

qk::layout matrix_layout(const char* text, const char* what, qk::matrix_shape s) {
    const std::string_view name = text_of(text, what);
    const qk::parsed_layout found = qk::parse_layout(name);
    if (!found.known)
        throw refused{QK_BAD_TEXT, std::string(what) + ": '" + std::string(name) +
                                       "' is no layout; gpt_oss, modelopt.nvfp4, gptq.int4_g128 and ggml.q4_0 are"};
    if (const std::string_view why = qk::check_shape(found.value, s); !why.empty())
        throw refused{QK_BAD_ARGUMENT, std::string(name) + ": " + std::string(why)};
    return found.value;
}

std::span<std::byte> part_of(void* data, std::size_t bytes, std::size_t needed, const char* what) {
    if (needed == 0) return {};
    expect_array(data, needed, what);
    if (bytes < needed)
        throw refused{QK_TOO_SMALL, std::string(what) + " has " + std::to_string(bytes) + " bytes and needs " + std::to_string(needed)};
    return {static_cast<std::byte*>(data), needed};
}

}  // namespace

extern "C" {

qk_status qk_matrix_bytes(const char* layout, size_t rows, size_t columns, qk_matrix* sizes) {
    return guarded([&] {
        expect_array(sizes, 1, "sizes");
        const qk::matrix_shape s{rows, columns};
        const qk::plane_sizes n = qk::sizes_of(matrix_layout(layout, "layout", s), s);
        sizes->codes_bytes = n.codes, sizes->scales_bytes = n.scales, sizes->zeros_bytes = n.zeros;
    });
}

qk_status qk_repack(const char* from, const char* to, size_t rows, size_t columns, const qk_matrix* in, qk_matrix* out, qk_text* changes) {
    return guarded([&] {
        expect_array(in, 1, "in"), expect_array(out, 1, "out");
        const qk::matrix_shape s{rows, columns};
        const qk::layout a = matrix_layout(from, "from", s), b = matrix_layout(to, "to", s);
        const qk::layout_changes c = qk::compare_layouts(a, b);
        std::string said;
        const auto say = [&](const std::string& what) { said += (said.empty() ? "" : "; ") + what; };
        for (int k = 0; k < c.count; ++k)
            if (const auto i = static_cast<std::size_t>(k); !c.by_data[i] || !c.possible) say(std::string(c.says[i]));
        if (!c.possible) throw refused{QK_BAD_ARGUMENT, std::string(from) + " to " + to + ": " + said};
        const qk::plane_sizes n = qk::sizes_of(a, s), m = qk::sizes_of(b, s);
        const qk::matrix_planes given{part_of(in->codes, in->codes_bytes, n.codes, "in->codes"),
                                      part_of(in->scales, in->scales_bytes, n.scales, "in->scales"),
                                      part_of(in->zeros, in->zeros_bytes, n.zeros, "in->zeros"), in->global};
        std::vector<std::byte> codes(m.codes), scales(m.scales), zeros(m.zeros);  // nothing is written where it does not fit
        std::vector<std::uint8_t> scratch(columns);
        float global = 1;
        const auto codes_out = part_of(out->codes, out->codes_bytes, m.codes, "out->codes"),
                   scales_out = part_of(out->scales, out->scales_bytes, m.scales, "out->scales"),
                   zeros_out = part_of(out->zeros, out->zeros_bytes, m.zeros, "out->zeros");
        const qk::repack_result made = qk::repack(a, s, given, b, {codes, scales, zeros, &global}, scratch);
        if (made.zeros_lost != 0) throw refused{QK_NO_CODE, std::to_string(made.zeros_lost) + " zero points do not fit the other layout"};
        if (made.scales_rounded != 0) say(std::to_string(made.scales_rounded) + " scales were rounded");
        if (made.biases_rounded != 0) say(std::to_string(made.biases_rounded) + " zero points times scales were rounded");
        if (made.global_dropped) say("the global scale is in `global` alone");
        std::ranges::copy(codes, codes_out.begin()), std::ranges::copy(scales, scales_out.begin()),
            std::ranges::copy(zeros, zeros_out.begin());
        out->global = global;
        if (changes != nullptr) put_text(*changes, said);
    });
}

}  // extern "C"
