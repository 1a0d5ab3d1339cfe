"""Asks a server with NVIDIA's and KServe's own Python clients; run with the Python of the clients' environment.

Arguments: host:port, name of the model. Writes the answers of each client as one JSON object. A name with a dot
is that of a graph: each input NAME is an array that comes back as the output OF_NAME. A model with the name numbers
answers with numbers.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
import tritonclient.http as triton
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

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


def numbers_with_triton(address: str, model: str) -> dict[str, Any]:
    """The declared outputs of a model of numbers, and its answers as numpy arrays, by form."""
    with triton.InferenceServerClient(address) as client:
        found: dict[str, Any] = {"outputs": client.get_model_metadata(model)["outputs"]}
        for form, binary in (("binary", True), ("json", False)):
            text = triton.InferInput("text", [len(TEXTS)], "BYTES")
            text.set_data_from_numpy(np.array([text.encode() for text in TEXTS], dtype=object), binary_data=binary)
            wanted = [triton.InferRequestedOutput("value", binary_data=binary)]
            answer = client.infer(model, [text], outputs=wanted).as_numpy("value")
            found[form] = [str(answer.dtype), list(answer.shape), answer.round(4).tolist()]
        return found


def echo_with_triton(address: str, model: str) -> dict[str, Any]:
    """The metadata, the names of outputs that came back as they went in, by form, and the messages of refusals."""
    with triton.InferenceServerClient(address) as client:
        metadata = client.get_model_metadata(model)
        arrays = {
            entry["name"]: (np.arange(6).reshape(2, 3) * 37 % 5).astype(triton_to_np_dtype(entry["datatype"]))
            for entry in metadata["inputs"]
        }
        datatypes = {entry["name"]: entry["datatype"] for entry in metadata["inputs"]}
        found: dict[str, Any] = {"metadata": metadata, "ready": client.is_model_ready(model, metadata["versions"][0])}

        def inputs(*, binary: bool) -> list[Any]:
            given = []
            for name, array in arrays.items():
                given.append(triton.InferInput(name, list(array.shape), datatypes[name]))
                # The client itself refuses FP16 in JSON.
                given[-1].set_data_from_numpy(array, binary_data=binary or datatypes[name] == "FP16")
            return given

        for form, sent, returned in (("binary", True, True), ("json", False, False), ("mixed", False, True)):
            wanted = [triton.InferRequestedOutput(f"OF_{name}", binary_data=returned) for name in arrays]
            result = client.infer(model, inputs(binary=sent), outputs=wanted, request_id="9")
            back = {name: result.as_numpy(f"OF_{name}") for name in arrays}
            assert result.get_response()["id"] == "9"
            found[form] = [
                name
                for name, array in arrays.items()
                if back[name].dtype == array.dtype and np.array_equal(back[name], array)
            ]
        one = [triton.InferRequestedOutput("OF_float32")]
        chosen = client.infer(model, inputs(binary=True), outputs=one).get_response()["outputs"]
        found["chosen"] = [output["name"] for output in chosen]
        found["refused"] = []
        for change in ({"shape": [2, 4]}, {"datatype": "INT32"}, {"name": "wrong"}):
            array = np.zeros(change.get("shape", [2, 3]), "int32" if "datatype" in change else "float32")
            wrong = triton.InferInput(change.get("name", "float32"), array.shape, change.get("datatype", "FP32"))
            wrong.set_data_from_numpy(array)
            try:
                client.infer(model, [wrong, *(one for one in inputs(binary=True) if one.name() != "float32")])
            except InferenceServerException as error:
                found["refused"].append(f"{error.status()}: {error.message()}")
        return found


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
    if "." in where[1]:
        found = echo_with_triton(*where)
    elif where[1] == "numbers":
        found = numbers_with_triton(*where)
    else:
        found = {"triton": with_triton(*where), "kserve": asyncio.run(with_kserve(*where))}
    sys.stdout.write(json.dumps(found, default=str) + "\n")
