# The image of Runledger: one program, no shell, uid 65532. docs/deploying.md says how it is run.
#
#   docker build --tag runledger .
#   buildah bud --format docker --tag runledger .     # the format that keeps the health check
#
# BUILDER has cargo, a C compiler, make and strip, and BASE's libc or an older one. BASE has libc, libgcc_s, the CAs that
# collectors and issuers of tokens are proven by, and nothing that could be run. No protoc: cargo builds it all.
ARG BUILDER=docker.io/library/rust:1.95-bookworm
ARG BASE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILDER} AS build
WORKDIR /src
COPY . .
# Both caches only save time. cargo compares the times of files, and those of a copy may be older than what the cache was
# built from: all are touched, so that our own packages are always compiled, and only dependencies are taken as they are.
RUN --mount=type=cache,id=runledger-registry,target=/usr/local/cargo/registry \
    --mount=type=cache,id=runledger-target,target=/src/target,sharing=locked \
    find . -path ./target -prune -o -type f -exec touch {} + \
    && cargo build --locked --release --bin runledger \
    && mkdir -p /image/bin /image/data \
    && strip -o /image/bin/runledger target/release/runledger

FROM ${BASE}
COPY --from=build /image/bin/runledger /usr/local/bin/runledger
# The one place that is written to. A new volume that is mounted there takes its owner from here.
COPY --from=build --chown=65532:65532 /image/data /var/lib/runledger
# Without --store, the ledger is /var/lib/runledger/ledger.db. Loopback would be the container's own: on all addresses,
# `serve` wants an access file or --insecure, as everywhere.
ENV XDG_DATA_HOME=/var/lib \
    RUNLEDGER_LISTEN=0.0.0.0:50051
USER 65532:65532
WORKDIR /var/lib/runledger
VOLUME /var/lib/runledger
# 50051 takes calls. 9090 is for --admin-listen 0.0.0.0:9090: probes and metrics, not for the public.
EXPOSE 50051 9090
# With TLS, RUNLEDGER_CLIENT_TLS_CA and RUNLEDGER_CLIENT_TLS_SERVER_NAME tell it how to ask.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["/usr/local/bin/runledger", "health"]
ENTRYPOINT ["/usr/local/bin/runledger"]
CMD ["serve"]

ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="Runledger" \
      org.opencontainers.image.description="The lifecycle authority for runs: a gRPC service on Postgres or embedded SQLite" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"
