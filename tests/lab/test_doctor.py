"""The self-test finds what is wrong, and says which case."""

import pytest
import torch

from learnpool.lab import doctor

CPU = torch.device("cpu")


def test_every_pool_window_and_dtype_is_there():
    cases = doctor.list_cases()
    assert len({(case.pool, case.window, case.dtype) for case in cases}) == len(cases) == 19 * 6 * 4
    for name in ("share", "layout", "dims"):
        assert len({getattr(case, name) for case in cases}) >= 3
    assert len(doctor.list_cases(quick=True)) == 38


def test_a_right_kernel_passes():
    outcomes = doctor.examine(CPU, True, lambda: None)
    assert not any(outcome.problem for outcome in outcomes)
    assert "| gated | 2/2 |" in doctor.format_table(outcomes)


def test_a_wrong_kernel_is_found(monkeypatch):
    forward = doctor.reference.forward
    monkeypatch.setattr(doctor.reference, "forward", lambda *arguments: forward(*arguments) + 1)
    outcomes = doctor.examine(CPU, True, lambda: None)
    assert all(("y differs by up to 1" in o.problem) == (o.name != doctor.STOCHASTIC) for o in outcomes)
    table = doctor.format_table(outcomes)
    assert "| gated | 0/2 |" in table
    assert "- gated, 3/2 padded, float32" in table


def test_wrong_picks_are_found(monkeypatch):
    backward = doctor.stochastic.pool_backward
    monkeypatch.setattr(doctor.stochastic, "pool_backward", lambda *arguments: backward(*arguments) + 1)
    outcomes = doctor.examine(CPU, True, lambda: None)
    assert {o.name for o in outcomes if o.problem} == {doctor.STOCHASTIC}
    assert all("picked dx differs by up to 1" in o.problem for o in outcomes if o.problem)


def test_the_command(learnpool):
    status, out, _ = learnpool("doctor", "--quick")
    assert status == 0
    assert "| float32 |" in out
    assert "3/1 padded: kernel 3" in out
    assert "7/3" not in out  # not tried
    status, _, error = learnpool("doctor", "--device", "cuda:99")
    assert (status, len(error.splitlines())) == (2, 1)
    assert "cuda:99" in error


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_checks_of_hardware():
    problems = [problem for _, problem in doctor.check_hardware(torch.device("cuda"))]
    assert all(not problem or problem.startswith("not checked") for problem in problems)


def test_the_reference_is_not_compared_with_itself(learnpool, monkeypatch):
    monkeypatch.setattr(doctor.cpu, "CPU", doctor.cpu.Status(False, "not built"))
    status, _, error = learnpool("doctor", "--quick")
    assert (status, len(error.splitlines())) == (2, 1)
    assert "not built" in error
