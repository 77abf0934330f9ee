"""``bank export`` and ``bank import``: a bank as a file, to be carried to another run (R52, R53)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from chime_dist.adapters.directory.bank_export import read_bank, write_bank
from chime_dist.cli.bank.opened import LAST, OpenedBank
from chime_dist.cli.boundary import ExitCode
from chime_dist.cli.output import counted, foreign, say, show, show_json
from chime_dist.core.bank_file import ExportedBank
from chime_dist.core.history import size_by_collection
from chime_dist.wiring.bank_tools import embedder_of, exported


def export(path: Path, run: str, words: Sequence[str], as_json: bool) -> None:
    """Write one run's bank at a version into a file."""
    if len(words) > 2:
        raise typer.BadParameter(f"expected [VERSION] FILE, got {' '.join(words)!r}")
    version, file = (LAST, Path(words[0])) if len(words) == 1 else (words[0], Path(words[1]))
    bank = OpenedBank.of(path, run)
    state = bank.state(bank.version(version))
    made = exported(bank.launch, bank.run_id, state, bank.content_hash(state.version))
    size = write_bank(file, made)
    if as_json:
        show_json({"file": file, "bytes": size, "header": made.header})
    else:
        show(foreign(f"{file}, {counted(size, 'byte')}\n{_described(made)}"))


def check_import(file: Path, sweep: Path | None, as_json: bool) -> ExitCode:
    """Check an exported bank, say what is in it, and whether its vectors fit a sweep's embedder."""
    bank = read_bank(file)
    differences = () if sweep is None else bank.header.embedder.differences(embedder_of(sweep))
    fits = None if sweep is None else not differences
    if as_json:
        sizes = size_by_collection(bank.state)
        facts = {"file": file, "header": bank.header, "collections": sizes, "sweep": sweep}
        show_json({**facts, "fits": fits, "differences": differences})
    else:
        fitting = "" if sweep is None else f"\nfits    {sweep}" if fits else f"\ndoes not fit {sweep}"
        show(foreign(f"{file}\n{_described(bank)}{fitting}"))
    for difference in differences:
        say(f"error: the embedder differs from that of {sweep}: {difference}")
    return ExitCode.ERROR if differences else ExitCode.COMPLETE


def _described(bank: ExportedBank) -> str:
    header, source, embedder = bank.header, bank.header.source, bank.header.embedder
    sizes = ", ".join(f"{name} {size:,}" for name, size in size_by_collection(bank.state).items())
    prompt = f", query prompt {embedder.query_prompt!r}" if embedder.query_prompt else ""
    cut = "" if embedder.max_tokens is None else f", {embedder.max_tokens} tokens"
    return (
        f"bank    {source.run_id}, version {header.version}, {counted(header.records, 'item')}"
        f"{f' ({sizes})' if sizes else ''}\n"
        f"source  sweep {source.sweep}, launch {source.launch}, config {source.config_digest}\n"
        f"vectors {embedder.model} ({embedder.kind}), dimension {embedder.dim}{cut}{prompt}\n"
        f"digest  {header.state_digest}\n"
        f"content {header.content_hash}"
    )
