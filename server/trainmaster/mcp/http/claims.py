"""Who a token of an authorization server is about, by its claims."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.protocol.text import cleaned
from trainmaster.mcp.http.authentication import Identity, Principal
from trainmaster.settings.roles import ROLES, Role
from trainmaster.settings.server_settings import OAuthSettings

# Of those that a token has the first counts: a user, or the client that acts for nobody.
_CLAIMS = ("sub", "client_id", "azp")
_LONGEST_VALUE = 1024
_LONGEST_NAME = 80
# Such a subject is shown as it is; any other text could be taken for another one.
_PLAIN = re.compile(r"[A-Za-z0-9._@|:+-]{1,80}")


def roles_of_scopes(settings: OAuthSettings) -> Mapping[str, Role]:
    """The role that each scope grants."""
    if settings.scopes is not None:
        return settings.scopes
    return {f"trainmaster:{role}": role for role in ROLES}


def scope_names(settings: OAuthSettings) -> list[str]:
    """The scopes that grant a role, the least first."""
    scopes = roles_of_scopes(settings)
    return sorted(scopes, key=lambda scope: ROLES.index(scopes[scope]))


def identity_of(claims: Mapping[str, Any], settings: OAuthSettings) -> Identity | None:
    """Who it is, and the highest role of a scope; None for a token that names nobody."""
    claim = next((name for name in _CLAIMS if claims.get(name) is not None), None)
    value = None if claim is None else claims[claim]
    if claim is None or not isinstance(value, str) or not 0 < len(value) <= _LONGEST_VALUE:
        return None
    principal = Principal(settings.issuer, claim, value)
    return Identity(principal, shown_name(principal), _role(claims, settings))


def shown_name(principal: Principal) -> str:
    """A name that no token of the home has, and no other principal of an authorization server:
    with a digest of all of it where the text alone could be another's."""
    text = f"oauth:{principal.value}"
    if principal.claim == "sub" and _PLAIN.fullmatch(principal.value):
        return text
    whole = json.dumps([principal.issuer, principal.claim, principal.value]).encode()
    return f"{cleaned(text, _LONGEST_NAME)}#{hashlib.sha256(whole).hexdigest()[:12]}"


def _role(claims: Mapping[str, Any], settings: OAuthSettings) -> Role | None:
    scopes = claims.get("scope", claims.get("scp"))
    listed = scopes.split() if isinstance(scopes, str) else scopes
    names = set(map(str, listed)) if isinstance(listed, list) else set[str]()
    granted = [role for scope, role in roles_of_scopes(settings).items() if scope in names]
    return max(granted, key=ROLES.index, default=None)
