// How a kernel reports a mistake of the user's.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace graphmill {

// Becomes graphmill.kernels.errors.InputError in Python (base/module.cpp translates).
struct InputError : std::runtime_error {
    std::string remedy;
    InputError(const std::string& problem, std::string what_to_do)
        : std::runtime_error(problem), remedy(std::move(what_to_do)) {}
};

}  // namespace graphmill
