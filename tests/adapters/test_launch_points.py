"""The points of a launch on a Qdrant server go, those of others stay."""

from __future__ import annotations

from qdrant_client import AsyncQdrantClient, models

from chime_dist.adapters.qdrant.launch_points import LaunchPoints


async def test_only_the_launchs_points_in_bank_collections_are_counted_and_removed() -> None:
    client = AsyncQdrantClient(":memory:")
    size = models.VectorParams(size=2, distance=models.Distance.COSINE)
    for name in ("chime-bank-a", "chime-bank-b", "others"):
        await client.create_collection(name, vectors_config=size)
        points = [
            models.PointStruct(id=number, vector=[1.0, 0.0], payload={"launch": launch})
            for number, launch in enumerate(("ours", "ours", "theirs"))
        ]
        await client.upsert(name, points=points)
    ours = LaunchPoints(client, "ours")
    assert await ours.count() == 4
    assert await ours.remove() == 4
    assert (await ours.count(), await ours.remove()) == (0, 0)
    assert await LaunchPoints(client, "theirs").count() == 2
    assert (await client.count("others")).count == 3
    await ours.close()
