// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/quantize/collect_requests.hpp"
#include "graph/search/options.hpp"
#include "qk/graph/quantize/remarks.hpp"

namespace qk::graph {
namespace detail {

inline constexpr std::size_t most_options = 36;  // one digit each in the lines of a cache

class option_builder {
  public:
    explicit option_builder(const mix_options& options) {
        list_.texts = {options.wide};
        list_.pairs = {parse_format_pair(options.wide)};
        std::vector<std::string> narrow;
        for (const std::string& n : options.narrow)
            for (std::string& one : each_choice(n)) narrow.push_back(std::move(one));
        if (narrow.empty() && options.choices.empty()) throw error("--narrow needs at least one ACTIVATION/WEIGHT");
        for (const choice_request& r : options.choices)
            if (r.scope == scope::everything) general_ = instead_of(narrow, r);
        if (general_.empty())
            for (const std::string& n : narrow) general_.push_back({n, parse_format_pair(n)});
        for (const named_pair& p : general_) list_.general.push_back(number_of(p));
        for (const choice_request& r : options.choices) {
            list_.by_request.emplace_back();
            for (const named_pair& p : pairs_of(r)) list_.by_request.back().push_back(number_of(p));
        }
        for (std::size_t i = 0; options.narrow_rounding && i < list_.pairs.size(); ++i)
            if (format_pair& p = list_.pairs[i]; p.rounding == weight_rounding::nearest && bits_per_value(p.weight.format) < 8 &&
                                                 list_.texts[i].find("@nearest") == std::string::npos)
                p.rounding = *options.narrow_rounding;
    }
    option_list take() { return std::move(list_); }

  private:
    struct named_pair {
        std::string text;
        format_pair pair;
    };

    /// Returns the distinct choices for one side of `pairs`: a request that leaves out a side takes that of --narrow.
    static std::vector<side_choice> sides_of(const std::vector<std::string>& pairs, bool weight) {
        std::vector<side_choice> sides;
        for (const std::string& p : pairs) {
            const std::size_t slash = p.find('/');
            side_choice side = parse_side_choice(weight ? p.substr(slash + 1) : p.substr(0, slash), weight);
            const bool known = std::any_of(sides.begin(), sides.end(), [&](const side_choice& s) { return s.text == side.text; });
            if (!known) sides.push_back(std::move(side));
        }
        return sides;
    }

    static std::vector<named_pair> cross(const std::vector<side_choice>& activations, const std::vector<side_choice>& weights) {
        std::vector<named_pair> all;
        for (const side_choice& a : activations)
            for (const side_choice& w : weights) {
                if (w.rounding == weight_rounding::adaquant)
                    throw error(
                        "adaquant changes scales and biases as well, which a search leaves as they are: say nearest, compensated or "
                        "adaround, or give it to `qk quantize` with what was found");
                all.push_back({a.text + "/" + w.text, {a.what, w.what, w.rounding}});
            }
        return all;
    }

    /// Returns the choices of a request for layers that would otherwise have those of `narrow`.
    static std::vector<named_pair> instead_of(const std::vector<std::string>& narrow, const choice_request& r) {
        return cross(r.activation.empty() ? sides_of(narrow, false) : r.activation, r.weight.empty() ? sides_of(narrow, true) : r.weight);
    }

    static format_pair pair_of(const choice_request& r, const std::string& text) {
        try {
            return parse_format_pair(text);
        } catch (const error& e) {
            throw error(r.origin + ": " + e.what());
        }
    }

    std::vector<named_pair> pairs_of(const choice_request& r) const {
        if (r.scope == scope::everything) return general_;
        std::vector<named_pair> all;
        for (const std::string& p : r.pairs) all.push_back({p, pair_of(r, p)});
        if (!r.pairs.empty()) return all;
        std::vector<std::string> texts;
        for (const named_pair& p : general_) texts.push_back(p.text);
        return instead_of(texts, r);
    }

    /// Returns the index of a pair in the list and adds it if it is new. Different pairs with the same text get a number behind the text.
    std::size_t number_of(const named_pair& p) {
        std::string text = p.text;
        for (std::size_t i = 1, again = 2; i < list_.texts.size(); ++i) {
            if (list_.texts[i] != text) continue;
            if (list_.pairs[i] == p.pair) return i;
            text = p.text + " (" + std::to_string(again++) + ")";
            i = 0;
        }
        if (list_.texts.size() == most_options)
            throw error("a search takes at most " + std::to_string(most_options - 1) +
                        " choices of formats and how they are used, and these lists multiply to more: shorten one, or give layers lists "
                        "of their own");
        list_.texts.push_back(std::move(text));
        list_.pairs.push_back(p.pair);
        return list_.texts.size() - 1;
    }

    option_list list_;
    std::vector<named_pair> general_;
};

}  // namespace detail

format_pair parse_format_pair(const std::string& text) {
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) throw error("'" + text + "' must be ACTIVATION/WEIGHT, as in int8/int8");
    const side_choice activation = parse_side_choice(text.substr(0, slash), false),
                      weight = parse_side_choice(text.substr(slash + 1), true);
    return {activation.what, weight.what, weight.rounding};
}

option_list list_options(const mix_options& options) { return detail::option_builder(options).take(); }

std::vector<std::vector<bool>> offered_options(const option_list& all, const layer_view& layers, const std::vector<std::string>& searched,
                                               const std::vector<choice_request>& choices, std::vector<std::string>& remarks) {
    // Finds the layers by the same rules as requests for a plan.
    std::vector<request> requests;
    for (const choice_request& c : choices)
        requests.push_back({.scope = c.scope, .role = role::weight, .name = c.name, .origin = c.origin, .beside = c.beside});
    const detail::wishes found = detail::request_collector(layers, placement::layers).collect(requests);
    for (const plan_note& n : found.notes) {
        if (n.what == plan_note::kind::unmatched) throw error(n.origin + ": " + n.subject + ": " + n.text);
        if (n.what == plan_note::kind::renamed || n.what == plan_note::kind::absent) remarks.push_back(remark_line(n));
    }
    std::map<std::string, std::size_t> request_of;
    for (std::size_t r = 0; r < choices.size(); ++r) {
        const auto nodes = found.matched.find(static_cast<int>(r));
        bool any = choices[r].scope == scope::everything;
        for (const int n : nodes == found.matched.end() ? std::vector<int>{} : nodes->second) {
            const std::string& name = layers.source().graph().node(n).name();
            if (std::find(searched.begin(), searched.end(), name) == searched.end()) continue;
            request_of[name] = r;
            any = true;
        }
        if (!any) remarks.push_back(std::string(warning_mark) + choices[r].origin + ": its choices are for no layer that is searched");
    }
    std::vector<std::vector<bool>> offered;
    for (const std::string& layer : searched) {
        std::vector<bool>& row = offered.emplace_back(all.texts.size(), false);
        row[0] = true;
        const auto own = request_of.find(layer);
        for (const std::size_t o : own == request_of.end() ? all.general : all.by_request[own->second]) row[o] = true;
    }
    return offered;
}

}  // namespace qk::graph
