"""Negatives of all processes: two of them, with gradients, take the step of one process with the whole batch."""

from __future__ import annotations

import subprocess
import sys

import torch

from annotators.training.binary import gathered, softmax_common

PROGRAM = """
import sys, torch
from torch import distributed
from annotators.training.binary import gathered, softmax_common

rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
images, captions, weight = torch.load(store + ".inputs")
weight.requires_grad_()
mine = slice(0, 2) if rank == 0 else slice(2, 5)
ids = gathered(torch.arange(5)[mine])
products = gathered(images[mine] @ weight.T) @ gathered(captions[mine] @ weight.T).T
loss = softmax_common(products, ids[:, None] == ids)
loss.backward()
distributed.all_reduce(weight.grad)
torch.save((loss.detach(), weight.grad / 2, ids), out)
distributed.destroy_process_group()
"""


def test_two_processes_are_as_one(tmp_path, start_program):
    """Two rows here and three there: loss and averaged gradient are those of all five in one process."""
    generator = torch.Generator().manual_seed(0)
    images, captions, weight = (torch.randn(5, 5, generator=generator) for _ in range(3))
    store = tmp_path / "store"
    torch.save((images, captions, weight), f"{store}.inputs")
    outs = [tmp_path / f"{rank}.pt" for rank in range(2)]
    programs = [
        start_program(
            [sys.executable, "-c", PROGRAM, str(rank), str(store), str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank, out in enumerate(outs)
    ]
    said = [program.communicate(timeout=200)[0].decode() for program in programs]
    assert [program.returncode for program in programs] == [0, 0], said
    weight.requires_grad_()
    loss = softmax_common((images @ weight.T) @ (captions @ weight.T).T, torch.eye(5, dtype=torch.bool))
    loss.backward()

    for out in outs:
        its_loss, gradient, ids = torch.load(out)
        assert ids.tolist() == [0, 1, 2, 3, 4]
        torch.testing.assert_close(its_loss, loss.detach())
        torch.testing.assert_close(gradient, weight.grad)


def test_a_lone_process_keeps_its_rows():
    """Without processes there is nothing to gather."""
    rows = torch.zeros(2, 3)

    assert gathered(rows) is rows
