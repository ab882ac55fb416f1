# SPDX-License-Identifier: Apache-2.0
# The same with GPU kernels: docker build -f docker/cuda.Dockerfile -t tessera-cuda . ; docker run --gpus all tessera-cuda
# Linted, not run.
ARG CUDA=13.0.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
ARG ARCHS=90a
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
    -DTESSERA_CUDA=ON "-DTESSERA_CUDA_ARCHS=${ARCHS}" -DTESSERA_BUILD_TESTS=OFF -DTESSERA_PYTHON_MODULE=OFF \
    && cmake --build /build && cmake --install /build --strip

# cuBLASLt comes with this image; the driver is the host's.
FROM nvidia/cuda:${CUDA}-runtime-ubuntu24.04
# The versions are the distribution's.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
    libfmt9 libjpeg-turbo8 libpng16-16t64 libprotobuf-lite32t64 libsqlite3-0 libstdc++6 zlib1g \
    && rm -rf /var/lib/apt/lists/* && useradd --uid 10001 --create-home tessera
COPY --from=build /opt/tessera /opt/tessera
ENV PATH=/opt/tessera/bin:$PATH LD_LIBRARY_PATH=/opt/tessera/lib
USER 10001
WORKDIR /home/tessera
ENTRYPOINT ["tessera"]
CMD ["--help"]
