# The replica daemon. Build: docker build -t spark-mariadb-binlog .      Run: see docker-compose.yml
FROM python:3.13-slim AS build
WORKDIR /src
COPY constraints constraints
COPY pyproject.toml hatch_build.py README.md LICENSE pyspark_mariadb_binlog.py ./
COPY replica replica
COPY streaming_source streaming_source
RUN python -m venv /opt/replica \
 && /opt/replica/bin/pip install --no-cache-dir --require-hashes -r constraints/build.txt \
 && /opt/replica/bin/pip install --no-cache-dir --require-hashes -r constraints/daemon.txt \
 && /opt/replica/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
RUN useradd --system --create-home replica && install -d -o replica /var/lib/replica
COPY --from=build /opt/replica /opt/replica
USER replica
# In the environment, so that status, tail, explain and purge find them too: docker exec NAME mariadb-replica status
ENV PATH=/opt/replica/bin:$PATH NUMBA_CACHE_DIR=/home/replica/kernels \
    MARIADB_REPLICA_RELAY_DIR=/var/lib/replica MARIADB_REPLICA_HTTP_LISTEN=0.0.0.0:9306
# Compiled when the image is built, not when the first transaction waits for its acknowledgement.
RUN python -m replica.native.warm
VOLUME /var/lib/replica
EXPOSE 9306
# Alive, not up to date: a replica that waits for its primary must not be restarted. For that ask /readyz.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9306/healthz', timeout=4)"]
ENTRYPOINT ["mariadb-replica"]
CMD ["run"]
