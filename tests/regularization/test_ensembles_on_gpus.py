"""Passes with dropout and bagging on a GPU."""

import pytest
import torch

from tests.regularization.dropping_models import MODELS, looped
from vademecum.regularization import Bagging, dropout_ensemble, mc_dropout

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_mc_dropout_on_a_gpu_is_a_loop(name):
    model, shape = MODELS[name]()
    model, x = model.eval().cuda(), torch.randn(shape).cuda()
    state = torch.cuda.get_rng_state()
    found = mc_dropout(model, x, samples=1000)
    assert state.equal(torch.cuda.get_rng_state())
    wanted = looped(model, x, 1000)
    error = ((found.variance + wanted.var(0)) / 1000).sqrt()
    assert ((found.mean - wanted.mean(0)).abs() <= 5.5 * error + 1e-4).all()
    assert (found.variance > 0).any()


@CUDA
@pytest.mark.gpu
def test_dropout_ensemble_on_a_gpu_is_that_of_the_cpu():
    model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(7, 3)).double()
    x = torch.randn(4, 7, dtype=torch.float64)
    wanted = dropout_ensemble(model, x)
    found = dropout_ensemble(model.cuda(), x.cuda())
    torch.testing.assert_close(found.arithmetic.cpu(), wanted.arithmetic)
    torch.testing.assert_close(found.variance.cpu(), wanted.variance)


@CUDA
@pytest.mark.gpu
def test_bagging_on_a_gpu_answers_there():
    x = torch.randn(60, 3).cuda()
    model = Bagging(members=20, epochs=40, random_state=0).fit(x, (x[:, 0] > 0).long())
    assert model.predict_proba(x).device == x.device
    assert model.oob_score_ > 0.7
