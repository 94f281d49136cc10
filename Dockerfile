# The replica daemon. Build: docker build -t spark-mariadb-binlog .      Run: see docker-compose.yml
FROM python:3.13-slim AS build
WORKDIR /src
COPY constraints constraints
COPY pyproject.toml README.md LICENSE pyspark_mariadb_binlog.py ./
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
ENV PATH=/opt/replica/bin:$PATH NUMBA_CACHE_DIR=/home/replica/kernels
# Compiled when the image is built, not when the first transaction waits for its acknowledgement.
RUN python -m replica.native.warm
VOLUME /var/lib/replica
ENTRYPOINT ["mariadb-replica"]
CMD ["run", "--relay-dir", "/var/lib/replica"]
