"""params × notebooks -> results: one papermill execution a point of a sweep's grid.

`make sweep` runs this through gdlib.bench.batch (checks, progress, summary), with SLURM=profiles/slurm on a cluster.
By hand:
    snakemake --cores 2 --resources timing=1 gpu=1 --keep-going --rerun-incomplete --config profile=quick
    snakemake --workflow-profile profiles/slurm --config profile=gpu
"""

import json
import sys

from gdlib.bench import sweep as sweeps

PROFILE = config.get("profile", "quick")
RESULTS = config.get("results", f"results/{PROFILE}")
SWEEPS = {sweep.name: sweep for sweep in sweeps.load_all(str(config.get("sweeps", "")).split())}
POINTS = {(name, point.run): point for name, sweep in SWEEPS.items() for point in sweeps.points(sweep, PROFILE)}
SOURCES = {name: sweeps.sources(sweep) for name, sweep in SWEEPS.items()}
DEVICES = int(config.get("devices", 1))


def point(wildcards):
    return POINTS[wildcards.sweep, wildcards.run]


def timing(wildcards):
    """Of as many shares as there are devices: a timed run takes all of them, one on a device of its own just one."""
    return (1 if point(wildcards).gpu else DEVICES) if point(wildcards).timed else 0


def asked(key, otherwise=""):
    """A run's value of a key of profiles/slurm/cluster.yml."""

    def of(wildcards):
        value = config.get(key, otherwise)
        return value.get(wildcards.sweep, value.get("default", otherwise)) if isinstance(value, dict) else value

    return of


def partition(wildcards):
    return point(wildcards).gpu and asked("gpu_partition")(wildcards) or asked("partition")(wildcards)


def extra(wildcards):
    alone = point(wildcards).timed and not point(wildcards).gpu and asked("exclusive")(wildcards)
    return "--exclusive" if alone else ""


wildcard_constraints:
    sweep="|".join(SWEEPS),
    run="[^/]+",


rule all:
    input:
        [f"{RESULTS}/{name}/{run}/run.json" for name, run in POINTS],


# What a run depends on is given as params (a digest of the code, the parameters' values) and not as input files, since
# content counts and dates do not. The run itself is done beside its folder and moved there when whole.
rule run:
    # update(): snakemake puts the old run back where the new one fails; whether it counts is read from the run itself.
    output:
        update(RESULTS + "/{sweep}/{run}/executed.ipynb"),
        update(RESULTS + "/{sweep}/{run}/table.csv"),
        update(RESULTS + "/{sweep}/{run}/run.json"),
    params:
        parameters=lambda wildcards: json.dumps(point(wildcards).parameters, sort_keys=True),
        sources=lambda wildcards: SOURCES[wildcards.sweep],
        file=lambda wildcards: SWEEPS[wildcards.sweep].path,
    threads: lambda wildcards: point(wildcards).threads
    resources:
        timing=timing,
        gpu=lambda wildcards: int(point(wildcards).gpu),
        runtime=asked("runtime", 240),
        mem_mb=asked("mem_mb", 16000),
        slurm_partition=partition,
        slurm_account=asked("account"),
        slurm_extra=extra,
    shell:
        "exec {sys.executable:q} -m gdlib.bench.execute --sweep {params.file:q} --profile {PROFILE:q}"
        " --run {wildcards.run:q} --results {RESULTS:q}"
