"""The same stream on real Redis and the real embedded Qdrant engine: same content, eval frozen, nothing leaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from chime_dist.adapters.directory.file_journal import FileJournal
from chime_dist.adapters.qdrant.edge import QdrantEdgeStore
from chime_dist.adapters.redis.connection import RedisConnection
from chime_dist.adapters.redis.driver_turn import DriverTurn
from chime_dist.adapters.redis.journal import RedisJournal
from chime_dist.adapters.redis.keys import RedisKeys
from chime_dist.adapters.redis.queue import RedisQueue
from chime_dist.core.bank import as_of, replay
from chime_dist.core.journal import verified
from chime_dist.engine.driver import Ending
from chime_dist.errors import JournalError
from tests.integration.launching import RUN, Launched, UnreliableQueue, new_directory, plan_of
from tests.integration.test_stream_semantics import local_launch
from tests.integration.toy import GOLD, JitteryBackbone, ToyBenchmark


def real_launch(
    path: Path, connection: RedisConnection, *, size: int = 40, held_out: int = 0, seed: int = 0
) -> Launched:
    """The toy on Redis and Qdrant Edge, W=16, 16 workers."""
    benchmark = ToyBenchmark(size)
    directory = new_directory(path / "runs")
    keys, turn = RedisKeys(directory.id), DriverTurn()
    return Launched(
        directory=directory,
        plan=plan_of(benchmark, window=16, epochs=2, held_out=held_out),
        benchmark=benchmark,
        backbone=JitteryBackbone(0.02, seed),
        queue=RedisQueue(connection, keys, 0.4, turn),
        journal=RedisJournal(connection, keys, turn),
        store=QdrantEdgeStore(path / "qdrant"),
        workers=16,
        max_deliveries=50,
        lease_s=0.4,
        mirror=FileJournal(lambda run_id: directory.run(run_id).path),
    )


async def test_redis_and_qdrant_commit_what_the_local_adapters_commit(tmp_path: Path, redis_url: str) -> None:
    """R7, D2, D4: 16 workers, random delays, lost leases and doubled completions."""
    calm = local_launch(tmp_path / "local", window=16, epochs=2)
    await calm.run()
    connection = RedisConnection(redis_url)
    launch = real_launch(tmp_path, connection)
    queue = UnreliableQueue(launch.queue, seed=7)
    launch.queue = queue
    assert await launch.run() is Ending.COMPLETE
    assert min(queue.lost, queue.doubled, queue.released) > 0
    entries = await launch.entries()
    assert [entry.content_hash for entry in entries] == [entry.content_hash for entry in await calm.entries()]
    mirrored = (launch.directory.run(RUN).journal).read_text().split("\n")[:-1]
    assert mirrored == await launch.journal.read(RUN)
    await connection.close()


async def test_eval_reads_one_version_and_leaves_the_bank_as_it_was(tmp_path: Path, redis_url: str) -> None:
    """R5: the digest is the same before and after eval, and no eval episode writes."""
    connection = RedisConnection(redis_url)
    launch = real_launch(tmp_path, connection, size=36, held_out=12)
    assert await launch.run() is Ending.COMPLETE
    [end] = launch.ends
    entries = await launch.entries()
    state = replay(entries)
    assert end.version == len(entries) == 48
    assert end.digest_before_eval == end.digest_after_eval == state.digest()
    assert as_of(entries, 20).digest() == replay(entries[:20]).digest()
    rows = [json.loads(line) for line in launch.directory.run(RUN).episodes.read_text().splitlines()]
    assert {row["unit"]["read_version"] for row in rows if row["unit"]["phase"] == "eval"} == {48}
    await connection.close()


async def test_a_reference_answer_reaches_no_prompt_memory_log_or_file(tmp_path: Path, redis_url: str) -> None:
    """R8: the canary that the evaluator knows appears nowhere else."""
    connection = RedisConnection(redis_url)
    launch = real_launch(tmp_path, connection, size=24, held_out=6)
    await launch.run()
    assert isinstance(launch.backbone, JitteryBackbone)
    assert launch.backbone.requests
    assert all(GOLD not in request.model_dump_json() for request in launch.backbone.requests)
    contents = contents_below(tmp_path)
    assert any(name.endswith(".zst") for name in contents)
    assert [name for name, data in contents.items() if GOLD.encode() in data] == []
    await connection.close()


def contents_below(folder: Path) -> dict[str, bytes]:
    """Every file, decompressed."""
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {
        name: zstandard.ZstdDecompressor().decompressobj().decompress(data) if name.endswith(".zst") else data
        for name, data in found.items()
    }


async def test_a_flipped_byte_in_the_mirrored_journal_is_found(tmp_path: Path, redis_url: str) -> None:
    """The line hash covers every stored byte."""
    connection = RedisConnection(redis_url)
    launch = real_launch(tmp_path, connection, size=6)
    await launch.run()
    file = launch.directory.run(RUN).journal
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    lines = data.decode("utf-8", "surrogateescape").split("\n")[:-1]
    with pytest.raises(JournalError, match=r"journal\.jsonl"):
        list(verified(lines, str(file)))
    await connection.close()
