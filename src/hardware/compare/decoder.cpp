// SPDX-License-Identifier: Apache-2.0
// Explains a decoder's differences: it adds the mistake that leaves fewest values wrong, everywhere or in a region, up to four; where none
// leads on, it tries pairs. What explains four fifths of the differences and makes none is a cause.
#include "qk/compare/decoder.hpp"

#include <algorithm>
#include <numeric>

#include "decoder_model.hpp"
#include "diagnose.hpp"
#include "qk/codec.hpp"
#include "qk/formats/codes/code.hpp"

namespace qk::compare {

std::vector<float> decoded(const conversion& c, const coded_values& codes) {
    const packed_layout l = layout_of(c, codes.elements.size());
    std::vector<std::byte> bytes(l.bytes());
    const planes to = planes_of(l, std::span(bytes));
    const auto put = [](std::span<std::byte> plane, int width, const std::vector<std::uint32_t>& from) {
        for (std::size_t k = 0; k < from.size(); ++k) put_code(plane, k, width, from[k] & low_bits(width));
    };
    put(to.elements, l.elements.bits, codes.elements);
    put(to.scales, l.scales.bits, codes.scales);
    put(to.shifts, l.shifts.bits, codes.shifts);
    const auto tensor = std::bit_cast<std::uint32_t>(c.one().scale);
    for (std::size_t k = 0; k < to.tensor.size() && k < 4; ++k) to.tensor[k] = static_cast<std::byte>(tensor >> (8 * k) & 255u);
    std::vector<float> y(codes.elements.size());
    qk::decode(c.format, std::span<const std::byte>(bytes), y, parameters_of(c));
    return y;
}

namespace {

constexpr std::size_t most_mistakes = 4, pairs_look_at = 1024;

struct planted {
    std::size_t mistake;
    region where;
};

class decoder_search {
  public:
    decoder_search(const problem& p, const properties& all, const decoder_model& model, const std::vector<decoder_mistake>& known)
        : p_(p), all_(all), model_(model), known_(known), modelled_(p.x.size(), 1) {
        for (std::size_t i = 0; i < p.x.size(); ++i) modelled_[i] = same_value(model.value(i, {}), p.expected[i]);
    }

    /// Returns the values among `at` that a decoder with these mistakes gives as the device does.
    value_set right(const std::vector<planted>& set, std::span<const std::size_t> at) const {
        value_set r(at.size());
        decoder_rules everywhere;
        std::vector<std::pair<const decoder_mistake*, value_set>> somewhere;
        for (const planted& m : set) {
            if (m.where.properties.empty()) known_[m.mistake].plant(everywhere);
            else somewhere.emplace_back(&known_[m.mistake], all_.values(m.where));
        }
        for (std::size_t k = 0; k < at.size(); ++k) {
            const std::size_t i = at[k];
            float y = p_.expected[i];
            if (modelled_[i] != 0) {
                decoder_rules here = everywhere;
                for (const auto& [m, values] : somewhere) {
                    if (values.contains(i)) m->plant(here);
                }
                y = model_.value(i, here);
            }
            if (same_value(y, p_.device[i])) r.insert(k);
        }
        return r;
    }
    /// Adds the mistake, in a region or not, that leaves fewest values wrong; returns false if none helps.
    bool add_best(std::vector<planted>& set, std::span<const std::size_t> at, bool other_formats = true) const {
        const value_set before = right(set, at);
        std::size_t best = before.count();
        std::vector<planted> found;
        for (std::size_t m = 0; m < known_.size(); ++m) {
            if (excluded(set, m) || (known_[m].other_format && !other_formats)) continue;
            std::vector<planted> more = set;
            more.push_back({m, {}});
            const value_set now = right(more, at), gained = now.without(before), lost = before.without(now);
            if (gained.count() == 0) continue;
            std::size_t worth = now.count();
            if (lost.count() != 0 && at.size() == all_.count() && !known_[m].everywhere) {
                more.back().where = all_.separate(gained, lost, 4);
                if (!more.back().where.properties.empty()) worth = right(more, at).count();
            }
            const bool simpler =
                worth == best && !found.empty() && more.back().where.properties.size() < found.back().where.properties.size();
            if (worth > best || simpler) best = worth, found = std::move(more);
        }
        if (found.empty()) return false;
        set = std::move(found);
        return true;
    }
    /// Returns the best pair of mistakes, made everywhere.
    std::vector<planted> best_pair(std::span<const std::size_t> at) const {
        std::vector<planted> found;
        std::size_t best = right({}, at).count();
        for (std::size_t a = 0; a < known_.size(); ++a) {
            for (std::size_t b = a + 1; b < known_.size(); ++b) {
                if (known_[a].about == known_[b].about && known_[a].about != known_.back().about) continue;
                const std::vector<planted> pair{{a, {}}, {b, {}}};
                if (const std::size_t n = right(pair, at).count(); n > best) best = n, found = pair;
            }
        }
        return found;
    }
    const std::string& sentence(std::size_t m) const { return known_[m].sentence; }
    std::size_t count() const { return known_.size(); }

  private:
    bool excluded(const std::vector<planted>& set, std::size_t m) const {
        return std::any_of(set.begin(), set.end(), [&](const planted& k) {
            return k.mistake == m || (known_[k.mistake].about == known_[m].about && known_[m].about != known_.back().about);
        });
    }
    const problem& p_;
    const properties& all_;
    const decoder_model& model_;
    const std::vector<decoder_mistake>& known_;
    std::vector<char> modelled_;
};

class decoder_court {
  public:
    decoder_court(const problem& p, const properties& all, const value_set& differ, const decoder_search& search)
        : all_(all), differ_(differ), search_(search), everything_(p.x.size()) {
        std::iota(everything_.begin(), everything_.end(), std::size_t{0});
    }
    void judge(report& r) const {
        r.where = describe(all_, differ_);
        std::vector<planted> set = descended(false), other = descended(true);
        const std::size_t here = right(set).count(), there = right(other).count();
        if (there > here || (there == here && other.size() < set.size())) set = std::move(other);
        if (!acceptable(set)) set = from_pair();
        r.unexplained = r.mismatches;
        if (!acceptable(set)) return find_nearest(r);
        const value_set given = right(set);
        for (std::size_t k = 0; k < set.size();) {  // a mistake that explains nothing beside the others is none
            std::vector<planted> others = set;
            others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
            if (right(others).count() < given.count()) ++k;
            else set = others;
        }
        r.unexplained = everything_.size() - given.count();
        for (std::size_t k = 0; k < set.size(); ++k) r.causes.push_back(cause_of(set, k));
        std::stable_sort(r.causes.begin(), r.causes.end(), [](const cause& a, const cause& b) { return a.explains > b.explains; });
        if (set.size() != 1 || !set.front().where.properties.empty()) return;
        for (std::size_t m = 0; m < search_.count(); ++m) {
            if (m != set.front().mistake && right({{m, {}}}).count() == everything_.size()) r.alternatives.push_back(search_.sentence(m));
        }
    }

  private:
    value_set right(const std::vector<planted>& set) const { return search_.right(set, everything_); }
    bool acceptable(const std::vector<planted>& set) const {
        if (set.empty()) return false;
        const value_set given = right(set);
        const std::size_t explained = given.count_with(differ_), agreed = everything_.size() - differ_.count();
        return 5 * explained >= 4 * differ_.count() && given.count() - explained == agreed;
    }
    std::vector<planted> descended(bool other_formats) const {
        std::vector<planted> set;
        while (set.size() < most_mistakes && right(set).count() != everything_.size() &&
               search_.add_best(set, everything_, other_formats)) {
        }
        return set;
    }
    std::vector<planted> from_pair() const {
        std::vector<std::size_t> at;
        const std::size_t n = everything_.size(), step = std::max<std::size_t>(1, n / pairs_look_at);
        for (std::size_t i = 0; i < n; i += step) at.push_back(i);
        std::vector<planted> set = search_.best_pair(at);
        while (!set.empty() && set.size() < most_mistakes && right(set).count() != n && search_.add_best(set, everything_)) {
        }
        return set;
    }
    cause cause_of(const std::vector<planted>& set, std::size_t k) const {
        std::vector<planted> others = set;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
        const value_set given = right(set).without(right(others)), explained = given & differ_;
        cause c{.sentence = search_.sentence(set[k].mistake),
                .where = {},
                .restricted = !set[k].where.properties.empty(),
                .explains = explained.count(),
                .keeps = given.count() - explained.count(),
                .alone = right({set[k]}).count_with(differ_)};
        c.where = location_of(all_, c.restricted ? set[k].where : all_.describe(explained, 0.5), explained);
        return c;
    }
    void find_nearest(report& r) const {
        for (std::size_t m = 0; m < search_.count(); ++m) {
            const value_set given = right({{m, {}}});
            const std::size_t explains = given.count_with(differ_),
                              makes = everything_.size() - differ_.count() - (given.count() - explains);
            if (explains <= makes || (r.nearest && explains - makes <= r.nearest->explains - r.nearest->makes)) continue;
            const value_set explained = given & differ_;
            r.nearest = cause{.sentence = search_.sentence(m),
                              .where = location_of(all_, all_.describe(explained, 0.5), explained),
                              .explains = explains,
                              .alone = explains,
                              .makes = makes};
        }
    }
    const properties& all_;
    const value_set& differ_;
    const decoder_search& search_;
    std::vector<std::size_t> everything_;
};

}  // namespace

report examine_decoder(const conversion& c, const coded_values& codes, std::span<const float> device) {
    const std::vector<float> expected = decoded(c, codes);
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(c.blocks.outer), static_cast<std::int64_t>(c.blocks.length)};
    const problem p{c, shape, expected, expected, device};
    const decoder_model model(c, codes);
    std::vector<float> unit(expected.size());
    for (std::size_t i = 0; i < unit.size(); ++i) unit[i] = model.unit(i);
    report r = classified(p, expected, expected, unit);
    for (difference_class& k : r.classes) {
        for (example& e : k.examples) e.expected_code = model.code_text(e.index), e.device_code.clear();
    }
    if (r.mismatches == 0) return r;
    const value_set differ = differing(p);
    const properties all(p, unit);
    const std::vector<decoder_mistake> known = decoder_mistakes(p);
    const decoder_search search(p, all, model, known);
    decoder_court(p, all, differ, search).judge(r);
    return r;
}

}  // namespace qk::compare
