"""Counted models and vectors from counts give on a GPU what they give on the CPU."""

import pytest
import torch

from vademecum.language import GloVe, NGramModel, SpectralEmbedding, cooccurrence, pmi

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def text(T=2000, V=30):
    law = 1 / torch.arange(1.0, V + 1)
    return law.multinomial(T, replacement=True, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("smoothing", ["kneser_ney", "add_one", "none"])
def test_ngram_models(smoothing):
    tokens = text()
    here = NGramModel(tokens, 4, V=30, smoothing=smoothing)
    there = NGramModel(tokens.cuda(), 4, V=30, smoothing=smoothing)
    x = tokens[:60].reshape(3, 20)
    for model in (there, here.cuda()):
        found, logits = model.log_prob(x.cuda()), model(x.cuda())
        assert found.is_cuda
        assert logits.is_cuda
        model.cpu()
        torch.testing.assert_close(found.cpu(), model.log_prob(x))
        torch.testing.assert_close(logits.cpu(), model(x))
        model.cuda()
    drawn = there.sample(5, 7, prompt=x[0, :2], generator=torch.Generator().manual_seed(0))
    assert drawn.is_cuda
    assert drawn.shape == (5, 7)
    again = there.cpu().sample(5, 7, prompt=x[0, :2], generator=torch.Generator().manual_seed(0))
    assert drawn.cpu().equal(again)


def test_vectors_from_counts():
    counts = cooccurrence(text().cuda(), window=3, vocabulary=30).counts.toarray()
    C = torch.from_numpy(counts).double()
    torch.testing.assert_close(pmi(C.cuda()).cpu(), pmi(C))
    low, high = (SpectralEmbedding(4).fit(M) for M in (C, C.cuda()))
    assert high.embedding_.is_cuda
    torch.testing.assert_close(high.eigenvalues_.cpu(), low.eigenvalues_)
    torch.testing.assert_close(high.inverse_transform(high.embedding_).cpu(),
                               low.inverse_transform(low.embedding_))  # fmt: skip
    one, other = (GloVe(3, tol=1e-3, random_state=0).fit(M) for M in (C, C.cuda()))
    assert other.embedding_.is_cuda
    torch.testing.assert_close(other.embedding_.cpu(), one.embedding_, rtol=1e-5, atol=1e-6)


def test_large_matrices():
    A = torch.randn(700, 700, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = A + A.T
    found = SpectralEmbedding(3, random_state=0).fit(A.cuda())
    values = torch.linalg.eigvalsh(A)
    wanted = values[values.abs().argsort(descending=True)[:3]]
    torch.testing.assert_close(found.eigenvalues_.cpu(), wanted)
