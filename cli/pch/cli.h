// Headers that every command includes, compiled once.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
