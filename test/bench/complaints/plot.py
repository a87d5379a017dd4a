"""Small SVG plots: lines, steps and bars."""
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 64, 20, 34, 44
COLOURS = ("#1565c0", "#c62828", "#ef6c00", "#2e7d32", "#6a1b9a", "#455a64", "#ad8b00", "#00838f")


def ticks(most, count=5):
    """Round numbers from 0 to about `most`."""
    rough = most / count
    power = 10 ** (len(str(int(rough))) - 1) if rough >= 1 else 10 ** -next(i for i in range(1, 12) if rough * 10**i >= 1)
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return [i * step for i in range(int(most / step) + 1)]


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(words)}</text>'


def short(value):
    """Three digits of it."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


class Plot:
    """A frame with a vertical axis from 0; x in units of its own where `most_x` is given."""

    def __init__(self, title, x_unit, y_unit, most_x, most_y):
        self.most_x, self.most_y = most_x, most_y
        self.parts = [text(LEFT, 18, title, "start", 'font-weight="bold"'), text(4, 30, y_unit, "start", 'fill="#555"')]
        for tick in ticks(most_y):
            self.parts.append(f'<path d="M{LEFT} {self.y(tick):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
            self.parts.append(text(LEFT - 6, self.y(tick) + 4, f"{tick:g}", "end"))
        if x_unit:
            for tick in ticks(most_x, 8):
                self.parts.append(text(self.x(tick), HEIGHT - BOTTOM + 16, f"{tick:g}"))
            self.parts.append(text(WIDTH - RIGHT, 18, x_unit, "end", 'fill="#555"'))

    def x(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.most_x

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(value / self.most_y, 1)

    def line(self, number, name, points, stairs=False):
        path = ""
        for i, (x, y) in enumerate(points):
            path += f"M{self.x(x):.1f} {self.y(y):.1f}" if i == 0 else f"H{self.x(x):.1f}V{self.y(y):.1f}" if stairs else f"L{self.x(x):.1f} {self.y(y):.1f}"
        self.parts.append(f'<path d="{path}" fill="none" stroke="{COLOURS[number]}" stroke-width="1.5"/>')
        self.parts.append(text(LEFT + 10 + 235 * number, HEIGHT - 8, name, "start", f'fill="{COLOURS[number]}"'))

    def bars(self, names, values, spreads):
        """One for each name; a spread is (least, most)."""
        room = (WIDTH - LEFT - RIGHT) / len(names)
        for i, (name, value, (least, most)) in enumerate(zip(names, values, spreads)):
            left, middle = LEFT + room * (i + 0.2), LEFT + room * (i + 0.5)
            self.parts.append(f'<path d="M{left:.1f} {self.y(0):.1f}V{self.y(value):.1f}h{0.6 * room:.1f}V{self.y(0):.1f}z" fill="{COLOURS[i % 8]}" opacity="0.8"/>')
            self.parts.append(f'<path d="M{middle:.1f} {self.y(least):.1f}V{self.y(most):.1f}" stroke="#000"/>')
            self.parts.append(text(middle, self.y(max(value, most)) - 4, short(value)))
            for j, words in enumerate(name.split("\n")):
                self.parts.append(text(middle, HEIGHT - BOTTOM + 14 + 13 * j, words, extra='font-size="10"'))

    def band(self, begin, end, name):
        self.parts.append(f'<path d="M{self.x(begin):.1f} {TOP}H{self.x(end):.1f}V{HEIGHT - BOTTOM}H{self.x(begin):.1f}z" fill="#999" opacity="0.2"/>')
        self.parts.append(text(self.x((begin + end) / 2), TOP + 12, name, extra='font-size="10"'))

    def mark(self, number, at, name):
        self.parts.append(f'<path d="M{self.x(at):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{COLOURS[number]}" stroke-dasharray="4 3"/>')
        self.parts.append(text(self.x(at) + 4, TOP + 12 + 14 * number, name, "start", f'font-size="10" fill="{COLOURS[number]}"'))

    def save(self, path):
        with open(path, "w") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
                       f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>' + "\n".join(self.parts) + "</svg>\n")
