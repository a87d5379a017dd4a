#pragma once
#include <string_view>

namespace ringtrain::metrics {

/// What a report's page looks like, in light and dark, on a screen and on paper.
inline constexpr std::string_view report_style = R"css(
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1d1f23; --soft: #69707c; --line: #e4e6ea;
  --c0: #2f6fde; --c1: #e2792b; --c2: #2b9a66; --c3: #c23b4b; --c4: #8257c9; --c5: #8a6a3b; --c6: #d0589f; --c7: #8b939f; }
@media (prefers-color-scheme: dark) { :root { --page: #15171a; --card: #1e2125; --ink: #e9ebee; --soft: #98a0ab; --line: #33373d;
  --c0: #6ea0ff; --c1: #f59a55; --c2: #55c48f; --c3: #f0707e; --c4: #ad8af0; --c5: #c2a06c; --c6: #f08cc8; --c7: #9aa2ae; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 20px 60px; max-width: 1000px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 32px 0 10px; }
p { margin: 4px 0; } small, .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 10px; margin: 18px 0; }
.tile, figure, table { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 10px 14px; } .tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
figure { margin: 0 0 12px; padding: 12px 14px 4px; position: relative; } figcaption { margin-bottom: 4px; }
.legend { float: right; font-size: 13px; } .legend span { margin-left: 14px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; background: currentColor; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
svg .y { text-anchor: end; } svg .x { text-anchor: middle; } svg .unit { text-anchor: end; }
.grid { stroke: var(--line); fill: none; } .line { stroke: currentColor; stroke-width: 1.8; fill: none; stroke-linejoin: round; }
.dot { fill: currentColor; } .area { fill: currentColor; fill-opacity: .85; stroke: none; }
.mark path { stroke: var(--soft); stroke-dasharray: 2 3; } .mark circle { fill: var(--soft); }
.mark.event path { stroke: var(--c3); } .mark.event circle { fill: var(--c3); }
.cursor { stroke: var(--soft); } .tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 6px 10px; font-size: 13px; box-shadow: 0 2px 10px #0003; white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-size: 14px; overflow: hidden; }
th, td { text-align: left; padding: 5px 12px; border-top: 1px solid var(--line); font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; border-top: 0; } .n { text-align: right; }
summary { cursor: pointer; color: var(--soft); margin: 32px 0 10px; }
@media print { body { max-width: none; } .tip { display: none; } }
)css";

/// Shows the numbers under the mouse. Without it, the page lacks nothing else.
inline constexpr std::string_view report_script = R"js(
const short = v => Math.abs(v) >= 1e4 ? v.toPrecision(5) * 1 : +v.toPrecision(4);
for (const drawing of document.querySelectorAll("svg[data-plot]")) {
  const plot = JSON.parse(drawing.dataset.plot), figure = drawing.parentElement;
  const tip = document.createElement("div"), cursor = document.createElementNS(drawing.namespaceURI, "path");
  tip.className = "tip"; tip.hidden = true; figure.append(tip);
  cursor.setAttribute("class", "cursor"); drawing.append(cursor);
  drawing.onmouseleave = () => { tip.hidden = true; cursor.removeAttribute("d"); };
  drawing.onmousemove = event => {
    const box = drawing.getBoundingClientRect(), place = (event.clientX - box.left) / box.width * 900;
    const at = plot.least + (place - 64) / (900 - 64 - 12) * (plot.most - plot.least);
    if (at < plot.least || at > plot.most) return drawing.onmouseleave();
    cursor.setAttribute("d", `M${place},10V206`);
    tip.replaceChildren(`${short(at)} ${plot.unit}`);
    for (const series of plot.series) {
      const near = series.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
      const row = document.createElement("div");
      row.className = "c" + series.colour; row.textContent = `${series.name}: ${short(near[1])}`; tip.append(row);
    }
    tip.hidden = false;
    tip.style.top = event.clientY - figure.getBoundingClientRect().top + 14 + "px";
    const x = event.clientX - figure.getBoundingClientRect().left;
    tip.style.left = (x > box.width * .7 ? x - tip.offsetWidth - 14 : x + 14) + "px";
  };
}
)js";

}  // namespace ringtrain::metrics
