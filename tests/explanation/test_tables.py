"""What explain prints, at a prompt and in a notebook."""

import html
import re

import torch
from torch import nn

import learnpool
from learnpool import Filter, GatedPool2d, Max, Mix, MixedPool2d, Pool2d, TreePool2d


def test_the_table():
    net = nn.Sequential(GatedPool2d(2, stride=1), Pool2d(Mix(Max(), Filter(), a=0.75), 1))
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] = torch.tensor([[0.0, 0.5], [-0.25, 0.0]])
        net[1].weight.fill_(2)
    text = str(learnpool.explain(net, torch.zeros(3, 2, 2, 2)))
    assert (
        text
        == """2 learned pools, 6 parameters; gates s = σ(ω·x) over all regions of 3 images

pool  node   left | right   mean  s < 0.05  s > 0.95   entropy
0     gate0  max | mean     0.50       0 %       0 %  1.00 bit
1     mix0   max | filter0  0.75

0: gated, 2×2, stride 1×1, shared per layer
  ω of gate0
   0.00  0.50
  −0.25  0.00

1: Mix(Max(), Filter(), a=0.75), 1×1, stride 1×1, shared per layer
  v of filter0
  2.00"""
    )


def test_the_table_of_a_bank_per_channel_and_of_a_large_tree():
    net = nn.Sequential(
        GatedPool2d(2, share="channel", channels=2), TreePool2d(1, levels=4), learnpool.TreePool3d(2, levels=1)
    )
    with torch.no_grad():
        net[0].weight[0, 0], net[0].weight[0, 1] = 1, 0
    text = str(learnpool.explain(net))
    assert "  mean of 2\n  0.50 0.50\n  0.50 0.50\n" in text
    assert "  and 7 more\n" in text
    assert (
        len(text.split("v of filter0")[-1].splitlines()) == 6
    )  # two planes of two rows, a gap, and the heading's rest


def test_a_prompt_and_a_notebook_show_the_table():
    net = nn.Sequential(GatedPool2d(2), MixedPool2d(2), TreePool2d(2))
    explanation = learnpool.explain(net, torch.randn(2, 1, 8, 8))
    assert repr(explanation) == str(explanation)
    page = explanation._repr_html_()
    tags = re.findall("</?([a-z]+)", page)
    assert all(tags.count(tag) % 2 == 0 for tag in tags)
    shown = html.unescape(re.sub("<[^>]*>", " ", page)).split()
    assert shown == str(explanation).split()


def test_names_are_text_in_a_terminal_and_in_a_notebook():
    net = nn.Sequential()
    net.add_module("<b>\x1b[2J", GatedPool2d(2))
    explanation = learnpool.explain(net)
    for text in (str(explanation), explanation._repr_html_()):
        assert "\x1b" not in text
        assert r"\x1b[2J" in text
    assert "<b>" not in explanation._repr_html_()
