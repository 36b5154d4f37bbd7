"""A sweep says which notebook runs with which parameters; everything about it is checked before anything runs.

A parameter that a notebook does not declare, or one of another type, would otherwise be injected without a word and the
defaults would win. The notebook's `parameters` cell is the authority: only names it declares, only values of its types.
This module stays quick to import, since the Snakefile reads every sweep through it.
"""

import ast
import copy
import difflib
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import yaml
from jsonschema_rs import Draft202012Validator

INJECTED = ("out", "threads")  # given by execute, never by a params file
SCHEMA = Path(__file__).parents[2] / "params" / "schema.json"


class SweepError(ValueError):
    """A params file or its notebook cannot be used; the message names file, key, value and the way out."""


@dataclass(frozen=True)
class Sweep:
    """One checked params file. `defaults` are the notebook's parameters, without the injected ones."""

    name: str
    path: Path
    notebook: Path
    title: str
    defaults: dict
    base: dict
    axes: dict
    profiles: dict
    threads: int
    gpu: bool
    timed: bool
    inputs: tuple[Path, ...]
    takes: tuple[str, ...]  # which of INJECTED the notebook declares


@dataclass(frozen=True)
class Point:
    """One run: `run` names its folder, `axes` is its place in the grid, `parameters` all that the notebook declares."""

    sweep: str
    run: str
    axes: dict
    parameters: dict
    threads: int
    gpu: bool
    timed: bool


def root() -> Path:
    """Folder that holds params/ and notebooks/: GDLIB_ROOT, or the checkout that gdlib is imported from."""
    return Path(os.environ.get("GDLIB_ROOT") or Path(__file__).parents[2]).resolve()


def located(name: str) -> str:
    """A path from the root (or the user's home, `~`) where there is something, else the name as it stands."""
    path = root() / Path(name).expanduser()
    return str(path) if path.exists() else name


def load(path: str | Path) -> Sweep:
    """Read and check one params file; raises SweepError."""
    path = Path(path)
    raw = _read_yaml(path)
    _check_schema(path, raw)
    if raw["sweep"] != path.stem:
        raise SweepError(f"{path}: sweep is {raw['sweep']!r}, but the file is called {path.stem!r}: make them equal")
    notebook = root() / raw["notebook"]
    inputs = tuple(root() / name for name in raw.get("inputs", []))
    for key, file in [("notebook", notebook), *(("inputs", file) for file in inputs)]:
        if not file.is_file() or not file.is_relative_to(root()):
            raise SweepError(f"{path}: {key}: there is no file {file} below the root; paths start at the root")
    declared = notebook_parameters(notebook)
    if not isinstance(declared.get("out"), str):
        raise SweepError(f'{notebook}: the parameters cell must hold `out = ""`, the folder that a run writes to')
    defaults = {name: value for name, value in declared.items() if name not in INJECTED}

    def typed(values: dict, where: str) -> dict:
        return {name: _typed(path, f"{where}.{name}", name, value, defaults) for name, value in values.items()}

    def grid(axes: dict, where: str) -> dict:
        return {name: _axis(path, f"{where}.{name}", name, values, defaults) for name, values in axes.items()}

    base, axes = typed(raw.get("base", {}), "base"), grid(raw.get("axes", {}), "axes")
    profiles = {}
    for name, profile in raw["profiles"].items():
        profile = profile or {}
        where = f"profiles.{name}"
        for axis in profile.get("axes", {}):
            if axis not in axes:
                raise SweepError(f"{path}: {where}.axes.{axis}: the sweep has no such axis{_guess(axis, axes)}")
        profiles[name] = profile | {
            "base": typed(profile.get("base", {}), f"{where}.base"),
            "axes": grid(profile.get("axes", {}), f"{where}.axes"),
        }
    for where, names in [("base", base), *((f"profiles.{name}.base", p["base"]) for name, p in profiles.items())]:
        if both := sorted(set(names) & set(axes)):
            raise SweepError(f"{path}: {where}.{both[0]} is also an axis: keep it in one of the two places")
    sweep = Sweep(
        name=path.stem,
        path=path,
        notebook=notebook,
        title=raw["title"],
        defaults=defaults,
        base=base,
        axes=axes,
        profiles=profiles,
        threads=raw.get("threads", 1),
        gpu=raw.get("gpu", False),
        timed=raw.get("timed", True),
        inputs=inputs,
        takes=tuple(name for name in INJECTED if name in declared),
    )
    for name in profiles:
        points(sweep, name)
    return sweep


def load_all(names: Iterable[str] = ()) -> list[Sweep]:
    """Every sweep of params/, or the named ones, in order of name; raises SweepError."""
    files = {path.stem: path for path in sorted((root() / "params").glob("*.yml"))}
    for name in names:
        if name not in files:
            raise SweepError(f"{root() / 'params'}: there is no {name}.yml{_guess(name, files)}")
    if not files:
        raise SweepError(f"{root() / 'params'}: there is no sweep (*.yml) in it")
    return [load(files[name]) for name in names or files]


def points(sweep: Sweep, profile: str) -> list[Point]:
    """The runs of one profile, the last axis changing fastest; raises SweepError where the profile is unknown."""
    if profile not in sweep.profiles:
        raise SweepError(f"{sweep.path}: profiles: there is no {profile!r}{_guess(profile, sweep.profiles)}")
    chosen = sweep.profiles[profile]
    axes = sweep.axes | chosen["axes"]
    fixed = sweep.defaults | sweep.base | chosen["base"]
    runs = []
    for values in itertools.product(*axes.values()):
        place = dict(zip(axes, values, strict=True))
        run = run_name(place)
        if len(run) > 200:
            raise SweepError(f"{sweep.path}: axes: the folder name {run!r} is too long: shorten the axes' values")
        parameters = copy.deepcopy(fixed | place)
        flags = {key: chosen.get(key, getattr(sweep, key)) for key in ("threads", "gpu", "timed")}
        runs.append(Point(sweep.name, run, place, parameters, **flags))
    return runs


def run_name(axes: dict) -> str:
    """Folder name of a point, such as `schema=flat+string_length=4`; `parse_run` gives the values back, with type."""
    return "+".join(f"{name}={_encode(value)}" for name, value in axes.items()) or "default"


def parse_run(run: str) -> dict:
    """The axis values that `run_name` made a folder name of."""
    if run == "default":
        return {}
    return {name: _decode(text) for name, text in (item.split("=", 1) for item in run.split("+"))}


def notebook_parameters(path: str | Path) -> dict:
    """Names and default values of the one cell tagged `parameters`, in order; raises SweepError."""
    try:
        cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise SweepError(f"{path}: this is not a notebook ({error}): save it again from JupyterLab") from error
    tagged = [cell for cell in cells if "parameters" in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise SweepError(f"{path}: {len(tagged)} cells are tagged `parameters`, one must be: add or remove the tag")
    source = "".join(tagged[0]["source"])
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise SweepError(f"{path}: parameters cell, line {error.lineno}: {error.msg}") from error
    found = {}
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        try:
            if not isinstance(target, ast.Name):
                raise ValueError
            if target.id in found:
                raise SweepError(f"{path}: parameters cell, line {node.lineno}: {target.id} is set twice")
            found[target.id] = ast.literal_eval(node.value)
            json.dumps(found[target.id], allow_nan=False)
        except (ValueError, TypeError) as error:
            if isinstance(error, SweepError):
                raise
            line = source.splitlines()[node.lineno - 1]
            raise SweepError(
                f"{path}: parameters cell, line {node.lineno}: {line.strip()!r} is not `name = literal` "
                "(text, number, bool, None, list or dict): move anything else to another cell"
            ) from error
    return found


def sources(sweep: Sweep) -> str:
    """Digest of what a run's numbers depend on besides parameters: gdlib, the notebook's code, the sweep's inputs.

    Content counts, not dates, so a fresh checkout or a touched file runs nothing anew; nor do the notebook's outputs
    and prose, or what only draws or prints (gdlib/report, gdlib/__main__.py).
    """
    digest = hashlib.sha256()
    package = root() / "gdlib"
    files = [
        p for p in sorted(package.rglob("*.py")) if p.relative_to(package).parts[0] not in ("report", "__main__.py")
    ]
    for file in (*files, *sweep.inputs):
        digest.update(f"{file.relative_to(root())}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    cells = json.loads(sweep.notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    digest.update(json.dumps(code).encode())
    return digest.hexdigest()[:16]


def same(first: object, second: object) -> bool:
    """Equal as JSON, so that 1, 1.0, True and "1" are four different values."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice in one mapping is an error, not a silent last-one-wins."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text: quote it", node.start_mark)
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", node.start_mark)
    return dict(zip(keys, (loader.construct_object(value, deep=True) for _, value in node.value), strict=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _read_yaml(path: Path) -> dict:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError as error:
        raise SweepError(f"{path}: there is no such file{_guess(path.name, os.listdir(path.parent))}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SweepError(f"{path}: {error}") from error
    return raw


def _check_schema(path: Path, raw: object) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    error = next(Draft202012Validator(schema).iter_errors(raw), None)
    if error is None:
        return
    where = ".".join(map(str, error.instance_path)) or "the file"
    hint = ""
    if error.kind.name == "additionalProperties":
        node = schema
        for step in list(error.schema_path)[:-1]:
            node = node[step]
        known = list(node.get("properties", {}))
        hint = f"; it may hold {', '.join(known)}{_guess(error.kind.unexpected[0], known)}"
    raise SweepError(f"{path}: {where}: {error.message}{hint} (see params/schema.json)")


def _axis(path: Path, where: str, name: str, values: list, defaults: dict) -> list:
    values = [_typed(path, where, name, value, defaults) for value in values]
    for index, value in enumerate(values):
        if any(same(value, other) for other in values[:index]):
            raise SweepError(f"{path}: {where}: {value!r} stands twice: remove one")
    return values


def _typed(path: Path, where: str, name: str, value: object, defaults: dict) -> object:
    """The value as the notebook will see it: of its default's type, an int made a float where the default is one."""
    if name in INJECTED:
        raise SweepError(f"{path}: {where}: {name!r} is set by the run itself: remove it")
    if name not in defaults:
        guess = _guess(name, defaults)
        raise SweepError(f"{path}: {where}: the notebook has no parameter {name!r} (value {value!r}){guess}")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SweepError(f"{path}: {where}: {value!r} is not a JSON value: quote it, or give a number") from error
    default = defaults[name]
    if isinstance(default, list) and isinstance(value, list):
        if default and not value:
            raise SweepError(f"{path}: {where}: the list is empty: give at least one value like {default[0]!r}")
        kinds = {type(item) for item in default}
        if len(kinds) == 1:
            items = {name: default[0]}
            return [_typed(path, f"{where}[{index}]", name, item, items) for index, item in enumerate(value)]
    if type(default) is float and type(value) is int:
        return float(value)
    if default is None or type(default) is type(value):
        return value
    wanted, got = type(default).__name__, type(value).__name__
    if isinstance(default, str):
        hint = "put it in quotes"
    elif isinstance(value, str) and _is_number(value):
        hint = f"write {float(value)} without quotes (YAML reads {value} as text)"
    else:
        hint = f"give a value like {default!r}"
    raise SweepError(f"{path}: {where}: {value!r} is {got}, but the notebook's default {default!r} is {wanted}: {hint}")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _encode(value: object) -> str:
    # Text stands bare, unless it would read back as another value ("1", "true", "null", "").
    bare = isinstance(value, str) and value != "" and _decode(_escape(value)) == value
    return _escape(value if bare else json.dumps(value, separators=(",", ":")))


def _escape(text: str) -> str:
    # No % and no comma: Slurm replaces %j and %2n in the names of logs, Snakemake loses the quotes around a comma.
    return quote(text, safe="").replace("~", "%7E").replace("%", "~")


def _decode(text: str) -> object:
    text = unquote(text.replace("~", "%"))
    try:
        return json.loads(text)
    except ValueError:
        return text


def _guess(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there is {', '.join(sorted(known)) or 'none'}"
