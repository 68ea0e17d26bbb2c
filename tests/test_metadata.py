"""What the page on PyPI will say: no address is written down, and a release gives every link the one it has."""

import email
import os
import re
import subprocess
import sys

import pytest
from pages import ROOT

import learnpool

ADDRESS = "https://example.org/someone/learnpool"


@pytest.fixture
def read_metadata(tmp_path):
    """A function that gives the metadata of a build, with or without an address."""

    def read(**variables):
        environment = {**os.environ, "LEARNPOOL_PURE": "1", **variables}
        command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        return email.message_from_string((tmp_path / "learnpool.egg-info" / "PKG-INFO").read_text(encoding="utf-8"))

    return read


def test_without_an_address_there_are_no_links_of_ours(read_metadata, monkeypatch):
    monkeypatch.delenv("LEARNPOOL_REPOSITORY", raising=False)
    metadata = read_metadata()
    assert metadata["Version"] == learnpool.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("Project-URL") is None
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


def test_with_an_address_every_link_is_absolute(read_metadata):
    metadata = read_metadata(LEARNPOOL_REPOSITORY=ADDRESS)
    assert f"Source, {ADDRESS}" in metadata.get_all("Project-URL")
    text = metadata.get_payload()
    assert f"![One region through max, average, mixed, gated and tree pooling]({ADDRESS}/raw/v" in text
    fences = re.compile(r"^```.*?^```$", re.M | re.S)
    assert fences.findall(text) == fences.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)]*)\)", fences.sub("", text))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []


def test_one_version_everywhere():
    for name in ("CITATION.cff", "CHANGELOG.md"):
        versions = re.findall(r"^(?:version: |## )([\d.]+)", (ROOT / name).read_text(encoding="utf-8"), re.M)
        assert versions[0] == learnpool.__version__, name
