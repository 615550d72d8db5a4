"""What the scripts with the Azure SDK for Python have in common. The address of the Azure Resource Manager is the argument."""

import sys
import time

from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy


class Credential:
    """A credential of which the simulator takes any token."""

    def get_token(self, *scopes, **options):
        return AccessToken("a token", int(time.time()) + 3600)


class OverHttp(BearerTokenCredentialPolicy):
    """The client's own policy, which refuses to send a token over plain HTTP unless each request allows it."""

    def on_request(self, request):
        request.context.options["enforce_https"] = False
        super().on_request(request)


SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = "rg"
PROVIDERS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
NETWORK = f"{PROVIDERS}/Microsoft.Network"
VNET = f"{NETWORK}/virtualNetworks/vnet"


def client_of(kind):
    """A client of the SDK that polls without waiting."""
    policy = OverHttp(Credential(), "https://management.azure.com/.default")
    return kind(
        Credential(), SUBSCRIPTION, base_url=sys.argv[1], authentication_policy=policy, polling_interval=0
    )


def refused(call, *arguments, **named):
    """The status and code of a refusal."""
    try:
        call(*arguments, **named)
    except HttpResponseError as refusal:
        return refusal.status_code, refusal.error.code
    raise AssertionError(f"{call} was not refused")


def names(items):
    return sorted(item.name for item in items)
