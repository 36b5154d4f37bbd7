"""A batch on a real Slurm: what fails, what is killed and what is refused costs nothing but itself (`make slurm-test`).

Needs Debian's packages (apt-get install --no-install-recommends slurmctld slurmd slurm-client munge) and no root; takes
about ten minutes, which is why `make test` goes without it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml
from mini_project import make_project, write_sweep
from one_node import missing, one_node

from gdlib.bench import record

REPOSITORY = Path(__file__).parents[2]
AXES = {"schema": ["flat", "nested", "array", "a %j"], "noise": [0.5, 1.0, 1.5]}
BROKEN, HELD = "schema=nested+noise=1.0", "schema=array+noise=0.5"
CELL = """name = f"schema={schema}+noise={noise}"
with open(f"../seen/{schema}{noise}", "w") as file:
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
if (schema, noise) == ("nested", 1.0) and not os.path.exists("../mended"):
    raise ValueError("cannot nest")
while (schema, noise) == ("array", 0.5) and os.path.exists("../hold"):
    time.sleep(0.1)"""


class Trial:
    """One project, one profile folder, one Slurm."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.project, self.profile = folder / "project", folder / "profile"
        self.project.mkdir()
        (self.project / "seen").mkdir()
        make_project(self.project, CELL, axes=AXES, profiles={"quick": {}, "gpu": {"gpu": True}})
        shutil.copytree(REPOSITORY / "profiles" / "slurm", self.profile)
        self.ask(exclusive=False, mem_mb=500, runtime={"default": 30, "mini": 20})
        config = yaml.safe_load((self.profile / "config.yaml").read_text())
        config["slurm-init-seconds-before-status-checks"] = 5
        (self.profile / "config.yaml").write_text(yaml.safe_dump(config))
        self.environment = environment | {"GDLIB_ROOT": str(self.project), "PYTHONPATH": str(REPOSITORY)}
        os.environ["GDLIB_ROOT"] = str(self.project)

    def ask(self, **values) -> None:
        asked = yaml.safe_load((REPOSITORY / "profiles" / "slurm" / "cluster.yml").read_text()) | values
        (self.profile / "cluster.yml").write_text(yaml.safe_dump(asked))

    def start(self, profile="quick") -> subprocess.Popen:
        command = [sys.executable, "-m", "gdlib.bench.batch", "run", "--profile", profile, "--slurm", str(self.profile)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, profile="quick") -> tuple[int, str]:
        process = self.start(profile)
        output = process.communicate(timeout=900)[0]
        print(output, flush=True)
        return process.returncode, output

    def slurm(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def job(self, run: str) -> str | None:
        """Number of the running job of a run."""
        rows = self.slurm("squeue", "--noheader", "--states=RUNNING", "--format=%i %k").splitlines()
        return next((row.split()[0] for row in rows if row.endswith(f"mini_{run}")), None)

    def stamps(self) -> dict[str, int]:
        files = (self.project / "results" / "quick" / "mini").glob("[!.]*/run.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in files}


def until(condition, seconds=600):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.5)
    return found


def one_fails_and_one_is_killed(trial: Trial) -> None:
    (trial.project / "hold").touch()
    first = trial.start()
    seen = trial.project / "seen" / "array0.5"
    until(seen.exists)
    trial.slurm("scancel", until(lambda: trial.job(HELD)))
    output = first.communicate(timeout=900)[0]
    print(output, flush=True)
    assert first.returncode == 1 and "10 done, 2 failed, 0 up to date" in output, output
    assert f"failed: mini {BROKEN}" in output and "cannot nest" in output
    assert re.search(rf"failed: mini {re.escape(HELD)}\n  .*CANCELLED", output), output
    assert re.search(r"\[\d+/12\] mini \S+ .*left", output)
    before = trial.stamps()
    assert len(before) == 10

    (trial.project / "hold").unlink()
    (trial.project / "mended").touch()
    code, output = trial.run()
    assert code == 0 and "2 done, 0 failed, 10 up to date" in output, output
    after = trial.stamps()
    assert {run for run in after if after[run] != before.get(run)} == {BROKEN, HELD}
    assert len(record.load("mini").infos) == 12
    assert trial.run()[1].count("0 done, 0 failed, 12 up to date") == 1


def a_batch_that_is_killed_or_interrupted_leaves_nothing_in_the_way(trial: Trial) -> None:
    (trial.project / "hold").touch()
    (trial.project / "seen" / "array0.5").unlink()
    shutil.rmtree(trial.project / "results" / "quick" / "mini" / HELD)
    process = trial.start()
    until((trial.project / "seen" / "array0.5").exists)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert trial.job(HELD)  # its job outlives it
    process = trial.start()
    until(lambda: not trial.job(HELD))
    (trial.project / "hold").unlink()
    output = process.communicate(timeout=900)[0]
    print(output, flush=True)
    assert process.returncode == 0 and "left in the queue: 1" in output and "1 done, 0 failed, 11 up" in output, output

    (trial.project / "hold").touch()
    (trial.project / "seen" / "array0.5").unlink()
    shutil.rmtree(trial.project / "results" / "quick" / "mini" / HELD)
    process = trial.start()
    until((trial.project / "seen" / "array0.5").exists)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    print(output, flush=True)
    assert process.returncode == 130 and "0 done, 1 failed, 11 up to date" in output and not trial.job(HELD), output
    (trial.project / "hold").unlink()
    code, output = trial.run()
    assert code == 0 and "left in the queue" not in output and "1 done" in output, output
    home = trial.project / "results" / "quick" / "mini"
    assert not [path.name for path in home.iterdir() if path.name[0] == "."]


def refusals_are_told(trial: Trial) -> None:
    write_sweep(trial.project, axes={"schema": ["flat"]}, profiles={"quick": {}, "gpu": {"gpu": True}})
    (trial.project / "seen" / "flat0.5").unlink()
    trial.ask(mem_mb=500)
    code, output = trial.run("gpu")  # a device of its own, by gres
    assert code == 0 and (trial.project / "seen" / "flat0.5").read_text().strip() in ("0", "1"), output
    write_sweep(trial.project, axes={"schema": ["flat", "other"]}, profiles={"quick": {}, "gpu": {"gpu": True}})
    for asked, words in (
        ({"account": "nobodys", "gpu_partition": "closed"}, "Invalid account or account/partition combination"),
        ({"gpu_partition": "none"}, "invalid partition specified: none"),
        ({"mem_mb": 10_000_000}, "Memory specification can not be satisfied"),
    ):
        trial.ask(**({"mem_mb": 500} | asked))
        code, output = trial.run("gpu")
        assert code == 1 and "0 done, 1 failed, 1 up to date" in output and words in output, output


def main() -> int:
    if absent := missing():
        print(f"error: {', '.join(absent)} not found: {__doc__.split(chr(10))[2]}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="gdlib-slurm-") as name:
        folder = Path(name)
        with one_node(folder / "slurm") as environment:
            trial = Trial(folder, environment)
            for part in (
                one_fails_and_one_is_killed,
                a_batch_that_is_killed_or_interrupted_leaves_nothing_in_the_way,
                refusals_are_told,
            ):
                print(f"== {part.__name__.replace('_', ' ')}", flush=True)
                part(trial)
    print("== all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
