// Threads of a loop in a forked process; see parallel.h.
#include "base/parallel.h"

#include <pthread.h>

#include <system_error>
#include <thread>
#include <vector>

namespace graphmill {
namespace {

// Written between fork() and its return, while the child has one thread.
bool forked = false;
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { forked = true; });

}  // namespace

bool is_forked() { return forked; }

void on_new_threads(int team, const std::function<void()>& work) {
    std::vector<std::thread> others;
    others.reserve(team - 1);
    try {
        while (static_cast<int>(others.size()) < team - 1) others.emplace_back(std::cref(work));
    } catch (const std::system_error&) {
        // The system allows no more threads: the others take its pieces.
    }
    work();
    for (std::thread& other : others) other.join();
}

}  // namespace graphmill
