"""Negatives of all processes: two of them, with gradients, take the step of one process with the whole batch."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import torch
from torch import Tensor, distributed

from annotators.training.binary import gathered, softmax_common


def step(rank: int, store: str) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, averaged gradient and gathered ids of a process that has its part of the rows."""
    wait = timedelta(seconds=100)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=wait
    )
    try:
        images, captions, weight = torch.load(f"{store}.inputs")
        weight.requires_grad_()
        mine = slice(0, 2) if rank == 0 else slice(2, 5)
        ids = gathered(torch.arange(5)[mine])
        products = gathered(images[mine] @ weight.T) @ gathered(captions[mine] @ weight.T).T
        loss = softmax_common(products, ids[:, None] == ids)
        loss.backward()
        distributed.all_reduce(weight.grad)
        return loss.detach(), weight.grad / 2, ids
    finally:
        distributed.destroy_process_group()


def test_two_processes_are_as_one(tmp_path, start_program):
    """Two rows here and three there: loss and averaged gradient are those of all five in one process."""
    generator = torch.Generator().manual_seed(0)
    images, captions, weight = (torch.randn(5, 5, generator=generator) for _ in range(3))
    store, out = str(tmp_path / "store"), tmp_path / "1.pt"
    torch.save((images, captions, weight), f"{store}.inputs")
    other = start_program(
        [sys.executable, __file__, store, str(out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    found = step(0, store)
    said = other.communicate(timeout=200)[0].decode()
    assert other.returncode == 0, said
    weight.requires_grad_()
    loss = softmax_common((images @ weight.T) @ (captions @ weight.T).T, torch.eye(5, dtype=torch.bool))
    loss.backward()

    for its_loss, gradient, ids in (found, torch.load(out)):
        assert ids.tolist() == [0, 1, 2, 3, 4]
        torch.testing.assert_close(its_loss, loss.detach())
        torch.testing.assert_close(gradient, weight.grad)


def test_a_lone_process_keeps_its_rows():
    """Without processes there is nothing to gather."""
    rows = torch.zeros(2, 3)

    assert gathered(rows) is rows


if __name__ == "__main__":
    torch.save(step(1, sys.argv[1]), sys.argv[2])
