"""A line plot as a small SVG."""

from __future__ import annotations

WIDTH, HEIGHT = 640, 400
LEFT, BOTTOM, RIGHT, TOP = 56, 44, 150, 16

Series = tuple[str, str, dict[int, float], bool]
"""Name, colour, points, and whether they are joined (else they are dots)."""


def bars(rows: list[tuple[str, dict[str, float]]], colours: dict[str, str], *, x: str) -> str:
    """Draw horizontal bars: for every row one of each colour, from 0; what is below 0 goes to the left."""
    left, thick, gap = 110, 12, 10
    values = [value for _, each in rows for value in each.values()]
    least, most = min(0.0, *values), max(values)
    high = len(rows) * (thick * len(colours) + gap)
    scale = (WIDTH - left - 70) / (most - least)
    zero = left - least * scale
    font = 'font-family="sans-serif" font-size="12"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high + 70}" {font}>',
        f'<rect width="{WIDTH}" height="{high + 70}" fill="white"/>',
        f'<line x1="{zero:.1f}" y1="8" x2="{zero:.1f}" y2="{high + 8}" stroke="#888"/>',
    ]
    for number, (name, each) in enumerate(rows):
        top = 8 + gap / 2 + number * (thick * len(colours) + gap)
        middle = top + thick * len(colours) / 2 + 4
        out.append(f'<text x="{left - 8}" y="{middle:.1f}" text-anchor="end">{name}</text>')
        for place, (kind, colour) in enumerate(colours.items()):
            value = each[kind]
            start, width = min(zero, zero + value * scale), abs(value) * scale
            y = top + place * thick
            out.append(f'<rect x="{start:.1f}" y="{y:.1f}" width="{width:.1f}" height="{thick - 2}" fill="{colour}"/>')
            out.append(f'<text x="{max(zero, zero + value * scale) + 4:.1f}" y="{y + 10:.1f}">{value:.1f}</text>')
    for place, (kind, colour) in enumerate(colours.items()):
        out.append(f'<rect x="{left + 90 * place}" y="{high + 24}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{left + 90 * place + 18}" y="{high + 34}">{kind}</text>')
    out.append(f'<text x="{left}" y="{high + 58}">{x}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def lines(series: list[Series], *, x: str, y: str) -> str:
    """Draw points over mbs, both axes from 0."""
    most_x = max(at for _, _, points, _ in series for at in points)
    most_y = max(value for _, _, points, _ in series for value in points.values()) * 1.05

    def place(at: float, value: float) -> tuple[float, float]:
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * at / most_x,
            HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most_y,
        )

    font = 'font-family="sans-serif" font-size="12"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for value in range(0, int(most_y) + 1, 4):
        x0, y0 = place(0, value)
        out.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{WIDTH - RIGHT}" y2="{y0:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 6:.1f}" y="{y0 + 4:.1f}" text-anchor="end">{value}</text>')
    for at in sorted({at for _, _, points, _ in series for at in points if at >= 4 or at == 1}):
        x0, y0 = place(at, 0)
        out.append(f'<text x="{x0:.1f}" y="{y0 + 16:.1f}" text-anchor="middle">{at}</text>')
    for number, (name, colour, points, joined) in enumerate(series):
        places = [place(at, value) for at, value in sorted(points.items())]
        legend = TOP + 14 + 18 * number
        if joined:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            out.append(
                f'<line x1="{WIDTH - RIGHT + 10}" y1="{legend - 4}" x2="{WIDTH - RIGHT + 26}" y2="{legend - 4}" '
                f'stroke="{colour}" stroke-width="1.5"/>'
            )
        else:
            out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>' for px, py in places]
            out.append(f'<circle cx="{WIDTH - RIGHT + 18}" cy="{legend - 4}" r="3.5" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 32}" y="{legend}">{name}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{x}</text>')
    out.append(f'<text transform="translate(14 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">{y}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
