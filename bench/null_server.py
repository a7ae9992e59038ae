"""A gRPC server that only answers: the cost of the transport, in a process of its own like the real one."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


class _Null(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(lambda body, context: b"")


def main() -> None:
    """Answer until stdin closes."""
    server = grpc.server(ThreadPoolExecutor(16), handlers=[_Null()])
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
