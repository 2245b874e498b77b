// SPDX-License-Identifier: Apache-2.0
// Maps files, and survives that a mapped file becomes shorter. A handler of SIGBUS is there while a mapping is: it belongs to the whole
// process, which may be somebody's own program, so it touches nothing but the pages of mappings of ours.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "disk/input_file.hpp"

namespace qk::disk {

/// The pages of a mapping, as the handler finds them. Regions are used again and never freed, so that it needs no lock.
struct mapping::region {
    std::atomic<std::uintptr_t> first{0}, last{0};
    std::atomic<bool> lost{false};
    bool used = false;
    region* next = nullptr;
};

struct bus_errors {
    using region = mapping::region;

    static inline std::atomic<region*> all{nullptr};
    static inline std::mutex changing;
    static inline int living = 0;          ///< mappings
    static inline bool installed = false;  ///< ours is the process's handler, or one beneath another that was put over it
    static inline struct ::sigaction before {};
    static inline std::uintptr_t page = 0;

    /// Puts zeros where the file has ended, up to the end of the region; the instruction that met the error runs again. mmap is a bare
    /// system call, so a handler may make it.
    static void handle(int signal, ::siginfo_t* info, void* context) {
        const int number = errno;
        const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
        if (info->si_code > 0)  // a page that could not be loaded, not a signal that somebody sent
            for (region* r = all.load(std::memory_order_acquire); r != nullptr; r = r->next) {
                const std::uintptr_t last = r->last.load(std::memory_order_acquire);
                if (at < r->first.load(std::memory_order_acquire) || at >= last) continue;
                r->lost.store(true, std::memory_order_release);  // before another thread can read the zeros
                const std::uintptr_t from = at / page * page;
                const void* made =
                    ::mmap(reinterpret_cast<void*>(from), last - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                errno = number;
                if (made != MAP_FAILED) return;
                break;
            }
        pass_on(signal, info, context);
        errno = number;
    }

    /// Does what would have happened without us.
    static void pass_on(int signal, ::siginfo_t* info, void* context) {
        if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
        if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
        if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;
        ::sigaction(signal, &before, nullptr);  // the error happens again, now without a handler of ours
        if (info->si_code <= 0) ::raise(signal);
    }

    static bool is_ours(const struct ::sigaction& a) { return (a.sa_flags & SA_SIGINFO) != 0 && a.sa_sigaction == &handle; }

    static void install() {
        if (installed) return;
        page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
        struct ::sigaction ours {};
        ours.sa_sigaction = &handle;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        ::sigemptyset(&ours.sa_mask);
        installed = ::sigaction(SIGBUS, &ours, &before) == 0;
    }
    /// Leaves the handler where another one lies over it, which may call it.
    static void remove() {
        struct ::sigaction now {};
        if (!installed || ::sigaction(SIGBUS, nullptr, &now) != 0 || !is_ours(now)) return;
        ::sigaction(SIGBUS, &before, nullptr);
        installed = false;
    }

    static region* guard(const std::byte* start, std::size_t size) {
        const std::lock_guard lock(changing);
        if (living++ == 0) install();
        region* r = all.load(std::memory_order_relaxed);
        while (r != nullptr && r->used) r = r->next;
        if (r == nullptr) {
            r = new region;
            r->next = all.load(std::memory_order_relaxed);
            all.store(r, std::memory_order_release);
        }
        r->used = true;
        r->lost.store(false, std::memory_order_relaxed);
        r->first.store(reinterpret_cast<std::uintptr_t>(start), std::memory_order_release);
        r->last.store(reinterpret_cast<std::uintptr_t>(start) + (size + page - 1) / page * page, std::memory_order_release);
        return r;
    }
    static void forget(region* r) {
        const std::lock_guard lock(changing);
        r->last.store(0, std::memory_order_release);
        r->first.store(0, std::memory_order_release);
        r->used = false;
        if (--living == 0) remove();
    }
};

mapping::mapping(const input_file& file) : file_(file), size_(static_cast<std::size_t>(file.size())) {
    if (size_ == 0) return;
    const input_file::descriptor from(file);
    file.check(from);
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, from.number(), 0);
    if (at == MAP_FAILED) file.fail(std::string("it cannot be mapped into memory: ") + std::strerror(errno));
    start_ = static_cast<const std::byte*>(at);
    guarded_ = bus_errors::guard(start_, size_);
}

mapping::~mapping() {
    if (start_ == nullptr) return;
    bus_errors::forget(guarded_);
    ::munmap(const_cast<std::byte*>(start_), size_);  // munmap lacks the const
}

void mapping::release(std::span<const std::byte> part) const noexcept {
    if (start_ == nullptr || part.empty() || part.data() < start_ || part.data() + part.size() > start_ + size_) return;
    const auto page = static_cast<std::size_t>(bus_errors::page);
    const auto first = static_cast<std::size_t>(part.data() - start_) / page * page;
    const auto last = (static_cast<std::size_t>(part.data() - start_) + part.size()) / page * page;
    if (last > first) ::madvise(const_cast<std::byte*>(start_) + first, last - first, MADV_DONTNEED);
}

void mapping::check() const {
    file_.check();
    if (guarded_ != nullptr && guarded_->lost.load(std::memory_order_acquire)) file_.fail("a part of it cannot be read any more");
}

}  // namespace qk::disk
