"""Is this installation able to run? Each check tries the thing itself rather than reading a version, and says one line."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from .errors import UsageError
from .records.environment import package_version, visible_cores

TESTED_PAIR = ("2.14.1", "0.29.1")  # torch, torchvision: constraints.txt
MALICIOUS_LIGHTNING = ("2.6.2", "2.6.3")  # advisory GHSA-w37p-236h-pfx3: credential theft on import
MIN_PYTHON = (3, 11)
IMPORT_SECONDS = 120


@dataclass(frozen=True)
class Finding:
    """broken: goatbench cannot run. warning: it runs, something is not as tested. absent: an optional part is not here."""

    level: Literal["ok", "absent", "warning", "broken"]
    topic: str
    text: str


def diagnose(runs_dir: str = "runs") -> list[Finding]:
    """All findings, in the order of the checks. A check that fails by an error of its own is 'broken' and names it."""
    from .data.cache_files import cache_root

    findings = [check() for check in (check_python, check_lightning, check_pair)]
    if all(finding.level != "broken" for finding in findings):  # importing a malicious or broken package would be the worst thing to do
        findings += [_tried(*check) for check in BACKENDS]
    findings += [check_data(), check_genome(), check_text()]
    findings += [check_writable("runs_dir", Path(runs_dir)), check_writable("temporary files", Path(tempfile.gettempdir()))]
    findings.append(check_writable("cache", cache_root()))
    findings += check_plugins()
    findings.append(check_threads())
    return findings


def report(findings: list[Finding]) -> str:
    width = max(len(finding.topic) for finding in findings)
    lines = [f"{finding.level:7}  {finding.topic:{width}}  {finding.text}" for finding in findings]
    broken = sum(finding.level == "broken" for finding in findings)
    return "\n".join([*lines, f"{broken} broken" if broken else "ready to run"])


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    text = ".".join(map(str, version))
    if version[:2] < MIN_PYTHON:
        return Finding("broken", "python", f"{text}; goatbench needs 3.11 or newer")
    return Finding("ok", "python", f"{text} on {platform.system()} {platform.machine()}")


def check_lightning(version_of: Callable[[str], str | None] = package_version) -> Finding:
    """Both names under which Lightning is published."""
    for package in ("lightning", "pytorch-lightning"):
        if version_of(package) in MALICIOUS_LIGHTNING:
            name = f"{package} {version_of(package)}"
            return Finding("broken", "lightning", f"{name} was a malicious upload (GHSA-w37p-236h-pfx3): remove it, change your keys")
    version = version_of("lightning")
    if version is None:
        return Finding("broken", "lightning", "not installed; pip install 'lightning>=2.6.6,<2.7'")
    return Finding("ok", "lightning", version)


def check_pair(version_of: Callable[[str], str | None] = package_version, script: str | None = None) -> Finding:
    """torch and torchvision must fit: tried in a process of its own, since a mismatched pair may fail in any way."""
    torch, vision = version_of("torch"), version_of("torchvision")
    if torch is None or vision is None:
        return Finding("broken", "torch", f"torch {torch}, torchvision {vision}: both are needed; pip install goatbench -c constraints.txt")
    script = script or "import torch, torchvision; torchvision.ops.nms(torch.tensor([[0., 0., 1., 1.]]), torch.ones(1), .5)"
    try:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return Finding("warning", "torch", f"torch {torch}, torchvision {vision}: no answer within {IMPORT_SECONDS} s; a busy machine?")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding("broken", "torch", f"torch {torch} and torchvision {vision} do not fit together: {said}")
    if (torch.partition("+")[0], vision.partition("+")[0]) != TESTED_PAIR:
        return Finding("warning", "torch", f"torch {torch}, torchvision {vision} work; the tested pair is {' / '.join(TESTED_PAIR)}")
    return Finding("ok", "torch", f"torch {torch}, torchvision {vision}: the tested pair")


def try_sdpa() -> Finding:
    """Fused attention on the CPU, forward and backward, no other kernel allowed."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(1, 2, 8, 16, requires_grad=True) for _ in range(3))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        torch.nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()
    return Finding("ok", "kernel sdpa", "fused CPU kernel, forward and backward")


def try_cuda() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("absent", "cuda", "no CUDA device; runs use the CPU")
    x = torch.ones(8, 8, device="cuda", dtype=torch.bfloat16)
    assert (x @ x).sum().item() == 512
    return Finding("ok", "cuda", f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}")


def try_flash() -> Finding:
    """flash-attn, by a call if there is a device for it."""
    import torch

    if find_spec("flash_attn") is None:
        return Finding("absent", "kernel flash", "package flash-attn is not installed (optional; needs a CUDA device)")
    flash = importlib.import_module("flash_attn")
    if not torch.cuda.is_available():
        return Finding("absent", "kernel flash", f"flash-attn {package_version('flash-attn')} without a CUDA device")
    q = torch.randn(1, 8, 2, 16, device="cuda", dtype=torch.bfloat16)
    assert flash.flash_attn_func(q, q, q).isfinite().all()
    return Finding("ok", "kernel flash", f"flash-attn {package_version('flash-attn')}")


def try_flex() -> Finding:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 16)
    run = torch.compile(flex_attention) if torch.cuda.is_available() else flex_attention
    place = "cuda" if torch.cuda.is_available() else "cpu"
    assert run(q.to(place), q.to(place), q.to(place)).isfinite().all()
    return Finding("ok", "kernel flex", "compiled, on CUDA" if place == "cuda" else "uncompiled, on the CPU (correct and slow)")


BACKENDS: tuple[tuple[str, Literal["warning", "broken"], Callable[[], Finding]], ...] = (
    ("kernel sdpa", "broken", try_sdpa),
    ("cuda", "warning", try_cuda),
    ("kernel flash", "warning", try_flash),
    ("kernel flex", "warning", try_flex),
)


def _tried(topic: str, if_it_fails: Literal["warning", "broken"], attempt: Callable[[], Finding]) -> Finding:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # flex says that it is slow uncompiled; so do we
            return attempt()
    except Exception as error:  # a backend may fail in any way; that is the finding
        return Finding(if_it_fails, topic, f"fails here: {type(error).__name__}: {error}".splitlines()[0])


def check_data() -> Finding:
    """The embedded images: read whole and compared with their manifest."""
    from .data.fashion_mnist import FashionMnistEmbedded

    try:
        source = FashionMnistEmbedded()
        counts = {name: len(source.split(name)) for name in ("train", "validation", "test")}
    except (UsageError, OSError) as error:
        return Finding("broken", "embedded data", str(error))
    found = ", ".join(f"{count} {name}" for name, count in counts.items())
    return Finding("ok", "embedded data", f"{found}, sha256 {source.fingerprint[:16]}")


def check_genome() -> Finding:
    """The embedded DNA: its packed file compared with the manifest, without unpacking it."""
    import hashlib
    from importlib.resources import files

    from .data.genome.embedded_genome import manifest

    try:
        content = manifest()
        packed = files("goatbench.data.genome.embedded").joinpath(content["file"]).read_bytes()
    except (UsageError, OSError, ValueError) as error:
        return Finding("broken", "embedded DNA", str(error))
    if hashlib.sha256(packed).hexdigest() != content["sha256"]:
        return Finding("broken", "embedded DNA", f"{content['file']} is not the file that its manifest names; reinstall goatbench")
    bases = sum(row["end"] - row["start"] for row in content["contigs"])
    return Finding("ok", "embedded DNA", f"{bases:,} bases in {len(content['contigs'])} pieces, sha256 {content['sha256'][:16]}")


def check_text() -> Finding:
    """The embedded text: its packed file compared with the manifest, without unpacking it."""
    import hashlib
    from importlib.resources import files

    from .data.text.sources import manifest

    try:
        content = manifest()
        packed = files("goatbench.data.text.embedded").joinpath(content["file"]).read_bytes()
    except (OSError, ValueError) as error:
        return Finding("broken", "embedded text", str(error))
    if hashlib.sha256(packed).hexdigest() != content["sha256"]:
        return Finding("broken", "embedded text", f"{content['file']} is not the file that its manifest names; reinstall goatbench")
    return Finding("ok", "embedded text", f"{content['length']:,} bytes in {len(content['documents'])} documents")


def check_writable(topic: str, folder: Path) -> Finding:
    """A file can be made in the folder, or in the nearest one above that exists."""
    place = folder.resolve()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.NamedTemporaryFile(dir=place):
            pass
    except OSError as error:
        return Finding("broken", topic, f"cannot write to {place}: {error.strerror}")
    return Finding("ok", topic, f"{folder} can be written{'' if folder.exists() else ' (made by the first run)'}")


def check_plugins() -> list[Finding]:
    """One line a plug-in; a plug-in that fails is a warning, since runs without it work; a name clash breaks every run."""
    return list(_plugins())


def _plugins() -> Iterator[Finding]:
    from .config_tree import ConfigTree
    from .registry import CONFIG_GROUP, attentions, load_plugins, plugin_entry_points, provider_of, tasks

    if os.environ.get("GOATBENCH_NO_PLUGINS") == "1":
        yield Finding("absent", "plug-ins", "switched off by GOATBENCH_NO_PLUGINS=1")
    try:
        plugins = load_plugins()
        tree = ConfigTree.find()
        names = {group: tree.options(group) for group in ("task", "attention")}
    except UsageError as error:
        yield Finding("broken", "plug-ins", str(error))
        return
    for plugin in plugins:
        where = f"{plugin.name} = {plugin.target} (from {plugin.provider})"
        yield Finding("warning", "plug-in", f"{where} fails: {plugin.error}") if plugin.error else Finding("ok", "plug-in", where)
    for point in plugin_entry_points(CONFIG_GROUP):
        yield Finding("ok", "plug-in", f"{point.name} = configs of {point.value} (from {provider_of(point)})")
    for registry in (tasks, attentions):
        for name in names[registry.kind]:
            needs = tree.schemes_of(name) if registry is attentions else [name]
            if any(one not in registry for one in needs):
                yield Finding("warning", "names", f"{registry.kind}={name} has a config but no code")
        for name in registry.names():
            if name not in names[registry.kind]:
                owner = registry.provider(name)
                yield Finding("warning", "names", f"{registry.kind} {name} of {owner} has no file configs/{registry.kind}/{name}.yaml")
    yield Finding("ok", "names", f"{len(names['task'])} tasks, {len(names['attention'])} attentions")


def check_threads(environment: dict[str, str] | None = None) -> Finding:
    """More compute threads than cores make every timing worthless."""
    cores, asked = visible_cores(), (os.environ if environment is None else environment).get("OMP_NUM_THREADS")
    if asked is not None and (not asked.isdigit() or int(asked) > cores):
        return Finding("warning", "threads", f"OMP_NUM_THREADS={asked}, but this process may use {cores} cores")
    return Finding("ok", "threads", f"{cores} cores, OMP_NUM_THREADS {asked or 'unset'}; a run computes with trainer.num_threads")
