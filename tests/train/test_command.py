"""`vade train`: flags, files, folders, and one clear line for what cannot be."""

import json
import subprocess
import sys

import pytest

import vademecum.train.fitting
from vademecum.cli import main
from vademecum.cli.recipe_flags import words_of_file
from vademecum.cli.train import training_words
from vademecum.errors import UsageError
from vademecum.train import RECIPES

QUICK = ["--model.name", "mlp", "--model.width", "4", "--steps", "2", "--batch-size", "8"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(folder: str) -> dict:
    with open(f"{folder}/config.json") as file:
        return json.load(file)


def test_a_recipe_runs_in_a_folder_of_its_own(capsys):
    assert main(["train", "classify", *QUICK]) == 0
    assert main(["train", "classify", *QUICK, "--optimizer", "sgd", "--lr=0.5"]) == 0
    first, second = config("runs/classify"), config("runs/classify-2")
    assert (first["recipe"], first["optimizer"], first["steps"]) == ("classify", "muon", 2)
    assert first["model"] == {"name": "mlp", "width": 4, "depth": None}
    assert (second["optimizer"], second["lr"]) == ("sgd", 0.5)
    with open("runs/classify/summary.json") as file:
        assert json.load(file)["stopped"] == "finished"
    assert "accuracy" in capsys.readouterr().err


def test_seeds_decide_on_the_weights_at_first(tmp_path):
    from safetensors.torch import load_file

    found = []
    for i, seed in enumerate((3, 3, 4)):
        assert main(["train", "classify", *QUICK, "--seed", str(seed), "--out", str(i)]) == 0
        found.append(load_file(f"{i}/checkpoints/step-00000000/model.safetensors"))
    same = [all((found[0][k] == other[k]).all() for k in other) for other in found[1:]]
    assert same == [True, False]


def test_a_signal_ends_with_75(monkeypatch):
    real = vademecum.train.fitting.fit

    def interrupted(*args, **options):
        return real(*args, **options)._replace(stopped="signal")

    monkeypatch.setattr(vademecum.train.fitting, "fit", interrupted)
    assert main(["train", "classify", *QUICK]) == 75


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["clasify"], "no recipe is called 'clasify'; nearest: classify"),
        (["zzz"], "there are: classify, adversarial"),
        (["classify", "--epohcs", "3"], "classify has no flag --epohcs; nearest: --epochs"),
        (["classify", "--model.widht=3"], "no flag --model.widht; nearest: --model.width"),
        (["--stpes", "3"], "vade train has no flag --stpes; nearest: --steps"),
        (["classify", "--steps=3", "--epochs=2"], "at most one of --steps, --epochs and --minutes"),
        (["classify", "--head", "new"], "--head new needs --from"),
        (["classify", "--unfreeze-after", "3"], "--unfreeze-after needs --freeze"),
        (["classify", "--layer-decay", "2"], "--layer-decay must be in (0, 1], got 2"),
        (["classify", "--average", "often"], "--average must be uniform or a number, got 'often'"),
        (["classify", "--from", "nowhere"], "--from must be a run's folder"),
        (["classify", "--labels", "3"], "--labels must be from 10 to 1437, got 3"),
        (["classify", "--steps", "0"], "steps must be >= 1, got 0"),
        (["classify", "--model.name=lenet5", "--model.depth=3"], "model.depth must be left out"),
        (["classify", "--resume", "--out", "nowhere"], "nowhere"),
        (["nodes", "--labels", "99"], "--labels must be from 1 to 16 for karate, got 99"),
        (["gpt", "--model.heads", "5"], "heads"),
        (["gpt", "--data", "nowhere.txt"], "stdlib_text or the path of a text file"),
        (["gpt", "--data", "empty.txt"], "must hold at least 330 bytes, got 0 in 'empty.txt'"),
        (["skipgram", "--data", "ones.txt"], "must hold at least two different words, got 1"),
        (["classify", "--config", "nowhere.yaml"], "--config nowhere.yaml cannot be read"),
        (["classify", "--config"], "--config needs a value"),
        (["--resume"], "--resume needs a recipe beside it; vade train --list shows them"),
        (["--steps", "3"], "--steps needs a recipe beside it"),
        (["classify", "--device", "cudda"], "device must be such as 'cpu' or 'cuda', got 'cudda'"),
        (["classify", "--device", "cuda:99"], "device must be there, got 'cuda:99'"),
        (["classify", "--probe-steps", "-1"], "--probe-steps must be >= 0, got -1"),
        (["classify", "--freeze=*", "--unfreeze-after=-1"], "--unfreeze-after must be >= 0"),
        (["classify", "--model.width", "0"], "width must be >= 1, got 0"),
        (["prose", "--labels", "1"], "--labels must be >= 2, one of each kind, got 1"),
        (["skipgram", "--data", "new.txt"], "more than 2 known words in its last tenth, got 1"),
    ],
)
def test_one_clear_line(words, complaint, capsys, tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "ones.txt").write_text("one " * 100)
    (tmp_path / "new.txt").write_text("one two " * 50 + "new " * 10)
    assert main(["train", *words]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert complaint in error[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a: !!python/object/apply:os.system ['touch ran']", "must be plain YAML"),
        ("steps: !!python/name:os.system", "must be plain YAML"),
        ("model: {class_path: os.system, init_args: {command: touch ran}}", "plain values"),
        ("optimizer: os.system", "os.system"),
        ("recipe: os.system", "is for the recipe os.system, got classify"),
        ("recipe: [1]", "must name a recipe"),
        ("- 1", "must hold names and values"),
        ("steps: [1, 2]", "must hold plain values"),
        ("stepz: 3", "--config run.yaml: classify has no flag --stepz; nearest: --steps"),
        ("recipe: gpt", "is for the recipe gpt, got classify"),
        ("steps: 3\nepochs: 2", "at most one of"),
        ("[", "must be plain YAML"),
        ("\x00", "must be plain YAML"),
    ],
)
def test_files_run_no_code_and_are_checked(content, complaint, capsys, tmp_path):
    (tmp_path / "run.yaml").write_text(content)
    assert main(["train", "classify", "--config", "run.yaml"]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "runs").exists()


def test_files_give_flags_and_typed_ones_win(tmp_path):
    lines = (
        "recipe: classify\nsteps: 7\nmodel:\n  width: 3\nlr: 0.5\nresume: false\ncompile: true\n"
    )
    (tmp_path / "run.yaml").write_text(lines)
    words = training_words(["--config", "run.yaml", "--lr", "0.25", "--epochs=2"])
    assert words == [
        *("classify", "--model.width=3", "--lr=0.5", "--compile", "--lr", "0.25", "--epochs=2"),
    ]
    assert words_of_file(tmp_path / "run.yaml")[0] == "classify"


def test_the_configuration_of_a_run_runs_it_again():
    assert main(["train", "classify", *QUICK, "--lr", "0.125"]) == 0
    assert main(["train", "--config", "runs/classify/config.json", "--out", "again"]) == 0
    assert config("again") == config("runs/classify")


def test_resuming_needs_no_flags_and_refuses_others(capsys):
    assert main(["train", "classify", *QUICK]) == 0
    assert main(["train", "--resume", "--out", "runs/classify"]) == 0
    assert main(["train", "classify", *QUICK, "--resume", "--lr", "7"]) == 2
    assert "lr was 0.01 in the checkpoint and is 7.0 now" in capsys.readouterr().err
    longer = [*QUICK, "--steps", "3", "--resume"]
    assert main(["train", "classify", *longer]) == 2
    assert main(["train", "classify", *longer, "--change", "steps"]) == 0
    other = [*longer, "--batch-size", "9", "--change", "steps,batch-size"]  # as flags are typed
    assert main(["train", "classify", *other]) == 0
    with open("runs/classify/summary.json") as file:
        assert json.load(file)["steps"] == 3


def test_runs_that_begin_at_the_same_time_have_a_folder_each(monkeypatch):
    real = vademecum.train.fitting.fit

    def slower(*args, **options):
        monkeypatch.setattr(vademecum.train.fitting, "fit", real)
        assert main(["train", "classify", *QUICK, "--seed", "1"]) == 0
        return real(*args, **options)

    monkeypatch.setattr(vademecum.train.fitting, "fit", slower)
    assert main(["train", "classify", *QUICK]) == 0
    assert (config("runs/classify")["seed"], config("runs/classify-2")["seed"]) == (0, 1)


def test_the_end_is_told_with_the_folder(capsys):
    assert main(["train", "classify", *QUICK]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("runs/classify: finished after 2 steps, best accuracy 0.")


def test_a_head_is_tuned_on_a_run(capsys):
    small = ["--model.name", "mlp", "--model.width", "4", "--batch-size", "8"]
    assert main(["train", "contrastive", *small, "--steps", "1"]) == 0
    tuned = ["train", "classify", *small, "--from", "runs/contrastive", "--steps", "2"]
    assert main(tuned) == 2
    assert "has the shape (64, 4), and here (10, 4)" in capsys.readouterr().err
    assert main([*tuned, "--head", "new", "--freeze", "model.1.*", "--out", "tuned"]) == 0
    from safetensors.torch import load_file

    before = load_file("runs/contrastive/checkpoints/step-00000001/model.safetensors")
    after = load_file("tuned/checkpoints/step-00000002/model.safetensors")
    assert (before["model.1.weight"] == after["model.1.weight"]).all()
    assert (before["model.3.weight"] != after["model.3.weight"]).any()
    assert config("tuned")["from"] == "runs/contrastive"


def test_several_processes_need_a_common_folder(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    from vademecum.cli.run_folder import run_folder
    from vademecum.cli.training_options import Options

    with pytest.raises(UsageError, match="--out FOLDER"):
        run_folder("classify", Options())


def test_list_shows_each_recipe_with_its_score(capsys):
    assert main(["train", "--list"]) == 0
    head, *lines = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert head == ["command", "what it does", "data", "score", "seconds"]
    assert {line[0].split()[0] for line in lines} == set(RECIPES)
    assert all("±" in line[3] for line in lines)
    data = {line[0].split()[0]: line[2] for line in lines if line[1]}
    assert {data[name] for name in RECIPES} == {"digits", "stdlib_text", "drawn", "karate", "moons"}


def test_help_answers_without_torch():
    for words in (["train", "--help"], ["train", "gpt", "--help"]):
        code = (
            "import sys, contextlib\nfrom vademecum.cli import main\n"
            f"with contextlib.suppress(SystemExit):\n    main({words})\n"
            "print()\nprint('torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines()[-1] == "False"
        assert "--probe-steps" in done.stdout
        assert ("--model.heads" in done.stdout) == (words[1] == "gpt")
