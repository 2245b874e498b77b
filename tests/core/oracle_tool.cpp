// SPDX-License-Identifier: Apache-2.0
// Runs the oracle for scripts: reads and writes raw little-endian words.
//
//   oracle_tool values FORMAT                 the float32 value of every code of a floating format, in order
//   oracle_tool codes FORMAT SEMANTICS        float32 on standard input -> a uint32 code each
//   oracle_tool quantize FORMAT SEMANTICS     float32 on standard input -> float32
#include <cstdio>
#include <string>
#include <vector>

#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/reference/codes.hpp"

using namespace qk;

namespace {

std::vector<float> read_floats() {
    std::vector<float> x(1 << 16);
    std::size_t count = 0;
    while (const std::size_t got = std::fread(&x[count], 4, x.size() - count, stdin)) {
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

int run(const std::string& verb, const format& f, const semantics& how) {
    if (verb == "quantize") {
        const std::vector<float> x = read_floats();
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
        const std::vector<float> x = read_floats();
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
    const parsed<semantics> how = parse_semantics(argc > 3 ? argv[3] : "ocp");
    const int status = !f || !how ? 2 : run(argv[1], *f, *how);
    if (status == 2) std::fputs("usage: oracle_tool values|codes|quantize FORMAT [SEMANTICS]\n", stderr);
    return status;
}
