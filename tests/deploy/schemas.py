"""schemas.py CRDS OUT: what kubeconform needs: a schema for each kind of Kubernetes, and of definitions of custom resources.

Whatever a schema does not name is an error.
"""

import importlib.resources
import json
import pathlib
import sys

import yaml


def closed(schema):
    """The same schema, of objects that have no other properties."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    return schema


crds, out = (pathlib.Path(path).resolve() for path in sys.argv[1:])

# The oldest release that the chart is for, and the newest.
for release in ("1.30.0", "1.37.0"):
    known = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{release}-local-strict"
    place = out / release
    place.mkdir(exist_ok=True)
    for schema in known.iterdir():
        # A reference without a scheme would be looked for where the test stands.
        text = schema.read_text().replace("/api/_definitions.json", f"file://{place}/_definitions.json")
        (place / schema.name).write_text(text)

for path in sorted(crds.glob("*.yaml")):
    for crd in yaml.safe_load_all(path.read_text()):
        spec = crd["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            # The API server knows of every resource: the definition does not say it.
            schema["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
            name = f"{spec['names']['kind'].lower()}-{spec['group'].split('.')[0]}-{version['name']}.json"
            (out / name).write_text(json.dumps(closed(schema)))
