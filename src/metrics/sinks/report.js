// Draws the runs of the page: its own, and those of other reports that the reader adds. A run has, in milliseconds where no unit is named,
//   steps: [seconds, step, loss, learning rate, images/s, [each phase], [least, median, most own work of a rank] or null]
//   evaluations: [seconds, step, loss, top-1 %, top-5 %], events: [seconds, text], phases: [name, colour]
"use strict";
const runs = [], plots = [], choice = document.getElementById("axis");
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = value => String(+value.toPrecision(4));

function clock(milliseconds) {
  const s = milliseconds / 1000, two = n => String(Math.floor(n)).padStart(2, "0");
  if (s < 60) return +s.toFixed(1) + " s";
  return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(s / 60 % 60)}:${two(s % 60)}`;
}

// Lines are [name, rows, the row's value, colour].
const kinds = () => [
  {title: "Throughput", unit: "images/s", place: "speed", zero: true, marks: true, lines: run => [["", run.steps, row => row[4], 0]]},
  ...runs.map(only => ({title: "Where a step's time went, on rank 0", unit: "ms a step", place: "speed", zero: true, stacked: true, only,
    lines: run => run.phases.map(([name, colour], i) => [name, run.steps, row => row[5][i], colour])})),
  {title: "A rank's own work", unit: "ms a step: the median of the ranks, between least and most", place: "speed", zero: true, band: true,
    lines: run => [["", run.steps.filter(row => row[6]), row => row[6], 0]]},
  {title: "Loss", unit: "", place: "learning",
    lines: run => [["training", run.steps, row => row[2], 0], ["evaluation", run.evaluations, row => row[2], 1]]},
  {title: "Accuracy", unit: "%", place: "learning",
    lines: run => [["top-1", run.evaluations, row => row[3], 2], ["top-5", run.evaluations, row => row[4], 7]]},
  {title: "Learning rate", unit: "", place: "learning", zero: true, lines: run => [["", run.steps, row => row[3], 4]]},
];
const x_of = row => choice.value === "time" ? 1000 * row[0] : row[1];

function lines_of(kind) {
  const several = runs.length > 1 && !kind.only;
  return (kind.only ? [kind.only] : runs).flatMap((run, r) => kind.lines(run).map(([name, rows, value, colour], part) => ({
    label: several ? [run.name, name].filter(word => word).join(": ") : name || kind.title, run, rows, value,
    color: style("--c" + (several ? r % 8 : colour)), strokePattern: several && part > 0 ? [5, 3] : null,
    drawPoints: rows.length <= 40, pointSize: 3,
  }))).filter(line => line.rows.some(line.value));
}

// From the first step of any run to the last, and to the evaluation behind it, in all plots.
function whole_window() {
  const all = runs.flatMap(run => [...run.steps, ...run.evaluations].map(x_of));
  const first = Math.min(...all), last = Math.max(...all), edge = (last - first) / 100;
  return first < last ? [first - edge, last + edge] : null;
}

// What dygraphs draws: x, then a value of each line; null: the line has none there, NaN: a gap.
function table_of(lines) {
  const all = new Map();
  lines.forEach((line, l) => line.rows.forEach(row => {
    const x = x_of(row);
    if (!all.has(x)) all.set(x, [x, ...lines.map(() => null)]);
    all.get(x)[l + 1] = line.value(row) ?? NaN;
  }));
  return [...all.values()].sort((a, b) => a[0] - b[0]);
}

// Evaluations and events, each at the next step of its run, where there is a point to stand on.
function marks_of(lines) {
  return lines.flatMap(({label, run, rows}) => {
    const mark = (seconds, kind, shortText, text) => ({series: label, x: x_of(rows.find(row => row[0] >= seconds) ?? rows.at(-1)), shortText, text,
      cssClass: "mark " + kind, width: 16, height: 16, attachAtBottom: true});
    return [...run.evaluations.map(([seconds, step, , top1]) => mark(seconds, "evaluation", "e", `evaluation after step ${step}: top-1 ${short(top1)} %`)),
      ...run.events.map(([seconds, text]) => mark(seconds, "event", "!", text))];
  });
}

function element(name, text, classes = "") {
  return Object.assign(document.createElement(name), {textContent: text, className: classes});
}

function draw_plot(kind) {
  const lines = lines_of(kind), table = table_of(lines);
  if (lines.length === 0) return;
  const figure = element("figure"), caption = element("figcaption"), legend = element("div", "", "legend"), place = element("div", "", "plot");
  caption.append(element("b", kind.title), " ", element("small", (kind.only && runs.length > 1 ? kind.only.name + ", " : "") + kind.unit));
  figure.append(caption, legend, place);
  document.getElementById(kind.place).append(figure);
  const plot = new Dygraph(place, table, {
    labels: ["x", ...lines.map(line => line.label)], labelsDiv: legend, legend: "always", labelsUTC: true,
    series: Object.fromEntries(lines.map(line => [line.label, line])),
    stackedGraph: !!kind.stacked, customBars: !!kind.band, fillAlpha: kind.stacked ? 0.8 : 0.2, includeZero: !!kind.zero,
    connectSeparatedPoints: true, dateWindow: whole_window(), strokeWidth: kind.stacked ? 1 : 1.8,
    axisLineColor: style("--line"), gridLineColor: style("--line"), rightGap: 20,
    axes: {
      x: choice.value === "time" ? {ticker: Dygraph.dateTicker, axisLabelFormatter: x => clock(+x), valueFormatter: clock, pixelsPerLabel: 80}
        : {axisLabelFormatter: short, valueFormatter: x => "step " + short(x)},
      y: {axisLabelFormatter: short, valueFormatter: short, axisLabelWidth: 60},
    },
    drawCallback: zoom_alike,
  });
  if (kind.marks) plot.setAnnotations(marks_of(lines));
  plots.push(plot);
}

// All plots show the same part of the run.
let zooming = false;
function zoom_alike(zoomed, is_first) {
  if (is_first || zooming) return;
  zooming = true;
  for (const plot of plots) if (plot !== zoomed) plot.updateOptions({dateWindow: zoomed.xAxisRange()});
  zooming = false;
}

function draw() {
  for (const plot of plots.splice(0)) plot.destroy();
  for (const place of ["speed", "learning"]) document.getElementById(place).replaceChildren();
  kinds().forEach(draw_plot);
}

function add_runs(page, name) {
  const found = page.querySelectorAll("script.run");
  for (const data of found) {
    const times = runs.filter(run => run.file === name).length;
    runs.push({...JSON.parse(data.textContent), file: name, name: name.replace(/\.html$/, "") + (times > 0 ? ` (${times + 1})` : "")});
  }
  return found.length > 0;
}

document.getElementById("add").onchange = async event => {
  const refused = [];
  for (const file of event.target.files)
    if (!add_runs(new DOMParser().parseFromString(await file.text(), "text/html"), file.name)) refused.push(file.name);
  document.getElementById("refused").textContent = refused.length > 0 ? "no report: " + refused.join(", ") : "";
  draw();
};
choice.onchange = draw;
matchMedia("(prefers-color-scheme: dark)").onchange = draw;
document.getElementById("choices").hidden = false;
add_runs(document, decodeURIComponent(location.pathname.split("/").pop()) || "this run");
draw();
