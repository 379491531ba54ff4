"""A line plot as a small SVG."""

from __future__ import annotations

WIDTH, HEIGHT = 640, 400
LEFT, BOTTOM, RIGHT, TOP = 56, 44, 150, 16

Series = tuple[str, str, dict[int, float], bool]
"""Name, colour, points, and whether they are joined (else they are dots)."""


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
