"""Mutated exports, names, texts and reports: `python -m tests.fuzz --minutes N --seed S`.

Whatever is put in, the answer is a report that can be true or an error for users; everything else
is a failure, printed with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from nsysdoctor.errors import NsysDoctorError

NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char *, 1ul>>(int, float, std::array<char *, 1ul>)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, "
    "std::array<char *, 300000000>>(int)",
    "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul>, 4, OffsetCalculator<2, unsigned int, false>>(int)",
    "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<"
    "at::native::CUDAFunctor_add<float>>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
    "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 10, false>(int)",
    "_ZN2at6native27unrolled_elementwise_kernelINS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT_",
    "_Z99999999999999999999gemm", "sm80_xmma_gemm_f16f16_f16f32_tn_n_tilesize128x128x32_stage3",
    "ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
    "multi_tensor_apply_kernel<TensorListMetadata<3>, FusedAdamMathFunctor<float, 4>, float>",
)  # fmt: skip
TEXTS = (
    "aten::mm, seq = 12, op_id = 3, sizes = [[8, 16], [16, 4]]",
    "aten::add, seq = 9223372036854775808, op_id = 3",
    "autograd::engine::evaluate_function: MmBackward0, seq = 4, op_id = 9",
    "aten::convolution, seq = 1, sizes = [[8, 3, 32, 32], [16, 3, 3, 3], [16], [], [], []], "
    "dtypes = [float, float, float, , , ], settings = {'stride': [1, 1], 'groups': 1}",
    "{'Module': 'Linear', 'TrainableParams': {'weight': [8, 8]}, 'Inputs': [[1, 8]]}",
    "{'op': 'mm', 'args': [{'name': 'x', 'type': 'tensor', 'shape': (8, 8), 'dtype': 'float32'}]}",
    "{[1]: 2}", "Thunk:#hlo_op=fusion.1,hlo_module=jit_step#", "module layer.0 (Linear)",
    "step #99999999999999999999999",
)  # fmt: skip
_PIECES = (
    "0", "-1", "1e999", "nan", "9223372036854775807", "9223372036854775808", "99999999999999999999",
    "300000000",
    "²", "٣", "\x00", "\x1b[2J", "\n", "<", ">", "(", ")", "{", "}", "[", "]", "'", '"',
    "\\", "é", "\ufffd", "\u202e", ", seq = ", "<script>", "= ", "," * 50, "[" * 200, "A" * 5000,
)  # fmt: skip
_VALUES = (
    "NULL", "'x'", "x'ff'", "1.5", "-1", "0", "9007199254740993", "9223372036854775807",
    "-9223372036854775808", "1e300", "'²'", "2147483648", "-{0}", "{0} * 1000000", "{0} + 1",
)  # fmt: skip


def mutated(text: str, dice: random.Random) -> str:
    """The text with one to four pieces put in, taken out, doubled or exchanged."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randint(0, len(text))
        end = min(len(text), at + dice.randint(0, 12))
        text = text[:at] + dice.choice((*_PIECES, text[at:end] * 2, "")) + text[end:]
    return text


def try_name(dice: random.Random, _folder: Path) -> None:
    """Reads one kernel name in every way that there is."""
    import pandas as pd

    from nsysdoctor.roofline import launch_geometry, taxonomy
    from nsysdoctor.roofline.kernel_names import readable, short_name

    name = mutated(dice.choice(NAMES), dice)
    readable(name)
    launch_geometry.layout_of(name)
    launch_geometry.operand_sizes(name)
    taxonomy.classify(pd.Series([name]), pd.Series([short_name(name)]))


def try_text(dice: random.Random, _folder: Path) -> None:
    """Reads one text of an annotated range and works out what its operator does."""
    from nsysdoctor.roofline.operator_text import read_text, title
    from nsysdoctor.roofline.shape_work import Operand, operator_work

    text = mutated(dice.choice(TEXTS), dice)
    said, number = read_text(text)
    assert -1 <= number < 2**63
    title(text)
    operands = [Operand(shape, 4) for shape in said.sizes]
    work = operator_work(said.name, operands, 4, said.settings)
    assert work is None or 0 <= work.bytes < 2**63


def try_report(dice: random.Random, folder: Path) -> None:
    """Reads a report.json of which one value is another; writes it in every form when accepted."""
    from nsysdoctor.render.markdown import render_markdown
    from nsysdoctor.report.model import read_report

    data = json.loads((folder / "report.json").read_text())
    inner = data
    while isinstance(inner, dict | list) and inner:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = dice.choice(keys)
        if not isinstance(inner[key], dict | list) or dice.random() < 0.1:
            inner[key] = dice.choice((None, -1, 5.0, 10**30, "x\x1b", [], {}, True, float("nan")))
            break
        inner = inner[key]
    render_markdown(read_report(json.dumps(data)), top=5)


def try_export(dice: random.Random, folder: Path) -> None:
    """Reports on an export of which one or two things are another."""
    from nsysdoctor.diagnosis.diagnose import diagnose
    from nsysdoctor.report.model import read_report

    path = folder / "mutated.sqlite"
    shutil.copy(folder / "sound.sqlite", path)
    with sqlite3.connect(path) as db:
        db.text_factory = bytes
        for _ in range(dice.randint(1, 2)):
            _change(db, dice)
    db.close()
    before = path.read_bytes()
    try:
        report = diagnose(path)
    finally:
        assert path.read_bytes() == before, "the export was written to"
    read_report(report.to_json())


def _change(db: sqlite3.Connection, dice: random.Random) -> None:
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = [row[0].decode() for row in found]
    table = dice.choice(tables)
    columns = [row[1].decode() for row in db.execute(f'PRAGMA table_info("{table}")')]
    if not columns:
        return
    column = dice.choice(columns)
    value = dice.choice(_VALUES).format(f'"{column}"')
    if table == "StringIds" and column == "value":
        value = "'" + mutated(dice.choice(NAMES + TEXTS), dice).replace("'", "''") + "'"
        value = value.replace("\x00", "").encode("utf-8", "replace").decode()
    share = dice.choice((1, 2, 50, 10**6))
    statement = dice.choice((
        f'UPDATE "{table}" SET "{column}" = {value} WHERE rowid % {share} = 0',
        f'UPDATE "{table}" SET "{column}" = {value} WHERE rowid = 1',
        f'ALTER TABLE "{table}" DROP COLUMN "{column}"',
        f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "rowid"',
        f'DELETE FROM "{table}" WHERE rowid % {share} = 0', f'DROP TABLE "{table}"',
    ))  # fmt: skip
    try:
        db.execute(statement)
    except sqlite3.Error:
        return


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "name": try_name, "text": try_text, "report": try_report, "export": try_export,
}  # fmt: skip


def prepare(folder: Path) -> None:
    """Writes the sound export and report that are mutated."""
    from nsysdoctor.diagnosis.diagnose import diagnose
    from sample_traces import record, write

    write(record("sync_in_loop"), folder / "sound.sqlite")
    (folder / "report.json").write_text(diagnose(folder / "sound.sqlite").to_json())


def attempt(kind: str, seed: int, folder: Path) -> str | None:
    """Tries one seed of a kind; returns what failed, None when all is well."""
    try:
        KINDS[kind](random.Random(f"{kind} {seed}"), folder)
    except NsysDoctorError:
        return None
    except Exception as error:
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return f"{kind} {seed}: {type(error).__name__}: {str(error)[:120]} ({where})"
    return None


def seeds(first: int, minutes: float) -> Iterator[tuple[str, int]]:
    """A kind and a seed after another until the time is over: most of what is quick."""
    shares = ("name",) * 20 + ("text",) * 20 + ("report",) * 5 + ("export",)
    until, seed = time.monotonic() + minutes * 60, first
    while time.monotonic() < until:
        yield shares[seed % len(shares)], seed
        seed += 1


def main() -> int:
    """Tries seeds and prints what failed; returns 1 when anything did."""
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    words.add_argument("--minutes", type=float, default=1.0)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--kind", choices=sorted(KINDS))
    chosen = words.parse_args()
    warnings.simplefilter("error")
    tried, failed, slowest = dict.fromkeys(KINDS, 0), 0, (0.0, "")
    with tempfile.TemporaryDirectory() as made:
        prepare(Path(made))
        for kind, seed in seeds(chosen.seed, chosen.minutes):
            if chosen.kind not in (None, kind):
                continue
            began = time.monotonic()
            fault = attempt(kind, seed, Path(made))
            slowest = max(slowest, (time.monotonic() - began, f"{kind} {seed}"))
            tried[kind] += 1
            if fault is not None:
                failed += 1
                print(fault, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"tried {tried}, failed {failed}, slowest {slowest[0]:.1f} s ({slowest[1]}), {peak} MB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
