#include "arrays.h"
namespace graphmill { void bind_generate(py::module_&) {} }
