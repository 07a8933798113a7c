"""Markers of a PyTorch loop, read back through torch's own profiler; formulas against torch's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nsysdoctor.roofline.operator_text import MODULE, Annotation, read_text
from nsysdoctor.roofline.shape_work import Operand, operator_work
from nsysdoctor.torch import Range, attached, capture, marks, shapes, step, steps
from nsysdoctor.torch.marks import LOADING

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(autouse=True)
def fresh_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test counts its steps from 0 and runs under no tool."""
    monkeypatch.setattr(marks, "_LOOP", marks._Loop())
    for name in marks._SIGNS:
        monkeypatch.delenv(name, raising=False)
    marks.tool_attached.cache_clear()
    yield
    marks.tool_attached.cache_clear()


def recorded(body: Callable[[], object]) -> list[tuple[str, int, int]]:
    """The ranges that torch's profiler takes while a body runs: text, start, end, by start."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        body()
    found = [
        (event.name(), event.start_ns(), event.end_ns())
        for event in profile.profiler.kineto_results.events()
        if event.is_user_annotation()
    ]
    return sorted(found, key=lambda row: (row[1], -row[2]))


def nests(rows: list[tuple[str, int, int]]) -> bool:
    """Whether no two ranges overlap in part."""
    open_ends: list[int] = []
    for _, start, end in rows:
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return False
        open_ends.append(end)
    return True


def texts(rows: list[tuple[str, int, int]]) -> list[str]:
    return [text for text, _, _ in rows]


def test_steps_hold_the_body_and_the_wait_for_the_next_item() -> None:
    def loop() -> None:
        for item in steps(["a", "b"]):
            with Range(f"body {item}"):
                pass

    rows = recorded(loop)
    assert texts(rows) == [
        LOADING, "step 0", "body a", LOADING, "step 1", "body b", LOADING,
    ]  # fmt: skip
    assert nests(rows)
    assert rows[2][2] <= rows[3][1] <= rows[3][2] <= rows[1][2]


def test_steps_hand_out_every_item() -> None:
    assert list(steps(range(5))) == [0, 1, 2, 3, 4]
    assert list(steps([])) == []
    assert len(steps([None, None])) == 2
    assert list(steps([None, None])) == [None, None]


def test_a_loop_that_is_left_closes_its_step() -> None:
    def loop() -> None:
        for item in steps(range(9)):
            if item == 1:
                break
        with Range("after"):
            pass

    rows = recorded(loop)
    assert texts(rows) == [LOADING, "step 0", LOADING, "step 1", "after"]
    assert nests(rows)
    assert rows[3][2] <= rows[4][1]


def test_steps_count_on_over_loops() -> None:
    def loops() -> None:
        list(steps([1, 2]))
        with step("evaluation") as number:
            assert number == 2
        list(steps([3], name="train"))

    named = [text for text in texts(recorded(loops)) if text != LOADING]
    assert named == ["step 0", "step 1", "evaluation 2", "train 3"]


def test_a_failing_step_is_closed() -> None:
    def fail() -> None:
        with pytest.raises(ZeroDivisionError), step():
            raise ZeroDivisionError
        with step():
            pass

    rows = recorded(fail)
    assert texts(rows) == ["step 0", "step 1"]
    assert nests(rows)


class Net(torch.nn.Module):
    """One module of each kind whose work the reader knows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(16, 8), torch.nn.Linear(8, 3)])
        self.filter = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)

    def forward(self, index: Any, image: Any = None) -> Any:
        data = self.norm(self.table(index))
        for layer in self.layers:
            data = layer(data)
        return data.sum() + self.filter(image).sum()


INDEX, IMAGE = torch.zeros(5, 7, dtype=torch.int64), torch.zeros(2, 4, 10, 12)


def marked_modules(net: Any) -> dict[str, Annotation]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        pass  # the first profile of a process is slow; keep it out of the next one

    def run() -> None:
        with shapes(net):
            net(INDEX, image=IMAGE)

    rows = recorded(run)
    assert nests(rows)
    said = [read_text(text)[0] for text in texts(rows)]
    assert all(one.kind == MODULE for one in said)
    return {one.module: one for one in said}


def test_modules_are_marked_with_path_class_shapes_and_types() -> None:
    said = marked_modules(Net())
    assert list(said) == ["", "table", "norm", "layers.0", "layers.1", "filter"]
    assert said[""].name == "Net"
    assert said[""].sizes == ((5, 7), (2, 4, 10, 12))
    assert said[""].dtypes == ("int64", "float32")
    assert said["layers.1"].sizes == ((5, 7, 8),)
    assert said["filter"].settings["stride"] == [2, 2]


def test_a_module_tells_the_work_of_its_operator() -> None:
    said = marked_modules(Net())
    work = {}
    for name in ("table", "norm", "layers.0", "filter"):
        operator = said[name].as_operator()
        assert operator is not None
        sizes = [8 if name == "table" and place else 4 for place in range(len(operator.sizes))]
        operands = [Operand(s, i) for s, i in zip(operator.sizes, sizes, strict=True)]
        work[name] = operator_work(operator.name, operands, 4, operator.settings)
    assert work["table"].bytes == 35 * (8 + 2 * 16 * 4)
    assert work["norm"].bytes == 4 * (2 * 35 * 16 + 2 * 16)
    assert work["layers.0"].flops == 2 * 35 * 16 * 8 + 35 * 8
    # 5x6 results of 6 channels in 2 images, each from 2 channels of 3x3
    assert work["filter"].flops == 2 * (2 * 6 * 5 * 6) * (2 * 3 * 3)


def test_ranges_nest_after_a_module_fails() -> None:
    class Failing(torch.nn.Module):
        def forward(self, data: Any) -> Any:
            raise ValueError("out of luck")

    net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(Failing()))

    def run() -> None:
        with shapes(net):
            for _ in range(2):
                with pytest.raises(ValueError, match="out of luck"):
                    net(torch.zeros(1))
        with Range("after"):
            pass

    rows = recorded(run)
    names = [read_text(text)[0].module for text in texts(rows)]
    assert names == ["", "0", "1", "1.0"] * 2 + [""]
    assert nests(rows)
    assert rows[-2][2] <= rows[-1][1]


def test_marks_leave_the_model_when_the_block_ends() -> None:
    net = Net()

    def run() -> None:
        with shapes(net) as marked:
            assert marked.count == 7
        net(INDEX, image=IMAGE)

    assert recorded(run) == []
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_without_a_profiler_the_model_is_left_alone() -> None:
    net = Net()
    assert not attached()
    with shapes(net) as marked:
        assert marked.count == 0
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    with shapes(net, always=True) as marked:
        assert marked.count == 7
        net(INDEX, image=IMAGE)


def test_marks_do_next_to_nothing_without_a_profiler() -> None:
    """Counted in calls: how long they take depends on what else the machine does."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        for _ in steps(range(1000)):
            pass
    finally:
        sys.setprofile(None)
    assert calls < 200 * 1000


class Tool:
    """What a process under nsys on a GPU would call, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        monkeypatch.setenv("NVTX_INJECTION64_PATH", "/somewhere/libToolsInjection64.so")
        marks.tool_attached.cache_clear()
        monkeypatch.setattr(marks, "cuda_there", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: self.seen.append("synchronize"))
        monkeypatch.setattr(torch.cuda.profiler, "start", lambda: self.seen.append("start"))
        monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: self.seen.append("stop"))
        monkeypatch.setattr(torch.cuda.nvtx, "range_push", self.seen.append)
        monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: self.seen.append("pop"))


def test_capture_switches_the_profiler_around_whole_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool = Tool(monkeypatch)
    capture(start=1, steps=2)
    for _ in range(5):
        with step():
            pass
    assert tool.seen == [
        "step 0", "pop",
        "synchronize", "start", "step 1", "pop", "step 2", "pop", "synchronize", "stop",
        "step 3", "pop", "step 4", "pop",
    ]  # fmt: skip


def test_capture_without_a_tool_touches_no_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool(monkeypatch)
    monkeypatch.setattr(marks, "cuda_there", lambda: False)
    capture(start=0, steps=1)
    list(steps(range(3)))
    assert tool.seen == []


@pytest.mark.parametrize(("start", "count"), [(-1, 3), (2, 0)])
def test_a_capture_of_no_step_is_refused(start: int, count: int) -> None:
    with pytest.raises(ValueError, match="holds no step"):
        capture(start=start, steps=count)


def test_under_nsys_operators_are_marked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool(monkeypatch)
    entered: list[str] = []

    class Emitter:
        def __init__(self, record_shapes: bool) -> None:
            entered.append(f"shapes {record_shapes}")

        def __enter__(self) -> None:
            entered.append("enter")

        def __exit__(self, *_: object) -> None:
            entered.append("exit")

    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", Emitter)
    with shapes(torch.nn.Linear(2, 3)) as marked:
        assert marked.count == 1
        assert entered == ["shapes True", "enter"]
        torch.nn.functional.relu(torch.zeros(1))
    assert entered[-1] == "exit"
    assert tool.seen == []


def test_nothing_imports_torch_before_it_is_used() -> None:
    code = (
        "import sys, nsysdoctor, nsysdoctor.torch, nsysdoctor.commands, nsysdoctor.cli;"
        "from nsysdoctor.trace.trace import table_recipes; table_recipes();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _zeros(*shapes: tuple[int, ...]) -> list[Any]:
    return [torch.zeros(shape, requires_grad=True) for shape in shapes]


CONVOLUTIONS = [
    ((2, 4, 10, 12), (6, 2, 3, 3), {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2],
                                    "groups": 2}),
    ((2, 4, 9), (6, 4, 5), {"stride": [1], "padding": [2], "dilation": [1], "groups": 1}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {"stride": [2, 2, 2], "padding": [0, 1, 0],
                                        "dilation": [1, 1, 1], "groups": 1}),
    ((2, 4, 7, 7), (4, 3, 3, 3), {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],
                                  "groups": 1, "transposed": True, "output_padding": [0, 1]}),
    ((2, 4, 7, 7), (4, 3, 3, 3), {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],
                                  "groups": 2, "transposed": True, "output_padding": [1, 1]}),
]  # fmt: skip


def counted(body: Callable[[], object]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        body()
    return int(counter.get_total_flops())


def worked(operator: str, shapes: list[tuple[int, ...]], **settings: Any) -> int:
    work = operator_work(operator, [Operand(shape, 4) for shape in shapes], 4, settings)
    assert work is not None
    return work.flops


@pytest.mark.parametrize(
    ("operator", "shapes", "addition"),
    [
        ("mm", [(3, 5), (5, 7)], 0),
        ("addmm", [(7,), (3, 5), (5, 7)], 21),  # torch does not count adding the bias
        ("bmm", [(4, 3, 5), (4, 5, 7)], 0),
        ("baddbmm", [(4, 3, 7), (4, 3, 5), (4, 5, 7)], 84),
    ],
)
def test_products_count_as_torch_counts(
    operator: str, shapes: list[tuple[int, ...]], addition: int
) -> None:
    tensors = _zeros(*shapes)
    assert worked(operator, shapes) - addition == counted(
        lambda: getattr(torch, operator)(*tensors)
    )


@pytest.mark.parametrize(("data", "weight", "settings"), CONVOLUTIONS)
def test_convolutions_count_as_torch_counts(
    data: tuple[int, ...], weight: tuple[int, ...], settings: dict[str, Any]
) -> None:
    one, other = _zeros(data, weight)
    plain = {key: settings[key] for key in ("stride", "padding", "dilation", "groups")}
    axes = len(data) - 2
    kind = "conv_transpose" if settings.get("transposed") else "conv"
    if settings.get("transposed"):
        plain["output_padding"] = settings["output_padding"]
    function = getattr(torch.nn.functional, f"{kind}{axes}d")
    result = function(one, other, **plain)
    forward = counted(lambda: function(one, other, **plain))
    assert worked("convolution", [data, weight], **settings) == forward
    if settings["groups"] > 1:
        return  # torch counts the weight's gradient of a grouped convolution once per group
    # both gradients together; each kernel makes one of them
    gradient = tuple(result.shape)
    backward = counted(lambda: function(one, other, **plain).sum().backward()) - forward
    shapes = [gradient, data, weight]
    assert 2 * worked("convolution_backward", shapes, **settings) == backward


def test_attention_counts_as_torch_counts() -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    query, key = (2, 4, 16, 8), (2, 4, 24, 8)
    forward = sdpa_flop_count(query, key, key)
    assert worked("_scaled_dot_product_flash_attention", [query, key, key]) == forward
    backward = sdpa_backward_flop_count(query, query, key, key)
    shapes = [query, query, key, key]
    assert worked("_scaled_dot_product_flash_attention_backward", shapes) == backward


def test_ranges_of_a_compiled_model_do_no_harm() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    compiled = torch.compile(net, backend="eager")

    def run() -> Any:
        with shapes(compiled, always=True):
            return compiled(torch.ones(2, 4))

    wanted = net(torch.ones(2, 4))
    found: list[Any] = []
    recorded(lambda: found.append(run()))
    assert torch.equal(found[0], wanted)
