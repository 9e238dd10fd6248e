"""Programs as people write them, for `crashtest`; each is run by itself, with few imports."""

from __future__ import annotations

from typing import Final

_SERVICE: Final = """
import base64, json, os, pathlib, time, urllib.error, urllib.request

def call(path, record=None):
    key = base64.b64encode(os.environ["INTEGRATION_SDK_API_KEY"].encode()).decode()
    headers = {"Authorization": f"Basic {key}", "Content-Type": "application/json"}
    body = None if record is None else json.dumps(record).encode()
    url = os.environ["INTEGRATION_SDK_BASE_URL"] + path
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())

def patiently(*arguments):
    for attempt in range(8):
        try:
            return call(*arguments)
        except OSError:  # URLError and HTTPError are kinds of it
            time.sleep(0.01 * 2**attempt)
    raise SystemExit("the service is away")

def pages(first=1):
    path, number = f"/companies/{company['id']}/data/invoices?pageSize=20&page=", first
    while rows := patiently(f"{path}{number}")["results"]:
        yield rows
        number += 1

company = patiently("/companies?page=1&pageSize=1")["results"][0]
"""
BACKOFF_AROUND_POST: Final = f"""{_SERVICE}
connection = company["dataConnections"][0]["id"]
done = pathlib.Path("done.txt")
names = done.read_text().split() if done.exists() else []
for number in range(20):
    name = f"supplier-{{number}}"
    if name not in names:
        record = {{"supplierName": name, "status": "Active"}}
        path = f"/companies/{{company['id']}}/connections/{{connection}}/push/suppliers"
        patiently(path, record)
        with done.open("a") as file:
            print(name, file=file)
"""
CURSOR_BEFORE_DATA: Final = f"""{_SERVICE}
cursor = pathlib.Path("cursor.txt")
page = int(cursor.read_text()) if cursor.exists() else 1
with open("out.ndjson", "a") as out:  # what is written waits in a buffer
    for rows in pages(page):
        page += 1
        cursor.write_text(str(page))
        for row in rows:
            print(json.dumps({{"id": row["id"], "total": row["totalAmount"]}}), file=out)
"""
APPENDS_AND_RESTARTS: Final = f"""{_SERVICE}
for rows in pages():
    with open("out.ndjson", "a") as out:
        for row in rows:
            print(json.dumps({{"id": row["id"], "total": row["totalAmount"]}}), file=out)
"""
EXCHANGES_THE_FILE: Final = f"""{_SERVICE}
with open("out.part", "w") as out:
    for rows in pages():
        for row in rows:
            print(json.dumps({{"id": row["id"], "modifiedDate": row["modifiedDate"]}}), file=out)
os.replace("out.part", "out.ndjson")
"""
NEVER_TWICE_ALIKE: Final = f"""{_SERVICE}
import random
connection = company["dataConnections"][1]["id"]  # answers at once
path = f"/companies/{{company['id']}}/data/suppliers?page=1&pageSize=1000"
there = {{row["supplierName"] for row in call(path)["results"]}}
for name in (f"supplier-{{number}}" for number in range(9)):
    if name not in there:
        record = {{"supplierName": name, "contactName": str(random.random()), "status": "Active"}}
        call(f"/companies/{{company['id']}}/connections/{{connection}}/push/suppliers", record)
"""
IN_DOUBT: Final = """
import asyncio
from integration_sdk import Client, PushRequest

async def main():
    async with (
        Client() as client,
        client.coordinator(journal="pushes.db", patience=0.2, max_open=1) as pushes,
    ):
        company = await client.companies.list().first()
        lane = company["id"], company["dataConnections"][0]["id"], "suppliers"
        records = ({"supplierName": f"supplier-{n}", "status": "Active"} for n in range(3))
        async for _ in pushes.run(
            PushRequest(*lane, one, reference=one["supplierName"]) for one in records
        ):
            pass

asyncio.run(main())
"""
WAITS: Final = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(60)
"""
