"""The Azure SDK for Python, unchanged, with Compute, against the Azure Resource Manager whose address is the argument."""

from azure.mgmt.compute import ComputeManagementClient, models
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.network import models as network_models

from azure_common import GROUP, NETWORK, PROVIDERS, VNET, client_of, names, refused

client = client_of(ComputeManagementClient)
network = client_of(NetworkManagementClient)
sets, instances, machines = (
    client.virtual_machine_scale_sets,
    client.virtual_machine_scale_set_vms,
    client.virtual_machines,
)
SUBNET = f"{VNET}/subnets/nodes"


def scale_set(mode, capacity):
    """As JSON: what the models leave out is then what the simulator does not get to see."""
    ip = {"name": "ip", "properties": {"subnet": {"id": SUBNET}, "primary": True}}
    return models.VirtualMachineScaleSet(
        {
            "location": "eastus",
            "sku": {"name": "Standard_D2s_v3", "capacity": capacity},
            "properties": {
                "orchestrationMode": mode,
                "virtualMachineProfile": {
                    "osProfile": {"computerNamePrefix": "node", "adminUsername": "me"},
                    "networkProfile": {
                        "networkInterfaceConfigurations": [
                            {"name": "nic", "properties": {"primary": True, "ipConfigurations": [ip]}}
                        ]
                    },
                },
            },
        }
    )


def power(view):
    return [status.code for status in view.statuses if status.code.startswith("PowerState/")]


# A uniform scale set.
created = sets.begin_create_or_update(GROUP, "uni", scale_set("Uniform", 4)).result()
assert (created.name, created.properties.provisioning_state) == ("uni", "Succeeded"), created
assert sets.get(GROUP, "uni").as_dict() == created.as_dict()
assert names(sets.list(GROUP)) == ["uni"] and names(sets.list_all()) == ["uni"]
assert refused(sets.get, GROUP, "none") == (404, "ResourceNotFound")

# Its instances, by the page, with what they are doing.
pages = [[item.instance_id for item in page] for page in instances.list(GROUP, "uni").by_page()]
assert pages == [["0", "1", "2"], ["3"]], pages
listed = list(instances.list(GROUP, "uni", expand="instanceView"))
assert [power(one.properties.instance_view) for one in listed] == [["PowerState/running"]] * 4
assert [one.properties.os_profile.computer_name for one in listed] == [f"node00000{at}" for at in range(4)]
first = instances.get(GROUP, "uni", "0")
assert first.name == "uni_0" and first.properties.latest_model_applied is True
assert power(instances.get_instance_view(GROUP, "uni", "0")) == ["PowerState/running"]
assert refused(instances.get, GROUP, "uni", "9") == (404, "ResourceNotFound")
view = sets.get_instance_view(GROUP, "uni")
assert {entry.code: entry.count for entry in view.virtual_machine.statuses_summary}["ProvisioningState/succeeded"] == 4

# Their interfaces.
found = list(network.network_interfaces.list_virtual_machine_scale_set_network_interfaces(GROUP, "uni"))
ips = [nic.properties.ip_configurations[0].properties.private_ip_address for nic in found]
assert len(set(ips)) == 4, ips
of_one = list(network.network_interfaces.list_virtual_machine_scale_set_vm_network_interfaces(GROUP, "uni", "1"))
assert of_one[0].as_dict() == found[1].as_dict()
one = network.network_interfaces.get_virtual_machine_scale_set_network_interface(GROUP, "uni", "1", "nic")
assert one.as_dict() == of_one[0].as_dict()

# A pool that instance 0 joins.
network.public_ip_addresses.begin_create_or_update(
    GROUP,
    "pip",
    {"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}},
).result()
frontend = {"name": "f", "properties": {"publicIPAddress": {"id": f"{NETWORK}/publicIPAddresses/pip"}}}
network.load_balancers.begin_create_or_update(
    GROUP,
    "lb",
    {
        "location": "eastus",
        "sku": {"name": "Standard"},
        "properties": {"frontendIPConfigurations": [frontend], "backendAddressPools": [{"name": "nodes"}]},
    },
).result()
configurations = first.properties.network_profile_configuration.network_interface_configurations
ip = configurations[0].properties.ip_configurations[0]
for pool, outcome in [("none", (400, "InvalidResourceReference")), ("nodes", None)]:
    pool = f"{NETWORK}/loadBalancers/lb/backendAddressPools/{pool}"
    ip.properties.load_balancer_backend_address_pools = [models.SubResource(id=pool)]
    if outcome:
        assert refused(instances.begin_update, GROUP, "uni", "0", first) == outcome
        continue
    joined = instances.begin_update(GROUP, "uni", "0", first).result()
    assert joined.etag != first.etag and joined.properties.provisioning_state == "Succeeded", joined
one = network.network_interfaces.get_virtual_machine_scale_set_network_interface(GROUP, "uni", "0", "nic")
pools = one.properties.ip_configurations[0].properties.load_balancer_backend_address_pools
assert [pool.id for pool in pools] == [f"{NETWORK}/loadBalancers/lb/backendAddressPools/nodes"]

# Power, of one and of all.
instances.begin_power_off(GROUP, "uni", "0").result()
assert power(instances.get_instance_view(GROUP, "uni", "0")) == ["PowerState/stopped"]
instances.begin_start(GROUP, "uni", "0").result()
sets.begin_deallocate(GROUP, "uni").result()
assert power(instances.get_instance_view(GROUP, "uni", "0")) == ["PowerState/deallocated"]
sets.begin_start(GROUP, "uni").result()
assert power(instances.get_instance_view(GROUP, "uni", "0")) == ["PowerState/running"]
instances.begin_restart(GROUP, "uni", "0").result()
instances.begin_reimage(GROUP, "uni", "0").result()

# More, fewer, and those that are named.
bigger = sets.begin_update(GROUP, "uni", models.VirtualMachineScaleSetUpdate(sku=models.Sku(capacity=6))).result()
assert bigger.sku.capacity == 6
gone = models.VirtualMachineScaleSetVMInstanceRequiredIDs(instance_ids=["1", "4"])
sets.begin_delete_instances(GROUP, "uni", gone).result()
instances.begin_delete(GROUP, "uni", "5").result()
assert [one.instance_id for one in instances.list(GROUP, "uni")] == ["0", "2", "3"]
assert sets.get(GROUP, "uni").sku.capacity == 3
tagged = sets.begin_update(GROUP, "uni", models.VirtualMachineScaleSetUpdate(tags={"owner": "me"})).result()
assert tagged.tags == {"owner": "me"}

# A flexible one, whose machines are virtual machines.
sets.begin_create_or_update(GROUP, "flex", scale_set("Flexible", 2)).result()
which = f"'virtualMachineScaleSet/id' eq '{PROVIDERS}/Microsoft.Compute/virtualMachineScaleSets/flex'"
members = list(machines.list(GROUP, filter=which))
assert len(members) == 2 and names(instances.list(GROUP, "flex")) == names(members)
nic = members[0].properties.network_profile.network_interfaces[0].id
assert nic.rsplit("/", 1)[1] in names(network.network_interfaces.list(GROUP))
assert names(network.network_interfaces.list_all()) == names(network.network_interfaces.list(GROUP))
machines.begin_delete(GROUP, members[0].name).result()
assert names(machines.list(GROUP, filter=which)) == [members[1].name]
assert len(list(network.network_interfaces.list(GROUP))) == 1

# A machine of its own, with an interface of its own.
ip = {"name": "ip", "properties": {"subnet": {"id": SUBNET}}}
interface = {"location": "eastus", "properties": {"ipConfigurations": [ip]}}
nic = network.network_interfaces.begin_create_or_update(GROUP, "nic", interface).result()
assert nic.properties.ip_configurations[0].properties.private_ip_address
assert network.network_interfaces.get(GROUP, "nic").as_dict() == nic.as_dict()
tags = network_models.TagsObject(tags={"owner": "me"})
assert network.network_interfaces.update_tags(GROUP, "nic", tags).tags == {"owner": "me"}
machine = {
    "location": "eastus",
    "properties": {
        "hardwareProfile": {"vmSize": "Standard_D2s_v3"},
        "osProfile": {"computerName": "alone", "adminUsername": "me"},
        "networkProfile": {"networkInterfaces": [{"id": nic.id, "properties": {"primary": True}}]},
    },
}
alone = machines.begin_create_or_update(GROUP, "alone", models.VirtualMachine(machine)).result()
assert alone.properties.provisioning_state == "Succeeded" and alone.properties.os_profile.computer_name == "alone"
assert machines.get(GROUP, "alone").as_dict() == alone.as_dict()
assert "alone" in names(machines.list(GROUP)) and "alone" in names(machines.list_all())
assert refused(network.network_interfaces.begin_delete, GROUP, "nic") == (400, "NicInUse")
machines.begin_power_off(GROUP, "alone").result()
assert power(machines.instance_view(GROUP, "alone")) == ["PowerState/stopped"]
machines.begin_start(GROUP, "alone").result()
expanded = machines.get(GROUP, "alone", expand="instanceView")
assert power(expanded.properties.instance_view) == ["PowerState/running"]
tagged = machines.begin_update(GROUP, "alone", models.VirtualMachineUpdate(tags={"owner": "me"})).result()
assert tagged.tags == {"owner": "me"}
machines.begin_delete(GROUP, "alone").result()
network.network_interfaces.begin_delete(GROUP, "nic").result()
assert refused(machines.get, GROUP, "alone") == (404, "ResourceNotFound")
assert refused(network.network_interfaces.get, GROUP, "nic") == (404, "ResourceNotFound")

# All of it goes.
for name in ["uni", "flex", "none"]:
    sets.begin_delete(GROUP, name).result()
assert names(sets.list(GROUP)) == [] and names(machines.list(GROUP)) == []
assert names(network.network_interfaces.list(GROUP)) == []
network.load_balancers.begin_delete(GROUP, "lb").result()
network.public_ip_addresses.begin_delete(GROUP, "pip").result()
print("all is well")
