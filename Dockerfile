# The replica daemon. Build: docker build -t spark-mariadb-binlog .      Run: see docker-compose.yml
FROM python:3.13-slim AS whole
WORKDIR /src
COPY constraints constraints
COPY pyproject.toml hatch_build.py tools/slim_environment.py README.md LICENSE ./
COPY pyspark_mariadb_binlog pyspark_mariadb_binlog
COPY replica replica
COPY streaming_source streaming_source
# What builds the wheel stays out of the environment that is shipped.
RUN python -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r constraints/build.txt \
 && python -m venv --without-pip /opt/replica \
 && /build/bin/pip --python /opt/replica/bin/python install --no-cache-dir --no-compile --require-hashes -r constraints/daemon.txt \
 && /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel . \
 && /build/bin/pip --python /opt/replica/bin/python install --no-cache-dir --no-compile --no-deps /wheel/*.whl
# All that makes the image smaller, here and in tools/slim_environment.py; docs/dev/measurements/daemon.md has the sizes. Of the base go what
# installs packages and what explains them (their licences stay); bytecode is written again, of what is imported.
RUN find / -xdev -name __pycache__ -prune -exec rm -rf {} + \
 && python slim_environment.py /opt/replica \
 && rm -rf /build /wheel /src /root/.cache /var/cache/* /var/lib/apt/lists/* /usr/share/python-wheels \
    /usr/share/locale /usr/share/man /usr/share/info \
 && cd "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && rm -rf ensurepip idlelib pydoc_data test tkinter turtledemo site-packages/pip* \
 && find /usr/share/doc -type f ! -name copyright -delete \
 && useradd --system --create-home replica && install -d -o replica /var/lib/replica

# Copied as a whole: what was removed is not in a layer below.
FROM scratch
COPY --from=whole / /
USER replica
# In the environment, so that status, tail, explain and purge find them too: docker exec NAME mariadb-replica status
ENV PATH=/opt/replica/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    NUMBA_CACHE_DIR=/home/replica/kernels MARIADB_REPLICA_RELAY_DIR=/var/lib/replica MARIADB_REPLICA_HTTP_LISTEN=0.0.0.0:9306
# Compiled when the image is built, not when the first transaction waits for its acknowledgement.
RUN python -m replica.native.warm
VOLUME /var/lib/replica
EXPOSE 9306
# Alive, not up to date: a replica that waits for its primary must not be restarted. For that ask /readyz.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9306/healthz', timeout=4)"]
ENTRYPOINT ["mariadb-replica"]
CMD ["run"]
