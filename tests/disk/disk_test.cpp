// SPDX-License-Identifier: Apache-2.0
// What is opened, mapped and written: regular files alone, no signal where a mapped file is cut short, outputs whole or as before.
#include "disk/input_file.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../tool/run_tool.hpp"
#include "disk/output_file.hpp"

namespace fs = std::filesystem;
using namespace qk::disk;
using qk_test::content;
using qk_test::scratch;

namespace {

void complain(const fs::path& file, const std::string& why) { throw std::runtime_error(file.filename().string() + ": " + why); }

template <class F>
std::string said(const F& f) {
    try {
        f();
    } catch (const std::runtime_error& e) {
        return e.what();
    }
    return {};
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
void put(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

/// Adds bytes, so that each page is touched.
std::uint64_t sum_of(std::span<const std::byte> bytes) {
    std::uint64_t sum = 0;
    for (const std::byte b : bytes) sum += static_cast<std::uint64_t>(b);
    return sum;
}

int of_others = 0;
void others_handler(int, siginfo_t* info, void*) {
    ++of_others;
    void* page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(info->si_addr) / 4096 * 4096);
    ::mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

}  // namespace

TEST_CASE("only regular files are read, and nothing waits for another") {
    const scratch place;
    REQUIRE(::mkfifo(place("pipe").c_str(), 0600) == 0);
    fs::create_symlink(place("pipe"), place("link"));
    fs::create_directory(place("folder"));
    fs::create_symlink("circle", place("circle"));
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, place("socket").c_str(), sizeof at.sun_path - 1);
    REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    const auto why = [&](const std::string& file) { return said([&] { read_whole(file, complain); }); };
    CHECK(has(why(place("pipe")), "pipe: it is a pipe, not a regular file; write"));
    CHECK(has(why(place("link")), "link: it is a pipe"));
    CHECK(has(why("/dev/zero"), "zero: it is a device"));
    CHECK(has(why(place("socket")), "socket: it is a socket"));
    CHECK(why(place("folder")) == "folder: it is a folder, not a file");
    CHECK(has(why(place("missing")), "missing: No such file"));
    CHECK(has(why(place("circle")), "circle: Too many levels"));
    CHECK(has(said([&] { append_to(place("pipe"), "x", complain); }), "pipe: it is no regular file"));
    CHECK(has(said([&] { append_to("/dev/zero", "x", complain); }), "zero: it is no regular file"));
    put(place("small"), "12345");
    CHECK(read_whole(place("small"), complain, 5) == "12345");
    CHECK(has(said([&] { read_whole(place("small"), complain, 4); }), "5 bytes are more than the 4"));
    append_to(place("small"), "67", complain);
    append_to(place("new"), "8", complain);
    CHECK(content(place("small")) == "1234567");
    CHECK(content(place("new")) == "8");
    ::close(socket);
}

TEST_CASE("pieces come from one unchanged file, whether it is kept open or opened again") {
    const scratch place;
    std::vector<std::unique_ptr<input_file>> many;
    for (int k = 0; k < 70; ++k) {  // more than are kept open
        const std::string name = place("f" + std::to_string(k));
        put(name, "0123456789");
        many.push_back(std::make_unique<input_file>(name, complain));
    }
    for (const std::size_t k : {0, 69}) {
        std::byte part[4];
        many[k]->read(3, part);
        CHECK(std::memcmp(part, "3456", 4) == 0);
        CHECK(has(said([&] { many[k]->read(7, part); }), "it is too short"));
        put(many[k]->path(), "other bytes, and more of them");
        CHECK(has(said([&] { many[k]->read(3, part); }), "it was changed while it was in use"));
        CHECK(has(said([&] { many[k]->check(); }), "it was changed while it was in use"));
    }
}

TEST_CASE("a mapped file that is cut short has zeros there, in every thread, and says so") {
    const scratch place;
    const std::string name = place("f");
    put(name, std::string(1 << 20, '\1'));
    const input_file file(name, complain);
    const input_file other_file([&] { return put(place("g"), std::string(1 << 16, '\1')), place("g"); }(), complain);
    const mapping mapped(file), other(other_file);
    CHECK(sum_of(mapped.bytes().first(8192)) == 8192);
    mapped.check();
    fs::resize_file(name, 4096);
    mapped.release(mapped.bytes());
    std::vector<std::thread> threads;
    std::vector<std::uint64_t> sums(4);
    for (std::uint64_t& sum : sums) threads.emplace_back([&] { sum = sum_of(mapped.bytes()); });
    for (std::thread& t : threads) t.join();
    for (const std::uint64_t sum : sums) CHECK(sum == 4096);
    CHECK(has(said([&] { mapped.check(); }), "f: it was changed while it was in use"));
    CHECK(has(said([&] { unchanged(mapped, [] { return 1; }); }), "it was changed"));
    CHECK(has(said([&] { unchanged(mapped, []() -> int { throw std::runtime_error("something else"); }); }), "it was changed"));
    CHECK(sum_of(other.bytes()) == 1 << 16);
    other.check();
    CHECK(unchanged(other, [] { return 1; }) == 1);
    CHECK(said([&] { unchanged(other, []() -> int { throw std::runtime_error("something else"); }); }) == "something else");
    // The same pages and region again.
    put(name, std::string(1 << 16, '\2'));
    const input_file again(name, complain);
    const mapping third(again);
    CHECK(sum_of(third.bytes()) == 2 << 16);
    third.check();
    const std::string nothing = place("empty");
    put(nothing, "");
    const input_file empty(nothing, complain);
    CHECK(mapping(empty).bytes().empty());
}

TEST_CASE("the handler is there while a mapping is, and passes on what is not its own") {
    const scratch place;
    struct ::sigaction others {
    }, now{};
    others.sa_sigaction = others_handler;
    others.sa_flags = SA_SIGINFO;
    REQUIRE(::sigaction(SIGBUS, &others, nullptr) == 0);
    put(place("f"), std::string(8192, '\1'));
    put(place("own"), std::string(8192, '\1'));
    const int own = ::open(place("own").c_str(), O_RDONLY);
    void* at = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, own, 0);
    REQUIRE(at != MAP_FAILED);
    {
        const input_file file(place("f"), complain);
        const mapping mapped(file);
        fs::resize_file(place("own"), 0);
        CHECK(static_cast<const volatile char*>(at)[5000] == 0);
        CHECK(of_others == 1);
        fs::resize_file(place("f"), 0);
        CHECK(sum_of(mapped.bytes()) == 0);
        CHECK(of_others == 1);
    }
    REQUIRE(::sigaction(SIGBUS, nullptr, &now) == 0);
    CHECK((now.sa_sigaction == others_handler));
    ::signal(SIGBUS, SIG_DFL);
    ::munmap(at, 8192);
    ::close(own);
}

TEST_CASE("an output gets its name when it is whole, and can be taken back") {
    const scratch place;
    put(place("old"), "before");
    {
        output_file old(place("old"), complain), fresh(place("fresh"), "0123456789abcdef", complain);
        old.append("new");
        fresh.write_at(0, "new");
        CHECK(has(said([&] { output_file(place("fresh"), "0123456789abcdef", complain); }), "another process is writing it"));
        for (output_file* f : {&old, &fresh}) f->sync(), f->put();
        CHECK(content(place("old")) == "new");
        CHECK(content(place("fresh")) == "new");
        if (old.take_back()) CHECK(content(place("old")) == "before");  // where the system can exchange two files
        CHECK(fresh.take_back());
        CHECK_FALSE(fs::exists(place("fresh")));
    }
    CHECK(place.files() == 1);
    {
        output_file taken_up(place("old"), "0123456789abcdef", complain);
        taken_up.write_at(0, "newer");
        taken_up.put();
        CHECK(content(place("old")) == "newer");
        // What stood there before never lies where a later run takes up its part.
        CHECK_FALSE(fs::exists(place(".old.qk-0123456789abcdef.part")));
    }
    CHECK(place.files() == 1);
}

TEST_CASE("links: written where they lead, refused where they lead in a circle") {
    const scratch place;
    fs::create_directory(place("there"));
    fs::create_symlink("there/file", place("link"));  // the file is not there yet
    fs::create_symlink("itself", place("itself"));
    fs::create_symlink("b", place("a"));
    fs::create_symlink("a", place("b"));
    for (const char* identity : {"", "0123456789abcdef"}) {
        const auto write = [&](const std::string& name) {
            const auto file = *identity == 0 ? std::make_unique<output_file>(place(name), complain)
                                             : std::make_unique<output_file>(place(name), identity, complain);
            file->write_at(0, identity);
            file->put();
        };
        write("link");
        CHECK(fs::is_symlink(place("link")));
        CHECK(content(place("there/file")) == identity);
        for (const char* name : {"itself", "a", "b"}) {
            CHECK(has(said([&] { write(name); }), std::string(name) + ": its links lead in a circle"));
            CHECK(fs::is_symlink(place(name)));
        }
        CHECK(has(said([&] { write("there"); }), "it is a folder"));
    }
}
