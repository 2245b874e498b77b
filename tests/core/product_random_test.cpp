// SPDX-License-Identifier: Apache-2.0
// Products of random formats, shapes, scales, strides and options against the oracle. Each trial is drawn from its number, which a failure
// prints: QK_PRODUCT_FIRST=number QK_PRODUCT_COUNT=1 runs it alone. QK_PRODUCT_COUNT sets how many there are.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "compare_bits.hpp"
#include "product_oracle.hpp"
#include "product_under_test.hpp"
#include "qk/reference.hpp"
#include "test_formats.hpp"

namespace {

/// Numbers in memory of one of three types, each filled with a number that no product gives.
class stored_numbers {
  public:
    static constexpr float untouched = -77.0f;
    stored_numbers(std::uint32_t type, std::size_t n, std::size_t offset) : type_(type), n_(n), offset_(offset) {
        if (type == 0) floats_.assign(n + offset, untouched);
        else if (type == 1) halves_.assign(n + offset, qk::narrow<qk::float16>(untouched));
        else brains_.assign(n + offset, qk::narrow<qk::bfloat16>(untouched));
    }
    std::size_t size() const { return n_; }
    float at(std::size_t i) const {
        return type_ == 0 ? floats_[offset_ + i] : type_ == 1 ? qk::widen(halves_[offset_ + i]) : qk::widen(brains_[offset_ + i]);
    }
    void set(std::size_t i, float v) {
        if (type_ == 0) floats_[offset_ + i] = v;
        else if (type_ == 1) halves_[offset_ + i] = qk::narrow<qk::float16>(v);
        else brains_[offset_ + i] = qk::narrow<qk::bfloat16>(v);
    }
    void fill(data kind, std::uint64_t seed) {
        const std::vector<float> v = make_inputs(kind, n_, seed);
        for (std::size_t i = 0; i < n_; ++i) set(i, v[i]);
    }
    qk::values_in in() const {
        if (type_ == 0) return std::span(floats_).subspan(offset_);
        if (type_ == 1) return std::span(halves_).subspan(offset_);
        return std::span(brains_).subspan(offset_);
    }
    qk::values_out out() {
        if (type_ == 0) return std::span(floats_).subspan(offset_);
        if (type_ == 1) return std::span(halves_).subspan(offset_);
        return std::span(brains_).subspan(offset_);
    }

  private:
    std::uint32_t type_;
    std::size_t n_, offset_;
    std::vector<float> floats_;
    std::vector<qk::float16> halves_;
    std::vector<qk::bfloat16> brains_;
};

std::string number_between(generator& g, std::uint32_t low, std::uint32_t high) { return std::to_string(low + g.below(high - low + 1)); }

/// Draws the textual form of a format; it may be no valid one.
std::string text_of_format(generator& g) {
    const auto one_of = [&](std::initializer_list<const char*> names) {
        return std::string(names.begin()[g.below(static_cast<std::uint32_t>(names.size()))]);
    };
    const auto small_float = [&] {
        return g.below(2) != 0
                   ? one_of({"fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2", "fp8_e3m4", "int8", "int4"})
                   : "binary" + number_between(g, 3, 8) + "p" + number_between(g, 1, 5) + one_of({"s", "u"}) + one_of({"e", "f"});
    };
    switch (g.below(8)) {
        case 0:
            return "float:exponent=" + number_between(g, 1, 8) + ",mantissa=" + number_between(g, 0, 23) +
                   one_of({"", ",special=fn", ",special=fnuz", ",special=none"}) + (g.below(4) == 0 ? ",sign=0" : "");
        case 1: return "binary" + number_between(g, 3, 15) + "p" + number_between(g, 1, 12) + one_of({"s", "u"}) + one_of({"e", "f"});
        case 2: return "int:bits=" + number_between(g, 1, 32) + one_of({"", ",signed=0"});
        case 3:
            return "bfp:block=" + number_between(g, 1, 70) + ",exponent=" + number_between(g, 2, 8) +
                   ",mantissa=" + number_between(g, 1, 23);
        case 4:
            return "microexponent:block=" + number_between(g, 1, 40) + ",sub_block=" + number_between(g, 1, 8) +
                   ",mantissa=" + number_between(g, 1, 12) + ",shift=" + number_between(g, 1, 3);
        case 5: return "mx:element=" + small_float() + ",block=" + one_of({"16", "32", "64", "96", "7", "1", "128"});
        case 6: return "nvfp:block=" + one_of({"8", "16", "32", "12"}) + ",element=" + small_float() + one_of({"", ",tensor=0"});
        default: return "table:values=" + one_of({"-1/0/0.5/3", "-6/-1/-0.25/0/0.1/0.25/2/7", "1/2/3/nan"}) + ",ties=upper";
    }
}

qk::format draw_format(generator& g, std::string& name) {
    static const std::vector<test_format> listed = all_formats();
    while (true) {
        if (g.below(2) != 0) {
            const test_format& t = listed[g.below(static_cast<std::uint32_t>(listed.size()))];
            name = t.name;
            return t.format;
        }
        name = text_of_format(g);
        if (const auto f = qk::parse_format(name); f) return *f;
    }
}

std::size_t draw_columns(generator& g) {
    switch (g.below(12)) {
        case 0: return g.below(4);
        case 1:
        case 2:
        case 3: return 1 + g.below(80);
        case 4:
        case 5: return 16 * (1 + g.below(20));
        case 6:
        case 7:
        case 8: return 32 * (1 + g.below(12));
        case 9: return 64 + g.below(300);
        case 10: return g.below(20) == 0 ? 4000 + g.below(5000) : 100 + g.below(100);
        default: return 256 + g.below(4);
    }
}

/// A packed matrix, its numbers, and the scales that go with it.
struct drawn_matrix {
    std::string name;
    qk::format format;
    std::size_t rows = 0, columns = 0;
    made_weights packed;
    std::vector<float> scale, number;
    std::vector<std::int64_t> zero;
    qk::packed_weights w;

    /// Draws scales for an elementwise format.
    qk::codec_parameters draw_scales(generator& g, bool for_integers) {
        const auto* whole = std::get_if<qk::integer>(&format);
        const bool zeros = whole != nullptr && g.below(2) != 0;
        const auto zero_point = [&]() -> std::int64_t {
            const std::int64_t span = std::min<std::int64_t>(qk::qmax(*whole) - qk::qmin(*whole), 1 << 20);
            return qk::qmin(*whole) + g.below(static_cast<std::uint32_t>(span) + 1);
        };
        const auto fill = [&](std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) scale.push_back(static_cast<float>(0.01 + g.uniform()));
            for (std::size_t i = 0; i < n && zeros; ++i) zero.push_back(zero_point());
        };
        const qk::along_axis along{rows, columns, 1}, across{1, rows, columns};
        const std::uint32_t kind = rows == 0 || columns == 0 ? 0 : g.below(for_integers ? 4 : 7);
        if (kind == 0) return qk::affine{0.37f, zeros ? zero_point() : 0};
        if (kind == 1) return fill(rows), qk::codec_parameters(qk::per_channel{scale, zero, across});
        if (kind == 4) return fill(columns), qk::codec_parameters(qk::per_channel{scale, zero, along});
        const std::size_t group = kind == 2   ? std::size_t{16} << g.below(5)
                                  : kind == 3 ? 32 * (1 + g.below(9))
                                  : kind == 5 ? 1 + g.below(60)
                                              : 1 + g.below(8);
        const qk::along_axis a = kind == 6 ? across : along;
        fill(a.outer * ((a.length - 1) / group + 1) * a.inner);
        return qk::codec_parameters(qk::per_block{scale, zero, a, group});
    }
    drawn_matrix(generator& g, std::size_t r, std::size_t k, bool for_integers) : rows(r), columns(k) {
        do {
            format = draw_format(g, name);
        } while (for_integers && !(qk::takes_integers(format) && (qk::block_size(format) % 32 == 0 || qk::block_size(format) == 16)));
        const bool blocks = qk::is_block_format(format);
        const float tensor = 0.03f;
        const auto kind = !for_integers && g.below(4) == 0 ? weights_kind::any_codes : weights_kind::ordinary;
        const qk::along_axis axis{rows, columns, 1};
        if (kind == weights_kind::any_codes || !blocks) {  // any codes of elementwise formats are as good as others
            packed = make_weights(format, rows, columns, weights_kind::any_codes, g.word(), tensor, g.below(5));
        } else {
            const std::vector<float> x = make_inputs(g.below(6) == 0 ? data::sparse : data::ordinary, rows * columns, g.word());
            std::vector<std::byte> bytes(qk::packed_bytes(format, axis));
            REQUIRE(under_test::encode(format, x, bytes, qk::codec_parameters(axis, qk::affine{tensor})) == qk::encode_status::done);
            const qk::const_planes p = qk::planes_of(qk::layout_of(format, axis), std::span<const std::byte>(bytes));
            packed.offset = g.below(5);
            const std::span<const std::byte> from[] = {p.elements, p.scales, p.shifts, p.tensor};
            for (std::size_t i = 0; i < 4; ++i) {
                if (from[i].empty()) continue;
                packed.bytes[i].resize(packed.offset + from[i].size());
                std::copy(from[i].begin(), from[i].end(), packed.bytes[i].begin() + static_cast<std::ptrdiff_t>(packed.offset));
            }
        }
        const qk::codec_parameters p = blocks ? qk::codec_parameters(qk::affine{tensor}) : draw_scales(g, for_integers);
        number = exact_weights(format, packed.planes(), rows, columns, p);
        w = {rows, columns, packed.planes(), p};
        name += " " + std::to_string(rows) + "x" + std::to_string(columns);
    }
    drawn_matrix(const drawn_matrix&) = delete;
    drawn_matrix& operator=(const drawn_matrix&) = delete;
};

/// Strides of vectors of n values.
struct drawn_places {
    std::size_t count, n, stride, step;
    std::size_t at(std::size_t m, std::size_t i) const { return m * (stride != 0 ? stride : n * step) + i * step; }
    std::size_t size() const { return count == 0 || n == 0 ? 0 : at(count - 1, n - 1) + 1; }
};
drawn_places draw_places(generator& g, std::size_t count, std::size_t n, bool may_overlap) {
    switch (g.below(may_overlap ? 5 : 4)) {
        case 0: return {count, n, 0, 1 + g.below(3)};
        case 1: return {count, n, n + g.below(9) + (n == 0 ? 1 : 0), 1};
        case 2: return {count, n, 1, count + g.below(3) + (count == 0 ? 1 : 0)};
        case 3: return {count, n, 0, 1};
        default: return {count, n, 1 + g.below(5), 1};  // windows of one signal
    }
}
data draw_kind(generator& g) {
    switch (g.below(10)) {
        case 0: return data::special;
        case 1: return data::subnormal;
        case 2: return data::sparse;
        default: return data::ordinary;
    }
}

/// What follows a sum, drawn.
struct drawn_epilogue {
    std::vector<float> row_scale, bias;
    std::optional<stored_numbers> times, plus;
    qk::product_options o;
    bool plus_is_y = false;

    drawn_epilogue(generator& g, std::size_t rows, std::size_t range, std::uint32_t y_type, std::size_t y_size) {
        if (g.below(3) == 0) o.scale = static_cast<float>(g.uniform() * 4 - 2);
        if (g.below(3) == 0) row_scale = make_inputs(data::ordinary, rows, g.word()), o.row_scale = row_scale;
        if (g.below(3) == 0) bias = make_inputs(data::ordinary, rows, g.word()), o.bias = bias;
        o.act = static_cast<qk::activation>(g.below(2) == 0 ? 0 : g.below(5));
        if (g.below(4) == 0) times.emplace(y_type, y_size, g.below(2)), times->fill(data::ordinary, g.word()), o.times = times->in();
        if (g.below(4) == 0) plus.emplace(g.below(3), y_size, g.below(2)), plus->fill(data::ordinary, g.word()), o.plus = plus->in();
        else plus_is_y = g.below(3) == 0;
        if (g.below(2) == 0) {
            o.rows.first = g.below(static_cast<std::uint32_t>(range) + 1);
            o.rows.last = o.rows.first + g.below(static_cast<std::uint32_t>(range) + 3);
        }
    }
    /// Returns what is written for the sum of row `of`, whose output is number `at` of y.
    float of_sum(float sum, std::size_t of, std::size_t at, const stored_numbers& y, const qk::expert_choice* chosen, float expert) const {
        volatile float s = sum * o.scale;
        if (chosen != nullptr) s = s * expert;
        if (!row_scale.empty()) s = s * row_scale[of];
        if (!bias.empty()) s = s + bias[of];
        s = qk::detail::activated(o.act, s);
        if (chosen != nullptr) s = s * chosen->weight;
        if (times) s = s * times->at(at);
        if (plus) s = s + plus->at(at);
        else if (plus_is_y) s = s + y.at(at);
        return s;
    }
};

std::size_t wrong_numbers(const stored_numbers& expected, const stored_numbers& y, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (same_bits(expected.at(i), y.at(i))) continue;
        if (n++ < 3)
            std::fprintf(stderr, "%s: number %zu is %a, not %a\n", what.c_str(), i, static_cast<double>(y.at(i)),
                         static_cast<double>(expected.at(i)));
    }
    return n;
}

/// The factors of weights and their unit, for product_sums::integers: factors are the numbers of a matrix of the smallest element.
struct whole_parts {
    double unit = 1;
    std::vector<float> factor, element;
    explicit whole_parts(const drawn_matrix& m) {
        const qk::packed_layout l = qk::layout_of(m.format, qk::along_axis{m.rows, m.columns, 1});
        made_weights plain = m.packed;
        for (std::byte& b : plain.bytes[0]) b = std::byte{0};
        for (std::size_t k = 0; k < l.elements.count; ++k) {
            const std::size_t bit = k * static_cast<std::size_t>(l.elements.bits);
            plain.bytes[0][plain.offset + bit / 8] |= static_cast<std::byte>(1u << (bit % 8));
        }
        qk::codec_parameters p = m.w.parameters;
        p.zero_point = {}, p.one.zero_point = 0;
        const std::vector<float> smallest = exact_weights(m.format, plain.planes(), m.rows, m.columns, p);
        if (const auto* f = std::get_if<qk::floating>(&m.format)) unit = static_cast<double>(qk::min_value(*f));
        if (const auto* x = std::get_if<qk::microscaling>(&m.format); x != nullptr && x->integer_bits != 0)
            unit = std::ldexp(1.0, 2 - x->integer_bits);
        else if (const qk::floating* e = qk::element_float(m.format)) unit = static_cast<double>(qk::min_value(*e));
        for (std::size_t i = 0; i < smallest.size(); ++i) {
            factor.push_back(static_cast<float>(static_cast<double>(smallest[i]) / unit));
            const double e = static_cast<double>(m.number[i]) / static_cast<double>(smallest[i]);
            element.push_back(smallest[i] == 0 ? 0.0f : static_cast<float>(std::nearbyint(e)));
        }
    }
};

/// A format that x is rounded to on its way.
struct rounding {
    qk::format to;
    qk::input_rounding under_test;
};
template <auto Format>
rounding rounding_to() {
    return {Format, under_test::rounded_to<Format>()};
}

void check_product_trial(generator& g, const std::string& number) {
    const bool integers = g.below(6) == 0;
    const bool grouped = !integers && g.below(5) == 0;
    const std::size_t experts = grouped ? 1 + g.below(4) : 1, rows = g.below(12) == 0 ? g.below(2) : 1 + g.below(grouped ? 12 : 30);
    const std::size_t columns = draw_columns(g), vectors = g.below(3) != 0 ? 1 : g.below(30) == 0 ? 60 + g.below(20) : 1 + g.below(9);
    const drawn_matrix m(g, experts * rows, columns, integers);
    const std::uint32_t x_type = g.below(2) == 0 ? 0 : g.below(3), y_type = g.below(2) == 0 ? 0 : g.below(3);
    std::vector<qk::expert_choice> chosen;
    std::vector<float> expert_scale;
    std::size_t outputs = vectors;
    if (grouped) {
        outputs = 1 + g.below(6);
        for (std::uint32_t n = g.below(9); n != 0; --n)
            chosen.push_back({g.below(static_cast<std::uint32_t>(experts)), g.below(static_cast<std::uint32_t>(vectors)),
                              g.below(static_cast<std::uint32_t>(outputs)), static_cast<float>(g.uniform())});
        if (g.below(2) == 0) expert_scale = make_inputs(data::ordinary, experts, g.word());
    }
    const drawn_places px = draw_places(g, vectors, columns, true), py = draw_places(g, outputs, rows, false);
    stored_numbers x(x_type, px.size(), g.below(3)), y(y_type, py.size(), g.below(3));
    x.fill(draw_kind(g), g.word());
    drawn_epilogue e(g, experts * rows, rows, y_type, py.size());
    if (e.plus_is_y) y.fill(data::ordinary, g.word());
    if (integers) e.o.sums = qk::product_sums::integers;
    stored_numbers expected = y;
    // x rounded on its way: to a format whose blocks begin at column 0.
    static const rounding roundings[] = {rounding_to<qk::mxfp8_e4m3>(), rounding_to<qk::bfp16>(), rounding_to<qk::mxint8>(),
                                         rounding_to<qk::fp8_e5m2>(), rounding_to<qk::bf16>()};
    const bool rounds = g.below(5) == 0;
    const rounding& round = roundings[g.below(5)];
    std::vector<std::vector<float>> in(vectors, std::vector<float>(columns));
    for (std::size_t v = 0; v < vectors; ++v) {
        for (std::size_t k = 0; k < columns; ++k) in[v][k] = x.at(px.at(v, k));
        if (rounds && columns != 0) qk::reference::fake_quantize(round.to, std::vector<float>(in[v]), in[v], qk::along_axis{1, columns, 1});
    }
    if (rounds) e.o.round = round.under_test;
    const std::string what = "trial " + number + ", " + m.name + " vectors " + std::to_string(vectors) + " chosen " +
                             std::to_string(chosen.size()) + (integers ? " integers" : "") + " strides " + std::to_string(px.stride) + " " +
                             std::to_string(px.step) + " rows from " + std::to_string(e.o.rows.first);
    const std::optional<whole_parts> parts = integers ? std::optional<whole_parts>(m) : std::nullopt;
    const auto put = [&](std::size_t of, std::size_t r, std::size_t from, std::size_t to, const qk::expert_choice* c) {
        const auto row = std::span(m.number).subspan(of * columns, columns);
        const float sum =
            integers ? exact_integer_sum(
                           in[from], parts->unit, [&](std::size_t k) { return static_cast<double>(parts->element[of * columns + k]); },
                           [&](std::size_t k) { return parts->factor[of * columns + k]; })
                     : exact_sum(row, [&](std::size_t k) { return in[from][k]; });
        const std::size_t at = py.at(to, r);
        expected.set(at, e.of_sum(sum, of, at, expected, c, c == nullptr || expert_scale.empty() ? 1.0f : expert_scale[c->expert]));
    };
    const std::size_t last = std::min(rows, e.o.rows.last);
    if (grouped) {
        for (const qk::expert_choice& c : chosen)
            for (std::size_t r = e.o.rows.first; r < last; ++r) put(c.expert * rows + r, r, c.from, c.to, &c);
    } else {
        for (std::size_t v = 0; v < vectors; ++v)
            for (std::size_t r = e.o.rows.first; r < last; ++r) put(r, r, v, v, nullptr);
    }
    if (e.plus_is_y) e.o.plus = y.in();
    const qk::product_input px_in{x.in(), vectors, px.stride, px.step};
    const qk::product_output py_out{y.out(), py.stride, py.step};
    if (grouped) {
        under_test::grouped_product(m.format, m.w, {rows, chosen, expert_scale}, px_in, py_out, e.o);
    } else if (g.below(3) == 0) {
        const auto backwards = [](std::size_t n, const auto& body) {
            while (n-- > 0) body(n);
        };
        under_test::product(m.format, m.w, px_in, py_out, e.o, backwards, g.below(9));
    } else {
        under_test::product(m.format, m.w, px_in, py_out, e.o);
    }
    CHECK(wrong_numbers(expected, y, what) == 0);
}

void check_cache_trial(generator& g, const std::string& number) {
    const std::size_t tokens = 1 + g.below(24), step = 1 + g.below(3), first = g.below(3);
    const std::size_t before = g.below(3) == 0 ? 32 * g.below(3) : g.below(20), columns = draw_columns(g), after = g.below(2) * g.below(40);
    const std::size_t rows = g.below(10) == 0 ? 0 : tokens, vectors = g.below(2) == 0 ? 1 : 1 + g.below(18);
    const drawn_matrix m(g, first + (tokens - 1) * step + 1 + g.below(3), before + columns + after, false);
    const qk::packed_rows part{m.w, rows, columns, first, step, before};
    const auto weight = [&](std::size_t r, std::size_t k) { return m.number[(first + r * step) * m.columns + before + k]; };
    const std::uint32_t x_type = g.below(2) == 0 ? 0 : g.below(3), y_type = g.below(2) == 0 ? 0 : g.below(3);
    const bool scores = g.below(2) == 0;
    const drawn_places px = draw_places(g, vectors, scores ? columns : rows, true),
                       py = draw_places(g, vectors, scores ? rows : columns, false);
    stored_numbers x(x_type, px.size(), g.below(3)), y(y_type, py.size(), g.below(3));
    x.fill(draw_kind(g), g.word());
    const std::string what = "trial " + number + ", " + m.name + (scores ? " scores " : " context ") + std::to_string(rows) + "x" +
                             std::to_string(columns) + " from " + std::to_string(before) + " vectors " + std::to_string(vectors);
    stored_numbers expected = y;
    if (scores) {
        drawn_epilogue e(g, rows, rows, y_type, py.size());
        if (e.plus_is_y) y.fill(data::ordinary, g.word()), expected = y, e.o.plus = y.in();
        for (std::size_t v = 0; v < vectors; ++v) {
            for (std::size_t r = e.o.rows.first; r < std::min(rows, e.o.rows.last); ++r) {
                std::vector<float> row(columns);
                for (std::size_t k = 0; k < columns; ++k) row[k] = weight(r, k);
                const float sum = exact_sum(row, [&](std::size_t k) { return x.at(px.at(v, k)); });
                expected.set(py.at(v, r), e.of_sum(sum, r, py.at(v, r), expected, nullptr, 1));
            }
        }
        under_test::dot_rows(m.format, part, {x.in(), vectors, px.stride, px.step}, {y.out(), py.stride, py.step}, e.o);
    } else {
        qk::weighted_options o;
        std::vector<float> column_scale, begin;
        if (g.below(2) == 0) o.scale = 0.3f;
        if (g.below(3) == 0) column_scale = make_inputs(data::ordinary, columns, g.word()), o.column_scale = column_scale;
        if (g.below(3) == 0) begin = make_inputs(data::ordinary, py.size(), g.word()), o.begin = begin;
        if (g.below(3) == 0) o.columns.first = g.below(9), o.columns.last = o.columns.first + g.below(200);
        const bool plus = g.below(3) == 0;
        if (plus) y.fill(data::ordinary, g.word()), expected = y, o.plus = y.in();
        for (std::size_t v = 0; v < vectors; ++v) {
            for (std::size_t k = o.columns.first; k < std::min(columns, o.columns.last); ++k) {
                const std::size_t at = py.at(v, k);
                volatile float s = exact_chain(
                    rows, begin.empty() ? 0.0f : begin[at], [&](std::size_t r) { return x.at(px.at(v, r)); },
                    [&](std::size_t r) { return weight(r, k); });
                s = s * o.scale;
                if (!column_scale.empty()) s = s * column_scale[k];
                if (plus) s = s + expected.at(at);
                expected.set(at, s);
            }
        }
        under_test::weighted_rows(m.format, part, {x.in(), vectors, px.stride, px.step}, {y.out(), py.stride, py.step}, o);
    }
    CHECK(wrong_numbers(expected, y, what) == 0);
}

std::uint64_t number_in_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("random products, caches and experts") {
    const std::uint64_t first = number_in_environment("QK_PRODUCT_FIRST", 0), count = number_in_environment("QK_PRODUCT_COUNT", 2000);
    for (std::uint64_t i = first; i < first + count; ++i) {
        generator g{i * 0x9e3779b97f4a7c15u + 1};
        if (g.below(3) == 0) check_cache_trial(g, std::to_string(i));
        else check_product_trial(g, std::to_string(i));
    }
}
