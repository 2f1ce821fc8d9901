"""Word counts: beta process, IBP, and factorisations without bits (Paisley et al. 2011, Table 1, Figures 3 and 4).

    python benchmarks/papers/paisley_text.py [--data FOLDER] [--quick] [--partitions 2] [--shapes 0.1,0.5,1]
                                             [--ranks 10,25,50,75,100] [--picture PATH] [--json PATH] [--no-speed]

Articles of the New York Times (`nyt_world2009_counts.npz`: 732 documents, 6637 words), five of eight for training. Half
of the tokens of a test document are given, the perplexity is that of the other half. SB-BP is the model with the prior
BetaProcess, VB-IBP with StickBreakingIBP, each truncated at 200 features (and 50 rounds), VB-NMF the same without bits,
KL-NMF its maximum likelihood; the last two at several ranks, the best of which counts, as in the paper: it is the best
for the test documents. A shape is that of the gamma prior of the features (beta in the paper). Weights are
Gamma(0.25, 0.25). Fits start at random, once, without moves, and end when the bound gains less than a share of 1e-4.
`factors found` also has births, merges and deletions, and is told no truncation. KL-NMF gives words that it has not
seen next to nothing, so it is shown with 1 % of the probability shared by all words as well. The corpora of the paper
are larger and others: compare the order. A last line is the time of a fit of all documents. The folder may also be
given by THALI_DATA. See benchmarks/README.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.papers.word_counts import (
    COUNTS,
    Corpus,
    Partition,
    kl_nmf,
    kl_nmf_rates,
    load,
    partition,
    perplexity,
    smoothed,
    unigram,
)
from benchmarks.quality.record import Record
from benchmarks.tables import against, machine, show_table
from thali import IBP, BetaBernoulli, BetaProcess, Gamma, LatentFeatures, MeanField, PoissonGamma, StickBreakingIBP

TRUNCATION, ROUNDS, RANKS = 200, 50, (10, 25, 50, 75, 100)
PLAIN = {"n_restarts": 1, "start": "random", "moves": False, "tol": 1e-4}
KEY = ("method", "shape", "rank", "partition")
WHOLE_FIT = 300.0  # seconds that a fit of all documents may take
PRINTED = {"SB-BP": (12.9, 68.4), "VB-IBP": (15.4, 94.8)}  # factors per document and in all, at shape 0.5: Table 1
PRINTED_RANKS = {"VB-NMF": 50, "KL-NMF": 25}  # the best ones of Figure 3
Array = np.ndarray
Entry = dict[str, Any]


# --- methods ---------------------------------------------------------------------------------------


def observation(shape: float, leak: float = 1e-3) -> PoissonGamma:
    return PoissonGamma(weight_shape=0.25, weight_rate=0.25, feature_shape=shape, leak=leak)


def sb_bp() -> BetaProcess:
    """As published: the penalty is what keeps atoms from the later rounds."""
    return BetaProcess(concentration=Gamma(1.0, 1.0), truncation=TRUNCATION, rounds=ROUNDS, round_penalty="markov")


def fitted(model: PoissonGamma, prior: Any, counts: Any, **settings: Any) -> LatentFeatures:
    return LatentFeatures(model, prior, MeanField(**settings), random_state=0).fit(counts)


def variational(name: str, shape: float, rank: int | None, part: Partition) -> tuple[LatentFeatures, Array]:
    """The fit, and the expected rates of the test documents given half of their tokens."""
    if name == "VB-NMF":
        model = fitted(observation(shape, leak=1.0), BetaBernoulli(n_features=rank), part.train, **PLAIN)
    elif name == "SB-BP":
        model = fitted(observation(shape), sb_bp(), part.train, **PLAIN)
    elif name == "VB-IBP":
        model = fitted(observation(shape), StickBreakingIBP(truncation=TRUNCATION), part.train, **PLAIN)
    else:
        model = fitted(observation(shape), IBP(), part.train, n_restarts=1, tol=1e-4)
    return model, model.inverse_transform(model.transform(part.given))


def measure(name: str, shape: float, rank: int | None, part: Partition) -> Entry:
    start = time.perf_counter()
    model, rates = variational(name, shape, rank, part)
    seconds = time.perf_counter() - start
    found = {"seconds": round(seconds, 2), "perplexity": perplexity(rates, part.asked)}
    if name == "VB-NMF":
        return found
    on = model.posterior_.z_prob > 0.5
    rounds = getattr(model.posterior_.factors.weights, "rounds", None)
    last = None if rounds is None else int(np.flatnonzero((rounds[on.any(axis=0)] > 0.01).any(axis=0)).max()) + 1
    passes = int(model.history_["n_passes"][0])
    counts = {"per_document": float(on.sum(axis=1).mean()), "in_all": int(on.any(axis=0).sum())}
    return {**found, **counts, "last_round": last, "passes": passes}


def ordinary(part: Partition, ranks: list[int]) -> Iterator[tuple[str, int | None, Entry]]:
    yield (
        "words alone, 1 % shared",
        None,
        {"seconds": 0.0, "perplexity": perplexity(smoothed(unigram(part)), part.asked)},
    )
    for rank in ranks:
        start = time.perf_counter()
        _, topics = kl_nmf(np.random.default_rng(0), part.train, rank)
        rates = kl_nmf_rates(part.given, topics)
        seconds = round(time.perf_counter() - start, 2)
        yield "KL-NMF", rank, {"seconds": seconds, "perplexity": perplexity(rates, part.asked)}
        found = perplexity(smoothed(rates), part.asked)
        yield "KL-NMF, 1 % shared", rank, {"seconds": seconds, "perplexity": found}


# --- what it says ---------------------------------------------------------------------------------


def summarised(entries: list[Entry]) -> dict[tuple[str, float | None, int | None], list[Entry]]:
    """The entries of each method, shape and rank."""
    groups: dict[tuple[str, float | None, int | None], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry["method"], entry["shape"], entry["rank"]), []).append(entry)
    return groups


def mean(entries: list[Entry], name: str) -> float:
    return float(np.mean([entry[name] for entry in entries]))


def best_ranks(entries: list[Entry]) -> dict[tuple[str, float | None], int | None]:
    """The rank with the lowest mean perplexity, for each method and shape."""
    best: dict[tuple[str, float | None], tuple[float, int | None]] = {}
    for (method, shape, rank), runs in summarised(entries).items():
        found = mean(runs, "perplexity")
        if found < best.get((method, shape), (np.inf, None))[0]:
            best[method, shape] = found, rank
    return {key: rank for key, (_, rank) in best.items()}


def show(entries: list[Entry], n_partitions: int) -> None:
    best, cells = best_ranks(entries), []
    for (method, shape, rank), runs in summarised(entries).items():
        values = [entry["perplexity"] for entry in runs]
        mark = " best" if rank is not None and best[method, shape] == rank else ""
        has_bits = "in_all" in runs[0]
        cells.append([
            method, "" if shape is None else f"{shape:g}", "" if rank is None else f"{rank}{mark}",
            f"{np.mean(values):.0f}" + (f" +- {np.std(values):.0f}" if len(runs) > 1 else ""),
            f"{mean(runs, 'per_document'):.1f}" if has_bits else "", f"{mean(runs, 'in_all'):.1f}" if has_bits else "",
            f"{max(e['last_round'] for e in runs)}" if has_bits and runs[0]["last_round"] else "",
            f"{mean(runs, 'seconds'):.1f}",
        ])  # fmt: skip
    for method, (per_document, in_all) in PRINTED.items():
        cells.append([f"{method}, printed", "0.5", "", "", f"{per_document}", f"{in_all}", "", ""])
    for method, rank in PRINTED_RANKS.items():
        cells.append([f"{method}, printed", "", f"{rank} best", "", "", "", "", ""])
    title = f"New York Times, partitions: {n_partitions} (Table 1, Figure 3); factors per document and in all"
    heads = ["method", "shape", "rank", "perplexity", "per document", "in all", "last round", "s"]
    show_table(title, heads, cells)


def speed(corpus: Corpus) -> Entry:
    """A fit of all documents to a share of 1e-6."""
    start = time.perf_counter()
    model = fitted(observation(0.5), sb_bp(), corpus.counts, **PLAIN | {"tol": 1e-6})
    seconds = round(time.perf_counter() - start, 2)
    return {"seconds": seconds, "passes": int(model.history_["n_passes"][0]), "settled": bool(model.converged_)}


def topics(model: LatentFeatures, words: list[str], n_topics: int = 8, n_words: int = 7) -> None:
    """The words that stand out in the most frequent features."""
    shares = model.components_ / model.components_.sum(axis=1, keepdims=True)
    usual = shares.mean(axis=0)
    cells = []
    for number in range(min(n_topics, len(shares))):
        score = shares[number] * np.log(shares[number] / usual)
        cells.append([str(number + 1), ", ".join(words[i] for i in np.argsort(-score)[:n_words])])
    show_table("The most frequent features of SB-BP", ["feature", "words"], cells)


def draw(entries: list[Entry], model: LatentFeatures, path: Path) -> None:
    """Perplexity against the shape (Figure 3), and in which round each feature is (Figure 4)."""
    from thali.report import style
    from thali.report.figures import save

    figure = style.new_figure(9.5, 3.4)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.3])
    best, groups = best_ranks(entries), summarised(entries)
    shapes = sorted({key[1] for key in groups if key[1] is not None})
    for name, colour in zip(("SB-BP", "VB-IBP", "VB-NMF", "factors found"), style.CYCLE, strict=False):
        points = [(s, mean(groups[name, s, best[name, s]], "perplexity")) for s in shapes if (name, s) in best]
        if points:
            left.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3, linewidth=1.2, label=name)
    for name, line in (("KL-NMF", "--"), ("KL-NMF, 1 % shared", ":")):
        level = mean(groups[name, None, best[name, None]], "perplexity")
        left.axhline(level, color=style.QUIET, linestyle=line, linewidth=1.0, label=name)
    left.set_xscale("log")
    left.set_xticks(shapes, [f"{shape:g}" for shape in shapes])
    left.minorticks_off()
    left.set_xlabel("shape of the features' prior")
    left.set_ylabel("perplexity")
    left.legend(frameon=False, fontsize=7)
    style.headline(left, "held-out perplexity")
    style.quiet_axes(left, grid=True)
    rounds = model.posterior_.factors.weights.rounds
    extent = (0.5, len(rounds) + 0.5, 0.5, rounds.shape[1] + 0.5)
    right.imshow(rounds.T, aspect="auto", origin="lower", cmap=style.SHARE, extent=extent, interpolation="nearest")
    right.set_xlabel("feature")
    right.set_ylabel("round")
    style.headline(right, "probability of each round")
    style.quiet_axes(right)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)
    print(f"drawn: {path}", flush=True)


# --- the run --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the files are (else THALI_DATA)")
    parser.add_argument("--quick", action="store_true", help="one partition, one shape, two ranks, no whole fit")
    parser.add_argument("--partitions", type=int, default=2, metavar="N", help="of the documents (5 in the paper)")
    parser.add_argument("--shapes", type=lambda t: [float(v) for v in t.split(",")], default=[0.1, 0.5, 1.0])
    parser.add_argument("--ranks", type=lambda t: [int(k) for k in t.split(",")], default=list(RANKS), metavar="A,B")
    parser.add_argument("--no-speed", action="store_true", help="without the fit of all documents")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="draw Figures 3 and 4 there (png, svg or pdf)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file, or continue it")
    options = parser.parse_args(arguments)
    folder = options.data or (Path(os.environ["THALI_DATA"]) if "THALI_DATA" in os.environ else None)
    if folder is None or not (folder / COUNTS).exists():
        print(f"left out: give the folder of {COUNTS} by --data or THALI_DATA")
        return 0

    corpus = load(folder)
    n_partitions = 1 if options.quick else options.partitions
    shapes, ranks = ([0.5], [25, 50]) if options.quick else (options.shapes, options.ranks)
    record = Record(options.json, {}, KEY)
    record.about = {"machine": machine()}
    lines: list[tuple[str, float, int | None]] = []
    for shape in shapes:
        lines += [("SB-BP", shape, None), ("VB-IBP", shape, None), ("factors found", shape, None)]
    lines += [("VB-NMF", shape, rank) for shape in shapes for rank in ranks]
    with threadpool_limits(1, "blas"):
        compile_methods()
        for number in range(n_partitions):
            part = partition(corpus, number)
            if not record.has("KL-NMF, 1 % shared", None, ranks[-1], number):
                for name, rank, entry in ordinary(part, ranks):
                    record.add({"method": name, "shape": None, "rank": rank, "partition": number, **entry})
            for name, shape, rank in lines:
                if not record.has(name, shape, rank, number):
                    place = {"method": name, "shape": shape, "rank": rank, "partition": number}
                    record.add({**place, **measure(name, shape, rank, part)})
        show(record.entries, n_partitions)
        model, _ = variational("SB-BP", 0.5, None, partition(corpus, 0))
        topics(model, corpus.words)
        if not options.quick and not options.no_speed:
            found = speed(corpus)
            record.write(whole_fit=found)
            words = f"{found['passes']} passes, {'converged' if found['settled'] else 'not converged'}"
            print(f"\n  all {corpus.counts.shape[0]} documents, SB-BP, truncation {TRUNCATION}, to 1e-6: "
                  f"{against(found['seconds'], WHOLE_FIT, at_most=True)} s ({words})")  # fmt: skip
    if options.picture is not None:
        draw(record.entries, model, options.picture)
    return 0


def compile_methods() -> None:
    """On tiny data, so that no time includes it."""
    from scipy import sparse

    counts = sparse.csr_array(np.random.default_rng(0).poisson(1.0, (30, 12)))
    part = Partition(counts, counts, counts)
    for name, rank in (("VB-NMF", 2), ("SB-BP", None), ("factors found", None)):
        variational(name, 0.5, rank, part)


if __name__ == "__main__":
    sys.exit(main())
