# The MCP server, the board and the keeper in an image; trainings run on other machines.
#
#   docker build -t trainmaster .        # or podman; docs/containers.md shows how it is run
#
# BASE: Debian or Ubuntu with Python 3.11 or newer.
ARG BASE=python:3.13-slim

FROM ${BASE} AS built
COPY . /src
RUN python3 -m venv /opt/trainmaster && \
    /opt/trainmaster/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        "/src[kaggle,plot]"
# No timer runs in a container: this one has the keeper's work done, until it is stopped.
RUN printf '%s\n' '#!/bin/sh' 'trap "exit 0" TERM INT' \
        'while :; do trainmaster tick --every 5m; sleep 300 & wait $!; done' \
        > /opt/trainmaster/bin/trainmaster-keeper && \
    chmod 755 /opt/trainmaster/bin/trainmaster-keeper

FROM ${BASE}
RUN if ! command -v git || ! command -v ssh; then \
        apt-get update -qq && \
        apt-get install -qq -y --no-install-recommends git openssh-client && \
        rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=built /opt/trainmaster /opt/trainmaster
RUN mkdir -m 700 /data && chown 10001:10001 /data
ENV PATH=/opt/trainmaster/bin:$PATH HOME=/data USER=trainmaster \
    TRAINMASTER_HOME=/data/trainmaster PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
WORKDIR /data
CMD ["trainmaster", "mcp"]
