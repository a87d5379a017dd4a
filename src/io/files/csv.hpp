#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::io {

/// The rows of a CSV file (RFC 4180), without empty ones: fields as they are between commas, or
/// quoted. LF ends a row, too. Throws BadValue with the line of a quote that does not end, or that
/// does amid its field.
std::vector<std::vector<std::string>> csv_rows(std::string_view text);

}  // namespace ringtrain::io
