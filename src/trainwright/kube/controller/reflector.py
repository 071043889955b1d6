"""Keeps a `Store` up to date with the API server: list, then watch, with back-off after errors.

With its store and `on_change` it is what client-go calls an informer.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, NoReturn, TypeVar, Unpack, cast

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
from trainwright.kube.client.requests import Selection, Transport
from trainwright.kube.client.responses import ListMeta, Page, Pager
from trainwright.kube.client.retries import backoff
from trainwright.kube.controller.store import Change, Store
from trainwright.objects import Object
from trainwright.objects.metadata import Identity
from trainwright.objects.resources import Resource

T = TypeVar("T")

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 30.0
_SHORT_WATCH_SECONDS = 1.0

_LONGEST_RETRY_AFTER = 60.0
"""The client honours a Retry-After of up to half a minute itself and raises longer ones. They are honoured up to this
limit: a request a minute is no burden, but a store must not be outdated for an hour because a proxy asked for it."""


class Reflector(Generic[T]):
    """`convert` makes the items of the store: a function of the whole object, or a msgspec struct, which costs less
    because it is decoded from the response directly. Without it they are the whole objects.

    `on_change` is called after the store has changed, with the item before and after.
    """

    def __init__(
        self,
        client: Transport,
        resource: Resource,
        store: Store[T],
        *,
        convert: Callable[[Object], T] | type[T] | None = None,
        on_change: Callable[[T | None, T | None], None] | None = None,
        watch_seconds: int = 300,
        read_timeout: float = requests.BOOKMARK_TIMEOUT,
        **selection: Unpack[Selection],
    ) -> None:
        self._client = client
        self._resource = resource
        self._store = store
        self._decode = _decoder(resource, convert)
        self._selection = selection
        self._on_change = on_change
        self._watch_seconds = watch_seconds
        self._silence_limit = read_timeout
        self._synced = asyncio.Event()
        self._listed = False
        self._relists = 0
        self._progressed = False
        self._retry_after = 0.0
        self._attempt: asyncio.Timeout | None = None
        self._last_error = ""

    @property
    def sync_error(self) -> str:
        """Why the resource has not been listed yet; empty once it has."""
        if self._synced.is_set():
            return ""
        return self._last_error or f"{self._resource.qualified_plural}: not listed yet"

    async def wait_for_sync(self) -> None:
        """Returns when the store has held a complete list."""
        await self._synced.wait()

    async def relist(self) -> None:
        """Lists again. Returns when the store contains all changes from before this call, even if the watch is
        behind."""
        self._synced.clear()
        self._listed = False
        self._relists += 1
        if self._attempt is not None:
            self._attempt.reschedule(asyncio.get_running_loop().time())
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Runs until it is cancelled. Errors are retried with back-off."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(None) as self._attempt:
                    await self._list_and_watch()
                    # After an attempt without progress, the next one must not follow immediately.
                    failures = 0 if self._progressed else failures + 1
                    delay = self._retry_after + (_delay(failures) if failures else 0.0)
                    if delay:
                        await asyncio.sleep(delay)
            except TimeoutError:
                failures = 0  # `relist` was called

    async def _list_and_watch(self) -> None:
        self._progressed, self._retry_after = False, 0.0
        try:
            if not self._listed:
                await self._list()
            await self._watch()
        except Expired as error:
            self._listed = False
            log.info("%s: listing again: %s", self._resource.qualified_plural, error)
        except Silent as error:
            # The connection is dead, or the server has no change of this resource to send bookmarks about. In both
            # cases the next watch continues from here.
            log.debug("%s: watching again: %s", self._resource.qualified_plural, error)
            self._progressed = True
        except (Unreachable, TooManyRequests, Unavailable) as error:
            self._log_error(error)
        except (ApiError, msgspec.DecodeError) as error:
            # The server may no longer accept our resourceVersion. A list needs none.
            self._listed = False
            self._log_error(error)

    async def _list(self) -> None:
        pager = Pager(self._resource, _page_decoder, **self._selection)
        relists = self._relists
        while pager.request is not None:
            pager.take(await self._client.send(pager.request))
        items = [item for raw in pager.items if (item := self._convert(raw)) is not None]
        self._last_error = ""
        self._notify(self._store.replace(items, pager.resource_version))
        if relists == self._relists:  # else `relist` was called while this list was read
            self._listed = True
            self._synced.set()

    async def _watch(self) -> None:
        request = requests.watch_request(
            self._resource,
            resource_version=self._store.last_version,
            # Jitter, so that not all watches end at the same time.
            timeout_seconds=int(self._watch_seconds * (1 + random.random())),  # noqa: S311
            bookmarks=True,
            read_timeout=self._silence_limit,
            **self._selection,
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with aclosing(self._client.stream_lines(request)) as lines:
            async for line in lines:
                self._handle(line)
                self._progressed, self._last_error = True, ""
        if loop.time() - started >= _SHORT_WATCH_SECONDS:
            self._progressed = True

    def _handle(self, line: bytes) -> None:
        try:
            event = _event_decoder.decode(line)
        except msgspec.DecodeError as error:
            raise Unreachable(f"watch event is not JSON: {error}") from error
        match event.type:
            case "ADDED" | "MODIFIED":
                item = self._convert(event.object)
                if item is not None:
                    self._notify(self._store.apply(item))
            case "DELETED":
                # The rest of the object need not be readable for this.
                deleted = _identified_decoder.decode(event.object).metadata
                self._notify(
                    self._store.remove(deleted.namespaced_name, uid=deleted.uid, version=deleted.resource_version)
                )
            case "BOOKMARK":
                self._store.advance(_bookmark_decoder.decode(event.object).metadata.resource_version)
            case "ERROR":
                raise error_from_status(msgspec.json.decode(event.object, type=Object))
            case unknown:
                raise Unreachable(f"watch event of unknown type {unknown!r}")

    def _convert(self, raw: msgspec.Raw) -> T | None:
        """None for an object that cannot be decoded: the error is logged and the other objects are stored."""
        try:
            return self._decode(raw)
        except Exception as error:
            key = _identified_decoder.decode(raw).metadata.namespaced_name
            log.exception("cannot decode %s %s: %s", self._resource.qualified_plural, key, error)
            return None

    def _notify(self, changes: list[Change[T]]) -> None:
        if self._on_change is not None:
            for before, after in changes:
                self._on_change(before, after)

    def _log_error(self, error: Exception) -> None:
        if isinstance(error, ApiError) and error.retry_after:
            self._retry_after = min(error.retry_after, _LONGEST_RETRY_AFTER)
        text = f"{self._resource.qualified_plural}: {error}"
        if text != self._last_error:
            self._last_error = text
            log.warning("%s; trying again", text)


def _delay(failures: int) -> float:
    jitter = random.random()  # noqa: S311
    return backoff(failures - 1, jitter=jitter, first=_FIRST_DELAY, longest=_LONGEST_DELAY)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ListMeta


class _Identified(msgspec.Struct):
    metadata: Identity


_page_decoder = msgspec.json.Decoder(Page[msgspec.Raw])
_event_decoder = msgspec.json.Decoder(_Event)
_identified_decoder = msgspec.json.Decoder(_Identified)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)


def _decoder(resource: Resource, convert: Callable[[Object], T] | type[T] | None) -> Callable[[msgspec.Raw], T]:
    if isinstance(convert, type):
        return msgspec.json.Decoder(convert).decode
    decode = msgspec.json.Decoder(Object).decode

    def whole(raw: msgspec.Raw) -> T:
        obj = decode(raw)
        responses.set_type_meta(resource, obj)
        return cast("T", obj) if convert is None else convert(obj)

    return whole
