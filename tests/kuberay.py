"""In: nothing. Out: JSON Schema of the parts of KubeRay's custom resources (ray.io/v1) that our manifest uses."""

# Written down from the types of the operator's API: fields it does not know are refused here, where the operator would
# silently drop them. Quantities and names are those of Kubernetes.

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
QUANTITY: Final[Schema] = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}
TEXTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def closed(required: dict[str, Schema], **more: Schema) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **more},
        "required": [*required],
        "additionalProperties": False,
    }


AMOUNTS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"enum": ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"]},
    "additionalProperties": QUANTITY,
}
CONTAINER: Final = closed(
    {"name": NAME, "image": {"type": "string", "minLength": 1}},
    resources=closed({}, requests=AMOUNTS, limits=AMOUNTS),
    env={"type": "array", "items": closed({"name": {"type": "string"}}, value={"type": "string"})},
    volumeMounts={
        "type": "array",
        "items": closed({"name": NAME, "mountPath": {"type": "string", "pattern": "^/"}}),
    },
)
VOLUME: Final = closed({"name": NAME}, persistentVolumeClaim=closed({"claimName": NAME}))
POD: Final = closed(
    {
        "spec": closed(
            {"containers": {"type": "array", "items": CONTAINER, "minItems": 1}},
            volumes={"type": "array", "items": VOLUME},
        )
    }
)
CLUSTER: Final = closed(
    {"headGroupSpec": closed({"rayStartParams": TEXTS, "template": POD})},
    workerGroupSpecs={
        "type": "array",
        "items": closed(
            {"groupName": NAME, "minReplicas": COUNT, "maxReplicas": COUNT, "rayStartParams": TEXTS, "template": POD},
            replicas=COUNT,
            numOfHosts=COUNT,
        ),
    },
    rayVersion={"type": "string", "pattern": "^[0-9]+\\.[0-9]+\\.[0-9]+$"},
    enableInTreeAutoscaling={"type": "boolean"},
)
JOB: Final = closed(
    {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayJob"},
        "metadata": closed({"name": NAME}, namespace=NAME, labels=TEXTS),
        "spec": closed(
            {"entrypoint": {"type": "string", "minLength": 1}, "rayClusterSpec": CLUSTER},
            runtimeEnvYAML={"type": "string"},
            shutdownAfterJobFinishes={"type": "boolean"},
            ttlSecondsAfterFinished=COUNT,
            backoffLimit=COUNT,
            activeDeadlineSeconds={"type": "integer", "minimum": 1},
            submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
            suspend={"type": "boolean"},
        ),
    }
)
