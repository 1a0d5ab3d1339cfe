"""The file system of a device that is not this machine."""

from __future__ import annotations

from pathlib import Path

ORIN = {
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
    "proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimddp asimdhp crc32\n",
    "proc/meminfo": "MemTotal:        7802564 kB\nMemFree: 1 kB\nMemAvailable:    5120000 kB\n",
    "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nID=ubuntu\nVERSION_ID="22.04"\n',
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
    "var/lib/nvpmodel/status": "fmode:quiet\npmode:0002 fmode:quiet\n",
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\nCPU 1\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\nCPU 2\n",
    "var/lib/dpkg/status": (
        "Package: nano\nStatus: install ok installed\nVersion: 6.2-1\n\n"
        "Package: nvidia-jetpack\nStatus: install ok installed\nDescription: all\n of it\nVersion: 6.2+b77\n"
    ),
}

# /proc/self/mountinfo with control groups of both versions, and as a container has them.
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
)
DOCKER_V1 = (
    "701 700 0:29 /docker/4f2a /sys/fs/cgroup/cpu,cpuacct ro master:11 - cgroup cgroup rw,cpu,cpuacct\n"
    "702 700 0:30 /docker/4f2a /sys/fs/cgroup/memory ro master:12 - cgroup cgroup rw,memory\n"
)


def tree(root: Path, files: dict[str, str]) -> Path:
    """A file system with `files` below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def system(root: Path, mounts: str, groups: str, files: dict[str, str]) -> Path:
    """A file system with /proc/self and `files` below /sys/fs/cgroup."""
    below = {f"sys/fs/cgroup/{path}": text for path, text in files.items()}
    return tree(root, {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **below})
