"""The contenders: this SDK, what people use today, and the machine's limits."""

from __future__ import annotations

from benchmarks._peers import Peer

CODAT = ("codat-lending==12.0.0", "codat-platform==6.0.0", "codat-accounting==0.35.0")
DLT = ("dlt==1.31.0",)
HTTPX = ("httpx==0.28.1",)

# Readers of a long list

SDK = Peer("integration_sdk", "sdk_streaming")
RAW_SOCKET = Peer("raw socket + msgspec", "raw_socket")
SERVER = Peer("receive only", "receive_only")
AIOHTTP_MSGSPEC = Peer("aiohttp + msgspec", "aiohttp_msgspec")
AIOHTTP = Peer("aiohttp + json", "aiohttp_json")
HTTPX_JSON = Peer("httpx", "httpx_json", HTTPX, share=0.5)
DLT_CLIENT = Peer("dlt RESTClient", "dlt_rest_client", DLT, share=0.25)
LENDING = Peer("codat-lending", "vendor_lending", CODAT, share=0.125)
READERS = (RAW_SOCKET, SDK, AIOHTTP_MSGSPEC, AIOHTTP, HTTPX_JSON, DLT_CLIENT, LENDING)

# Pushers, which report when each push was known to be final

COORDINATOR = Peer("integration_sdk", "sdk_pushing")
POSTS = Peer("aiohttp POSTs alone", "aiohttp_posts")
TASKS = Peer("a task per push", "task_per_push", share=0.2)
GATHER = Peer("gather + sleep", "gather_and_sleep", share=0.2)
BACKOFF = Peer("bare backoff", "bare_backoff", share=0.2)
CODAT_LOOP = Peer("codat SDKs in a loop", "vendor_pushing", CODAT, share=0.01)
PUSHERS = (COORDINATOR, POSTS, TASKS, GATHER, BACKOFF, CODAT_LOOP)
