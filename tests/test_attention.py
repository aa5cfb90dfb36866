"""Attention within packed pairs: by runs of equal lengths, and by one kernel for any lengths, the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchzs.models.attention import RunAttention, Sequences, VarlenAttention, choose_attention
from tests.builders import PATIENT_AND_BRIEF

CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=9)


def textbook(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """softmax(q k' / sqrt(d)) v, for (heads, length, d)."""
    weights = query @ key.transpose(1, 2) / math.sqrt(query.shape[2])
    return weights.softmax(dim=-1) @ value


def slow_kernel(  # noqa: PLR0917 - varlen_attn's arguments
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
) -> torch.Tensor:
    """What `varlen_attn` is documented to give, sequence by sequence, for (tokens, heads, d)."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    q_bounds, k_bounds = cu_seq_q.tolist(), cu_seq_k.tolist()
    assert (max(np.diff(q_bounds)), max(np.diff(k_bounds))) == (max_q, max_k)
    parts = [
        textbook(*(part.transpose(0, 1) for part in (query[q0:q1], key[k0:k1], value[k0:k1]))).transpose(0, 1)
        for q0, q1, k0, k1 in zip(q_bounds, q_bounds[1:], k_bounds, k_bounds[1:], strict=False)
    ]
    return torch.cat(parts)


def test_worked_by_hand() -> None:
    """One head of width 1, a pair of two tokens: weights e^0 and e^(ln 3) = 1 : 3, values 4 and 8: (4 + 24) / 4 = 7.

    The pair after it has one token, whose value is all that it can attend to.
    """
    query_key_value = torch.tensor([[1.0, 0.0, 4.0], [1.0, math.log(3), 8.0], [5.0, 5.0, 9.0]])
    sequences = Sequences.of(np.array([2, 1]), CPU)
    for attention in (RunAttention(), VarlenAttention(slow_kernel)):
        torch.testing.assert_close(
            attention.everywhere(query_key_value, sequences, 1), torch.tensor([[7.0], [7.0], [9.0]])
        )
        first = attention.first_only(query_key_value[[0, 2], :1], query_key_value[:, 1:], sequences, 1)
        torch.testing.assert_close(first, torch.tensor([[7.0], [9.0]]))


@PATIENT_AND_BRIEF
@given(
    lengths=LENGTHS, num_heads=st.sampled_from([1, 2, 3]), head_size=st.sampled_from([1, 4]), seed=st.integers(0, 99)
)
def test_both_ways_are_the_textbooks(lengths: list[int], num_heads: int, head_size: int, seed: int) -> None:
    """Any lengths in any order: no pair sees another one's tokens."""
    draw = torch.Generator().manual_seed(seed)
    size = num_heads * head_size
    query_key_value = torch.randn(sum(lengths), 3 * size, generator=draw)
    sequences = Sequences.of(np.array(lengths), CPU)
    expected = torch.cat(
        [
            textbook(*(part.view(len(part), num_heads, head_size).transpose(0, 1) for part in own.chunk(3, dim=1)))
            .transpose(0, 1)
            .flatten(1)
            for own in torch.tensor_split(query_key_value, np.cumsum(lengths)[:-1].tolist())
        ]
    )
    first = sequences.first_tokens
    for attention in (RunAttention(), VarlenAttention(slow_kernel)):
        torch.testing.assert_close(
            attention.everywhere(query_key_value, sequences, num_heads), expected, atol=1e-5, rtol=1e-5
        )
        alone = attention.first_only(query_key_value[first, :size], query_key_value[:, size:], sequences, num_heads)
        torch.testing.assert_close(alone, expected[first], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("device", "dtype", "head_size", "is_one_kernel"),
    [
        ("cuda", torch.float16, 64, True),
        ("cuda", torch.bfloat16, 64, True),
        ("cuda", torch.float32, 64, False),  # the kernel takes half precision alone
        ("cuda", torch.float16, 20, False),
        ("cuda", torch.float16, 512, False),
        ("cpu", torch.bfloat16, 64, False),
    ],
)
def test_which_way_is_taken(device: str, dtype: torch.dtype, head_size: int, *, is_one_kernel: bool) -> None:
    """The kernel for any lengths, only where it runs."""
    chosen = choose_attention(torch.device(device), dtype, head_size)
    assert isinstance(chosen, VarlenAttention) is is_one_kernel
