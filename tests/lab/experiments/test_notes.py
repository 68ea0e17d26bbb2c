"""What a page says about differences to the paper's recipe."""

from learnpool.lab.experiments.notes import describe_differences
from learnpool.lab.runs.presets import preset


def test_differences_to_the_papers_recipe_are_named():
    assert describe_differences([preset("paper", "cifar10")]) == []
    text = " ".join(describe_differences([preset("cpu", "cifar10", train_size=10_000)]))
    for words in ("0.25 of the paper's channels", "10,000 training images", "not 400", "no deep supervision"):
        assert words in text
    assert "So that the pools learn" not in text  # max has nothing to learn
    text = " ".join(describe_differences([preset("cpu", "cifar10", pool="gated", net="learnpool.nets:small")]))
    assert "Another network than the paper's: learnpool.nets:small." in text
    assert (
        "So that the pools learn: masks and filters start spread, not N(0, 0.5); their parameters learn at 3 times"
        in text
    )
    assert "channels" not in text


def test_a_network_without_a_recipe_of_the_papers():
    runs = [preset("cpu", "cifar10", net="resnet9", pool=pool, replace="strided") for pool in ("conv", "gated")]
    assert describe_differences(runs) == ["Another network than the paper's: resnet9, for which it has no recipe."]


def test_a_difference_of_some_data_sets_names_them():
    text = " ".join(describe_differences([preset("cpu", data, pool="gated") for data in ("mnist", "cifar10")]))
    assert "16 epochs, not 400." in text
    assert "images prepared by mean, not gcn-zca (CIFAR10);" in text
    assert "softmax loss, not hinge (CIFAR10)." in text


def test_the_schedule_is_named_as_it_is():
    run = preset("cpu", "cifar10", schedule="step", rate=(0.1, 0.01), milestones=(0.5,))
    text = " ".join(describe_differences([run]))
    assert "steps at fixed places, not steps on a plateau of the validation error" in text
    assert "learning rate 0.1, then 0.01, not 0.025, then 0.0125, then 0.0001" in text


def test_a_proportion_has_a_rate_but_no_start():
    text = " ".join(describe_differences([preset("cpu", "cifar10", pool=pool) for pool in ("max", "mixed")]))
    assert "So that the pools learn: their parameters learn at 3 times the common rate; and are not decayed." in text


def test_what_a_page_is_about_is_left_out():
    runs = [preset("cpu", "cifar10", pool="gated")]
    assert "masks and filters start" in " ".join(describe_differences(runs))
    assert "masks and filters start" not in " ".join(describe_differences(runs, skip=("start",)))
    assert describe_differences([]) == []
