"""A Spark driver that runs what it is told: the process behind the `workbench` of the recipe tests.

In: settings as JSON and the number of a socket as arguments; from the socket, lines of JSON with Python code. Out: a
line of JSON for each, with the `result` that the code left or the traceback it ended with. The code finds `spark`, a
classic session whose JVM also serves Spark Connect.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback

from pyspark.sql import SparkSession


def main() -> None:
    settings, number = json.loads(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(number, False)  # or the JVM keeps it open after us
    builder = SparkSession.builder.master("local[2]").appName("recipes")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    names = {"spark": spark, "__name__": "recipe"}
    with socket.socket(fileno=number) as line, line.makefile("rw", encoding="utf-8") as stream:
        print(json.dumps({"result": spark.version}), file=stream, flush=True)
        for request in stream:
            names["result"] = None
            try:
                exec(compile(json.loads(request), "recipe", "exec"), names)  # noqa: S102  (that is what it is for)
                answer = {"result": names["result"]}
            except Exception:  # noqa: BLE001  (the test gets it)
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer, default=str), file=stream, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
