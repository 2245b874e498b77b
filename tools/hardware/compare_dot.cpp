// SPDX-License-Identifier: Apache-2.0
#include "hardware/compare_dot.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "hardware/ask_device.hpp"
#include "options/format_options.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "support/caller.hpp"
#include "support/console.hpp"
#include "support/flags_json.hpp"

namespace qk::tool {
namespace {

using compare::dot_task;
using compare::found_accumulator;
using graph::error;

qk::format operand(const char* option, const std::string& text) {
    if (text.empty()) throw error(fmt::format("--dot needs {} F, the format of that operand; `qk formats` lists them", option));
    return parsed_format(text, option + std::string(": "));
}

dot_task task_of(const compare_dot_options& given) {
    dot_task task{.a = operand("--a-format", given.a_format),
                  .b = operand("--b-format", given.b_format),
                  .k = given.k,
                  .most_questions = given.questions,
                  .seed = given.seed};
    task.has_c = given.c_format != "none";
    if (!task.has_c) return task;
    const qk::format c = operand("--c-format", given.c_format);
    const auto* f = std::get_if<floating>(&c);
    if (f == nullptr || !(*f == fp32 || *f == fp16 || *f == bf16))
        throw error("--c-format is fp32, fp16, bf16 or none, not " + given.c_format);
    task.c = *f;
    return task;
}
void check_task(const dot_task& task) {
    if (const std::string m = compare::check(task); !m.empty()) throw error("--dot: " + m);
}

/// Returns the codes d that a device gives for a case, and sets the bits of one.
using asked_device = std::function<std::vector<std::uint64_t>(const dot_task&, const compare::dot_case&, int&)>;
asked_device device_of(const compare_dot_options& given) {
    if (const caller* by = this_caller(); by != nullptr && by->multiply)
        return [by](const dot_task& task, const compare::dot_case& c, int& bits) {
            return results_of({{"d", by->multiply(arrays_of(task, c, false))}}, "what the device returned", c.shape, bits);
        };
    return [device = std::make_shared<commanded_device>(given.command)](const dot_task& task, const compare::dot_case& c, int& bits) {
        return device->ask(task, c, bits);
    };
}

found_accumulator asked(const compare_dot_options& given, dot_task& task) {
    check_task(task);
    const asked_device device = device_of(given);
    int bits = 32;
    // The smallest case shows how wide the results are.
    compare::dot_case first{{1, 1, task.k}, {}, {}, {task.has_c ? 0 : compare::no_addend(task)}, {}, {}};
    first.a = first.b = std::vector<std::uint64_t>(task.k, 0);
    for (const auto& [f, scales] : {std::pair{&task.a, &first.scale_a}, {&task.b, &first.scale_b}}) {
        if (block_size(*f) != 0) scales->assign(task.k / static_cast<std::size_t>(block_size(*f)), compare::unit_scale(*f));
    }
    device(task, first, bits);
    task.d_bits = bits;
    --task.most_questions;
    progress bar("asking");
    std::size_t done = 1;
    return compare::find_accumulator(task, [&](const compare::dot_case& c) {
        int here = 0;
        std::vector<std::uint64_t> d = device(task, c, here);
        if (here != bits) throw error(fmt::format("the device: d has {} bits, and had {} before", here, bits));
        bar.show(done += d.size(), given.questions);
        return d;
    });
}

found_accumulator fitted(const compare_dot_options& given, dot_task& task) {
    const auto arrays = graph::read_npz(given.file);
    const compare::dot_case c = case_of(arrays, given.file, task);
    const std::vector<std::uint64_t> d = results_of(arrays, given.file, c.shape, task.d_bits);
    check_task(task);
    return compare::fit_accumulator(task, c, d);
}

/// Returns codes in hexadecimal, as many digits as their format has.
std::string codes_text(const std::vector<std::uint64_t>& codes, int bits) {
    std::string s;
    for (const std::uint64_t v : codes) s += fmt::format(" {:0{}x}", bits >= 64 ? v : v & ((std::uint64_t{1} << bits) - 1), (bits + 3) / 4);
    return s;
}
nlohmann::ordered_json unmet_json(const dot_task& task, const compare::unmet_question& q) {
    nlohmann::ordered_json j{{"a", q.asked.a}, {"b", q.asked.b}};
    if (!q.asked.scale_a.empty()) j["scale_a"] = q.asked.scale_a;
    if (!q.asked.scale_b.empty()) j["scale_b"] = q.asked.scale_b;
    if (task.has_c) j["c"] = q.asked.c[0];
    j["expected"] = q.computed, j["device"] = q.given;
    return j;
}
/// Returns the first question that does not fit.
std::string unmet_text(const dot_task& task, const found_accumulator& r) {
    if (r.unmet.empty()) return {};
    const compare::unmet_question& q = r.unmet.front();
    std::string s =
        fmt::format("{} answers this question otherwise:\n  a{}\n", task.expected ? "the expected accumulator" : "the nearest accumulator",
                    codes_text(q.asked.a, element_width(task.a)));
    if (!q.asked.scale_a.empty()) s += fmt::format("  scales of a{}\n", codes_text(q.asked.scale_a, scale_width(task.a)));
    s += fmt::format("  b{}\n", codes_text(q.asked.b, element_width(task.b)));
    if (!q.asked.scale_b.empty()) s += fmt::format("  scales of b{}\n", codes_text(q.asked.scale_b, scale_width(task.b)));
    if (task.has_c) s += fmt::format("  c{}\n", codes_text(q.asked.c, task.c_bits()));
    return s + fmt::format("  expected{}, device{}\n", codes_text({q.computed}, task.d_bits), codes_text({q.given}, task.d_bits));
}

std::string found_text(const compare_dot_options& given, const dot_task& task, const found_accumulator& r, bool expected) {
    std::string s;
    if (task.expected && r.expected_met != r.questions)
        s = fmt::format("the expected accumulator gives {} of {}\n", r.expected_met, r.questions);
    s += unmet_text(task, r);
    if (r.complete()) {
        s += fmt::format("{} answers, and this accumulator gives every one\n", r.questions);
        for (std::size_t k = 0; k < r.same.size() && k < 3; ++k) s += fmt::format("  it is that of {}\n", r.same[k]);
        if (r.same.size() > 3) s += fmt::format("  and of {} more devices\n", r.same.size() - 3);
    } else if (!r.mistake.empty()) {
        s += fmt::format("{} answers; likely cause: {}. With that, this accumulator gives every one:\n", r.questions, r.mistake);
    } else {
        s += fmt::format("{} answers; no accumulator gives them all. The nearest gives {} of them:\n", r.questions, r.met);
    }
    if (!expected) s += fmt::format("expected: {}\n", given.expected);
    return s + std::string(to_text(r.best).view()) + "\n";
}

}  // namespace

bool compare_dot(const compare_dot_options& given) {
    if (given.file.empty() == given.command.empty()) throw error("--dot needs the answers: a case FILE.npz with d, or --command CMD");
    if (given.questions < 600) throw error(fmt::format("--questions {} is too few; the first batch alone has 576", given.questions));
    dot_task task = task_of(given);
    if (!given.expected.empty()) {
        const auto a = parse_accumulator(given.expected);
        if (!a) throw error("--accumulator: " + std::string(a.error.view()));
        task.expected = *a;
    }
    const found_accumulator r = given.command.empty() ? fitted(given, task) : asked(given, task);
    const std::string text(to_text(r.best).view());
    const bool expected = !task.expected || to_text(*task.expected).view() == text;
    nlohmann::ordered_json unmet = nlohmann::ordered_json::array();
    for (const compare::unmet_question& q : r.unmet) unmet.push_back(unmet_json(task, q));
    tell(given.json,
         {{"accumulator", text},
          {"complete", r.complete()},
          {"mistake", r.mistake.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.mistake)},
          {"questions", r.questions},
          {"explains", r.met},
          {"unexplained", r.questions - r.met},
          {"expected_explains", task.expected ? nlohmann::ordered_json(r.expected_met) : nlohmann::ordered_json(nullptr)},
          {"unmet", unmet},
          {"devices", r.same},
          {"counts", json_of(r.counts)},
          {"as_expected", given.expected.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(expected)}},
         found_text(given, task, r, expected));
    return r.complete() && expected;
}

}  // namespace qk::tool
