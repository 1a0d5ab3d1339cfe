"""Asks a server with NVIDIA's and KServe's own Python clients; run with the Python of the clients' environment.

Arguments: host:port, name of the model. Writes the answers of each client as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
import tritonclient.http as triton
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from tritonclient.utils import InferenceServerException

TEXTS = ["店很好", "店很差"]


def with_triton(address: str, model: str) -> dict[str, Any]:
    with triton.InferenceServerClient(address) as client:
        server, metadata = client.get_server_metadata(), client.get_model_metadata(model)
        ready = [client.is_server_live(), client.is_server_ready(), client.is_model_ready(model)]

        def infer(*, binary: bool, outputs: list[str] | None = None, **more: Any) -> Any:
            text = triton.InferInput("text", [len(TEXTS)], "BYTES")
            text.set_data_from_numpy(np.array([text.encode() for text in TEXTS], dtype=object), binary_data=binary)
            wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in outputs or []]
            return client.infer(model, [text], outputs=wanted or None, request_id="7", **more)

        def labels(result: Any) -> list[str]:
            return [label.decode() if isinstance(label, bytes) else label for label in result.as_numpy("label")]

        binary, as_json = infer(binary=True), infer(binary=False, outputs=["label", "scores"])
        chosen = infer(binary=True, outputs=["score"], priority=1, timeout=1_000_000, parameters={"note": "ignored"})
        try:
            client.infer(model, [triton.InferInput("wrong", [0], "BYTES")])
            refused = ""
        except InferenceServerException as error:
            refused = f"{error.status()}: {error.message()}"
        return {
            "server": server,
            "metadata": metadata,
            "ready": ready,
            "binary": labels(binary),
            "scores": binary.as_numpy("scores").round(4).tolist(),
            "id": binary.get_response()["id"],
            "json": labels(as_json),
            "json_outputs": [output["name"] for output in as_json.get_response()["outputs"]],
            "chosen": [output["name"] for output in chosen.get_response()["outputs"]],
            "refused": refused,
        }


async def with_kserve(address: str, model: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    base = f"http://{address}"
    found: dict[str, Any] = {
        "live": await client.is_server_live(base),
        "ready": await client.is_server_ready(base),
        "model_ready": await client.is_model_ready(base, model),
    }
    for form, binary in (("json", False), ("binary", True)):
        text = InferInput("text", [len(TEXTS)], "BYTES")
        data = np.array([text.encode() if binary else text for text in TEXTS], dtype=object)
        text.set_data_from_numpy(data, binary_data=binary)
        request = InferRequest(
            model, [text], request_id="8", parameters={"binary_data_output": True} if binary else None
        )
        response = await client.infer(base, request, model_name=model)
        output = {output.name: output for output in response.outputs}
        labels = [label.decode() if isinstance(label, bytes) else label for label in output["label"].as_numpy()]
        found[form] = {"id": response.id, "labels": labels, "score": output["score"].as_numpy().round(4).tolist()}
    return found


if __name__ == "__main__":
    where = sys.argv[1:3]
    found = {"triton": with_triton(*where), "kserve": asyncio.run(with_kserve(*where))}
    sys.stdout.write(json.dumps(found, default=str) + "\n")
