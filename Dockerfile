# One image for all roles: `docker run cutlayer label-party run.yaml`. docs/docker.md tells how to build and run it.

FROM python:3.11-slim-bookworm AS requirements
WORKDIR /build
COPY pyproject.toml scripts/requirements ./
RUN python requirements pyproject.toml > requirements.txt

FROM python:3.11-slim-bookworm AS build
# pip's own variables. The default finds the torch that is built for CPUs alone. Without a network, from wheels/:
# --network none --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/build/wheels
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ARG TORCH_VERSION=2.13.0
WORKDIR /build
# wheels/ may be missing, but something must be copied.
COPY LICENSE wheel[s]/*.whl wheels/
COPY --from=requirements /build/requirements.txt ./
# The dependencies by themselves: a change of the code leaves their layer, which is nearly all of the image, as it is.
RUN python -m venv --without-pip /opt/cutlayer \
 && pip --python /opt/cutlayer install --no-cache-dir "torch==$TORCH_VERSION" -r requirements.txt \
 && cd /opt/cutlayer/lib/python3.11/site-packages/torch && rm -rf include test bin/test_*
COPY LICENSE README.md pyproject.toml ./
COPY cutlayer cutlayer
COPY common common
COPY label_party label_party
COPY nonlabel_party nonlabel_party
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.11-slim-bookworm
# A number, not a name, so that whoever prepares files and secrets on the host can give them to this user.
RUN groupadd --gid 10001 cutlayer \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin cutlayer \
 && install -d -o 10001 -g 10001 -m 0700 /results
COPY --from=build /opt/cutlayer /opt/cutlayer
COPY --from=build /dist /dist
RUN pip --python /opt/cutlayer install --no-cache-dir --no-index --no-deps /dist/*.whl
ENV PATH=/opt/cutlayer/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
# Run files, and modules with plugins of your own; results go to --out /results.
WORKDIR /work
# Only the label party has a server to ask, so a probe is the business of who starts it, as docker-compose.yml does.
HEALTHCHECK NONE
ENTRYPOINT ["cutlayer"]
CMD ["--help"]
