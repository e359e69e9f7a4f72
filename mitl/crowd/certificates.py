"""Certificates of endpoints: what a refused one lacks, in one line, and the files of authorities that are trusted.

Two libraries speak to an endpoint, each with a variable of its own for the authorities that it trusts: httpx reads
``SSL_CERT_FILE``, botocore ``AWS_CA_BUNDLE``. Python's ``ssl`` checks a certificate inside the handshake and
urllib3 its names right after it, so where either refuses, no request has been sent.
"""

from __future__ import annotations

import os
import ssl

from mitl.errors import EndpointError, SettingsError

# OpenSSL's numbers (X509_V_ERR_...), which Python gives as ``verify_code`` without names.
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_NAME = 62
_WRONG_ADDRESS = 64
_UNTRUSTED = {2, 18, 19, 20, 21, 27}


def refusal(error: BaseException) -> ValueError | None:
    """Why a certificate was refused when a connection was opened; None where the error is of another kind.

    Args:
        error: httpx's ConnectError or botocore's SSLError. Only what it reports is followed, not what was being
            handled when it was raised, which may be an earlier call's.
    """
    step: BaseException | None = error
    while step is not None:
        # ssl.SSLCertVerificationError and urllib3's CertificateError both are; neither library puts another there.
        if isinstance(step, ValueError):
            return step
        inner = (step.__cause__, getattr(step, "kwargs", {}).get("error"), *step.args)
        step = next((cause for cause in inner if isinstance(cause, BaseException)), None)
    return None


def endpoint_error(url: str, refused: ValueError) -> EndpointError:
    """The line for a certificate that was refused at this address: what was found, and what to do."""
    # urllib3's error has neither attribute; it is about names alone.
    code = getattr(refused, "verify_code", _WRONG_NAME)
    reason = " ".join(str(getattr(refused, "verify_message", refused)).split()).rstrip(".")
    return EndpointError(f"the TLS certificate of {url} cannot be verified: {reason}; {_remedy(code)}")


def _remedy(code: int) -> str:
    if code in _UNTRUSTED:
        return (
            "if an authority of your own signed it, set both SSL_CERT_FILE and AWS_CA_BUNDLE to the file with that "
            "authority's certificate (a self-signed one is its own authority)"
        )
    if code in (_WRONG_NAME, _WRONG_ADDRESS):
        return (
            "write the address that the certificate is for in --endpoint-url, AWS_ENDPOINT_URL_MTURK or "
            "[crowd] endpoint in mitl.toml, or for links in --base-url"
        )
    if code == _EXPIRED:
        return "renew it where that server runs, or mend this machine's clock"
    if code == _NOT_YET_VALID:
        return "compare this machine's clock with the certificate's first day"
    return "replace it where that server runs"


def httpx_context() -> ssl.SSLContext:
    """What httpx trusts by default, also for calls that take nothing else, such as proxies, from the environment.

    Raises:
        SettingsError: the file that the variable names cannot be read.
    """
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise _unreadable("SSL_CERT_FILE", os.environ.get("SSL_CERT_FILE", ""), error) from error


def check_bundle(path: str) -> None:
    """Read the authorities that botocore is to trust; it would itself do so, and fail, only at the first call.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:
        raise _unreadable("AWS_CA_BUNDLE, or ca_bundle of AWS's configuration,", path, error) from error


def _unreadable(setting: str, path: str, error: OSError) -> SettingsError:
    why = "it holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
    return SettingsError(
        f"{setting} is {path!r}, and the certificates there cannot be read: {why}; name a PEM file of them, or unset it"
    )
