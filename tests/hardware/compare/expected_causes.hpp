// SPDX-License-Identifier: Apache-2.0
// Checks the report of a comparison: it must name the planted mistakes and their places, and leave no difference unexplained.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>

#include "qk/compare/compare.hpp"
#include "qk/formats/parse.hpp"

using qk::compare::conversion;
using values = std::vector<float>;

inline conversion of(const char* format, std::vector<std::int64_t> shape, int axis = -1) {
    conversion c;
    c.format = *qk::parse_format(format);
    c.axis = axis < 0 ? static_cast<int>(shape.size()) - 1 : axis;
    c.blocks = qk::compare::seen_along(shape, c.axis);
    return c;
}

/// Text that the sentence of a mistake and its place must contain; "" for any.
struct wanted {
    std::string sentence;
    std::string where = {};
};

inline std::string text_of(const qk::compare::report& r) {
    std::string s =
        std::to_string(r.mismatches) + " of " + std::to_string(r.values) + " differ, " + std::to_string(r.unexplained) + " unexplained\n";
    for (const auto& k : r.causes)
        s += "  cause: " + k.sentence + (k.restricted ? " (only) " : " (") + to_text(k.where) + "), explains " +
             std::to_string(k.explains) + "\n";
    for (const auto& w : r.where) s += "  where: " + to_text(w) + "\n";
    for (const auto& a : r.alternatives) s += "  or: " + a + "\n";
    if (r.nearest) s += "  nearest: " + r.nearest->sentence + ", explains " + std::to_string(r.nearest->explains) + "\n";
    return s;
}

inline void expect(const std::string& name, const conversion& c, std::vector<std::int64_t> shape, const values& x, const values& device,
                   std::vector<wanted> mistakes) {
    const qk::compare::report r = qk::compare::examine(c, shape, x, device);
    const std::string text = text_of(r);
    INFO(name, ": ", text);
    if (std::getenv("QK_SHOW") != nullptr) MESSAGE(name, ": ", text);
    CHECK(r.mismatches > 0);
    CHECK(r.unexplained == 0);
    CHECK(r.causes.size() == mistakes.size());
    CHECK(!r.where.empty());
    for (const wanted& w : mistakes) {
        bool found = false;
        for (const auto& k : r.causes) {
            found = found || (k.sentence.find(w.sentence) != std::string::npos && k.where.words.find(w.where) != std::string::npos &&
                              k.explains > 0 && k.where.differences > 0);
        }
        CHECK_MESSAGE(found, "not named: ", w.sentence, " where ", w.where);
    }
}
