# Two images: `mitl` (every command) and `proxy` (Caddy that runs without root).
#
#   docker build --target mitl -t mitl .
#
# Without a network: put wheels of mitl and of all it needs into wheels/ first (see docs/containers.md); where that
# folder holds any, nothing is fetched from an index.
#
# The proxy stands first: builders without BuildKit make every stage above the target.

FROM caddy:2.10.2-alpine AS proxy
# The binary's file capability would stop it under no-new-privileges; the compose file opens 80 and 443 to everybody.
# The base has a folder of root's in /data, and Caddy keeps its certificates there.
RUN cp /usr/bin/caddy /usr/bin/caddy-plain && mv /usr/bin/caddy-plain /usr/bin/caddy \
 && mkdir -p /data && chown -R 10001:10001 /data
COPY deploy/Caddyfile /etc/caddy/Caddyfile
# It writes a copy of its configuration, which nobody needs.
ENV XDG_CONFIG_HOME=/tmp
USER 10001:10001
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Which extras the image holds; `torch,pivot,cpu` add the annotators on the CPU.
ARG EXTRAS=postgres
COPY . .
RUN python -m venv /opt/mitl \
 && if ls wheels/*.whl >/dev/null 2>&1; then \
      /opt/mitl/bin/pip install --no-index --find-links wheels "mitl[${EXTRAS}]"; \
    else \
      /opt/mitl/bin/pip install -c constraints.txt ".[${EXTRAS}]"; \
    fi

FROM python:3.11.14-slim-bookworm AS mitl
COPY --from=build /opt/mitl /opt/mitl
ENV PATH=/opt/mitl/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A new named volume takes the owner of the folder that it covers.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin mitl \
 && install -d -o 10001 -g 10001 -m 700 /crowd /project
USER 10001:10001
WORKDIR /project
CMD ["mitl", "--help"]
