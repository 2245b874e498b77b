// SPDX-License-Identifier: Apache-2.0
#include "door.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

namespace qk::c {
namespace {

thread_local char last_error[512] = "";

void read_flag(bool& flag, std::string_view key, std::string_view value, bool has_value) {
    if (has_value && value != "0" && value != "1")
        throw refused{QK_BAD_TEXT, "semantics: " + std::string(key) + " is 0 or 1, not '" + std::string(value) + "'"};
    flag = value != "0";
}

/// Takes the text before the first `separator`, or all of it, off the front.
std::string_view up_to(char separator, std::string_view& rest) {
    const std::string_view first = rest.substr(0, rest.find(separator));
    rest.remove_prefix(std::min(rest.size(), first.size() + 1));
    return first;
}

/// Applies one change, such as "seed=7", to a semantics.
void change(semantics& how, std::string_view item) {
    const bool has_value = item.find('=') != std::string_view::npos;
    const std::string_view key = up_to('=', item);
    constexpr const char* what = "semantics";
    if (key == "rounding") how.rounding = parsed_or_refused(parse_rounding(item), what);
    else if (key == "scale-rule") how.scale_rule = parsed_or_refused(parse_scale_rule(item), what);
    else if (key == "integer-mode") how.integer_mode = parsed_or_refused(parse_integer_mode(item), what);
    else if (key == "overflow") how.overflow = parsed_or_refused(parse_overflow(item), what);
    else if (key == "zero-point-before") read_flag(how.zero_point_before, key, item, has_value);
    else if (key == "mxint-lowest") read_flag(how.mxint_uses_lowest, key, item, has_value);
    else if (key == "flush-inputs") read_flag(how.flush_inputs, key, item, has_value);
    else if (key == "flush-outputs") read_flag(how.flush_outputs, key, item, has_value);
    else if (key == "seed") {
        const auto r = std::from_chars(item.data(), item.data() + item.size(), how.seed);
        if (r.ec != std::errc() || r.ptr != item.data() + item.size() || item.empty())
            throw refused{QK_BAD_TEXT, "semantics: seed needs a whole number, not '" + std::string(item) + "'"};
    } else if (key == "random-bits") {
        const auto r = std::from_chars(item.data(), item.data() + item.size(), how.stochastic_bits);
        if (r.ec != std::errc() || r.ptr != item.data() + item.size() || how.stochastic_bits < 1 || how.stochastic_bits > 32)
            throw refused{QK_BAD_TEXT, "semantics: random-bits is 1 to 32, not '" + std::string(item) + "'"};
    } else {
        throw refused{QK_BAD_TEXT,
                      "semantics: unknown key '" + std::string(key) +
                          "'; the keys are rounding, scale-rule, integer-mode, overflow, seed, random-bits, zero-point-before, "
                          "mxint-lowest, flush-inputs, flush-outputs"};
    }
}

[[noreturn]] void bad(std::string sentence) { throw refused{QK_BAD_ARGUMENT, std::move(sentence)}; }

/// Is true if a * b * c is n and does not overflow.
bool covers(std::size_t a, std::size_t b, std::size_t c, std::size_t n) {
    std::size_t ab = 0, abc = 0;
    return !__builtin_mul_overflow(a, b, &ab) && !__builtin_mul_overflow(ab, c, &abc) && abc == n;
}

void take_scales(const qk_conversion& given, compare::conversion& c) {
    using granularity = compare::conversion::granularity;
    const integer* whole = std::get_if<integer>(&c.format);
    const bool nvfp = has_floating_scales(c.format);
    if (given.scale_count == 0) {
        if (given.scales != nullptr || given.zero_points != nullptr) bad("scale_count is 0, but scales or zero_points are not NULL");
        if (whole != nullptr && whole->symmetric && !whole->is_signed) {
            c.given = granularity::tensor;
            c.scale = {1.0f};
            c.zero_point = {std::int64_t{1} << (whole->bits - 1)};
        }
        return;
    }
    if (given.scales == nullptr) bad("scale_count is not 0, but scales is NULL");
    if (is_block_format(c.format) && !(nvfp && given.scale_count == 1))
        bad("format " + std::string(to_text(c.format).view()) + " takes its scales from the data; leave scale_count 0");
    if (given.zero_points != nullptr && whole == nullptr) bad("zero_points are for integer formats");
    for (std::size_t i = 0; i < given.scale_count; ++i) {
        const message scale = nvfp && given.scales[i] == 0 ? message() : check_scale(given.scales[i]);
        if (!scale.empty()) bad("scales[" + std::to_string(i) + "]: " + std::string(scale.view()));
        if (given.zero_points == nullptr) continue;
        const message zero = check_zero_point(*whole, given.zero_points[i]);
        if (!zero.empty()) bad("zero_points[" + std::to_string(i) + "]: " + std::string(zero.view()));
    }
    c.scale.assign(given.scales, given.scales + given.scale_count);
    if (given.zero_points != nullptr) c.zero_point.assign(given.zero_points, given.zero_points + given.scale_count);
    c.scale_axis = 1;
    c.scale_blocks = c.blocks;
    if (given.scale_count == 1 && given.scale_block == 0) {
        c.given = granularity::tensor;
        return;
    }
    c.given = given.scale_block == 0 ? granularity::channel : granularity::block;
    c.scale_block = given.scale_block;
    const std::size_t wanted = given.scale_block == 0
                                   ? c.blocks.length
                                   : c.blocks.outer * ((c.blocks.length + given.scale_block - 1) / given.scale_block) * c.blocks.inner;
    if (wanted != given.scale_count)
        bad("scale_count is " + std::to_string(given.scale_count) + "; along this axis there are " + std::to_string(wanted) + " scales");
}

}  // namespace

qk_status fail(qk_status status, std::string_view sentence) noexcept {
    const std::size_t n = std::min(sentence.size(), sizeof last_error - 1);
    std::memcpy(last_error, sentence.data(), n);
    last_error[n] = '\0';
    return status;
}

std::string_view text_of(const char* text, const char* what) {
    if (text == nullptr) throw refused{QK_BAD_ARGUMENT, std::string(what) + " is NULL"};
    return text;
}
format format_of(const char* text, const char* what) { return parsed_or_refused(parse_rounded_format(text_of(text, what)), what); }
format read_format_of(const char* text, const char* what) { return parsed_or_refused(parse_format(text_of(text, what)), what); }

semantics semantics_of(const char* text) {
    if (text == nullptr || *text == '\0') return semantics::ocp;
    std::string_view rest = text;
    semantics how = semantics::ocp;
    const std::string_view first = rest.substr(0, rest.find(','));
    if (first.find('=') == std::string_view::npos && first.find('-') == std::string_view::npos) {
        how = parsed_or_refused(parse_semantics(first), "semantics");
        up_to(',', rest);
    }
    while (!rest.empty()) change(how, up_to(',', rest));
    return how;
}
accumulator accumulator_of(const char* text) { return parsed_or_refused(parse_accumulator(text_of(text, "accumulator")), "accumulator"); }
void put_text(qk_text& to, std::string_view text) {
    const std::size_t n = std::min(text.size(), sizeof to.chars - 1);
    std::memcpy(to.chars, text.data(), n);
    to.chars[n] = '\0';
}

void expect_array(const void* data, std::size_t n, const char* what) {
    if (data == nullptr && n != 0) bad(std::string(what) + " is NULL");
}

void take_words(compare::conversion& c, const std::uint32_t* words, std::size_t n) {
    expect_array(words, n, "words");
    if (!is_stochastic(c.how.rounding))
        throw refused{QK_BAD_ARGUMENT, "random words are for semantics with rounding=stochastic, stochastic-b or stochastic-c"};
    c.use_words({words, words + n});
}

compare::conversion conversion_of(const qk_conversion* how, std::size_t n, bool reads) {
    if (how == nullptr) bad("how is NULL");
    compare::conversion c;
    c.format = reads ? read_format_of(how->format, "format") : format_of(how->format, "format");
    c.how = semantics_of(how->semantics);
    c.axis = 1;
    const bool whole = how->outer == 0 && how->length == 0 && how->inner == 0;
    c.blocks = whole ? along_axis{1, n, 1} : along_axis{how->outer, how->length, how->inner};
    if (!covers(c.blocks.outer, c.blocks.length, c.blocks.inner, n) || (n != 0 && c.blocks.inner == 0))
        bad("outer * length * inner must be the number of values, " + std::to_string(n));
    if (is_read_only(c.format) && (c.blocks.inner > 1 || c.blocks.length % static_cast<std::size_t>(block_size(c.format)) != 0))
        bad("ggml's blocks lie in rows of whole blocks: inner is 1, and length a multiple of " + std::to_string(block_size(c.format)));
    take_scales(*how, c);
    return c;
}

}  // namespace qk::c

extern "C" {

const char* qk_last_error(void) { return qk::c::last_error; }
const char* qk_version(void) { return QK_VERSION; }

const char* qk_format_name(size_t index) { return index < std::size(qk::catalogue) ? qk::catalogue[index].name.data() : nullptr; }
const char* qk_semantics_name(size_t index) {
    return index < std::size(qk::semantics_names) ? qk::semantics_names[index].name.data() : nullptr;
}
const char* qk_device_name(size_t index) {
    const char* name = nullptr;
    qk::devices::each([&](const qk::device& d) {
        if (index-- == 0) name = d.name.data();
    });
    return name;
}

qk_status qk_check_format(const char* format, qk_text* canonical) {
    return qk::c::guarded([&] {
        const auto text = qk::to_text(qk::c::read_format_of(format, "format"));
        if (canonical != nullptr) qk::c::put_text(*canonical, text.view());
    });
}
qk_status qk_check_semantics(const char* semantics) {
    return qk::c::guarded([&] { qk::c::semantics_of(semantics); });
}
qk_status qk_check_accumulator(const char* accumulator_or_device, qk_text* canonical) {
    return qk::c::guarded([&] {
        const auto text = qk::to_text(qk::c::accumulator_of(accumulator_or_device));
        if (canonical != nullptr) qk::c::put_text(*canonical, text.view());
    });
}
qk_status qk_find_device(const char* name, qk_device* device) {
    return qk::c::guarded([&] {
        const std::string_view wanted = qk::c::text_of(name, "name");
        qk::c::expect_array(device, 1, "device");
        const qk::device* d = qk::find_device(wanted);
        if (d == nullptr) throw qk::c::refused{QK_BAD_TEXT, std::string(qk::unknown_device(wanted).view())};
        *device = {.name = d->name.data(),
                   .source = d->source.data(),
                   .a_format = {},
                   .b_format = {},
                   .accumulator = {},
                   .m = d->m,
                   .n = d->n,
                   .k = d->k};
        qk::c::put_text(device->a_format, qk::to_text(d->a).view());
        qk::c::put_text(device->b_format, qk::to_text(d->b).view());
        qk::c::put_text(device->accumulator, qk::to_text(d->accumulator).view());
    });
}

}  // extern "C"
