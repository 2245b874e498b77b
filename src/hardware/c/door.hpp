// SPDX-License-Identifier: Apache-2.0
// What every function of qk/qk.h goes through: arguments are checked and become C++ values, failures become a status and a sentence.
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

/// The exception of a call that cannot be done. It never leaves the library.
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

/// Throws refused for a null pointer unless n is 0.
void expect_array(const void* data, std::size_t n, const char* what);

/// Returns what examine(*board) counts, or -1 if it fails. examine() writes the verdict; if it fails, the verdict says why.
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
/// Returns the text; throws refused, which names `what`, for a null pointer.
std::string_view text_of(const char* text, const char* what);
format format_of(const char* text, const char* what);
/// The same for a format that is only read, as ggml's blocks are.
format read_format_of(const char* text, const char* what);
/// Reads a semantics such as "quark,rounding=half-away,seed=7"; null and "" mean ocp.
semantics semantics_of(const char* text);
accumulator accumulator_of(const char* text);
void put_text(qk_text& to, std::string_view text);

/// Makes a conversion round with the caller's words; throws refused where its rounding is not stochastic.
void take_words(compare::conversion& c, const std::uint32_t* words, std::size_t n);
/// Returns the conversion, checked against an array of n values, so that no kernel meets what it does not allow. `reads`: it is for decode
/// or a product.
compare::conversion conversion_of(const qk_conversion* how, std::size_t n, bool reads = false);

/// The accumulator of a device or of a text, with the formats of its operands.
struct multiplier {
    format a, b;
    accumulator how;
};
multiplier multiplier_of(const char* accumulator, const char* a_format, const char* b_format);
/// Return the bits of a stored result and of a stored C: 16, 32 or 64.
int result_bits(const accumulator& a);
int addend_bits(const accumulator& a);

/// An operand's codes and scales in packed planes.
struct packed_operand {
    std::vector<std::byte> elements, scales;
    const_planes planes() const { return {elements, scales, {}, {}}; }
};
/// Packs `lines` rows or columns of k codes each, one code a word, in the array's own order. `what` names the operand in errors.
packed_operand packed_of(const format& f, const std::uint64_t* codes, const std::uint64_t* scales, std::size_t lines, std::size_t k,
                         const char* what);
/// Return A and B as arrays whose blocks lie along k.
along_axis rows_of(product_shape s);
along_axis columns_of(product_shape s);

compare::dot_task task_of(const qk_search* search);

}  // namespace qk::c
