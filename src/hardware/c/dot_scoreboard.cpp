// SPDX-License-Identifier: Apache-2.0
// qk.h's scoreboard of a unit that multiplies and adds: it makes questions, records the device's answers, and finds the accumulator that
// would have given them.
#include <memory>

#include "door.hpp"
#include "dot_questions.hpp"
#include "qk/dot/text.hpp"

struct qk_dot_scoreboard {
    qk::c::multiplier by;
    qk::compare::dot_task task;
    bool searchable = false;
    qk::compare::dot_case batch;  ///< questions made in advance; `next` counts those that were drawn
    std::size_t next = 0;
    qk::compare::random_source random{1};
    qk::compare::dot_case now;  ///< the current question, 1 x k x 1
    std::vector<qk::compare::dot_case> asked;
    std::vector<std::uint64_t> answers, expected;
    std::string verdict;
};

namespace {

using namespace qk::c;
using qk::compare::dot_case;

std::size_t blocks_of(const qk::format& f, std::size_t k) { return qk::layout_of(f, qk::along_axis{1, k, 1}).scales.count; }
dot_case empty_question(const qk_dot_scoreboard& b) {
    const std::size_t k = b.task.k;
    return {{1, 1, k},
            std::vector<std::uint64_t>(k),
            std::vector<std::uint64_t>(k),
            {b.task.has_c ? 0 : no_addend(b.task)},
            std::vector<std::uint64_t>(blocks_of(b.by.a, k)),
            std::vector<std::uint64_t>(blocks_of(b.by.b, k))};
}

std::uint64_t computed(const qk_dot_scoreboard& b) {
    const dot_case& q = b.now;
    const packed_operand x = packed_of(b.by.a, q.a.data(), q.scale_a.data(), 1, q.shape.k, "a");
    const packed_operand y = packed_of(b.by.b, q.b.data(), q.scale_b.data(), 1, q.shape.k, "b");
    std::uint64_t d = 0;
    qk::matrix_multiply_add(b.by.a, b.by.b, b.by.how, q.shape, {.planes = x.planes()}, {.planes = y.planes()}, q.c, std::span(&d, 1));
    return d;
}

void draw(qk_dot_scoreboard& b) {
    if (!b.searchable) {
        const std::string why = check(b.task);
        throw refused{QK_BAD_ARGUMENT, "questions are not made for these formats: " +
                                           (why.empty() ? "results of " + std::to_string(b.task.d_bits) + " bits are not searched" : why)};
    }
    constexpr std::size_t m = 36, n = 16;
    if (b.next % (m * n) == 0) b.batch = make_questions(b.task, m, n, b.random);
    const std::size_t i = b.next / n % m, j = b.next % n, k = b.task.k;
    ++b.next;
    b.now = empty_question(b);
    for (std::size_t l = 0; l < k; ++l) b.now.a[l] = b.batch.a[i * k + l], b.now.b[l] = b.batch.b[l * n + j];
    const std::size_t blocks_a = b.now.scale_a.size(), blocks_b = b.now.scale_b.size();
    for (std::size_t s = 0; s < blocks_a; ++s) b.now.scale_a[s] = b.batch.scale_a[i * blocks_a + s];
    for (std::size_t s = 0; s < blocks_b; ++s) b.now.scale_b[s] = b.batch.scale_b[s * n + j];
    b.now.c[0] = b.batch.c[i * n + j];
}

std::string hexadecimal(std::uint64_t v, int bits) {
    std::string s;
    for (int shift = bits - 4; shift >= 0; shift -= 4) s += "0123456789abcdef"[v >> shift & 15];
    return s;
}

int64_t examine(qk_dot_scoreboard& b) {
    if (b.answers.empty()) throw refused{QK_BAD_ARGUMENT, "the device has answered no question yet"};
    const int bits = result_bits(b.by.how);
    std::size_t different = 0;
    std::string lines;
    for (std::size_t q = 0; q < b.answers.size(); ++q) {
        if (same_answer(b.task, b.by.how, b.expected[q], b.answers[q])) continue;
        if (++different <= 4)
            lines += "  question " + std::to_string(q) + ": expected " + hexadecimal(b.expected[q], bits) + ", the device gave " +
                     hexadecimal(b.answers[q], bits) + "\n";
    }
    b.verdict = std::to_string(different) + " of " + std::to_string(b.answers.size()) + " answers differ\n" + lines;
    if (different == 0 || !b.searchable) return static_cast<int64_t>(different);
    qk::compare::dot_task task = b.task;
    task.expected = b.by.how;
    const auto found = qk::compare::fit_accumulator(task, b.asked, b.answers, b.by.how);
    const std::string text(to_text(found.best).view()), changes = qk::compare::difference_between(found.best, b.by.how);
    std::string headline;
    if (found.complete()) {
        headline = "likely cause: " + changes + "\n  the device's accumulator is " + text + "; it gives every answer\n";
    } else if (!found.mistake.empty()) {
        headline = "likely cause: " + found.mistake + "\n  with that, " + (changes.empty() ? "the expected accumulator" : text) +
                   " gives every answer\n";
    } else {
        headline = "no accumulator gives every answer, and no known mistake explains them; the expected one gives " +
                   std::to_string(found.expected_met) + " of " + std::to_string(found.questions) + "\n";
        if (found.met > found.expected_met) headline += "  the nearest gives " + std::to_string(found.met) + ": " + text + "\n";
    }
    b.verdict = headline + "\n" + b.verdict;
    return static_cast<int64_t>(different);
}

using codes = std::vector<std::uint64_t> dot_case::*;

std::uint64_t at(const qk_dot_scoreboard* b, codes part, int i) {
    const auto place = static_cast<std::size_t>(i);
    return b != nullptr && i >= 0 && place < (b->now.*part).size() ? (b->now.*part)[place] : 0;
}
void put(qk_dot_scoreboard* b, codes part, int i, std::uint64_t code) {
    const auto place = static_cast<std::size_t>(i);
    if (b != nullptr && i >= 0 && place < (b->now.*part).size()) (b->now.*part)[place] = code;
}

}  // namespace

extern "C" {

qk_dot_scoreboard* qk_dot_scoreboard_new(const char* accumulator, const char* a_format, const char* b_format, int64_t k) {
    qk_dot_scoreboard* board = nullptr;
    guarded([&] {
        auto b = std::make_unique<qk_dot_scoreboard>();
        b->by = qk::c::multiplier_of(accumulator, a_format, b_format);
        if (k < 1 || k > 1 << 20) throw refused{QK_BAD_ARGUMENT, "k is the number of terms of a sum, 1 to 2^20"};
        for (const qk::format& f : {b->by.a, b->by.b}) {
            if (std::holds_alternative<qk::microexponent>(f))
                throw refused{QK_BAD_ARGUMENT, "microexponents have shifts, which no scoreboard takes"};
        }
        b->task.a = b->by.a;
        b->task.b = b->by.b;
        b->task.k = static_cast<std::size_t>(k);
        b->task.float_sum = b->by.how.sum != qk::summation::integer;
        const qk::floating c = b->by.how.addend;
        b->task.c = c == qk::fp16 || c == qk::bf16 ? c : qk::fp32;
        b->task.d_bits = result_bits(b->by.how);
        b->searchable = qk::compare::check(b->task).empty() && b->task.d_bits <= 32;
        b->now = empty_question(*b);
        board = b.release();
    });
    return board;
}
void qk_dot_scoreboard_without_c(qk_dot_scoreboard* board) {
    if (board != nullptr) board->task.has_c = false;
}
int qk_dot_scoreboard_draw(qk_dot_scoreboard* board) {
    const qk_status s = guarded([&] {
        expect_array(board, 1, "board");
        draw(*board);
    });
    return s == QK_OK ? 0 : -1;
}
uint64_t qk_dot_scoreboard_a(const qk_dot_scoreboard* board, int position) { return at(board, &dot_case::a, position); }
uint64_t qk_dot_scoreboard_b(const qk_dot_scoreboard* board, int position) { return at(board, &dot_case::b, position); }
uint64_t qk_dot_scoreboard_scale_a(const qk_dot_scoreboard* board, int block) { return at(board, &dot_case::scale_a, block); }
uint64_t qk_dot_scoreboard_scale_b(const qk_dot_scoreboard* board, int block) { return at(board, &dot_case::scale_b, block); }
uint64_t qk_dot_scoreboard_c(const qk_dot_scoreboard* board) { return board == nullptr ? 0 : board->now.c[0]; }
void qk_dot_scoreboard_ask(qk_dot_scoreboard* board) {
    guarded([&] {
        if (board != nullptr) board->now = empty_question(*board);
    });
}
void qk_dot_scoreboard_put_a(qk_dot_scoreboard* board, int position, uint64_t code) { put(board, &dot_case::a, position, code); }
void qk_dot_scoreboard_put_b(qk_dot_scoreboard* board, int position, uint64_t code) { put(board, &dot_case::b, position, code); }
void qk_dot_scoreboard_put_scale_a(qk_dot_scoreboard* board, int block, uint64_t code) { put(board, &dot_case::scale_a, block, code); }
void qk_dot_scoreboard_put_scale_b(qk_dot_scoreboard* board, int block, uint64_t code) { put(board, &dot_case::scale_b, block, code); }
void qk_dot_scoreboard_put_c(qk_dot_scoreboard* board, uint64_t code) {
    if (board != nullptr) board->now.c[0] = code;
}
uint64_t qk_dot_scoreboard_expected(qk_dot_scoreboard* board) {
    uint64_t d = 0;
    guarded([&] {
        expect_array(board, 1, "board");
        d = computed(*board);
    });
    return d;
}
int qk_dot_scoreboard_matches(qk_dot_scoreboard* board, uint64_t d) {
    int right = -1;
    guarded([&] {
        expect_array(board, 1, "board");
        right = same_answer(board->task, board->by.how, computed(*board), d) ? 1 : 0;
    });
    return right;
}
void qk_dot_scoreboard_answer(qk_dot_scoreboard* board, uint64_t d) {
    guarded([&] {
        expect_array(board, 1, "board");
        board->expected.push_back(computed(*board));
        board->asked.push_back(board->now);
        board->answers.push_back(d);
    });
}
int64_t qk_dot_scoreboard_check(qk_dot_scoreboard* board) { return differences(board, examine); }
const char* qk_dot_scoreboard_verdict(qk_dot_scoreboard* board) { return verdict_of(board, examine); }
void qk_dot_scoreboard_free(qk_dot_scoreboard* board) { delete board; }

}  // extern "C"
