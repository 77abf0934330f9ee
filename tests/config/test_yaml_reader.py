"""YAML files are read strictly, and every complaint has a line and a key path."""

from __future__ import annotations

from pathlib import Path

import pytest

from chime_dist.config.document import Template
from chime_dist.config.yaml_reader import parse_document, read_document
from chime_dist.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "a.yaml")
    return str(caught.value)


def test_a_document_is_plain_values_with_their_lines() -> None:
    document = parse_document('a: 1\nb:\n  - x\n  - c: "010"\n    d: |\n      no\n', "a.yaml")
    assert document.root == {"a": 1, "b": ["x", {"c": "010", "d": "no\n"}]}
    assert document.place(("b", 1, "d")) == "a.yaml:5"
    assert document.place(("b", 1, "missing")) == "a.yaml:4"
    assert document.place(("b",)) == "a.yaml:2"


def test_a_reference_is_kept_as_written_until_it_is_filled() -> None:
    document = parse_document("a: ${X}\nb: '${X}'\n", "a.yaml")
    assert document.root == {"a": Template("${X}", quoted=False), "b": Template("${X}", quoted=True)}


def test_every_ambiguous_value_of_a_file_is_reported_at_once() -> None:
    message = refusal("a: no\nb:\n  - 010\n  - ok\nc: {d: 2024-05-01}\n")
    assert message.startswith("3 problems in the config:")
    assert "a.yaml:1: a: no is a boolean" in message
    assert "a.yaml:3: b.0: 010 is an octal number" in message
    assert "a.yaml:5: c.d: 2024-05-01 is a date" in message


def test_a_key_written_twice_names_both_lines() -> None:
    message = refusal("a:\n  k: 1\n  m: 2\n  k: 1\n")
    assert message == "a.yaml:4: a.k: is written twice, first at a.yaml:2; keep one"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("on: 1", "as a key: on is a boolean"),
        ("1: x", "1 is a number: quote it"),
        ("null: x", "null is nothing: quote it"),
        ("[a]: x", "a key is text"),
        ("{a: 1}: x", "a key is text"),
        ("a: &x 1\n*x : 2", "a key is text"),
        ("a: &x {k: 1}\nb:\n  <<: *x", "merge keys (<<) are not supported"),
        ("a: !!str 010", "tag tag:yaml.org,2002:str is not supported"),
        ("a: !!python/name:os.system {}", "is not supported"),
        ("a: *missing", "*missing refers to no anchor"),
        ("a: &x [*x]", "*x refers to no anchor written before it"),
        ("a: 1\n---\nb: 2", "holds 2 YAML documents"),
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- a", "a config is a mapping of keys to values, not a list"),
        ("text", "not text"),
    ],
)
def test_what_a_config_cannot_use_is_refused(text: str, part: str) -> None:
    assert part in refusal(text)


def test_broken_yaml_names_the_line_and_never_repeats_the_file() -> None:
    """H6: ruamel's own message would quote the text around the fault."""
    message = refusal("a: 1\nkey: canary-1234: 'x\n")
    assert message.startswith("a.yaml:2: is not YAML:")
    assert "canary" not in message


def test_broken_yaml_with_a_reference_in_braces_says_to_quote_it() -> None:
    assert 'write a reference in quotes: "${NAME}"' in refusal("a: {k: ${X}, m: 1}")


def test_a_control_character_is_refused() -> None:
    assert "is not YAML" in refusal("a: \x07")


def test_an_ambiguous_secret_is_not_repeated() -> None:
    """H6: a key that is all digits with a leading zero must be quoted, and is not shown."""
    message = refusal("cluster:\n  api_key: 01234567\n")
    assert message == "a.yaml:2: cluster.api_key: quote this value"


def test_an_alias_repeats_a_value_and_keeps_the_lines_of_its_anchor() -> None:
    document = parse_document("a: &x\n  k: 1\nb: *x\n", "a.yaml")
    assert document.root == {"a": {"k": 1}, "b": {"k": 1}}
    assert document.root["a"] is not document.root["b"]
    assert document.place(("b", "k")) == "a.yaml:2"
    assert document.place(("b",)) == "a.yaml:3"


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        read_document(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 9"):
        read_document(latin)
