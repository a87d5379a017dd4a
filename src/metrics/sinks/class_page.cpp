#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "metrics/sinks/html_text.hpp"
#include "metrics/sinks/run_history.hpp"

namespace ringtrain::metrics {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t at) {
      return at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0u;
    };
    const unsigned bits = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (int shift = 18; shift >= 0; shift -= 6) text += digits[bits >> shift & 63];
  }
  std::fill_n(text.rbegin(), (3 - bytes.size() % 3) % 3, '=');
  return text;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// A bar in a cell of a table, of a share of the cell.
std::string bar(double share, const std::string& text) {
  return fmt::format("<td class=\"n bar\" style=\"--share:{:.1f}%\">{}</td>", 100 * share, text);
}

std::string table_of(const ClassRecord& r) {
  std::int64_t most = 1;
  for (const ClassRecord::Class& c : r.classes) most = std::max({most, c.examples, c.predicted});
  std::string rows;
  for (const ClassRecord::Class& c : r.classes)
    rows += "<tr><td>" + escaped(c.name) + "</td>" +
            bar(double(c.examples) / double(most), std::to_string(c.examples)) +
            bar(double(c.predicted) / double(most), std::to_string(c.predicted)) +
            bar(c.precision(), percent(c.precision())) + bar(c.recall(), percent(c.recall())) +
            bar(c.f1(), percent(c.f1())) + "</tr>";
  return "<table><tr><th>class</th><th class=\"n\">images</th><th class=\"n\">predicted</th>"
         "<th class=\"n\">precision</th><th class=\"n\">recall</th><th class=\"n\">F1</th></tr>" +
         rows + "</table>\n";
}

// A row for each label, a column for each prediction; the darker, the more of the row.
std::string matrix_of(const ClassRecord& r) {
  constexpr std::size_t most_cells = 20'000;
  if (r.classes.empty()) return "";
  if (r.confusions.size() > most_cells)
    return fmt::format("<p class=\"soft\">{} pairs of classes are too many for a picture.</p>\n",
                       r.confusions.size());
  const auto classes = std::ssize(r.classes);
  std::string cells;
  for (const ClassRecord::Confusion& c : r.confusions) {
    const ClassRecord::Class& row = r.classes[c.label];
    const double share = double(c.examples) / double(std::max<std::int64_t>(1, row.examples));
    cells += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"1\" height=\"1\" fill=\"var(--c{})\" "
        "opacity=\"{:.3f}\"><title>{} taken for {}: {}, {}</title></rect>",
        c.predicted, c.label, c.label == c.predicted ? 0 : 3, 0.08 + 0.92 * share,
        escaped(row.name), escaped(r.classes[c.predicted].name), c.examples, percent(share));
  }
  return fmt::format(
      "<figure class=\"matrix\"><svg viewBox=\"0 0 {0} {0}\" role=\"img\">{1}</svg><figcaption "
      "class=\"soft\">A row for each label, a column for what it was taken for: right ones in "
      "blue, wrong ones in red, the darker the more of the row.</figcaption></figure>\n",
      classes, cells);
}

std::string confusions_of(const ClassRecord& r) {
  constexpr std::size_t most = 15;
  std::vector<ClassRecord::Confusion> wrong = r.confusions;
  std::erase_if(wrong, [](const auto& c) { return c.label == c.predicted; });
  std::ranges::stable_sort(wrong, std::greater(), &ClassRecord::Confusion::examples);
  wrong.resize(std::min(wrong.size(), most));
  std::string rows;
  for (const ClassRecord::Confusion& c : wrong) {
    const ClassRecord::Class& row = r.classes[c.label];
    rows +=
        fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                    escaped(row.name), escaped(r.classes[c.predicted].name), c.examples,
                    percent(double(c.examples) / double(row.examples)));
  }
  if (rows.empty()) return "";
  return "<table><tr><th>images of</th><th>taken for</th><th class=\"n\">images</th>"
         "<th class=\"n\">of the class</th></tr>" +
         rows + "</table>\n";
}

// How often the network is right where it is so sure: bars that reach the diagonal are honest.
std::string calibration_of(const ClassRecord& r) {
  const double width = 100.0 / double(std::max<std::size_t>(1, r.confidences.size()));
  std::string bars;
  for (std::size_t i = 0; i < r.confidences.size(); ++i) {
    const ClassRecord::Confidence& c = r.confidences[i];
    if (c.examples == 0) continue;
    bars += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"var(--c0)\">"
        "<title>{} images, {} sure, {} right</title></rect>",
        width * double(i), 100 - 100 * c.accuracy, width * 0.92, 100 * c.accuracy, c.examples,
        percent(c.confidence), percent(c.accuracy));
  }
  return fmt::format(
      "<figure class=\"matrix\"><svg viewBox=\"0 0 100 100\" role=\"img\">{}<line x1=\"0\" "
      "y1=\"100\" x2=\"100\" y2=\"0\" stroke=\"var(--soft)\" stroke-dasharray=\"2\"/></svg>"
      "<figcaption class=\"soft\">How often it is right (upwards) where it is so sure (to the "
      "right), 0 to 100 %. Expected calibration error: {}.</figcaption></figure>\n",
      bars, percent(r.calibration_error()));
}

std::string worst_of(const ClassRecord& r) {
  std::string images;
  for (const ClassRecord::Image& i : r.worst)
    images += fmt::format(
        "<figure>{}<figcaption><b>{}</b>, taken for {} ({})<br><small>{}</small></figcaption>"
        "</figure>",
        i.png.empty() ? "" : "<img alt=\"\" src=\"data:image/png;base64," + base64(i.png) + "\">",
        escaped(i.label), escaped(i.predicted), percent(i.probability), escaped(i.name));
  return "<div class=\"images\">" + images + "</div>\n";
}

}  // namespace

std::string class_page(const RunHistory& run) {
  if (!run.classes) return "";
  const ClassRecord& r = *run.classes;
  return "<h2>Classes</h2>" + table_of(r) + "<h2>Confusions</h2>" + matrix_of(r) +
         confusions_of(r) + "<h2>Confidence</h2>" + calibration_of(r) +
         "<h2>Images with the largest loss</h2>" + worst_of(r);
}

}  // namespace ringtrain::metrics
