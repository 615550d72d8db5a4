"""The Azure SDK for Python, unchanged, against the Azure Resource Manager whose address is the only argument."""

from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.network import NetworkManagementClient, models

from azure_common import GROUP, NETWORK, VNET, client_of, names, refused

client = client_of(NetworkManagementClient)


def check_common(operations, name, parameters):
    """Creates a resource, and does with it whatever can be done with any."""
    created = operations.begin_create_or_update(GROUP, name, parameters).result()
    assert (created.name, created.properties.provisioning_state) == (name, "Succeeded"), created
    read = operations.get(GROUP, name)
    assert read.as_dict() == created.as_dict(), (read, created)
    again = operations.begin_create_or_update(GROUP, name, read.as_dict()).result()
    assert again.id == read.id and again.etag != read.etag
    tagged = operations.update_tags(GROUP, name, models.TagsObject(tags={"owner": "me"}))
    assert tagged.tags == {"owner": "me"} and operations.get(GROUP, name).tags == {"owner": "me"}
    assert name in names(operations.list(GROUP))
    assert name in names(operations.list_all())
    assert name not in names(operations.list("another"))
    assert refused(operations.get, GROUP, "none") == (404, "ResourceNotFound")
    return created


def public_ip(version):
    return models.PublicIPAddress(
        location="eastus",
        sku=models.PublicIPAddressSku(name="StandardV2"),
        properties=models.PublicIPAddressPropertiesFormat(
            public_ip_allocation_method="Static", public_ip_address_version=version
        ),
    )


# Public IPs, of both families, and by the page.
addresses = set()
for version in ["IPv4", "IPv6"]:
    created = check_common(client.public_ip_addresses, f"pip-{version.lower()}", public_ip(version))
    addresses.add(created.properties.ip_address)
assert len(addresses) == 2 and None not in addresses
pollers = [client.public_ip_addresses.begin_create_or_update(GROUP, f"many-{at}", public_ip("IPv4")) for at in range(7)]
many = {poller.result().name for poller in pollers}
pages = [[item.name for item in page] for page in client.public_ip_addresses.list(GROUP).by_page()]
assert [len(page) for page in pages] == [3, 3, 3], pages
assert {name for page in pages for name in page} == many | {"pip-ipv4", "pip-ipv6"}
for name in many:
    client.public_ip_addresses.begin_delete(GROUP, name).result()
assert names(client.public_ip_addresses.list(GROUP)) == ["pip-ipv4", "pip-ipv6"]
dynamic = public_ip("IPv4")
dynamic.properties.public_ip_allocation_method = "Dynamic"
refusal = refused(client.public_ip_addresses.begin_create_or_update, GROUP, "bad", dynamic)
assert refusal == (400, "StandardSkuPublicIPAddressMustBeStatic"), refusal

# A load balancer.
BALANCER = f"{NETWORK}/loadBalancers/web"
POOL = f"{BALANCER}/backendAddressPools/web"
balancer = models.LoadBalancer(
    location="eastus",
    sku=models.LoadBalancerSku(name="Service"),
    properties=models.LoadBalancerPropertiesFormat(
        scope="Public",
        frontend_ip_configurations=[
            models.FrontendIPConfiguration(
                name="frontend",
                properties=models.FrontendIPConfigurationPropertiesFormat(
                    public_ip_address=models.PublicIPAddress(id=f"{NETWORK}/publicIPAddresses/pip-ipv4")
                ),
            )
        ],
        backend_address_pools=[
            models.BackendAddressPool(name="web", properties=models.BackendAddressPoolPropertiesFormat())
        ],
        load_balancing_rules=[
            models.LoadBalancingRule(
                name="rule-tcp-80",
                properties=models.LoadBalancingRulePropertiesFormat(
                    protocol="Tcp",
                    frontend_port=80,
                    backend_port=8080,
                    idle_timeout_in_minutes=4,
                    enable_tcp_reset=True,
                    frontend_ip_configuration=models.SubResource(id=f"{BALANCER}/frontendIPConfigurations/frontend"),
                    backend_address_pool=models.SubResource(id=POOL),
                ),
            )
        ],
    ),
)
created = check_common(client.load_balancers, "web", balancer)
assert created.properties.backend_address_pools[0].id == POOL
assert created.properties.load_balancing_rules[0].properties.backend_port == 8080
assert refused(client.public_ip_addresses.begin_delete, GROUP, "pip-ipv4") == (400, "PublicIPAddressCannotBeDeleted")

# A ServiceGateway of one's own, and the one that holds services.
check_common(
    client.service_gateways,
    "mine",
    models.ServiceGateway(
        location="eastus",
        sku=models.ServiceGatewaySku(name="Standard", tier="Regional"),
        properties=models.ServiceGatewayPropertiesFormat(
            virtual_network=models.VirtualNetwork(id=VNET),
            route_target_address=models.RouteTargetAddressPropertiesFormat(
                subnet=models.Subnet(id=f"{VNET}/subnets/nodes"),
                private_ip_address="10.0.0.4",
                private_ip_allocation_method="Static",
            ),
        ),
    ),
)
client.service_gateways.begin_delete(GROUP, "mine").result()
assert names(client.service_gateways.list(GROUP)) == ["servicegateway"]
GATEWAY = client.service_gateways.get(GROUP, "servicegateway")

# A NAT gateway.
# As JSON: the model of a ServiceGateway holds its id to be read-only, and would leave it out.
nat_gateway = {
    "location": "eastus",
    "sku": {"name": "StandardV2"},
    "properties": {
        "publicIpAddressesV6": [{"id": f"{NETWORK}/publicIPAddresses/pip-ipv6"}],
        "serviceGateway": {"id": GATEWAY.id},
    },
}
check_common(client.nat_gateways, "out", nat_gateway)

# Services and addresses.
gateways = client.service_gateways


def service(name, **properties):
    properties = models.ServiceGatewayServicePropertiesFormat(**properties)
    return models.ServiceGatewayServiceRequest(
        is_delete=False, service=models.ServiceGatewayService(name=name, properties=properties)
    )


def removed(name):
    return models.ServiceGatewayServiceRequest(is_delete=True, service=models.ServiceGatewayService(name=name))


def update_services(action, *requests):
    request = models.ServiceGatewayUpdateServicesRequest(action=action, service_requests=list(requests))
    return gateways.update_services(GROUP, "servicegateway", request)


def update_locations(action, *locations):
    request = models.ServiceGatewayUpdateAddressLocationsRequest(action=action, address_locations=list(locations))
    return gateways.update_address_locations(GROUP, "servicegateway", request)


def location(name, action, **addresses):
    addresses = [models.ServiceGatewayAddress(address=address, services=on) for address, on in addresses.items()]
    return models.ServiceGatewayAddressLocation(
        address_location=name, address_update_action=action, addresses=addresses
    )


def held():
    found = gateways.get_address_locations(GROUP, "servicegateway")
    return {at.address_location: {entry.address: entry.services for entry in at.addresses} for at in found}


pool = models.BackendAddressPool(
    id=POOL,
    name="web",
    properties=models.BackendAddressPoolPropertiesFormat(virtual_network=models.SubResource(id=VNET)),
)
answer = update_services(
    "PartialUpdate",
    service("web", service_type="Inbound", load_balancer_backend_pools=[pool]),
    service("out", service_type="Outbound", public_nat_gateway_id=f"{NETWORK}/natGateways/out"),
    *(service(f"spare-{at}", service_type="Outbound") for at in range(5)),
)
assert answer.status == "OK", answer
found = {item.name: item.properties for item in gateways.get_services(GROUP, "servicegateway")}
assert sorted(found) == ["out", "spare-0", "spare-1", "spare-2", "spare-3", "spare-4", "web"]
assert found["web"].service_type == "Inbound" and not found["web"].is_default
assert found["web"].load_balancer_backend_pools[0].id == POOL
assert found["out"].public_nat_gateway_id == f"{NETWORK}/natGateways/out"
update_services("PartialUpdate", *(removed(f"spare-{at}") for at in range(5)))
assert names(gateways.get_services(GROUP, "servicegateway")) == ["out", "web"]

update_locations(
    "FullUpdate",
    *(location(f"10.0.0.{at}", "FullUpdate", **{f"10.1.{at}.1": ["web"], f"10.1.{at}.2": ["web", "out"]}) for at in range(4)),
    location("fd00::1", "FullUpdate", **{"fd01::1": ["out"]}),
)
assert len(held()) == 5 and held()["10.0.0.3"] == {"10.1.3.1": ["web"], "10.1.3.2": ["out", "web"]}, held()
in_pool = {f"10.1.{at}.{pod}" for at in range(4) for pod in (1, 2)}
read = client.load_balancer_backend_address_pools.get(GROUP, "web", "web")
assert {entry.properties.ip_address for entry in read.properties.load_balancer_backend_addresses} == in_pool
assert read.as_dict() == client.load_balancers.get(GROUP, "web").properties.backend_address_pools[0].as_dict()
assert names(client.load_balancer_backend_address_pools.list(GROUP, "web")) == ["web"]
assert names(client.load_balancer_load_balancing_rules.list(GROUP, "web")) == ["rule-tcp-80"]
assert client.load_balancer_frontend_ip_configurations.get(GROUP, "web", "frontend").id.endswith("/frontend")
assert refused(client.load_balancer_backend_address_pools.get, GROUP, "web", "none") == (404, "NotFound")
update_locations("PartialUpdate", location("10.0.0.0", "PartialUpdate", **{"10.1.0.1": []}), location("fd00::1", "PartialUpdate"))
assert held()["10.0.0.0"] == {"10.1.0.2": ["out", "web"]} and "fd00::1" not in held()
unknown = location("10.0.0.0", "PartialUpdate", **{"10.1.0.9": ["none"]})
assert refused(update_locations, "PartialUpdate", unknown) == (400, "ServiceNotFoundInServiceGateway")
assert refused(update_services, "PartialUpdate", removed("web")) == (400, "ServiceWithOverlayMappingsCannotBeDeleted")
assert refused(client.load_balancers.begin_delete, GROUP, "web")[0] == 400

# All of it goes, in the order in which it can.
update_locations("FullUpdate")
update_services("FullUpdate")
assert held() == {} and names(gateways.get_services(GROUP, "servicegateway")) == []
client.load_balancers.begin_delete(GROUP, "web").result()
untied = client.nat_gateways.get(GROUP, "out").as_dict()
untied["properties"]["serviceGateway"] = None
client.nat_gateways.begin_create_or_update(GROUP, "out", untied).result()
client.nat_gateways.begin_delete(GROUP, "out").result()
for version in ["ipv4", "ipv6"]:
    client.public_ip_addresses.begin_delete(GROUP, f"pip-{version}").result()
for operations in [client.public_ip_addresses, client.load_balancers, client.nat_gateways]:
    assert names(operations.list(GROUP)) == []
    operations.begin_delete(GROUP, "none").result()
    try:
        operations.get(GROUP, "none")
        raise AssertionError("there is one")
    except ResourceNotFoundError:
        pass
print("all is well")
