"""An authority of a test's own and the certificates that it signs, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mitl.crowd_server.middleware.exposure import Tls

_CONFIG = """
[req]
distinguished_name = name
prompt = no
x509_extensions = authority
[name]
commonName = {name}
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = CA:false
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
[ca]
default_ca = this
[this]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates; ``certificate`` is the file by which it is trusted."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl, which makes certificates for the test, is missing")
        folder.mkdir()
        self.folder = folder
        self.certificate = folder / "root.crt"
        self._key = folder / "root.key"
        (folder / "index.txt").touch()
        config = self._config("An authority of one's own")
        _openssl("req", *config, "-x509", *_KEY, "-days", "2", "-keyout", self._key, "-out", self.certificate)

    def sign(self, label: str, names: str, start: str = "", end: str = "99991231235959Z") -> Tls:
        """A certificate for these ``subjectAltName``, good from now on or from ``start``, and until ``end``."""
        made = Tls(self.folder / f"{label}.crt", self.folder / f"{label}.key")
        request = self.folder / f"{label}.csr"
        config = self._config("crowd", names)
        _openssl("req", *config, "-new", *_KEY, "-keyout", made.key, "-out", request)
        words = ("-batch", "-notext", "-extensions", "leaf", "-cert", self.certificate, "-keyfile", self._key)
        first = ("-startdate", start) if start else ()
        _openssl("ca", *config, *words, *first, "-enddate", end, "-in", request, "-out", made.certificate)
        return made

    def _config(self, name: str, names: str = "DNS:none") -> tuple[str, Path]:
        path = self.folder / "openssl.cnf"
        path.write_text(_CONFIG.format(name=name, names=names, folder=self.folder))
        return "-config", path


def self_signed(folder: Path, names: str) -> Tls:
    """A certificate that is its own authority, as one command makes it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes certificates for the test, is missing")
    made = Tls(folder / "self.crt", folder / "self.key")
    where = ("-keyout", made.key, "-out", made.certificate)
    _openssl("req", "-x509", *_KEY, *where, "-subj", "/CN=crowd", "-addext", f"subjectAltName={names}")
    return made


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
