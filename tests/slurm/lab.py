"""A real Slurm of two nodes on this machine, for tests: its daemons, and what tests ask of them.

Everything it makes lies in one folder, and its ports are free ones, so that another one on the machine is left alone.
Accounting is left out, and so is RequeueExit, which most clusters do not have. Works as root on Debian, whose packages
it installs where they are missing.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client")
NODES = ("n1", "n2")
#: Far beyond what anything here takes.
TIMEOUT_S = 900

# As on a cluster, but for short times: a node counts as down after seconds, and a job that is sent again waits for
# cred_expire plus one second (below 5 Slurm takes 120). A node's cores are more than the machine's, so that four tasks
# run at once.
_SLURM_CONF = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=6
SlurmctldTimeout=30
InactiveLimit=0
KillWait=3
MinJobAge=300
JobRequeue=1
SlurmdParameters=config_overrides
MaxArraySize=1001
NodeName=DEFAULT CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:2
{nodes}
PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE DefaultTime=10 State=UP
PartitionName=debug Default=YES PriorityTier=1 GraceTime=0
PartitionName=gpu PriorityTier=1
PartitionName=cpu PriorityTier=1
PartitionName=high PriorityTier=10 PreemptMode=OFF
"""


def missing_programs() -> list[str]:
    """The programs of Slurm that this machine lacks."""
    return [name for name in PROGRAMS if _found(name) is None]


def install() -> None:
    """Install Debian's packages.

    Raises:
        subprocess.CalledProcessError: they cannot be had.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *PACKAGES]):
        subprocess.run(["apt-get", *command], check=True, capture_output=True, env=environment)


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@dataclass
class SlurmLab:
    """The cluster, by its folder."""

    folder: Path
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What makes Slurm's commands speak to this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Write the configuration, start the daemons, and wait until both nodes are idle."""
        (self.folder / "state").mkdir()
        self.folder.chmod(0o755)  # the key itself is for root alone; jobs of any user reach the socket
        self._write_key()
        self._write_conf()
        self._launch(
            "munged",
            *("--foreground", "--force", f"--key-file={self.folder}/munge.key"),
            *(f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid"),
            *(f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed", "--num-threads=2"),
        )
        self.wait_until((self.folder / "munge.socket").exists)
        self._launch("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        for node in NODES:
            self.start_node(node)
        self.wait_until(self.is_idle)

    def _write_key(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))

    def _write_conf(self) -> None:
        host = socket.gethostname().partition(".")[0]
        hosts = Path("/etc/hosts")
        if host not in hosts.read_text(encoding="utf-8").split():  # slurmd looks its own name up
            with hosts.open("a", encoding="utf-8") as file:
                file.write(f"127.0.0.1 {host}\n")
        controller_port, *ports = free_ports(1 + len(NODES))
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            for node, port in zip(NODES, ports, strict=True)
        )
        text = _SLURM_CONF.format(host=host, controller_port=controller_port, folder=self.folder, nodes=nodes)
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        lines = []
        for node in NODES:
            (self.folder / f"spool.{node}").mkdir()
            for number in range(2):  # what looks like a GPU to Slurm, and to nobody else
                device = self.folder / f"gpu.{node}.{number}"
                os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
                lines.append(f"NodeName={node} Name=gpu File={device} Flags=nvidia_gpu_env\n")
        (self.folder / "gres.conf").write_text("".join(lines), encoding="utf-8")

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        self._launch("slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node, name=f"slurmd.{node}")

    def crash_node(self, node: str) -> None:
        """End a node as a power failure would: its daemon and all that runs on it, at once and without a word."""
        daemon = self._daemons.pop(f"slurmd.{node}")
        daemon.kill()
        daemon.wait(TIMEOUT_S)
        for process in self._processes_on(node):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _processes_on(self, node: str) -> set[int]:
        """The processes of a node's jobs, and the daemon that holds each job."""
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (path / "environ").read_bytes().split(b"\0")
                if not {f"SLURM_CONF={self.folder}/slurm.conf".encode(), f"SLURMD_NODENAME={node}".encode()} <= {
                    *variables
                }:
                    continue
                found.add(int(path.name))
                parent = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
                if (Path("/proc") / parent / "cmdline").read_bytes().startswith(b"slurmstepd"):
                    found.add(int(parent))
        return found

    def _launch(self, program: str, *arguments: str, name: str | None = None) -> None:
        path = _found(program)
        assert path is not None, program
        name = name or program
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
            )

    def stop(self) -> None:
        """End the jobs, then the daemons."""
        with suppress(subprocess.SubprocessError, AssertionError):
            self.cancel_everything()
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(TIMEOUT_S)

    def cancel_everything(self) -> None:
        """Cancel all jobs and wait until they are gone."""
        jobs = self.command("squeue", "-h", "-o", "%A").split()
        if jobs:
            self.command("scancel", *sorted(set(jobs)))
            self.wait_until(lambda: not self.command("squeue", "-h").strip())

    def command(self, *arguments: str) -> str:
        """Run one of Slurm's commands and return what it prints; its failure is the test's."""
        ended = subprocess.run(
            arguments,
            capture_output=True,
            check=False,
            encoding="utf-8",
            env={**os.environ, **self.environment},
            timeout=TIMEOUT_S,
        )
        assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
        return ended.stdout

    def is_idle(self) -> bool:
        """Whether every node waits for work."""
        try:
            states = self.command("sinfo", "-h", "-N", "-o", "%N %T")
        except AssertionError:  # the controller does not answer yet
            return False
        return sorted(set(states.splitlines())) == [f"{node} idle" for node in NODES]

    def tasks(self, job: str) -> dict[int, str]:
        """The states of an array's tasks by their number; those over for minutes are forgotten by Slurm."""
        lines = self.command("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%K %T").splitlines()
        return {int(number): state for number, state in (line.split() for line in lines) if number.isdecimal()}

    def detail(self, job: str, key: str) -> str:
        """What `scontrol show job` says of a job."""
        found = re.search(rf"\b{key}=(\S*)", self.command("scontrol", "show", "job", job))
        assert found is not None, key
        return found[1]

    def wait_for_end(self, *jobs: str) -> None:
        """Wait until no task of these is waiting or running."""
        self.wait_until(lambda: not self.command("squeue", "-h", "-j", ",".join(jobs)).strip())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to come true."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, self.command("squeue", "-t", "all", "-o", "%i %T %r")
            time.sleep(0.2)
