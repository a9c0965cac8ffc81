"""contents.py MANIFESTS RUNLEDGER FOLDER: runs the commands of the job that makes namespaces and puts lifecycles, one after the
other, as its containers have them, against a server of their own; and all of them once more, as after an upgrade.
"""

import pathlib
import subprocess
import sys

import yaml

manifests, runledger, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
objects = [found for found in yaml.safe_load_all(open(manifests)) if found]
named = {(found["kind"], found["metadata"]["name"].rsplit("-", 1)[-1]): found for found in objects}
folder.mkdir(parents=True, exist_ok=True)
for name, text in named["ConfigMap", "contents"]["data"].items():
    (folder / name).write_text(text)
pod = named["Job", "contents"]["spec"]["template"]["spec"]
serve = [runledger, "serve", "--store", "memory", "--listen", "127.0.0.1:0"]
server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
try:
    address = server.stdout.readline().split()[-1]
    for _ in range(2):
        for container in pod["initContainers"] + pod["containers"]:
            args = [arg.replace("/etc/runledger/lifecycles", str(folder)) for arg in container["args"]]
            subprocess.run([runledger, *args, "--server", address], check=True, env={}, stdout=subprocess.DEVNULL)
    for args in (["namespace", "list"], ["lifecycle", "list"], ["lifecycle", "list", "--namespace", "team-a"]):
        subprocess.run([runledger, *args, "--server", address], check=True, env={})
finally:
    server.kill()
    server.wait()
