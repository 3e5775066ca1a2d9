"""The page's answers without a browser: who may ask, what is sent, buttons that are safe."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tether.core.errors import BadValueError
from tether.observe import running
from tether.observe.facts import CopyNow, GatewayNow, Standing
from tether.observe.feed import Feed
from tether.observe.feed_log import FeedLog
from tether.testing.feeds import MadeUpQuery
from tether.ui import serve, serve_directory
from tether.ui.guard import COOKIE
from tether.ui.sources import is_held

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> MadeUpQuery:
    monkeypatch.setattr(running, "_feeds", [])
    made = MadeUpQuery(Feed(), slots=5, began=time.time() - 60)
    running.enlist(made.feed)
    for _ in range(40):
        made.epoch()
    made.fail()
    made.epoch()
    return made


@pytest.fixture
def client(query: MadeUpQuery) -> Iterator[httpx.Client]:
    with (
        serve(port=0, quiet=True, drills=True) as page,
        httpx.Client(base_url=page.address, timeout=30) as client,
    ):
        yield client


def messages(client: httpx.Client, most: int, query: str = "") -> Iterator[tuple[str, Any]]:
    with client.stream("GET", "/api/stream", params={"query": query} if query else {}) as answer:
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))
                most -= 1
                if not most:
                    return


def word_of(client: httpx.Client) -> str:
    text = client.get("/").text
    return text.split('name="tether-word" content="')[1].split('"')[0]


def test_all_first_then_what_is_new(client: httpx.Client, query: MadeUpQuery) -> None:
    stream = messages(client, 2)
    name, whole = next(stream)
    assert name == "whole"
    assert whole["query"]["name"] == "clicks per page"
    assert whole["presence"] == "running"
    assert len(whole["epochs"]) == whole["total"]["epochs"] == 41
    assert whole["failures"][0]["lost"] > 0
    assert len(whole["slots"]["slot"]) == 5
    query.epoch()
    name, news = next(stream)
    assert name == "news"
    assert [one["epoch"] for one in news["epochs"]] == [41]
    assert news["slots"]["epoch"] == 41


def test_copies_and_gateways_are_sent_when_there_are_any(
    client: httpx.Client, query: MadeUpQuery
) -> None:
    copies = (CopyNow(operator="count", slot=1, executor="executor 2", lag=3),)
    gateways = (GatewayNow(name="sensors", pending=5, max_pending=10, unacked=1, max_unacked=4),)
    query.feed.take(Standing(at=1.0, copies=copies, gateways=gateways))
    [(_, whole)] = messages(client, 1)
    assert whole["standing"]["copies"][0]["lag"] == 3
    assert whole["standing"]["gateways"][0]["max_pending"] == 10


def test_a_slots_course(client: httpx.Client) -> None:
    course = client.get("/api/slot", params={"operator": "count", "slot": 3}).json()
    assert len(course["at"]) == len(course["divergence"]) == 41
    assert client.get("/api/slot", params={"operator": "count", "slot": 99}).status_code == 404
    assert client.get("/api/slot", params={"operator": "count", "slot": "x"}).status_code == 400


def test_nothing_is_fetched_from_elsewhere(client: httpx.Client) -> None:
    answer = client.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers
    static = Path(serve.__code__.co_filename).parent / "static"
    for path in static.glob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert "https:" not in text, path
        assert "http:" not in text.replace("http://www.w3.org/2000/svg", ""), path
    assert "MIT" in (static / "vendor" / "uplot.LICENSE").read_text()


def test_other_names_are_refused(client: httpx.Client) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"host": "localhost:1"}).status_code == 200


def test_only_the_page_itself_presses_buttons(client: httpx.Client, query: MadeUpQuery) -> None:
    pressed = []
    query.feed.offer({"snapshot": lambda: pressed.append(1) or "It begins."})  # type: ignore[func-returns-value]
    assert client.post("/api/do/snapshot").status_code == 403
    word = word_of(client)
    elsewhere = {"x-tether-word": word, "origin": "http://evil.example"}
    assert client.post("/api/do/snapshot", headers=elsewhere).status_code == 403
    assert client.get("/api/do/snapshot", headers={"x-tether-word": word}).status_code == 405
    assert pressed == []
    answer = client.post("/api/do/snapshot", headers={"x-tether-word": word})
    assert answer.json() == {"done": "It begins."}
    assert pressed == [1]
    heal = client.post("/api/do/heal", headers={"x-tether-word": word})
    assert heal.status_code == 409
    assert "error" in heal.json()


def test_a_drill_is_asked_for_twice(client: httpx.Client, query: MadeUpQuery) -> None:
    killed = []
    query.feed.offer({"drill": lambda: killed.append(1) or "Killed."})  # type: ignore[func-returns-value]
    headers = {"x-tether-word": word_of(client)}
    asked = client.post("/api/do/drill", headers=headers).json()
    assert "kills" in asked["ask"]
    assert killed == []
    wrong = client.post("/api/do/drill", headers=headers, json={"confirm": "guess"}).json()
    assert "ask" in wrong
    sure = {"confirm": wrong["confirm"]}
    assert client.post("/api/do/drill", headers=headers, json=sure).json() == {"done": "Killed."}
    assert "ask" in client.post("/api/do/drill", headers=headers, json=sure).json()  # once only
    assert killed == [1]


def test_drills_are_off_unless_allowed(query: MadeUpQuery) -> None:
    query.feed.offer({"drill": lambda: "Killed."})
    with serve(port=0, quiet=True) as page, httpx.Client(base_url=page.address) as client:
        [(_, whole)] = messages(client, 1)
        assert whole["actions"] == []
        headers = {"x-tether-word": word_of(client)}
        assert client.post("/api/do/drill", headers=headers).status_code == 409


def test_a_token_where_it_is_asked_for(query: MadeUpQuery) -> None:
    with serve(port=0, token="secret word", quiet=True) as page:
        bare, _, _ = page.address.partition("?")
        with httpx.Client(base_url=bare) as client:
            assert client.get("/").status_code == 401
            assert client.get("/metrics").status_code == 401
            metrics = client.get("/metrics", headers={"authorization": "Bearer secret word"})
            assert metrics.status_code == 200
            welcome = client.get("/", params={"token": "secret word"})
            assert welcome.status_code == 303
            assert welcome.headers["location"] == "/"
            cookie = welcome.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "samesite=strict" in cookie.lower()
            assert client.cookies[COOKIE]
            assert client.get("/").status_code == 200


def test_addresses_beyond_loopback_get_a_token_by_themselves(query: MadeUpQuery) -> None:
    with serve(host="0.0.0.0", port=0, quiet=True) as page:
        assert "?token=" in page.address
        bare = page.address.partition("?")[0].replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(bare).status_code == 401


def test_a_query_that_is_over_says_so(client: httpx.Client, query: MadeUpQuery) -> None:
    stream = messages(client, 2)
    assert next(stream)[1]["presence"] == "running"
    query.feed.close("failed", "the disk is full")
    _, news = next(stream)
    assert (news["presence"], news["ended"]["why"]) == ("failed", "the disk is full")


def test_the_newest_run_of_a_query_is_shown(client: httpx.Client, query: MadeUpQuery) -> None:
    stream = messages(client, 3)
    assert next(stream)[0] == "whole"
    again = MadeUpQuery(Feed(), slots=5, began=time.time(), run="again")
    again.epoch()
    running.enlist(again.feed)
    name, whole = next(stream)
    assert (name, whole["query"]["run"]) == ("whole", "again")


def test_a_directory_of_a_dead_query(tmp_path: Path) -> None:
    feed = Feed()
    log = FeedLog(str(tmp_path), {}, "run", list)
    feed = Feed(log)
    made = MadeUpQuery(feed, slots=2, began=time.time() - 600)
    for _ in range(5):
        made.epoch()
    log.flush(last=True)
    (tmp_path / "lock").touch()
    with (
        serve_directory(str(tmp_path), port=0, quiet=True) as page,
        httpx.Client(base_url=page.address) as client,
    ):
        [(_, whole)] = messages(client, 1)
        assert whole["presence"] == "gone"
        assert len(whole["epochs"]) == 5
        assert whole["actions"] == []


def test_a_lock_is_seen_without_being_touched(tmp_path: Path) -> None:
    import fcntl

    lock = tmp_path / "lock"
    assert is_held(lock) is None
    with lock.open("w") as file:
        assert is_held(lock) is False
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(lock) is True


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match="nothing to show"):
        serve_directory(str(tmp_path), port=0, quiet=True)
