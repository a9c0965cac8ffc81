"""pod.py MANIFESTS ROOT KIND[/NAME] [CONTAINER]: makes a rendered pod's files under ROOT, as a kubelet would, and prints the arguments
and the environment of one of its containers as JSON. So the real binary runs with exactly what the chart renders.

Secrets that the chart does not make are folders of ROOT/secrets. JWKS, if it is set, is the address of the cluster's keys:
pods have it by the name kubernetes.default.svc, which is not known here.
"""

import base64
import json
import os
import pathlib
import sys

import yaml

manifests, root, kind = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
objects = [found for found in yaml.safe_load_all(open(manifests)) if found]


def files(of, name):
    """The files of a ConfigMap or a Secret, by their keys."""
    for found in objects:
        if found["kind"] == of and found["metadata"]["name"] == name:
            plain = found.get("data", {}) if of == "ConfigMap" else found.get("stringData", {})
            coded = {} if of == "ConfigMap" else found.get("data", {})
            return {key: text.encode() for key, text in plain.items()} | {
                key: base64.b64decode(text) for key, text in coded.items()
            }
    folder = root / "secrets" / name
    if not folder.is_dir():
        sys.exit(f"pod.py: {of} {name} is neither made by the chart nor in {folder}")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def sources(volume):
    """The files of a volume, by their paths in it."""
    if "projected" in volume:
        made = {}
        for source in volume["projected"]["sources"]:
            made |= sources(source)
        return made
    for of, field in (("ConfigMap", "configMap"), ("Secret", "secret")):
        if field in volume:
            part = volume[field]
            found = files(of, part.get("secretName") or part.get("name"))
            items = part.get("items") or [{"key": key, "path": key} for key in found]
            return {item["path"]: found[item["key"]] for item in items}
    if "serviceAccountToken" in volume:
        part = volume["serviceAccountToken"]
        return {part["path"]: (root / "tokens" / part.get("audience", "cluster")).read_bytes()}
    if "downwardAPI" in volume:
        return {item["path"]: b"default" for item in volume["downwardAPI"]["items"]}
    return {}


def moved(text):
    """A text that names files of the pod, of the same files under ROOT."""
    for place in ("/etc/runledger", "/var/lib/runledger", "/var/run/secrets"):
        text = text.replace(place, f"{root}{place}")
    return text


kind, _, name = kind.partition("/")
(workload,) = (found for found in objects if found["kind"] == kind and name in ("", found["metadata"]["name"]))
spec = workload["spec"] if kind == "Pod" else workload["spec"]["template"]["spec"]
containers = spec.get("initContainers", []) + spec["containers"]
wanted = sys.argv[4] if len(sys.argv) > 4 else "runledger"
(container,) = (found for found in containers if found["name"] == wanted)
volumes = {volume["name"]: volume for volume in spec["volumes"]}
for mount in container["volumeMounts"]:
    place = root / mount["mountPath"].lstrip("/")
    place.mkdir(parents=True, exist_ok=True)
    for path, content in sources(volumes.get(mount["name"], {})).items():
        if path.endswith(".toml") or path == "dsn":
            text = moved(content.decode())
            own = f"{root}/var/run/secrets/kubernetes.io/serviceaccount"
            if "JWKS" in os.environ:
                keys = f'jwks_url = "{os.environ["JWKS"]}"\ntoken_file = "{own}/token"\nca_file = "{own}/ca.crt"'
                text = text.replace("kubernetes = true", f"kubernetes = true\n{keys}")
            content = text.encode()
        (place / path).write_bytes(content)
        (place / path).chmod(0o600)
env = {entry["name"]: moved(entry["value"]) for entry in container.get("env", []) if "value" in entry}
print(json.dumps({"args": [moved(arg) for arg in container.get("args", [])], "env": env}))
