"""Inference that torch's fast paths serve, and training under DataParallel; prints the peak of each."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from virtual_cases import case, run_cases

CUDA, WIDTH, HEADS = "cuda", 512, 8


def encoder(**options):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 3).to(CUDA).eval()


def tokens():
    return torch.randn(32, 256, WIDTH, device=CUDA)


def padding():
    lengths = torch.arange(32) * 6 + 40  # 40 to 226 of 256
    return torch.arange(256)[None, :].ge(lengths[:, None]).to(CUDA)


def attention():
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(CUDA).eval()


@case
def encoder_dense():
    encoder()(tokens())


@case
def encoder_padded():
    encoder()(tokens(), src_key_padding_mask=padding())


@case
def encoder_causal():
    mask = nn.Transformer.generate_square_subsequent_mask(256, device=CUDA)
    encoder()(tokens(), mask=mask, is_causal=True)


@case
def encoder_norm_first_gelu():
    encoder(norm_first=True, activation="gelu")(tokens())


@case
def encoder_in_bfloat16():
    with torch.autocast("cuda", torch.bfloat16):
        encoder()(tokens())


@case
def encoder_of_bfloat16_padded():
    encoder().bfloat16()(tokens().bfloat16(), src_key_padding_mask=padding())


@case
def attention_alone():
    x = tokens()
    attention()(x, x, x, need_weights=False)


@case
def attention_with_weights():
    x = tokens()
    attention()(x, x, x)


@case
def attention_with_padding():
    x = tokens()
    attention()(x, x, x, key_padding_mask=padding())


@case
def attention_across():
    x = tokens()
    attention()(x, x[:, :100], x[:, :100])


@case
def odd_heads():
    x = torch.randn(32, 256, 60, device=CUDA)
    nn.MultiheadAttention(60, 5, batch_first=True).to(CUDA).eval()(x, x, x, need_weights=False)


@case
def nested_values():
    lengths = [100 + 7 * i for i in range(32)]
    nested = torch.nested.nested_tensor([torch.randn(n, WIDTH) for n in lengths], device=CUDA)
    encoder()(nested)
    nested.to_padded_tensor(0.0)


@case
def data_parallel():
    model = nn.DataParallel(
        nn.Sequential(nn.Linear(WIDTH, 4096), nn.ReLU(), nn.Linear(4096, 100)).to(CUDA)
    )
    optimizer = torch.optim.Adam(model.parameters())
    with torch.enable_grad():
        for _ in range(2):
            loss = F.cross_entropy(
                model(torch.randn(8192, WIDTH)), torch.zeros(8192, dtype=torch.long, device=CUDA)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


with torch.no_grad():
    run_cases()
