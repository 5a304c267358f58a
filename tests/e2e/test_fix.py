"""`headroom fix` end to end on the virtual GPU."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headroom.journal import read_journal

pytestmark = [pytest.mark.torch, pytest.mark.slow]

GIB = 2**30
SMALL = """
import torch, torch.nn as nn
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.randn(1024, 512, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_evaluation_without_no_grad_is_made_to_fit_and_applied(
    fix, headroom, scenario, project, torch_python
):
    program = scenario("evaluation_graph")
    original = program.read_bytes()
    code, result = fix("--capacity", "8GiB", program.name)
    assert code == 0
    assert result["verdict"] == "predicted"
    assert result["target_met"] is True
    assert result["equivalence"] == "unproven"
    assert result["before_is_lower_bound"] and result["before_peak_bytes"] > 7 * GIB
    assert result["after_peak_bytes"] < 8 * GIB
    assert "no_grad" in result["patch"]
    assert program.read_bytes() == original

    diff = project / "fix.diff"
    diff.write_text(result["patch"])
    subprocess.run(["git", "apply", "--check", str(diff)], cwd=project, check=True)

    assert headroom("apply", result["campaign_id"]).returncode == 0
    assert b"no_grad" in program.read_bytes()
    again = headroom("apply", result["campaign_id"])
    assert again.returncode == 2 and "already" in again.stderr

    words = ("--capacity", "8GiB", "--device", "virtual", "--python", torch_python, program.name)
    applied = json.loads(headroom("run", "--json", *words).stdout)
    assert applied["outcome"] == "completed"
    assert applied["peak_allocated_bytes"] == result["after_peak_bytes"]


def test_a_retained_graph_is_made_to_fit(fix, scenario):
    code, result = fix("--capacity", "8GiB", scenario("retained_graph").name)
    assert code == 0
    assert result["target_met"] and result["verdict"] == "predicted"
    assert result["after_peak_bytes"] < 2 * GIB
    assert "detach()" in result["patch"]


@pytest.mark.parametrize("name", ["oversized_batch", "deep_model"])
def test_what_no_play_cures_is_said_to_be_not_met(fix, scenario, name):
    code, result = fix("--capacity", "8GiB", scenario(name).name)
    assert code == 1
    assert result["verdict"] == "insufficient_evidence"
    assert not result["target_met"] and result["patch"] == ""
    assert f"{name}.py" in result["why"]


def test_show_runs_and_the_report(fix, headroom, scenario, project):
    _, result = fix("--capacity", "8GiB", scenario("evaluation_graph").name)
    shown = headroom("show", "last")
    assert shown.returncode == 0
    for text in ("predicted", "equivalence", "unproven", "8.00 GiB", "headroom apply"):
        assert text in shown.stdout
    assert [row["id"] for row in json.loads(headroom("runs", "--json").stdout)] == [
        result["campaign_id"]
    ]
    listed = json.loads(headroom("runs", "--all", "--json").stdout)
    assert {row["id"] for row in listed} >= {
        result["campaign_id"],
        result["control_run"],
        result["final_run"],
    }
    folder = project / ".headroom" / "campaigns" / result["campaign_id"]
    assert {path.name for path in folder.iterdir()} >= {
        "contract.json", "journal.jsonl", "packs", "patch.diff", "report.md", "result.json",
    }  # fmt: skip
    kinds = [entry["kind"] for entry in read_journal(folder / "journal.jsonl")]
    assert kinds[0] == "sealed" and kinds[-1] == "ended"
    assert kinds.index("run_started") > kinds.index("sealed")


def test_a_file_that_changed_since_is_not_touched(fix, headroom, scenario):
    program = scenario("evaluation_graph")
    _, result = fix("--capacity", "8GiB", program.name)
    program.write_text(program.read_text() + "\n# mine\n")
    before = program.read_bytes()
    refused = headroom("apply", result["campaign_id"])
    assert refused.returncode == 1
    assert "try: " in refused.stderr
    assert program.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        ("import torch\nraise ValueError('my own')", (), "my own"),
        ("import torch\ntorch.ones(3) + 1", (), "never touches CUDA"),
        (SMALL, ("--target", "fit"), "fits already"),
        (SMALL, ("--target", "100GiB"), "met already"),
        (SMALL, ("--target", "1MiB"), "impossible"),
    ],
)
def test_programs_and_targets_that_make_no_campaign(
    headroom, project, torch_python, source, words, said
):
    (project / "train.py").write_text(source)
    done = headroom("fix", "--device", "virtual", "--python", torch_python, *words, "train.py")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert "try: " in done.stderr


def test_a_budget_of_seconds_ends_the_campaign(headroom, project, torch_python):
    (project / "train.py").write_text(
        "import torch, time\ntorch.ones(1, device='cuda')\ntime.sleep(60)\n"
    )
    done = headroom(
        "fix", "--seconds", "4", "--device", "virtual", "--python", torch_python, "train.py"
    )
    assert done.returncode == 4
    assert "budget" in done.stderr


def test_ctrl_c_leaves_the_journal_and_no_child(project, environment, torch_python):
    (project / "train.py").write_text(
        "import torch, time\ntorch.ones(1, device='cuda')\ntime.sleep(300)\n"
    )
    command = [
        sys.executable, "-m", "headroom", "fix", "--device", "virtual", "--python", torch_python, "train.py",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    program = wait_for_program(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said and "interrupted" in said
    assert not program.is_running() or program.status() == psutil.STATUS_ZOMBIE
    (journal,) = Path(project, ".headroom", "campaigns").glob("*/journal.jsonl")
    kinds = [entry["kind"] for entry in read_journal(journal)]
    assert kinds == ["sealed", "run_started", "run_ended", "interrupted"]


def wait_for_program(pid: int) -> psutil.Process:
    """The program's own process, once it has got as far as using the device."""
    words: list[str] = []
    for _ in range(300):
        for child in psutil.Process(pid).children(recursive=True):
            # A child that asks torch for its version may end between the two questions.
            with contextlib.suppress(psutil.NoSuchProcess):
                words = child.cmdline()
            configs = [Path(word) for word in words if word.endswith("config.json")]
            events = configs[0].with_name("events.jsonl") if configs else None
            if events is not None and events.exists() and '"kind": "device"' in events.read_text():
                return child
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the program did not start")


def test_a_detached_loss_that_keeps_its_memory_is_moved_to_the_host(fix, project):
    (project / "train.py").write_text(
        """
import torch, torch.nn as nn, torch.nn.functional as F
model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
history = []
for step in range(40):
    x = torch.randn(8192, 1024, device="cuda")
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)
"""
    )
    code, result = fix("--capacity", "1500MiB", "train.py")
    assert code == 0 and result["target_met"] is True
    tried = [
        (trial["candidate"]["patch"]["title"], trial["verdict"]["kept"])
        for trial in result["trials"]
    ]
    assert tried == [
        ("Detach `loss` at line 12", False),
        ("Move to the host `loss` at line 12", True),
    ]
    assert "+    history.append(loss.detach().cpu())" in result["patch"].splitlines()


COUPLED = """
import torch, torch.nn as nn, torch.nn.functional as F
body, head = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 128)), nn.Linear(128, 10)
body.cuda(), head.cuda()
optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])

def remember(window, features):
    window.append(features)

def spread(window):
    return F.relu(1 - torch.cat(window).std(0)).mean()

for update in range(4):
    window = []
    for part in range(5):
        x = torch.randn(4096, 1024, device="cuda")
        features = body(x)
        loss = F.cross_entropy(head(features), x[:, :10].argmax(-1))
        remember(window, features)
        (loss + spread(window)).backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_detach_that_shortens_backward_passes_is_not_kept(fix, project):
    """Rows, parameters, gradients and updates are as many as before; only the operations tell."""
    (project / "train.py").write_text(COUPLED)
    code, result = fix("train.py")
    assert (code, result["patch"]) == (1, "")
    detached = [
        trial["verdict"]["why"]
        for trial in result["trials"]
        if "Detach" in trial["candidate"]["patch"]["title"]
    ]
    assert detached and all("operations" in why for why in detached)
