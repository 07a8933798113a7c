"""Text for numbers: the only place that turns ns, bytes and ratios into words."""

from __future__ import annotations

from collections.abc import Callable

_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZE = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def _scaled(value: float, scale: tuple[tuple[int, str], ...], base: str) -> str:
    for unit, name in scale:
        if abs(value) >= unit * 0.9995:
            return f"{_three(value / unit)} {name}"
    return f"{value:.0f} {base}"


def _three(value: float) -> str:
    """Three significant digits without an exponent."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def ns_text(value_ns: float) -> str:
    """Returns a duration with three digits and its unit, such as `1.23 ms`; never `0.000`."""
    return _scaled(value_ns, _TIME, "ns")


def clock_text(time_ns: int) -> str:
    """Returns a time in seconds to the nanosecond, as `--window` takes it: `1.900123456s`."""
    sign, whole = "-" if time_ns < 0 else "", abs(time_ns)
    return f"{sign}{whole // 10**9}.{whole % 10**9:09d}s"


def moment_text(time_ns: int) -> str:
    """Returns a time since the start of a trace with the digits that tell neighbours apart:
    `200 µs`, `19.312 ms`, `37.001234 s`."""
    for unit_ns, digits, unit in ((10**9, 6, "s"), (10**6, 3, "ms"), (10**3, 3, "µs")):
        if abs(time_ns) >= unit_ns:
            text = f"{time_ns / unit_ns:.{digits}f}".rstrip("0").rstrip(".")
            return f"{text} {unit}"
    return f"{time_ns} ns"


def bytes_text(value_bytes: float) -> str:
    """Returns a size in decimal units with three digits, such as `4.19 MB`."""
    return _scaled(value_bytes, _SIZE, "B")


def rate_text(value_bytes_per_s: float) -> str:
    """Returns a transfer rate in decimal units, such as `27.7 GB/s`."""
    return _scaled(value_bytes_per_s, _SIZE, "B") + "/s"


def flops_text(value_flops_per_s: float) -> str:
    """Returns an arithmetic rate, such as `19.5 TFLOP/s`."""
    scale = tuple((unit, name[0].upper() + "FLOP/s") for unit, name in _SIZE)
    return _scaled(value_flops_per_s, scale, "FLOP/s")


def ratio_text(value_ratio: float) -> str:
    """Returns a ratio as a percentage that does not round a part to all or to nothing."""
    percent = value_ratio * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %"


def count_text(value_count: float) -> str:
    """Returns a whole number with thousands separated."""
    return f"{value_count:,.0f}"


_BY_SUFFIX: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes_per_s", rate_text),
    ("_flops_per_s", flops_text),
    ("_ns", ns_text),
    ("_bytes", bytes_text),
    ("_ratio", ratio_text),
    ("_count", count_text),
)
_WHOLE = {"ns": ns_text, "bytes": bytes_text, "ratio": ratio_text, "count": count_text}


def quantity_text(name: str, value: object) -> str:
    """Returns the text of a named quantity; the unit comes from the end of its name.

    `blocked_ns` is a duration, `moved_bytes` a size, `bytes` a size, `busy_ratio` a percentage,
    `call_count` a count. Text stays as it is, other numbers get separators.
    """
    if isinstance(value, str) or value is None:
        return "unknown" if value is None else value
    number = float(value)  # type: ignore[arg-type]
    if name in _WHOLE:
        return _WHOLE[name](number)
    for suffix, text in _BY_SUFFIX:
        if name.endswith(suffix):
            return text(number)
    return count_text(number) if number == int(number) else f"{number:,.3g}"


def escaped(text: str) -> str:
    """Returns text on one line that no terminal takes for a command: line ends are spaces, other
    control and direction characters and what is no Unicode are written out."""
    spaced = " ".join(text.splitlines())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in spaced)
