"""H6: a secret reaches the service it is for, and no dump, representation, message or log."""

from __future__ import annotations

import copy
import pickle
import traceback

import pytest
import structlog
from pydantic import BaseModel, TypeAdapter, ValidationError

from chime_dist.config.cluster import HttpEndpoint
from chime_dist.config.loading import restore_sweep
from chime_dist.config.secrets import MASK, Interpolated, Secret, SecretUrl
from chime_dist.config.sweep import SweepConfig
from chime_dist.errors import ConfigError
from tests.config.conftest import SWEEP, Load

CANARY = "canary-4711"

SECRETIVE = """\
name: quick
benchmarks: [bfcl_v4]
methods: [chime]
backbones: [qwen]
embedder: {kind: http, model: e}
cluster:
  redis: redis://:${CANARY}@redis.example:6379/0
  qdrant: {url: "http://q.example:6333", api_key: "${CANARY}"}
  endpoints:
    qwen:
      url: http://llm.example/v1?api_key=${CANARY}
      api_key: ${CANARY}
      headers:
        X-Team: Bearer ${CANARY}
    embedder: {url: "${EMBED:-http://e.example/v1}", api_key: "${CANARY}"}
    judge: {url: "http://user:${CANARY}@judge.example/v1"}
  secrets:
    serpapi: ${CANARY}
"""


def everything_said_about(sweep: SweepConfig) -> str:
    return "\n".join(
        [
            repr(sweep),
            str(sweep),
            f"{sweep.cluster.redis.url} {sweep.cluster.secrets['serpapi']}",
            sweep.model_dump_json(),
            str(sweep.model_dump()),
            str(sweep.model_dump(mode="json")),
            *sweep.warnings(),
        ]
    )


def test_a_secret_from_the_environment_is_in_no_dump_and_no_representation(load: Load) -> None:
    """H6: the dump holds the variable's name instead, everywhere a secret may stand."""
    sweep = load(SECRETIVE, environ={"CANARY": CANARY})
    said = everything_said_about(sweep)
    assert CANARY not in said
    assert said.count("${CANARY}") > 10
    endpoint = sweep.cluster.endpoints["qwen"]
    assert isinstance(endpoint, HttpEndpoint)
    assert endpoint.url.reveal() == f"http://llm.example/v1?api_key={CANARY}"
    assert endpoint.api_key is not None
    assert endpoint.api_key.reveal() == CANARY
    assert endpoint.headers["X-Team"].reveal() == f"Bearer {CANARY}"
    judge = sweep.cluster.endpoints["judge"]
    assert isinstance(judge, HttpEndpoint)
    assert judge.url.reveal() == f"http://user:{CANARY}@judge.example/v1"
    assert sweep.cluster.secrets["serpapi"].reveal() == CANARY


def test_a_resume_reads_the_variables_again(load: Load) -> None:
    """H6: the stored config is enough to go on, with whatever value the variable has by then."""
    stored = load(SECRETIVE, environ={"CANARY": CANARY}).model_dump(mode="json")
    assert restore_sweep(stored, "sweep.json", environ={"CANARY": CANARY}) == load(
        SECRETIVE, environ={"CANARY": CANARY}
    )
    rotated = restore_sweep(stored, "sweep.json", environ={"CANARY": "fresh"})
    assert rotated.cluster.secrets["serpapi"].reveal() == "fresh"
    with pytest.raises(ConfigError, match=r"sweep\.json: cluster\.redis\.url: the environment variable CANARY"):
        restore_sweep(stored, "sweep.json", environ={})


def test_a_secret_that_is_written_out_is_masked_and_asked_for_again(load: Load) -> None:
    """H6: a literal key works, is warned about, is not stored, and a resume says which one it misses."""
    text = SECRETIVE.replace("${CANARY}", CANARY)
    with structlog.testing.capture_logs() as logs:
        sweep = load(text)
    assert CANARY not in everything_said_about(sweep)
    assert CANARY not in str(logs)
    missing = [w.split(" ")[0] for w in sweep.warnings() if "written out" in w]
    assert missing == [
        "cluster.redis.url",
        "cluster.qdrant.api_key",
        "cluster.secrets.serpapi",
        "cluster.endpoints.qwen.url",
        "cluster.endpoints.qwen.api_key",
        "cluster.endpoints.qwen.headers.X-Team",
        "cluster.endpoints.embedder.api_key",
        "cluster.endpoints.judge.url",
    ]
    with pytest.raises(ConfigError) as caught:
        restore_sweep(sweep.model_dump(mode="json"), "sweep.json", environ={})
    for path in missing:
        assert f"{path}: was written out, so it was not stored" in str(caught.value)
    again = restore_sweep(
        sweep.model_dump(mode="json"),
        "sweep.json",
        [f"{path}={sweep_value}" for path, sweep_value in zip(missing, _values(missing), strict=True)],
        {"K": CANARY},
    )
    assert again.cluster.secrets["serpapi"].reveal() == CANARY


def _values(paths: list[str]) -> list[str]:
    values = {"cluster.redis.url": "redis://${K}@r", "cluster.endpoints.qwen.url": "http://l/v1"}
    values["cluster.endpoints.judge.url"] = "http://${K}@j/v1"
    return [values.get(path, "${K}") for path in paths]


REDIS = "redis: redis://:${CANARY}@redis.example:6379/0"
URL = "url: http://llm.example/v1?api_key=${CANARY}"
JUDGE = 'judge: {url: "http://user:${CANARY}@judge.example/v1"'
SECRETS = "  secrets:"

MISPLACED = [
    ("api_key: ${CANARY}", "api_kye: ${CANARY}"),
    ("api_key: ${CANARY}", "api_key: [${CANARY}]"),
    (URL, "url: ${CANARY}"),
    (URL, "url: ftp://${CANARY}@h"),
    (JUDGE, f'{JUDGE}, api_key: "${{CANARY}}"'),
    (REDIS, "redis: ${CANARY}"),
    (REDIS, "redis: http://${CANARY}"),
    (REDIS, "redis: {mode: local, url: 'redis://${CANARY}'}"),
    (SECRETS, "  ray: ${CANARY}\n  secrets:"),
    (SECRETS, "  more: ${CANARY}\n  secrets:"),
]
WRONG_TYPE = [
    ("kind: http, model: e", "kind: '${X_CANARY}', model: e"),
    ("methods: [chime]", "methods: ['${X_CANARY} ${X_CANARY}']"),
    ("methods: [chime]", "methods: {x: '${X_CANARY}'}"),
    (SECRETS, "  slots: ${CANARY}\n  secrets:"),
    (SECRETS, "  execution: ${CANARY}\n  secrets:"),
]


@pytest.mark.parametrize("broken", MISPLACED + WRONG_TYPE)
def test_no_error_repeats_what_came_out_of_the_environment(load: Load, broken: tuple[str, str]) -> None:
    """H6: neither the message nor the traceback with its causes holds the value, whatever is wrong with it."""
    text = SECRETIVE.replace(*broken)
    assert text != SECRETIVE
    with pytest.raises(ConfigError) as caught:
        load(text, environ={"CANARY": CANARY, "X_CANARY": CANARY})
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("broken", MISPLACED)
def test_no_error_repeats_a_secret_that_is_written_out(load: Load, broken: tuple[str, str]) -> None:
    """H6: a literal key in a misspelt or misshapen place is not quoted back."""
    text = SECRETIVE.replace(*broken).replace("${CANARY}", CANARY)
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_no_override_error_repeats_a_secret(load: Load) -> None:
    """H6: the path of an override is named, its value is not."""
    for override in (
        f"cluster.api_key:{CANARY}",
        f"cluster.endpoints.qwen3.5-flash.api_key={CANARY}",
        f"cluster.secrets.serpapi=[{CANARY}]",
        f"cluster.secrets.serpapi={{a: '{CANARY}",
        f"cluster.secrets.serpapi=0{CANARY[-4:]}: 'x",
        f"methods.chmie.key={CANARY}",
        f"name.x={CANARY}",
    ):
        with pytest.raises(ConfigError) as caught:
            load(overrides=[override])
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_an_unset_variable_is_named_with_file_and_key(load: Load) -> None:
    """H6: the variable, the file, the line and the key path."""
    with pytest.raises(
        ConfigError, match=r"sweep\.yaml:12: cluster\.endpoints\.qwen\.api_key: .*variable CANARY"
    ) as c:
        load(SECRETIVE)
    assert str(c.value).count("CANARY is not set") == 8


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("limit: 12", "serpapi_api_key: abc", "benchmarks.0.serpapi_api_key"),
        ("limit: 12", "search: {password: abc}", "benchmarks.0.search.password"),
        ("limit: 12", "search: ${SERPAPI_KEY}", "benchmarks.0.search"),
        ("embedder: hashing", "embedder: {kind: hashing, query_prompt: '${HF_TOKEN}'}", "embedder.query_prompt"),
        ("model: Qwen/Qwen3.5-Flash", "extra_body: {auth_token: x}", "backbones.0.extra_body.auth_token"),
    ],
)
def test_a_secret_where_results_are_stored_is_refused(load: Load, old: str, new: str, key: str) -> None:
    """H6: everything outside cluster is stored in the clear and hashed, so a secret there is an error."""
    with pytest.raises(ConfigError) as caught:
        load(SWEEP.replace(old, new), environ={"SERPAPI_KEY": CANARY, "HF_TOKEN": CANARY})
    assert f"{key}: " in str(caught.value)
    assert "looks like a secret" in str(caught.value)
    assert "cluster.secrets" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_counting_tokens_is_no_secret(load: Load) -> None:
    sweep = load(
        SWEEP.replace("limit: 12", "stop_token: x\n    max_tokens: 5\n    tokenizer: ${TOKENIZER}"),
        environ={"TOKENIZER": "t"},
    )
    assert sweep.benchmarks[0].options == {"stop_token": "x", "max_tokens": 5, "tokenizer": "t"}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://h/v1?model=a&x=1", "http://h/v1?model=a&x=1"),
        ("redis://:pw@h:6379/0", f"redis://:{MASK}@h:6379/0"),
        ("redis://me:pw@h", f"redis://me:{MASK}@h"),
        ("https://hf_abc@h/v1", f"https://{MASK}@h/v1"),
        ("http://h/v1?api_key=abc&m=1", f"http://h/v1?api_key={MASK}&m=1"),
        ("redis://:p@w@h", f"redis://:{MASK}@h"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_a_url_shows_everything_but_its_secrets(written: str, shown: str) -> None:
    secret = TypeAdapter(SecretUrl).validate_python(written)
    assert str(secret) == shown
    assert secret.reveal() == written
    assert secret.written_out == (MASK in shown)


def test_a_default_inside_a_reference_is_masked_like_anything_written_out() -> None:
    assert str(Secret.of(Interpolated("dflt", "${K:-dflt}"))) == f"${{K:-{MASK}}}"
    assert str(SecretUrl.of(Interpolated("http://a:b@h", "${U:-http://a:b@h}"))) == f"${{U:-http://a:{MASK}@h}}"
    assert str(SecretUrl.of(Interpolated("http://h", "${U:-http://h}"))) == "${U:-http://h}"
    assert str(Secret.of(Interpolated("$x", "$${x"))) == MASK


def test_a_secret_survives_copies_and_process_borders() -> None:
    """A worker on another node needs the key: pickling keeps the value, showing it does not."""
    for secret in (Secret.of(Interpolated(CANARY, "${K}")), SecretUrl.of(f"http://u:{CANARY}@h/")):
        copied = pickle.loads(pickle.dumps(secret))
        assert copied == secret
        assert type(copied) is type(secret)
        assert copied.reveal() == secret.reveal()
        assert copy.deepcopy(secret) == secret
        assert CANARY not in f"{copied} {copied!r}"
    assert SecretUrl.of("HTTP://h/").scheme == "http"


def test_an_unfilled_reference_or_an_empty_value_is_no_secret() -> None:
    """A dumped config that is read without its environment fails, instead of sending ``${KEY}`` as a key."""

    class Holder(BaseModel):
        key: Secret

    for value, part in (("${KEY}", "not filled"), (" ", "is empty"), (5, "expected text"), (MASK, "not stored")):
        with pytest.raises(ValidationError, match=part):
            Holder.model_validate({"key": value})
    kept = Secret.of("x")
    assert Holder(key=kept).key is kept


@pytest.mark.parametrize(
    ("url", "credentials"),
    [
        ("https://hf_abc@h/v1", ("hf_abc",)),
        ("redis://me:p%40w@h", ("p%40w", "p@w")),
        ("redis://:p@w@h", ("p@w",)),
        ("redis://me:@h", ()),
        ("http://h/v1?mail=a@b", ()),
    ],
)
def test_a_url_names_its_credentials_for_the_logs_mask(url: str, credentials: tuple[str, ...]) -> None:
    """H6: a message may repeat a token without the URL around it."""
    assert SecretUrl.of(url).credentials == credentials
