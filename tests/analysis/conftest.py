"""Runs that several tests of findings look at; each is made once."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def account_of_case(tmp_path_factory):
    """The account of a run on the CPU, by its name in `findings_cases.CASES`."""
    known = {}

    def account(name):
        if name not in known:
            import findings_cases
            import findings_runs

            known[name] = findings_runs.account_of(findings_cases.CASES[name][0], tmp_path_factory.mktemp("findings"))
        return known[name]

    return account


@pytest.fixture(scope="session")
def found_in_case(account_of_case):
    """What is found in a run on the CPU, by id."""
    from memprof.analysis.findings import find_all

    return lambda name: {finding.id: finding for finding in find_all(account_of_case(name))}
