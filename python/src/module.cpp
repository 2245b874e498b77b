// SPDX-License-Identifier: Apache-2.0
// The extension module qk._qk: arrays and verbs. Users see the package qk, which is written in Python around it.
#include <string_view>

#include "arrays.hpp"
#include "interpreter_lock.hpp"
#include "qk/dispatch.hpp"
#include "qk/graph/base/error.hpp"

NB_MODULE(_qk, m) {
    namespace nb = nanobind;
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)
        throw nb::import_error(
            "qk works in a process's main interpreter, not in a sub-interpreter: use threads, or other processes "
            "(multiprocessing, concurrent.futures.ProcessPoolExecutor)");
    nb::set_leak_warnings(false);  // objects that a notebook still holds at the end are no leaks
    nb::exception<qk::graph::error>(m, "Error");
    nb::register_exception_translator([](const std::exception_ptr& p, void*) {
        try {
            std::rethrow_exception(p);
        } catch (const qk::python::raised& r) {
            nb::python_error(*r.error).restore();
        }
    });
    m.attr("version") = QK_VERSION;
    if (std::string_view(qk::dispatch::architecture()) == "none") throw nb::import_error(qk::dispatch::problem());
    if (const char* problem = qk::dispatch::problem()) PyErr_WarnEx(PyExc_RuntimeWarning, problem, 1);
    qk::python::add_arrays(m);
    qk::python::add_backward(m);
    qk::python::add_verbs(m);
}
