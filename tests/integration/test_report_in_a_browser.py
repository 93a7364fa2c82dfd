"""The page of a report in a real browser: it draws, asks nobody for anything, and fits a desk, a hand and paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.results import write_results

from cutlayer.common.files import write_json
from cutlayer.report import report

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine", allow_module_level=True)

DRAWN = """() => [...document.querySelectorAll(".canvas")].filter(one => !one.closest("[hidden]"))
    .every(one => one.querySelector(".main-svg .scatterlayer .trace"))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def sweep_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of five runs, one with names that look like HTML."""
    folder = tmp_path_factory.mktemp("sweep")
    evil = "<script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
    defenses: dict[str, Any] = {
        "none": "none",
        "weak": {"name": "iso", "t": 1},
        "strong": {"name": "iso", "t": 25},
        "marvell": {"name": "marvell", "max_leak_auc": 0.6},
        "evil": {"name": evil},
    }
    for place, (name, defense) in enumerate(defenses.items()):
        write_results(folder / "runs" / name, defense=defense, utility=0.9 - place / 50, leak=0.95 - place / 10)
    runs = {name: {"label_party.defense": defense} for name, defense in defenses.items()}
    write_json(folder / "sweep.json", {"schema": 1, "runs": runs})
    report([folder], folder / "page.html")
    return folder / "page.html"


class Visit:
    """A page that is open, and what it said and asked for."""

    def __init__(self, browser: Any, file: Path, width: int) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_function(DRAWN, timeout=60_000)

    def figures(self) -> list[str]:
        """Names of the figures that are drawn."""
        names = ".map(one => one.dataset.figure)"
        found: list[str] = self.page.evaluate(f'[...document.querySelectorAll(".js-plotly-plot")]{names}')
        return found

    def require_quiet(self, file: Path) -> None:
        """Nothing was said, and nothing asked for but the page itself."""
        assert self.said == []
        assert [url for url in self.asked if url != file.as_uri() and not url.startswith(("data:", "blob:"))] == []


_COURSES = ("course-flipped", "course-utility", "divergence", "leak-cut", "leak-first", "power")


def figures_of(run: str) -> list[str]:
    kinds = ("norms", "projection")
    of_gradients = [f"{run}-0-{kind}-{which}" for kind in kinds for which in ("exact", "perturbed")]
    return [*of_gradients, *(f"{run}-{name}" for name in _COURSES)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("width", [1280, 390])
def test_page_draws_every_figure_and_fits(browser: Any, sweep_page: Path, width: int) -> None:
    visit = Visit(browser, sweep_page, width)
    assert sorted(visit.figures()) == sorted(["plane", *figures_of("run0")])
    assert visit.page.evaluate("document.documentElement.scrollWidth") == width
    boxes = visit.page.evaluate(
        '[...document.querySelectorAll(".js-plotly-plot .main-svg")].map(one => one.getBoundingClientRect().right)'
    )
    assert max(boxes) <= width
    visit.require_quiet(sweep_page)


@pytest.mark.timeout(240)
def test_another_run_can_be_chosen_and_the_table_sorted(browser: Any, sweep_page: Path) -> None:
    visit = Visit(browser, sweep_page, 1280)
    visit.page.select_option("#run", label="evil")
    visit.page.wait_for_function(DRAWN)
    assert set(figures_of("run4")) <= set(visit.figures())
    visit.page.click("th button:text('Test AUC')")
    first = visit.page.inner_text("table.sortable tbody tr:first-child td:first-child")
    assert first == "evil"  # the least utility
    visit.require_quiet(sweep_page)


@pytest.mark.timeout(240)
def test_page_can_be_printed(browser: Any, sweep_page: Path) -> None:
    visit = Visit(browser, sweep_page, 1280)
    printed: bytes = visit.page.pdf(prefer_css_page_size=True, print_background=True)
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= 3
    visit.require_quiet(sweep_page)
