// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, given away and taken where Python may be ending.
//
// A thread that asks for the lock while the interpreter ends does not get it: Python up to 3.13 ends the thread there, by unwinding it, and
// Python from 3.14 on never returns. The unwinding would run destructors that touch Python without the lock, and abort the process at the
// first function that may not throw. So every call that may ask for the lock stands in `or_rest`, which catches the unwinding and lets the
// thread rest until the process is gone, as 3.14 does. There is no moment between a look at the interpreter and the taking of its lock.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <utility>

namespace qk::python {

namespace nb = nanobind;

/// Returns call(), which throws no exception of C++. A thread that Python ends inside it rests here for ever.
template <class Call>
auto or_rest(const Call& call) noexcept {
    try {
        return call();
    } catch (...) {
        for (;;) pause();
    }
}

/// Gives the lock away until it goes out of scope: other threads of Python run meanwhile.
class without_lock {
  public:
    without_lock() noexcept : own_(PyEval_SaveThread()) {}
    ~without_lock() {
        or_rest([this] { PyEval_RestoreThread(own_); });
    }
    without_lock(const without_lock&) = delete;
    without_lock& operator=(const without_lock&) = delete;

  private:
    PyThreadState* own_;
};

/// Holds the lock until it goes out of scope, in any thread; a thread that has it already keeps it.
class with_lock {
  public:
    with_lock() noexcept
        : before_(or_rest([] {
              while (Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr) pause();  // a thread that Python never knew
              return PyGILState_Ensure();
          })) {}
    ~with_lock() {
        or_rest([this] { PyGILState_Release(before_); });
    }
    with_lock(const with_lock&) = delete;
    with_lock& operator=(const with_lock&) = delete;

  private:
    PyGILState_STATE before_;
};

/// Returns an owner of something of Python's that any thread may let go of. What is held when the interpreter ends stays until the process
/// is gone.
template <class T>
std::shared_ptr<T> shared_with_threads(T value) {
    return {new T(std::move(value)), [](T* own) {
                if (Py_IsInitialized() == 0) return;
                const with_lock lock;
                delete own;
            }};
}

/// What a function of the user's raised, on its way through threads of ours: Python's own exception, with its traceback.
struct raised : std::exception {
    std::shared_ptr<nb::python_error> error;
    explicit raised(nb::python_error&& e) : error(shared_with_threads(std::move(e))) {}
    const char* what() const noexcept override { return "a function of the caller's raised an exception"; }
};

/// Returns work() in a thread of ours, under the lock. What Python raises in it leaves as `raised`.
template <class Work>
auto in_python(const Work& work) {
    const with_lock lock;
    try {
        return work();
    } catch (nb::python_error& e) {
        throw raised(std::move(e));
    }
}

/// Calls a function of the user's, which is Python that may run when the interpreter ends. The caller has the lock.
template <class... Arguments>
nb::object called(const nb::handle& function, const Arguments&... arguments) {
    PyObject* const all[] = {arguments.ptr()...};
    PyObject* const result = or_rest([&] { return PyObject_Vectorcall(function.ptr(), all, sizeof...(arguments), nullptr); });
    if (result == nullptr) throw nb::python_error();
    return nb::steal(result);
}

}  // namespace qk::python
