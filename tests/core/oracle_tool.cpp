// SPDX-License-Identifier: Apache-2.0
// Runs the oracle for scripts: reads and writes raw little-endian words.
//
//   oracle_tool values FORMAT                 the float32 value of every code of a floating format, in order
//   oracle_tool codes FORMAT SEMANTICS        float32 on standard input -> a uint32 code each
//   oracle_tool quantize FORMAT SEMANTICS     float32 on standard input -> float32
//   oracle_tool numbers FORMAT                four int32 for every code of a floating format: kind (0 number, 1 NaN, 2 Inf), sign, digits,
//                                             exponent
//   oracle_tool project FORMAT ROUNDING OVERFLOW [BITS WORD]    float64 on standard input -> a uint32 code each
#include <cstdio>
#include <string>
#include <vector>

#include "qk/formats/number.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/reference/codes.hpp"

using namespace qk;

namespace {

template <class T>
std::vector<T> read() {
    std::vector<T> x(1 << 16);
    std::size_t count = 0;
    while (const std::size_t got = std::fread(&x[count], sizeof(T), x.size() - count, stdin)) {
        count += got;
        if (count == x.size()) x.resize(2 * count);
    }
    x.resize(count);
    return x;
}

template <class T>
void write(const std::vector<T>& words) {
    static_assert(sizeof(T) == 4);
    std::fwrite(words.data(), 4, words.size(), stdout);
}

/// Rounds doubles to a floating format, by the function that rounds float32, too.
int project(floating f, int argc, char** argv) {
    semantics how;
    how.rounding = parse_rounding(argv[3]).value;
    how.overflow = parse_overflow(argv[4]).value;
    std::uint32_t word = 0;
    if (argc == 7) how.stochastic_bits = std::stoi(argv[5]), word = static_cast<std::uint32_t>(std::stoul(argv[6]));
    std::vector<std::uint32_t> codes;
    for (const double x : read<double>()) codes.push_back(reference::code_of(f, reference::to_grid(f, x, how, word)));
    write(codes);
    return 0;
}

int numbers(floating f) {
    std::vector<std::int32_t> all;
    for (std::uint32_t code = 0; code < 1u << bits(f); ++code) {
        const code_number n = number_of(f, code);
        all.insert(all.end(), {n.nan ? 1 : n.infinite ? 2 : 0, n.negative, static_cast<std::int32_t>(n.digits), n.exponent});
    }
    write(all);
    return 0;
}

int run(const std::string& verb, const format& f, const semantics& how) {
    if (verb == "quantize") {
        const std::vector<float> x = read<float>();
        std::vector<float> y(x.size());
        reference::fake_quantize(f, x, y, how);
        write(y);
        return 0;
    }
    const floating* g = std::get_if<floating>(&f);
    if (g == nullptr || *g == fp32) return 2;
    if (verb == "values") {
        std::vector<float> values;
        for (std::uint32_t code = 0; code < 1u << bits(*g); ++code) values.push_back(reference::value_of(*g, code));
        write(values);
        return 0;
    }
    if (verb == "codes") {
        const std::vector<float> x = read<float>();
        std::vector<std::uint32_t> codes(x.size());
        reference::encode(f, x, {codes, {}, {}}, along_axis{}, affine{}, how);
        write(codes);
        return 0;
    }
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    const parsed<format> f = parse_format(argc > 2 ? argv[2] : "");
    const std::string verb = argc > 1 ? argv[1] : "";
    const floating* g = f ? std::get_if<floating>(&f.value) : nullptr;
    if (g != nullptr && verb == "numbers") return numbers(*g);
    if (g != nullptr && verb == "project" && (argc == 5 || argc == 7)) return project(*g, argc, argv);
    const parsed<semantics> how = parse_semantics(argc > 3 ? argv[3] : "ocp");
    const int status = !f || !how ? 2 : run(verb, *f, *how);
    if (status == 2)
        std::fputs(
            "usage: oracle_tool values|codes|quantize FORMAT [SEMANTICS], numbers FORMAT, project FORMAT ROUNDING OVERFLOW [BITS WORD]\n",
            stderr);
    return status;
}
