"""The part of the TFJob resource's schema that our manifests use.

Taken from kubeflow/training-operator 1.9.0, manifests/base/crds/kubeflow.org_tfjobs.yaml; values in
`enum` are of pkg/apis/kubeflow.org/v1 and of Kubernetes, which the file itself leaves open.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_QUANTITY: Schema = {
    "type": ["integer", "string"],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _map(value: Schema) -> Schema:
    return {"type": "object", "additionalProperties": value}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _enum(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


_CONTAINER = _object(
    ("name",),
    name=_TEXT,
    image=_TEXT,
    command=_list(_TEXT),
    env=_list(
        _object(
            ("name",),
            name=_TEXT,
            value=_TEXT,
            valueFrom=_object(secretKeyRef=_object(("key",), key=_TEXT, name=_TEXT)),
        )
    ),
    resources=_object(limits=_map(_QUANTITY), requests=_map(_QUANTITY)),
    volumeMounts=_list(_object(("mountPath", "name"), mountPath=_TEXT, name=_TEXT)),
)
_POD = _object(
    ("containers",),
    containers=_list(_CONTAINER),
    serviceAccountName=_TEXT,
    imagePullSecrets=_list(_object(name=_TEXT)),
    nodeSelector=_map(_TEXT),
    tolerations=_list(
        _object(
            key=_TEXT,
            operator=_enum("Equal", "Exists"),
            value=_TEXT,
            effect=_enum("NoSchedule", "PreferNoSchedule", "NoExecute"),
        )
    ),
    volumes=_list(
        _object(
            ("name",),
            name=_TEXT,
            emptyDir=_object(medium=_enum("Memory"), sizeLimit=_QUANTITY),
            persistentVolumeClaim=_object(("claimName",), claimName=_TEXT),
        )
    ),
)
_REPLICAS = _object(
    replicas=_COUNT,
    restartPolicy=_enum("Always", "OnFailure", "Never", "ExitCode"),
    template=_object(metadata=_object(annotations=_map(_TEXT)), spec=_POD),
)
_OWNER = _object(
    ("apiVersion", "kind", "name", "uid"), apiVersion=_TEXT, kind=_TEXT, name=_TEXT, uid=_TEXT
)

TF_JOB = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion=_enum("kubeflow.org/v1"),
    kind=_enum("TFJob"),
    metadata=_object(
        # The operator's webhook: a label of RFC 1035. Pods and services add -worker-99.
        name={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 53},
        namespace=_TEXT,
        ownerReferences=_list(_OWNER),
    ),
    spec=_object(
        ("tfReplicaSpecs",),
        runPolicy=_object(
            cleanPodPolicy=_enum("All", "Running", "None"), ttlSecondsAfterFinished=_COUNT
        ),
        tfReplicaSpecs=_map(_REPLICAS),
    ),
)


def closed(schema: Schema) -> Schema:
    """Return a schema that rejects unknown fields, as Kubernetes' strict validation does."""
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {name: closed(part) for name, part in made["properties"].items()}
        made["additionalProperties"] = False
    for part in ("items", "additionalProperties"):
        if isinstance(made.get(part), dict):
            made[part] = closed(made[part])
    if made.pop("x-kubernetes-int-or-string", False):
        made["type"] = ["integer", "string"]
    return made
