import pytest

from headroom.sandbox.environment import is_secret, program_environment, scrub


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "hf_x"),
        ("WANDB_API_KEY", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("OPENAI_API_KEY", "x"),
        ("GITHUB_TOKEN", "x"),
        ("MY_SERVICE_PASSWORD", "x"),
        ("DB_PASSWD", "x"),
        ("SECRET", "x"),
        ("DATABASE_URL", "postgres://host/db"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json"),
        ("PROXY", "https://user:hunter2@proxy.example"),
        ("lower_case_api_key", "x"),
    ],
)
def test_secrets_are_recognised(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "PWD", "OLDPWD", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "KEYBOARD", "TOKENIZERS_PARALLELISM",
     "PYTHONPATH", "OMP_NUM_THREADS", "XDG_SESSION_ID", "HF_HOME", "PATTERN", "MONKEY"],
)  # fmt: skip
def test_ordinary_variables_stay(name: str) -> None:
    assert not is_secret(name, "value")


def test_scrub_says_what_it_held_back_and_keeps_what_was_asked_for() -> None:
    environment = {"PATH": "/bin", "HF_TOKEN": "a", "WANDB_API_KEY": "b"}
    kept, removed = scrub(environment, ("HF_TOKEN",))
    assert kept == {"PATH": "/bin", "HF_TOKEN": "a"}
    assert removed == ("WANDB_API_KEY",)


def test_program_environment_fixes_hashing_and_hides_real_devices_from_a_virtual_one() -> None:
    kept, _ = program_environment({"PYTHONHASHSEED": "7"}, (), virtual=True)
    assert kept["PYTHONHASHSEED"] == "7"
    assert kept["CUDA_VISIBLE_DEVICES"] == ""
    kept, _ = program_environment({}, (), virtual=False)
    assert kept["PYTHONHASHSEED"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in kept
