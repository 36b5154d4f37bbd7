"""A real Slurm of one node in a folder of its own: munge, controller and node daemon, ended by their process ids.

Debian's packages are enough (apt-get install --no-install-recommends slurmctld slurmd slurm-client munge); systemd,
root and /etc/slurm are not needed: SLURM_CONF in `environment` is what sbatch and squeue go by. Jobs run as the user.
"""

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun", "scontrol", "sinfo")
CONF = """ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
EnforcePartLimits=ALL
KillWait=5
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=closed Nodes={host} Default=NO AllowAccounts=them State=UP
"""


def missing() -> list[str]:
    """Which of Slurm's programs are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=_path())]


@contextlib.contextmanager
def one_node(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands find this node; two devices that are none stand for GPUs.

    Raises RuntimeError with the logs' ends where the node is not idle after a minute.
    """
    folder = folder.resolve()
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    folder.chmod(0o755)  # munge refuses a socket that others cannot reach
    host = socket.gethostname().split(".")[0]
    port, node_port = _free_ports(2)
    text = CONF.format(folder=folder, host=host, port=port, node_port=node_port, user=getpass.getuser(), cores=2)
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{_path()}"}
    # The plugin takes SLURM_CONF from what its jobs' srun sees.
    (folder / "bin").mkdir()
    srun = folder / "bin" / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)
    daemons = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the daemons end with this process

    def start(*command: str) -> None:
        with open(folder / "daemons.log", "a") as log:
            daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

    try:
        munge = ("--key-file", key, "--socket", folder / "munge.socket", "--pid-file", folder / "munge.pid")
        munge += ("--log-file", folder / "munge.log", "--seed-file", folder / "munge.seed")
        start("munged", "--foreground", "--force", *map(str, munge))
        start("slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        start("slurmd", "-D", "-f", str(folder / "slurm.conf"), "-N", host)
        for _ in range(60):
            state = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True)
            if re.search("idle", state.stdout):
                break
            time.sleep(1)
        else:
            logs = "\n".join(f"{log.name}: {log.read_text()[-800:]}" for log in folder.glob("*.log"))
            raise RuntimeError(f"no idle node after a minute ({state.stdout} {state.stderr})\n{logs}")
        yield environment
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], env=environment, capture_output=True, timeout=30)
        for daemon in reversed(daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
