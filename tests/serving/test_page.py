"""The page in a real browser against a real server: what people see, type, click and press."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pytest

from decaf.evaluation import Evaluation, keep_evaluation
from decaf.metrics import Quantile
from serving import PATIENCE, Running, running

HOW = "pip install playwright, and a Chromium from the system (apt install chromium) for the tests of the page"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip(f"there is no Chromium; {HOW}", allow_module_level=True)
pytest.importorskip("playwright.sync_api", reason=f"there is no Playwright; {HOW}")

from playwright.sync_api import (  # noqa: E402
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

expect.set_options(timeout=1000 * PATIENCE)

TEXT = "topic aa"  # belongs to L0
HOSTILE = '<img src="x" onerror="window.hacked=1"><script>window.hacked=1</script>'
TELL = "addEventListener('securitypolicyviolation', (event) => console.error('barred: ' + event.blockedURI))"


class Visit(Protocol):
    """Opens the page in a browser of its own; refusals are statuses that this test provokes, 0 for no answer."""

    def __call__(self, server: Running, state: str = "", *, refusals: tuple[int, ...] = (), **how: Any) -> Page: ...  # noqa: ANN401


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with this module, since its event loop would be in the way of others."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Nothing may ask another address, fail or be barred while the page is open."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def opened(server: Running, state: str = "", *, refusals: tuple[int, ...] = (), **how: Any) -> Page:  # noqa: ANN401
        home = str(server.client.base_url)
        wide = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**wide, **how})
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        context.add_init_script(TELL)
        foreseen = [f"status of {status} " if status else "net::ERR_" for status in refusals]

        def heard(said: ConsoleMessage) -> None:
            if said.type in ("error", "warning") and not any(part in said.text for part in foreseen):
                troubles.append(said.text)

        def asked(request: Request) -> None:
            if not request.url.startswith((f"{home}/", f"blob:{home}/")):
                troubles.append(f"{request.url} was asked for")

        context.on("console", heard)
        context.on("weberror", lambda error: troubles.append(str(error.error)))
        context.on("request", asked)
        page = context.new_page()
        page.goto(f"{home}/{state}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def writable(shared: Running) -> Iterator[Running]:
    """The shared server, whose labels are as before afterwards."""
    before = {label["id"]: label["text"] for label in shared.client.get("/v1/labels?limit=1000").json()["labels"]}
    yield shared
    for line in shared.client.get("/v1/changes").text.splitlines():
        id = json.loads(line)["id"]
        path = f"/v1/labels/{quote(id, safe='')}"
        answer = shared.client.put(path, json={"text": before[id]}) if id in before else shared.client.delete(path)
        assert answer.is_success, answer.text


def the(page: Page | Locator, testid: str) -> Locator:
    return page.locator(f"[data-testid={testid}]")


def answer(page: Page, id: str) -> Locator:
    return page.locator(f".answer[data-id='{id}']")


def ids(rows: Locator) -> list[str]:
    found: list[str] = rows.evaluate_all("(all) => all.map((one) => one.dataset.id)")
    return found


def expect_answers(page: Page, server: Running, text: str) -> list[dict[str, Any]]:
    """Waits until the page shows what the server says about this text -> its labels."""
    labels: list[dict[str, Any]] = server.predict(text)[0]
    expect(page.locator(".answer-text > span:first-child")).to_have_text([label["text"] for label in labels])
    expect(the(page, "score")).to_have_text([percent(label["score"]) for label in labels])
    return labels


def percent(score: float) -> str:
    return "< 0.1 %" if 0 < score < 0.001 else f"{100 * score:.1f} %"


def look_at_first(page: Page) -> Locator:
    """The drawer with the likeliest label."""
    the(page, "details").first.click()
    the(page, "neighbour").first.wait_for()
    return the(page, "drawer")


def colour(page: Page) -> list[int]:
    """The background of the page."""
    written: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return [int(part) for part in re.findall(r"\d+", written)]


def is_dark(page: Page) -> bool:
    return sum(colour(page)[:3]) < 3 * 128


def test_labels_appear_while_one_types_with_bars_as_long_as_their_scores(shared: Running, visit: Visit) -> None:
    page = visit(shared)
    page.locator("#text").press_sequentially(TEXT)
    labels = expect_answers(page, shared, TEXT)
    expect(page.locator("#count")).to_have_text("5 labels")
    length = "(bar) => new DOMMatrix(getComputedStyle(bar, '::after').transform).a"
    shares = [bar.evaluate(length) for bar in the(page, "answer").locator(".bar").all()]
    assert shares == pytest.approx([label["score"] for label in labels], abs=1e-4)


def test_a_server_that_ends_is_waited_for(model: Path, visit: Visit) -> None:
    with running(model) as server:
        page = visit(server, f"#text={quote(TEXT)}", refusals=(0, 503))
        expect(the(page, "answer")).to_have_count(5)
        server.process.kill()
        server.process.wait()
        page.fill("#text", "topic ab")
        expect(the(page, "message")).to_contain_text("The server does not answer; trying again …")
        with running(model, port=server.port):
            expect(the(page, "answer").first).to_contain_text("topic ab")
            expect(the(page, "message")).to_be_hidden()


def test_a_key_is_asked_for_and_kept_for_the_tab(model: Path, visit: Visit) -> None:
    with running(model, read_key="readers", write_key="writers") as server:
        page = visit(server, f"#text={quote(TEXT)}", refusals=(401, 0))
        asked = page.locator("#key-detail")
        expect(asked).to_have_text("The server answers only with a key.")
        expect(page.locator("#key-input")).to_be_focused()
        page.fill("#key-input", "wrong")
        page.keyboard.press("Enter")
        expect(asked).to_contain_text("The key was not accepted")
        page.fill("#key-input", "readers")
        page.keyboard.press("Enter")
        expect(the(page, "answer")).to_have_count(5)
        page.reload()
        expect(the(page, "answer")).to_have_count(5)
        expect(page.locator("#key-dialog")).to_be_hidden()
        page.click("#tab-labels")
        page.fill("#add-id", "new")
        page.fill("#add-text", TEXT)
        page.click("#add-button")
        expect(page.locator("#key-input")).to_be_focused()
        page.keyboard.press("Escape")
        expect(the(page, "message")).to_contain_text("send the key")
        page.click("#add-button")
        page.fill("#key-input", "writers")
        page.keyboard.press("Enter")
        expect(the(page, "message")).to_contain_text("is predicted from now on")
        page.check("#live-only")
        with page.expect_download() as download:
            page.click("#export")
        assert json.loads(download.value.path().read_text(encoding="utf-8"))["id"] == "new"


def test_settings_are_obeyed_and_shared_with_the_address(shared: Running, visit: Visit) -> None:
    page = visit(shared, f"#text={quote(TEXT)}")
    page.fill("#top", "8")
    expect(the(page, "answer")).to_have_count(8)
    page.fill("#tail", "0.9")
    page.wait_for_url("**tail=0.9**")
    again = visit(shared, f"#{page.url.partition('#')[2]}")
    expect(the(again, "answer")).to_have_count(8)
    assert [again.input_value(knob) for knob in ("#text", "#top", "#tail")] == [TEXT, "8", "0.9"]
    assert ids(the(again, "answer")) == shared.ids(TEXT, top=8, tail=0.9)
    again.click("#tail-reset")
    assert "tail" not in again.url
    again.fill("#threshold", "1")
    expect(again.locator("#count")).to_have_text("No label is that likely.")


def test_an_example_can_be_tried_with_a_click(shared: Running, visit: Visit) -> None:
    page = visit(shared)
    example = page.locator("#examples button").first
    text = example.inner_text()
    example.click()
    expect(the(page, "answer").first).to_contain_text(text)
    expect(page.locator("#text")).to_have_value(text)
    expect(page.locator("#examples")).to_be_hidden()


def test_a_model_that_cannot_lean_has_no_knob_for_it(shared: Running, visit: Visit) -> None:
    page = visit(shared)
    page.route("**/v1/model", lambda route: route.fulfill(json={**route.fetch().json(), "tail": None}))
    page.goto(f"{shared.client.base_url}/?#text={quote(TEXT)}&tail=0.5")
    expect(the(page, "answer")).to_have_count(5)
    expect(page.locator("#tail-knob")).to_be_hidden()
    assert ids(the(page, "answer")) == shared.ids(TEXT)


def test_why_marks_the_words_and_takes_the_score_apart(shared: Running, visit: Visit) -> None:
    page = visit(shared, f"#text={quote(TEXT)}")
    the(page, "answer").first.locator(".answer-main").click()
    why = the(page, "why")
    expected = shared.predict(TEXT, explain=True)[0][0]
    expect(the(why, "part").locator("th")).to_have_text(list(expected["parts"]))
    expect(the(why, "part").locator(".figure").first).to_have_text(f"+{expected['parts']['label text']:.2f}")
    assert "".join(the(why, "highlight").all_inner_texts()) == TEXT.replace(" ", "")
    the(page, "answer").first.locator(".answer-main").click()
    expect(why).to_have_count(0)


def test_one_goes_from_label_to_neighbour_and_back(shared: Running, visit: Visit) -> None:
    page = visit(shared, f"#text={quote(TEXT)}")
    drawer = look_at_first(page)
    title = drawer.locator("h2")
    expect(title).to_have_text(TEXT)
    expect(drawer).to_contain_text("In 10 training documents")
    expected = shared.client.get("/v1/labels/L0").json()["neighbours"]
    assert ids(the(drawer, "neighbour")) == [near["id"] for near in expected]
    the(drawer, "neighbour").nth(2).click()
    expect(title).to_have_text(expected[2]["text"])
    page.go_back()
    expect(title).to_have_text(TEXT)
    page.go_back()
    expect(drawer).to_be_hidden()
    page.go_forward()
    expect(title).to_have_text(TEXT)
    the(drawer, "neighbour").first.click()
    expect(title).to_have_text(expected[0]["text"])
    the(drawer, "use-as-text").click()
    expect(drawer).to_be_hidden()
    expect(page.locator("#text")).to_have_value(expected[0]["text"])
    expect(the(page, "answer").first).to_contain_text(expected[0]["text"])


def test_an_added_label_is_predicted_changed_removed_and_brought_back(writable: Running, visit: Visit) -> None:
    page = visit(writable, f"#text={quote(TEXT)}&tab=labels")
    page.fill("#add-id", "new/ü 1")
    page.fill("#add-text", TEXT)
    page.click("#add-button")
    expect(the(page, "message")).to_contain_text(f"“{TEXT}” is predicted from now on.")
    page.click("#tab-try")
    added = answer(page, "new/ü 1")
    expect(the(added, "live-badge")).to_be_visible()
    the(added, "details").click()
    drawer = the(page, "drawer")
    the(drawer, "edit").click()
    the(drawer, "edit-text").fill("topic aa again")
    page.keyboard.press("Enter")
    expect(drawer.locator("h2")).to_have_text("topic aa again")
    expect(added).to_contain_text("topic aa again")
    the(drawer, "hide").click()
    expect(drawer).to_be_hidden()
    expect(added).to_have_count(0)
    assert writable.client.get("/v1/changes").text == ""
    page.get_by_role("button", name="Undo").click()
    expect(added).to_contain_text("topic aa again")


def test_a_trained_label_is_hidden_and_brought_back(writable: Running, visit: Visit) -> None:
    page = visit(writable, f"#text={quote(TEXT)}")
    drawer = look_at_first(page)
    the(drawer, "hide").click()
    expect(the(drawer, "hidden-badge")).to_be_visible()
    expect(answer(page, "L0")).to_have_count(0)
    assert "L0" not in writable.ids(TEXT)
    page.keyboard.press("Escape")
    page.click("#tab-labels")
    page.check("#live-only")
    expect(the(page, "label")).to_have_count(1)
    with page.expect_download() as download:
        page.click("#export")
    change = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert (change["id"], change["text"]) == ("L0", None)
    the(page, "restore").click()
    expect(page.locator("#label-count")).to_have_text("Nothing was changed here yet.")
    page.click("#tab-try")
    expect(answer(page, "L0")).to_be_visible()


def test_labels_are_searched_and_paged(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=labels")
    count = page.locator("#label-count")
    expect(count).to_have_text("1–20 of 24 labels")
    expect(page.locator("#earlier")).to_be_disabled()
    page.click("#later")
    expect(count).to_have_text("21–24 of 24 labels")
    expect(the(page, "label")).to_have_count(4)
    expect(page.locator("#later")).to_be_disabled()
    page.go_back()
    expect(count).to_have_text("1–20 of 24 labels")
    page.fill("#search", "ab")
    expect(count).to_have_text("1 label")
    assert ids(the(page, "label")) == ["L1"]
    the(page, "label").click()
    expect(the(page, "drawer").locator("h2")).to_have_text("topic ab")
    page.fill("#search", "zebra")
    expect(count).to_have_text("No label has these words.")


def test_a_file_comes_back_predicted(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=file&top=3")
    expect(page.locator("#csv-hint")).to_contain_text("Up to 3 labels for each row")
    table = f'n,title\r\n1,"{TEXT}"\r\n2,"a ""b"", c"\r\n'.encode()
    page.set_input_files("#csv-input", {"name": "mine.csv", "mimeType": "text/csv", "buffer": table})
    rows = the(page, "csv-row")
    expect(rows).to_have_count(2)
    expect(rows.first.locator("td").nth(1)).to_have_text(TEXT)
    expect(rows.first.locator("li")).to_have_count(3)
    expect(rows.first.locator("li").first).to_contain_text(TEXT)
    expect(rows.nth(1).locator("td").nth(1)).to_have_text('a "b", c')
    with page.expect_download() as download:
        page.click("#csv-download")
    assert download.value.suggested_filename == "mine-predicted.csv"
    expected = shared.client.post("/v1/predict/csv?top=3", content=table)
    assert download.value.path().read_bytes() == expected.content


def test_a_file_whose_text_is_not_found_can_be_told_its_column(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=file", refusals=(422,))
    table = f"what;ever\n{TEXT};1\n".encode()
    page.set_input_files("#csv-input", {"name": "b.csv", "mimeType": "text/csv", "buffer": table})
    expect(the(page, "message")).to_contain_text("expected a column of the text")
    page.select_option("#csv-column", "what")
    expect(the(page, "csv-row")).to_have_count(1)
    expect(the(page, "csv-row").locator("li").first).to_contain_text(TEXT)


def test_a_file_that_is_too_large_is_not_sent(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=file")
    expect(page.locator("#csv-hint")).to_contain_text("At most 1.05 MB.")
    table = b"text\n" + b"x" * (1 << 20)
    page.set_input_files("#csv-input", {"name": "c.csv", "mimeType": "text/csv", "buffer": table})
    expect(the(page, "message")).to_contain_text("c.csv has 1.05 MB; at most 1.05 MB go at once.")


@pytest.fixture
def judged(shared: Running, model: Path) -> Iterator[Running]:
    """The shared server with an evaluation beside its model, which it has not seen yet."""
    metrics = {"P@1": 71.254, "P@5": 30.0, "PSP@1": 60.5, "ms_per_document": 0.25}
    keep_evaluation(Evaluation("topics", metrics, [Quantile(20, 4.4, 12.5), Quantile(4, 1234.5, 17.5)]), model)
    yield shared
    (model / "evaluation.json").unlink()
    assert shared.client.post("/v1/model/reload").is_success


def test_the_model_panel_tells_what_is_known(judged: Running, visit: Visit) -> None:
    page = visit(judged, "#tab=model")
    panel = page.locator("#panel-model")
    expect(panel.locator("h1")).to_have_text("tiny")
    expect(panel).to_contain_text(f"contrastive recipe, version {judged.version()}")
    expect(panel.locator("dt", has_text="train documents").locator("+ dd")).to_have_text("240")
    expect(panel).to_contain_text("No test documents were judged with this model; decaf evaluate does.")
    expect(the(page, "quantiles")).to_have_count(0)
    page.click("#reload")
    expect(the(page, "message")).to_contain_text(f"Version {judged.version()} is in use.")
    expect(the(page, "metrics").locator("thead th")).to_have_text(["per cent", "@1", "@5"])
    rows = [row.split() for row in the(page, "metrics").locator("tbody tr").all_inner_texts()]
    assert rows == [["P", "precision", "71.25", "30.00"], ["PSP", "propensity-scored", "precision", "60.50"]]
    expect(panel.locator("dt", has_text="ms per document").locator("+ dd")).to_have_text("0.25")
    expect(the(page, "quantiles").locator(".value")).to_have_text(["12.5", "17.5"])
    expect(the(page, "quantiles").locator(".range")).to_have_text(["≈ 4.4", "≈ 1,235"])
    expect(the(page, "quantiles").locator(".note")).to_have_text(["20 labels", "4 labels"])


def test_the_answer_time_is_kept_up_to_date(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=model")
    the(page, "latency").wait_for()
    shared.predict(TEXT)
    count = shared.client.get("/v1/model").json()["latency_ms"]["count"]
    expect(the(page, "latency")).to_contain_text(f"Over the last {count:,} request")


@pytest.mark.parametrize("preferred", ["light", "dark"])
def test_the_theme_is_the_preferred_one_until_another_is_chosen(shared: Running, visit: Visit, preferred: str) -> None:
    page = visit(shared, color_scheme=preferred)
    assert is_dark(page) == (preferred == "dark")
    page.click("#theme")
    assert is_dark(page) == (preferred == "light")
    page.reload()
    assert is_dark(page) == (preferred == "light")


def test_nothing_is_wider_than_a_small_phone(writable: Running, visit: Visit) -> None:
    long = "W" * 120
    assert writable.client.put(f"/v1/labels/{'i' * 80}", json={"text": f"{TEXT} {long}"}).status_code == 201
    page = visit(writable, f"#text={quote(TEXT)} {long}", viewport={"width": 360, "height": 640}, is_mobile=True)

    def fits() -> None:
        wide = "[document.documentElement, document.body].map((one) => one.scrollWidth)"
        assert page.evaluate(wide) == [360, 360]
        assert page.evaluate("innerWidth") == 360

    the(page, "answer").first.locator(".answer-main").click()
    the(page, "why").wait_for()
    fits()
    the(page, "details").first.click()
    the(page, "neighbour").first.wait_for()
    fits()
    assert the(page, "drawer").evaluate("(drawer) => drawer.scrollWidth <= drawer.clientWidth")
    the(page, "drawer").get_by_label("Close").click()
    page.click("#tab-labels")
    page.fill("#search", long)
    expect(the(page, "label")).to_have_count(1)
    fits()
    page.click("#tab-file")
    table = f"n,note,text\n1,{long},{TEXT}\n".encode()
    page.set_input_files("#csv-input", {"name": f"{long}.csv", "mimeType": "text/csv", "buffer": table})
    the(page, "csv-row").wait_for()
    fits()
    page.click("#tab-model")
    the(page, "latency").wait_for()
    fits()


def test_the_keyboard_alone_does_it(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=model")
    the(page, "latency").wait_for()
    keys = page.keyboard
    keys.press("/")
    expect(page.locator("#text")).to_be_focused()
    keys.type(f"{TEXT}/ab")  # in the text, / is a character
    expect_answers(page, shared, f"{TEXT}/ab")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    second = the(page, "answer").nth(1)
    expect(second.locator(".answer-main")).to_be_focused()
    keys.press("Enter")
    expect(the(second, "why")).to_be_visible()
    expect(second.locator(".answer-main")).to_be_focused()
    keys.press("Tab")
    expect(the(second, "details")).to_be_focused()
    keys.press("Enter")
    expect(the(page, "drawer")).to_be_focused()
    keys.press("Tab")
    expect(the(page, "drawer").get_by_label("Close")).to_be_focused()
    keys.press("Escape")
    expect(the(page, "drawer")).to_be_hidden()
    expect(the(second, "details")).to_be_focused()
    keys.press("ArrowUp")
    keys.press("ArrowUp")
    expect(page.locator("#text")).to_be_focused()
    page.locator("#tab-try").focus()
    for tab in ("labels", "file", "model", "try"):
        keys.press("ArrowRight")
        expect(page.locator(f"#tab-{tab}")).to_be_focused()
        expect(page.locator(f"#panel-{tab}")).to_be_visible()
    keys.press("ArrowLeft")
    expect(page.locator("#tab-model")).to_have_attribute("aria-selected", "true")


def test_text_is_never_read_as_html(writable: Running, visit: Visit) -> None:
    bad = f"{TEXT} {HOSTILE}"
    assert writable.client.put(f"/v1/labels/{quote(HOSTILE, safe='')}", json={"text": bad}).status_code == 201
    page = visit(writable, f"#text={quote(bad)}")
    added = the(page, "answer").filter(has_text=bad)
    added.locator(".answer-main").click()
    expect(the(page, "why").locator(".marked")).to_have_text(bad)
    the(added, "details").click()
    expect(the(page, "drawer").locator("h2")).to_have_text(bad)
    the(page, "hide").click()
    expect(the(page, "message")).to_contain_text(bad)
    page.get_by_role("button", name="Undo").click()
    page.click("#tab-labels")
    page.fill("#search", bad)
    expect(the(page, "label")).to_have_text([re.compile(re.escape(bad))])
    page.click("#tab-file")
    table = f"<b>n</b>,text\n{HOSTILE},{TEXT}\n".replace('"', "").encode()
    page.set_input_files("#csv-input", {"name": "<b>a.csv", "mimeType": "text/csv", "buffer": table})
    expect(the(page, "csv-row").locator("td").first).to_have_text(HOSTILE.replace('"', ""))
    assert page.evaluate("window.hacked") is None
    expect(page.locator("main :is(img, script, b), aside :is(img, script), #message img")).to_have_count(0)


def test_what_is_being_typed_outlives_a_change_of_the_labels(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#tab=labels")
    page.evaluate("""() => {
        const search = document.querySelector("#search");
        search.value = "ab";
        search.dispatchEvent(new Event("input"));
        document.dispatchEvent(new Event("labels-changed")); // before the typed text is looked for
    }""")
    expect(the(page, "label")).to_have_text([re.compile("topic ab")])
    expect(page.locator("#search")).to_have_value("ab")


def test_a_label_that_is_not_there_is_told(shared: Running, visit: Visit) -> None:
    page = visit(shared, "#label=nope", refusals=(404,))
    expect(the(page, "message")).to_contain_text("there is no label 'nope'")
    expect(the(page, "drawer")).to_be_hidden()
