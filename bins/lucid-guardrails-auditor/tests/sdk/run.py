"""Calls the auditor with SDKs: run.py AUDITOR FOLDER python|node [PACE]

Installs the SDKs into FOLDER, starts a scripted model and auditors of each profile, and runs the client of the language.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "lucid-guardrails-auditor"


def install(folder, language):
    """Installs the SDKs, unless that was done with the same list of versions, and returns the command of the client."""
    lock = HERE / {"python": "requirements.txt", "node": "package-lock.json"}[language]
    copy = folder / language / lock.name
    if not copy.exists() or copy.read_bytes() != lock.read_bytes():
        begin = time.monotonic()
        print(f"installing SDKs for {language}", file=sys.stderr)
        shutil.rmtree(copy.parent, ignore_errors=True)
        if language == "python":
            subprocess.run([sys.executable, "-m", "venv", copy.parent], check=True)
            subprocess.run([copy.parent / "bin/pip", "install", "--quiet", "--no-deps", "--requirement", lock], check=True)
        else:
            work = copy.parent / "work"
            work.mkdir(parents=True)
            shutil.copy(HERE / "package.json", work)
            shutil.copy(lock, work)
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=work, check=True)
        shutil.copy(lock, copy)
        print(f"installed SDKs for {language} in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if language == "python":
        return [copy.parent / "bin/python", HERE / "client.py"]
    # Node resolves packages beside the program.
    return ["node", shutil.copy(HERE / "client.mjs", copy.parent / "work")]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def main(auditor, folder, language, pace=None):
    client = install(Path(folder), language)
    children = [subprocess.Popen([sys.executable, HERE / "model.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)]

    def start(profile, after):
        port = free_port()
        variables = {"LUCID_CHAIN_NEXT": after, "LUCID_AUDITOR_PORT": str(port), "LUCID_METRICS_PORT": "0"}
        variables |= {"LUCID_GUARDRAILS_PROFILE": profile, "MAX_BODY_BYTES": str(1 << 20), "LUCID_AUDITOR_ID": NAME}
        child = subprocess.Popen([auditor], env=variables, stderr=subprocess.DEVNULL)
        children.append(child)
        while True:
            if child.poll() is not None:
                sys.exit(f"the auditor ended with {child.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return f"http://127.0.0.1:{port}"
            except ConnectionRefusedError:
                time.sleep(0.05)

    try:
        port, control = children[0].stdout.readline().split()
        model = f"http://127.0.0.1:{port}"
        ways = {"direct": {"url": model, "auditors": 0}}
        for profile in ["all", "pii", "injection", "toxicity"]:
            ways[profile] = {"url": start(profile, model), "auditors": 1}
        chain = start("injection", start("toxicity", start("pii", model)))
        ways["three"] = {"url": chain, "auditors": 3}
        options = {"ways": ways, "control": int(control), "pace": pace and int(pace), "only": os.environ.get("ONLY", "")}
        return subprocess.run([*client, json.dumps(options)], check=False).returncode
    finally:
        for child in children:
            child.kill()


sys.exit(main(*sys.argv[1:]))
