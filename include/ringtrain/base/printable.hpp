#pragma once
#include <string>
#include <string_view>

namespace ringtrain {

/// `text` as it can be shown and stored as UTF-8, so that what a file or a command line brings in
/// cannot disturb a terminal: the bytes of control characters and, where the text is not UTF-8, all
/// bytes above 127 become \xNN.
std::string printable(std::string_view text);

}  // namespace ringtrain
