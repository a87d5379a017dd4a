// Catch2, version 2 (Debian 12, Ubuntu 24.04) or 3 (Debian 13): tests include this file and nothing
// of Catch2 itself, and use version 2's names.
#pragma once
#include <string>
#include <string_view>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>

using Catch::Approx;
namespace Catch {
using Matchers::EndsWith;
using Matchers::Matches;
using Matchers::Message;
using Matchers::StartsWith;
using Matchers::VectorContains;
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif

/// Ends a test case that cannot run here, before its first check, and prints `skipped: <why>`. The
/// program then ends with 77, which CTest counts as skipped. A case that has checked something
/// fails instead: a part that may be skipped is a case of its own.
[[noreturn]] void skip_test(std::string_view why);
