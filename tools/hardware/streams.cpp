// SPDX-License-Identifier: Apache-2.0
#include "hardware/streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "hardware/dot_case.hpp"
#include "options/option_table.hpp"
#include "options/words.hpp"
#include "qk/compare/bins.hpp"
#include "qk/formats/parse.hpp"
#include "qk/qk.hpp"
#include "qk/storage.hpp"
#include "support/packed_file.hpp"

namespace qk::tool {
namespace {

using graph::error;

std::size_t cases_in(const hex_row& w, const std::vector<int>& widths) { return w.size() / widths.size(); }

/// Are two float32 words the same number? NaN is NaN.
bool same_float(std::uint64_t a, std::uint64_t b) {
    return compare::same_value(std::bit_cast<float>(static_cast<std::uint32_t>(a)), std::bit_cast<float>(static_cast<std::uint32_t>(b)));
}
/// Is a word a code of so many bits?
bool is_code(std::uint64_t word, int width) { return word != no_number && (width >= 64 || word >> width == 0); }
std::vector<char> wrong_words(const case_kind& kind, const hex_row& given, const hex_row& right,
                              const std::function<bool(std::uint64_t, std::uint64_t)>& same) {
    std::vector<char> wrong(cases_in(given, kind.results), 0);
    for (std::size_t i = 0; i < given.size(); ++i) {
        const int width = kind.results[i % kind.results.size()];
        if (!is_code(given[i], width) || !same(given[i], right[i])) wrong[i / kind.results.size()] = 1;
    }
    return wrong;
}

/// The codes of a format: one value, or a block. Cases are rows of one block each.
class coded {
  public:
    explicit coded(const stream_options& given) : given_(given.how) {
        const qk::format f = format_of(given_);
        semantics_of(given_);
        if (!given_.scales.empty()) throw error("a stream has one scale; give --scale instead of --scales");
        if (has_floating_scales(f) && given_.scale.empty()) given_.scale = "1";  // a case by itself has no other
        size = std::max<std::size_t>(1, static_cast<std::size_t>(block_size(f)));
        const packed_layout l = layout_of(conversion_of(1), size);
        elements.assign(size, l.elements.bits);
        codes = elements;
        codes.insert(codes.end(), l.scales.count, l.scales.bits);
        codes.insert(codes.end(), l.shifts.count, l.shifts.bits);
    }
    /// Returns the conversion of so many cases behind `before` others.
    conversion conversion_of(std::size_t cases, std::size_t before = 0) const {
        conversion c = resolve(given_, {static_cast<std::int64_t>(cases), static_cast<std::int64_t>(size)}, "the stream");
        if (c.words && c.words->size() < (before + cases) * size)
            throw error(fmt::format("{} has {} words, and the stream has more values", given_.random_words, c.words->size()));
        c.how = from_element(c.how, before * size);
        return c;
    }
    /// Returns the values of codes. A code that is wider than its format counts by its low bits.
    std::vector<float> values_of(const hex_row& w) const {
        return compare::decoded(conversion_of(w.size() / codes.size()), parted_codes(w));
    }
    hex_row codes_of_values(const std::vector<float>& x, std::size_t before) const {
        const std::size_t cases = x.size() / size;
        const graph::dims shape{static_cast<std::int64_t>(cases), static_cast<std::int64_t>(size)};
        packed_tensor p = pack(conversion_of(cases, before), graph::make_tensor<float>(shape, x));
        const packed_layout l = layout_of(p.how, x.size());
        hex_row w(cases * codes.size());
        for_each_code(
            l, cases, [&](std::span<std::byte> plane, std::size_t at, int bits, std::size_t word) { w[word] = get_code(plane, at, bits); },
            planes_of(l, std::span(p.bytes)));
        return w;
    }
    compare::coded_values parted_codes(const hex_row& w) const {
        compare::coded_values c;
        for (std::size_t k = 0; k < w.size(); ++k) {
            const std::size_t at = k % codes.size();
            auto& to = at < size ? c.elements : at == size ? c.scales : c.shifts;
            to.push_back(static_cast<std::uint32_t>(w[k]));
        }
        return c;
    }
    std::size_t size = 1;
    std::vector<int> elements, codes;  ///< widths

  private:
    template <class Visit>
    void for_each_code(const packed_layout& l, std::size_t cases, Visit visit, const planes& p) const {
        const std::size_t scales = l.scales.count / cases, shifts = l.shifts.count / cases;
        for (std::size_t n = 0; n < cases; ++n) {
            const std::size_t word = n * codes.size();
            for (std::size_t k = 0; k < size; ++k) visit(p.elements, n * size + k, l.elements.bits, word + k);
            for (std::size_t k = 0; k < scales; ++k) visit(p.scales, n * scales + k, l.scales.bits, word + size + k);
            for (std::size_t k = 0; k < shifts; ++k) visit(p.shifts, n * shifts + k, l.shifts.bits, word + size + scales + k);
        }
    }
    quantize_options given_;
};

/// Returns the bins of a table that the three functions share.
template <class Bins>
covered_bins covered_by(const std::shared_ptr<Bins>& bins, std::function<void(const hex_row&)> add,
                        std::function<hex_row(std::size_t)> stimulus) {
    const auto all = [bins]() -> const std::vector<compare::bin>& { return bins->bins(); };
    return {std::move(add), all, std::move(stimulus)};
}

/// Values that a converter is given, as words of float32, float16 or bfloat16.
class converter_kind : public case_kind {
  public:
    explicit converter_kind(const stream_options& given) : format_(given) {
        input_ = input_format_of(given.input);
        operands.assign(format_.size, input_ == fp32 ? 32 : 16);
        results = format_.codes;
    }
    void generate(const std::string& level, std::uint64_t seed, const std::function<void(const hex_row&)>& take) const override {
        if (level == "exhaustive") return every_word(take);
        const conversion c = format_.conversion_of(1);
        give(compare::converter_cases(c, seed), take);
        for (std::uint64_t more = 1; more <= 8 && level == "2"; ++more) {
            give(compare::converter_cases(c, seed + more), take);
            std::vector<float> any;
            for (std::uint64_t k = 0; k < 32768; ++k) any.push_back(std::bit_cast<float>(random_bits(seed + more, k)));
            give(any, take);
        }
    }
    hex_row expected(const hex_row& asked) const override { return format_.codes_of_values(values(asked), before); }
    std::vector<char> wrong(const hex_row& asked, const hex_row& given, const hex_row& right) const override {
        const std::vector<float> device = format_.values_of(given), x = values(asked);
        std::vector<float> y(x.size());
        expected_values(format_.conversion_of(x.size() / format_.size, before), x, y);
        std::vector<char> wrong = wrong_words(*this, given, right, [](std::uint64_t, std::uint64_t) { return true; });
        for (std::size_t i = 0; i < y.size(); ++i) {
            if (!compare::same_value(device[i], y[i])) wrong[i / format_.size] = 1;
        }
        return wrong;
    }
    covered_bins bins() const override {
        auto bins = std::make_shared<compare::converter_bins>(format_.conversion_of(1), input_);
        const auto stimulus = [this, bins](std::size_t k) {
            hex_row w;
            for (const float x : bins->stimulus(k)) w.push_back(compare::input_word(input_, x));
            return w;
        };
        return covered_by(
            bins, [this, bins](const hex_row& asked) { bins->add(values(asked)); }, stimulus);
    }

  private:
    std::vector<float> values(const hex_row& asked) const {
        std::vector<float> x(asked.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto w = static_cast<std::uint32_t>(asked[i]);
            x[i] = input_ == fp32 ? std::bit_cast<float>(w) : value_of(input_, w);
            if (x[i] != x[i] && input_ != fp32)  // with its payload
                x[i] = std::bit_cast<float>((w & 0x8000u) << 16 | 0x7f800000u |
                                            (w & (input_ == fp16 ? 0x3ffu : 0x7fu)) << (input_ == fp16 ? 13 : 16));
        }
        return x;
    }
    void give(std::vector<float> x, const std::function<void(const hex_row&)>& take) const {
        while (x.size() % format_.size != 0) x.push_back(0.0f);
        hex_row w;
        for (const float v : x) w.push_back(compare::input_word(input_, v));
        take(w);
    }
    void every_word(const std::function<void(const hex_row&)>& take) const {
        if (format_.size != 1)
            throw error(fmt::format("--level exhaustive: a block of {} values has no list of all cases; give --level 2", format_.size));
        const std::uint64_t all = std::uint64_t{1} << operands.front();
        for (std::uint64_t from = 0; from < all; from += cases_at_once) {
            hex_row w;
            for (std::uint64_t k = from; k < std::min(all, from + cases_at_once); ++k) w.push_back(k);
            take(w);
        }
    }
    coded format_;
    floating input_ = fp32;
};  // namespace qk::tool

/// Codes that a decoder is given; the values are exact.
class decoder_kind : public case_kind {
  public:
    explicit decoder_kind(const stream_options& given) : format_(given) {
        if (given.input != "fp32") throw error("--input is what a converter is given; leave it out with --decode");
        if (format_.elements.front() > 32) throw error("--decode is for codes of up to 32 bits");
        operands = format_.codes;
        results.assign(format_.size, 32);
    }
    void generate(const std::string& level, std::uint64_t seed, const std::function<void(const hex_row&)>& take) const override {
        const int bits = operands.front();
        if (bits > 16 && level == "exhaustive") throw error("--level exhaustive: codes of more than 16 bits are too many; give --level 2");
        const compare::coded_values corners = compare::decoder_corners(format_.conversion_of(1));
        for (std::size_t n = 0; n < corners.elements.size() / format_.size; ++n) take(words_of(corners, n));
        if (level != "2" || (format_.size == 1 && bits <= 16)) return;  // every code was there
        std::uint64_t drawn = 0;                                        // as many cases at random
        for (std::size_t n = 0; n < corners.elements.size() / format_.size; ++n) {
            hex_row w;
            for (const int width : operands) w.push_back(random_bits(seed, drawn++) & low_bits(width));
            take(w);
        }
    }
    hex_row expected(const hex_row& asked) const override {
        hex_row w;
        for (const float v : format_.values_of(asked)) w.push_back(std::bit_cast<std::uint32_t>(v));
        return w;
    }
    std::vector<char> wrong(const hex_row&, const hex_row& given, const hex_row& right) const override {
        return wrong_words(*this, given, right, same_float);
    }
    covered_bins bins() const override {
        auto bins = std::make_shared<compare::decoder_bins>(format_.conversion_of(1));
        const auto stimulus = [this, bins](std::size_t k) { return words_of(bins->stimulus(k), 0); };
        return covered_by(
            bins, [this, bins](const hex_row& asked) { bins->add(format_.parted_codes(asked)); }, stimulus);
    }

  private:
    /// Returns the words of case n.
    hex_row words_of(const compare::coded_values& codes, std::size_t n) const {
        hex_row w;
        const std::size_t cases = codes.elements.size() / format_.size;
        for (const auto* part : {&codes.elements, &codes.scales, &codes.shifts}) {
            const std::size_t each = part->size() / cases;
            w.insert(w.end(), part->begin() + static_cast<std::ptrdiff_t>(n * each),
                     part->begin() + static_cast<std::ptrdiff_t>((n + 1) * each));
        }
        return w;
    }
    coded format_;
};

/// All pairs of codes of two narrow formats. Products of such floats are exact in float32, with the signs and special values of IEEE 754.
class product_kind : public case_kind {
  public:
    explicit product_kind(const stream_options& given) : a_(format_of(given.how)), b_(parsed_format(given.pairs, "--pairs: ")) {
        for (const qk::format& f : {a_, b_}) {
            const auto* g = std::get_if<floating>(&f);
            const bool fits = (g != nullptr && bits(*g) <= 8 && *g != e8m0) || (is_integer_format(f) && width_of(f) <= 8);
            if (!fits) throw error(fmt::format("--pairs multiplies floats and integers of up to 8 bits; {} is none", to_text(f).view()));
        }
        if (is_integer_format(a_) != is_integer_format(b_)) throw error("--pairs: an integer is multiplied with an integer");
        operands = {width_of(a_), width_of(b_)};
        results = {32};
    }
    void generate(const std::string&, std::uint64_t, const std::function<void(const hex_row&)>& take) const override {
        for (std::uint64_t a = 0; a < std::uint64_t{1} << operands[0]; ++a) {
            hex_row w;
            for (std::uint64_t b = 0; b < std::uint64_t{1} << operands[1]; ++b) w.insert(w.end(), {a, b});
            take(w);
        }
    }
    hex_row expected(const hex_row& asked) const override {
        hex_row w;
        for (std::size_t i = 0; i < asked.size(); i += 2) {
            const double product = value(a_, asked[i]) * value(b_, asked[i + 1]);
            w.push_back(is_integer_format(a_) ? static_cast<std::uint32_t>(static_cast<std::int32_t>(product))
                                              : std::bit_cast<std::uint32_t>(static_cast<float>(product)));
        }
        return w;
    }
    std::vector<char> wrong(const hex_row&, const hex_row& given, const hex_row& right) const override {
        if (is_integer_format(a_)) return wrong_words(*this, given, right, std::equal_to<std::uint64_t>());
        return wrong_words(*this, given, right, same_float);
    }
    covered_bins bins() const override {
        auto table = std::make_shared<compare::bin_table>();
        const auto count = [table](const hex_row& asked) {
            for (std::size_t i = 0; i < asked.size(); i += 2)
                table->hit(compare::bin_kind::pair, static_cast<int>(asked[i]), static_cast<int>(asked[i + 1]));
        };
        generate("1", 0, count);
        table->freeze();
        const auto stimulus = [table](std::size_t k) {
            const compare::bin& b = table->bins()[k];
            return hex_row{static_cast<std::uint64_t>(b.a), static_cast<std::uint64_t>(b.b)};
        };
        return covered_by(table, count, stimulus);
    }

  private:
    static double value(const qk::format& f, std::uint64_t code) {
        if (const auto* g = std::get_if<floating>(&f)) return static_cast<double>(value_of(*g, static_cast<std::uint32_t>(code)));
        const int width = width_of(f);
        const bool negative = std::get<integer>(f).is_signed && (code >> (width - 1) & 1u) != 0;
        return static_cast<double>(static_cast<std::int64_t>(code) - (negative ? std::int64_t{1} << width : 0));
    }
    qk::format a_, b_;
};

/// Sums of products of a device of the catalogue, k twice that of one instruction, or of an accumulator: a row of a, a column of b, and c,
/// unless the unit adds none.
class device_kind : public case_kind {
  public:
    explicit device_kind(const stream_options& given)
        : by_(multiplier_of(given.device, given.accumulator, given.a_format, given.b_format)), k_(terms_of(given, by_)) {
        task_ = {.a = by_.a,
                 .b = by_.b,
                 .k = k_,
                 .c = by_.how.addend,
                 .has_c = given.c_format != "none",
                 .float_sum = by_.how.sum != summation::integer,
                 .d_bits = result_bits(by_.how)};
        for (const qk::format& f : {by_.a, by_.b}) {
            operands.insert(operands.end(), k_, width_of(f));
            if (is_block_format(f)) operands.insert(operands.end(), blocks_of(f, k_), scale_width(f));
        }
        if (task_.has_c) operands.push_back(addend_bits(by_.how));
        results = {result_bits(by_.how)};
    }
    void generate(const std::string& level, std::uint64_t seed, const std::function<void(const hex_row&)>& take) const override {
        if (level == "exhaustive") throw error("--level exhaustive: sums have too many cases; give --level 2");
        for (const compare::dot_case& c : compare::dot_corners(task_, compare::kept_bits(by_.how))) {
            hex_row w;
            for (std::size_t q = 0; q < c.c.size(); ++q) {
                const hex_row one = words_of(compare::question_of(c, q));
                w.insert(w.end(), one.begin(), one.end());
            }
            take(w);
        }
        const std::size_t n = level == "2" ? 128 : 32;
        compare::dot_case random = questions_of(make_case(by_, n, n, k_, seed), n);
        if (!task_.has_c) std::ranges::fill(random.c, no_addend(task_));
        for (std::size_t q = 0; q < n * n; ++q) take(words_of(compare::question_of(random, q)));
    }
    hex_row expected(const hex_row& asked) const override {
        hex_row d;
        for (std::size_t at = 0; at < asked.size(); at += operands.size()) {
            const compare::dot_case q = question_at(asked, at);
            const dot_case problem{q.shape, packed_operand(by_.a, q.a, q.scale_a), packed_operand(by_.b, q.b, q.scale_b), q.c, {}};
            d.push_back(multiply(problem, by_).front() & mask(results.front()));
        }
        return d;
    }
    std::vector<char> wrong(const hex_row&, const hex_row& given, const hex_row& right) const override {
        return wrong_words(*this, given, right, [this](std::uint64_t a, std::uint64_t b) { return same_result(by_.how, a, b); });
    }
    covered_bins bins() const override {
        auto bins = std::make_shared<compare::dot_bins>(task_, by_.how);
        const auto add = [this, bins](const hex_row& asked) {
            for (std::size_t at = 0; at < asked.size(); at += operands.size()) bins->add(question_at(asked, at));
        };
        return covered_by(bins, add, [this, bins](std::size_t k) { return words_of(bins->stimulus(k)); });
    }

  private:
    static std::uint64_t mask(int bits) { return bits >= 64 ? no_number : (std::uint64_t{1} << bits) - 1; }
    hex_row words_of(const compare::dot_case& q) const {
        hex_row w;
        for (const auto* part : {&q.a, &q.scale_a, &q.b, &q.scale_b}) w.insert(w.end(), part->begin(), part->end());
        if (task_.has_c) w.push_back(q.c.front() & mask(operands.back()));
        return w;
    }
    compare::dot_case question_at(const hex_row& asked, std::size_t at) const {
        compare::dot_case q{{1, 1, k_}, {}, {}, {}, {}, {}};
        auto from = asked.begin() + static_cast<std::ptrdiff_t>(at);
        const auto part = [&from](std::vector<std::uint64_t>& to, std::size_t n) {
            to.assign(from, from + static_cast<std::ptrdiff_t>(n));
            from += static_cast<std::ptrdiff_t>(n);
        };
        part(q.a, k_), part(q.scale_a, is_block_format(by_.a) ? blocks_of(by_.a, k_) : 0);
        part(q.b, k_), part(q.scale_b, is_block_format(by_.b) ? blocks_of(by_.b, k_) : 0);
        const bool wholes = by_.how.sum == summation::integer && operands.back() == 32;
        if (!task_.has_c) q.c = {no_addend(task_)};
        else q.c = {wholes ? static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(*from)}) : *from};
        return q;
    }
    /// Returns the arrays of a case that make_case made, n rows and columns.
    compare::dot_case questions_of(const std::vector<graph::named_tensor>& arrays, std::size_t n) const {
        const auto array = [&](const std::string& of, int bits) { return codes_of(*find_array(arrays, of), of, bits); };
        const int wa = width_of(by_.a), wb = width_of(by_.b);
        compare::dot_case q{{n, n, k_}, array("a", wa == 4 ? 8 : wa), array("b", wb == 4 ? 8 : wb), array("c", addend_bits(by_.how)), {},
                            {}};
        if (wa == 4) q.a = parted(q.a, n, k_ / 2, 1);
        if (wb == 4) q.b = parted(q.b, 1, k_ / 2, n);
        if (is_block_format(by_.a)) q.scale_a = array("scale_a", 8);
        if (is_block_format(by_.b)) q.scale_b = array("scale_b", 8);
        return q;
    }
    multiplier by_;
    std::size_t k_;
    compare::dot_task task_;
};

}  // namespace

std::size_t terms_of(const stream_options& given, const multiplier& by) {
    std::size_t k = given.k;
    if (k == 0) k = given.device.empty() ? 32 : 2 * static_cast<std::size_t>(find_device(given.device)->k);
    for (const qk::format& f : {by.a, by.b}) {
        if (std::holds_alternative<microexponent>(f)) throw error("microexponents have shifts, which no line of products holds");
        const auto unit = static_cast<std::size_t>(is_block_format(f) ? block_size(f) : width_of(f) == 4 ? 2 : 1);
        if (k % unit != 0)
            throw error(fmt::format("--k {}: it must be a multiple of {}, what a block or a byte of {} holds", k, unit, to_text(f).view()));
    }
    if (k > 4096) throw error(fmt::format("--k {}: it must be 1 to 4096", k));
    return k;
}

std::unique_ptr<case_kind> case_kind_of(const stream_options& given) {
    const bool sums = !given.device.empty() || !given.accumulator.empty();
    if (given.how.format.empty() && !sums)
        throw error("say what is checked: FORMAT, --device NAME or --accumulator TEXT; `qk formats` lists formats and devices");
    if (int{given.decode} + int{!given.pairs.empty()} + int{sums} > 1)
        throw error("--decode, --pairs, --device and --accumulator exclude each other");
    std::unique_ptr<case_kind> kind;
    if (sums) kind = std::make_unique<device_kind>(given);
    else if (!given.pairs.empty()) kind = std::make_unique<product_kind>(given);
    else if (given.decode) kind = std::make_unique<decoder_kind>(given);
    else kind = std::make_unique<converter_kind>(given);
    kind->name = !given.device.empty() ? given.device : sums ? "this accumulator" : given.how.format;
    return kind;
}

floating input_format_of(const std::string& input) {
    if (input != "fp32" && input != "fp16" && input != "bf16") throw error("--input is fp32, fp16 or bf16, not '" + input + "'");
    return input == "fp32" ? fp32 : input == "fp16" ? fp16 : bf16;
}

std::pair<conversion, compare::coded_values> coded_values_of(const quantize_options& given, const hex_row& words, const std::string& file) {
    stream_options what;
    what.how = given;
    const coded format(what);
    if (words.empty() || words.size() % format.codes.size() != 0)
        throw error(fmt::format("{} has {} words; a case of {} has {} codes", file, words.size(), given.format, format.codes.size()));
    for (std::size_t k = 0; k < words.size(); ++k) {
        const int width = format.codes[k % format.codes.size()];
        if (!is_code(words[k], width)) throw error(fmt::format("{}: word {} is no code of {} bits", file, k + 1, width));
    }
    return {format.conversion_of(words.size() / format.codes.size()), format.parted_codes(words)};
}

void add_sum_options(option_table& verb, stream_options& given) {
    verb.add_option("--device", given.device, "cases of a unit that multiplies and adds (`qk formats --devices`), d out")
        .type_name("NAME")
        .common();
    verb.add_option("--accumulator", given.accumulator,
                    "cases of a unit that is no device of the list: the text of its sum (`qk dot --help`)")
        .type_name("TEXT")
        .common();
    verb.only_for(input_kind::device);
    verb.add_option("--a-format", given.a_format, "of --accumulator: the format of a; in place of a device's").type_name("F");
    verb.add_option("--b-format", given.b_format, "of --accumulator: the format of b").type_name("F");
    verb.add_option("--k", given.k, "terms of a sum (default 32; of a device twice those of one instruction); 1 is one multiply and add")
        .type_name("N")
        .at_least(1);
    verb.only_for({});
}
void add_c_option(option_table& verb, stream_options& given) {
    verb.add_option("--c-format", given.c_format, "none: the unit adds no C, and its cases have none")
        .one_of({"none"})
        .only_for(input_kind::device);
}

option& add_stream_options(option_table& verb, stream_options& given) {
    using enum input_kind;
    verb.takes(format | decoder | pairs | device, [&given]() -> given_input {
        if (!given.device.empty()) return {device, "--device names a device, which has formats of its own"};
        if (!given.accumulator.empty()) return {device, "--accumulator multiplies --a-format and --b-format"};
        if (!given.pairs.empty()) return {pairs, "--pairs multiplies codes"};
        return given.decode ? given_input{decoder, "--decode is for a decoder"}
                            : given_input{format, "without --decode this is a converter"};
    });
    option& what = verb.add_option("FORMAT", given.how.format, "what a converter converts to (`qk formats` lists them)")
                       .type_name("F")
                       .only_for(format | decoder | pairs);
    verb.add_option("--level", given.level,
                    "of gen: 1 (default): what tells mistakes apart; 2: with more at random; exhaustive: every word")
        .one_of({"1", "2", "exhaustive"})
        .common()
        .only_for(format | decoder | device, "every pair is given; leave it out");
    verb.add_flag("--decode", given.decode, "cases of a decoder: codes in, float32 out").common();
    verb.add_option("--pairs", given.pairs, "cases of a multiplier: every pair of codes of FORMAT and of this one, their product out")
        .type_name("F")
        .common();
    add_sum_options(verb, given);
    add_c_option(verb, given);
    verb.only_for(format | decoder);
    verb.add_option("--input", given.input, "what a converter is given: fp32 (default), fp16 or bf16").type_name("F");
    verb.add_option("--scale", given.how.scale, "one scale for all values (default 1)").type_name("X");
    verb.add_option("--zero-point", given.how.zero_point, "one zero point for all values (default 0)").type_name("N");
    add_format_options(verb, given.how);
    verb.at("--format").also_for(pairs);
    verb.at("--seed").also_for(device);
    verb.only_for({});
    return what;
}

}  // namespace qk::tool
