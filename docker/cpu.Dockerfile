# SPDX-License-Identifier: Apache-2.0
# The program and libtessera for CPUs, from this tree: docker build -f docker/cpu.Dockerfile -t tessera .
# Linted, not run.
FROM debian:12-slim AS build
# The versions are the distribution's.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates cmake g++ libcli11-dev libfmt-dev libjpeg-dev libpng-dev libprotobuf-dev libsqlite3-dev \
    ninja-build nlohmann-json3-dev protobuf-compiler python3 python3-venv zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python3 -m venv /venv && /venv/bin/python tools/fetch_deps.py \
    && cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/opt/tessera \
    -DTESSERA_CUDA=OFF -DTESSERA_BUILD_TESTS=OFF -DTESSERA_PYTHON_MODULE=OFF \
    && cmake --build /build && cmake --install /build --strip

FROM debian:12-slim
# The versions are the distribution's.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
    libfmt9 libjpeg62-turbo libpng16-16 libprotobuf-lite32 libsqlite3-0 libstdc++6 zlib1g \
    && rm -rf /var/lib/apt/lists/* && useradd --uid 10001 --create-home tessera
COPY --from=build /opt/tessera /opt/tessera
ENV PATH=/opt/tessera/bin:$PATH LD_LIBRARY_PATH=/opt/tessera/lib
USER 10001
WORKDIR /home/tessera
ENTRYPOINT ["tessera"]
CMD ["--help"]
