// SPDX-License-Identifier: Apache-2.0
// qk.h's reports about a converter.
#include "qk/compare/compare.hpp"

#include <memory>

#include "door.hpp"

/// A report of qk::compare, its text, and the texts of its places.
struct qk_report {
    qk::compare::report told;
    std::string text;
    std::vector<std::string> places;  ///< places of the causes, then of the nearest
};

namespace {

using namespace qk::c;

qk_cause cause_of(const qk::compare::cause& k, const std::string& place) {
    return {k.sentence.c_str(), place.c_str(), k.restricted ? 1 : 0, k.explains};
}

/// Compares; `words` are null, or those that the device rounds with.
qk_status compared(const qk_conversion* how, const std::uint32_t* words, const float* x, const float* device, std::size_t n,
                   qk_report** report) {
    return guarded([&] {
        expect_array(report, 1, "report");
        qk::compare::conversion c = conversion_of(how, n);
        if (words != nullptr) take_words(c, words, n);
        expect_array(x, n, "x");
        expect_array(device, n, "device");
        const std::int64_t shape[] = {static_cast<std::int64_t>(c.blocks.outer), static_cast<std::int64_t>(c.blocks.length),
                                      static_cast<std::int64_t>(c.blocks.inner)};
        auto r = std::make_unique<qk_report>();
        r->told = qk::compare::examine(c, shape, {x, n}, {device, n});
        r->text = qk::compare::to_text(r->told);
        for (const qk::compare::cause& k : r->told.causes) r->places.push_back(to_text(k.where));
        if (r->told.nearest) r->places.push_back(to_text(r->told.nearest->where));
        *report = r.release();
    });
}

}  // namespace

extern "C" {

qk_status qk_compare(const qk_conversion* how, const float* x, const float* device, size_t n, qk_report** report) {
    return compared(how, nullptr, x, device, n, report);
}
qk_status qk_compare_random(const qk_conversion* how, const uint32_t* words, const float* x, const float* device, size_t n,
                            qk_report** report) {
    if (words == nullptr) return fail(QK_BAD_ARGUMENT, "words is NULL");
    return compared(how, words, x, device, n, report);
}
uint64_t qk_report_differences(const qk_report* report) { return report == nullptr ? 0 : report->told.mismatches; }
uint64_t qk_report_unexplained(const qk_report* report) { return report == nullptr ? 0 : report->told.unexplained; }
qk_status qk_report_cause(const qk_report* report, size_t index, qk_cause* cause) {
    if (report == nullptr || cause == nullptr) return fail(QK_BAD_ARGUMENT, "report or cause is NULL");
    if (index >= report->told.causes.size())
        return fail(QK_NOTHING, "the report has " + std::to_string(report->told.causes.size()) + " causes");
    *cause = cause_of(report->told.causes[index], report->places[index]);
    return QK_OK;
}
qk_status qk_report_nearest(const qk_report* report, qk_cause* cause) {
    if (report == nullptr || cause == nullptr) return fail(QK_BAD_ARGUMENT, "report or cause is NULL");
    if (!report->told.nearest) return fail(QK_NOTHING, "the report names no nearest mistake");
    *cause = cause_of(*report->told.nearest, report->places.back());
    return QK_OK;
}
const char* qk_report_text(const qk_report* report) { return report == nullptr ? "" : report->text.c_str(); }
void qk_report_free(qk_report* report) { delete report; }

}  // extern "C"
