"""What the table at the end says of the peaks."""

import pytest

from headroom.records.trial import CampaignResult
from headroom.report.fix import figures
from headroom.units import GIB


def _rows(**changes: object) -> dict[str, str]:
    fields: dict[str, object] = {
        "campaign_id": "fix-1",
        "verdict": "measured",
        "equivalence": "bitwise",
        "target_met": True,
        "target_bytes": 8 * GIB,
        "before_peak_bytes": 8 * GIB,
        "after_peak_bytes": 2 * GIB,
        "rounds": 1,
        "program": "train.py",
        "device": "cuda",
        "card": "NVIDIA H200",
        "why": "target met",
    }
    return dict(figures(CampaignResult.model_validate({**fields, **changes})))


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        ({}, "8.00 GiB", "2.00 GiB (-75.0%)"),
        (
            {"before_is_lower_bound": True},
            "out of memory at 8.00 GiB",
            "2.00 GiB (at least -75.0%)",
        ),
        (
            {"before_is_lower_bound": True, "reference_peak_bytes": 16 * GIB},
            "out of memory at 8.00 GiB; needs 16.00 GiB",
            "2.00 GiB (-87.5%)",
        ),
        (
            {"predicted_peak_bytes": 3 * GIB},
            "8.00 GiB",
            "2.00 GiB (-75.0%), predicted 3.00 GiB",
        ),
        ({"after_peak_bytes": None}, "8.00 GiB", "nothing kept"),
    ],
)
def test_peaks(changes: dict[str, object], before: str, after: str) -> None:
    rows = _rows(**changes)
    assert (rows["before"], rows["after"]) == (before, after)


def test_what_the_virtual_gpu_says_is_called_a_prediction() -> None:
    assert "predictions" in _rows(device="virtual")["program"]
    assert "prediction" not in _rows()["program"]
