from __future__ import annotations

from studies.harness import smoke_run

from flipscope.studies.low_sensitivity.kernel_spectrum import STUDY


def test_smoke_breaks_the_printed_proposition_and_keeps_the_corrected_one() -> None:
    table, judgements, figures = smoke_run(STUDY)
    found = {claim.name: judgement.verdict for claim, judgement in judgements}
    assert found["the monomials are eigenfunctions"] == "contradicted"
    assert found["eigenvalues fall along even and along odd degrees"] == "contradicted"
    assert found["the eigenvalues of MLPs fall along even and along odd degrees"] == "reproduced"
    assert found["with slots the monomials are eigenfunctions"] == "reproduced"
    assert found["with slots the eigenvalues fall"] == "reproduced"
    assert found["networks approach the kernels of infinite width"] == "undecided"  # two widths
    assert [figure.name for figure in figures] == ["kernel-spectrum", "kernel-width"]
    assert {row["source"] for row in table} == {"slots", "pairs", "softmax", "finite"}
