// SPDX-License-Identifier: Apache-2.0
// What every function of qk/qk.h goes through: arguments are checked and become values of C++, failures become a status and a sentence.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "qk/compare/conversion.hpp"
#include "qk/compare/dot.hpp"
#include "qk/dot.hpp"
#include "qk/qk.h"
#include "qk/text.hpp"

namespace qk::c {

/// Why a call cannot be done. It never leaves the library.
struct refused {
    qk_status status;
    std::string sentence;
};

/// Keeps the sentence for qk_last_error and returns the status.
qk_status fail(qk_status status, std::string_view sentence) noexcept;

template <class Call>
qk_status guarded(const Call& call) noexcept {
    try {
        call();
        return QK_OK;
    } catch (const refused& r) {
        return fail(r.status, r.sentence);
    } catch (const std::bad_alloc&) {
        return fail(QK_NO_MEMORY, "out of memory");
    } catch (const std::exception& e) {
        return fail(QK_BAD_ARGUMENT, e.what());
    }
}

/// A null pointer stands for an empty array alone.
void expect_array(const void* data, std::size_t n, const char* what);

/// What examine(*board), which writes the verdict, counts; -1 where it fails: then the verdict is why.
template <class Board>
std::int64_t differences(Board* board, std::int64_t (*examine)(Board&)) {
    std::int64_t count = -1;
    const qk_status s = guarded([&] {
        expect_array(board, 1, "board");
        count = examine(*board);
    });
    if (s != QK_OK && board != nullptr) guarded([&] { board->verdict = std::string(qk_last_error()) + "\n"; });
    return count;
}
template <class Board>
const char* verdict_of(Board* board, std::int64_t (*examine)(Board&)) {
    if (board == nullptr) return "";
    if (board->verdict.empty()) differences(board, examine);
    return board->verdict.c_str();
}

template <class T>
const T& parsed_or_refused(const parsed<T>& p, const char* what) {
    if (!p) throw refused{QK_BAD_TEXT, std::string(what) + ": " + std::string(p.error.view())};
    return p.value;
}
/// Null where the text is needed is refused with what it is.
std::string_view text_of(const char* text, const char* what);
format format_of(const char* text, const char* what);
/// "quark,rounding=half-away,seed=7"; null is ocp.
semantics semantics_of(const char* text);
accumulator accumulator_of(const char* text);
void put_text(qk_text& to, std::string_view text);

/// Checked against an array of n values, so that no kernel meets what it does not allow.
compare::conversion conversion_of(const qk_conversion* how, std::size_t n);

/// A device or accumulator with the formats of its operands.
struct multiplier {
    format a, b;
    accumulator how;
};
multiplier multiplier_of(const char* accumulator, const char* a_format, const char* b_format);
/// Bits of a stored result: 16, 32 or 64.
int result_bits(const accumulator& a);
int addend_bits(const accumulator& a);

/// Codes of C as they are stored, and of a shape's operands: one code a word into packed planes.
struct packed_operand {
    std::vector<std::byte> elements, scales;
    const_planes planes() const { return {elements, scales, {}, {}}; }
};
/// `lines` rows or columns of k codes each, in the array's own order.
packed_operand packed_of(const format& f, const std::uint64_t* codes, const std::uint64_t* scales, std::size_t lines, std::size_t k,
                         const char* what);
/// Where the operands' blocks lie.
along_axis rows_of(product_shape s);
along_axis columns_of(product_shape s);

compare::dot_task task_of(const qk_search* search);

}  // namespace qk::c
