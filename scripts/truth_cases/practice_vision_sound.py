"""Practice: sound, and recurrent networks, which cuDNN computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from wider_runs import train

from truth_cases.practice_vision import settled
from truth_cases.registry import registry

__all__ = ["CASES"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16


@case
def hubert_masked_bf16() -> None:
    """Train a HuBERT to classify sounds in bfloat16 autocast, with masked time."""
    import transformers

    config = transformers.HubertConfig(
        hidden_size=320,
        num_hidden_layers=4,
        num_attention_heads=5,
        intermediate_size=1280,
        conv_dim=(192,) * 7,
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=10,
        layerdrop=0.0,
        num_labels=35,
    )
    model = transformers.HubertForSequenceClassification(config).cuda()

    def loss() -> torch.Tensor:
        sound = torch.randn(8, 16000, device="cuda")
        result: torch.Tensor = model(input_values=sound, labels=torch.randint(0, 35, (8,), device="cuda")).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def wav2vec2_layer_norms_fp16() -> None:
    """Train a Wav2Vec2 of the large kind (layer norms, biases) on CTC in float16 until settled."""
    import transformers

    config = transformers.Wav2Vec2Config(
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=1024,
        conv_dim=(128,) * 7,
        feat_extract_norm="layer",
        conv_bias=True,
        do_stable_layer_norm=True,
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=8,
        mask_time_prob=0.0,
        layerdrop=0.0,
        vocab_size=32,
        ctc_loss_reduction="mean",
    )
    model = transformers.Wav2Vec2ForCTC(config).cuda()

    def loss() -> torch.Tensor:
        sound = torch.randn(6, 24000, device="cuda")
        mask = torch.ones(6, 24000, dtype=torch.long, device="cuda")
        labels = torch.randint(1, 32, (6, 20), device="cuda")
        result: torch.Tensor = model(input_values=sound, attention_mask=mask, labels=labels).loss
        return result

    settled(model, torch.optim.AdamW(model.parameters(), 1e-5), loss)


@case
def whisper_encoder_classifies_fp32() -> None:
    """Train Whisper's encoder to classify in float32."""
    import transformers

    config = transformers.WhisperConfig(
        encoder_layers=3, d_model=320, encoder_attention_heads=5, encoder_ffn_dim=1280, num_labels=12
    )
    model = transformers.WhisperForAudioClassification(config).cuda()

    def loss() -> torch.Tensor:
        sound = torch.randn(4, 80, 3000, device="cuda")
        result: torch.Tensor = model(input_features=sound, labels=torch.randint(0, 12, (4,), device="cuda")).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


@case
def spectrogram_transformer_bf16() -> None:
    """Train an audio spectrogram transformer in bfloat16 autocast."""
    import transformers

    config = transformers.ASTConfig(
        hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536, max_length=512
    )
    config.num_labels = 50
    model = transformers.ASTForAudioClassification(config).cuda()

    def loss() -> torch.Tensor:
        sound = torch.randn(8, 512, 128, device="cuda")
        found = model(input_values=sound).logits
        return F.cross_entropy(found, torch.randint(0, found.shape[1], (8,), device="cuda"))

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def spectrum_loss_fp32() -> None:
    """Train a vocoder of transposed convolutions on the spectra of its sound: windows and Fourier transforms."""
    layers: list[nn.Module] = [nn.Conv1d(80, 128, 7, 1, 3)]
    inputs = 128
    for step in (8, 8, 2):
        layers += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(inputs, inputs // 2, 2 * step, step, step // 2)]
        inputs //= 2
        layers += [nn.LeakyReLU(0.1), nn.Conv1d(inputs, inputs, 3, 1, 3, dilation=3)]
    model = nn.Sequential(*layers, nn.LeakyReLU(0.1), nn.Conv1d(inputs, 1, 7, 1, 3), nn.Tanh()).cuda()
    window = torch.hann_window(1024, device="cuda")

    def spectrum(sound: torch.Tensor) -> torch.Tensor:
        found = torch.stft(sound, 1024, 256, window=window, return_complex=True)
        return torch.log(found.abs().clamp(min=1e-5))

    def loss() -> torch.Tensor:
        made = model(torch.randn(8, 80, 64, device="cuda")).squeeze(1)
        wanted = torch.randn(8, made.shape[1], device="cuda")
        return F.l1_loss(spectrum(made), spectrum(wanted)) + F.l1_loss(made, wanted)

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


class Tagger(nn.Module):
    """Words in, tags out, by a recurrent network in between."""

    def __init__(self, kind: str, width: int, hidden: int, layers: int, **options: bool | float) -> None:
        super().__init__()
        self.words = nn.Embedding(20000, width, padding_idx=0)
        self.body = getattr(nn, kind)(width, hidden, layers, batch_first=True, **options)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), 40)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """Return scores of tags."""
        x = self.words(words)
        if lengths is None:
            hidden = self.body(x)[0]
        else:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            hidden = pad_packed_sequence(self.body(packed)[0], batch_first=True, total_length=words.shape[1])[0]
        result: torch.Tensor = self.head(hidden)
        return result


def tags(model: nn.Module, batch: int, length: int, *, packed: bool = False) -> torch.Tensor:
    """Return the loss of tagging random words."""
    words = torch.randint(1, 20000, (batch, length), device="cuda")
    lengths = torch.linspace(length // 4, length, batch).long() if packed else None
    return F.cross_entropy(model(words, lengths).flatten(0, 1), torch.randint(0, 40, (batch * length,), device="cuda"))


@case
def lstm_language_fp32() -> None:
    """Train a language model of three LSTM layers with dropout by truncated backpropagation in float32."""
    table, body = nn.Embedding(10000, 400), nn.LSTM(400, 650, 3, dropout=0.4)
    head = nn.Linear(650, 10000)
    model = nn.ModuleList([table, body, head]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    state = None
    for _ in range(4):
        tokens = torch.randint(0, 10000, (36, 40), device="cuda")
        hidden, state = body(F.dropout(table(tokens), 0.3), state)
        state = tuple(each.detach() for each in state)
        loss = F.cross_entropy(head(hidden[:-1]).flatten(0, 1), tokens[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()


@case
def lstm_bidirectional_packed_fp32() -> None:
    """Tag padded sentences by a two-way LSTM over packed sequences in float32."""
    model = Tagger("LSTM", 200, 256, 2, bidirectional=True, dropout=0.3).cuda()
    train(model, torch.optim.Adam(model.parameters()), lambda: tags(model, 64, 80, packed=True))


@case
def gru_bf16_autocast() -> None:
    """Tag sentences by a GRU in bfloat16 autocast."""
    model = Tagger("GRU", 256, 512, 2).cuda()
    train(model, torch.optim.AdamW(model.parameters()), lambda: tags(model, 48, 120), autocast=BF16)


@case
def lstm_settled_fp16() -> None:
    """Tag sentences by an LSTM in float16 until the scale has settled."""
    model = Tagger("LSTM", 128, 384, 1).cuda()
    settled(model, torch.optim.Adam(model.parameters()), lambda: tags(model, 80, 60))


@case
def rnn_tanh_evaluates() -> None:
    """Train a plain recurrent network, and tag without gradients after each step."""
    model = Tagger("RNN", 256, 768, 2).cuda()
    for _ in range(3):
        train(model, torch.optim.RMSprop(model.parameters(), 1e-3), lambda: tags(model, 32, 100), steps=1)
        model.eval()
        with torch.no_grad():
            tags(model, 128, 100)


@case
def cells_by_hand_fp32() -> None:
    """Decode step by step with LSTM cells and attention over an encoding, teacher forcing, in float32."""
    words, cell = nn.Embedding(8000, 256), nn.LSTMCell(512, 384)
    ask, head = nn.Linear(384, 256), nn.Linear(640, 8000)
    gate = nn.GRUCell(384, 384)
    model = nn.ModuleList([words, cell, ask, head, gate]).cuda()

    def loss() -> torch.Tensor:
        encoded = torch.randn(32, 50, 256, device="cuda")
        target = torch.randint(0, 8000, (32, 25), device="cuda")
        state = (torch.zeros(32, 384, device="cuda"), torch.zeros(32, 384, device="cuda"))
        context, found = torch.zeros(32, 256, device="cuda"), []
        for step in range(24):
            state = cell(torch.cat([words(target[:, step]), context], 1), state)
            hidden = gate(state[0], state[1])
            weights = torch.bmm(encoded, ask(hidden).unsqueeze(2)).squeeze(2).softmax(1)
            context = torch.bmm(weights.unsqueeze(1), encoded).squeeze(1)
            found.append(head(torch.cat([hidden, context], 1)))
        return F.cross_entropy(torch.stack(found, 1).flatten(0, 1), target[:, 1:].flatten())

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss, clip=5.0)
