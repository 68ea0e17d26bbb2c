"""What explain prints, at a prompt and in a notebook."""

import html
import re

import torch
from torch import nn

import learnpool
from learnpool import Avg, Filter, Gate, GatedPool2d, Max, Mix, MixedPool2d, Pool2d, Std, TreePool2d


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


def test_the_table_of_gates_that_trees_decide():
    net = nn.Sequential(
        Pool2d(Gate(Max(), Avg(), by=Std(), bias=True), 2),
        Pool2d(Gate(Max(), Avg(), by=Max()), 1, share="channel", channels=2),
    )
    with torch.no_grad():
        net[0].mix[1] = 0.5
        net[1].mix[0, 1] = 3
    assert (
        str(learnpool.explain(net, torch.zeros(1, 2, 2, 2)))
        == """2 learned pools, 4 parameters; gates s = σ(g·t + b) over all regions of 1 image

pool  node     left | right        mean   min   max  s < 0.05  s > 0.95   entropy
0     gate0    max | mean          0.62                   0 %       0 %  0.96 bit
      gate0.g  g: times t = Std()  1.00
      gate0.b  b: added to g·t     0.50
1     gate0    max | mean          0.50                   0 %       0 %  1.00 bit
      gate0.g  g: times t = Max()  2.00  1.00  3.00

0: Gate(Max(), Avg(), by=Std(), bias=True), 2×2, stride 2×2, shared per layer

1: Gate(Max(), Avg(), by=Max()), 1×1, stride 1×1, shared per channel"""
    )


def test_the_title_names_the_formulas_of_the_gates():
    x = torch.zeros(1, 1, 2, 2)
    both = Pool2d(Gate(Gate(Max(), Avg()), Avg(), by=Std()), 2)
    assert str(learnpool.explain(both, x)).startswith(
        "1 learned pool, 5 parameters; gates s = σ(ω·x) or σ(g·t + b) over all regions of 1 image\n"
    )
    assert str(learnpool.explain(MixedPool2d(2), x)).startswith("1 learned pool, 1 parameter\n")


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
