"""Keeps a `Store` in step with the server: lists once, then watches for ever, through every kind of trouble.

It is the only place that turns a stream of events into state; controllers, operator and node all stand on it.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, NoReturn, TypeVar

import msgspec

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import (
    ApiError,
    Expired,
    Silent,
    TooManyRequests,
    Unavailable,
    Unreachable,
    error_from_status,
)
from trainwright.kube.client.requests import Transport
from trainwright.kube.client.responses import ListMeta, Page, Pager
from trainwright.kube.client.retries import backoff
from trainwright.kube.controller.store import Change, Store
from trainwright.objects import Object
from trainwright.objects.resources import Resource

T = TypeVar("T")

log = logging.getLogger(__name__)

_PAGE = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_PRODUCTIVE_SECONDS = 1.0

_LONGEST_ASKED_PAUSE = 60.0
"""The client itself waits for what a server asks of it (Retry-After), up to half a minute, and hands longer times on.
We keep to them up to here, as the work queue does: a question a minute is no burden to anybody, while a store that
stays out of date for an hour because some proxy said so is one."""


class Reflector(Generic[T]):
    """`convert` makes the store's items: a function of the whole object, or a msgspec struct.

    A struct is decoded from the wire directly, which costs a fraction of building the object first. `on_change` is
    called after the store has changed, with the item before and after.
    """

    def __init__(
        self,
        client: Transport,
        resource: Resource,
        store: Store[T],
        *,
        convert: Callable[[Object], T] | type[T],
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        on_change: Callable[[T | None, T | None], None] | None = None,
        watch_seconds: int = 300,
        read_timeout: float = requests.BOOKMARK_TIMEOUT,
    ) -> None:
        self._client = client
        self._resource = resource
        self._store = store
        self._decode = _decoder(resource, convert)
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._on_change = on_change
        self._watch_seconds = watch_seconds
        self._silence_limit = read_timeout
        self._synced = asyncio.Event()
        self._listed = False
        self._refreshes = 0
        self._productive = False
        self._asked_pause = 0.0
        self._round: asyncio.Timeout | None = None
        self._last_complaint = ""

    @property
    def missing(self) -> str:
        """What the store has never held, and what is in the way; empty once it has."""
        if self._synced.is_set():
            return ""
        return self._last_complaint or f"{self._resource.qualified_plural}: not listed yet"

    async def synced(self) -> None:
        """Returns when the store has held everything once."""
        await self._synced.wait()

    async def refresh(self) -> None:
        """Lists again, now. Returns when the store knows all that had happened when this was called, however far the
        watch was behind."""
        self._synced.clear()
        self._listed = False
        self._refreshes += 1
        if self._round is not None:
            self._round.reschedule(asyncio.get_running_loop().time())
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Runs until it is cancelled. Trouble with the server is waited out with growing pauses."""
        fruitless = 0
        while True:
            try:
                async with asyncio.timeout(None) as self._round:
                    await self._list_and_watch()
                    # Whatever the reason why a round has brought nothing: the next one must not follow at once.
                    fruitless = 0 if self._productive else fruitless + 1
                    pause = self._asked_pause + (_pause(fruitless) if fruitless else 0.0)
                    if pause:
                        await asyncio.sleep(pause)
            except TimeoutError:
                fruitless = 0  # it was not the time: somebody wants a fresh list

    async def _list_and_watch(self) -> None:
        """One round, until something ends it."""
        self._productive, self._asked_pause = False, 0.0
        try:
            if not self._listed:
                await self._list()
            await self._watch()
        except Expired as error:
            self._listed = False
            log.info("%s: listing again: %s", self._resource.qualified_plural, error)
        except Silent as error:
            # Half dead, or nothing of the kind has happened since the server started, which then sends no bookmarks
            # either: in both cases the next stream goes on from here.
            log.debug("%s: watching again: %s", self._resource.qualified_plural, error)
            self._productive = True
        except (Unreachable, TooManyRequests, Unavailable) as error:
            self._complain(error)
        except (ApiError, msgspec.DecodeError) as error:
            # Perhaps our version means nothing to the server any more: only a list is sure to lead on.
            self._listed = False
            self._complain(error)

    async def _list(self) -> None:
        pager = Pager(
            self._resource,
            _page_decoder,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=_PAGE,
        )
        asked = self._refreshes
        while pager.request is not None:
            pager.take(await self._client.send(pager.request))
        items = [item for raw in pager.items if (item := self._item(raw)) is not None]
        self._last_complaint = ""
        self._announce(self._store.replace(items, pager.resource_version))
        if asked == self._refreshes:  # else somebody wants to know what has happened since
            self._listed = True
            self._synced.set()

    async def _watch(self) -> None:
        request = requests.watch_request(
            self._resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            resource_version=self._store.last_version,
            # Not all streams of all clients should end in the same second.
            timeout_seconds=int(self._watch_seconds * (1 + random.random())),  # noqa: S311
            bookmarks=True,
            read_timeout=self._silence_limit,
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with aclosing(self._client.stream_lines(request)) as lines:
            async for line in lines:
                self._take(line)
                self._productive, self._last_complaint = True, ""
        if loop.time() - started >= _PRODUCTIVE_SECONDS:
            self._productive = True

    def _take(self, line: bytes) -> None:
        try:
            event = _event_decoder.decode(line)
        except msgspec.DecodeError as error:
            raise Unreachable(f"a watch event that is not JSON: {error}") from error
        match event.type:
            case "ADDED" | "MODIFIED":
                item = self._item(event.object)
                if item is not None:
                    self._announce(self._store.apply(item))
            case "DELETED":
                # The rest of the object need not be readable for this.
                gone = _identified_decoder.decode(event.object).metadata
                self._announce(self._store.remove(gone.key, uid=gone.uid, version=gone.resource_version))
            case "BOOKMARK":
                self._store.advance(_bookmark_decoder.decode(event.object).metadata.resource_version)
            case "ERROR":
                raise error_from_status(msgspec.json.decode(event.object, type=Object))
            case unknown:
                raise Unreachable(f"a watch event of unknown type {unknown!r}")

    def _item(self, raw: msgspec.Raw) -> T | None:
        """None, and a complaint, for an object that cannot be read: one such must not hide all others."""
        try:
            return self._decode(raw)
        except Exception as error:
            key = _identified_decoder.decode(raw).metadata.key
            log.exception("%s %s is left out: %s", self._resource.qualified_plural, key, error)
            return None

    def _announce(self, changes: list[Change[T]]) -> None:
        if self._on_change is not None:
            for before, after in changes:
                self._on_change(before, after)

    def _complain(self, error: Exception) -> None:
        if isinstance(error, ApiError) and error.retry_after:
            self._asked_pause = min(error.retry_after, _LONGEST_ASKED_PAUSE)
        text = f"{self._resource.qualified_plural}: {error}"
        if text != self._last_complaint:
            self._last_complaint = text
            log.warning("%s; trying again", text)


def _pause(fruitless: int) -> float:
    """Seconds after so many rounds that brought nothing."""
    jitter = random.random()  # noqa: S311
    return backoff(fruitless - 1, jitter=jitter, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ListMeta


class _Identity(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identified(msgspec.Struct):
    metadata: _Identity


_page_decoder = msgspec.json.Decoder(Page[msgspec.Raw])
_event_decoder = msgspec.json.Decoder(_Event)
_identified_decoder = msgspec.json.Decoder(_Identified)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)


def _decoder(resource: Resource, convert: Callable[[Object], T] | type[T]) -> Callable[[msgspec.Raw], T]:
    if isinstance(convert, type):
        return msgspec.json.Decoder(convert).decode
    decode = msgspec.json.Decoder(Object).decode

    def whole(raw: msgspec.Raw) -> T:
        obj = decode(raw)
        responses.set_type_meta(resource, obj)
        return convert(obj)

    return whole
