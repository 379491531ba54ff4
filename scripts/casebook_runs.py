"""What the casebook runs: each public report, its figures as stated, and its small programs.

Plain values only; ``casebook.py`` runs them and ``study_pages_parts/casebook.py`` tells them.
"""

# ruff: noqa: INP001 - beside scripts
from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case", "Run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One program with its arguments."""

    name: str
    script: str
    """File in ``scripts/casebook``; ``capture`` for ``memprof capture`` with the arguments."""
    arguments: str
    card: str = "h200"
    """Card that is simulated."""
    gpu: bool = False
    """Whether it is also run on the real card."""
    then: bool = False
    """Whether it runs on litgpt of March 2024: a checkout of its commit 4a9b7e62, named by LITGPT_2024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One report."""

    key: str
    url: str
    runs: tuple[Run, ...]


def _runs(script: str, card: str = "h200", gpu: tuple[str, ...] = (), /, **arguments: str) -> tuple[Run, ...]:
    return tuple(
        Run(name=name, script=script, arguments=given, card=card, gpu=name in gpu) for name, given in arguments.items()
    )


def _then(script: str, /, **arguments: str) -> tuple[Run, ...]:
    return tuple(Run(name=name, script=script, arguments=given, then=True) for name, given in arguments.items())


_GITHUB = "https://github.com/"
_LITGPT = "--recipe lit_gpt_2023 --model Llama-2-7b-hf --precision bf16-true --quant bnb.nf4 --mbs 1 --seq"
CASES: tuple[Case, ...] = (
    Case(
        key="litgpt#1112",
        url=_GITHUB + "Lightning-AI/litgpt/issues/1112",
        runs=(
            *_runs(
                "litgpt_1112.py", "h200", ("lora_512", "nf4_512", "nf4_512_dropped", "nf4_512_today"),
                lora_512="--lengths 512,512,512",
                nf4_512="--lengths 512,512,512 --quant bnb.nf4",
                nf4_512_dropped="--lengths 512,512,512 --quant bnb.nf4 --drop-names",
                nf4_512_today="--lengths 512,512,512 --quant bnb.nf4 --matmul today",
            ),
            *_then(
                "litgpt_1112.py",
                then_lora_512="--lengths 512,512,512",
                then_nf4_512="--lengths 512,512,512 --quant bnb.nf4",
                then_lora_all_512="--lengths 512,512,512 --lora-all",
                then_nf4_all_512="--lengths 512,512,512 --lora-all --quant bnb.nf4",
                then_lora_long="--lengths 512,755",
                then_nf4_long="--lengths 512,755 --quant bnb.nf4",
            ),
        ),
    ),
    Case(
        key="litgpt#501",
        url=_GITHUB + "Lightning-AI/litgpt/issues/501",
        runs=_runs(
            "litgpt_501.py", "t4",
            none_8="--mbs 8 --steps 6 --then-validate 520,540",
            nf4_8="--mbs 8 --steps 6 --then-validate 520,540 --quant bnb.nf4",
        ),
    ),
    Case(
        key="litgpt#477",
        url=_GITHUB + "Lightning-AI/litgpt/issues/477",
        runs=_runs("capture", **{f"nf4_{seq}": f"{_LITGPT} {seq}" for seq in (512, 1024, 2048, 4096)}),
    ),
    Case(
        key="torchtune#2255",
        url=_GITHUB + "meta-pytorch/torchtune/issues/2255",
        runs=_runs(
            "torchtune_2255.py", "h200", ("lora", "qlora", "qlora_2023"),
            lora="lora 4 1024", qlora="qlora 4 1024", qlora_2023="qlora-2023 4 1024",
        ),
    ),
    Case(
        key="torchtune#1398",
        url=_GITHUB + "meta-pytorch/torchtune/issues/1398",
        runs=_runs(
            "torchtune_1398.py", "h200", ("adapted_only", "all_layers"),
            adapted_only="adapted llama-3.1-8b", all_layers="all llama-3.1-8b",
        ),
    ),
    Case(
        key="peft#1514",
        url=_GITHUB + "huggingface/peft/issues/1514",
        runs=_runs(
            "peft_1514.py", "h200", ("full_1024", "lora_1024"),
            **{f"{kind}_{seq}": f"{kind} {seq}" for seq in (1024, 2048, 4096, 8192) for kind in ("full", "lora", "qv")},
        ),
    ),
    Case(
        key="peft#785",
        url=_GITHUB + "huggingface/peft/issues/785",
        runs=_runs(
            "peft_785.py", "t4", ("lora", "nf4", "prepared"), lora="lora 96", nf4="nf4 96", prepared="prepared 96"
        ),
    ),
    Case(
        key="peft#832",
        url=_GITHUB + "huggingface/peft/issues/832",
        runs=_runs(
            "peft_832.py", "h200", ("as_loaded", "prepared"),
            as_loaded="plain llama-2-7b", prepared="prepared llama-2-7b",
        ),
    ),
    Case(
        key="bitsandbytes#1569",
        url=_GITHUB + "bitsandbytes-foundation/bitsandbytes/issues/1569",
        runs=_runs(
            "bitsandbytes_1569.py", "h200", ("lora", "nf4", "prepared"),
            lora="lora ministral-8b 4096", nf4="nf4 ministral-8b 4096", prepared="prepared ministral-8b 4096",
        ),
    ),
    Case(
        key="bitsandbytes#1141",
        url=_GITHUB + "bitsandbytes-foundation/bitsandbytes/issues/1141",
        runs=_runs(
            "bitsandbytes_1141.py", "h200", ("fp16", "nf4", "prepared"),
            fp16="fp16 mistral-7b 32", nf4="nf4 mistral-7b 32", prepared="prepared mistral-7b 32",
        ),
    ),
    Case(
        key="transformers#33902",
        url=_GITHUB + "huggingface/transformers/issues/33902",
        runs=_runs(
            "transformers_33902.py", "h200", ("float", "half", "last"),
            float="float llama-3.1-8b 8192", half="half llama-3.1-8b 8192", last="last llama-3.1-8b 8192",
        ),
    ),
    Case(
        key="llama-cookbook#41",
        url=_GITHUB + "meta-llama/llama-cookbook/issues/41",
        runs=_runs(
            "llama_cookbook_41.py", "h200", ("held", "dropped"),
            held="held llama-2-7b 4 1024", dropped="dropped llama-2-7b 4 1024",
        ),
    ),
    Case(
        key="transformers#26221",
        url=_GITHUB + "huggingface/transformers/issues/26221",
        runs=_runs("transformers_26221.py", "h200", ("none", "on", "eval"), none="none", on="on", eval="eval"),
    ),
    Case(
        key="LlamaFactory#1595",
        url=_GITHUB + "hiyouga/LLaMA-Factory/issues/1595",
        runs=_runs(
            "llamafactory_1595.py", "h200", ("collected", "reduced"), collected="collected 12", reduced="reduced 12"
        ),
    ),
    Case(
        key="Megatron-LM#4638",
        url=_GITHUB + "NVIDIA/Megatron-LM/issues/4638",
        runs=_runs(
            "megatron_4638.py", "h200", ("fresh", "resumed"),
            fresh="fresh 1", resumed="resumed 1", fresh_longer="fresh 3",
        ),
    ),
    Case(
        key="pytorch#37250",
        url=_GITHUB + "pytorch/pytorch/issues/37250",
        runs=_runs("pytorch_37250.py", "h200", ("kept", "emptied"), kept="kept", emptied="emptied"),
    ),
    Case(
        key="fms-acceleration#14",
        url=_GITHUB + "foundation-model-stack/fms-acceleration/pull/14",
        runs=_runs("fms_14.py", "h200", ("nf4",), lora="lora 4096", nf4="nf4 4096"),
    ),
)  # fmt: skip
